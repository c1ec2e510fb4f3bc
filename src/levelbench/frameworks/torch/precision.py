"""In which numbers and in which layout a network runs: autocast to bfloat16, images and kernels in channels-last order.

Parameters stay float32 and the lowered function stays what it is; it runs inside PyTorch's autocast, and what must not
lose digits (losses, softmaxes, sums, exponentials) gets float32. PyTorch's autocast does that by itself on a GPU and
only in part on a CPU, so it is done here, alike on every device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, final

import torch
from torch import Tensor

from levelbench.errors import UnknownNameError
from levelbench.networks.network import Network
from levelbench.operators.node import CUSTOM_DOMAIN, OperatorNode

__all__ = ["PRECISIONS", "Numerics"]

PRECISIONS = ("float32", "bfloat16")

# The float32 list of PyTorch's autocast on CUDA, as ONNX names it (pytorch.org/docs, "Automatic Mixed Precision").
_WIDE = frozenset({
    "Acos", "Asin", "Cosh", "CumSum", "Exp", "Log", "LogSoftmax", "NegativeLogLikelihoodLoss", "Pow", "Reciprocal",
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceProd", "ReduceSum",
    "ReduceSumSquare", "Sinh", "Softmax", "SoftmaxCrossEntropyLoss", "Softplus", "Tan",
})  # fmt: skip
_KERNELS = frozenset({"Conv", "ConvTranspose"})


@final
class Numerics:
    """Precision and layout of one executor; in plain float32 and ONNX's layout everything passes through untouched."""

    def __init__(self, network: Network, device: torch.device, precision: str, channels_last: bool) -> None:
        """``UnknownNameError`` for a precision that is none of ``PRECISIONS``."""
        if precision not in PRECISIONS:
            raise UnknownNameError("precision on torch", precision, PRECISIONS)
        self.precision, self.channels_last = precision, channels_last
        self._device = device
        self._mixed = precision == "bfloat16"
        self._kernels = frozenset(
            node.inputs[1] for node in network.nodes if channels_last and not node.domain and node.op_type in _KERNELS
        )

    def array(self, name: str, tensor: Tensor) -> Tensor:
        """A copy of a parameter or constant, a kernel of a convolution over images in channels-last order."""
        if name in self._kernels and tensor.dim() == 4:
            return tensor.clone(memory_format=torch.channels_last)
        return tensor.clone()

    def inputs(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Images in channels-last order, all else as it is."""
        if not self.channels_last:
            return tuple(inputs)
        return tuple(
            each.contiguous(memory_format=torch.channels_last)
            if each.dim() == 4 and each.is_floating_point() and each.shape[1] > 1
            else each
            for each in inputs
        )

    def around(self) -> AbstractContextManager[Any]:
        """What a forward is computed in; a backward is not, for autograd repeats the types of the forward."""
        return torch.autocast(self._device.type, torch.bfloat16) if self._mixed else nullcontext()

    def whole(self, function: Callable[..., tuple[Tensor, ...]], count: int) -> Callable[..., tuple[Tensor, ...]]:
        """A lowered function of ``count`` inputs and then arrays, in these numbers; its outputs are float32."""
        if not self._mixed:
            if not self.channels_last:
                return function
            return lambda *arguments: function(*self.inputs(arguments[:count]), *arguments[count:])

        def mixed(*arguments: Tensor) -> tuple[Tensor, ...]:
            with self.around():
                found = function(*self.inputs(arguments[:count]), *arguments[count:])
            return tuple(_wide(each) for each in found)

        return mixed

    def operator(self, node: OperatorNode, function: Callable[..., Any] | None) -> Callable[..., Any] | None:
        """The function of a node, given what it needs; ``None`` stays ``None``."""
        if function is None or not self.concerns(node):
            return function
        give = _plain if node.domain == CUSTOM_DOMAIN else _wide

        def given(*inputs: Any) -> Any:
            return function(*(give(each) if isinstance(each, Tensor) else each for each in inputs))

        return given

    def concerns(self, node: OperatorNode) -> bool:
        """Whether a node is to be given other inputs than it would get: a user's own, and those that lose digits."""
        if node.domain == CUSTOM_DOMAIN:
            return self._mixed or self.channels_last
        return self._mixed and not node.domain and node.op_type in _WIDE


def _wide(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype == torch.bfloat16 else tensor


def _plain(tensor: Tensor) -> Tensor:
    """As a custom operator knows tensors: float32 in ONNX's layout."""
    return _wide(tensor).contiguous()
