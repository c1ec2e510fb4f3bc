"""Optimizers as operators: ONNX's preview of Momentum, Adam and Adagrad."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from levelbench.frameworks.torch.operators.registry import Function, maker
from levelbench.operators.node import OperatorNode

__all__: list[str] = []

_DOMAIN = "ai.onnx.preview.training"


def _each(states: int, update: Function) -> Function:
    """``update`` for each parameter: values, gradients and ``states`` kinds of state come one kind after the other."""

    def call(rate: Tensor, step: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        count = len(tensors) // (2 + states)
        kinds = [tensors[at : at + count] for at in range(0, len(tensors), count)]
        found: Sequence[tuple[Tensor, ...]] = [update(rate, step, *each) for each in zip(*kinds, strict=True)]
        return tuple(each for kind in zip(*found, strict=True) for each in kind)

    return call


@maker("Adagrad", domain=_DOMAIN)
def _adagrad(node: OperatorNode) -> Function:
    """Duchi et al. 2011, with ONNX's decay of the rate and regularisation."""
    decay, epsilon, norm = node["decay_factor"], node["epsilon"], node["norm_coefficient"]

    def update(rate: Tensor, step: Tensor, x: Tensor, gradient: Tensor, squares: Tensor) -> tuple[Tensor, ...]:
        whole = norm * x + gradient
        squares = squares + whole * whole
        return x - rate / (1 + step * decay) * whole / (torch.sqrt(squares) + epsilon), squares

    return _each(1, update)


@maker("Adam", domain=_DOMAIN)
def _adam(node: OperatorNode) -> Function:
    """Kingma and Ba 2015, with ONNX's regularisation before and after."""
    alpha, beta, epsilon = node["alpha"], node["beta"], node["epsilon"]
    norm, after = node["norm_coefficient"], node["norm_coefficient_post"]

    def update(
        rate: Tensor, step: Tensor, x: Tensor, gradient: Tensor, mean: Tensor, square: Tensor
    ) -> tuple[Tensor, ...]:
        whole = norm * x + gradient
        mean = alpha * mean + (1 - alpha) * whole
        square = beta * square + (1 - beta) * whole * whole
        # The first call has step 0, for which nothing is corrected.
        corrected = rate * torch.sqrt(1 - beta**step) / (1 - alpha**step)
        rate = torch.where(step > 0, corrected, rate)
        return (1 - after) * (x - rate * mean / (torch.sqrt(square) + epsilon)), mean, square

    return _each(2, update)


@maker("Momentum", domain=_DOMAIN)
def _momentum(node: OperatorNode) -> Function:
    alpha, beta, norm = node["alpha"], node["beta"], node["norm_coefficient"]
    nesterov = node["mode"] == "nesterov"

    def update(rate: Tensor, step: Tensor, x: Tensor, gradient: Tensor, momentum: Tensor) -> tuple[Tensor, ...]:
        whole = norm * x + gradient
        momentum = alpha * momentum + torch.where(step > 0, beta, 1.0) * whole
        return x - rate * (whole + alpha * momentum if nesterov else momentum), momentum

    return _each(1, update)
