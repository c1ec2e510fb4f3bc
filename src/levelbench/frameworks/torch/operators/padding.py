"""Pad: constants, edges, reflections and wraps, on any axes, with negative numbers that cut off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from levelbench.frameworks.torch.operators.registry import Function, maker
from levelbench.operators.node import OperatorNode

__all__: list[str] = []


@maker("Pad")
def _pad(node: OperatorNode) -> Function:
    mode = node["mode"]

    def pad(x: Tensor, pads: NDArray[Any], constant: Tensor | None = None, axes: NDArray[Any] | None = None) -> Tensor:
        count = pads.size // 2
        chosen = range(count) if axes is None else axes.tolist()
        begins, ends = [0] * x.dim(), [0] * x.dim()
        for axis, begin, end in zip(chosen, pads[:count].tolist(), pads[count:].tolist(), strict=True):
            begins[axis], ends[axis] = begin, end
        if mode == "constant":
            return _with_constant(x, begins, ends, constant)
        for axis, (begin, end) in enumerate(zip(begins, ends, strict=True)):
            # What is cut off is not reflected or repeated.
            if begin < 0 or end < 0:
                x = x.narrow(axis, max(-begin, 0), x.shape[axis] + min(begin, 0) + min(end, 0))
            if begin > 0 or end > 0:
                x = x.index_select(axis, _source(x.shape[axis], max(begin, 0), max(end, 0), mode, x.device))
        return x

    return pad


def _with_constant(x: Tensor, begins: Sequence[int], ends: Sequence[int], constant: Tensor | None) -> Tensor:
    flat = [each for pair in zip(reversed(begins), reversed(ends), strict=True) for each in pair]
    if constant is None:
        return functional.pad(x, flat)
    if constant.device.type == "cpu" and not constant.requires_grad:
        return functional.pad(x, flat, value=constant.item())
    # The value stays where it is: reading it would wait for the device, and lose its gradient.
    inside = functional.pad(torch.ones_like(x, dtype=torch.bool), flat)
    return torch.where(inside, functional.pad(x, flat), constant.reshape(()))


def _source(length: int, begin: int, end: int, mode: str, device: torch.device) -> Tensor:
    """Where the elements along an axis are taken from."""
    at = torch.arange(-begin, length + end, device=device)
    if mode == "edge":
        return at.clamp(0, length - 1)
    if mode == "wrap":
        return at % length
    # Reflections repeat after a way to the last element and back, which are not doubled.
    period = max(1, 2 * (length - 1))
    at = at % period
    return torch.minimum(at, period - at)
