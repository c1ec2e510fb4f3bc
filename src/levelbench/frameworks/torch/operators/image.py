"""Images: sampling on grids, affine grids, columns to images, and pooling of regions."""

from __future__ import annotations

import math
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from levelbench.frameworks.torch.operators.registry import Function, maker, refuse
from levelbench.frameworks.torch.operators.windows import Window
from levelbench.operators.node import OperatorNode

__all__: list[str] = []

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
