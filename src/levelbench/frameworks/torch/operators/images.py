"""Images: Resize, GridSample, AffineGrid, Col2Im, RoiAlign, DeformConv and NonMaxSuppression."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from levelbench.frameworks.torch.operators.registry import Function, maker, refuse
from levelbench.frameworks.torch.operators.windows import Window
from levelbench.operators.node import OperatorNode

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


# Images: sampling on grids, affine grids, columns to images, and pooling of regions.


_MODES = {"linear": "bilinear", "cubic": "bicubic"}


@maker("GridSample")
def _grid_sample(node: OperatorNode) -> Function:
    mode, padding, corners = node["mode"], node["padding_mode"], bool(node["align_corners"])
    mode = _MODES.get(mode, mode)

    def sample(x: Tensor, grid: Tensor) -> Tensor:
        if x.dim() not in (4, 5) or (x.dim() == 5 and mode == "bicubic"):
            raise refuse(node, f"PyTorch samples images and volumes, volumes not with cubic: rank {x.dim()}, {mode}")
        return functional.grid_sample(x, grid.to(x.dtype), mode, padding, corners)

    return sample


@maker("AffineGrid")
def _affine_grid(node: OperatorNode) -> Function:
    corners = bool(node["align_corners"])
    return lambda theta, size: functional.affine_grid(theta, size.tolist(), corners)


@maker("Col2Im")
def _col2im(node: OperatorNode) -> Function:
    window = Window.of(node)

    def col2im(x: Tensor, shape: NDArray[Any], block: NDArray[Any]) -> Tensor:
        sizes, kernel = shape.tolist(), block.tolist()
        here = window.filled(len(sizes), kernel)
        if len(sizes) == 2 and here.even:
            return functional.fold(x, sizes, kernel, here.dilations, here.begins, here.strides)
        return _sum_of_blocks(x, sizes, here)

    return col2im


def _sum_of_blocks(x: Tensor, sizes: list[int], window: Window) -> Tensor:
    """Adds each block at its place in an image with its padding, which is then cut off."""
    padding = window.padding(sizes)
    wide = [size + begin + end for size, (begin, end) in zip(sizes, padding, strict=True)]
    counts = window.outputs(sizes, padding, False)
    rank = len(sizes)
    at = torch.zeros((), dtype=torch.int64, device=x.device)
    for axis in range(rank):
        # Axes 0 to rank - 1 run over the elements of a block, the others over the blocks.
        inner = torch.arange(window.kernel[axis], device=x.device) * window.dilations[axis]
        outer = torch.arange(counts[axis], device=x.device) * window.strides[axis]
        place = inner.reshape([-1 if each == axis else 1 for each in range(2 * rank)])
        place = place + outer.reshape([-1 if each == rank + axis else 1 for each in range(2 * rank)])
        at = at * wide[axis] + place
    batch, elements = x.shape[0], math.prod(window.kernel)
    columns = x.reshape(batch, -1, elements * x.shape[2])
    image = x.new_zeros((batch, columns.shape[1], math.prod(wide))).index_add(2, at.reshape(-1), columns)
    image = image.reshape(batch, -1, *wide)
    inside = [slice(begin, begin + size) for size, (begin, _) in zip(sizes, padding, strict=True)]
    return image[(slice(None), slice(None), *inside)]


@maker("RoiAlign")
def _roi_align(node: OperatorNode) -> Function:
    half = node.get("coordinate_transformation_mode", "output_half_pixel") == "half_pixel"
    height, width, ratio = node["output_height"], node["output_width"], node["sampling_ratio"]
    scale, largest = node["spatial_scale"], node["mode"] == "max"

    def roi_align(x: Tensor, rois: Tensor, batches: Tensor) -> Tensor:
        corners = rois * scale - (0.5 if half else 0.0)
        rows = _samples(corners[:, 1], corners[:, 3], height, ratio, x.shape[2], half)
        columns = _samples(corners[:, 0], corners[:, 2], width, ratio, x.shape[3], half)
        (y, y_weights, y_real), (x_at, x_weights, x_real) = rows, columns
        # (regions, channels, height, samples, corners, width, samples, corners)
        y, y_weights = y[:, :, :, :, None, None, None], y_weights[:, None, :, :, :, None, None, None]
        x_at, x_weights = x_at[:, None, None, None], x_weights[:, None, None, None, None]
        values = x[batches.reshape(-1, 1, 1, 1, 1, 1, 1), :, y, x_at].movedim(-1, 1)
        weighted = values * y_weights * x_weights
        real = y_real[:, None, None, :, None, None] & x_real[:, None, None, None, None, :]
        if largest:
            # The largest of the weighted corners, as ONNX and ONNX Runtime define it.
            best = weighted.amax((4, 7))
            return torch.where(real, best, -math.inf).amax((3, 5))
        counts = (y_real.sum(1) * x_real.sum(1)).clamp(min=1).reshape(-1, 1, 1, 1)
        return torch.where(real, weighted.sum((4, 7)), 0).sum((3, 5)) / counts

    return roi_align


def _samples(start: Tensor, end: Tensor, bins: int, ratio: int, size: int, half: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Along one axis: places (regions, bins, samples, 2), their weights, and which samples a region has."""
    extent = end - start
    if not half:
        extent = extent.clamp(min=1.0)
    bin_size = extent / bins
    if ratio > 0:
        counts = torch.full_like(start, ratio)
        most = ratio
    else:
        counts = torch.ceil(bin_size)
        most = max(1, int(counts.max())) if counts.numel() else 1
    steps = torch.arange(most, device=start.device, dtype=start.dtype)
    real = steps < counts.unsqueeze(1)
    within = (steps + 0.5) * (bin_size / counts).unsqueeze(1)
    bases = start.unsqueeze(1) + torch.arange(bins, device=start.device) * bin_size.unsqueeze(1)
    at = bases.unsqueeze(2) + within.unsqueeze(1)
    seen = (at >= -1.0) & (at <= size)
    at = at.clamp(0, size - 1)
    low = at.floor()
    places = torch.stack([low, (low + 1).clamp(max=size - 1)], -1).long()
    weights = torch.stack([1 - (at - low), at - low], -1) * seen.unsqueeze(-1)
    return places, weights, real


