"""Images: Resize, sampling between elements (GridSample, DeformConv, RoiAlign) and NonMaxSuppression."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from levelbench.frameworks.jax.operators.registry import LIBRARY, PRECISION, Function, maker, operator, refuse
from levelbench.frameworks.shared.operators import Host
from levelbench.frameworks.shared.resize import resizing
from levelbench.frameworks.shared.windows import Window
from levelbench.operators.node import OperatorNode


@maker("Resize", "Upsample")
def _resize(node: OperatorNode) -> Function:
    return resizing(node, LIBRARY)


# Values between the elements of an image: A point between elements is a weighted sum over its neighbours along each
# axis; a tap is one neighbour, its weight, and whether it lies in the image at all.


class _Tap(NamedTuple):
    """A neighbour along one axis, of shape (batch, points): its position as a number, its weight."""

    place: Any
    weight: Any


def _combine(x: Array, taps: Sequence[Sequence[_Tap]]) -> list[Array]:
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


def _linear_taps(place: Array) -> list[_Tap]:
    low = jnp.floor(place)
    share = place - low
    return [_Tap(low, 1 - share), _Tap(low + 1, share)]


def _cubic_taps(place: Array) -> list[_Tap]:
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


def _inside(place: Array, length: int, padding: str, corners: bool) -> Array:
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

    def taps(place: Array, length: int) -> list[_Tap]:
        if mode == "cubic":
            # ONNX's reference and ONNX Runtime move a point that lies beyond the edges of the outer pixels to their
            # centres before they look for its neighbours; PyTorch does not.
            edge = 0.0 if corners else 0.5
            beyond = (place < -edge) | (place > length - 1 + edge)
            start = jnp.where(beyond & (padding == "border"), jnp.clip(place, 0, length - 1), place)
            return [_Tap(_inside(tap.place, length, padding, corners), tap.weight) for tap in _cubic_taps(start)]
        inner = _inside(place, length, padding, corners)
        return [_Tap(jnp.round(inner), jnp.ones_like(inner))] if mode == "nearest" else _linear_taps(inner)

    def grid_sample(x: Array, grid: Array) -> Array:
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


@operator("DeformConv")
def _deform_conv(
    x: Array,
    weight: Array,
    offset: Array,
    bias: Array | None = None,
    mask: Array | None = None,
    *,
    node: OperatorNode,
    group: int,
    offset_group: int,
) -> Array:
    """A convolution whose elements each look where an offset sends them (Dai et al. 2017, Zhu et al. 2019)."""
    if x.ndim != 4:
        raise refuse(node, "this adapter has it for two spatial axes")
    n, channels = x.shape[:2]
    windows = Window.of(node).over(x.shape[2:], weight.shape[2:])
    (kh, kw), (oh, ow) = windows.kernel, windows.out
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


# NonMaxSuppression: the best boxes that do not overlap one another too much.
# The overlaps of all pairs are found at once; the choice, which is a chain, walks down the scores for all batches and
# classes together. Only how many boxes remain is read from the device.


def _corners(boxes: Array, centred: bool) -> tuple[Array, Array]:
    """Lower and upper corners, (boxes, 2) each; any two opposite corners may be given."""
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
        """For (batch, class): the boxes by falling score, and which of them remain."""
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
