"""Padding, indices, NonZero and Unique."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import tensorflow as tf

from levelbench.frameworks.tensorflow.arrays import Raw, needs_value
from levelbench.frameworks.tensorflow.operators.registry import operator, refuse, sizes_of, table
from levelbench.operators.node import OperatorNode


def _gather(x: Raw, indices: Raw, *, axis: int) -> Raw:
    # A negative index counts from the end.
    size = tf.constant(sizes_of(x)[axis], indices.dtype)
    return tf.gather(x, tf.where(indices < 0, indices + size, indices), axis=axis)


table(Gather=_gather)


def padded(x: Raw, width: Sequence[tuple[int, int]], fill: Any) -> Raw:
    """Padded with ``fill``, or cropped where negative, before and after each axis."""
    cut = tuple(
        slice(max(-before, 0), size + min(behind, 0)) for size, (before, behind) in zip(sizes_of(x), width, strict=True)
    )
    x = x[cut] if any(min(each) < 0 for each in width) else x
    more = [(max(before, 0), max(behind, 0)) for before, behind in width]
    if not any(map(any, more)):
        return x
    # Without a value it is another kernel, which is faster.
    given = {} if type(fill) is int and fill == 0 else {"constant_values": tf.cast(fill, x.dtype)}
    return tf.pad(x, more, **given)


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
        case "max" | "min" as which:
            combined = tf.tensor_scatter_nd_max if which == "max" else tf.tensor_scatter_nd_min
            found = combined(x, places, updates)
            if not x.dtype.is_floating:
                return found
            # TensorFlow's kernels lose NaN.
            bad = tf.cast(tf.math.is_nan(x), tf.int32)
            bad = tf.tensor_scatter_nd_max(bad, places, tf.cast(tf.math.is_nan(updates), tf.int32))
            return tf.where(bad > 0, tf.constant(np.nan, x.dtype), found)
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
