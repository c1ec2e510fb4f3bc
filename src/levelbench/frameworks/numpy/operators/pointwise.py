"""What activation functions are made of: a function that fills a block, and its derivative.

The one idea: each is a few passes over a block in the cache, written into the output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from levelbench.frameworks.numpy.operators.kernel import Kernel
from levelbench.frameworks.numpy.operators.numeric import Array, alone, blockwise, is_real, lower

__all__ = ["Fill", "Slope", "activation", "logistic", "negative_expm1"]

Fill = Callable[[Array, Array], None]
"""(out, x): writes f(x) into out."""
Slope = Callable[[Array, Array], Array]
"""(x, y) -> f'(x)."""


def activation(fill: Fill, slope: Slope) -> Kernel:
    """The kernel of an element-wise function; integers, where ONNX allows them, are computed in float64."""

    def forward(x: Array) -> Array:
        return blockwise(fill, x) if is_real(x) else lower(blockwise(fill, x.astype(np.float64)), x.dtype)

    def pull(out: Array, gradient: Array, x: Array, y: Array) -> None:
        np.multiply(gradient, slope(x, y), out=out)

    def backward(gradient: Array, inputs: Sequence[Any], output: Array) -> tuple[Array, ...]:
        return (blockwise(pull, gradient, inputs[0], output),)

    return Kernel(forward, alone(backward))


def negative_expm1(x: Array) -> Array:
    """exp(min(x, 0)) - 1 without cancellation: 2t / (1 - t) with t = tanh(x/2), which NumPy vectorises unlike expm1."""
    half = np.minimum(x, x.dtype.type(0))
    half *= x.dtype.type(0.5)
    np.tanh(half, out=half)
    result: Array = half / (1 - half)
    result += result
    return result


def logistic(out: Array, x: Array) -> None:
    """Fill ``out`` with 1 / (1 + exp(-x))."""
    np.negative(x, out=out)
    np.exp(out, out=out)
    out += 1
    np.reciprocal(out, out=out)
