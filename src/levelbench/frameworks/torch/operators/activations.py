"""Activation functions, gated ones among them, and the softmax family."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from levelbench.frameworks.torch.operators.registry import Function, maker, plain
from levelbench.operators.node import OperatorNode

__all__: list[str] = []

# PyTorch's softplus is the identity beyond its threshold; log(1 + exp(-40)) is below half a unit of a double there.
_STRAIGHT = 40.0

plain(
    {
        "HardSwish": functional.hardswish,
        "Mish": functional.mish,
        "Relu": torch.relu,
        "Sigmoid": torch.sigmoid,
        "Softsign": functional.softsign,
    }
)


@maker("Softplus")
def _softplus(_: OperatorNode) -> Function:
    return lambda x: functional.softplus(x, 1.0, _STRAIGHT)


@maker("LeakyRelu")
def _leaky_relu(node: OperatorNode) -> Function:
    alpha = node["alpha"]
    return lambda x: functional.leaky_relu(x, alpha)


@maker("Elu")
def _elu(node: OperatorNode) -> Function:
    alpha = node["alpha"]
    return lambda x: functional.elu(x, alpha)


@maker("Celu")
def _celu(node: OperatorNode) -> Function:
    alpha = node["alpha"]
    return lambda x: functional.celu(x, alpha)


@maker("Selu")
def _selu(node: OperatorNode) -> Function:
    alpha, gamma = node["alpha"], node["gamma"]
    return lambda x: functional.elu(x, alpha) * gamma


@maker("Gelu")
def _gelu(node: OperatorNode) -> Function:
    if node["approximate"] == "tanh":
        return lambda x: functional.gelu(x, approximate="tanh")
    return functional.gelu


@maker("HardSigmoid")
def _hard_sigmoid(node: OperatorNode) -> Function:
    alpha, beta = node["alpha"], node["beta"]
    return lambda x: torch.clamp(x * alpha + beta, 0.0, 1.0)


@maker("PRelu")
def _prelu(_: OperatorNode) -> Function:
    def prelu(x: Tensor, slope: Tensor) -> Tensor:
        if x.is_floating_point():
            if slope.numel() == 1:
                return torch.prelu(x, slope.reshape(1))
            if slope.dim() == x.dim() - 1 and slope.numel() == slope.shape[0] == x.shape[1]:
                return torch.prelu(x, slope.reshape(-1))
        return torch.where(x < 0, x * slope, x)

    return prelu


@maker("Shrink")
def _shrink(node: OperatorNode) -> Function:
    bias, threshold = node["bias"], node["lambd"]

    def shrink(x: Tensor) -> Tensor:
        inner = torch.where(x > threshold, x - bias, 0)
        return torch.where(x < -threshold, x + bias, inner).to(x.dtype)

    return shrink


@maker("Swish")
def _swish(node: OperatorNode) -> Function:
    return _swish_of(node["alpha"])


@maker("SwiGLU")
def _swiglu(node: OperatorNode) -> Function:
    swish = _swish_of(node["alpha"])
    return lambda gate, value: swish(gate) * value


def _swish_of(alpha: float) -> Function:
    """X sigmoid(alpha x)."""
    if alpha == 1.0:
        return functional.silu
    return lambda x: x * torch.sigmoid(x * alpha)


@maker("ThresholdedRelu")
def _thresholded_relu(node: OperatorNode) -> Function:
    alpha = node["alpha"]
    return lambda x: functional.threshold(x, alpha, 0.0)


@maker("Softmax")
def _softmax(node: OperatorNode) -> Function:
    axis = node["axis"]
    return lambda x: torch.softmax(x, axis)


@maker("LogSoftmax")
def _log_softmax(node: OperatorNode) -> Function:
    axis = node["axis"]
    return lambda x: torch.log_softmax(x, axis)


@maker("Hardmax")
def _hardmax(node: OperatorNode) -> Function:
    axis = node["axis"]

    def hardmax(x: Tensor) -> Tensor:
        return torch.zeros_like(x).scatter_(axis, x.argmax(axis, keepdim=True), 1)

    return hardmax
