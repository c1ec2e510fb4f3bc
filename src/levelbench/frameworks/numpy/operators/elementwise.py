"""Element-wise functions of one array: Abs to Tanh, rounding, Erf, tests for NaN and infinity, Clip.

The one idea: a function is a ufunc of NumPy and its derivative an expression of (gradient, x, y). Where a function has
a kink or a step, its gradient is the one that PyTorch takes: sign(0) = 0 for Abs, zero for Floor, Ceil, Round and Sign,
the full gradient at both bounds of Clip.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from levelbench.frameworks.numpy.operators.broadcast import unbroadcast
from levelbench.frameworks.numpy.operators.erf import erf, erf_slope
from levelbench.frameworks.numpy.operators.kernel import Kernel, Maker, Registry
from levelbench.frameworks.numpy.operators.numeric import (
    Array,
    alone,
    blockwise,
    is_narrow,
    is_real,
    keep,
    lift,
    lower,
    quiet,
    within,
)
from levelbench.operators.node import OperatorNode

__all__ = ["OPERATORS"]

OPERATORS = Registry()

Derivative = Callable[[Array, Array, Array], Array]
"""(gradient of y, x, y) -> gradient of x, element by element."""

# NumPy vectorises Tan, Asin to Atanh, Sinh and Cosh with AVX-512 alone; elsewhere they are the C library's, one element
# at a time, and up to 16 times slower than PyTorch's. They are exact to the last place, so they stay.
_FUNCTIONS: dict[str, tuple[np.ufunc, Derivative]] = {
    "Abs": (np.abs, lambda g, x, y: g * np.sign(x)),
    "Acos": (np.arccos, lambda g, x, y: -g / np.sqrt((1 - x) * (1 + x))),
    "Acosh": (np.arccosh, lambda g, x, y: g / (np.sqrt(x - 1) * np.sqrt(x + 1))),
    "Asin": (np.arcsin, lambda g, x, y: g / np.sqrt((1 - x) * (1 + x))),
    "Asinh": (np.arcsinh, lambda g, x, y: g / np.sqrt(x * x + 1)),
    "Atan": (np.arctan, lambda g, x, y: g / (x * x + 1)),
    "Atanh": (np.arctanh, lambda g, x, y: g / ((1 - x) * (1 + x))),
    "Ceil": (np.ceil, lambda g, x, y: np.zeros_like(g)),
    "Cos": (np.cos, lambda g, x, y: -g * np.sin(x)),
    "Cosh": (np.cosh, lambda g, x, y: g * np.sinh(x)),
    "Exp": (np.exp, lambda g, x, y: g * y),
    "Floor": (np.floor, lambda g, x, y: np.zeros_like(g)),
    "Log": (np.log, lambda g, x, y: g / x),
    "Neg": (np.negative, lambda g, x, y: -g),
    "Reciprocal": (np.reciprocal, lambda g, x, y: -g * y * y),
    # ONNX rounds halves to the even neighbour, as rint does.
    "Round": (np.rint, lambda g, x, y: np.zeros_like(g)),
    "Sign": (np.sign, lambda g, x, y: np.zeros_like(g)),
    "Sin": (np.sin, lambda g, x, y: g * np.cos(x)),
    "Sinh": (np.sinh, lambda g, x, y: g * np.cosh(x)),
    "Sqrt": (np.sqrt, lambda g, x, y: g / (2 * y)),
    "Tan": (np.tan, lambda g, x, y: g * (y * y + 1)),
    "Tanh": (np.tanh, lambda g, x, y: g * (1 - y * y)),
}


def _pull(derivative: Derivative) -> Callable[..., tuple[Any, ...]]:
    def fill(out: Array, gradient: Array, x: Array, y: Array) -> None:
        out[...] = derivative(gradient, x, y)

    def backward(gradient: Array, inputs: Sequence[Any], output: Array) -> tuple[Array, ...]:
        return (blockwise(fill, gradient, inputs[0], output),)

    return alone(backward)


def _maker(function: np.ufunc, derivative: Derivative) -> Maker:
    def fill(out: Array, x: Array) -> None:
        function(x, out=out)

    def forward(x: Array) -> Array:
        if is_narrow(x.dtype):
            return blockwise(fill, x)
        with quiet():
            return lower(function(x), x.dtype)

    kernel = Kernel(forward, _pull(derivative))
    return lambda node: kernel


for _name, (_function, _derivative) in _FUNCTIONS.items():
    OPERATORS.add(_name)(_maker(_function, _derivative))


@OPERATORS.add("Erf")
def _erf(node: OperatorNode) -> Kernel:
    """2/sqrt(pi) times the integral of exp(-t²) from 0 to x. Integers: the value is cut off to one of them."""

    def forward(x: Array) -> Array:
        return blockwise(erf, x) if is_real(x) else lower(blockwise(erf, x.astype(np.float64)), x.dtype)

    # 24 passes over each block: about three times the time of PyTorch's, which has a vectorised one.
    return Kernel(forward, _pull(lambda g, x, y: g * erf_slope(x)))


@OPERATORS.add("Identity")
def _identity(node: OperatorNode) -> Kernel:
    return Kernel(lambda x: x, alone(lambda gradient, inputs, output: (gradient,)))


@OPERATORS.add("IsNaN")
def _is_nan(node: OperatorNode) -> Kernel:
    return Kernel(lambda x: np.asarray(np.isnan(x)), lambda *_: (None,))


@OPERATORS.add("IsInf")
def _is_inf(node: OperatorNode) -> Kernel:
    positive, negative = node["detect_positive"], node["detect_negative"]

    def forward(x: Array) -> Array:
        if positive and negative:
            return np.asarray(np.isinf(x))
        infinite = np.isinf(x)
        if not (positive or negative):
            return np.zeros_like(infinite)
        zero = np.zeros((), x.dtype)
        with quiet():
            return np.asarray(infinite & ((x > zero) if positive else (x < zero)))

    return Kernel(forward, lambda *_: (None,))


@OPERATORS.add("Clip")
def _clip(node: OperatorNode) -> Kernel:
    """min(max(x, low), high): ``high`` wins where the bounds cross; NaN stays."""

    def forward(x: Array, low: Array | None = None, high: Array | None = None) -> Array:
        y = x if low is None else np.maximum(x, low)
        return x if high is None and low is None else np.asarray(y if high is None else np.minimum(y, high))

    def backward(gradient: Array, inputs: Sequence[Any], output: Array) -> tuple[Array | None, ...]:
        x, low, high = (*inputs, None, None)[:3]
        inside = np.ones(x.shape, bool)
        if low is not None:
            inside &= x >= low
        if high is not None:
            inside &= x <= high
        taken = keep(np.ascontiguousarray(lift(gradient)).reshape(x.shape), inside)
        found: list[Array | None] = [within(taken, x)]
        if len(inputs) > 1:
            below = None if low is None else (x < low if high is None else (x < low) & (low < high))
            found.append(_bound(gradient, below, low))
        if len(inputs) > 2:
            above = None if high is None else (x > high if low is None else (x > high) | (low > high))
            found.append(_bound(gradient, above, high))
        return tuple(found)

    return Kernel(forward, alone(backward))


def _bound(gradient: Array, taken: Array | None, bound: Array | None) -> Array | None:
    """The gradient of a bound: the sum of those of the elements that took its value."""
    if taken is None or bound is None:
        return None
    return within(unbroadcast(np.where(taken, lift(gradient), 0), bound.shape), bound)
