"""The registry of JAX operators: which function of JAX arrays computes a node.

It is a pure function that JAX can trace, compile and differentiate. XLA fuses its steps, so it is written for
readability. The shared operators are registered first, and may be replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from levelbench.frameworks.jax.arrays import numpy_dtype
from levelbench.frameworks.shared import resize, sampling, sequences  # noqa: F401  # they register shared operators, too
from levelbench.frameworks.shared.operators import SHARED, ArrayLibrary, Makers, SharedMaker, with_attributes
from levelbench.operators.contract import Function
from levelbench.operators.node import OperatorNode

Maker = Callable[[OperatorNode], Function]
Condition = Callable[[OperatorNode], bool]


class JaxEntry(NamedTuple):
    """How the function of an operator is made."""

    make: Maker
    eager: Condition
    """Whether an output shape depends on values, so that the node cannot be compiled."""
    random: bool = False
    """Whether the first argument of the function is a JAX random key."""
    backward: Maker | None = None
    """Makes (gradients, inputs, outputs) -> gradients of inputs, if JAX cannot derive them from the inputs alone."""


_MAKERS: Makers[JaxEntry] = Makers("jax")
names, find, refuse = _MAKERS.names, _MAKERS.find, _MAKERS.refuse


def maker(
    *names: str, domain: str = "", eager: bool | Condition = False, random: bool = False, backward: Maker | None = None
) -> Callable[[Maker], Maker]:
    """Register a maker: it returns the function of a node."""

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


def table(**functions: Function) -> None:
    """Register the functions of operators by name."""
    for name, function in functions.items():
        operator(name)(function)


PRECISION = lax.Precision.HIGHEST
"""Products of float32 are computed in float32 on every device: ONNX does not allow an accelerator's faster formats."""


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
"""What the shared operators need from JAX."""

_EAGER: dict[str, Condition] = {
    # Computed on the host from a shape: nothing to compile.
    "Shape": lambda _: True,
    "Size": lambda _: True,
    # Without a sampling ratio, the number of samples depends on the regions' sizes.
    "RoiAlign": lambda node: int(node["sampling_ratio"]) == 0,
}


def _shared(make: SharedMaker) -> Maker:
    return lambda node: make(node, LIBRARY)


for (_domain, _name), _make in SHARED.items():
    maker(_name, domain=_domain, eager=_EAGER.get(_name, False))(_shared(_make))
