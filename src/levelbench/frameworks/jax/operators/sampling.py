"""Values between the elements of an image: GridSample, DeformConv, RoiAlign.

The one idea: a point between elements is a weighted sum over its neighbours along each axis; a tap is one neighbour,
its weight, and whether it lies in the image at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from levelbench.frameworks.jax.operators.linear import PRECISION
from levelbench.frameworks.jax.operators.registry import Function, maker, refuse
from levelbench.frameworks.jax.operators.windows import windows_of
from levelbench.operators.node import OperatorNode

__all__: list[str] = []


class _Tap(NamedTuple):
    """A neighbour along one axis, of shape (batch, points): its position as a number, its weight."""

    place: Any
    weight: Any


def _combine(x: Any, taps: Sequence[Sequence[_Tap]]) -> list[Any]:
    """(batch, channels, points) for every choice of one tap an axis: value times weight, zero outside the image."""
    spatial = x.shape[2:]
    flat = x.reshape(*x.shape[:2], -1)
    found = []
    for choice in product(*taps):
        index: Any = 0
        weight: Any = 1
        for tap, length in zip(choice, spatial, strict=True):
            inside = (tap.place >= 0) & (tap.place < length)
            index = index * length + jnp.clip(tap.place, 0, length - 1).astype(jnp.int64)
            weight = weight * jnp.where(inside, tap.weight, 0)
        values = jnp.take_along_axis(flat, index[:, None], 2)
        found.append(values * weight[:, None].astype(x.dtype))
    return found


def _linear_taps(place: Any) -> list[_Tap]:
    low = jnp.floor(place)
    share = place - low
    return [_Tap(low, 1 - share), _Tap(low + 1, share)]


def _cubic_taps(place: Any) -> list[_Tap]:
    """Keys' cubic convolution with a = -0.75, as ONNX and PyTorch have it."""
    low, a = jnp.floor(place), -0.75
    taps = []
    for step in range(-1, 3):
        distance = jnp.abs(place - low - step)
        if step in (0, 1):
            weight = ((a + 2) * distance - (a + 3)) * distance**2 + 1
        else:
            weight = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        taps.append(_Tap(low + step, weight))
    return taps


def _inside(place: Any, length: int, padding: str, corners: bool) -> Any:
    """The position that stands for one outside the image."""
    if padding == "border":
        return jnp.clip(place, 0, length - 1)
    if padding == "reflection":
        low, high = (0.0, length - 1.0) if corners else (-0.5, length - 0.5)
        span = high - low
        if span == 0:
            return jnp.zeros_like(place)
        folded = jnp.abs(place - low) % (2 * span)
        return jnp.clip(jnp.where(folded > span, 2 * span - folded, folded) + low, 0, length - 1)
    return place


@maker("GridSample")
def _grid_sample(node: OperatorNode) -> Function:
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(node["mode"], node["mode"])
    padding, corners = node["padding_mode"], bool(node["align_corners"])
    if mode not in {"linear", "nearest", "cubic"} or padding not in {"zeros", "border", "reflection"}:
        raise refuse(node, f"there is no mode {mode!r} with padding {padding!r}")

    def taps(place: Any, length: int) -> list[_Tap]:
        if mode == "cubic":
            # ONNX's reference and ONNX Runtime move a point that lies beyond the edges of the outer pixels to their
            # centres before they look for its neighbours; PyTorch does not.
            edge = 0.0 if corners else 0.5
            beyond = (place < -edge) | (place > length - 1 + edge)
            start = jnp.where(beyond & (padding == "border"), jnp.clip(place, 0, length - 1), place)
            return [_Tap(_inside(tap.place, length, padding, corners), tap.weight) for tap in _cubic_taps(start)]
        inner = _inside(place, length, padding, corners)
        return [_Tap(jnp.round(inner), jnp.ones_like(inner))] if mode == "nearest" else _linear_taps(inner)

    def grid_sample(x: Any, grid: Any) -> Any:
        spatial = x.shape[2:]
        points = grid.reshape(grid.shape[0], -1, grid.shape[-1])
        axes = []
        for axis, length in enumerate(spatial):
            # The grid names the last axis first, in [-1, 1] from edge to edge.
            at = points[..., len(spatial) - 1 - axis]
            place = (at + 1) / 2 * (length - 1) if corners else ((at + 1) * length - 1) / 2
            axes.append(taps(place, length))
        parts = _combine(x, axes)
        return sum(parts[1:], parts[0]).reshape(*x.shape[:2], *grid.shape[1:-1]).astype(x.dtype)

    return grid_sample


