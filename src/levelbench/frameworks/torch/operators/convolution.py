"""Convolutions and transposed convolutions over one to three axes, and the causal one with a state."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from levelbench.frameworks.torch.operators.registry import Function, maker
from levelbench.frameworks.torch.operators.windows import Window, pad_ends, short
from levelbench.operators.node import OperatorNode

__all__ = ["convolution"]

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


@maker("CausalConvWithState")
def _causal_conv(node: OperatorNode) -> Function:
    gated = node["activation"] in ("silu", "swish")

    def causal(
        x: Tensor, weight: Tensor, bias: Tensor | None = None, past: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        reach = weight.shape[2] - 1
        longer = functional.pad(x, (reach, 0)) if past is None else torch.cat([past, x], 2)
        output = functional.conv1d(longer, weight, bias, groups=x.shape[1])
        return functional.silu(output) if gated else output, longer[:, :, longer.shape[2] - reach :]

    return causal
