"""Sliding windows and images: convolutions, pooling, sampling between elements, NonMaxSuppression.

Every padding rule of ONNX (``auto_pad``, ``ceil_mode``) results in a number of elements before and after each axis,
which may be negative; XLA takes exactly these.
"""

from __future__ import annotations

from math import prod

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from levelbench.frameworks.jax.operators.elementwise import cast
from levelbench.frameworks.jax.operators.reductions import extreme
from levelbench.frameworks.jax.operators.registry import PRECISION, maker, operator, table
from levelbench.frameworks.shared.operators import Host
from levelbench.frameworks.shared.quantisation import requantise, shifted
from levelbench.frameworks.shared.windows import Window, Windows, counts_of
from levelbench.operators.contract import Function
from levelbench.operators.node import OperatorNode

# Convolutions of any number of spatial axes: Conv, ConvTranspose, quantised and causal ones, Col2Im. All use XLA's
# general convolution. A transposed one dilates the input by the strides and flips the kernel.


def _convolve(node: OperatorNode, x: Array, weight: Array) -> Array:
    """(N, C, spatial...) and (M, C / group, kernel...) to (N, M, spatial...)."""
    windows = Window.of(node).over(x.shape[2:], weight.shape[2:])
    return lax.conv_general_dilated(
        x,
        weight,
        windows.strides,
        windows.padding(x.shape[2:]),
        rhs_dilation=windows.dilations,
        feature_group_count=int(node["group"]),
        precision=PRECISION,
    )


def _by_channel(bias: Array, rank: int) -> Array:
    return bias.reshape(1, -1, *[1] * (rank - 2))


@operator("Conv")
def _conv(x: Array, weight: Array, bias: Array | None = None, *, node: OperatorNode) -> Array:
    y = _convolve(node, x, weight)
    return y if bias is None else y + _by_channel(bias, y.ndim)


@operator("ConvInteger")
def _conv_integer(
    x: Array, weight: Array, x_zero: Array | None = None, weight_zero: Array | None = None, *, node: OperatorNode
) -> Array:
    return _convolve(node, shifted(x, x_zero, 0), shifted(weight, weight_zero, 0))


@operator("QLinearConv")
def _qlinear_conv(
    x: Array,
    x_scale: Array,
    x_zero: Array,
    weight: Array,
    weight_scale: Array,
    weight_zero: Array,
    y_scale: Array,
    y_zero: Array,
    bias: Array | None = None,
    *,
    node: OperatorNode,
) -> Array:
    y = _convolve(node, shifted(x, x_zero, 0), shifted(weight, weight_zero, 0))
    y = y if bias is None else y + _by_channel(bias, y.ndim)
    scales = _by_channel(weight_scale, y.ndim) if weight_scale.size > 1 else weight_scale.reshape(())
    scale = x_scale.reshape(()) * scales / y_scale.reshape(())
    return requantise(jnp, cast, y, scale, y_zero.reshape(()))


@operator("ConvTranspose")
def _conv_transpose(x: Array, weight: Array, bias: Array | None = None, *, node: OperatorNode, group: int) -> Array:
    window = Window.of(node).filled(x.ndim - 2, weight.shape[2:])
    lost = window.lost(x.shape[2:], node.get("output_padding"), node.get("output_shape"))
    grouped = weight.reshape(group, -1, *weight.shape[1:])
    turned = jnp.flip(jnp.swapaxes(grouped, 1, 2), range(3, grouped.ndim))
    y = lax.conv_general_dilated(
        x,
        turned.reshape(-1, *turned.shape[2:]),
        (1,) * window.rank,
        [
            (window.extent(axis) - 1 - before, window.extent(axis) - 1 - behind)
            for axis, (before, behind) in enumerate(lost)
        ],
        lhs_dilation=window.strides,
        rhs_dilation=window.dilations,
        feature_group_count=group,
        precision=PRECISION,
    )
    return y if bias is None else y + _by_channel(bias, y.ndim)


@operator("CausalConvWithState")
def _causal_conv(
    x: Array, weight: Array, bias: Array | None = None, past: Array | None = None, *, activation: str = "none"
) -> tuple[Array, ...]:
    """A depthwise convolution along time that is padded with the end of the previous chunk."""
    gated = activation in {"silu", "swish"}
    channels, size = x.shape[1], weight.shape[2]
    before = jnp.zeros((*x.shape[:2], size - 1), x.dtype) if past is None else past
    padded = jnp.concatenate([before, x], 2)
    y = lax.conv_general_dilated(padded, weight, (1,), [(0, 0)], feature_group_count=channels, precision=PRECISION)
    y = y if bias is None else y + _by_channel(bias, 3)
    return jax.nn.silu(y) if gated else y, padded[:, :, padded.shape[2] - (size - 1) :]


