"""Resize and Upsample for every framework: which input elements each output element uses, and their weights.

Resizing is separable, so each axis has its own table. The table depends only on sizes and scales, so it is computed on
the host with NumPy and cached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import floor, isclose
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import UnsupportedError
from levelbench.frameworks.shared.operators import ArrayLibrary, Host, shared_maker
from levelbench.operators.contract import Array, Function
from levelbench.operators.node import OperatorNode

_MODES = ("nearest", "linear", "cubic")


class ResizeRule(NamedTuple):
    """The attributes of a node. The defaults make Resize behave like Upsample."""

    mode: str = "nearest"
    coordinates: str = "asymmetric"
    nearest: str = "floor"
    cubic: float = -0.75
    antialias: bool = False
    exclude_outside: bool = False
    extrapolation: float = 0.0


class AxisChange(NamedTuple):
    """How one axis changes. ``scale`` may differ from ``target / size``; ``start`` and ``end`` bound the crop."""

    axis: int
    size: int
    target: int
    scale: float
    start: float = 0.0
    end: float = 1.0


class Taps(NamedTuple):
    """Source positions and their weights, both (target, taps); ``outside`` ones get the extrapolation value."""

    places: NDArray[np.int64]
    weights: NDArray[np.float64]
    outside: NDArray[np.bool_] | None


def rule_of(node: OperatorNode) -> ResizeRule:
    """The rule of a Resize or Upsample node; ``UnsupportedError`` for a mode that ONNX does not define."""
    if node["mode"] not in _MODES:
        raise UnsupportedError(node.title, f"unknown mode {node['mode']!r}", f"use one of {', '.join(_MODES)}")
    if node.op_type == "Upsample":
        return ResizeRule(node["mode"])
    return ResizeRule(
        node["mode"],
        node["coordinate_transformation_mode"],
        node["nearest_mode"],
        float(node["cubic_coeff_a"]),
        bool(node.get("antialias", 0)),
        bool(node["exclude_outside"]),
        float(node["extrapolation_value"]),
    )


def changes_of(
    node: OperatorNode,
    shape: Sequence[int],
    roi: Host | None = None,
    scales: Host | None = None,
    sizes: Host | None = None,
) -> list[AxisChange]:
    """The axes that change, for an input of ``shape`` and Resize's other inputs: ``scales`` or ``sizes`` is given."""
    axes = [int(axis) % len(shape) for axis in node.get("axes") or range(len(shape))]
    if sizes is not None and sizes.size:
        targets = [int(each) for each in sizes]
        factors = [target / shape[axis] for target, axis in zip(targets, axes, strict=True)]
        policy = node.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            factors = [min(factors) if policy == "not_larger" else max(factors)] * len(axes)
            targets = [int(factor * shape[axis] + 0.5) for factor, axis in zip(factors, axes, strict=True)]
    else:
        factors = [] if scales is None else [float(each) for each in scales]
        targets = [int(factor * shape[axis]) for factor, axis in zip(factors, axes, strict=True)]
    region = [0.0] * len(axes) + [1.0] * len(axes)
    if roi is not None and roi.size and node.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        region = [float(each) for each in roi]
    found = [
        AxisChange(axis, shape[axis], target, factor, start, end)
        for axis, target, factor, start, end in zip(
            axes, targets, factors, region[: len(axes)], region[len(axes) :], strict=True
        )
    ]
    return [
        each
        for each in found
        if each.target != each.size or not isclose(each.scale, 1) or (each.start, each.end) != (0.0, 1.0)
    ]


@lru_cache(maxsize=256)
def taps_of(change: AxisChange, rule: ResizeRule) -> Taps:
    """The table of one axis. It is cached, so it must not be modified."""
    last = change.size - 1
    x = _origins(change, rule)
    outside = (x < 0) | (x > last) if rule.coordinates == "tf_crop_and_resize" else None
    if rule.mode == "nearest":
        rounded = {
            "round_prefer_floor": np.ceil(x - 0.5),
            "round_prefer_ceil": np.floor(x + 0.5),
            "floor": np.floor(x),
            "ceil": np.ceil(x),
        }[rule.nearest]
        return Taps(np.clip(rounded.astype(np.int64), 0, last)[:, None], np.ones((len(x), 1)), outside)
    left = np.floor(x)
    shrink = min(change.scale, 1.0) if rule.antialias else 1.0
    reach = 1 if rule.mode == "linear" else 2
    # A filter stretched by 1 / shrink covers the elements less than reach / shrink away.
    first = floor(-reach / shrink) + 1
    offsets = np.arange(first, 2 - first)
    distance = np.abs(offsets - (x - left)[:, None]) * shrink
    weights = np.clip(1 - distance, 0, 1) if reach == 1 else _cubic(distance, rule.cubic)
    places = left.astype(np.int64)[:, None] + offsets
    if shrink < 1:
        weights = weights / weights.sum(axis=1, keepdims=True)
    if rule.exclude_outside:
        weights = np.where((places < 0) | (places > last), 0, weights)
        total = weights.sum(axis=1, keepdims=True)
        weights = weights / np.where(total == 0, 1, total)
    return Taps(np.clip(places, 0, last), weights, outside)


