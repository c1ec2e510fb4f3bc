"""Convolutions and pools as pure functions, from a few kernels of a framework.

Every padding rule of ONNX (``auto_pad``, ``ceil_mode``) results in a number of elements before and after each axis,
which may be negative.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from types import ModuleType
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from levelbench.frameworks.shared.functional import Natives, by_channel, root, spatial, wide
from levelbench.frameworks.shared.operators import Host, with_attributes
from levelbench.frameworks.shared.quantisation import Cast, is_integer, requantise, shifted
from levelbench.frameworks.shared.windows import Window, Windows, counts_of
from levelbench.operators.contract import Array, DType, Function
from levelbench.operators.node import OperatorNode

Pool = Callable[[Array, Windows], Array]


class Kernels(NamedTuple):
    """A framework's kernels."""

    natives: Natives
    convolve: Callable[..., Array]
    """(x, weight, bias, strides, pads, dilations, group, spread): (N, C, ...) and (M, C / group, ...) to (N, M, ...);
    between the elements of ``x`` along an axis are ``spread - 1`` zeros. Integers have 32 bits, as has the result."""
    max_pool: Pool
    """Windows without gaps in their kernels; NaN where a window has one."""
    mean_pool: Pool
    """Padding counts as zeros."""
    add_rows: Callable[[Array, Host, int], Array]
    """(rows, places, count) -> ``count`` rows: the sum of those with the same place."""


WINDOWED: dict[str, Function] = {}
"""The functions by operator."""


def windowed(name: str, kernels: Kernels) -> Callable[[OperatorNode], Function]:
    """The maker of an operator's function."""
    natives = kernels.natives
    given = {**natives.library._asdict(), **natives._asdict(), **kernels._asdict()}
    return lambda node: with_attributes(WINDOWED[name], node, given)


def _windowed(name: str) -> Callable[[Function], Function]:
    def register(function: Function) -> Function:
        WINDOWED[name] = function
        return function

    return register


def _convolved(convolve: Function, node: OperatorNode, x: Array, weight: Array, bias: Array | None = None) -> Array:
    sizes = x.shape[2:]
    windows = Window.of(node).over(sizes, weight.shape[2:])
    return convolve(x, weight, bias, windows.strides, windows.padding(sizes), windows.dilations, int(node["group"]))


@_windowed("Conv")
def _conv(x: Array, weight: Array, bias: Array | None = None, *, node: OperatorNode, convolve: Function) -> Array:
    return _convolved(convolve, node, x, weight, bias)


@_windowed("ConvInteger")
def _conv_integer(
    x: Array,
    weight: Array,
    x_zero: Array | None = None,
    weight_zero: Array | None = None,
    *,
    node: OperatorNode,
    convolve: Function,
) -> Array:
    return _convolved(convolve, node, shifted(x, x_zero, 0), shifted(weight, weight_zero, 0))


@_windowed("QLinearConv")
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
    convolve: Function,
    cast: Cast,
    xp: ModuleType,
) -> Array:
    y = _convolved(convolve, node, shifted(x, x_zero, 0), shifted(weight, weight_zero, 0), bias)
    scales = by_channel(weight_scale, y.ndim) if weight_scale.size > 1 else weight_scale.reshape(())
    return requantise(xp, cast, y, x_scale.reshape(()) * scales / y_scale.reshape(()), y_zero.reshape(()))


