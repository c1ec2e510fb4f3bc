"""Sliding windows: convolutions and pooling of one to three spatial axes.

Every padding rule of ONNX becomes a number of elements before and after each axis, which are padded or cropped first.
TensorFlow's kernels for the CPU take the channels last.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import tensorflow as tf

from levelbench.frameworks.shared.operators import Host
from levelbench.frameworks.shared.quantisation import requantise, shifted
from levelbench.frameworks.shared.windows import Window, Windows, counts_of
from levelbench.frameworks.tensorflow.arrays import Raw, TensorArray, wide, xp
from levelbench.frameworks.tensorflow.operators.elementwise import cast_array
from levelbench.frameworks.tensorflow.operators.registry import (
    by_channel,
    maker,
    on_arrays,
    operator,
    refuse,
    sizes_of,
    table,
)
from levelbench.frameworks.tensorflow.operators.shapes import padded
from levelbench.operators.contract import Array, Function
from levelbench.operators.node import OperatorNode


def _channels_last(x: Raw) -> Raw:
    return tf.transpose(x, [0, *range(2, len(x.shape)), 1])


def _channels_first(x: Raw) -> Raw:
    return tf.transpose(x, [0, len(x.shape) - 1, *range(1, len(x.shape) - 1)])


def _spatial(x: Raw) -> list[int]:
    return list(range(2, len(x.shape)))


def _dilated(x: Raw, factors: Sequence[int]) -> Raw:
    """Zeros put between the elements along each spatial axis."""
    for axis, factor in enumerate(factors, 2):
        if factor == 1:
            continue
        shape = list(sizes_of(x))
        spread = tf.pad(
            tf.expand_dims(x, axis + 1), [(0, factor - 1 if at == axis + 1 else 0) for at in range(len(shape) + 1)]
        )
        joined = tf.reshape(spread, [*shape[:axis], -1, *shape[axis + 1 :]])
        x = joined[(*[slice(None)] * axis, slice(0, (shape[axis] - 1) * factor + 1))]
    return x


def _convolved(
    node: OperatorNode, x: Raw, weight: Raw, strides: Sequence[int], dilations: Sequence[int], group: int
) -> Raw:
    """(N, C, spatial...) without padding and (M, C / group, kernel...) to (N, M, spatial...)."""
    rank = len(x.shape) - 2
    if not 1 <= rank <= 3:
        raise refuse(node, f"it has {rank} spatial axes, and TensorFlow convolves one to three")
    weight = _dilated(weight, dilations)
    places = zip(sizes_of(x)[2:], sizes_of(weight)[2:], strides, strict=True)
    out = [max(0, (size - length) // stride + 1) for size, length, stride in places]
    if 0 in (*sizes_of(x), *sizes_of(weight), *out):
        # TensorFlow's kernels return an array of another shape, with values never written.
        return tf.zeros([sizes_of(x)[0], sizes_of(weight)[0], *out], x.dtype)
    kernel = tf.transpose(weight, [*range(2, rank + 2), 1, 0])
    last = _channels_last(x)
    channels = sizes_of(weight)[1]
    if group > 1 and channels == 1 and rank == 2 and len(set(strides)) == 1:
        # (kernel..., group, M / group)
        by_group = tf.reshape(kernel, [*sizes_of(kernel)[:2], group, -1])
        return _channels_first(tf.nn.depthwise_conv2d(last, by_group, [1, *strides, 1], "VALID"))
    parts = zip(tf.split(last, group, -1), tf.split(kernel, group, -1), strict=True) if group > 1 else [(last, kernel)]
    named = ("NWC", "NHWC", "NDHWC")[rank - 1]
    found = [tf.nn.convolution(a, b, list(strides), "VALID", data_format=named) for a, b in parts]
    return _channels_first(tf.concat(found, -1) if group > 1 else found[0])


def _convolve(node: OperatorNode, x: Raw, weight: Raw) -> Raw:
    sizes = sizes_of(x)[2:]
    windows = Window.of(node).over(sizes, sizes_of(weight)[2:])
    ready = padded(x, [(0, 0), (0, 0), *windows.padding(sizes)], 0)
    return _convolved(node, ready, weight, windows.strides, windows.dilations, int(node["group"]))


def _biased(y: Raw, bias: Raw) -> Raw:
    return y if bias is None else y + by_channel(bias, len(y.shape))


table(Conv=lambda x, weight, bias=None, *, node: _biased(_convolve(node, x, weight), bias))


def _conv_integer(
    node: OperatorNode, x: Array, weight: Array, x_zero: Array | None = None, weight_zero: Array | None = None
) -> Array:
    """In float64, which holds the sums of integers of 32 bits."""
    a, b = (xp.astype(shifted(each, zero, 0), xp.float64).tensor for each, zero in ((x, x_zero), (weight, weight_zero)))
    return xp.astype(TensorArray(_convolve(node, a, b)), xp.int32)


def _qlinear_conv(
    node: OperatorNode,
    x: Array,
    x_scale: Array,
    x_zero: Array,
    weight: Array,
    weight_scale: Array,
    weight_zero: Array,
    y_scale: Array,
    y_zero: Array,
    bias: Array | None = None,
) -> Array:
    y = _conv_integer(node, x, weight, x_zero, weight_zero)
    by_channel = (1, -1, *[1] * (y.ndim - 2))
    y = y if bias is None else y + bias.reshape(by_channel)
    scales = weight_scale.reshape(by_channel if weight_scale.size > 1 else ())
    return requantise(xp, cast_array, y, x_scale.reshape(()) * scales / y_scale.reshape(()), y_zero.reshape(()))


on_arrays("ConvInteger", lambda node: partial(_conv_integer, node))
on_arrays("QLinearConv", lambda node: partial(_qlinear_conv, node))


@operator("ConvTranspose")
def _conv_transpose(x: Raw, weight: Raw, bias: Raw = None, *, node: OperatorNode, group: int) -> Raw:
    """A convolution of the input with zeros between its elements by the turned kernel."""
    shape, sizes = sizes_of(weight), sizes_of(x)[2:]
    window = Window.of(node).filled(len(sizes), shape[2:])
    lost = window.lost(sizes, node.get("output_padding"), node.get("output_shape"))
    grouped = tf.reshape(weight, [group, shape[0] // group, *shape[1:]])
    order = [0, 2, 1, *range(3, len(shape) + 1)]
    turned = tf.reverse(tf.transpose(grouped, order), list(range(3, len(shape) + 1)))
    turned = tf.reshape(turned, [group * shape[1], shape[0] // group, *shape[2:]])
    reach = [window.extent(axis) - 1 for axis in range(len(sizes))]
    pads = [(most - before, most - behind) for most, (before, behind) in zip(reach, lost, strict=True)]
    ready = padded(_dilated(x, window.strides), [(0, 0), (0, 0), *pads], 0)
    return _biased(_convolved(node, ready, turned, [1] * len(sizes), window.dilations, group), bias)


@operator("Col2Im")
def _col2im(columns: Raw, image: Host, block: Host, *, node: OperatorNode) -> Raw:
    """Adds up overlapping blocks: the transpose of extracting blocks from an image."""
    spatial, sizes = [int(each) for each in image], [int(each) for each in block]
    windows = Window.of(node).over(spatial, sizes)
    count = len(sizes)
    n, channels = sizes_of(columns)[0], sizes_of(columns)[1] // prod(sizes)
    room = [length + sum(each) for each, length in zip(windows.padding(spatial), spatial, strict=True)]
    where: Any = 0
    for axis in range(count):
        along = [1] * (2 * count)
        along[axis], along[count + axis] = sizes[axis], windows.out[axis]
        where = where * room[axis] + (windows.places(axis).T + windows.before[axis]).reshape(along)
    blocks = tf.transpose(tf.reshape(columns, [n, channels, -1]), [2, 0, 1])
    full = tf.scatter_nd(where.reshape(-1, 1), blocks, tf.constant([prod(room), n, channels], tf.int64))
    full = tf.reshape(tf.transpose(full, [1, 2, 0]), [n, channels, *room])
    inner = [slice(before, before + length) for before, length in zip(windows.before, spatial, strict=True)]
    return full[(slice(None), slice(None), *inner)]


# Pooling: by TensorFlow's kernels, or over the gathered elements of each window where it has none.


def _pooled(kind: str, x: Raw, windows: Windows, fill: Any) -> Raw:
    """The maximum or mean of each window of the input, padded with ``fill``."""
    sizes = sizes_of(x)[2:]
    if min(windows.out) <= 0:
        # TensorFlow divides by zero, which ends the process.
        return tf.zeros([*sizes_of(x)[:2], *(max(0, each) for each in windows.out)], x.dtype)
    gaps = any(stride > size for stride, size in zip(windows.strides, windows.kernel, strict=True))
    if gaps or set(windows.dilations) != {1} or len(sizes) > 3 or not x.dtype.is_floating:
        elements = _elements(x, windows, fill)
        return tf.reduce_max(elements, -1) if kind == "MAX" else tf.reduce_mean(elements, -1)
    ready = _channels_last(padded(x, [(0, 0), (0, 0), *windows.padding(sizes)], fill))
    return _channels_first(tf.nn.pool(ready, list(windows.kernel), kind, list(windows.strides), "VALID"))


def _elements(x: Raw, windows: Windows, fill: Any) -> Raw:
    """(N, C, outputs..., kernel elements)."""
    sizes = sizes_of(x)[2:]
    found = padded(x, [(0, 0), (0, 0), *windows.padding(sizes)], fill)
    count = len(sizes)
    for axis in range(count):
        found = tf.gather(found, windows.places(axis) + windows.before[axis], axis=2 + 2 * axis)
    order = [0, 1, *range(2, 2 + 2 * count, 2), *range(3, 3 + 2 * count, 2)]
    return tf.reshape(tf.transpose(found, order), [*sizes_of(x)[:2], *windows.out, prod(windows.kernel)])


def _lowest(x: Raw) -> Any:
    return -np.inf if x.dtype.is_floating else int(ml_dtypes.iinfo(x.dtype.as_numpy_dtype).min)


@operator("MaxPool")
def _max_pool(x: Raw, *, node: OperatorNode, storage_order: int = 0) -> Raw | tuple[Raw, ...]:
    shape = sizes_of(x)
    windows = Window.of(node).over(shape[2:])
    if len(node.outputs) < 2 or not node.outputs[1]:
        return _pooled("MAX", x, windows, _lowest(x))
    if min(windows.out) <= 0:
        nothing = _pooled("MAX", x, windows, 0)
        return nothing, tf.cast(nothing, tf.int64)
    elements = _elements(x, windows, _lowest(x))
    chosen = tf.argmax(elements, -1)
    positions = tf.broadcast_to(tf.constant(windows.positions(shape[2:], bool(storage_order))), elements.shape)
    depth = len(shape)
    inside = tf.gather(positions, chosen, batch_dims=depth)
    channel = np.arange(shape[0] * shape[1]).reshape(*shape[:2], *[1] * (depth - 2)) * prod(shape[2:])
    return tf.gather(elements, chosen, batch_dims=depth), inside + channel


@operator("AveragePool")
def _average_pool(x: Raw, *, node: OperatorNode, count_include_pad: int) -> Raw:
    sizes = sizes_of(x)[2:]
    windows = Window.of(node).over(sizes)
    mean = _pooled("AVG", wide(x), windows, 0)
    share = prod(windows.kernel) / counts_of(windows, sizes, bool(count_include_pad))
    return tf.cast(mean if (share == 1).all() else mean * tf.constant(share, mean.dtype), x.dtype)


@operator("LpPool")
def _lp_pool(x: Raw, *, node: OperatorNode, p: int) -> Raw:
    windows = Window.of(node).over(sizes_of(x)[2:])
    total = _pooled("AVG", tf.abs(wide(x)) ** p, windows, 0) * prod(windows.kernel)
    return tf.cast(total ** (1 / p), x.dtype)


@operator("GlobalLpPool")
def _global_lp_pool(x: Raw, *, p: int) -> Raw:
    return tf.cast(tf.reduce_sum(tf.abs(wide(x)) ** p, _spatial(x), True) ** (1 / p), x.dtype)


table(
    GlobalAveragePool=lambda x: tf.cast(tf.reduce_mean(wide(x), _spatial(x), True), x.dtype),
    GlobalMaxPool=lambda x: tf.reduce_max(x, _spatial(x), True),
)


@operator("MaxUnpool")
def _max_unpool(x: Raw, indices: Raw, shape: Host | None = None, *, node: OperatorNode) -> Raw:
    """Values written to their positions in the pool's input; a larger requested shape is zero-padded at the end."""
    outer, inner = sizes_of(x)[:2], Window.of(node).pooled(sizes_of(x)[2:])
    flat = tf.zeros([prod(outer) * prod(inner)], x.dtype)
    flat = tf.tensor_scatter_nd_update(flat, tf.reshape(indices, [-1, 1]), tf.reshape(x, [-1]))
    full = tf.reshape(flat, [*outer, *inner])
    if shape is None:
        return full
    return padded(full, [(0, int(want) - have) for want, have in zip(shape, [*outer, *inner], strict=True)], 0)


@maker("NonMaxSuppression")
def _non_max_suppression(node: OperatorNode) -> Function:
    """The best boxes that do not overlap too much, one class of one batch after another."""
    centred = bool(node["center_point_box"])

    def chosen(
        boxes: Raw, scores: Raw, most: Host | None = None, overlap: Host | None = None, least: Host | None = None
    ) -> Raw:
        limit, threshold = (0 if each is None or not each.size else each.item() for each in (most, overlap))
        lowest = -np.inf if least is None or not least.size else float(least.item())
        if centred:
            middle, half = boxes[..., :2], boxes[..., 2:] / 2
            boxes = tf.concat([middle - half, middle + half], -1)
        found = []
        for batch, label in np.ndindex(*sizes_of(scores)[:2]):
            kept = tf.image.non_max_suppression(
                boxes[batch], scores[batch, label], max(int(limit), 0), threshold, lowest
            )
            where = tf.stack([tf.fill(tf.shape(kept), batch), tf.fill(tf.shape(kept), label), kept], 1)
            found.append(tf.cast(where, tf.int64))
        return tf.concat(found, 0)

    return chosen
