"""Operators of sliding windows: convolutions and pools.

PyTorch pads both ends of an axis alike. What ONNX asks for beyond that is put on, or cut off, before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from levelbench.frameworks.shared.windows import Window
from levelbench.frameworks.torch.operators.registry import Function, maker, operator, table
from levelbench.operators.node import OperatorNode

__all__ = ["convolution", "pad_ends", "short"]


def pad_ends(x: Tensor, padding: Sequence[tuple[int, int]], value: Any = 0) -> Tensor:
    """``x`` with its last axes padded before and behind; negative numbers cut off."""
    flat = [each for pair in reversed(padding) for each in pair]
    return functional.pad(x, flat, value=value) if any(flat) else x


def short(values: tuple[int, ...]) -> Any:
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
        padding: Any = 0 if window.auto_pad == "VALID" else short(window.begins)
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
        more = extra or [0] * here.rank
        full = _TRANSPOSED[here.rank](x, w, None, here.strides, 0, 0, groups, here.dilations)
        ends = _cut(here, x.shape[2:], full.shape[2:], more, wanted)
        found = pad_ends(full, ends)
        return found if b is None else found + b.reshape(-1, *[1] * here.rank)

    return conv_transpose


def _cut(window: Window, sizes: Any, full: Any, more: Any, wanted: Any) -> list[tuple[int, int]]:
    """What to put on (positive) or cut off at both ends of each axis of the full result."""
    if wanted is None and window.automatic:
        wanted = [size * stride for size, stride in zip(sizes, window.strides, strict=True)]
    if wanted is None:
        pairs = window.padding(sizes)
        return [(-begin, extra - end) for (begin, end), extra in zip(pairs, more, strict=True)]
    found = []
    # The last numbers of an output_shape are those of the spatial axes.
    for size, extra, target in zip(full, more, wanted[-len(full) :], strict=True):
        total = size + extra - target
        # ONNX: what is odd goes to the end for SAME_UPPER and to the beginning otherwise.
        begin = total // 2 if window.auto_pad == "SAME_UPPER" else total - total // 2
        found.append((-begin, extra - (total - begin)))
    return found


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

    def pool(x: Tensor) -> Any:
        if native:
            return function(x, kernel, strides, begins, dilations, ceil)
        padding = _required(window, x.shape[2:], ceil)
        return function(pad_ends(x, padding, -math.inf), kernel, strides, 0, dilations, False)

    def max_pool(x: Tensor) -> Any:
        # PyTorch pools floating-point numbers; a float holds each value of eight bits.
        found = pool(x if x.is_floating_point() else x.float())
        if not places:
            return found.to(x.dtype)
        values, at = found
        padding = None if native else _required(window, x.shape[2:], ceil)
        return values.to(x.dtype), _places(at, x.shape, padding, by_column)

    return max_pool


def _required(window: Window, sizes: Sequence[int], ceil: bool) -> list[tuple[int, int]]:
    """The padding, and at the end as much more as the last windows reach out, or less."""
    padding = window.padding(sizes)
    counts = window.outputs(sizes, padding, ceil and not window.automatic)
    return [
        (begin, (count - 1) * stride + window.extent(axis) - size - begin)
        for axis, (size, (begin, _), count, stride) in enumerate(
            zip(sizes, padding, counts, window.strides, strict=True)
        )
    ]


def _places(at: Tensor, shape: Sequence[int], padding: Any, by_column: bool) -> Tensor:
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
    window, ceil = Window.of(node), bool(node.get("ceil_mode", 0))
    count_padding = bool(node["count_include_pad"])
    if _native(window) and set(window.dilations) == {1}:
        function, kernel, strides, begins = _AVERAGE[window.rank], window.kernel, window.strides, _begins(window)
        return lambda x: function(x, kernel, strides, begins, ceil, count_padding)

    def average_pool(x: Tensor) -> Tensor:
        padding = window.padding(x.shape[2:])
        required = _required(window, x.shape[2:], ceil)
        counted = x.new_ones((1, 1, *x.shape[2:]))
        if count_padding:
            # What the last windows reach out beyond the padding counts for nothing.
            counted = pad_ends(counted, padding, 1)
            required_mask = [(0, end - given) for (_, end), (_, given) in zip(required, padding, strict=True)]
        else:
            required_mask = required
        return _sums(x, window, required) / _sums(counted, window, required_mask)

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
    window, ceil, p = Window.of(node), bool(node.get("ceil_mode", 0)), node["p"]

    def lp_pool(x: Tensor) -> Tensor:
        padding = _required(window, x.shape[2:], ceil)
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

    def max_unpool(x: Tensor, places: Tensor, shape: NDArray[Any] | None = None) -> Tensor:
        sizes = [
            (size - 1) * stride - begin - end + kernel
            for size, stride, begin, end, kernel in zip(
                x.shape[2:], window.strides, window.begins, window.ends, window.kernel, strict=True
            )
        ]
        inferred = (*x.shape[:2], *sizes)
        flat = x.new_zeros(math.prod(inferred)).scatter(0, places.reshape(-1), x.reshape(-1))
        found = flat.reshape(inferred)
        if shape is None:
            return found
        return pad_ends(found, [(0, size - have) for size, have in zip(shape.tolist(), inferred, strict=True)])

    return max_unpool
