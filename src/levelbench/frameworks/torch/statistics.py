"""Batch normalisation in training mode whose new running statistics are only kept, and not computed with.

The one idea: PyTorch's kernel updates running statistics as it goes. Nobody differentiates these, so the network need
not reduce its activations a second time for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from levelbench.networks.network import Network
from levelbench.operators.node import OperatorNode

__all__ = ["kept_only", "updating"]


def kept_only(network: Network) -> frozenset[str]:
    """The values that update a buffer and do nothing else."""
    read = {name for node in network.model.graph.node for name in node.input}
    subgraphs = any(attribute.HasField("g") for node in network.model.graph.node for attribute in node.attribute)
    shown = {each.name for each in network.model.graph.output}
    return frozenset() if subgraphs else frozenset(network.updates.values()) - read - shown


def updating(node: OperatorNode, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """BatchNormalization with its running statistics updated by the kernel; ``otherwise`` is the operator itself."""
    epsilon, momentum = node["epsilon"], node["momentum"]

    def train(x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Any:
        count = x.numel() // x.shape[1]
        if count < 2:
            return otherwise(x, scale, bias, mean, variance)
        new_mean, new_variance = mean.clone(), variance.clone()
        y = torch.batch_norm(x, scale, bias, new_mean, new_variance, True, 1 - momentum, epsilon, True)
        # PyTorch keeps the variance over n - 1, ONNX the one over n: m v + (1 - m) u becomes m v + (1 - m) u (n - 1)/n.
        # Not in place, for autograd has saved the kernel's.
        share = (count - 1) / count
        return y, new_mean, torch.add(new_variance * share, variance, alpha=momentum / count)

    return train
