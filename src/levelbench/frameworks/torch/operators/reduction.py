"""Reductions along axes, running sums and products, arg-extrema, and the k largest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from levelbench.frameworks.torch.operators.registry import Function, maker
from levelbench.frameworks.torch.operators.unsigned import modular, ordered
from levelbench.operators.node import OperatorNode

__all__: list[str] = []

Reduce = Any
"""Takes a tensor, a non-empty list of axes and whether to keep them."""


def _total(x: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
    # PyTorch would sum integers in, and answer with, 64 bits.
    return x.sum(axes, keep, dtype=None if x.is_floating_point() else x.dtype)


def _mean(x: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
    return x.mean(axes, keep) if x.is_floating_point() else x.double().mean(axes, keep).to(x.dtype)


def _product(x: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
    for axis in sorted((axis % x.dim() for axis in axes), reverse=True):
        x = torch.prod(x, axis, keep, dtype=x.dtype)
    return x


def _largest(x: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
    if x.numel() == 0:
        return _of_nothing(x, axes, keep, False)
    return torch.amax(x, axes, keep)


def _smallest(x: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
    if x.numel() == 0:
        return _of_nothing(x, axes, keep, True)
    return torch.amin(x, axes, keep)


def _of_nothing(x: Tensor, axes: Sequence[int], keep: bool, largest: bool) -> Tensor:
    """The neutral element of a minimum (``largest``) or maximum."""
    if x.dtype == torch.bool:
        value: Any = largest
    elif x.is_floating_point():
        value = torch.inf if largest else -torch.inf
    else:
        value = torch.iinfo(x.dtype).max if largest else torch.iinfo(x.dtype).min
    reduced = {axis % x.dim() for axis in axes}
    shape = [1 if axis in reduced else size for axis, size in enumerate(x.shape) if keep or axis not in reduced]
    return x.new_full(shape, value)


def _log_sum_exp(x: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
    if x.is_floating_point():
        return torch.logsumexp(x, axes, keep)
    return torch.logsumexp(x.double(), axes, keep).to(x.dtype)


def _norm(x: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
    if x.is_floating_point():
        return torch.linalg.vector_norm(x, 2, axes, keep)
    return torch.linalg.vector_norm(x.double(), 2, axes, keep).to(x.dtype)


_REDUCTIONS: dict[str, Reduce] = {
    "L1": lambda x, axes, keep: _total(x.abs(), axes, keep),
    "L2": _norm,
    "LogSum": lambda x, axes, keep: torch.log(_total(x, axes, keep)).to(x.dtype),
    "LogSumExp": _log_sum_exp,
    "Max": _largest,
    "Mean": _mean,
    "Min": _smallest,
    "Prod": _product,
    "Sum": _total,
    "SumSquare": lambda x, axes, keep: _total(x * x, axes, keep),
}
# What an operator does to each element where no axis is reduced.
_ELEMENT: dict[str, Function] = {
    "L1": torch.abs,
    "L2": torch.abs,
    "LogSum": torch.log,
    "SumSquare": torch.square,
}


def _register(kind: str, reduce: Reduce) -> None:
    retry = ordered if kind in ("Max", "Min") else modular

    @maker(f"Reduce{kind}", unsigned=retry)
    def make(node: OperatorNode) -> Function:
        keep, fixed = bool(node["keepdims"]), node.get("axes")
        nothing = bool(node.get("noop_with_empty_axes", 0))
        element = _ELEMENT.get(kind)

        def call(x: Tensor, axes: NDArray[Any] | None = None) -> Tensor:
            chosen = fixed if axes is None else axes.tolist()
            if chosen:
                return reduce(x, chosen, keep)
            if (nothing and not chosen) or x.dim() == 0:
                return element(x).to(x.dtype) if element is not None else x
            return reduce(x, list(range(x.dim())), keep)

        return call


for _kind, _reduce in _REDUCTIONS.items():
    _register(_kind, _reduce)


@maker("ArgMax", unsigned=ordered)
def _arg_max(node: OperatorNode) -> Function:
    return _arg(node, torch.argmax)


@maker("ArgMin", unsigned=ordered)
def _arg_min(node: OperatorNode) -> Function:
    return _arg(node, torch.argmin)


def _arg(node: OperatorNode, function: Function) -> Function:
    axis, keep, last = node["axis"], bool(node["keepdims"]), bool(node["select_last_index"])

    def call(x: Tensor) -> Tensor:
        if last:
            return x.shape[axis] - 1 - function(x.flip(axis), axis, keep)
        return function(x, axis, keep)

    return call


@maker("CumSum", unsigned=modular)
def _cum_sum(node: OperatorNode) -> Function:
    return _running(node, torch.cumsum, 0)


@maker("CumProd", unsigned=modular)
def _cum_prod(node: OperatorNode) -> Function:
    return _running(node, torch.cumprod, 1)


def _running(node: OperatorNode, function: Function, neutral: int) -> Function:
    exclusive, backwards = bool(node["exclusive"]), bool(node["reverse"])

    def call(x: Tensor, axis: NDArray[Any]) -> Tensor:
        at = int(axis.item())
        source = x.flip(at) if backwards else x
        if exclusive:
            first = torch.full_like(source.narrow(at, 0, min(1, x.shape[at])), neutral)
            source = torch.cat([first, source.narrow(at, 0, max(0, x.shape[at] - 1))], at)
        found = function(source, at, dtype=x.dtype)
        return found.flip(at) if backwards else found

    return call


@maker("TopK", unsigned=ordered)
def _top_k(node: OperatorNode) -> Function:
    axis, largest = node["axis"], bool(node["largest"])

    def top_k(x: Tensor, count: NDArray[Any]) -> tuple[Tensor, Tensor]:
        # Of equal values ONNX wants the one with the lower index first, which torch.topk does not promise.
        values, indices = torch.sort(x, stable=True, dim=axis, descending=largest)
        k = int(count.item())
        return values.narrow(axis, 0, k), indices.narrow(axis, 0, k)

    return top_k
