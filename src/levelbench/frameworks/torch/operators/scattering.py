"""Writing elements by index, with or without a reduction of what meets at one place."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from levelbench.frameworks.torch.operators.indexing import risen
from levelbench.frameworks.torch.operators.registry import Function, maker
from levelbench.operators.node import OperatorNode

__all__: list[str] = []

_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@maker("Scatter", "ScatterElements")
def _scatter_elements(node: OperatorNode) -> Function:
    axis, reduction = node["axis"], _REDUCTIONS.get(node.get("reduction", "none"))

    def scatter(x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
        places = risen(indices, x.shape[axis])
        if reduction is None:
            return x.scatter(axis, places, updates)
        return x.scatter_reduce(axis, places, updates, reduction)

    return scatter


@maker("ScatterND")
def _scatter_nd(node: OperatorNode) -> Function:
    kind = node.get("reduction", "none")
    reduction = _REDUCTIONS.get(kind)

    def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
        if kind in ("none", "add"):
            return x.index_put(indices.long().unbind(-1), updates, accumulate=kind == "add")
        depth = indices.shape[-1]
        rows = torch.zeros(indices.shape[:-1], dtype=torch.int64, device=x.device)
        for axis in range(depth):
            rows = rows * x.shape[axis] + risen(indices[..., axis], x.shape[axis])
        width = math.prod(x.shape[depth:])
        # Each index names a row of elements, which are written side by side.
        places = rows.reshape(-1, 1).expand(-1, width)
        table = x.reshape(-1, width).scatter_reduce(0, places, updates.reshape(-1, width), reduction)
        return table.reshape(x.shape)

    return scatter_nd


@maker("TensorScatter")
def _tensor_scatter(node: OperatorNode) -> Function:
    axis, circular = node["axis"], node["mode"] == "circular"

    def tensor_scatter(cache: Tensor, update: Tensor, starts: Tensor | None = None) -> Tensor:
        at = axis % cache.dim()
        steps = torch.arange(update.shape[at], device=cache.device)
        places = steps.unsqueeze(0) if starts is None else starts.unsqueeze(1) + steps
        if circular:
            places = places % cache.shape[at]
        shape = [1] * cache.dim()
        shape[0], shape[at] = places.shape
        return cache.scatter(at, places.reshape(shape).expand(update.shape), update)

    return tensor_scatter
