"""AveragePool, LpPool and their global kin, forward and backward.

The one idea: a sum over a window is a sum over each axis in turn, and its gradient the same steps walked back.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from levelbench.frameworks.numpy.operators.kernel import Kernel, Registry
from levelbench.frameworks.numpy.operators.numeric import Array, alone, lift, lower, quiet
from levelbench.frameworks.numpy.operators.windows import Sliding, Windows
from levelbench.operators.node import OperatorNode

__all__ = ["OPERATORS"]

OPERATORS = Registry()


@OPERATORS.add("AveragePool")
def _average_pool(node: OperatorNode) -> Kernel:
    """The mean of each window; the border counts if ``count_include_pad``, what lies behind it never does."""
    sliding, kernel = Sliding.of(node), tuple(node["kernel_shape"])
    with_border = bool(node["count_include_pad"])

    def forward(x: Array) -> Array:
        windows = sliding.over(x.shape[2:], kernel)
        found = _sum(lift(x), windows)
        with quiet():
            found /= _counts(x.shape[2:], windows, with_border, found.dtype)
        return lower(found, x.dtype)

    def backward(gradient: Array, inputs: Sequence[Any], y: Array) -> tuple[Array | None, ...]:
        x = inputs[0]
        windows = sliding.over(x.shape[2:], kernel)
        g = lift(gradient)
        return (lower(_spread(g / _counts(x.shape[2:], windows, with_border, g.dtype), windows, x.shape), x.dtype),)

    return Kernel(forward, alone(backward))


@OPERATORS.add("LpPool")
def _lp_pool(node: OperatorNode) -> Kernel:
    """(The sum over each window of |x|^p)^(1/p)."""
    sliding, kernel, p = Sliding.of(node), tuple(node["kernel_shape"]), int(node["p"])

    def forward(x: Array) -> Array:
        windows = sliding.over(x.shape[2:], kernel)
        with quiet():
            return lower(_root(_sum(_power(lift(x), p), windows), p), x.dtype)

    def backward(gradient: Array, inputs: Sequence[Any], y: Array) -> tuple[Array | None, ...]:
        x = lift(inputs[0])
        windows = sliding.over(x.shape[2:], kernel)
        spread = _spread(_by_norm(lift(gradient), lift(y), p), windows, x.shape)
        return (lower(spread * _slope(x, p), inputs[0].dtype),)

    return Kernel(forward, alone(backward))


@OPERATORS.add("GlobalAveragePool")
def _global_average_pool(node: OperatorNode) -> Kernel:
    """The mean over all spatial axes."""

    def forward(x: Array) -> Array:
        return lower(lift(x).mean(axis=tuple(range(2, x.ndim)), keepdims=True), x.dtype)

    def backward(gradient: Array, inputs: Sequence[Any], y: Array) -> tuple[Array | None, ...]:
        x = inputs[0]
        share = lift(gradient) / prod(x.shape[2:])
        return (np.broadcast_to(lower(share, x.dtype), x.shape),)

    return Kernel(forward, alone(backward))


@OPERATORS.add("GlobalLpPool")
def _global_lp_pool(node: OperatorNode) -> Kernel:
    """(The sum over all spatial axes of |x|^p)^(1/p)."""
    p = int(node["p"])

    def forward(x: Array) -> Array:
        axes = tuple(range(2, x.ndim))
        return lower(_root(_power(lift(x), p).sum(axis=axes, keepdims=True), p), x.dtype)

    def backward(gradient: Array, inputs: Sequence[Any], y: Array) -> tuple[Array | None, ...]:
        x = lift(inputs[0])
        return (lower(_by_norm(lift(gradient), lift(y), p) * _slope(x, p), inputs[0].dtype),)

    return Kernel(forward, alone(backward))


def _power(x: Array, p: int) -> Array:
    if p == 1:
        return np.abs(x)
    return x * x if p == 2 else np.asarray(np.abs(x) ** p)


def _root(x: Array, p: int) -> Array:
    if p == 1:
        return x
    return np.asarray(np.sqrt(x) if p == 2 else x ** (x.dtype.type(1) / x.dtype.type(p)))


def _by_norm(gradient: Array, y: Array, p: int) -> Array:
    """The gradient over y^(p - 1); zero where y is, as PyTorch has it."""
    return np.divide(gradient, y ** (p - 1), out=np.zeros_like(gradient), where=y != 0)


def _slope(x: Array, p: int) -> Array:
    """The derivative of |x|^p / p."""
    if p == 1:
        return np.asarray(np.sign(x))
    return x if p == 2 else np.asarray(np.abs(x) ** (p - 1) * np.sign(x))


def _sum(x: Array, windows: Windows) -> Array:
    """The sums of all windows, the border being zero; always a new array."""
    found = x
    for axis, size in enumerate(x.shape[2:]):
        lead = (slice(None),) * (2 + axis)
        y = np.zeros((*found.shape[: 2 + axis], windows.out[axis], *found.shape[3 + axis :]), x.dtype)
        for out, part in windows.along(axis, size):
            y[(*lead, out)] += found[(*lead, part)]
        found = y
    return found


def _spread(gradient: Array, windows: Windows, shape: Sequence[int]) -> Array:
    """The gradient of :func:`_sum`."""
    found = gradient
    for axis in reversed(range(len(windows.out))):
        size = shape[2 + axis]
        lead = (slice(None),) * (2 + axis)
        y = np.zeros((*found.shape[: 2 + axis], size, *found.shape[3 + axis :]), gradient.dtype)
        for out, part in windows.along(axis, size):
            y[(*lead, part)] += found[(*lead, out)]
        found = y
    return found


def _counts(spatial: Sequence[int], windows: Windows, with_border: bool, dtype: np.dtype[Any]) -> Array:
    """By how many elements each window's sum is divided, over the spatial axes."""
    counts = np.ones((), dtype)
    for axis, size in enumerate(spatial):
        starts = np.arange(windows.out[axis])[:, None] * windows.strides[axis] - windows.before[axis]
        seen = starts + np.arange(windows.kernel[axis]) * windows.dilations[axis]
        low, high = (-windows.before[axis], size + windows.after[axis]) if with_border else (0, size)
        counts = np.multiply.outer(counts, ((seen >= low) & (seen < high)).sum(axis=1).astype(dtype))
    return counts
