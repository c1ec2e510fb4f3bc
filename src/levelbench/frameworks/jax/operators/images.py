"""Images: Resize, sampling between elements (GridSample, DeformConv, RoiAlign) and NonMaxSuppression."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from levelbench.frameworks.jax.operators.reductions import PRECISION
from levelbench.frameworks.jax.operators.registry import Function, maker, refuse
from levelbench.frameworks.jax.operators.windows import windows_of
from levelbench.operators.node import OperatorNode

Float = NDArray[np.float64]


class _Rules(NamedTuple):
    """What the node says."""

    mode: str
    coordinates: str
    nearest: str
    cubic: float
    antialias: bool
    exclude_outside: bool
    extrapolation: float


class _Axis(NamedTuple):
    """Along one axis: lengths, scale, and the part of the input that ``tf_crop_and_resize`` looks at."""

    length: int
    output: int
    scale: float
    start: float
    end: float


def _sources(rules: _Rules, axis: _Axis) -> Float:
    """Where each output element lies in the input, in elements."""
    y = np.arange(axis.output, dtype=np.float64)
    last, scaled = axis.length - 1, axis.scale * axis.length
    match rules.coordinates:
        case "align_corners":
            return np.zeros_like(y) if scaled == 1 else y * last / (scaled - 1)
        case "asymmetric":
            return y / axis.scale
        case "tf_crop_and_resize":
            inner = axis.end - axis.start
            first = axis.start * last
            return np.full_like(y, first + inner * last / 2) if scaled == 1 else first + y * inner * last / (scaled - 1)
        case "pytorch_half_pixel":
            return np.full_like(y, -0.5) if scaled == 1 else (y + 0.5) / axis.scale - 0.5
        case "half_pixel_symmetric":
            return axis.length / 2 * (1 - axis.output / scaled) + (y + 0.5) / axis.scale - 0.5
    return (y + 0.5) / axis.scale - 0.5


def _weights(rules: _Rules, ratio: Float, scale: float) -> tuple[Float, int]:
    """(output, neighbour) weights, and the first neighbour's distance from the element left of the source."""
    shrink = min(scale, 1.0) if rules.antialias else 1.0
    column = ratio[:, None]
    if rules.mode == "nearest":
        right = {"round_prefer_ceil": ratio >= 0.5, "floor": ratio == 1, "ceil": ratio > 0}
        chosen = right.get(rules.nearest, ratio > 0.5)
        return np.stack([~chosen, chosen], 1).astype(np.float64), 0
    reach = 1 if rules.mode == "linear" else 2
    first = int(np.floor(-reach / shrink)) + 1
    distance = np.abs(np.arange(first, 2 - first) - column) * shrink
    if rules.mode == "linear":
        found = np.clip(1 - distance, 0, 1)
    else:
        a = rules.cubic
        near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
        far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        found = np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))
    return (found / found.sum(1, keepdims=True) if rules.antialias else found), first


def _along(rules: _Rules, axis: _Axis) -> tuple[NDArray[np.int64], Float, NDArray[np.bool_]]:
    """Neighbours and their weights, both (output, neighbour), and which output elements lie outside."""
    source = _sources(rules, axis)
    left = np.floor(source)
    # A source on an element counts as one whole step right of the element before.
    left = np.where(left == source, left - 1, left)
    weights, first = _weights(rules, source - left, axis.scale)
    places = left.astype(np.int64)[:, None] + first + np.arange(weights.shape[1])
    if rules.exclude_outside:
        weights = np.where((places < 0) | (places >= axis.length), 0.0, weights)
        total = weights.sum(1, keepdims=True)
        weights = weights / np.where(total == 0, 1.0, total)
    outside = np.zeros(axis.output, bool)
    if rules.coordinates == "tf_crop_and_resize":
        outside = (source < 0) | (source > axis.length - 1)
    return np.clip(places, 0, axis.length - 1), weights, outside


def _apply(rules: _Rules, x: Any, at: int, axis: _Axis) -> Any:
    places, weights, outside = _along(rules, axis)
    if rules.mode == "nearest":
        found = jnp.take(x, places[np.arange(axis.output), weights.argmax(1)], at)
    else:
        shape = [1] * (x.ndim + 1)
        shape[at : at + 2] = weights.shape
        found = jnp.sum(jnp.take(x, places, at) * jnp.asarray(weights.reshape(shape), x.dtype), at + 1)
    if not outside.any():
        return found
    mask = outside.reshape([-1 if each == at else 1 for each in range(x.ndim)])
    return jnp.where(mask, jnp.asarray(rules.extrapolation, x.dtype), found)


def _resized(rules: _Rules, x: Any, plan: Sequence[tuple[int, _Axis]]) -> Any:
    """One axis after the other, rounded at the end where the elements are integers."""
    integer = not jnp.issubdtype(x.dtype, jnp.inexact)
    wide = x if rules.mode == "nearest" else x.astype(jnp.float64 if x.dtype.itemsize > 4 else jnp.float32)
    for at, axis in plan:
        still = axis.output == axis.length and axis.scale == 1
        if not (still and axis.start == 0 and axis.end == 1):
            wide = _apply(rules, wide, at, axis)
    if integer and rules.mode != "nearest":
        most = jnp.iinfo(x.dtype)
        wide = jnp.clip(jnp.round(wide), most.min, most.max)
    return wide.astype(x.dtype)


