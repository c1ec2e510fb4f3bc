"""Shapes, indices and constants. Shapes, axes and sizes are structural, so they are known when a graph is traced."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import tensorflow as tf

from levelbench.frameworks.shared.operators import Host, constant_of
from levelbench.frameworks.tensorflow.arrays import DTYPES, Raw, needs_value, no_type
from levelbench.frameworks.tensorflow.operators.registry import maker, operator, refuse, sizes_of, table
from levelbench.operators.contract import Function
from levelbench.operators.node import OperatorNode


def _listed(axes: Host | None) -> list[int] | None:
    return None if axes is None else [int(each) for each in np.atleast_1d(axes)]


def _unsqueeze(x: Raw, axes: Host) -> Raw:
    listed = _listed(axes) or []
    rank = len(x.shape) + len(listed)
    for at in sorted(each % rank for each in listed):
        x = tf.expand_dims(x, at)
    return x


def _gather(x: Raw, indices: Raw, *, axis: int) -> Raw:
    # A negative index counts from the end.
    size = tf.constant(sizes_of(x)[axis], indices.dtype)
    return tf.gather(x, tf.where(indices < 0, indices + size, indices), axis=axis)


table(
    Concat=lambda *inputs, axis: tf.concat(inputs, axis),
    Gather=_gather,
    Squeeze=lambda x, axes=None: tf.squeeze(x, _listed(axes)),
    Tile=lambda x, repeats: tf.tile(x, [int(each) for each in repeats]),
    Transpose=lambda x, *, perm=None: tf.transpose(x, perm),
    Unsqueeze=_unsqueeze,
)


@operator("Split")
def _split(x: Raw, sizes: Host | None = None, *, node: OperatorNode, axis: int) -> tuple[Raw, ...]:
    if sizes is not None:
        return tuple(tf.split(x, sizes.tolist(), axis))
    count, length = len(node.outputs), sizes_of(x)[axis]
    # Parts are equal except for the last one.
    ends = np.minimum(-(-length // count) * np.arange(count + 1), length)
    return tuple(tf.split(x, np.diff(ends).tolist(), axis))


@operator("Slice")
def _slice(x: Raw, starts: Host, ends: Host, axes: Host | None = None, steps: Host | None = None) -> Raw:
    listed = range(starts.size) if axes is None else axes.tolist()
    strides = [1] * starts.size if steps is None else steps.tolist()
    shape = sizes_of(x)
    where = [slice(None)] * len(shape)
    for start, end, axis, step in zip(starts.tolist(), ends.tolist(), listed, strides, strict=True):
        where[axis] = _range(start, end, step, shape[axis])
    return x[tuple(where)]


def _range(start: int, end: int, step: int, length: int) -> slice:
    """The elements between ONNX's bounds, as a slice that leaves nothing to clip."""
    if step < 0:
        start = max(start, -length)
        found = range(length)[slice(start, None if end < -length else end, step)]
    else:
        found = range(length)[slice(start, end, step)]
    stop = found.stop if found.stop >= 0 else None
    return slice(found.start, stop, step) if len(found) else slice(0, 0)


@maker("Pad")
def _pad(node: OperatorNode) -> Function:
    """Negative pads crop."""
    mode = node["mode"]
    if mode not in {"constant", "reflect", "edge", "wrap"}:
        raise refuse(node, f"unknown mode {mode!r}")

    def pad(x: Raw, pads: Host, value: Raw = None, axes: Host | None = None) -> Raw:
        shape = sizes_of(x)
        places = [int(each) % len(shape) for each in (range(len(shape)) if axes is None else axes)]
        width = [(0, 0)] * len(shape)
        for at, axis in enumerate(places):
            width[axis] = (int(pads[at]), int(pads[at + len(places)]))
        if mode != "constant":
            for axis, (before, behind) in enumerate(width):
                if before or behind:
                    # NumPy knows where each element comes from; negative pads only crop.
                    inner = np.arange(shape[axis])[max(-before, 0) : shape[axis] + min(behind, 0)]
                    x = tf.gather(x, np.pad(inner, (max(before, 0), max(behind, 0)), mode), axis=axis)
            return x
        zeros = padded(x, width, 0)
        if value is None:
            return zeros
        # TensorFlow's padding has no gradient for the value.
        inside = padded(tf.ones(shape, tf.bool), width, False)
        return tf.where(inside, zeros, tf.reshape(value, []))

    return pad


def padded(x: Raw, width: Sequence[tuple[int, int]], fill: Any) -> Raw:
    """Padded with ``fill``, or cropped where negative, before and after each axis."""
    cut = tuple(
        slice(max(-before, 0), size + min(behind, 0)) for size, (before, behind) in zip(sizes_of(x), width, strict=True)
    )
    x = x[cut] if any(min(each) < 0 for each in width) else x
    more = [(max(before, 0), max(behind, 0)) for before, behind in width]
    return tf.pad(x, more, constant_values=tf.cast(fill, x.dtype)) if any(map(any, more)) else x


@operator("CenterCropPad")
def _center_crop_pad(x: Raw, shape: Host, *, axes: Sequence[int] | None = None) -> Raw:
    sizes = sizes_of(x)
    width = [(0, 0)] * len(sizes)
    for axis, size in zip(range(len(sizes)) if axes is None else axes, shape, strict=True):
        more = int(size) - sizes[axis]
        before = more // 2 if more > 0 else -(-more // 2)
        width[axis] = (before, more - before)
    return padded(x, width, 0)


