"""Operators of sliding windows: convolutions of all kinds and pools, with ONNX's rules of padding.

Every rule (``auto_pad``, ``ceil_mode``) ends in one number of elements before and one behind each axis, which may be
negative; XLA takes exactly these.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from levelbench.frameworks.jax.arrays import DType
from levelbench.frameworks.jax.operators.quantization import requantise, shifted
from levelbench.frameworks.jax.operators.registry import PRECISION, Function, operator, table
from levelbench.frameworks.shared.operators import Host
from levelbench.frameworks.shared.windows import Window, Windows, counts_of
from levelbench.operators.node import OperatorNode


def _pads(windows: Windows, sizes: Sequence[int]) -> list[tuple[int, int]]:
    """The border before and behind each axis, with what the last window reaches out beyond it."""
    needed = windows.needed(sizes)
    return [(before, max(behind, given)) for (before, behind), given in zip(needed, windows.after, strict=True)]


# Convolutions of any number of spatial axes: Conv, ConvTranspose, the quantised ones, the causal one, Col2Im.
# All are XLA's one general convolution. A transposed one is that of an input spread by its strides with the kernel
# turned round.


def _convolve(node: OperatorNode, x: Array, weight: Array) -> Array:
    """(N, C, spatial...) and (M, C / group, kernel...) to (N, M, spatial...)."""
    windows = Window.of(node).over(x.shape[2:], weight.shape[2:])
    return lax.conv_general_dilated(
        x,
        weight,
        windows.strides,
        _pads(windows, x.shape[2:]),
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
    return requantise(y, scale, y_zero.reshape(()), y_zero.dtype)


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
    """A depthwise convolution along time that begins with the end of what came before."""
    gated = activation in {"silu", "swish"}
    channels, size = x.shape[1], weight.shape[2]
    before = jnp.zeros((*x.shape[:2], size - 1), x.dtype) if past is None else past
    padded = jnp.concatenate([before, x], 2)
    y = lax.conv_general_dilated(padded, weight, (1,), [(0, 0)], feature_group_count=channels, precision=PRECISION)
    y = y if bias is None else y + _by_channel(bias, 3)
    return jax.nn.silu(y) if gated else y, padded[:, :, padded.shape[2] - (size - 1) :]


@operator("Col2Im")
def _col2im(columns: Array, image: Host, block: Host, *, node: OperatorNode) -> Array:
    """Blocks added up where they overlap: the transpose of cutting an image into blocks."""
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
    pads = _pads(windows, spatial)
    padded = [length + sum(each) for each, length in zip(pads, spatial, strict=True)]
    full = jnp.zeros((n, channels, *padded), columns.dtype).at[(slice(None), slice(None), *where)].add(blocks)
    inner = [slice(before, before + length) for before, length in zip(windows.before, spatial, strict=True)]
    return full[(slice(None), slice(None), *inner)]


# Pools of any number of spatial axes: the largest, the mean, the p-norm, over windows or the whole, and MaxUnpool.
# XLA's ``reduce_window`` is the pool; how many elements a mean divides by is known from the shape alone.


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
        ((0, 0), (0, 0), *_pads(windows, x.shape[2:])),
        window_dilation=(1, 1, *windows.dilations),
    )


def _lowest(dtype: DType) -> Array:
    value = -np.inf if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo(dtype).min
    return np.array(value, dtype)


def _elements(x: Array, windows: Windows, fill: Array) -> Array:
    """(N, C, outputs..., kernel elements): the windows laid out, for what ``reduce_window`` cannot derive."""
    padded = lax.pad(
        x, jnp.asarray(fill), [(0, 0, 0), (0, 0, 0), *((*each, 0) for each in _pads(windows, x.shape[2:]))]
    )
    count = x.ndim - 2
    where = []
    for axis in range(count):
        shape = [1] * (2 * count)
        shape[axis], shape[count + axis] = windows.out[axis], windows.kernel[axis]
        where.append((windows.places(axis) + windows.before[axis]).reshape(shape))
    found = padded[(slice(None), slice(None), *where)]
    return found.reshape(*found.shape[: 2 + count], -1)


def _positions(shape: tuple[int, ...], windows: Windows, column_major: bool) -> Array:
    """(outputs..., kernel elements): where in its channel an element lies, along rows or along columns."""
    count = len(windows.kernel)
    steps = [1] * count
    for axis in range(1, count) if column_major else range(count - 2, -1, -1):
        steps[axis] = steps[axis - 1] * shape[axis - 1] if column_major else steps[axis + 1] * shape[axis + 1]
    total: Any = 0
    for axis in range(count):
        spread = [1] * (2 * count)
        spread[axis], spread[count + axis] = windows.out[axis], windows.kernel[axis]
        total = total + (windows.places(axis) * steps[axis]).reshape(spread)
    return total.reshape(*windows.out, -1)


@operator("MaxPool")
def _max_pool(x: Array, *, node: OperatorNode, storage_order: int = 0) -> Array | tuple[Array, ...]:
    indexed = len(node.outputs) > 1 and bool(node.outputs[1])
    windows = Window.of(node).over(x.shape[2:])
    lowest = _lowest(x.dtype)
    if not indexed and set(windows.dilations) == {1}:
        return _reduce(x, lowest, lax.max, windows)
    elements = _elements(x, windows, lowest)
    if not indexed:
        return jnp.max(elements, -1)
    chosen = jnp.argmax(elements, -1, keepdims=True)
    positions = jnp.broadcast_to(_positions(x.shape[2:], windows, bool(storage_order)), elements.shape)
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
    {
        "GlobalAveragePool": lambda x: jnp.mean(x, _spatial(x), keepdims=True),
        "GlobalMaxPool": lambda x: jnp.max(x, _spatial(x), keepdims=True),
    }
)


@operator("GlobalLpPool")
def _global_lp_pool(x: Array, *, p: int) -> Array:
    return (jnp.sum(jnp.abs(_wide(x)) ** p, _spatial(x), keepdims=True) ** (1 / p)).astype(x.dtype)


@operator("MaxUnpool")
def _max_unpool(x: Array, indices: Array, shape: Host | None = None, *, node: OperatorNode) -> Array:
    """Values put back to their positions in the pool's input; a larger shape that is asked for has zeros behind."""
    inner = Window.of(node).pooled(x.shape[2:])
    size = prod(x.shape[:2]) * prod(inner)
    flat = jnp.zeros(size, x.dtype).at[indices.reshape(-1)].set(x.reshape(-1))
    full = flat.reshape(*x.shape[:2], *inner)
    if shape is None:
        return full
    wanted = [int(each) for each in shape]
    zero = jnp.zeros((), x.dtype)
    return lax.pad(full, zero, [(0, want - have, 0) for want, have in zip(wanted, full.shape, strict=True)])
