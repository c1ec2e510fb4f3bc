"""Conv and ConvTranspose of any number of spatial axes as matrix products, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from levelbench.errors import UnsupportedError
from levelbench.frameworks.numpy.operators.kernel import (
    Array,
    Arrays,
    Differentiated,
    Inputs,
    Kernel,
    Wanted,
    cast_like,
    is_real,
    lift,
    lower,
    quiet,
    register,
)
from levelbench.frameworks.shared.windows import Window, Windows
from levelbench.operators.node import OperatorNode


def _view(windows: Windows, padded: Array) -> Array:
    """All windows of ``padded`` (batch, channels, spatial axes) as (batch, channels, kernel axes, out axes)."""
    steps = padded.strides[2:]
    inner = tuple(step * d for step, d in zip(steps, windows.dilations, strict=True))
    outer = tuple(step * s for step, s in zip(steps, windows.strides, strict=True))
    shape = (*padded.shape[:2], *windows.kernel, *windows.out)
    return as_strided(padded, shape, (*padded.strides[:2], *inner, *outer), writeable=False)


def pad(x: Array, before: Sequence[int], after: Sequence[int], value: float = 0) -> Array:
    """``x`` (batch, channels, spatial axes) padded with ``value``; ``x`` itself, contiguous, without padding."""
    if not any(before) and not any(after):
        return np.ascontiguousarray(x)
    sizes = tuple(b + n + a for b, n, a in zip(before, x.shape[2:], after, strict=True))
    shape = (*x.shape[:2], *sizes)
    padded = np.zeros(shape, x.dtype) if value == 0 else np.full(shape, value, x.dtype)
    crop(padded, before, x.shape[2:])[...] = x
    return padded


def crop(padded: Array, before: Sequence[int], spatial: Sequence[int]) -> Array:
    """The array without its padding: the inverse of :func:`pad`."""
    inside: Any = (..., *(slice(b, b + n) for b, n in zip(before, spatial, strict=True)))
    found: Array = padded[inside]
    return found


# The three products behind Conv and ConvTranspose: a correlation, and its gradients by the input and the weight.
# Windows are copied next to each other (im2col) for a few images at a time, so that the copies stay in the cache, and
# one matrix product per group does the arithmetic. This is slow for depthwise convolutions: their products are vectors
# times matrices, bound by the copies, and take about four times as long as PyTorch's.


_BLOCK = 1 << 18
"""Elements of the copied windows per block: about 1 MiB of float32, which fits the caches of a core."""

_WIDE = 4
"""With more than this many times as many outputs as inputs, adding up windows of the input is cheaper than copying
windows of the gradient."""


class _Block(NamedTuple):
    """The images and rows (positions on the first spatial axis) of the output that are computed at once."""

    images: slice
    rows: slice
    shape: tuple[int, ...]


def correlate(
    x: Array, weight: Array, windows: Windows, group: int, bias: Array | None = None, kept: list[Array] | None = None
) -> Array:
    """Conv: x (N, C, spatial axes), weight (M, C / group, kernel), bias (M) to (N, M, ``windows.out``).

    If all windows fit one block, they are added to ``kept``, so that :func:`weight_gradient` can reuse them.
    """
    if _is_pointwise(windows):
        return _pointwise(x, _matrix(weight, group), bias)
    padded = pad(x, windows.before, windows.after)
    result = np.empty((len(x), len(weight), *windows.out), x.dtype)
    fits = x.shape[1] * prod(windows.kernel) * len(x) * prod(windows.out) <= _BLOCK
    if _pays_by_rows(weight, windows, group) and not (fits and kept is not None):
        products = _by_rows(padded, weight, windows, group)
    else:
        products = _by_windows(padded, weight, windows, group, kept if fits else None)
    column = None if bias is None else bias.reshape(-1, *(1,) * len(windows.out))
    for block, found in products:
        target = result[block.images, :, block.rows]
        np.copyto(target, found) if column is None else np.add(found, column, out=target)
    return result


def _by_windows(
    padded: Array, weight: Array, windows: Windows, group: int, kept: list[Array] | None
) -> Iterator[tuple[_Block, Array]]:
    """Each block of the output (images, outputs, rows), as one product with the whole windows."""
    matrix = _matrix(weight, group)
    for block, columns in _columns(padded, windows, group):
        yield block, np.matmul(matrix, columns).reshape(len(weight), *block.shape).swapaxes(0, 1)
        if kept is not None:
            kept.append(columns)


def _pays_by_rows(weight: Array, windows: Windows, group: int) -> bool:
    """Whether adding up the outputs costs less than the copies of windows that it saves."""
    saved = group * weight.shape[1] * prod(windows.kernel[1:])
    return windows.strides[0] == 1 and windows.kernel[0] > 1 and len(weight) <= saved


def _by_rows(padded: Array, weight: Array, windows: Windows, group: int) -> Iterator[tuple[_Block, Array]]:
    """Like :func:`_by_windows`, for a first stride of 1: the sum of one product per kernel row.

    Windows are copied only along the other axes; the rows that a kernel row covers are a slice of the copy.
    """
    outputs = len(weight)
    channels, inner, reach = padded.shape[1], prod(windows.out[1:]), windows.reach[0]
    elements = channels * prod(windows.kernel[1:])
    matrices = [_matrix(np.ascontiguousarray(weight[:, :, at]), group) for at in range(windows.kernel[0])]
    sizes = (windows.out[0] + reach - 1, *windows.out[1:])
    view = _view(replace(windows, kernel=(1, *windows.kernel[1:]), out=sizes), padded)[:, :, 0]
    spread = (slice(None),) * (len(windows.out) - 1)
    for block in _blocks(len(padded), elements, windows.out):
        images, rows, *_ = block.shape
        seen: Any = (block.images, slice(None), *spread, slice(block.rows.start, block.rows.stop + reach - 1))
        columns = np.ascontiguousarray(view[seen]).reshape(images, group, elements // group, -1)
        total: Any = 0
        for at, matrix in enumerate(matrices):
            start = at * windows.dilations[0] * inner
            product = np.matmul(matrix, columns[..., start : start + rows * inner])
            total = product if at == 0 else np.add(total, product, out=total)
        yield block, total.reshape(images, outputs, *block.shape[1:])


def input_gradient(g: Array, weight: Array, windows: Windows, group: int, spatial: tuple[int, ...]) -> Array:
    """The gradient (N, C, ``spatial``) of the input, given the output's, (N, M, ``windows.out``).

    ConvTranspose computes the same.
    """
    channels = group * weight.shape[1]
    if _is_pointwise(windows):
        return _pointwise(g, _matrix(weight, group).swapaxes(1, 2), None)
    mirrored = _mirrored(windows, spatial) if g.shape[1] <= _WIDE * channels else None
    if mirrored is not None:
        return correlate(g, _turned(weight, group), mirrored, group)
    matrix = np.ascontiguousarray(_matrix(weight, group).swapaxes(1, 2))
    sizes = (b + n + a for b, n, a in zip(windows.before, spatial, windows.after, strict=True))
    padded = np.zeros((len(g), channels, *sizes), g.dtype)
    for block in _blocks(len(g), channels * prod(windows.kernel), windows.out):
        rows = _rows(g, block, group)
        spread = np.matmul(matrix, rows).reshape(channels, *windows.kernel, *block.shape)
        first = replace(windows, out=block.shape[1:])
        part = padded[block.images, :, block.rows.start * windows.strides[0] :]
        for tap, where in first.taps():
            seen: Any = (slice(None), slice(None), *where)
            at: Any = (slice(None), *tap)
            part[seen] += spread[at].swapaxes(0, 1)
    return crop(padded, windows.before, spatial)


def weight_gradient(x: Array, g: Array, windows: Windows, group: int, kept: Sequence[Array] = ()) -> Array:
    """The gradient (M, C / group, kernel) of the weight, given the output's."""
    outputs, inputs = g.shape[1], x.shape[1] // group
    if kept:
        whole = _Block(slice(None), slice(None), (len(g), *windows.out))
        return np.matmul(_rows(g, whole, group), kept[0].swapaxes(1, 2)).reshape(outputs, inputs, *windows.kernel)
    total = np.zeros((group, outputs // group, inputs * prod(windows.kernel)), g.dtype)
    for block, columns in _columns(pad(x, windows.before, windows.after), windows, group):
        total += np.matmul(_rows(g, block, group), columns.swapaxes(1, 2))
    return total.reshape(outputs, inputs, *windows.kernel)


def _matrix(weight: Array, group: int) -> Array:
    return weight.reshape(group, len(weight) // group, -1)


def _turned(weight: Array, group: int) -> Array:
    """The weight for the input gradient at stride 1: mirrored in space, inputs and outputs swapped."""
    outputs, inputs, *kernel = weight.shape
    turned = weight.reshape(group, outputs // group, inputs, *kernel).swapaxes(1, 2)
    mirror: Any = (..., *(slice(None, None, -1) for _ in kernel))
    return np.ascontiguousarray(turned[mirror]).reshape(group * inputs, outputs // group, *kernel)


def _is_pointwise(windows: Windows) -> bool:
    return not windows.is_padded and all(each == 1 for each in (*windows.kernel, *windows.strides))


def _pointwise(x: Array, matrix: Array, bias: Array | None) -> Array:
    """A 1x1 kernel: one product per image, without copies of windows."""
    group, outputs, inputs = matrix.shape
    images = np.ascontiguousarray(x).reshape(len(x), group, inputs, prod(x.shape[2:]))
    result = np.matmul(matrix, images).reshape(len(x), group * outputs, *x.shape[2:])
    if bias is not None:
        result += bias.reshape(-1, *(1,) * (x.ndim - 2))
    return result


def _mirrored(windows: Windows, spatial: tuple[int, ...]) -> Windows | None:
    """The windows on the output's gradient; ``None`` with a stride above 1 or padding wider than the kernel."""
    before = tuple(reach - 1 - b for reach, b in zip(windows.reach, windows.before, strict=True))
    sizes = zip(spatial, windows.out, before, windows.reach, strict=True)
    after = tuple(n - out - b + reach - 1 for n, out, b, reach in sizes)
    if any(each != 1 for each in windows.strides) or min(*before, *after) < 0:
        return None
    return replace(windows, before=before, after=after, out=spatial)


def _blocks(batch: int, height: int, out: tuple[int, ...]) -> Iterator[_Block]:
    """Covers all images and rows with blocks of about ``_BLOCK`` elements, for ``height`` elements per window."""
    row = max(height * prod(out[1:]), 1)
    rows = min(max(_BLOCK // row, 1), max(out[0], 1))
    images = max(_BLOCK // (row * max(out[0], 1)), 1)
    for start in range(0, batch, images):
        stop = min(start + images, batch)
        for top in range(0, out[0], rows):
            bottom = min(top + rows, out[0])
            yield _Block(slice(start, stop), slice(top, bottom), (stop - start, bottom - top, *out[1:]))


def _columns(padded: Array, windows: Windows, group: int) -> Iterator[tuple[_Block, Array]]:
    """The windows of each block as (group, elements per window, windows); the memory is reused."""
    view = _view(windows, padded)
    channels, rank = padded.shape[1], len(windows.out)
    elements = channels * prod(windows.kernel)
    # (images, channels, kernel, out) to (channels, kernel, images, out): the order of the product.
    order = (*range(1, 2 + rank), 0, *range(2 + rank, 2 + 2 * rank))
    memory: Array | None = None
    for block in _blocks(len(padded), elements, windows.out):
        size = elements * prod(block.shape)
        if memory is None or memory.size < size:
            memory = np.empty(size, padded.dtype)
        columns = memory[:size].reshape(channels, *windows.kernel, *block.shape)
        part = (block.images, slice(None), *(slice(None),) * rank, block.rows)
        np.copyto(columns, view[part].transpose(order))
        yield block, columns.reshape(group, elements // group, -1)


def _rows(g: Array, block: _Block, group: int) -> Array:
    """The block of a gradient as (group, channels per group, windows)."""
    part = g[block.images, :, block.rows].swapaxes(0, 1)
    return np.ascontiguousarray(part).reshape(group, g.shape[1] // group, -1)


# Conv and ConvTranspose: each is the other's input gradient, so both use the same three products.


@register("Conv")
def _conv(node: OperatorNode) -> Kernel:
    """y[n, m] = bias[m] + the sum over channels of the windows of x[n] times weight[m]."""
    window, group = Window.of(node), int(node["group"])

    def forward(x: Array, weight: Array, bias: Array | None = None, kept: list[Array] | None = None) -> Array:
        _need_real(node, x)
        with quiet():
            windows = window.over(x.shape[2:], weight.shape[2:])
            found = correlate(lift(x), lift(weight), windows, group, None if bias is None else lift(bias), kept)
            return lower(found, x.dtype)

    def vjp(*inputs: Array, wanted: Wanted = None) -> Differentiated:
        want = wanted or (True,) * len(inputs)
        kept: list[Array] = []
        y = forward(inputs[0], inputs[1], inputs[2] if len(inputs) > 2 else None, kept)

        def pullback(gradient: Array | None) -> Arrays:
            if gradient is None:
                return (None,) * len(inputs)
            x, weight, g = lift(inputs[0]), lift(inputs[1]), lift(gradient)
            windows = window.over(x.shape[2:], weight.shape[2:])
            with quiet():
                by_x = input_gradient(g, weight, windows, group, x.shape[2:]) if want[0] else None
                by_weight = weight_gradient(x, g, windows, group, kept) if want[1] else None
                return _answer(inputs, (by_x, by_weight), g)

        return (y,), pullback

    return Kernel(forward, vjp=vjp, selective=True)


@register("ConvTranspose")
def _conv_transpose(node: OperatorNode) -> Kernel:
    """The input gradient of a Conv; the weight is (C, M / group, kernel)."""
    group = int(node["group"])

    def forward(x: Array, weight: Array, bias: Array | None = None) -> Array:
        _need_real(node, x)
        windows, spatial = _transposed(node, x.shape[2:], weight.shape[2:])
        with quiet():
            found = input_gradient(lift(x), lift(weight), windows, group, spatial)
            if bias is not None:
                found = found + lift(bias).reshape(-1, *(1,) * len(spatial))
            return lower(found, x.dtype)

    def backward(gradients: Inputs, inputs: Inputs, outputs: Inputs, wanted: Wanted = None) -> Arrays:
        if gradients[0] is None:
            return (None,) * len(inputs)
        x, weight, g = lift(inputs[0]), lift(inputs[1]), lift(gradients[0])
        windows, _ = _transposed(node, x.shape[2:], weight.shape[2:])
        want = wanted or (True,) * len(inputs)
        with quiet():
            by_x = correlate(g, weight, windows, group) if want[0] else None
            by_weight = weight_gradient(g, x, windows, group) if want[1] else None
            return _answer(inputs, (by_x, by_weight), g)

    return Kernel(forward, backward, selective=True)


def _answer(inputs: Inputs, found: tuple[Array | None, ...], g: Array) -> Arrays:
    """The gradients of x and weight in their dtypes, and of the bias if there is one."""
    answer = [None if each is None else cast_like(each, like) for each, like in zip(found, inputs, strict=False)]
    if len(inputs) > 2:
        bias = inputs[2]
        answer.append(None if bias is None else cast_like(g.sum(axis=(0, *range(2, g.ndim))), bias))
    return tuple(answer)


def _need_real(node: OperatorNode, x: Array) -> None:
    if not is_real(x):
        raise UnsupportedError(f"{node.title} of {x.dtype} on numpy", "it takes floating-point types", "cast the input")


def _transposed(node: OperatorNode, spatial: Sequence[int], kernel: Sequence[int]) -> tuple[Windows, tuple[int, ...]]:
    """The windows of the corresponding Conv, and the sizes of its input, which is our output."""
    window = Window.of(node).filled(len(spatial), kernel)
    lost = window.lost(spatial, node.get("output_padding"), node.get("output_shape"))
    sizes = tuple(
        window.strides[axis] * (n - 1) + window.extent(axis) - sum(lost[axis]) for axis, n in enumerate(spatial)
    )
    for size, (first, _) in zip(sizes, lost, strict=True):
        if first < 0:
            reason = f"the output size {size} exceeds what the windows cover, at both ends"
            raise UnsupportedError(f"{node.title} on numpy", reason, "give output_padding instead")
    before, after = zip(*lost, strict=True)
    # Elements that no window reaches need no padding.
    after = tuple(max(each, 0) for each in after)
    return Windows(window.kernel, window.strides, window.dilations, before, after, tuple(spatial)), sizes