@maker("DeformConv")
def _deform_conv(node: OperatorNode) -> Function:
    window, groups, offset_groups = Window.of(node), node["group"], node["offset_group"]

    def deform_conv(
        x: Tensor, weight: Tensor, offset: Tensor, bias: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        if x.dim() != 4:
            raise refuse(node, "it is implemented over two axes")
        here = window.filled(2, weight.shape[2:])
        (batch, channels), (height, width) = x.shape[:2], offset.shape[2:]
        elements = math.prod(here.kernel)
        shifts = offset.reshape(batch * offset_groups, elements, 2, height, width)
        grid = _places(here, shifts, x.shape[2:])
        # Each group of channels is sampled at its own places: (batch groups, channels, elements, height, width).
        planes = x.reshape(batch * offset_groups, channels // offset_groups, *x.shape[2:])
        taken = functional.grid_sample(planes, grid.flatten(1, 2), align_corners=True)
        taken = taken.reshape(batch, offset_groups, -1, elements, height, width)
        if mask is not None:
            taken = taken * mask.reshape(batch, offset_groups, 1, elements, height, width)
        columns = taken.reshape(batch, groups, -1, height * width)
        rows = weight.reshape(groups, weight.shape[0] // groups, -1)
        found = torch.einsum("gok,bgkp->bgop", rows, columns).reshape(batch, -1, height, width)
        return found if bias is None else found + bias.reshape(-1, 1, 1)

    return deform_conv


def _places(window: Window, shifts: Tensor, sizes: Any) -> Tensor:
    """Where the elements of each window are sampled, -1 to 1: (batch groups, elements, height, width, 2)."""
    height, width = shifts.shape[3:]
    options: Any = {"device": shifts.device, "dtype": shifts.dtype}
    found = []
    for axis, (count, kernel) in enumerate(zip((height, width), window.kernel, strict=True)):
        starts = torch.arange(count, **options) * window.strides[axis] - window.begins[axis]
        reach = torch.arange(kernel, **options) * window.dilations[axis]
        # The elements of a window run row by row.
        reach = reach.repeat_interleave(window.kernel[1]) if axis == 0 else reach.repeat(window.kernel[0])
        starts = starts.reshape((-1, 1) if axis == 0 else (1, -1))
        at = reach.reshape(-1, 1, 1) + starts + shifts[:, :, axis]
        found.append(2 * at / max(1, sizes[axis] - 1) - 1)
    return torch.stack(found[::-1], -1)


# Non-maximum suppression: the best boxes of each class that do not overlap a better one too much.


@maker("NonMaxSuppression")
def _non_max_suppression(node: OperatorNode) -> Function:
    centred = bool(node["center_point_box"])

    def suppress(boxes: Tensor, scores: Tensor, most: Any = None, overlap: Any = None, threshold: Any = None) -> Tensor:
        """Rows of (batch, class, box), best first within a class; all classes of all batches are done side by side."""
        count = min(0 if most is None else int(np.asarray(most).item()), boxes.shape[1])
        limit = 0.0 if overlap is None else float(np.asarray(overlap).item())
        left = scores
        if threshold is not None:
            left = torch.where(scores > float(np.asarray(threshold).item()), scores, -math.inf)
        if count == 0 or scores.numel() == 0:
            return torch.zeros((0, 3), dtype=torch.int64, device=boxes.device)
        # (batch, 1, box, box), for all classes.
        near = (_overlaps(boxes, centred) > limit).unsqueeze(1)
        near = near | torch.eye(boxes.shape[1], dtype=torch.bool, device=boxes.device)
        chosen, found = [], []
        for _ in range(count):
            best = left.argmax(-1, keepdim=True)
            found.append(left.gather(-1, best) > -math.inf)
            chosen.append(best)
            rows = near.expand(-1, scores.shape[1], -1, -1)
            gone = rows.gather(2, best.unsqueeze(-1).expand(-1, -1, -1, rows.shape[3])).squeeze(2)
            left = left.masked_fill(gone, -math.inf)
        real, picked = torch.cat(found, -1), torch.cat(chosen, -1)
        places = torch.nonzero(real)
        return torch.cat([places[:, :2], picked[real].unsqueeze(1)], 1)

    return suppress


def _overlaps(boxes: Tensor, centred: bool) -> Tensor:
    """Intersection over union of all pairs: (batch, box, box); 0 with a box without area."""
    if centred:
        middle, half = boxes[..., :2], boxes[..., 2:] / 2
        low, high = middle - half, middle + half
    else:
        # Two opposite corners, in any order.
        low = torch.minimum(boxes[..., :2], boxes[..., 2:])
        high = torch.maximum(boxes[..., :2], boxes[..., 2:])
    areas = (high - low).prod(-1)
    sides = torch.minimum(high.unsqueeze(2), high.unsqueeze(1)) - torch.maximum(low.unsqueeze(2), low.unsqueeze(1))
    common = sides.clamp(min=0).prod(-1)
    union = areas.unsqueeze(2) + areas.unsqueeze(1) - common
    return torch.where((common > 0) & (union > 0), common / union, 0)
