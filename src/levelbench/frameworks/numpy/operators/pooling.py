"""Pooling (maxima, averages and p-norms of windows or whole images) and Resize, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from levelbench.errors import UnsupportedError
from levelbench.frameworks.numpy.operators.kernel import (
    Array,
    Inputs,
    Kernel,
    is_real,
    lift,
    lower,
    quiet,
    register,
    single_output,
)
from levelbench.frameworks.shared.resize import AxisChange, Taps, changes_of, rule_of, taps_of
from levelbench.frameworks.shared.windows import Window, Windows, counts_of
from levelbench.operators.contract import DType
from levelbench.operators.node import OperatorNode


@register("AveragePool")
def _average_pool(node: OperatorNode) -> Kernel:
    """The mean of each window; padding counts if ``count_include_pad`` is set, anything beyond it never does."""
    window = Window.of(node)
    with_border = bool(node["count_include_pad"])

    def forward(x: Array) -> Array:
        windows = window.over(x.shape[2:])
        found = _sum(lift(x), windows)
        with quiet():
            found /= counts_of(windows, x.shape[2:], with_border).astype(found.dtype)
        return lower(found, x.dtype)

    def backward(gradient: Array, inputs: Inputs, y: Array) -> tuple[Array | None, ...]:
        x = inputs[0]
        windows = window.over(x.shape[2:])
        g = lift(gradient)
        share = g / counts_of(windows, x.shape[2:], with_border).astype(g.dtype)
        return (lower(_spread_sums(share, windows, x.shape), x.dtype),)

    return Kernel(forward, single_output(backward))


@register("LpPool")
def _lp_pool(node: OperatorNode) -> Kernel:
    """(The sum over each window of |x|^p)^(1/p)."""
    window, p = Window.of(node), int(node["p"])

    def forward(x: Array) -> Array:
        windows = window.over(x.shape[2:])
        with quiet():
            return lower(_root(_sum(_power(lift(x), p), windows), p), x.dtype)

    def backward(gradient: Array, inputs: Inputs, y: Array) -> tuple[Array | None, ...]:
        x = lift(inputs[0])
        windows = window.over(x.shape[2:])
        spread = _spread_sums(_by_norm(lift(gradient), lift(y), p), windows, x.shape)
        return (lower(spread * _slope(x, p), inputs[0].dtype),)

    return Kernel(forward, single_output(backward))


@register("GlobalAveragePool")
def _global_average_pool(node: OperatorNode) -> Kernel:
    """The mean over all spatial axes."""

    def forward(x: Array) -> Array:
        return lower(lift(x).mean(axis=tuple(range(2, x.ndim)), keepdims=True), x.dtype)

    def backward(gradient: Array, inputs: Inputs, y: Array) -> tuple[Array | None, ...]:
        x = inputs[0]
        share = lift(gradient) / prod(x.shape[2:])
        return (np.broadcast_to(lower(share, x.dtype), x.shape),)

    return Kernel(forward, single_output(backward))


@register("GlobalLpPool")
def _global_lp_pool(node: OperatorNode) -> Kernel:
    """(The sum over all spatial axes of |x|^p)^(1/p)."""
    p = int(node["p"])

    def forward(x: Array) -> Array:
        axes = tuple(range(2, x.ndim))
        return lower(_root(_power(lift(x), p).sum(axis=axes, keepdims=True), p), x.dtype)

    def backward(gradient: Array, inputs: Inputs, y: Array) -> tuple[Array | None, ...]:
        x = lift(inputs[0])
        return (lower(_by_norm(lift(gradient), lift(y), p) * _slope(x, p), inputs[0].dtype),)

    return Kernel(forward, single_output(backward))


def _power(x: Array, p: int) -> Array:
    if p == 1:
        return np.abs(x)
    return x * x if p == 2 else np.asarray(np.abs(x) ** p)


def _root(x: Array, p: int) -> Array:
    if p == 1:
        return x
    return np.asarray(np.sqrt(x) if p == 2 else x ** (x.dtype.type(1) / x.dtype.type(p)))


def _by_norm(gradient: Array, y: Array, p: int) -> Array:
    """The gradient divided by y^(p - 1); zero where y is zero, as in PyTorch."""
    return np.divide(gradient, y ** (p - 1), out=np.zeros_like(gradient), where=y != 0)


def _slope(x: Array, p: int) -> Array:
    """The derivative of |x|^p / p."""
    if p == 1:
        return np.asarray(np.sign(x))
    return x if p == 2 else np.asarray(np.abs(x) ** (p - 1) * np.sign(x))


def _sum(x: Array, windows: Windows) -> Array:
    """The sums of all windows with zero padding; always a new array."""
    found = x
    for axis, size in enumerate(x.shape[2:]):
        lead = (slice(None),) * (2 + axis)
        y = np.zeros((*found.shape[: 2 + axis], windows.out[axis], *found.shape[3 + axis :]), x.dtype)
        for out, part in windows.along(axis, size):
            y[(*lead, out)] += found[(*lead, part)]
        found = y
    return found


def _spread_sums(gradient: Array, windows: Windows, shape: Sequence[int]) -> Array:
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


# MaxPool and GlobalMaxPool, with the indices of the maxima.
# The maximum over a window is taken axis by axis, each time over a few shifted views of the whole array. No padding is
# added, because each kernel position knows for which windows it lies inside.


_BLOCK = 1 << 16
"""Windows per block in the gradient of MaxPool: about as many as fit the caches of a core."""


@register("MaxPool")
def _max_pool(node: OperatorNode) -> Kernel:
    """The maximum of each window; among equal maxima, Indices and the gradient take the first in row-major order."""
    window = Window.of(node)
    with_indices = len(node.outputs) > 1 and bool(node.outputs[1])
    column_major = bool(node.get("storage_order", 0))

    def forward(x: Array) -> Array | tuple[Array, Array]:
        windows = window.over(x.shape[2:])
        with quiet():
            y = _maximum(x, windows)
            return (y, _indices(x, y, windows, column_major)) if with_indices else y

    def backward(gradient: Array, inputs: Inputs, y: Array) -> tuple[Array | None, ...]:
        windows = window.over(inputs[0].shape[2:])
        return (_spread(gradient, inputs[0], y, windows),)

    return Kernel(forward, single_output(backward))


@register("GlobalMaxPool")
def _global_max_pool(node: OperatorNode) -> Kernel:
    """The maximum over all spatial axes; the gradient goes to the first of equal maxima."""

    def forward(x: Array) -> Array:
        return np.asarray(x.max(axis=tuple(range(2, x.ndim)), keepdims=True))

    def backward(gradient: Array, inputs: Inputs, y: Array) -> tuple[Array | None, ...]:
        x = inputs[0]
        flat = np.zeros((*x.shape[:2], prod(x.shape[2:])), x.dtype)
        first = x.reshape(flat.shape).argmax(axis=2, keepdims=True)
        np.put_along_axis(flat, first, gradient.reshape(first.shape).astype(x.dtype, copy=False), axis=2)
        return (flat.reshape(x.shape),)

    return Kernel(forward, single_output(backward))


def _lowest(dtype: DType) -> Any:
    if dtype.kind == "b":
        return False
    return np.iinfo(dtype).min if dtype.kind in "iu" else dtype.type(-np.inf)


def _maximum(x: Array, windows: Windows) -> Array:
    found = x
    for axis, size in enumerate(x.shape[2:]):
        shape = (*found.shape[: 2 + axis], windows.out[axis], *found.shape[3 + axis :])
        lead = (slice(None),) * (2 + axis)
        seen = list(windows.along(axis, size))
        y, started = np.empty(shape, x.dtype), False
        # A kernel position that is inside for every window replaces the initial value.
        whole = slice(0, windows.out[axis])
        for out, part in sorted(seen, key=lambda each: each[0] != whole):
            if not started:
                started = True
                if out == whole:
                    y[...] = found[(*lead, part)]
                    continue
                y.fill(_lowest(x.dtype))
            target = y[(*lead, out)]
            np.maximum(target, found[(*lead, part)], out=target)
        if not started:
            y.fill(_lowest(x.dtype))
        found = y
    return found


def _hits(x: Array, y: Array, windows: Windows) -> Iterator[tuple[Array, Any, Any]]:
    """For each kernel position: the windows whose first maximum it is, where they are, and the elements they cover."""
    free = np.ones(y.shape, bool)
    # NaN does not equal itself.
    with_nan = is_real(y) and bool(np.isnan(y).any())
    for out, seen in windows.inside(x.shape[2:]):
        here: Any = (..., *out)
        there: Any = (..., *seen)
        part = x[there]
        hit = np.asarray(part == y[here])
        if with_nan:
            hit |= np.isnan(part)
        hit &= free[here]
        free[here] ^= hit
        yield hit, here, there


def _indices(x: Array, y: Array, windows: Windows, column_major: bool) -> Array:
    """ONNX's Indices: the position of each maximum in the flattened ``x``."""
    spatial = x.shape[2:]
    # Only the spatial axes can be column-major; images and channels come first.
    steps = [prod(spatial[:axis]) if column_major else prod(spatial[axis + 1 :]) for axis in range(len(spatial))]
    grids: Any = np.indices(spatial, sparse=True)
    inner: Any = sum(grid * step for grid, step in zip(grids, steps, strict=True))
    found = np.zeros(y.shape, np.int64)
    for hit, here, seen in _hits(x, y, windows):
        np.copyto(found[here], np.broadcast_to(inner[seen], hit.shape), where=hit)
    starts = np.arange(prod(x.shape[:2]), dtype=np.int64).reshape(*x.shape[:2], *(1,) * len(spatial))
    found += starts * prod(spatial)
    return found


