"""Reading, writing and selecting elements by index, with gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from levelbench.errors import UsageError
from levelbench.frameworks.numpy.operators.elementwise import no_gradient
from levelbench.frameworks.numpy.operators.kernel import (
    Array,
    Arrays,
    Inputs,
    Kernel,
    cast_like,
    is_narrow,
    is_real,
    lift,
    lower,
    quiet,
    register,
    single_output,
)
from levelbench.operators.node import OperatorNode


def wrapped(indices: Array, size: int) -> Array:
    """Indices with negative ones made positive; ``UsageError`` for one outside [-size, size)."""
    if not indices.size:
        return indices
    low, high = int(indices.min()), int(indices.max())
    if low < -size or high >= size:
        found = f"index {low if low < -size else high} on an axis of size {size}"
        raise UsageError("gathering or scattering along an axis", found, "give indices within the axis")
    return np.where(indices < 0, indices + size, indices) if low < 0 else indices


def add_rows(rows: Array, indices: Array, count: int) -> Array:
    """(count, width), with each of ``rows`` (n, width) added at its index in ``indices`` (n,), all in [0, count)."""
    result = np.zeros((count, rows.shape[1]), rows.dtype)
    if rows.shape[1] == 1:
        np.add.at(result[:, 0], indices, rows[:, 0])
    elif indices.size:
        order = np.argsort(indices, kind="stable")
        placed = indices[order]
        starts = np.flatnonzero(np.r_[True, placed[1:] != placed[:-1]])
        result[placed[starts]] = np.add.reduceat(rows[order], starts, axis=0)
    return result


@register("Gather")
def _gather(node: OperatorNode) -> Kernel:
    """Slices of x along ``axis`` at ``indices``, which may be negative; on axis 0 an embedding."""
    axis = node["axis"]

    def backward(gradient: Array, inputs: Inputs, output: Array) -> tuple[Array | None, ...]:
        x, indices = inputs
        at, size = axis % x.ndim, x.shape[axis]
        inner = gradient.ndim - (x.ndim - 1 - at)
        order = (*range(at, inner), *range(at), *range(inner, gradient.ndim))
        rest = (*x.shape[:at], *x.shape[at + 1 :])
        moved = lift(gradient).transpose(order).reshape(indices.size, prod(rest))
        summed = add_rows(moved, wrapped(indices.reshape(-1), size), size).reshape(size, *rest)
        return cast_like(np.moveaxis(summed, 0, at), x), None

    return Kernel(lambda x, indices: np.asarray(np.take(x, indices, axis)), single_output(backward))


def flat_positions(shape: Sequence[int], indices: Array, axis: int) -> Array:
    """Positions in the flattened array of the elements that ``indices`` select along ``axis``."""
    axis %= len(shape)
    positions = wrapped(indices, shape[axis]).astype(np.int64)
    strides = [prod(shape[at + 1 :]) for at in range(len(shape))]
    positions *= strides[axis]
    rest: Any = np.zeros((), np.int64)
    for at in range(len(shape)):
        if at != axis:
            rest = rest + np.arange(indices.shape[at]).reshape(-1, *(1,) * (len(shape) - 1 - at)) * strides[at]
    positions += rest
    return positions


@register("GatherElements")
def _gather_elements(node: OperatorNode) -> Kernel:
    axis = node["axis"]

    def forward(x: Array, indices: Array) -> Array:
        return x.reshape(-1).take(flat_positions(x.shape, indices, axis))

    def backward(gradient: Array, inputs: Inputs, output: Array) -> tuple[Array | None, ...]:
        x, indices = inputs
        result = np.zeros(x.size, lift(gradient[:0]).dtype)
        np.add.at(result, flat_positions(x.shape, indices, axis).reshape(-1), lift(gradient).reshape(-1))
        return cast_like(result.reshape(x.shape), x), None

    return Kernel(forward, single_output(backward))


def flat_rows(shape: Sequence[int], indices: Array, batch: int) -> tuple[Array, int]:
    """The rows that the last axis of ``indices`` selects, flattened, and the number of elements per row.

    ``shape`` is (batch axes, indexed axes, row axes); the first ``batch`` axes are shared with ``indices``.
    """
    depth = indices.shape[-1]
    sizes = shape[batch : batch + depth]
    rows = np.zeros(indices.shape[:-1], np.int64)
    for at, size in enumerate(sizes):
        rows = rows * size + wrapped(indices[..., at], size)
    if batch:
        outer = np.arange(prod(shape[:batch])).reshape(*shape[:batch], *(1,) * (rows.ndim - batch))
        rows = rows + outer * prod(sizes)
    return rows.reshape(-1), prod(shape[batch + depth :])


@register("GatherND")
def _gather_nd(node: OperatorNode) -> Kernel:
    batch = node["batch_dims"]

    def forward(x: Array, indices: Array) -> Array:
        rows, width = flat_rows(x.shape, indices, batch)
        taken = x.reshape(-1, width).take(rows, axis=0) if width else x[:0]
        return taken.reshape(*indices.shape[:-1], *x.shape[batch + indices.shape[-1] :])

    def backward(gradient: Array, inputs: Inputs, output: Array) -> tuple[Array | None, ...]:
        x, indices = inputs
        rows, width = flat_rows(x.shape, indices, batch)
        if not width:
            return np.zeros_like(x), None
        summed = add_rows(lift(gradient).reshape(-1, width), rows, x.size // width)
        return cast_like(summed.reshape(x.shape), x), None

    return Kernel(forward, single_output(backward))


@register("OneHot")
def _one_hot(node: OperatorNode) -> Kernel:
    """``values`` is (off, on); an index outside [-depth, depth) gives only off values."""
    axis = node["axis"]

    def hits(indices: Array, depth: Array) -> Array:
        size = int(np.asarray(depth).item())
        at = axis % (indices.ndim + 1)
        wide = indices.astype(np.int64) if indices.dtype.kind == "i" else indices
        wrapped = wide if wide.dtype.kind == "u" else np.where(wide < 0, wide + size, wide)
        classes = np.arange(size).reshape(-1, *(1,) * (indices.ndim - at))
        return np.asarray(np.expand_dims(wrapped, at) == classes)

    def forward(indices: Array, depth: Array, values: Array) -> Array:
        return np.where(hits(indices, depth), values[1], values[0]).astype(values.dtype, copy=False)

    def backward(gradients: Inputs, inputs: Inputs, outputs: Inputs) -> Arrays:
        if gradients[0] is None or not is_real(inputs[2]):
            return None, None, None
        hit, wide = hits(inputs[0], inputs[1]), lift(gradients[0])
        on = wide.sum(where=hit)
        return None, None, cast_like(np.stack([wide.sum(where=~hit), on]), inputs[2])

    return Kernel(forward, backward)


@register("ReverseSequence")
def _reverse_sequence(node: OperatorNode) -> Kernel:
    """Reverses the first ``sequence_lens[b]`` steps of each sequence b; the others stay."""
    batch_axis, time_axis = node["batch_axis"], node["time_axis"]

    def reverse(x: Array, lengths: Array) -> Array:
        steps, ends = np.arange(x.shape[time_axis])[:, None], lengths[None, :]
        order = np.where(steps < ends, ends - 1 - steps, steps)
        moved = np.moveaxis(x, (time_axis, batch_axis), (0, 1))
        turned = moved[order, np.arange(x.shape[batch_axis])[None, :]]
        return np.moveaxis(turned, (0, 1), (time_axis, batch_axis))

    return Kernel(reverse, single_output(lambda gradient, inputs, output: (reverse(gradient, inputs[1]), None)))


# ScatterElements and ScatterND with their reductions, forward and backward.
# Both write rows of a flattened array at flat positions (rows of one element for ScatterElements), so they share one
# implementation. Without a reduction, the last of several updates to a position wins; ONNX defines no gradient for
# that, so each update gets the whole gradient. Ties of min and max share the gradient evenly, as in PyTorch.


Locate = Callable[[Sequence[int], Array], tuple[Array, int]]
"""(shape of data, indices) -> rows of the flattened data, elements per row."""

_UFUNCS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _scattered(data: Array, rows: Array, updates: Array, reduction: str) -> Array:
    """A copy of ``data`` (count, width) with ``updates`` (n, width) written to ``rows`` or combined with them."""
    result = data.copy()
    if reduction == "none":
        result[rows] = updates
    elif reduction == "add" and data.shape[1] > 1 and data.dtype.kind == "f":
        result += add_rows(updates, rows, len(data))
    elif data.shape[1] == 1:
        _UFUNCS[reduction].at(result[:, 0], rows, updates[:, 0])
    else:
        _UFUNCS[reduction].at(result, rows, updates)
    return result


def _pulled(g: Array, data: Array, rows: Array, updates: Array, y: Array, reduction: str) -> tuple[Array, Array]:
    """The gradients of data (count, width) and updates (n, width)."""
    taken = g[rows]
    match reduction:
        case "none":
            kept = g.copy()
            kept[rows] = 0
            return kept, taken
        case "add":
            return g, taken
        case "mul":
            return _pulled_product(g, data, rows, updates)
    holds, won = data == y, updates == y[rows]
    count = holds + add_rows(won.astype(g.dtype), rows, len(data))
    share = g / np.maximum(count, 1)
    return np.where(holds, share, 0), np.where(won, share[rows], 0)


def _pulled_product(g: Array, data: Array, rows: Array, updates: Array) -> tuple[Array, Array]:
    """Products of all other values: zeros are counted, and only the others are multiplied and divided by."""
    zero = updates == 0
    filled = np.where(zero, updates.dtype.type(1), updates)
    product = _scattered(np.ones_like(data), rows, filled, "mul")
    zeros = add_rows(zero.astype(g.dtype), rows, len(data))
    by_data = np.where(zeros == 0, g * product, 0)
    others = np.where(zero, zeros[rows] == 1, zeros[rows] == 0)
    by_updates = np.where(others, (g * data * product)[rows] / filled, 0)
    return by_data, by_updates


def _scatter(locate: Locate, reduction: str) -> Kernel:
    def forward(data: Array, indices: Array, updates: Array) -> Array:
        rows, width = locate(data.shape, indices)
        if not (rows.size and width):
            return data.copy()
        flat, rising = data.reshape(-1, width), updates.reshape(-1, width)
        if reduction == "none":
            return _scattered(flat, rows, rising, reduction).reshape(data.shape)
        with quiet():
            return lower(_scattered(lift(flat), rows, lift(rising), reduction), data.dtype).reshape(data.shape)

    def backward(gradient: Array, inputs: Inputs, output: Array) -> tuple[Array | None, ...]:
        data, indices, updates = inputs
        rows, width = locate(data.shape, indices)
        if not (rows.size and width):
            return gradient, None, np.zeros_like(updates)
        g, x, u, y = (lift(each).reshape(-1, width) for each in (gradient, data, updates, output))
        by_data, by_updates = _pulled(g, x, rows, u, y, reduction)
        found = cast_like(by_data.reshape(data.shape), data), cast_like(by_updates.reshape(updates.shape), updates)
        return found[0], None, found[1]

    return Kernel(forward, single_output(backward))


@register("ScatterElements", "Scatter")
def _scatter_elements(node: OperatorNode) -> Kernel:
    axis = node["axis"]

    def locate(shape: Sequence[int], indices: Array) -> tuple[Array, int]:
        return flat_positions(shape, indices, axis).reshape(-1), 1

    return _scatter(locate, node.get("reduction", "none"))


@register("ScatterND")
def _scatter_nd(node: OperatorNode) -> Kernel:
    return _scatter(lambda shape, indices: flat_rows(shape, indices, 0), node.get("reduction", "none"))


# Operators that select elements: TopK, Compress, NonZero, Trilu.
# TopK finds the largest values of a row by a partial sort and the lowest indices among equal ones by counting; only the
# selected elements are sorted.


@register("TopK")
def _top_k(node: OperatorNode) -> Kernel:
    """The k largest or smallest values along ``axis``, sorted, and their indices; the lower index first among equals.

    NaN counts as larger than any number. ``sorted=0`` allows any order, so the result is sorted then, too.
    """
    axis, largest = node["axis"], bool(node["largest"])

    def forward(x: Array, k: Array) -> tuple[Array, Array]:
        rows = np.moveaxis(x, axis, -1)
        values = lift(rows) if is_narrow(x.dtype) else rows
        indices = _best(values, int(np.asarray(k).item()), largest)
        chosen = np.take_along_axis(rows, indices, -1)
        return np.moveaxis(chosen, -1, axis), np.moveaxis(indices, -1, axis)

    def backward(gradients: Inputs, inputs: Inputs, outputs: Inputs) -> Arrays:
        if gradients[0] is None or not is_real(inputs[0]):
            return None, None
        result = np.zeros_like(inputs[0])
        indices = outputs[1] if len(outputs) > 1 and outputs[1] is not None else forward(*inputs)[1]
        np.put_along_axis(result, indices, gradients[0], axis)
        return result, None

    return Kernel(forward, backward)


def _in_order(rows: Array, largest: bool) -> Array:
    """Indices that sort the last axis stably."""
    if not largest:
        return np.argsort(rows, axis=-1, kind="stable")
    # Reversed twice rather than negated, so that it works for unsigned integers.
    backwards = np.argsort(rows[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    return np.asarray(rows.shape[-1] - 1 - backwards)


def _best(rows: Array, k: int, largest: bool) -> Array:
    size = rows.shape[-1]
    if k * 4 > size or (rows.dtype.kind == "f" and bool(np.isnan(rows).any())):
        return np.ascontiguousarray(_in_order(rows, largest)[..., :k])
    if k == 0:
        return np.empty((*rows.shape[:-1], 0), np.int64)
    at = size - k if largest else k - 1
    threshold = np.partition(rows, at, axis=-1)[..., at : at + 1]
    better = rows > threshold if largest else rows < threshold
    equal = rows == threshold
    missing = k - np.count_nonzero(better, axis=-1, keepdims=True)
    if np.any(np.count_nonzero(equal, axis=-1, keepdims=True) != missing):
        equal &= np.cumsum(equal, axis=-1) <= missing
    better |= equal
    chosen = np.flatnonzero(better).reshape(*rows.shape[:-1], k) % size
    order = _in_order(np.take_along_axis(rows, chosen, -1), largest)
    return np.take_along_axis(chosen, order, -1)


@register("Compress")
def _compress(node: OperatorNode) -> Kernel:
    """Slices of x (or elements of the flattened x, without ``axis``) where the condition is true; it may be short."""
    axis = node.get("axis")

    def backward(gradient: Array, inputs: Inputs, output: Array) -> Arrays:
        x, condition = inputs
        result = np.zeros_like(x if axis is not None else x.reshape(-1))
        along = axis or 0
        np.moveaxis(result, along, 0)[np.flatnonzero(condition)] = np.moveaxis(gradient, along, 0)
        return result.reshape(x.shape), None

    return Kernel(lambda x, condition: np.compress(condition, x, axis), single_output(backward))


@register("NonZero")
def _non_zero(node: OperatorNode) -> Kernel:
    """Indices of the nonzero elements, (rank, count), in row-major order."""

    def forward(x: Array) -> Array:
        if x.ndim == 0:
            return np.empty((0, np.count_nonzero(x)), np.int64)
        return np.stack(np.nonzero(x)).astype(np.int64, copy=False)

    return Kernel(forward, no_gradient)


@register("Trilu")
def _trilu(node: OperatorNode) -> Kernel:
    """The upper or lower triangle of each matrix, relative to the k-th diagonal."""
    part = np.triu if node["upper"] else np.tril

    def triangle(x: Array, k: Array | None = None) -> Array:
        return part(x, 0 if k is None else int(np.asarray(k).item()))

    def backward(gradient: Array, inputs: Inputs, output: Array) -> Arrays:
        return triangle(gradient, *inputs[1:]), *(None,) * (len(inputs) - 1)

    return Kernel(triangle, single_output(backward))
