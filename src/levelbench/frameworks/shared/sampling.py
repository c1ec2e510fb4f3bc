"""GridSample and DeformConv: sampling between the elements of an image, at points that are inputs.

A point is a weighted sum over its neighbours along each axis; a tap is one neighbour with its weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from types import ModuleType
from typing import Any, NamedTuple

from levelbench.errors import UnsupportedError
from levelbench.frameworks.shared.operators import ArrayLibrary, shared_maker
from levelbench.frameworks.shared.windows import Window
from levelbench.operators.contract import Array, Function
from levelbench.operators.node import OperatorNode


class _Tap(NamedTuple):
    """A neighbour along one axis, its position and weight, of shape (batch, points)."""

    place: Any
    weight: Any


def _combined(xp: ModuleType, x: Array, taps: Sequence[Sequence[_Tap]]) -> Array:
    """(batch, channels, points): the sum over the choices of one tap per axis of value times weight; zero outside."""
    spatial = x.shape[2:]
    flat = x.reshape((*x.shape[:2], prod(spatial)))
    found = []
    for choice in product(*taps):
        index: Any = 0
        weight: Any = 1
        within: Any = None
        for tap, length in zip(choice, spatial, strict=True):
            inside = (tap.place >= 0) & (tap.place < length)
            within = inside if within is None else within & inside
            index = index * length + xp.astype(xp.clip(tap.place, 0, length - 1), xp.int64)
            weight = weight * xp.where(inside, tap.weight, 0)
        shape = (*x.shape[:2], index.shape[1])
        values = xp.take_along_axis(flat, xp.broadcast_to(index[:, None], shape), axis=2)
        # Not by the weight of zero alone, which would leave a NaN at the image's edge.
        values = xp.where(within[:, None], values, xp.zeros_like(values))
        found.append(values * xp.astype(weight[:, None], x.dtype))
    return sum(found[1:], found[0])


def _linear_taps(xp: ModuleType, place: Array) -> list[_Tap]:
    low = xp.floor(place)
    share = place - low
    return [_Tap(low, 1 - share), _Tap(low + 1, share)]


def _cubic_taps(xp: ModuleType, place: Array) -> list[_Tap]:
    """Keys' cubic convolution with a = -0.75, as in ONNX and PyTorch."""
    low, a = xp.floor(place), -0.75
    taps = []
    for step in range(-1, 3):
        distance = xp.abs(place - low - step)
        if step in (0, 1):
            weight = ((a + 2) * distance - (a + 3)) * distance**2 + 1
        else:
            weight = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        taps.append(_Tap(low + step, weight))
    return taps


def _inside(xp: ModuleType, place: Array, length: int, padding: str, corners: bool) -> Array:
    """The position in the image that replaces one outside."""
    if padding == "border":
        return xp.clip(place, 0, length - 1)
    if padding == "reflection":
        low, high = (0.0, length - 1.0) if corners else (-0.5, length - 0.5)
        span = high - low
        if span == 0:
            return xp.zeros_like(place)
        folded = xp.abs(place - low) % (2 * span)
        return xp.clip(xp.where(folded > span, 2 * span - folded, folded) + low, 0, length - 1)
    return place


@shared_maker("GridSample")
def grid_sampling(node: OperatorNode, library: ArrayLibrary) -> Function:
    """The values of an image at the points of a grid."""
    xp = library.xp
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(node["mode"], node["mode"])
    padding, corners = node["padding_mode"], bool(node["align_corners"])
    if mode not in {"linear", "nearest", "cubic"} or padding not in {"zeros", "border", "reflection"}:
        raise UnsupportedError(node.title, f"unknown mode {mode!r} or padding {padding!r}", "use one that ONNX lists")

    def taps(place: Array, length: int) -> list[_Tap]:
        if mode == "cubic":
            # ONNX's reference and ONNX Runtime move a point beyond the edges of the outer pixels to their centres
            # before they find its neighbours; PyTorch does not.
            edge = 0.0 if corners else 0.5
            beyond = (place < -edge) | (place > length - 1 + edge)
            start = xp.where(beyond, xp.clip(place, 0, length - 1), place) if padding == "border" else place
            found = _cubic_taps(xp, start)
            return [_Tap(_inside(xp, tap.place, length, padding, corners), tap.weight) for tap in found]
        inner = _inside(xp, place, length, padding, corners)
        return [_Tap(xp.round(inner), xp.ones_like(inner))] if mode == "nearest" else _linear_taps(xp, inner)

    def grid_sample(x: Array, grid: Array) -> Array:
        spatial = x.shape[2:]
        points = grid.reshape((grid.shape[0], prod(grid.shape[1:-1]), grid.shape[-1]))
        axes = []
        for axis, length in enumerate(spatial):
            # The grid has the last axis first, in [-1, 1] from edge to edge.
            at = points[..., len(spatial) - 1 - axis]
            place = (at + 1) / 2 * (length - 1) if corners else ((at + 1) * length - 1) / 2
            axes.append(taps(place, length))
        return xp.astype(_combined(xp, x, axes).reshape((*x.shape[:2], *grid.shape[1:-1])), x.dtype)

    return grid_sample


@shared_maker("DeformConv")
def deformable_convolution(node: OperatorNode, library: ArrayLibrary) -> Function:
    """A convolution whose sampling points are shifted by offsets (Dai et al. 2017, Zhu et al. 2019)."""
    xp, group, offset_group = library.xp, int(node["group"]), int(node["offset_group"])

    def deform_conv(x: Array, weight: Array, offset: Array, bias: Array | None = None, mask: Array = None) -> Array:
        if x.ndim != 4:
            raise UnsupportedError(node.title, "it is implemented for two spatial axes", "use another framework")
        n, channels = x.shape[:2]
        windows = Window.of(node).over(x.shape[2:], weight.shape[2:])
        (kh, kw), (oh, ow) = windows.kernel, windows.out
        moved = offset.reshape((n * offset_group, kh, kw, 2, oh, ow))
        rows = moved[:, :, :, 0] + library.array(windows.places(0).T.reshape(1, kh, 1, oh, 1))
        columns = moved[:, :, :, 1] + library.array(windows.places(1).T.reshape(1, 1, kw, 1, ow))
        points = [
            _linear_taps(xp, xp.astype(each, offset.dtype).reshape((n * offset_group, -1))) for each in (rows, columns)
        ]
        seen = _combined(xp, x.reshape((n * offset_group, -1, *x.shape[2:])), points)
        seen = seen.reshape((n, offset_group, -1, kh * kw, oh * ow))
        if mask is not None:
            seen = seen * mask.reshape((n, offset_group, 1, kh * kw, oh * ow))
        seen = seen.reshape((n, group, channels // group, kh * kw, oh * ow))
        kernels = weight.reshape((group, -1, channels // group, kh * kw))
        y = library.einsum("ngckp,gmck->ngmp", seen, kernels).reshape((n, -1, oh, ow))
        return y if bias is None else y + bias.reshape((1, -1, 1, 1))

    return deform_conv
