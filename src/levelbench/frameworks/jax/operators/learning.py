"""Operators of ``ai.onnx.ml`` on numbers: Binarizer, LabelEncoder, TreeEnsemble.

Tables of labels, trees and word sequences are constants, looked up for all rows at once.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from levelbench.frameworks.jax.operators.registry import Function, maker, refuse
from levelbench.operators.node import OperatorNode

_DOMAIN = "ai.onnx.ml"
_MEMBER = 6
_AVERAGE, _SUM, _MIN, _MAX = range(4)


@maker("LabelEncoder", domain=_DOMAIN)
def _label_encoder(node: OperatorNode) -> Function:
    """Keys to values; NaN is a key like another."""

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
    """(nodes, members): the sets of the nodes that ask for membership, filled up with NaN, which equals nothing."""
    values = np.asarray(node.get("membership_values", np.zeros(0)), np.float64).reshape(-1)
    sets = [each[~np.isnan(each)] for each in np.split(values, np.flatnonzero(np.isnan(values)) + 1)]
    table = np.full((len(modes), max([len(each) for each in sets] + [1])), np.nan)
    for at, members in zip(np.flatnonzero(modes == _MEMBER), sets, strict=False):
        table[at, : len(members)] = members
    return table


def _holds(x: Array, split: Array, mode: Array, members: Array) -> Array:
    """Whether each comparison of a node is true."""
    within = jnp.any(x[..., None] == members, -1)
    tests = [x <= split, x < split, x >= split, x > split, x == split, x != split, within]
    return jnp.select([mode == at for at in range(len(tests))], tests)


@maker("TreeEnsemble", domain=_DOMAIN)
def _tree_ensemble(node: OperatorNode) -> Function:
    """All rows walk down all trees together, as many steps as there are nodes on the longest way at most."""
    if int(node["post_transform"]) != 0:
        raise refuse(node, "this adapter has no post_transform")
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
        # An index of a leaf may be larger than any of a node; nothing is looked up with it that counts.
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
