"""The kernels of convolutions and pools, which take the channels last on the CPU; MaxUnpool, NonMaxSuppression."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

import numpy as np
import tensorflow as tf

from levelbench.errors import UnsupportedError
from levelbench.frameworks.shared.convolution import WINDOWED, Kernels, elements_of, lowest, windowed
from levelbench.frameworks.shared.functional import Widths
from levelbench.frameworks.shared.operators import Host
from levelbench.frameworks.shared.windows import Window, Windows, counts_of
from levelbench.frameworks.tensorflow.arrays import (
    Raw,
    TensorArray,
    by_xla,
    channels_first,
    channels_last,
    quick_if,
    wide,
    xp,
)
from levelbench.frameworks.tensorflow.operators.elementwise import NATIVES
from levelbench.frameworks.tensorflow.operators.registry import maker, on_arrays, operator, sizes_of
from levelbench.frameworks.tensorflow.operators.shapes import padded
from levelbench.operators.contract import Array, Function
from levelbench.operators.node import OperatorNode


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


def _convolved(x: Raw, weight: Raw, strides: Sequence[int], group: int) -> Raw:
    """(N, spatial..., C) without padding and (M, C / group, kernel...) to (N, spatial..., M)."""
    rank = len(x.shape) - 2
    if not 1 <= rank <= 3:
        raise UnsupportedError("a convolution on tensorflow", f"{rank} spatial axes", "TensorFlow takes one to three")
    places = zip(sizes_of(x)[1:-1], sizes_of(weight)[2:], strides, strict=True)
    out = [max(0, (size - length) // stride + 1) for size, length, stride in places]
    if 0 in (*sizes_of(x), *sizes_of(weight), *out):
        # TensorFlow's kernels return an array of another shape, with values never written.
        return tf.zeros([sizes_of(x)[0], *out, sizes_of(weight)[0]], x.dtype)
    kernel = tf.transpose(weight, [*range(2, rank + 2), 1, 0])
    if group > 1 and sizes_of(weight)[1] == 1 and rank == 2 and len(set(strides)) == 1:
        # (kernel..., group, M / group)
        by_group = tf.reshape(kernel, [*sizes_of(kernel)[:2], group, -1])
        return tf.nn.depthwise_conv2d(x, by_group, [1, *strides, 1], "VALID")
    parts = zip(tf.split(x, group, -1), tf.split(kernel, group, -1), strict=True) if group > 1 else [(x, kernel)]
    named = ("NWC", "NHWC", "NDHWC")[rank - 1]
    found = [tf.nn.convolution(a, b, list(strides), "VALID", data_format=named) for a, b in parts]
    return tf.concat(found, -1) if group > 1 else found[0]


def _convolve(
    x: Array,
    weight: Array,
    bias: Array | None,
    strides: Sequence[int],
    pads: Widths,
    dilations: Sequence[int],
    group: int,
    spread: Sequence[int] | None = None,
) -> Array:
    kind = x.tensor.dtype
    last = channels_last(x.tensor if spread is None else _dilated(x.tensor, spread))
    # Float64 holds the sums of integers of 32 bits.
    given = [None if each is None else each.tensor for each in (weight, bias)]
    if kind.is_integer:
        last, *given = (None if each is None else tf.cast(each, tf.float64) for each in (last, *given))
    found = _convolved(padded(last, [(0, 0), *pads, (0, 0)], 0), _dilated(given[0], dilations), strides, group)
    found = found if bias is None else found + given[1]
    return TensorArray(channels_first(tf.cast(found, kind) if kind.is_integer else found))


# Pooling: by TensorFlow's kernels, or over the gathered elements of each window where it has none.


def _pooled(kind: str, x: Array, windows: Windows) -> Array:
    """The maximum or mean of each window."""
    tensor, sizes, fill = x.tensor, x.shape[2:], lowest(x.dtype) if kind == "MAX" else 0
    if min(windows.out) <= 0:
        # TensorFlow divides by zero, which ends the process.
        return TensorArray(tf.zeros([*x.shape[:2], *(max(0, each) for each in windows.out)], tensor.dtype))

    # XLA has no gradient of a maximum that is the same each time.
    max_by_xla = kind == "MAX" and by_xla()
    gaps = any(stride > size for stride, size in zip(windows.strides, windows.kernel, strict=True))
    gaps = gaps or not counts_of(windows, tuple(sizes), False).all()
    if gaps or set(windows.dilations) != {1} or len(sizes) > 3 or not tensor.dtype.is_floating or max_by_xla:
        elements = elements_of(NATIVES, x, windows, fill)
        return _largest(elements) if kind == "MAX" else xp.mean(elements, axis=-1)
    last = channels_last(tensor)
    ready = padded(last, [(0, 0), *windows.padding(sizes), (0, 0)], fill)
    found = tf.nn.pool(ready, list(windows.kernel), kind, list(windows.strides), "VALID")
    if kind == "MAX":
        found = _complete(found, last, windows)
    return TensorArray(channels_first(found))


def _largest(elements: Array) -> Array:
    return xp.take_along_axis(elements, xp.argmax(elements, axis=-1, keepdims=True), axis=-1)[..., 0]


_BOUNDED = {"AddV2", "Conv2D", "EnsureShape", "Identity", "IdentityN", "MaxPool", "Pad", "Relu", "Transpose"}
"""TensorFlow's operations whose outputs are finite where their inputs are and do not overflow."""


def _finite(x: Raw) -> Raw | list[Raw]:
    """Whether all elements are finite, in one pass: a sum is cheaper than a search.

    Where up to three convolutions made them from fewer ones, it is those that have to be small (:func:`quick_if`). A
    sum of products is at most the product of both norms (Cauchy and Schwarz): with norms below 5e7 and a million
    elements in a window, nothing reaches 1e38.
    """
    best, parts, behind, convolutions = [x], [], x, 0
    while not tf.executing_eagerly() and x.dtype.size >= 4 and behind.op.type in _BOUNDED:
        convolutions += behind.op.type == "Conv2D"
        if convolutions > 3:
            break
        if behind.op.type in {"AddV2", "Conv2D"}:
            parts.append(behind.op.inputs[1])
        behind = behind.op.inputs[behind.value_index if behind.op.type == "IdentityN" else 0]
        if convolutions:
            best = min(best, [*parts, behind], key=lambda some: sum(prod(sizes_of(each)) for each in some))
    if len(best) > 1:
        return best
    return tf.math.is_finite(tf.reduce_sum(wide(x)))


def _complete(found: Raw, last: Raw, windows: Windows) -> Raw:
    """TensorFlow's maximum with what it loses: NaN, and minus infinity where a window has nothing else."""

    def exact() -> Raw:
        x = TensorArray(channels_first(last))
        return channels_last(_largest(elements_of(NATIVES, x, windows, lowest(x.dtype))).tensor)

    @tf.custom_gradient
    def complete(found: Raw) -> tuple[Raw, Function]:
        return quick_if(_finite(last), found, exact), tf.identity

    return tf.ensure_shape(complete(found), found.shape)


_KERNELS = Kernels(
    NATIVES,
    convolve=_convolve,
    max_pool=partial(_pooled, "MAX"),
    mean_pool=partial(_pooled, "AVG"),
    add_rows=lambda rows, places, count: TensorArray(tf.math.unsorted_segment_sum(rows.tensor, places, count)),
)
for _name in WINDOWED:
    on_arrays(_name, windowed(_name, _KERNELS))


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