def _cubic(distance: NDArray[np.float64], a: float) -> NDArray[np.float64]:
    """Keys' cubic convolution (1981, equation 4) with coefficient ``a``."""
    d = distance
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _origins(change: AxisChange, rule: ResizeRule) -> NDArray[np.float64]:
    """The input coordinate of each output element (ONNX Resize, ``coordinate_transformation_mode``)."""
    at, size, scale = np.arange(change.target, dtype=np.float64), change.size, change.scale
    width = scale * size
    match rule.coordinates:
        case "half_pixel":
            return (at + 0.5) / scale - 0.5
        case "pytorch_half_pixel":
            return (at + 0.5) / scale - 0.5 if width > 1 else np.zeros_like(at)
        case "tf_half_pixel_for_nn":
            # Opsets 11 and 12 have it.
            return (at + 0.5) / scale
        case "half_pixel_symmetric":
            return size / 2 * (1 - change.target / width) + (at + 0.5) / scale - 0.5
        case "asymmetric":
            return at / scale
        case "align_corners":
            return np.zeros_like(at) if width == 1 else at * (size - 1) / (width - 1)
        case "tf_crop_and_resize":
            step = at / (width - 1) if width != 1 else np.full_like(at, 0.5)
            return change.start * (size - 1) + step * (change.end - change.start) * (size - 1)
    raise UnsupportedError(f"Resize by {rule.coordinates!r}", "ONNX defines no such mode", "use half_pixel")


Kernel = Callable[[Array, Sequence[AxisChange], ResizeRule], Array | None]
"""The result of a framework's own kernel, where it uses the same elements and weights; else ``None``."""


@shared_maker("Resize", "Upsample")
def resizing(node: OperatorNode, library: ArrayLibrary, kernel: Kernel | None = None) -> Function:
    """Resizes one axis after the other, in float32 or wider; integers are rounded at the end."""
    rule, xp, array = rule_of(node), library.xp, library.array
    nearest = rule.mode == "nearest"

    def along(x: Array, change: AxisChange) -> Array:
        places, weights, outside = taps_of(change, rule)
        axis, behind = change.axis, (1,) * (x.ndim - change.axis - 1)
        found = library.take(x, array(places.reshape(-1)), axis)
        if not nearest:
            kind = np.float64 if x.dtype == xp.float64 else np.float32
            found = found.reshape((*x.shape[:axis], *weights.shape, *x.shape[axis + 1 :]))
            found = xp.sum(found * array(weights.astype(kind).reshape((*weights.shape, *behind))), axis=axis + 1)
        if outside is not None and outside.any():
            mask = array(outside.reshape((-1, *behind)))
            found = xp.where(mask, xp.full_like(found, rule.extrapolation), found)
        return found

    def resize(x: Array, roi: Host | None = None, scales: Host | None = None, sizes: Host | None = None) -> Array:
        changes = changes_of(node, x.shape, roi, scales, sizes)
        if not changes:
            return x
        if kernel is not None and (found := kernel(x, changes, rule)) is not None:
            return found
        wide = x if nearest else xp.astype(x, xp.float64 if x.dtype.itemsize > 4 else xp.float32)
        for each in changes:
            wide = along(wide, each)
        if nearest:
            return wide
        if xp.isdtype(x.dtype, "integral"):
            limits = xp.iinfo(x.dtype)
            wide = xp.clip(xp.round(wide), limits.min, limits.max)
        return xp.astype(wide, x.dtype)

    return resize if node.op_type == "Resize" else lambda x, scales: resize(x, None, scales)
