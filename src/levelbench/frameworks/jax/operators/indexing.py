"""Gathering and scattering by index, Compress, NonZero, Unique.

The one idea: negative indices count from the end. Two answers, NonZero's and Unique's, have a size that only their
values tell; they run outside compiled code.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from levelbench.frameworks.jax.operators.registry import Function, maker, refuse
from levelbench.operators.node import OperatorNode

__all__: list[str] = []


@maker("Gather")
def _gather(node: OperatorNode) -> Function:
    axis = int(node["axis"])
    return lambda x, indices: jnp.take(x, indices, axis)


@maker("GatherElements")
def _gather_elements(node: OperatorNode) -> Function:
    axis = int(node["axis"])

    def gather_elements(x: Any, indices: Any) -> Any:
        # The other axes of the indices may be shorter.
        cut = [slice(each) for each in indices.shape]
        cut[axis] = slice(None)
        return jnp.take_along_axis(x[tuple(cut)], indices, axis)

    return gather_elements


@maker("GatherND")
def _gather_nd(node: OperatorNode) -> Function:
    batch = int(node["batch_dims"])

    def gather_nd(x: Any, indices: Any) -> Any:
        parts = tuple(jnp.moveaxis(indices, -1, 0))
        own = indices.ndim - 1
        grid = [
            jnp.arange(x.shape[at]).reshape([-1 if each == at else 1 for each in range(own)]) for at in range(batch)
        ]
        return x[(*grid, *parts)]

    return gather_nd


def _write(node: OperatorNode, place: Any, updates: Any) -> Any:
    """Updates put at a place, or joined with what is there."""
    match node.get("reduction", "none"):
        case "none":
            return place.set(updates)
        case "add":
            return place.add(updates)
        case "mul":
            return place.multiply(updates)
        case "max":
            return place.max(updates)
        case "min":
            return place.min(updates)
    raise refuse(node, f"there is no reduction {node['reduction']!r}")


@maker("Scatter", "ScatterElements")
def _scatter_elements(node: OperatorNode) -> Function:
    axis = int(node["axis"])

    def scatter_elements(x: Any, indices: Any, updates: Any) -> Any:
        where: list[Any] = list(np.ogrid[tuple(slice(each) for each in indices.shape)])
        where[axis] = indices
        return _write(node, x.at[tuple(where)], updates)

    return scatter_elements


@maker("ScatterND")
def _scatter_nd(node: OperatorNode) -> Function:
    def scatter_nd(x: Any, indices: Any, updates: Any) -> Any:
        return _write(node, x.at[tuple(jnp.moveaxis(indices, -1, 0))], updates)

    return scatter_nd


@maker("TensorScatter")
def _tensor_scatter(node: OperatorNode) -> Function:
    """Writes a stretch along ``axis`` of each batch element's cache, from an index of its own on."""
    axis, circular = int(node["axis"]), node["mode"] == "circular"

    def tensor_scatter(cache: Any, update: Any, start: Any = None) -> Any:
        moved, written = jnp.moveaxis(cache, axis, 1), jnp.moveaxis(update, axis, 1)
        first = jnp.zeros(cache.shape[0], jnp.int64) if start is None else start.astype(jnp.int64)
        place = first[:, None] + jnp.arange(written.shape[1])
        place = place % moved.shape[1] if circular else place
        return jnp.moveaxis(moved.at[jnp.arange(cache.shape[0])[:, None], place].set(written), 1, axis)

    return tensor_scatter


@maker("Compress")
def _compress(node: OperatorNode) -> Function:
    axis = node.get("axis")

    def compress(x: Any, condition: Any) -> Any:
        chosen = np.flatnonzero(condition)
        return jnp.take(x.reshape(-1), chosen, 0) if axis is None else jnp.take(x, chosen, int(axis))

    return compress


@maker("NonZero", eager=True)
def _non_zero(_: OperatorNode) -> Function:
    def non_zero(x: Any) -> Any:
        if x.ndim == 0:
            return jnp.zeros((0, int(bool(x))), jnp.int64)
        return jnp.stack(jnp.nonzero(x)).astype(jnp.int64)

    return non_zero


@maker("Unique", eager=True)
def _unique(node: OperatorNode) -> Function:
    axis, in_order = node.get("axis"), bool(node["sorted"])

    def unique(x: Any) -> Any:
        values, first, inverse, counts = jnp.unique(
            x, return_index=True, return_inverse=True, return_counts=True, axis=axis
        )
        inverse = inverse.reshape(-1)
        if not in_order:
            order = jnp.argsort(first)
            values, first, counts = jnp.take(values, order, axis or 0), first[order], counts[order]
            inverse = jnp.argsort(order)[inverse]
        return values, *(each.astype(jnp.int64) for each in (first, inverse, counts))

    return unique
