"""Resize and Upsample: nearest, linear and cubic, with every coordinate transformation of ONNX.

The one idea: resizing is separable, so each axis has a table that says which elements each place takes and with which
weights. Tables depend on sizes alone and are kept; PyTorch's own kernels are taken where they follow the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from levelbench.frameworks.torch.operators.registry import Function, maker
from levelbench.operators.node import OperatorNode

__all__: list[str] = []

_native: Any = torch._C._nn
_LINEAR = {3: _native.upsample_linear1d, 4: _native.upsample_bilinear2d, 5: _native.upsample_trilinear3d}
_NEAREST = {3: _native.upsample_nearest1d, 4: _native.upsample_nearest2d, 5: _native.upsample_nearest3d}


class _Rule(NamedTuple):
    """The attributes of a node."""

    mode: str = "nearest"
    coordinates: str = "asymmetric"
    nearest: str = "floor"
    cubic: float = -0.75
    antialias: bool = False
    exclude: bool = False
    extrapolation: float = 0.0


class _Axis(NamedTuple):
    """How one axis changes: ``scale`` may differ from ``target / size``."""

    axis: int
    size: int
    target: int
    scale: float
    start: float
    end: float


class _Table(NamedTuple):
    """Places to take elements from, (target, taps), their weights, and where there is nothing to take."""

    places: NDArray[np.int64]
    weights: NDArray[np.float64]
    outside: NDArray[np.bool_] | None


@maker("Resize")
def _resize(node: OperatorNode) -> Function:
    rule = _Rule(
        node["mode"],
        node["coordinate_transformation_mode"],
        node["nearest_mode"],
        node["cubic_coeff_a"],
        bool(node.get("antialias", 0)),
        bool(node["exclude_outside"]),
        node["extrapolation_value"],
    )
    chosen, policy = node.get("axes"), node.get("keep_aspect_ratio_policy", "stretch")

    def resize(x: Tensor, roi: Any = None, scales: Any = None, sizes: Any = None) -> Tensor:
        axes = list(range(x.dim())) if chosen is None else [axis % x.dim() for axis in chosen]
        if sizes is not None and sizes.size:
            factors, targets = _to_sizes(x, axes, sizes.tolist(), policy)
        else:
            factors = [float(each) for each in scales.tolist()]
            targets = [int(x.shape[axis] * factor) for axis, factor in zip(axes, factors, strict=True)]
        region = roi.tolist() if roi is not None and roi.size else [0.0] * len(axes) + [1.0] * len(axes)
        starts, ends = region[: len(axes)], region[len(axes) :]
        changes = [
            _Axis(axis, x.shape[axis], target, factor, start, end)
            for axis, target, factor, start, end in zip(axes, targets, factors, starts, ends, strict=True)
        ]
        return _apply(x, changes, rule)

    return resize


@maker("Upsample")
def _upsample(node: OperatorNode) -> Function:
    rule = _Rule(node["mode"])

    def upsample(x: Tensor, scales: NDArray[Any]) -> Tensor:
        changes = [
            _Axis(axis, size, int(size * factor), factor, 0.0, 1.0)
            for axis, (size, factor) in enumerate(zip(x.shape, scales.tolist(), strict=True))
        ]
        return _apply(x, changes, rule)

    return upsample


def _to_sizes(x: Tensor, axes: Sequence[int], sizes: Sequence[int], policy: str) -> tuple[list[float], list[int]]:
    factors = [size / x.shape[axis] for axis, size in zip(axes, sizes, strict=True)]
    if policy == "stretch":
        return factors, list(sizes)
    factor = min(factors) if policy == "not_larger" else max(factors)
    return [factor] * len(axes), [int(factor * x.shape[axis] + 0.5) for axis in axes]


def _apply(x: Tensor, changes: Sequence[_Axis], rule: _Rule) -> Tensor:
    crop = rule.coordinates == "tf_crop_and_resize"
    changes = [each for each in changes if crop or each.scale != 1.0 or each.target != each.size]
    if not changes:
        return x
    if (found := _by_kernel(x, changes, rule)) is not None:
        return found
    dtype = x.dtype
    exact = rule.mode == "nearest" and not crop
    # Integers and half precision are weighted in float.
    wide = dtype if exact or dtype == torch.float64 else torch.float32
    x = x.to(wide)
    for each in changes:
        x = _along(x, each, rule)
    if dtype.is_floating_point or exact:
        return x.to(dtype)
    limits = torch.iinfo(dtype)
    return x.round().clamp(limits.min, limits.max).to(dtype)


def _along(x: Tensor, change: _Axis, rule: _Rule) -> Tensor:
    table = _table(change, rule)
    axis = change.axis
    places = torch.from_numpy(table.places).to(x.device)
    taken = x.index_select(axis, places.reshape(-1))
    if rule.mode != "nearest":
        shape = [1] * (x.dim() + 1)
        shape[axis], shape[axis + 1] = table.weights.shape
        weights = torch.from_numpy(table.weights).to(x.device, x.dtype).reshape(shape)
        taken = (taken.unflatten(axis, table.weights.shape) * weights).sum(axis + 1)
    if table.outside is not None:
        outside = torch.from_numpy(table.outside).to(x.device)
        shape = [-1 if at == axis else 1 for at in range(x.dim())]
        taken = torch.where(outside.reshape(shape), rule.extrapolation, taken)
    return taken


def _by_kernel(x: Tensor, changes: Sequence[_Axis], rule: _Rule) -> Tensor | None:
    """By PyTorch's kernel, where it takes the same elements with the same weights; else ``None``."""
    if x.dim() not in _LINEAR or min(each.axis for each in changes) < 2 or not x.is_floating_point():
        return None
    if rule.exclude or rule.antialias:
        return None
    sizes, scales = list(x.shape[2:]), [1.0] * (x.dim() - 2)
    for each in changes:
        sizes[each.axis - 2], scales[each.axis - 2] = each.target, each.scale
    if rule.mode == "nearest":
        # The kernel rounds a place times the inverse factor in single precision: exact for powers of two.
        powers = all(float(each.scale).hex().startswith("0x1.0000000000000p") for each in changes)
        if powers and (rule.coordinates, rule.nearest) == ("asymmetric", "floor"):
            return _NEAREST[x.dim()](x, sizes, *scales)
        return None
    half = rule.coordinates == "half_pixel" or (rule.coordinates == "pytorch_half_pixel" and min(sizes) > 1)
    corners = rule.coordinates == "align_corners" and all(each.scale * each.size == each.target for each in changes)
    if not half and not corners:
        return None
    if rule.mode == "linear":
        return _LINEAR[x.dim()](x, sizes, corners, *scales)
    if x.dim() == 4 and rule.cubic == -0.75:
        return _native.upsample_bicubic2d(x, sizes, corners, *scales)
    return None


