"""Normalisation over the batch, layers, groups, instances, channels and axes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from levelbench.frameworks.torch.arrays import torch_dtype
from levelbench.frameworks.torch.operators.registry import Function, maker, operator, refuse
from levelbench.operators.node import OperatorNode


@maker("BatchNormalization")
def _batch_normalization(node: OperatorNode) -> Function:
    epsilon, momentum = node["epsilon"], node["momentum"]
    if node.opset < 14 and sum(map(bool, node.outputs)) > 1:
        raise refuse(node, "before opset 14 its further outputs were only for training", "use opset 14 or newer")
    if not node.get("training_mode", 0):

        def infer(x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
            if mean.requires_grad or variance.requires_grad:
                # The kernel has no gradient for the moments it is given.
                shape = (-1, *[1] * (x.dim() - 2))
                factor = scale * torch.rsqrt(variance + epsilon)
                return x * factor.reshape(shape) + (bias - mean * factor).reshape(shape)
            return torch.batch_norm(x, scale, bias, mean, variance, False, 0.0, epsilon, True)

        return infer

    def train(x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = torch.batch_norm(x, scale, bias, None, None, True, 0.0, epsilon, True)
        # ONNX keeps the variance over the population, PyTorch the one over n - 1.
        axes = [axis for axis in range(x.dim()) if axis != 1]
        here, there = torch.var_mean(x.to(mean.dtype), axes, correction=0)
        kept = 1 - momentum
        return y, mean * momentum + there * kept, variance * momentum + here * kept

    return train


@maker("LayerNormalization")
def _layer_normalization(node: OperatorNode) -> Function:
    axis, epsilon = node["axis"], node["epsilon"]
    stash = torch_dtype(node["stash_type"])
    count = len(node.outputs)

    def normalise(x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
        shape = x.shape[axis:]
        if scale.shape == shape and (bias is None or bias.shape == shape):
            return functional.layer_norm(x, shape, scale, bias, epsilon)
        found = functional.layer_norm(x, shape, None, None, epsilon) * scale
        return found if bias is None else found + bias

    if count == 1:
        return normalise

    def with_moments(x: Tensor, scale: Tensor, bias: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        axes = list(range(axis % x.dim(), x.dim()))
        variance, mean = torch.var_mean(x.to(stash), axes, correction=0, keepdim=True)
        return normalise(x, scale, bias), mean, torch.rsqrt(variance + epsilon)

    return with_moments


@operator("RMSNormalization")
def _rms_normalization(x: Tensor, scale: Tensor, *, axis: int, epsilon: float) -> Tensor:
    shape = x.shape[axis:]
    if scale.shape == shape and scale.dtype == x.dtype:
        return functional.rms_norm(x, shape, scale, epsilon)
    return (functional.rms_norm(x, shape, None, epsilon) * scale).to(scale.dtype)


@operator("GroupNormalization")
def _group_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, *, node: OperatorNode, num_groups: int, epsilon: float
) -> Tensor:
    by_group = node.opset < 21
    if by_group:
        # Before opset 21 there was one scale and bias a group.
        each = x.shape[1] // num_groups
        scale, bias = scale.repeat_interleave(each), bias.repeat_interleave(each)
    return functional.group_norm(x, num_groups, scale, bias, epsilon)


@operator("InstanceNormalization")
def _instance_normalization(x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float) -> Tensor:
    return torch.instance_norm(x, scale, bias, None, None, True, 0.0, epsilon, True)


@operator("LpNormalization")
def _lp_normalization(x: Tensor, *, axis: int, p: int) -> Tensor:
    norm = torch.linalg.vector_norm(x, p, axis, True)
    # Zero over zero is zero here.
    return x / torch.where(norm == 0, 1, norm)


@operator("LRN")
def _lrn(x: Tensor, *, alpha: float, beta: float, bias: float, size: int) -> Tensor:
    """X / (bias + alpha / size * sum of squares of neighbouring channels) ^ beta (ONNX LRN)."""
    before = (size - 1) // 2
    behind = size - 1 - (size - 1) // 2
    squares = (x * x).reshape(x.shape[0], 1, x.shape[1], -1)
    padded = functional.pad(squares, (0, 0, before, behind))
    means = functional.avg_pool2d(padded, (size, 1), 1).reshape(x.shape)
    return x / torch.pow(bias + alpha * means, beta)