def _spread(gradient: Array, x: Array, y: Array, windows: Windows) -> Array:
    """The gradient of ``x``: each element of ``gradient`` goes to the first maximum of its window."""
    disjoint = all(s >= r for s, r in zip(windows.strides, windows.reach, strict=True))
    result = np.zeros(x.shape, x.dtype)
    # A product with 0 and 1 is much faster than np.where, but would turn an infinite gradient into NaN.
    finite = bool(np.isfinite(gradient).all())
    step = max(_BLOCK // max(prod(y.shape[1:]), 1), 1)
    for start in range(0, len(x), step):
        images = slice(start, start + step)
        for hit, here, seen in _hits(x[images], y[images], windows):
            part = gradient[images][here]
            share = part * hit if finite else np.where(hit, part, part.dtype.type(0))
            target = result[images][seen]
            np.copyto(target, share) if disjoint else np.add(target, share, out=target)
    return result


_MANY = 4
"""With more elements than this per output, a matrix product is faster."""


@register("Resize")
def _resize(node: OperatorNode) -> Kernel:
    rule = rule_of(node)
    nearest = rule.mode == "nearest"

    def forward(x: Array, roi: Array | None = None, scales: Array | None = None, sizes: Array | None = None) -> Array:
        if not nearest and not is_real(x):
            raise UnsupportedError(
                f"Resize of {x.dtype} on numpy", "it interpolates floating-point types", "cast the input"
            )
        found = x if nearest else lift(x)
        for each in changes_of(node, x.shape, roi, scales, sizes):
            taps = taps_of(each, rule)
            found = _along(found, each, taps)
            if taps.outside is not None and taps.outside.any():
                found[(slice(None),) * each.axis + (taps.outside,)] = rule.extrapolation
        return lower(found, x.dtype)

    def backward(gradient: Array, inputs: Inputs, y: Array) -> tuple[Array | None, ...]:
        x, *others = inputs
        found = lift(gradient)
        for each in reversed(changes_of(node, x.shape, *others)):
            found = _back(found, each, taps_of(each, rule))
        return lower(found, x.dtype), *(None,) * len(others)

    return Kernel(forward, single_output(backward))


def _along(x: Array, each: AxisChange, taps: Taps) -> Array:
    indices, weights, _ = taps
    if indices.shape[1] > _MANY:
        return _product(_axis_matrix(taps, each.size, x.dtype), x, each.axis)
    if indices.shape[1] == 1:
        return x.take(indices[:, 0], axis=each.axis)
    shape = (-1, *(1,) * (x.ndim - each.axis - 1))
    found: Array | None = None
    for index, weight in zip(indices.T, weights.T, strict=True):
        part = x.take(index, axis=each.axis)
        part *= weight.reshape(shape).astype(x.dtype)
        found = part if found is None else np.add(found, part, out=found)
    assert found is not None
    return found


def _back(g: Array, each: AxisChange, taps: Taps) -> Array:
    matrix = _axis_matrix(taps, each.size, g.dtype)
    if taps.outside is not None:
        matrix[taps.outside] = 0
    return _product(matrix.T, g, each.axis)


def _axis_matrix(taps: Taps, size: int, dtype: DType) -> Array:
    """The linear map of an axis as a matrix (outputs, ``size``)."""
    found = np.zeros((len(taps.places), size), dtype)
    rows = np.arange(len(taps.places))
    for column, weight in zip(taps.places.T, taps.weights.T, strict=True):
        found[rows, column] += weight.astype(dtype)
    return found


def _product(matrix: Array, x: Array, axis: int) -> Array:
    """``matrix`` times ``x`` along an axis."""
    shape = x.shape
    if axis == x.ndim - 1:
        return (np.ascontiguousarray(x).reshape(-1, shape[-1]) @ matrix.T).reshape(*shape[:-1], len(matrix))
    stack = np.ascontiguousarray(x).reshape(prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]))
    return np.matmul(matrix, stack).reshape(*shape[:axis], len(matrix), *shape[axis + 1 :])