@operator("Col2Im")
def _col2im(columns: Array, image: Host, block: Host, *, node: OperatorNode) -> Array:
    """Adds up overlapping blocks: the transpose of extracting blocks from an image."""
    spatial, sizes = [int(each) for each in image], [int(each) for each in block]
    windows = Window.of(node).over(spatial, sizes)
    count = len(sizes)
    n, channels = columns.shape[0], columns.shape[1] // prod(sizes)
    blocks = columns.reshape(n, channels, *sizes, *windows.out)
    where = []
    for axis in range(count):
        shape = [1] * (2 * count)
        shape[axis], shape[count + axis] = sizes[axis], windows.out[axis]
        where.append((windows.places(axis).T + windows.before[axis]).reshape(shape))
    pads = windows.padding(spatial)
    padded = [length + sum(each) for each, length in zip(pads, spatial, strict=True)]
    full = jnp.zeros((n, channels, *padded), columns.dtype).at[(slice(None), slice(None), *where)].add(blocks)
    inner = [slice(before, before + length) for before, length in zip(windows.before, spatial, strict=True)]
    return full[(slice(None), slice(None), *inner)]


# Pooling of any number of spatial axes by XLA's ``reduce_window``: maximum, mean and p-norm, and MaxUnpool. The divisor
# of a mean depends only on the shape.


def _spatial(x: Array) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


def _wide(x: Array) -> Array:
    """Half precisions are summed in float32."""
    return x.astype(jnp.float32) if x.dtype.itemsize < 4 else x


def _reduce(x: Array, start: Host, function: Function, windows: Windows) -> Array:
    return lax.reduce_window(
        x,
        start,
        function,
        (1, 1, *windows.kernel),
        (1, 1, *windows.strides),
        ((0, 0), (0, 0), *windows.padding(x.shape[2:])),
        window_dilation=(1, 1, *windows.dilations),
    )


def _elements(x: Array, windows: Windows, fill: Array) -> Array:
    """(N, C, outputs..., kernel elements): the windows, where ``reduce_window`` has no derivative."""
    padded = lax.pad(
        x, jnp.asarray(fill), [(0, 0, 0), (0, 0, 0), *((*each, 0) for each in windows.padding(x.shape[2:]))]
    )
    count = x.ndim - 2
    where = []
    for axis in range(count):
        shape = [1] * (2 * count)
        shape[axis], shape[count + axis] = windows.out[axis], windows.kernel[axis]
        where.append((windows.places(axis) + windows.before[axis]).reshape(shape))
    found = padded[(slice(None), slice(None), *where)]
    return found.reshape(*found.shape[: 2 + count], -1)


@operator("MaxPool")
def _max_pool(x: Array, *, node: OperatorNode, storage_order: int = 0) -> Array | tuple[Array, ...]:
    indexed = len(node.outputs) > 1 and bool(node.outputs[1])
    windows = Window.of(node).over(x.shape[2:])
    lowest = np.array(extreme(x.dtype, False), x.dtype)
    if not indexed and set(windows.dilations) == {1}:
        return _reduce(x, lowest, lax.max, windows)
    elements = _elements(x, windows, lowest)
    if not indexed:
        return jnp.max(elements, -1)
    chosen = jnp.argmax(elements, -1, keepdims=True)
    positions = jnp.broadcast_to(windows.positions(x.shape[2:], bool(storage_order)), elements.shape)
    inside = jnp.take_along_axis(positions, chosen, -1)[..., 0]
    channel = jnp.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * (x.ndim - 2))
    values = jnp.take_along_axis(elements, chosen, -1)[..., 0]
    return values, (channel * prod(x.shape[2:]) + inside).astype(jnp.int64)


@operator("AveragePool")
def _average_pool(x: Array, *, node: OperatorNode, count_include_pad: int) -> Array:
    windows = Window.of(node).over(x.shape[2:])
    total = _reduce(_wide(x), np.array(0, _wide(x).dtype), lax.add, windows)
    counts = counts_of(windows, x.shape[2:], bool(count_include_pad))
    return (total / jnp.asarray(counts, total.dtype)).astype(x.dtype)


