"""Sliding windows and images: convolutions, pooling, Resize, sampling on grids, NonMaxSuppression.

PyTorch pads both ends of an axis by the same amount; any other padding or cropping of ONNX is applied before.
"""

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
from levelbench.frameworks.shared.windows import Window, Windows, counts_of
from levelbench.frameworks.torch.operators.elementwise import saturated, shifted
from levelbench.frameworks.torch.operators.registry import device_maker, library, maker, operator, refuse, table
from levelbench.operators.contract import Function
from levelbench.operators.node import OperatorNode


def pad_ends(x: Tensor, padding: Sequence[tuple[int, int]], value: float = 0) -> Tensor:
    """``x`` with its last axes padded before and after; negative padding crops."""
    flat = [each for pair in reversed(padding) for each in pair]
    return functional.pad(x, flat, value=value) if any(flat) else x


def short(values: tuple[int, ...]) -> int | tuple[int, ...]:
    """A single number if all values are the same: PyTorch parses it faster than a tuple."""
    return values[0] if values and len(set(values)) == 1 else values


# Convolutions over one to three axes: plain, transposed, causal with a state, quantised.


_BY_RANK = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_TRANSPOSED = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}


@maker("Conv")
def _convolution(node: OperatorNode) -> Function:
    """PyTorch's own convolution wherever both ends get the same padding."""
    window, groups = Window.of(node), node["group"]
    if not window.rank and not window.automatic:
        return lambda x, w, b=None: _BY_RANK[x.dim() - 2](x, w, b, 1, 0, 1, groups)
    if window.even:
        function = _BY_RANK[window.rank]
        strides, dilations = short(window.strides), short(window.dilations)
        padding = 0 if window.auto_pad == "VALID" else short(window.begins)
        return lambda x, w, b=None: function(x, w, b, strides, padding, dilations, groups)

    def conv(x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        here = window.filled(x.dim() - 2, w.shape[2:])
        padding = here.padding(x.shape[2:])
        both = tuple(max(0, min(pair)) for pair in padding)
        rest = [(begin - even, end - even) for (begin, end), even in zip(padding, both, strict=True)]
        function = _BY_RANK[x.dim() - 2]
        return function(pad_ends(x, rest), w, b, here.strides, both, here.dilations, groups)

    return conv


@maker("ConvTranspose")
def _conv_transpose(node: OperatorNode) -> Function:
    window, groups = Window.of(node), node["group"]
    extra, wanted = node.get("output_padding"), node.get("output_shape")
    if window.rank and window.even and wanted is None and window.auto_pad != "VALID":
        more = tuple(extra) if extra else (0,) * window.rank
        # PyTorch accepts output_padding only below the stride or dilation.
        if all(each < max(pair) for each, *pair in zip(more, window.strides, window.dilations, strict=True)):
            function, strides, dilations = _TRANSPOSED[window.rank], window.strides, window.dilations
            padding = window.begins
            return lambda x, w, b=None: function(x, w, b, strides, padding, more, groups, dilations)

    def conv_transpose(x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        here = window.filled(x.dim() - 2, w.shape[2:])
        full = _TRANSPOSED[here.rank](x, w, None, here.strides, 0, 0, groups, here.dilations)
        found = pad_ends(full, [(-begin, -end) for begin, end in here.lost(x.shape[2:], extra, wanted)])
        return found if b is None else found + b.reshape(-1, *[1] * here.rank)

    return conv_transpose


@operator("CausalConvWithState")
def _causal_conv(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, past: Tensor | None = None, *, activation: str
) -> tuple[Tensor, Tensor]:
    gated = activation in ("silu", "swish")
    reach = weight.shape[2] - 1
    longer = functional.pad(x, (reach, 0)) if past is None else torch.cat([past, x], 2)
    output = functional.conv1d(longer, weight, bias, groups=x.shape[1])
    return functional.silu(output) if gated else output, longer[:, :, longer.shape[2] - reach :]


@maker("ConvInteger")
def _conv_integer(node: OperatorNode) -> Function:
    conv = _convolution(node)

    def integer(x: Tensor, w: Tensor, x_zero: Tensor | None = None, w_zero: Tensor | None = None) -> Tensor:
        return conv(shifted(x, x_zero), shifted(w, w_zero, by_first=True)).to(torch.int32)

    return integer


@maker("QLinearConv")
def _q_linear_conv(node: OperatorNode) -> Function:
    conv = _convolution(node)

    def quantised(
        x: Tensor,
        x_scale: Tensor,
        x_zero: Tensor,
        w: Tensor,
        w_scale: Tensor,
        w_zero: Tensor,
        y_scale: Tensor,
        y_zero: Tensor,
        bias: Tensor | None = None,
    ) -> Tensor:
        total = conv(shifted(x, x_zero), shifted(w, w_zero, by_first=True), None if bias is None else bias.double())
        scale = x_scale.double() * w_scale.double() / y_scale.double()
        if scale.numel() > 1:
            scale = scale.reshape(-1, *[1] * (x.dim() - 2))
        return saturated(torch.round(total * scale) + y_zero.double(), y_zero.dtype)

    return quantised


# Pooling: maxima with their indices, averages, Lp norms, global pooling, and MaxUnpool.


_MAX = {1: torch.max_pool1d, 2: torch.max_pool2d, 3: torch.max_pool3d}
_MAX_AT = {
    1: torch.max_pool1d_with_indices,
    2: torch._C._nn.max_pool2d_with_indices,
    3: torch._C._nn.max_pool3d_with_indices,
}
_AVERAGE = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}
_CONVOLUTION = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}


