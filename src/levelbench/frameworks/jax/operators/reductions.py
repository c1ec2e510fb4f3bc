"""Reductions over axes, ArgMax and ArgMin, cumulative sums and products, TopK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from levelbench.frameworks.jax.operators.registry import Function, maker
from levelbench.operators.node import OperatorNode

__all__: list[str] = []

Reduce = Callable[..., Any]


def _log_sum_exp(x: Any, axis: Any, keepdims: bool) -> Any:
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        return jnp.log(jnp.sum(jnp.exp(x.astype(jnp.float64)), axis=axis, keepdims=keepdims))
    return jax.nn.logsumexp(x, axis=axis, keepdims=keepdims)


def _maximum(x: Any, axis: Any, keepdims: bool) -> Any:
    return jnp.max(x, axis=axis, keepdims=keepdims, initial=_lowest(x.dtype))


def _minimum(x: Any, axis: Any, keepdims: bool) -> Any:
    return jnp.min(x, axis=axis, keepdims=keepdims, initial=_highest(x.dtype))


def _lowest(dtype: Any) -> Any:
    """What the maximum over nothing is."""
    if dtype.kind == "b":
        return False
    return -jnp.inf if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo(dtype).min


def _highest(dtype: Any) -> Any:
    if dtype.kind == "b":
        return True
    return jnp.inf if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo(dtype).max


_REDUCTIONS: dict[str, Reduce] = {
    "ReduceL1": lambda x, axis, keepdims: jnp.sum(jnp.abs(x), axis=axis, keepdims=keepdims),
    "ReduceL2": lambda x, axis, keepdims: jnp.sqrt(jnp.sum(x * x, axis=axis, keepdims=keepdims)),
    "ReduceLogSum": lambda x, axis, keepdims: jnp.log(jnp.sum(x, axis=axis, keepdims=keepdims)),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": _maximum,
    "ReduceMean": lambda x, axis, keepdims: jnp.mean(x, axis=axis, keepdims=keepdims),
    "ReduceMin": _minimum,
    "ReduceProd": lambda x, axis, keepdims: jnp.prod(x, axis=axis, keepdims=keepdims),
    "ReduceSum": lambda x, axis, keepdims: jnp.sum(x, axis=axis, keepdims=keepdims),
    "ReduceSumSquare": lambda x, axis, keepdims: jnp.sum(x * x, axis=axis, keepdims=keepdims),
}


@maker(*_REDUCTIONS)
def _reduction(node: OperatorNode) -> Function:
    """Without axes, or with an empty list of them, all are reduced, unless the node says that none is."""
    function, keep = _REDUCTIONS[node.op_type], bool(node["keepdims"])
    given, nothing = node.get("axes"), bool(node.get("noop_with_empty_axes", 0))
    # ONNX applies what belongs to single elements even where nothing is reduced.
    alone = {"ReduceL1": jnp.abs, "ReduceL2": jnp.abs, "ReduceLogSum": jnp.log, "ReduceSumSquare": jnp.square}

    def reduction(x: Any, axes: Any = None) -> Any:
        listed = given if axes is None else [int(each) for each in axes]
        if not listed and nothing:
            return alone.get(node.op_type, lambda each: each)(x).astype(x.dtype)
        return function(x, axis=tuple(listed) if listed else None, keepdims=keep).astype(x.dtype)

    return reduction


@maker("ArgMax", "ArgMin")
def _arg(node: OperatorNode) -> Function:
    axis, keep, last = int(node["axis"]), bool(node["keepdims"]), bool(node["select_last_index"])
    function = jnp.argmax if node.op_type == "ArgMax" else jnp.argmin

    def arg(x: Any) -> Any:
        if not last:
            return function(x, axis, keepdims=keep).astype(jnp.int64)
        return (x.shape[axis] - 1 - function(jnp.flip(x, axis), axis, keepdims=keep)).astype(jnp.int64)

    return arg


@maker("CumSum", "CumProd")
def _cumulative(node: OperatorNode) -> Function:
    exclusive, reverse = bool(node["exclusive"]), bool(node["reverse"])
    function, first = (lax.cumsum, 0) if node.op_type == "CumSum" else (lax.cumprod, 1)

    def cumulative(x: Any, axis: Any) -> Any:
        at = int(axis.item()) % x.ndim
        if exclusive:
            # Each element gets the one before it, the first the neutral one.
            edge = jnp.full_like(lax.slice_in_dim(x, 0, 1, axis=at), first)
            inner = lax.slice_in_dim(x, 1, None, axis=at) if reverse else lax.slice_in_dim(x, 0, -1, axis=at)
            x = jnp.concatenate([inner, edge] if reverse else [edge, inner], at)
        return function(x, axis=at, reverse=reverse)

    return cumulative


@maker("TopK")
def _top_k(node: OperatorNode) -> Function:
    """Equal values in the order of their positions, as ONNX asks."""
    axis, largest = int(node["axis"]), bool(node["largest"])

    def top_k(x: Any, k: Any) -> Any:
        count = int(k.item())
        # Bits turned over order integers the other way round without overflow.
        keys = x if not largest else -x if jnp.issubdtype(x.dtype, jnp.inexact) else ~x
        order = jnp.argsort(keys, axis=axis, stable=True)
        indices = lax.slice_in_dim(order, 0, count, axis=axis)
        return jnp.take_along_axis(x, indices, axis), indices.astype(jnp.int64)

    return top_k
