"""Comparisons, logic and bits: operators whose answers have no gradient.

The one idea: none of them passes a gradient on, so their backward answers ``None`` for every input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from levelbench.frameworks.numpy.operators.kernel import Kernel, Maker, Registry
from levelbench.frameworks.numpy.operators.numeric import Array, quiet
from levelbench.operators.node import OperatorNode

__all__ = ["OPERATORS", "no_gradient"]

OPERATORS = Registry()


def no_gradient(gradients: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[None, ...]:
    """The backward of what is not differentiable: ``None`` an input."""
    return (None,) * len(inputs)


def _maker(function: Callable[..., Any]) -> Maker:
    def forward(*inputs: Array) -> Array:
        with quiet():
            return np.asarray(function(*inputs))

    kernel = Kernel(forward, no_gradient)
    return lambda node: kernel


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "And": np.logical_and,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseNot": np.bitwise_not,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Not": np.logical_not,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
}

for _name, _function in _FUNCTIONS.items():
    OPERATORS.add(_name)(_maker(_function))


@OPERATORS.add("BitShift")
def _bit_shift(node: OperatorNode) -> Kernel:
    """Shifts bits; past the width, or by a negative amount, what the extension of the sign leaves: 0 or -1.

    A left shift is done on the unsigned type of the width, so that bits fall off past the sign.
    """
    left = node["direction"] == "LEFT"

    def forward(x: Array, amount: Array) -> Array:
        width = x.dtype.itemsize * 8
        outside = (amount < 0) | (amount >= width)
        if left:
            unsigned = np.dtype(f"u{x.dtype.itemsize}")
            moved = np.left_shift(x.view(unsigned), np.where(outside, 0, amount).astype(unsigned))
            return np.where(outside, np.zeros((), x.dtype), np.asarray(moved).view(x.dtype))
        # Shifting by all but one of the bits leaves the sign alone in a signed type; a second shift clears an unsigned.
        moved = np.right_shift(x, np.where(outside, width - 1, amount).astype(x.dtype))
        return np.asarray(moved if x.dtype.kind == "i" else np.where(outside, np.zeros((), x.dtype), moved))

    return Kernel(forward, no_gradient)