# Gathering and scattering by index, NonZero, Unique.


def _inside(indices: Raw, size: int) -> Raw:
    wide = tf.cast(indices, tf.int64)
    return tf.where(wide < 0, wide + size, wide)


@operator("GatherElements")
def _gather_elements(x: Raw, indices: Raw, *, axis: int) -> Raw:
    return tf.gather_nd(x, _places(indices, axis % len(x.shape), sizes_of(x)))


def _places(indices: Raw, axis: int, shape: Sequence[int]) -> Raw:
    """The position in an array of ``shape`` of each index along ``axis``: (indices..., rank)."""
    where: list[Any] = list(np.indices(tuple(sizes_of(indices))))
    where[axis] = _inside(indices, shape[axis])
    return tf.stack([tf.cast(each, tf.int64) for each in where], -1)


def written(node: OperatorNode, x: Raw, places: Raw, updates: Raw) -> Raw:
    """Writes updates, or combines them with the values that are there."""
    match node.get("reduction", "none"):
        case "none":
            return tf.tensor_scatter_nd_update(x, places, updates)
        case "add":
            return tf.tensor_scatter_nd_add(x, places, updates)
        case "max":
            return tf.tensor_scatter_nd_max(x, places, updates)
        case "min":
            return tf.tensor_scatter_nd_min(x, places, updates)
        case "mul":
            shape, depth = sizes_of(x), places.shape[-1]
            steps = np.cumprod([1, *shape[depth - 1 : 0 : -1]])[::-1] if depth else np.zeros(0)
            flat = tf.reshape(tf.reduce_sum(places * tf.constant(np.array(steps[:depth], np.int64)), -1), [-1])
            rest = shape[depth:]
            factors = tf.math.unsorted_segment_prod(tf.reshape(updates, [-1, *rest]), flat, prod(shape[:depth]))
            return x * tf.reshape(factors, shape)
    raise refuse(node, f"unknown reduction {node['reduction']!r}")


@operator("Scatter", "ScatterElements")
def _scatter_elements(x: Raw, indices: Raw, updates: Raw, *, node: OperatorNode, axis: int) -> Raw:
    return written(node, x, _places(indices, axis % len(x.shape), sizes_of(x)), updates)


@operator("ScatterND")
def _scatter_nd(x: Raw, indices: Raw, updates: Raw, *, node: OperatorNode) -> Raw:
    sizes = tf.constant(np.array(sizes_of(x)[: indices.shape[-1]], np.int64))
    return written(node, x, tf.where(indices < 0, indices + sizes, indices), updates)


@operator("TensorScatter")
def _tensor_scatter(cache: Raw, update: Raw, start: Raw = None, *, axis: int, mode: str) -> Raw:
    """Writes a range along ``axis`` of each sample's cache, starting at the sample's own index."""
    shape, length = sizes_of(cache), sizes_of(update)[axis]
    at, batch = axis % len(shape), shape[0]
    first = tf.zeros([batch], tf.int64) if start is None else tf.cast(start, tf.int64)
    place = first[:, None] + np.arange(length)
    place = place % shape[at] if mode == "circular" else place
    index = tf.stack([tf.broadcast_to(tf.constant(np.arange(batch)[:, None]), [batch, length]), place], -1)
    order = [0, at, *(each for each in range(1, len(shape)) if each != at)]
    found = tf.tensor_scatter_nd_update(tf.transpose(cache, order), index, tf.transpose(update, order))
    return tf.transpose(found, np.argsort(order).tolist())


@operator("NonZero")
def _non_zero(x: Raw) -> Raw:
    found = x if x.dtype == tf.bool else x != tf.zeros_like(x)
    return tf.transpose(tf.where(found)) if len(x.shape) else tf.zeros([0, int(bool(found))], tf.int64)


@operator("Unique")
def _unique(x: Raw, *, axis: int | None = None, sorted: int) -> tuple[Raw, ...]:
    at = 0 if axis is None else axis
    flat = tf.reshape(x, [-1]) if axis is None else x
    found = tf.raw_ops.UniqueWithCountsV2(x=flat, axis=[at], out_idx=tf.int64)
    if not hasattr(found.y, "numpy"):
        raise needs_value("the shape of Unique")
    total, held = found.y.shape[at], found.idx.numpy()
    first = np.array([np.argmax(held == each) for each in range(total)], np.int64)
    order = np.arange(total)
    if sorted and total:
        order = np.lexsort(np.moveaxis(found.y.numpy(), at, 0).reshape(total, -1).T[::-1])
    places = tf.constant(np.argsort(order))
    # Gathered from the input, so that they have a gradient.
    values = tf.gather(flat, first[order], axis=at)
    return values, tf.constant(first[order]), tf.gather(places, found.idx), tf.gather(found.count, order)


# Constants.


@maker("Constant")
def _constant(node: OperatorNode) -> Function:
    value = constant_of(node)
    if value is None:
        raise refuse(node, "strings and sparse tensors are not supported")
    if value.dtype not in DTYPES:
        raise no_type(value.dtype)
    return lambda: tf.constant(value)


@operator("ConstantOfShape")
def _constant_of_shape(shape: Host, *, value: Host | None = None) -> Raw:
    fill = np.zeros(1, np.float32) if value is None else value.reshape(-1)
    return tf.constant(np.full(tuple(shape.tolist()), fill[0], fill.dtype))
