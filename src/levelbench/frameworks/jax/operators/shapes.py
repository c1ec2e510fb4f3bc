"""Indices, and the table lookups of ``ai.onnx.ml`` (LabelEncoder, TreeEnsemble).

The output sizes of NonZero and Unique depend on values, so they run outside compiled code. The tables of ``ai.onnx.ml``
are constants that are looked up for all rows at once.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from levelbench.frameworks.jax.operators.registry import maker, operator, refuse, table
from levelbench.operators.contract import Function
from levelbench.operators.node import OperatorNode

table(Gather=lambda x, indices, *, axis: jnp.take(x, indices, axis))


# Gathering and scattering by index, NonZero, Unique.


@operator("GatherElements")
def _gather_elements(x: Array, indices: Array, *, axis: int) -> Array:
    # The other axes of the indices may be shorter.
    cut = [slice(each) for each in indices.shape]
    cut[axis] = slice(None)
    return jnp.take_along_axis(x[tuple(cut)], indices, axis)


def _write(node: OperatorNode, place: Array, updates: Array) -> Array:
    """Writes updates, or combines them with the values that are there."""
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
    raise refuse(node, f"unknown reduction {node['reduction']!r}")


@operator("Scatter", "ScatterElements")
def _scatter_elements(x: Array, indices: Array, updates: Array, *, node: OperatorNode, axis: int) -> Array:
    where: list[Any] = list(np.ogrid[tuple(slice(each) for each in indices.shape)])
    where[axis] = indices
    return _write(node, x.at[tuple(where)], updates)


@operator("ScatterND")
def _scatter_nd(x: Array, indices: Array, updates: Array, *, node: OperatorNode) -> Array:
    return _write(node, x.at[tuple(jnp.moveaxis(indices, -1, 0))], updates)


@operator("TensorScatter")
def _tensor_scatter(cache: Array, update: Array, start: Array | None = None, *, axis: int, mode: str) -> Array:
    """Writes a range along ``axis`` of each sample's cache, starting at the sample's own index."""
    circular = mode == "circular"
    moved, written = jnp.moveaxis(cache, axis, 1), jnp.moveaxis(update, axis, 1)
    first = jnp.zeros(cache.shape[0], jnp.int64) if start is None else start.astype(jnp.int64)
    place = first[:, None] + jnp.arange(written.shape[1])
    place = place % moved.shape[1] if circular else place
    return jnp.moveaxis(moved.at[jnp.arange(cache.shape[0])[:, None], place].set(written), 1, axis)


@operator("NonZero", eager=True)
def _non_zero(x: Array) -> Array:
    if x.ndim == 0:
        return jnp.zeros((0, int(bool(x))), jnp.int64)
    return jnp.stack(jnp.nonzero(x)).astype(jnp.int64)


@operator("Unique", eager=True)
def _unique(x: Array, *, axis: int | None = None, sorted: int) -> tuple[Array, ...]:
    values, first, inverse, counts = jnp.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = jnp.argsort(first)
        values, first, counts = jnp.take(values, order, axis or 0), first[order], counts[order]
        inverse = jnp.argsort(order)[inverse]
    return values, *(each.astype(jnp.int64) for each in (first, inverse, counts))


_DOMAIN = "ai.onnx.ml"
_MEMBER = 6
_AVERAGE, _SUM, _MIN, _MAX = range(4)


@maker("LabelEncoder", domain=_DOMAIN)
def _label_encoder(node: OperatorNode) -> Function:
    """Maps keys to values; NaN is a valid key."""

    def given(part: str) -> Array:
        kinds = {"tensor": None, "int64s": np.int64, "floats": np.float32}
        for kind, dtype in kinds.items():
            if node.attributes.get(f"{part}_{kind}") is not None:
                found = np.asarray(node[f"{part}_{kind}"], dtype).reshape(-1)
                if found.dtype.kind not in "OSUT":
                    return found
        raise refuse(node, "JAX has no strings")

    keys, values = given("keys"), given("values")
    if "default_tensor" in node.attributes:
        default = np.asarray(node["default_tensor"]).reshape(-1)[0]
    else:
        default = node.get("default_int64" if values.dtype.kind in "iu" else "default_float", 0)
    order = np.argsort(keys, kind="stable")
    ranked, answers = keys[order], values[order]

    def encode(x: Array) -> Array:
        place = jnp.clip(jnp.searchsorted(jnp.asarray(ranked), x), 0, len(ranked) - 1)
        key = jnp.asarray(ranked)[place]
        known = (key == x) | ((key != key) & (x != x))
        return jnp.where(known, jnp.asarray(answers)[place], jnp.asarray(default, answers.dtype))

    return encode


def _members(node: OperatorNode, modes: Array) -> Array:
    """(nodes, members): the sets of the membership nodes, padded with NaN, which equals nothing."""
    values = np.asarray(node.get("membership_values", np.zeros(0)), np.float64).reshape(-1)
    sets = [each[~np.isnan(each)] for each in np.split(values, np.flatnonzero(np.isnan(values)) + 1)]
    table = np.full((len(modes), max([len(each) for each in sets] + [1])), np.nan)
    for at, members in zip(np.flatnonzero(modes == _MEMBER), sets, strict=False):
        table[at, : len(members)] = members
    return table


def _holds(x: Array, split: Array, mode: Array, members: Array) -> Array:
    """Whether the comparison of each node is true."""
    within = jnp.any(x[..., None] == members, -1)
    tests = [x <= split, x < split, x >= split, x > split, x == split, x != split, within]
    return jnp.select([mode == at for at in range(len(tests))], tests)


@maker("TreeEnsemble", domain=_DOMAIN)
def _tree_ensemble(node: OperatorNode) -> Function:
    """All rows descend all trees together; the number of nodes bounds the number of steps."""
    if int(node["post_transform"]) != 0:
        raise refuse(node, "post_transform is not implemented")
    modes = np.asarray(node["nodes_modes"]).reshape(-1)
    integers = ("nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids", "nodes_trueleafs", "nodes_falseleafs")
    feature, yes, no, yes_leaf, no_leaf = (np.asarray(node[name], np.int64) for name in integers)
    missing = np.asarray(node.get("nodes_missing_value_tracks_true") or np.zeros(len(modes)), bool)
    splits, members = np.asarray(node["nodes_splits"]).reshape(-1), _members(node, modes)
    roots, targets = np.asarray(node["tree_roots"], np.int64), np.asarray(node["leaf_targetids"], np.int64)
    weights, how = np.asarray(node["leaf_weights"]).reshape(-1), int(node["aggregate_function"])

    def tree_ensemble(x: Array) -> Array:
        shape = (x.shape[0], len(roots))

        def step(_: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
            at, done = state
            value = jnp.take_along_axis(x, jnp.asarray(feature)[at], 1)
            true = _holds(value, jnp.asarray(splits, x.dtype)[at], jnp.asarray(modes)[at], jnp.asarray(members)[at])
            true |= jnp.isnan(value) & jnp.asarray(missing)[at]
            following = jnp.where(true, jnp.asarray(yes)[at], jnp.asarray(no)[at])
            leaf = jnp.where(true, jnp.asarray(yes_leaf)[at], jnp.asarray(no_leaf)[at]) == 1
            return jnp.where(done, at, following), done | leaf

        start = jnp.broadcast_to(jnp.asarray(roots), shape), jnp.zeros(shape, bool)
        # A leaf index may be out of range for nodes; lookups with it are ignored.
        leaf, _ = lax.fori_loop(0, len(modes), step, start)
        weight, target = jnp.asarray(weights, x.dtype)[leaf], jnp.asarray(targets)[leaf]
        rows = jnp.arange(x.shape[0])[:, None]
        limit = jnp.finfo(x.dtype)
        whole = (x.shape[0], int(node["n_targets"]))
        if how == _MIN:
            return jnp.full(whole, limit.max, x.dtype).at[rows, target].min(weight)
        if how == _MAX:
            return jnp.full(whole, limit.min, x.dtype).at[rows, target].max(weight)
        share = weight / len(roots) if how == _AVERAGE else weight
        return jnp.zeros(whole, x.dtype).at[rows, target].add(share)

    return tree_ensemble
