"""The register of JAX's operators: which function of JAX's arrays computes a node.

It is a pure function that JAX can trace, compile and differentiate; XLA fuses what it is written in, so it is written
for the reader. The shared operators are there first; one of JAX's own takes the place of a shared one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from levelbench.frameworks.jax.arrays import numpy_dtype
from levelbench.frameworks.shared.operators import SHARED, ArrayLibrary, Makers, SharedMaker, with_attributes
from levelbench.operators.contract import Function
from levelbench.operators.node import OperatorNode

Maker = Callable[[OperatorNode], Function]
Condition = Callable[[OperatorNode], bool]


class JaxEntry(NamedTuple):
    """How an operator is made."""

    make: Maker
    eager: Condition
    """Whether the shape of an output depends on values, so that the node cannot be compiled as a whole."""
    random: bool = False
    """Whether the function takes a key of JAX's random numbers first."""
    backward: Maker | None = None
    """Makes (gradients, inputs, outputs) -> gradients of inputs, where JAX cannot find them from the inputs alone."""


_MAKERS: Makers[JaxEntry] = Makers("jax")
names, find, refuse = _MAKERS.names, _MAKERS.find, _MAKERS.refuse


def maker(
    *names: str, domain: str = "", eager: bool | Condition = False, random: bool = False, backward: Maker | None = None
) -> Callable[[Maker], Maker]:
    """Register what makes the function of a node."""

    def register(make: Maker) -> Maker:
        condition = eager if callable(eager) else lambda _: eager
        for name in names:
            _MAKERS.add(domain, name, JaxEntry(make, condition, random, backward))
        return make

    return register


def operator(
    *names: str, domain: str = "", eager: bool | Condition = False, random: bool = False, backward: Maker | None = None
) -> Callable[[Function], Function]:
    """Register a function of arrays whose keyword-only parameters are attributes."""

    def register(function: Function) -> Function:
        make = maker(*names, domain=domain, eager=eager, random=random, backward=backward)
        make(lambda node: with_attributes(function, node))
        return function

    return register


def table(functions: Mapping[str, Function]) -> None:
    """Register the functions of operators."""
    for name, function in functions.items():
        operator(name)(function)


PRECISION = lax.Precision.HIGHEST
"""float32 products are taken in float32 on every device: an accelerator's faster ones are not what ONNX asks for."""


def _linear(x: Array, weight: Array, bias: Array | None) -> Array:
    product = jnp.matmul(x, weight.T, precision=PRECISION)
    return product if bias is None else product + bias


LIBRARY = ArrayLibrary(
    jnp,
    array=jnp.asarray,
    dtype_of=numpy_dtype,
    arange=jnp.arange,
    take=jnp.take,
    scan=lax.scan,
    linear=_linear,
    einsum=partial(jnp.einsum, precision=PRECISION),
    matmul=partial(jnp.matmul, precision=PRECISION),
    softmax=jax.nn.softmax,
)
"""What the shared operators need of JAX."""

_EAGER: dict[str, Condition] = {
    # Made on the host of a shape alone: nothing to compile.
    "Shape": lambda _: True,
    "Size": lambda _: True,
    # Without a number of samples, the size of a region says how many there are.
    "RoiAlign": lambda node: int(node["sampling_ratio"]) == 0,
}


def _shared(make: SharedMaker) -> Maker:
    return lambda node: make(node, LIBRARY)


for (_domain, _name), _make in SHARED.items():
    maker(_name, domain=_domain, eager=_EAGER.get(_name, False))(_shared(_make))