@_windowed("ConvTranspose")
def _conv_transpose(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    node: OperatorNode,
    group: int,
    convolve: Function,
    xp: ModuleType,
) -> Array:
    """A convolution of the input with zeros between its elements by the turned kernel."""
    shape, sizes = weight.shape, x.shape[2:]
    window = Window.of(node).filled(len(sizes), shape[2:])
    lost = window.lost(sizes, node.get("output_padding"), node.get("output_shape"))
    grouped = weight.reshape((group, shape[0] // group, *shape[1:])).swapaxes(1, 2)
    turned = xp.flip(grouped, axis=tuple(range(3, len(shape) + 1)))
    turned = turned.reshape((group * shape[1], shape[0] // group, *shape[2:]))
    reach = [window.extent(axis) - 1 for axis in range(len(sizes))]
    pads = [(most - before, most - behind) for most, (before, behind) in zip(reach, lost, strict=True)]
    return convolve(x, turned, bias, (1,) * len(sizes), pads, window.dilations, group, window.strides)


@_windowed("Col2Im")
def _col2im(
    columns: Array, image: Host, block: Host, *, node: OperatorNode, add_rows: Function, xp: ModuleType
) -> Array:
    """Adds up overlapping blocks: the transpose of extracting blocks from an image."""
    sizes, kernel = [int(each) for each in image], [int(each) for each in block]
    windows = Window.of(node).over(sizes, kernel)
    count = len(kernel)
    n, channels = columns.shape[0], columns.shape[1] // prod(kernel)
    room = [length + sum(each) for each, length in zip(windows.padding(sizes), sizes, strict=True)]
    where: Any = 0
    for axis in range(count):
        along = [1] * (2 * count)
        along[axis], along[count + axis] = kernel[axis], windows.out[axis]
        where = where * room[axis] + (windows.places(axis).T + windows.before[axis]).reshape(along)
    blocks = xp.permute_dims(columns.reshape((n, channels, -1)), (2, 0, 1))
    full = xp.permute_dims(add_rows(blocks, where.reshape(-1), prod(room)), (1, 2, 0)).reshape((n, channels, *room))
    inner = [slice(before, before + length) for before, length in zip(windows.before, sizes, strict=True)]
    return full[(slice(None), slice(None), *inner)]


# Pools: maximum, mean and p-norm. The divisor of a mean depends only on the shape.


def lowest(dtype: DType) -> Host:
    """The maximum over nothing."""
    return np.array(ml_dtypes.iinfo(dtype).min if is_integer(dtype) else 0 if dtype.kind == "b" else -np.inf, dtype)


def elements_of(natives: Natives, x: Array, windows: Windows, fill: Host | int) -> Array:
    """(N, C, outputs..., kernel elements): the windows, with ``fill`` in the padding."""
    array, take, xp = natives.library.array, natives.library.take, natives.library.xp
    widths = [(0, 0), (0, 0), *windows.padding(x.shape[2:])]
    found, count = natives.pad(x, widths, "constant", array(np.asarray(fill, x.dtype))), x.ndim - 2
    for axis in range(count):
        found = take(found, array(windows.places(axis) + windows.before[axis]), 2 + 2 * axis)
    order = (0, 1, *range(2, 2 + 2 * count, 2), *range(3, 3 + 2 * count, 2))
    return xp.permute_dims(found, order).reshape((*x.shape[:2], *windows.out, prod(windows.kernel)))


@_windowed("MaxPool")
def _max_pool(
    x: Array, *, node: OperatorNode, natives: Natives, max_pool: Pool, storage_order: int = 0
) -> Array | tuple[Array, ...]:
    """The first of equal values has the gradient."""
    xp, array, sizes = natives.library.xp, natives.library.array, x.shape[2:]
    windows = Window.of(node).over(sizes)
    indexed = len(node.outputs) > 1 and bool(node.outputs[1])
    if min(windows.out) <= 0 or (not indexed and set(windows.dilations) == {1}):
        found = max_pool(x, windows)
        return (found, xp.astype(found, xp.int64)) if indexed else found
    elements = elements_of(natives, x, windows, lowest(x.dtype))
    chosen = xp.argmax(elements, axis=-1, keepdims=True)
    values = xp.take_along_axis(elements, chosen, axis=-1)[..., 0]
    if not indexed:
        return values
    positions = xp.broadcast_to(array(windows.positions(sizes, bool(storage_order))), elements.shape)
    inside = xp.take_along_axis(positions, chosen, axis=-1)[..., 0]
    channel = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * len(sizes)) * prod(sizes)
    return values, xp.astype(inside + array(channel), xp.int64)


@_windowed("AveragePool")
def _average_pool(
    x: Array, *, node: OperatorNode, count_include_pad: int, array: Function, mean_pool: Pool, xp: ModuleType
) -> Array:
    windows = Window.of(node).over(x.shape[2:])
    mean = mean_pool(wide(xp, x), windows)
    share = prod(windows.kernel) / counts_of(windows, tuple(x.shape[2:]), bool(count_include_pad))
    return xp.astype(mean if (share == 1).all() else mean * array(share.astype(mean.dtype)), x.dtype)


@_windowed("LpPool")
def _lp_pool(x: Array, *, node: OperatorNode, p: int, absolute: Function, mean_pool: Pool, xp: ModuleType) -> Array:
    windows = Window.of(node).over(x.shape[2:])
    total = mean_pool(absolute(wide(xp, x)) ** p, windows) * prod(windows.kernel)
    return xp.astype(root(xp, total, 1 / p), x.dtype)


@_windowed("GlobalLpPool")
def _global_lp_pool(x: Array, *, p: int, absolute: Function, xp: ModuleType) -> Array:
    total = xp.sum(absolute(wide(xp, x)) ** p, axis=spatial(x), keepdims=True)
    return xp.astype(root(xp, total, 1 / p), x.dtype)
