"""Normalisation over the batch, layers, groups, instances, channels and axes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from levelbench.frameworks.torch.arrays import torch_dtype
from levelbench.frameworks.torch.operators.registry import Function, maker, refuse
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


@maker("RMSNormalization")
def _rms_normalization(node: OperatorNode) -> Function:
    axis, epsilon = node["axis"], node["epsilon"]

    def rms(x: Tensor, scale: Tensor) -> Tensor:
        shape = x.shape[axis:]
        if scale.shape == shape and scale.dtype == x.dtype:
            return functional.rms_norm(x, shape, scale, epsilon)
        return (functional.rms_norm(x, shape, None, epsilon) * scale).to(scale.dtype)

    return rms


@maker("GroupNormalization")
def _group_normalization(node: OperatorNode) -> Function:
    groups, epsilon, by_group = node["num_groups"], node["epsilon"], node.opset < 21

    def group(x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        if by_group:
            # Before opset 21 there was one scale and bias a group.
            each = x.shape[1] // groups
            scale, bias = scale.repeat_interleave(each), bias.repeat_interleave(each)
        return functional.group_norm(x, groups, scale, bias, epsilon)

    return group


@maker("InstanceNormalization")
def _instance_normalization(node: OperatorNode) -> Function:
    epsilon = node["epsilon"]
    return lambda x, scale, bias: torch.instance_norm(x, scale, bias, None, None, True, 0.0, epsilon, True)


@maker("MeanVarianceNormalization")
def _mean_variance_normalization(node: OperatorNode) -> Function:
    axes: Sequence[int] = node.get("axes") or [0, 2, 3]

    def normalise(x: Tensor) -> Tensor:
        # ONNX adds its 1e-9 to the standard deviation; half precisions do not hold it.
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        variance, mean = torch.var_mean(wide, axes, correction=0, keepdim=True)
        return ((wide - mean) / (torch.sqrt(variance) + 1e-9)).to(x.dtype)

    return normalise


@maker("LpNormalization")
def _lp_normalization(node: OperatorNode) -> Function:
    axis, p = node["axis"], node["p"]

    def normalise(x: Tensor) -> Tensor:
        norm = torch.linalg.vector_norm(x, p, axis, True)
        # Zero over zero is zero here.
        return x / torch.where(norm == 0, 1, norm)

    return normalise


@maker("LRN")
def _lrn(node: OperatorNode) -> Function:
    """X / (bias + alpha / size * sum of squares of neighbouring channels) ^ beta (ONNX LRN)."""
    alpha, beta, bias, size = node["alpha"], node["beta"], node["bias"], node["size"]
    before, behind = (size - 1) // 2, size - 1 - (size - 1) // 2

    def lrn(x: Tensor) -> Tensor:
        squares = (x * x).reshape(x.shape[0], 1, x.shape[1], -1)
        padded = functional.pad(squares, (0, 0, before, behind))
        means = functional.avg_pool2d(padded, (size, 1), 1).reshape(x.shape)
        return x / torch.pow(bias + alpha * means, beta)

    return lrn
