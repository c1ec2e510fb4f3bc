"""Operators that draw random numbers."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from levelbench.frameworks.shared.operators import Host
from levelbench.frameworks.torch.arrays import torch_dtype
from levelbench.frameworks.torch.operators.registry import Function, device_maker
from levelbench.operators.node import OperatorNode


def _generator(node: OperatorNode, device: torch.device) -> torch.Generator | None:
    """Its own one for a node with a seed, else PyTorch's, which the backend seeds."""
    seed = node.get("seed")
    if seed is None:
        return None
    # The seed is a float: its bits, for its whole part is often the same.
    return torch.Generator(device).manual_seed(int(np.float32(seed).view(np.uint32)))


def _type(node: OperatorNode) -> torch.dtype | None:
    code = node.get("dtype")
    return None if code is None else torch_dtype(code)


@device_maker("RandomNormal", "RandomNormalLike")
def _random_normal(node: OperatorNode, device: torch.device) -> Function:
    mean, scale = node["mean"], node["scale"]
    return _random(node, device, lambda x, generator: x.normal_(mean, scale, generator=generator))


@device_maker("RandomUniform", "RandomUniformLike")
def _random_uniform(node: OperatorNode, device: torch.device) -> Function:
    low, high = node["low"], node["high"]
    return _random(node, device, lambda x, generator: x.uniform_(low, high, generator=generator))


def _random(node: OperatorNode, device: torch.device, fill: Function) -> Function:
    generator, dtype = _generator(node, device), _type(node)
    shape = node.get("shape")

    def like(x: Tensor) -> Tensor:
        return fill(torch.empty(x.shape, dtype=dtype or x.dtype, device=device), generator)

    return like if shape is None else lambda: fill(torch.empty(shape, dtype=dtype, device=device), generator)


@device_maker("Bernoulli")
def _bernoulli(node: OperatorNode, device: torch.device) -> Function:
    generator, dtype = _generator(node, device), _type(node)
    return lambda x: torch.bernoulli(x, generator=generator).to(dtype or x.dtype)


@device_maker("Multinomial")
def _multinomial(node: OperatorNode, device: torch.device) -> Function:
    generator, dtype, count = _generator(node, device), _type(node) or torch.int32, node["sample_size"]

    def multinomial(x: Tensor) -> Tensor:
        # The input is logarithms of probabilities that need not add up to one.
        return torch.multinomial(torch.softmax(x, -1), count, replacement=True, generator=generator).to(dtype)

    return multinomial


@device_maker("Dropout")
def _dropout(node: OperatorNode, device: torch.device) -> Function:
    generator, with_mask = _generator(node, device), len(node.outputs) > 1
    old_mask = node.opset < 10

    def dropout(x: Tensor, ratio: Host | None = None, training: Host | None = None) -> Tensor | tuple[Tensor, Tensor]:
        share = 0.5 if ratio is None else float(np.asarray(ratio).item())
        if training is None or not np.asarray(training).item() or share == 0.0:
            return (x, torch.ones_like(x, dtype=x.dtype if old_mask else torch.bool)) if with_mask else x
        if generator is None:
            return torch.native_dropout(x, share, True) if with_mask else torch.dropout(x, share, True)
        mask = torch.rand(x.shape, generator=generator, device=x.device) >= share
        return torch.where(mask, x / (1 - share), 0), mask

    return dropout