@operator("LpPool")
def _lp_pool(x: Array, *, node: OperatorNode, p: int) -> Array:
    powers = jnp.abs(_wide(x)) ** p
    total = _reduce(powers, np.array(0, powers.dtype), lax.add, Window.of(node).over(x.shape[2:]))
    return (total ** (1 / p)).astype(x.dtype)


table(
    GlobalAveragePool=lambda x: jnp.mean(x, _spatial(x), keepdims=True),
    GlobalMaxPool=lambda x: jnp.max(x, _spatial(x), keepdims=True),
)


@operator("GlobalLpPool")
def _global_lp_pool(x: Array, *, p: int) -> Array:
    return (jnp.sum(jnp.abs(_wide(x)) ** p, _spatial(x), keepdims=True) ** (1 / p)).astype(x.dtype)


@operator("MaxUnpool")
def _max_unpool(x: Array, indices: Array, shape: Host | None = None, *, node: OperatorNode) -> Array:
    """Values written to their positions in the pool's input; a larger requested shape is zero-padded at the end."""
    inner = Window.of(node).pooled(x.shape[2:])
    size = prod(x.shape[:2]) * prod(inner)
    flat = jnp.zeros(size, x.dtype).at[indices.reshape(-1)].set(x.reshape(-1))
    full = flat.reshape(*x.shape[:2], *inner)
    if shape is None:
        return full
    wanted = [int(each) for each in shape]
    zero = jnp.zeros((), x.dtype)
    return lax.pad(full, zero, [(0, want - have, 0) for want, have in zip(wanted, full.shape, strict=True)])


# NonMaxSuppression: the best boxes that do not overlap too much.
# Overlaps of all pairs are computed at once. The selection is sequential, for all batches and classes together. Only
# the number of remaining boxes is read from the device.


def _corners(boxes: Array, centred: bool) -> tuple[Array, Array]:
    """Lower and upper corners, (boxes, 2) each, from any two opposite corners or centre and size."""
    first, second = boxes[:, :2], boxes[:, 2:]
    if centred:
        return first - second / 2, first + second / 2
    return jnp.minimum(first, second), jnp.maximum(first, second)


def _overlaps(boxes: Array, centred: bool) -> Array:
    """Intersection over union of each pair."""
    low, high = _corners(boxes, centred)
    shared = jnp.maximum(jnp.minimum(high[:, None], high) - jnp.maximum(low[:, None], low), 0).prod(-1)
    area = (high - low).prod(-1)
    union = area[:, None] + area - shared
    return jnp.where(shared > 0, shared / jnp.where(union > 0, union, 1), 0)


@maker("NonMaxSuppression", eager=True)
def _non_max_suppression(node: OperatorNode) -> Function:
    centred = bool(node["center_point_box"])

    @jax.jit
    def choose(boxes: Array, scores: Array, most: int, overlap: float, least: float) -> tuple[Array, ...]:
        """Per batch and class: the boxes by decreasing score, and which of them remain."""
        pairs = jax.vmap(lambda each: _overlaps(each, centred))(boxes)
        order = jnp.argsort(-scores, axis=-1, stable=True)

        def walk(pair: Array, score: Array, ranked: Array) -> Array:
            ordered = pair[ranked][:, ranked] > overlap
            allowed = score[ranked] > least

            def step(at: Array, kept: Array) -> Array:
                free = allowed[at] & ~jnp.any(kept & ordered[at]) & (jnp.sum(kept) < most)
                return kept.at[at].set(free)

            return lax.fori_loop(0, ranked.shape[0], step, jnp.zeros(ranked.shape[0], bool))

        by_class = jax.vmap(walk, (None, 0, 0))
        return order, jax.vmap(by_class)(pairs, scores, order)

    def non_max_suppression(
        boxes: Array, scores: Array, most: Host | None = None, overlap: Host | None = None, least: Host | None = None
    ) -> Array:
        limit = 0 if most is None or not most.size else max(int(most.item()), 0)
        threshold = 0.0 if overlap is None or not overlap.size else float(overlap.item())
        lowest = -jnp.inf if least is None or not least.size else float(least.item())
        order, kept = choose(boxes, scores, limit, threshold, lowest)
        batch, label, rank = jnp.nonzero(kept)
        return jnp.stack([batch, label, order[batch, label, rank]], 1).astype(jnp.int64)

    return non_max_suppression
