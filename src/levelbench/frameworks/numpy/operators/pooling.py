"""MaxPool and GlobalMaxPool, forward and backward, with the indices of the maxima.

The one idea: the maximum over a window is taken axis by axis, each time over a few shifted views of the whole array; no
border is added, since each position in the kernel knows for which windows it lies inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from levelbench.frameworks.numpy.operators.kernel import Kernel, Registry
from levelbench.frameworks.numpy.operators.numeric import Array, alone, is_real, quiet
from levelbench.frameworks.numpy.operators.windows import Sliding, Windows
from levelbench.operators.node import OperatorNode

__all__ = ["OPERATORS"]

OPERATORS = Registry()

_BLOCK = 1 << 16
"""Windows that the gradient of MaxPool spreads at once: about as many as the caches of a core hold."""


@OPERATORS.add("MaxPool")
def _max_pool(node: OperatorNode) -> Kernel:
    """The maximum of each window; of several, Indices and the gradient take the first in row-major order."""
    sliding, kernel = Sliding.of(node), tuple(node["kernel_shape"])
    with_indices = len(node.outputs) > 1 and bool(node.outputs[1])
    column_major = bool(node.get("storage_order", 0))

    def forward(x: Array) -> Any:
        windows = sliding.over(x.shape[2:], kernel)
        with quiet():
            y = _maximum(x, windows)
            return (y, _indices(x, y, windows, column_major)) if with_indices else y

    def backward(gradient: Array, inputs: Sequence[Any], y: Array) -> tuple[Array | None, ...]:
        windows = sliding.over(inputs[0].shape[2:], kernel)
        return (_spread(gradient, inputs[0], y, windows),)

    return Kernel(forward, alone(backward))


@OPERATORS.add("GlobalMaxPool")
def _global_max_pool(node: OperatorNode) -> Kernel:
    """The maximum over all spatial axes; the gradient goes to the first of several."""

    def forward(x: Array) -> Array:
        return np.asarray(x.max(axis=tuple(range(2, x.ndim)), keepdims=True))

    def backward(gradient: Array, inputs: Sequence[Any], y: Array) -> tuple[Array | None, ...]:
        x = inputs[0]
        flat = np.zeros((*x.shape[:2], prod(x.shape[2:])), x.dtype)
        first = x.reshape(flat.shape).argmax(axis=2, keepdims=True)
        np.put_along_axis(flat, first, gradient.reshape(first.shape).astype(x.dtype, copy=False), axis=2)
        return (flat.reshape(x.shape),)

    return Kernel(forward, alone(backward))


def _lowest(dtype: np.dtype[Any]) -> Any:
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
        # Where one position is inside for every window, it takes the place of an initial value.
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
    """For each position in the kernel: the windows whose first maximum it is, where they are, what they see."""
    free = np.ones(y.shape, bool)
    # A maximum that is NaN equals nothing, itself included.
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
    """ONNX's Indices: the position of each maximum in ``x`` as if flattened."""
    spatial = x.shape[2:]
    # Only the spatial part can be column-major; images and channels count before it.
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
    """The gradient by ``x``: each of ``gradient`` goes to its window's first maximum."""
    disjoint = all(s >= r for s, r in zip(windows.strides, windows.reach, strict=True))
    result = np.zeros(x.shape, x.dtype)
    # A product with 0 and 1 is much faster than a choice, but would make NaN of an infinite gradient.
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
