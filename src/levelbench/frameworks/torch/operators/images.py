"""Images: Resize, GridSample, AffineGrid, Col2Im, RoiAlign, DeformConv and NonMaxSuppression."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from levelbench.frameworks.shared.operators import Host
from levelbench.frameworks.shared.resize import AxisChange, ResizeRule, resizing
from levelbench.frameworks.shared.windows import Window, Windows
from levelbench.frameworks.torch.operators.registry import Function, device_maker, library, maker, operator, refuse
from levelbench.operators.node import OperatorNode

_native: Any = torch._C._nn
_LINEAR = {3: _native.upsample_linear1d, 4: _native.upsample_bilinear2d, 5: _native.upsample_trilinear3d}
_NEAREST = {3: _native.upsample_nearest1d, 4: _native.upsample_nearest2d, 5: _native.upsample_nearest3d}


@device_maker("Resize", "Upsample")
def _resize(node: OperatorNode, device: torch.device) -> Function:
    return resizing(node, library(device), _by_kernel)


def _by_kernel(x: Tensor, changes: Sequence[AxisChange], rule: ResizeRule) -> Tensor | None:
    """By PyTorch's kernel, where it takes the same elements with the same weights; else ``None``."""
    if x.dim() not in _LINEAR or min(each.axis for each in changes) < 2 or not x.is_floating_point():
        return None
    if rule.exclude_outside or rule.antialias:
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


@operator("AffineGrid")
def _affine_grid(theta: Tensor, size: Tensor, *, align_corners: int) -> Tensor:
    return functional.affine_grid(theta, size.tolist(), bool(align_corners))


@maker("Col2Im")
def _col2im(node: OperatorNode) -> Function:
    window = Window.of(node)

    def col2im(x: Tensor, shape: Host, block: Host) -> Tensor:
        sizes, kernel = shape.tolist(), block.tolist()
        here = window.filled(len(sizes), kernel)
        if len(sizes) == 2 and here.even:
            return functional.fold(x, sizes, kernel, here.dilations, here.begins, here.strides)
        return _sum_of_blocks(x, sizes, here.over(sizes))

    return col2im


def _sum_of_blocks(x: Tensor, sizes: list[int], windows: Windows) -> Tensor:
    """Adds each block at its place in an image with its padding, which is then cut off."""
    wide = [sum(each) for each in zip(windows.before, sizes, windows.after, strict=True)]
    rank = len(sizes)
    at = np.zeros((1,) * 2 * rank, np.int64)
    for axis in range(rank):
        # Axes 0 to rank - 1 run over the elements of a block, the others over the blocks.
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = windows.kernel[axis], windows.out[axis]
        at = at * wide[axis] + (windows.places(axis).T + windows.before[axis]).reshape(shape)
    batch, elements = x.shape[0], math.prod(windows.kernel)
    columns = x.reshape(batch, -1, elements * x.shape[2])
    places = torch.from_numpy(at.reshape(-1)).to(x.device)
    image = x.new_zeros((batch, columns.shape[1], math.prod(wide))).index_add(2, places, columns)
    image = image.reshape(batch, -1, *wide)
    inside = [slice(begin, begin + size) for size, begin in zip(sizes, windows.before, strict=True)]
    return image[(slice(None), slice(None), *inside)]


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


def _places(window: Window, shifts: Tensor, sizes: Sequence[int]) -> Tensor:
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


@operator("NonMaxSuppression")
def _non_max_suppression(
    boxes: Tensor,
    scores: Tensor,
    most: Host | None = None,
    overlap: Host | None = None,
    threshold: Host | None = None,
    *,
    center_point_box: int,
) -> Tensor:
    """Rows of (batch, class, box), best first within a class; all classes of all batches are done side by side."""
    count = min(0 if most is None else int(np.asarray(most).item()), boxes.shape[1])
    limit = 0.0 if overlap is None else float(np.asarray(overlap).item())
    left = scores
    if threshold is not None:
        left = torch.where(scores > float(np.asarray(threshold).item()), scores, -math.inf)
    if count == 0 or scores.numel() == 0:
        return torch.zeros((0, 3), dtype=torch.int64, device=boxes.device)
    # (batch, 1, box, box), for all classes.
    near = (_overlaps(boxes, bool(center_point_box)) > limit).unsqueeze(1)
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