def _native(window: Window) -> bool:
    """Whether PyTorch's own pooling supports the padding: the same at both ends, at most half a kernel."""
    return window.even and all(2 * begin <= size for begin, size in zip(window.begins, window.kernel, strict=True))


def _begins(window: Window) -> tuple[int, ...]:
    return (0,) * window.rank if window.auto_pad == "VALID" else window.begins


@maker("MaxPool")
def _max_pool(node: OperatorNode) -> Function:
    window, ceil = Window.of(node), bool(node.get("ceil_mode", 0))
    places, by_column = len(node.outputs) > 1, bool(node.get("storage_order", 0))
    function = (_MAX_AT if places else _MAX)[window.rank]
    kernel, strides, dilations = short(window.kernel), short(window.strides), short(window.dilations)
    begins, native = short(_begins(window)), _native(window)

    if native and not places:
        return lambda x: function(x, kernel, strides, begins, dilations, ceil)

    def pool(x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        if native:
            return function(x, kernel, strides, begins, dilations, ceil)
        padding = window.over(x.shape[2:]).needed(x.shape[2:])
        return function(pad_ends(x, padding, -math.inf), kernel, strides, 0, dilations, False)

    def max_pool(x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        # PyTorch pools floating-point numbers only; a float represents eight-bit integers exactly.
        found = pool(x if x.is_floating_point() else x.float())
        if isinstance(found, Tensor):
            return found.to(x.dtype)
        values, at = found
        padding = None if native else window.over(x.shape[2:]).needed(x.shape[2:])
        return values.to(x.dtype), _places(at, x.shape, padding, by_column)

    return max_pool


def _places(at: Tensor, shape: Sequence[int], padding: Sequence[tuple[int, int]] | None, by_column: bool) -> Tensor:
    """Indices in the whole input from those in a plane, which may have been padded."""
    sizes = shape[2:]
    if padding is not None or by_column:
        wide = [size + sum(pair) for size, pair in zip(sizes, padding or [(0, 0)] * len(sizes), strict=True)]
        coordinates = []
        for axis in reversed(range(len(sizes))):
            begin = padding[axis][0] if padding is not None else 0
            coordinates.append(at % wide[axis] - begin)
            at = at // wide[axis]
        coordinates.reverse()
        order = range(len(sizes)) if by_column else reversed(range(len(sizes)))
        at, step = torch.zeros_like(at), 1
        for axis in order:
            at = at + coordinates[axis] * step
            step *= sizes[axis]
    planes = torch.arange(shape[0] * shape[1], device=at.device) * math.prod(sizes)
    return at + planes.reshape(shape[0], shape[1], *[1] * len(sizes))


@maker("AveragePool")
def _average_pool(node: OperatorNode) -> Function:
    window, count_padding = Window.of(node), bool(node["count_include_pad"])
    if _native(window) and set(window.dilations) == {1}:
        function, kernel, strides, begins = _AVERAGE[window.rank], window.kernel, window.strides, _begins(window)
        ceil = window.ceil
        return lambda x: function(x, kernel, strides, begins, ceil, count_padding)

    def average_pool(x: Tensor) -> Tensor:
        windows = window.over(x.shape[2:])
        counts = torch.from_numpy(counts_of(windows, tuple(x.shape[2:]), count_padding)).to(x.device, x.dtype)
        return _sums(x, window, windows.needed(x.shape[2:])) / counts

    return average_pool


def _sums(x: Tensor, window: Window, padding: Sequence[tuple[int, int]]) -> Tensor:
    """The sum of each window, by a convolution with ones."""
    padded = pad_ends(x, padding)
    planes = padded.reshape(-1, 1, *padded.shape[2:])
    ones = x.new_ones((1, 1, *window.kernel))
    found = _CONVOLUTION[window.rank](planes, ones, None, window.strides, 0, window.dilations)
    return found.reshape(*x.shape[:2], *found.shape[2:])


@maker("LpPool")
def _lp_pool(node: OperatorNode) -> Function:
    window, p = Window.of(node), node["p"]

    def lp_pool(x: Tensor) -> Tensor:
        padding = window.over(x.shape[2:]).needed(x.shape[2:])
        total = _sums(x.abs().pow(p), window, padding)
        # A root has no derivative at zero.
        nothing = total == 0
        return total.masked_fill(nothing, 1).pow(1.0 / p).masked_fill(nothing, 0)

    return lp_pool


def _spatial(x: Tensor) -> tuple[int, ...]:
    return tuple(range(2, x.dim()))


table(
    GlobalAveragePool=lambda x: x.mean(_spatial(x), True),
    GlobalMaxPool=lambda x: torch.amax(x, _spatial(x), True),
    GlobalLpPool=lambda x, *, p: torch.linalg.vector_norm(x, p, _spatial(x), True),
)


@maker("MaxUnpool")
def _max_unpool(node: OperatorNode) -> Function:
    window = Window.of(node)

    def max_unpool(x: Tensor, places: Tensor, shape: Host | None = None) -> Tensor:
        inferred = (*x.shape[:2], *window.pooled(x.shape[2:]))
        flat = x.new_zeros(math.prod(inferred)).scatter(0, places.reshape(-1), x.reshape(-1))
        found = flat.reshape(inferred)
        if shape is None:
            return found
        return pad_ends(found, [(0, size - have) for size, have in zip(shape.tolist(), inferred, strict=True)])

    return max_unpool


_nn: Any = torch._C._nn
_LINEAR = {3: _nn.upsample_linear1d, 4: _nn.upsample_bilinear2d, 5: _nn.upsample_trilinear3d}
_NEAREST = {3: _nn.upsample_nearest1d, 4: _nn.upsample_nearest2d, 5: _nn.upsample_nearest3d}


@device_maker("Resize", "Upsample")
def _resize(node: OperatorNode, device: torch.device) -> Function:
    return resizing(node, library(device), _by_kernel)


def _by_kernel(x: Tensor, changes: Sequence[AxisChange], rule: ResizeRule) -> Tensor | None:
    """The result of PyTorch's kernel, where it uses the same elements and weights; else ``None``."""
    if x.dim() not in _LINEAR or min(each.axis for each in changes) < 2 or not x.is_floating_point():
        return None
    if rule.exclude_outside or rule.antialias:
        return None
    sizes, scales = list(x.shape[2:]), [1.0] * (x.dim() - 2)
    for each in changes:
        sizes[each.axis - 2], scales[each.axis - 2] = each.target, each.scale
    if rule.mode == "nearest":
        # The kernel computes positions in single precision, which is exact for scales that are powers of two.
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
        return _nn.upsample_bicubic2d(x, sizes, corners, *scales)
    return None


# Sampling on grids, affine grids, columns to images, deformable convolutions.


_MODES = {"linear": "bilinear", "cubic": "bicubic"}


@maker("GridSample")
def _grid_sample(node: OperatorNode) -> Function:
    mode, padding, corners = node["mode"], node["padding_mode"], bool(node["align_corners"])
    mode = _MODES.get(mode, mode)

    def sample(x: Tensor, grid: Tensor) -> Tensor:
        if x.dim() not in (4, 5) or (x.dim() == 5 and mode == "bicubic"):
            raise refuse(node, f"PyTorch samples images, and volumes except with cubic, not rank {x.dim()} with {mode}")
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
    """Adds each block at its position in a padded image, and crops the padding."""
    wide = [sum(each) for each in zip(windows.before, sizes, windows.after, strict=True)]
    rank = len(sizes)
    at = np.zeros((1,) * 2 * rank, np.int64)
    for axis in range(rank):
        # Axes 0 to rank - 1 run over the elements of a block, the other axes over the blocks.
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
            raise refuse(node, "it is implemented for two spatial axes")
        here = window.filled(2, weight.shape[2:])
        (batch, channels), (height, width) = x.shape[:2], offset.shape[2:]
        elements = math.prod(here.kernel)
        shifts = offset.reshape(batch * offset_groups, elements, 2, height, width)
        grid = _sampling_grid(here, shifts, x.shape[2:])
        # Each group of channels is sampled at its own positions: (batch groups, channels, elements, height, width).
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


def _sampling_grid(window: Window, shifts: Tensor, sizes: Sequence[int]) -> Tensor:
    """Sampling positions of the elements of each window, in [-1, 1]: (batch groups, elements, height, width, 2)."""
    height, width = shifts.shape[3:]
    options: Any = {"device": shifts.device, "dtype": shifts.dtype}
    found = []
    for axis, (count, kernel) in enumerate(zip((height, width), window.kernel, strict=True)):
        starts = torch.arange(count, **options) * window.strides[axis] - window.begins[axis]
        reach = torch.arange(kernel, **options) * window.dilations[axis]
        # Elements of a window are in row-major order.
        reach = reach.repeat_interleave(window.kernel[1]) if axis == 0 else reach.repeat(window.kernel[0])
        starts = starts.reshape((-1, 1) if axis == 0 else (1, -1))
        at = reach.reshape(-1, 1, 1) + starts + shifts[:, :, axis]
        found.append(2 * at / max(1, sizes[axis] - 1) - 1)
    return torch.stack(found[::-1], -1)


# Non-maximum suppression: the best boxes of each class that do not overlap a better box too much.


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
    """Rows of (batch, class, box), best first within a class; all batches and classes are processed together."""
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
    """Intersection over union of all pairs, (batch, box, box); 0 for a box without area."""
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
