"""Operators of sliding windows: convolutions and pools.

PyTorch pads both ends of an axis alike. What ONNX asks for beyond that is put on, or cut off, before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from levelbench.frameworks.shared.operators import Host
from levelbench.frameworks.shared.windows import Window, counts_of
from levelbench.frameworks.torch.operators.registry import Function, maker, operator, table
from levelbench.operators.node import OperatorNode

__all__ = ["convolution", "pad_ends", "short"]


def pad_ends(x: Tensor, padding: Sequence[tuple[int, int]], value: float = 0) -> Tensor:
    """``x`` with its last axes padded before and behind; negative numbers cut off."""
    flat = [each for pair in reversed(padding) for each in pair]
    return functional.pad(x, flat, value=value) if any(flat) else x


def short(values: tuple[int, ...]) -> int | tuple[int, ...]:
    """One number where all are the same: PyTorch reads it faster than a tuple."""
    return values[0] if values and len(set(values)) == 1 else values


# Convolutions and transposed convolutions over one to three axes, and the causal one with a state.


_BY_RANK = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_TRANSPOSED = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}


@maker("Conv")
def convolution(node: OperatorNode) -> Function:
    """PyTorch's convolution itself wherever both ends are padded alike."""
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
        # PyTorch takes additional rows only where they are fewer than a step of the window.
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


# Pooling: maxima with their places, averages, Lp norms, global ones, and the inverse of a maximum.


_MAX = {1: torch.max_pool1d, 2: torch.max_pool2d, 3: torch.max_pool3d}
_MAX_AT = {
    1: torch.max_pool1d_with_indices,
    2: torch._C._nn.max_pool2d_with_indices,
    3: torch._C._nn.max_pool3d_with_indices,
}
_AVERAGE = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}
_CONVOLUTION = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}


def _native(window: Window) -> bool:
    """Whether PyTorch's own pooling takes this padding: alike at both ends, half a kernel at most."""
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
        # PyTorch pools floating-point numbers; a float holds each value of eight bits.
        found = pool(x if x.is_floating_point() else x.float())
        if isinstance(found, Tensor):
            return found.to(x.dtype)
        values, at = found
        padding = None if native else window.over(x.shape[2:]).needed(x.shape[2:])
        return values.to(x.dtype), _places(at, x.shape, padding, by_column)

    return max_pool


def _places(at: Tensor, shape: Sequence[int], padding: Sequence[tuple[int, int]] | None, by_column: bool) -> Tensor:
    """Positions in the whole input from those in a plane, which may have been padded."""
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
    """The sum of each window, as a convolution with ones."""
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
        return _sums(x.abs().pow(p), window, padding).pow(1.0 / p)

    return lp_pool


def _spatial(x: Tensor) -> tuple[int, ...]:
    return tuple(range(2, x.dim()))


table(
    {
        "GlobalAveragePool": lambda x: x.mean(_spatial(x), True),
        "GlobalMaxPool": lambda x: torch.amax(x, _spatial(x), True),
        "GlobalLpPool": lambda x, *, p: torch.linalg.vector_norm(x, p, _spatial(x), True),
    }
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
