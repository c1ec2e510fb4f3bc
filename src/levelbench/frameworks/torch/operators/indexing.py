"""Reading elements by index: gathers, one-hot vectors, and what is found by a condition."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from levelbench.frameworks.torch.operators.registry import Function, device_maker, maker, plain
from levelbench.operators.node import OperatorNode

__all__ = ["risen"]


def risen(indices: Tensor, length: int) -> Tensor:
    """Indices of int64 in which those that count from the end are counted from the beginning."""
    return torch.where(indices < 0, indices + length, indices).long()


@device_maker("Gather")
def _gather(node: OperatorNode, device: torch.device) -> Function:
    axis, checked = node["axis"], device.type == "cpu"

    def take(x: Tensor, indices: Tensor) -> Tensor:
        """Rows, whose indices count from the beginning."""
        if axis == 0 and x.dim() == 2 and x.is_floating_point():
            return torch.embedding(x, indices)
        if indices.dim() == 1:
            return x.index_select(axis, indices)
        at = axis % x.dim()
        found = x.index_select(at, indices.reshape(-1))
        return found.reshape(x.shape[:at] + indices.shape + x.shape[at + 1 :])

    def gather(x: Tensor, indices: Tensor) -> Tensor:
        if checked:
            # On the CPU an index out of range is an error, so only then need it be looked at for negative ones.
            try:
                return take(x, indices)
            except (IndexError, RuntimeError) as error:
                if "out of" not in str(error):
                    raise
        return take(x, risen(indices, x.shape[axis]))

    return gather


@maker("GatherElements")
def _gather_elements(node: OperatorNode) -> Function:
    axis = node["axis"]
    return lambda x, indices: torch.gather(x, axis, risen(indices, x.shape[axis]))


@maker("GatherND")
def _gather_nd(node: OperatorNode) -> Function:
    batched = node.get("batch_dims", 0)

    def gather_nd(x: Tensor, indices: Tensor) -> Tensor:
        # One index a batch axis, shaped so that it goes with the indices of that batch.
        rank = indices.dim() - 1
        batches = [
            torch.arange(x.shape[axis], device=x.device).reshape([-1 if at == axis else 1 for at in range(rank)])
            for axis in range(batched)
        ]
        return x[(*batches, *indices.long().unbind(-1))]

    return gather_nd


@maker("OneHot")
def _one_hot(node: OperatorNode) -> Function:
    axis = node["axis"]

    def one_hot(indices: Tensor, depth: NDArray[Any], values: Tensor) -> Tensor:
        count = int(np.asarray(depth).item())
        at = axis % (indices.dim() + 1)
        # Anything outside of -depth to depth - 1 is nowhere hot.
        places = torch.where(indices < 0, indices + count, indices).unsqueeze(at)
        classes = torch.arange(count, device=indices.device).reshape([-1] + [1] * (indices.dim() - at))
        return torch.where(places == classes, values[1], values[0])

    return one_hot


@maker("Compress")
def _compress(node: OperatorNode) -> Function:
    axis = node.get("axis")

    def compress(x: Tensor, condition: NDArray[Any]) -> Tensor:
        chosen = torch.from_numpy(np.flatnonzero(condition)).to(x.device)
        return x.reshape(-1).index_select(0, chosen) if axis is None else x.index_select(axis, chosen)

    return compress


def _non_zero(x: Tensor) -> Tensor:
    """Indices of shape (rank, count): none, but a count, for a scalar."""
    return torch.nonzero(x).t()


plain({"NonZero": _non_zero})


@maker("Unique")
def _unique(node: OperatorNode) -> Function:
    axis, in_order = node.get("axis"), bool(node["sorted"])

    def unique(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        at = 0 if axis is None else axis
        source = x.reshape(-1) if axis is None else x
        # PyTorch has no gradient for it: the values are taken from the source, by where they come first.
        _, inverse, counts = torch.unique(source.detach(), return_inverse=True, return_counts=True, dim=at)
        places = torch.arange(source.shape[at], device=x.device)
        first = torch.full_like(counts, source.shape[at]).scatter_reduce(0, inverse, places, "amin")
        if not in_order:
            order = torch.argsort(first)
            rank = torch.empty_like(order).scatter(0, order, torch.arange(len(order), device=x.device))
            first, counts, inverse = first[order], counts[order], rank[inverse]
        return source.index_select(at, first), first, inverse, counts

    return unique


@maker("ArrayFeatureExtractor", domain="ai.onnx.ml")
def _array_feature_extractor(_: OperatorNode) -> Function:
    def extract(x: Tensor, indices: Tensor) -> Tensor:
        found = x[..., indices.reshape(-1)]
        return found.unsqueeze(0) if x.dim() == 1 else found

    return extract


@maker("Binarizer", domain="ai.onnx.ml")
def _binarizer(node: OperatorNode) -> Function:
    threshold = node["threshold"]
    return lambda x: (x > threshold).to(x.dtype)