@lru_cache(maxsize=256)
def _table(change: _Axis, rule: _Rule) -> _Table:
    """The table of one axis (ONNX Resize, "coordinate_transformation_mode" and on)."""
    x = _origins(change, rule)
    last = change.size - 1
    outside = (x < 0) | (x > last) if rule.coordinates == "tf_crop_and_resize" else None
    if rule.mode == "nearest":
        rounded = {
            "round_prefer_floor": np.ceil(x - 0.5),
            "round_prefer_ceil": np.floor(x + 0.5),
            "floor": np.floor(x),
            "ceil": np.ceil(x),
        }[rule.nearest]
        places = rounded.astype(np.int64).clip(0, last)
        return _Table(places[:, None], np.ones((len(places), 1)), outside)
    scale = min(change.scale, 1.0) if rule.antialias else 1.0
    kernel, support = (_triangle, 1.0) if rule.mode == "linear" else (_cubic, 2.0)
    reach = int(np.ceil(support / scale))
    places = np.floor(x)[:, None].astype(np.int64) + np.arange(1 - reach, 1 + reach)
    weights = kernel((places - x[:, None]) * scale, rule.cubic)
    if rule.exclude:
        weights = np.where((places < 0) | (places > last), 0.0, weights)
    if rule.exclude or rule.antialias:
        weights = weights / weights.sum(1, keepdims=True)
    return _Table(places.clip(0, last), weights, outside)


def _triangle(distance: NDArray[Any], _: float) -> NDArray[Any]:
    return np.clip(1 - np.abs(distance), 0, 1)


def _cubic(distance: NDArray[Any], a: float) -> NDArray[Any]:
    """Keys 1981, equation 4, with its parameter ``a``."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _origins(change: _Axis, rule: _Rule) -> NDArray[np.float64]:
    """Where each place of the output lies in the input."""
    y = np.arange(change.target, dtype=np.float64)
    size, scale = change.size, change.scale
    width = scale * size
    match rule.coordinates:
        case "asymmetric":
            return y / scale
        case "align_corners":
            return np.zeros_like(y) if width == 1 else y * (size - 1) / (width - 1)
        case "tf_crop_and_resize":
            reach = (change.end - change.start) * (size - 1)
            return change.start * (size - 1) + (np.full_like(y, reach / 2) if width == 1 else y * reach / (width - 1))
        case "pytorch_half_pixel" if width == 1:
            return np.full_like(y, -0.5)
        case "half_pixel_symmetric":
            return size / 2 * (1 - change.target / width) + (y + 0.5) / scale - 0.5
    return (y + 0.5) / scale - 0.5