def _plan(node: OperatorNode, shape: Sequence[int], roi: Any, scales: Any, sizes: Any) -> list[tuple[int, _Axis]]:
    axes = [int(each) % len(shape) for each in node.get("axes") or range(len(shape))]
    lengths = [shape[each] for each in axes]
    if sizes is not None and sizes.size:
        factors = [int(size) / length for size, length in zip(sizes, lengths, strict=True)]
        outputs = [int(each) for each in sizes]
        policy = node.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            factors = [min(factors) if policy == "not_larger" else max(factors)] * len(axes)
            outputs = [int(factor * length + 0.5) for factor, length in zip(factors, lengths, strict=True)]
    else:
        factors = [float(each) for each in scales]
        outputs = [int(factor * length) for factor, length in zip(factors, lengths, strict=True)]
    count = len(axes)
    crop = [0.0] * count + [1.0] * count if roi is None or not roi.size else [float(each) for each in roi]
    return [
        (axis, _Axis(lengths[at], outputs[at], factors[at], crop[at], crop[count + at])) for at, axis in enumerate(axes)
    ]


@maker("Resize")
def _resize(node: OperatorNode) -> Function:
    rules = _Rules(
        node["mode"],
        node["coordinate_transformation_mode"],
        node["nearest_mode"],
        float(node["cubic_coeff_a"]),
        bool(node.get("antialias", 0)),
        bool(node["exclude_outside"]),
        float(node["extrapolation_value"]),
    )
    if rules.mode not in {"nearest", "linear", "cubic"}:
        raise refuse(node, f"there is no mode {rules.mode!r}")

    def resize(x: Any, roi: Any = None, scales: Any = None, sizes: Any = None) -> Any:
        crop = roi if rules.coordinates == "tf_crop_and_resize" else None
        return _resized(rules, x, _plan(node, x.shape, crop, scales, sizes))

    return resize


@maker("Upsample")
def _upsample(node: OperatorNode) -> Function:
    """What Resize does with asymmetric coordinates, rounded down."""
    rules = _Rules(node["mode"], "asymmetric", "floor", -0.75, False, False, 0.0)
    return lambda x, scales: _resized(rules, x, _plan(node, x.shape, None, scales, None))


# Values between the elements of an image: GridSample, DeformConv, RoiAlign.
# A point between elements is a weighted sum over its neighbours along each axis; a tap is one neighbour, its weight,
# and whether it lies in the image at all.


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


# NonMaxSuppression: the best boxes that do not overlap one another too much.
# The overlaps of all pairs are found at once; the choice, which is a chain, walks down the scores for all batches and
# classes together. Only how many boxes remain is read from the device.


def _corners(boxes: Any, centred: bool) -> tuple[Any, Any]:
    """Lower and upper corners, (boxes, 2) each; any two opposite corners may be given."""
    first, second = boxes[:, :2], boxes[:, 2:]
    if centred:
        return first - second / 2, first + second / 2
    return jnp.minimum(first, second), jnp.maximum(first, second)


def _overlaps(boxes: Any, centred: bool) -> Any:
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
    def choose(boxes: Any, scores: Any, most: Any, overlap: Any, least: Any) -> Any:
        """For (batch, class): the boxes by falling score, and which of them remain."""
        pairs = jax.vmap(lambda each: _overlaps(each, centred))(boxes)
        order = jnp.argsort(-scores, axis=-1, stable=True)

        def walk(pair: Any, score: Any, ranked: Any) -> Any:
            ordered = pair[ranked][:, ranked] > overlap
            allowed = score[ranked] > least

            def step(at: Any, kept: Any) -> Any:
                free = allowed[at] & ~jnp.any(kept & ordered[at]) & (jnp.sum(kept) < most)
                return kept.at[at].set(free)

            return lax.fori_loop(0, ranked.shape[0], step, jnp.zeros(ranked.shape[0], bool))

        by_class = jax.vmap(walk, (None, 0, 0))
        return order, jax.vmap(by_class)(pairs, scores, order)

    def non_max_suppression(boxes: Any, scores: Any, most: Any = None, overlap: Any = None, least: Any = None) -> Any:
        limit = 0 if most is None or not most.size else max(int(most.item()), 0)
        threshold = 0.0 if overlap is None or not overlap.size else float(overlap.item())
        lowest = -jnp.inf if least is None or not least.size else float(least.item())
        order, kept = choose(boxes, scores, limit, threshold, lowest)
        batch, label, rank = jnp.nonzero(kept)
        return jnp.stack([batch, label, order[batch, label, rank]], 1).astype(jnp.int64)

    return non_max_suppression
