"""The registry of TensorFlow's operators: which function of arrays computes a node.

It is a pure function that ``tf.function`` can trace and a tape can differentiate. The shared operators are registered
first, and may be replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from levelbench.frameworks.shared import resize, sampling, sequences  # noqa: F401  # they register shared operators, too
from levelbench.frameworks.shared.operators import SHARED, ArrayLibrary, Makers, SharedMaker, with_attributes
from levelbench.frameworks.tensorflow.arrays import (
    TensorArray,
    einsum,
    from_numpy,
    matmul,
    numpy_dtype,
    raw,
    softmax,
    take,
    wrapped,
    xp,
)
from levelbench.operators.contract import Array, Function
from levelbench.operators.node import OperatorNode

Maker = Callable[[OperatorNode], Function]


class TensorFlowEntry(NamedTuple):
    """How the function of an operator is made."""

    make: Maker
    random: bool = False
    """Whether the first argument of the function is a seed, two integers."""


_MAKERS: Makers[TensorFlowEntry] = Makers("tensorflow")
names, find, refuse = _MAKERS.names, _MAKERS.find, _MAKERS.refuse


def on_tensors(function: Function) -> Function:
    """A function of tensors as one of arrays; structural inputs stay NumPy's."""

    def call(*inputs: Any) -> Any:
        found = function(*[each.tensor if isinstance(each, TensorArray) else each for each in inputs])
        return tuple([wrapped(each) for each in found]) if isinstance(found, tuple) else wrapped(found)

    return call


def maker(*names: str, domain: str = "", random: bool = False) -> Callable[[Maker], Maker]:
    """Register a maker: it returns a node's function of tensors."""

    def register(make: Maker) -> Maker:
        for name in names:
            _MAKERS.add(domain, name, TensorFlowEntry(lambda node: on_tensors(make(node)), random))
        return make

    return register


def operator(*names: str, domain: str = "", random: bool = False) -> Callable[[Function], Function]:
    """Register a function of tensors whose keyword-only parameters are attributes."""

    def register(function: Function) -> Function:
        maker(*names, domain=domain, random=random)(lambda node: with_attributes(function, node))
        return function

    return register


def table(**functions: Function) -> None:
    """Register the functions of tensors by the names of operators."""
    for name, function in functions.items():
        operator(name)(function)


def on_arrays(name: str, make: Maker, domain: str = "") -> None:
    """Register the maker of a function of arrays."""
    _MAKERS.add(domain, name, TensorFlowEntry(make))


def _linear(x: Array, weight: Array, bias: Array | None) -> Array:
    product = TensorArray(tf.matmul(x.tensor, weight.tensor, transpose_b=True))
    return product if bias is None else product + bias


def _scan(step: Function, state: Any, along: Any) -> tuple[Any, Any]:
    """One step after another: a loop of the graph would hide the sizes of what it makes."""
    arrays = along if isinstance(along, tuple) else (along,)
    outputs: list[Any] = []
    for at in range(arrays[0].shape[0]):
        given = tuple(each[at] for each in arrays)
        state, output = step(state, given if isinstance(along, tuple) else given[0])
        outputs.append(output)
    if not outputs:
        raise _empty_sequence()
    return state, xp.stack(outputs)


def _empty_sequence() -> Exception:
    return refuse(OperatorNode("Scan", (), ()), "a sequence without steps")


LIBRARY = ArrayLibrary(
    xp,
    array=from_numpy,
    dtype_of=numpy_dtype,
    arange=lambda count: TensorArray(tf.constant(np.arange(count))),
    take=take,
    scan=_scan,
    linear=_linear,
    einsum=einsum,
    matmul=matmul,
    softmax=on_tensors(softmax),
)
"""What the shared operators need from TensorFlow."""


def _shared(make: SharedMaker) -> Maker:
    return lambda node: make(node, LIBRARY)


for (_domain, _name), _make in SHARED.items():
    on_arrays(_name, _shared(_make), _domain)


def sizes_of(tensor: Any) -> Sequence[int]:
    """The sizes of a tensor, which a trace has to know."""
    return TensorArray(raw(tensor)).shape
