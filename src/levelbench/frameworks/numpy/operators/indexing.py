"""Gather in its three forms, OneHot and ReverseSequence, forward and backward.

The one idea: the gradient of a gather is a scatter that adds; where rows repeat (an embedding), they are sorted and
summed in runs, because NumPy's ``add.at`` on rows takes a step an element.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from levelbench.errors import UsageError
from levelbench.frameworks.numpy.operators.kernel import Kernel, Registry
from levelbench.frameworks.numpy.operators.numeric import Array, alone, is_real, lift, within
from levelbench.operators.node import OperatorNode

__all__ = ["OPERATORS", "add_rows", "flat_positions", "flat_rows", "wrapped"]

OPERATORS = Registry()


def wrapped(indices: Array, size: int) -> Array:
    """Indices with those that count from the end made positive; ``UsageError`` for one outside [-size, size)."""
    if not indices.size:
        return indices
    low, high = int(indices.min()), int(indices.max())
    if low < -size or high >= size:
        found = f"an index is {low if low < -size else high}, and the axis has {size}"
        raise UsageError("gathering or scattering along an axis", found, "give indices within it")
    return np.where(indices < 0, indices + size, indices) if low < 0 else indices


def add_rows(rows: Array, indices: Array, count: int) -> Array:
    """(count, width), with each of ``rows`` (n, width) added at its index of ``indices`` (n,), all in [0, count)."""
    result = np.zeros((count, rows.shape[1]), rows.dtype)
    if rows.shape[1] == 1:
        np.add.at(result[:, 0], indices, rows[:, 0])
    elif indices.size:
        order = np.argsort(indices, kind="stable")
        placed = indices[order]
        starts = np.flatnonzero(np.r_[True, placed[1:] != placed[:-1]])
        result[placed[starts]] = np.add.reduceat(rows[order], starts, axis=0)
    return result


@OPERATORS.add("Gather")
def _gather(node: OperatorNode) -> Kernel:
    """Slices of x along ``axis`` by ``indices``, which may count from the end; an embedding, on axis 0."""
    axis = node["axis"]

    def backward(gradient: Array, inputs: Sequence[Any], output: Array) -> tuple[Array | None, ...]:
        x, indices = inputs
        at, size = axis % x.ndim, x.shape[axis]
        inner = gradient.ndim - (x.ndim - 1 - at)
        order = (*range(at, inner), *range(at), *range(inner, gradient.ndim))
        rest = (*x.shape[:at], *x.shape[at + 1 :])
        moved = lift(gradient).transpose(order).reshape(indices.size, prod(rest))
        summed = add_rows(moved, wrapped(indices.reshape(-1), size), size).reshape(size, *rest)
        return within(np.moveaxis(summed, 0, at), x), None

    return Kernel(lambda x, indices: np.asarray(np.take(x, indices, axis)), alone(backward))


def flat_positions(shape: Sequence[int], indices: Array, axis: int) -> Array:
    """Positions in a flattened array of ``shape`` of elements that ``indices`` choose along ``axis``."""
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


@OPERATORS.add("GatherElements")
def _gather_elements(node: OperatorNode) -> Kernel:
    axis = node["axis"]

    def forward(x: Array, indices: Array) -> Array:
        return x.reshape(-1).take(flat_positions(x.shape, indices, axis))

    def backward(gradient: Array, inputs: Sequence[Any], output: Array) -> tuple[Array | None, ...]:
        x, indices = inputs
        result = np.zeros(x.size, lift(gradient[:0]).dtype)
        np.add.at(result, flat_positions(x.shape, indices, axis).reshape(-1), lift(gradient).reshape(-1))
        return within(result.reshape(x.shape), x), None

    return Kernel(forward, alone(backward))


def flat_rows(shape: Sequence[int], indices: Array, batch: int) -> tuple[Array, int]:
    """Rows that the last axis of ``indices`` points to, flattened, and the number of elements of a row.

    ``shape`` is (batch axes, indexed axes, axes of a row), of which the first ``batch`` are shared with ``indices``.
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


@OPERATORS.add("GatherND")
def _gather_nd(node: OperatorNode) -> Kernel:
    batch = node["batch_dims"]

    def forward(x: Array, indices: Array) -> Array:
        rows, width = flat_rows(x.shape, indices, batch)
        taken = x.reshape(-1, width).take(rows, axis=0) if width else x[:0]
        return taken.reshape(*indices.shape[:-1], *x.shape[batch + indices.shape[-1] :])

    def backward(gradient: Array, inputs: Sequence[Any], output: Array) -> tuple[Array | None, ...]:
        x, indices = inputs
        rows, width = flat_rows(x.shape, indices, batch)
        if not width:
            return np.zeros_like(x), None
        summed = add_rows(lift(gradient).reshape(-1, width), rows, x.size // width)
        return within(summed.reshape(x.shape), x), None

    return Kernel(forward, alone(backward))


@OPERATORS.add("OneHot")
def _one_hot(node: OperatorNode) -> Kernel:
    """``values`` is (off, on); an index outside [-depth, depth) is off everywhere."""
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

    def backward(gradients: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[Any, ...]:
        if gradients[0] is None or not is_real(inputs[2]):
            return None, None, None
        hit, wide = hits(inputs[0], inputs[1]), lift(gradients[0])
        on = wide.sum(where=hit)
        return None, None, within(np.stack([wide.sum(where=~hit), on]), inputs[2])

    return Kernel(forward, backward)


@OPERATORS.add("ReverseSequence")
def _reverse_sequence(node: OperatorNode) -> Kernel:
    """The first ``sequence_lens[b]`` steps of each sequence b in reverse, the others as they are."""
    batch_axis, time_axis = node["batch_axis"], node["time_axis"]

    def reverse(x: Array, lengths: Array) -> Array:
        steps, ends = np.arange(x.shape[time_axis])[:, None], lengths[None, :]
        order = np.where(steps < ends, ends - 1 - steps, steps)
        moved = np.moveaxis(x, (time_axis, batch_axis), (0, 1))
        turned = moved[order, np.arange(x.shape[batch_axis])[None, :]]
        return np.moveaxis(turned, (0, 1), (time_axis, batch_axis))

    return Kernel(reverse, alone(lambda gradient, inputs, output: (reverse(gradient, inputs[1]), None)))