@maker("DeformConv")
def _deform_conv(node: OperatorNode) -> Function:
    """A convolution whose elements each look where an offset sends them (Dai et al. 2017, Zhu et al. 2019)."""
    group, offset_group = int(node["group"]), int(node["offset_group"])

    def deform_conv(x: Any, weight: Any, offset: Any, bias: Any = None, mask: Any = None) -> Any:
        if x.ndim != 4:
            raise refuse(node, "this adapter has it for two spatial axes")
        n, channels = x.shape[:2]
        windows = windows_of(node, x.shape[2:], weight.shape[2:])
        (kh, kw), (oh, ow) = windows.kernel, windows.outputs
        moved = offset.reshape(n * offset_group, kh, kw, 2, oh, ow)
        rows = windows.places(0).T.reshape(1, kh, 1, oh, 1) + moved[:, :, :, 0]
        columns = windows.places(1).T.reshape(1, 1, kw, 1, ow) + moved[:, :, :, 1]
        points = [_linear_taps(each.reshape(n * offset_group, -1)) for each in (rows, columns)]
        parts = _combine(x.reshape(n * offset_group, -1, *x.shape[2:]), points)
        seen = sum(parts[1:], parts[0]).reshape(n, offset_group, -1, kh * kw, oh * ow)
        if mask is not None:
            seen = seen * mask.reshape(n, offset_group, 1, kh * kw, oh * ow)
        seen = seen.reshape(n, group, channels // group, kh * kw, oh * ow)
        kernels = weight.reshape(group, -1, channels // group, kh * kw)
        y = jnp.einsum("ngckp,gmck->ngmp", seen, kernels, precision=PRECISION).reshape(n, -1, oh, ow)
        return y if bias is None else y + bias.reshape(1, -1, 1, 1)

    return deform_conv


class _Bins(NamedTuple):
    """Along one axis of every region: positions (regions, bins, samples), and how many samples count."""

    places: Any
    counted: Any
    number: Any


def _bins(start: Any, end: Any, bins: int, samples: int, half_pixel: bool, most: int) -> _Bins:
    size = end - start if half_pixel else jnp.maximum(end - start, 1)
    number = jnp.full(size.shape, samples) if samples else jnp.ceil(size / bins).astype(jnp.int64)
    step = jnp.arange(most)
    share = (step + 0.5) / jnp.maximum(number, 1)[:, None]
    places = start[:, None, None] + (jnp.arange(bins)[:, None] + share[:, None]) * (size / bins)[:, None, None]
    return _Bins(places, step < number[:, None], number)


def _edge_taps(place: Any, length: int) -> list[_Tap]:
    """Up to one element outside counts as the edge, further away as nothing."""
    far = (place < -1) | (place > length)
    inner = jnp.clip(place, 0, length - 1)
    low = jnp.minimum(jnp.floor(inner), length - 1)
    share = inner - low
    return [
        _Tap(low, jnp.where(far, 0, 1 - share)),
        _Tap(jnp.minimum(low + 1, length - 1), jnp.where(far, 0, share)),
    ]


def _adaptive(node: OperatorNode) -> bool:
    return int(node["sampling_ratio"]) == 0


@maker("RoiAlign", eager=_adaptive)
def _roi_align(node: OperatorNode) -> Function:
    """Bins of a region, each the mean or the largest of its samples; how many, a region's size may say."""
    bins = int(node["output_height"]), int(node["output_width"])
    samples, scale = int(node["sampling_ratio"]), float(node["spatial_scale"])
    half_pixel = node.get("coordinate_transformation_mode", "output_half_pixel") == "half_pixel"
    largest = node["mode"] == "max"

    def roi_align(x: Any, rois: Any, batch: Any) -> Any:
        corners = rois * scale - (0.5 if half_pixel else 0.0)
        axes = []
        for axis, (first, last) in enumerate(((1, 3), (0, 2))):
            most = samples
            if not samples:
                size = float(jnp.max(corners[:, last] - corners[:, first], initial=0 if half_pixel else 1))
                most = max(int(np.ceil(size / bins[axis])), 1)
            axes.append(_bins(corners[:, first], corners[:, last], bins[axis], samples, half_pixel, most))
        rows, columns = axes
        count, (high, wide) = rois.shape[0], (rows.places.shape[2], columns.places.shape[2])
        shape = (count, bins[0], bins[1], high, wide)
        y = jnp.broadcast_to(rows.places[:, :, None, :, None], shape).reshape(count, -1)
        z = jnp.broadcast_to(columns.places[:, None, :, None, :], shape).reshape(count, -1)
        parts = _combine(x[batch], [_edge_taps(y, x.shape[2]), _edge_taps(z, x.shape[3])])
        counted = (rows.counted[:, :, None] & columns.counted[:, None])[:, None, None, None]
        if largest:
            # ONNX takes the largest of the weighted neighbours, not of their sums.
            values = jnp.stack(parts).max(0).reshape(count, -1, *shape[1:])
            return jnp.max(jnp.where(counted, values, -jnp.inf), (4, 5)).astype(x.dtype)
        values = sum(parts[1:], parts[0]).reshape(count, -1, *shape[1:])
        number = jnp.maximum(rows.number * columns.number, 1).reshape(-1, 1, 1, 1)
        return (jnp.sum(jnp.where(counted, values, 0), (4, 5)) / number).astype(x.dtype)

    return roi_align
