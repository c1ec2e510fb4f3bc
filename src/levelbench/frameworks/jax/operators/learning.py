"""Operators of ``ai.onnx.ml`` on numbers, TfIdfVectorizer, and the update rules of ``ai.onnx.preview.training``.

Tables of labels, trees and word sequences are constants, looked up for all rows at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from levelbench.frameworks.jax.operators.registry import Function, maker, refuse
from levelbench.operators.node import OperatorNode

_DOMAIN = "ai.onnx.ml"
_MEMBER = 6
_AVERAGE, _SUM, _MIN, _MAX = range(4)


@maker("ArrayFeatureExtractor", domain=_DOMAIN)
def _array_feature_extractor(_: OperatorNode) -> Function:
    def extract(x: Any, indices: Any) -> Any:
        found = jnp.take(x, indices.reshape(-1), -1)
        return found[None] if x.ndim == 1 else found

    return extract


@maker("Binarizer", domain=_DOMAIN)
def _binarizer(node: OperatorNode) -> Function:
    threshold = float(node["threshold"])
    return lambda x: (x > threshold).astype(x.dtype)


@maker("LabelEncoder", domain=_DOMAIN)
def _label_encoder(node: OperatorNode) -> Function:
    """Keys to values; NaN is a key like another."""

    def given(part: str) -> Any:
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

    def encode(x: Any) -> Any:
        place = jnp.clip(jnp.searchsorted(jnp.asarray(ranked), x), 0, len(ranked) - 1)
        key = jnp.asarray(ranked)[place]
        known = (key == x) | ((key != key) & (x != x))
        return jnp.where(known, jnp.asarray(answers)[place], jnp.asarray(default, answers.dtype))

    return encode


def _members(node: OperatorNode, modes: Any) -> Any:
    """(nodes, members): the sets of the nodes that ask for membership, filled up with NaN, which equals nothing."""
    values = np.asarray(node.get("membership_values", np.zeros(0)), np.float64).reshape(-1)
    sets = [each[~np.isnan(each)] for each in np.split(values, np.flatnonzero(np.isnan(values)) + 1)]
    table = np.full((len(modes), max([len(each) for each in sets] + [1])), np.nan)
    for at, members in zip(np.flatnonzero(modes == _MEMBER), sets, strict=False):
        table[at, : len(members)] = members
    return table


def _holds(x: Any, split: Any, mode: Any, members: Any) -> Any:
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

    def tree_ensemble(x: Any) -> Any:
        shape = (x.shape[0], len(roots))

        def step(_: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
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


def _grams(node: OperatorNode) -> list[tuple[int, Any, Any]]:
    """(length, sequences, columns of the output) of the sequences whose lengths are wanted."""
    pool, starts = np.asarray(node["pool_int64s"], np.int64), list(node["ngram_counts"])
    columns = np.asarray(node["ngram_indexes"], np.int64)
    found, first = [], 0
    for length, (start, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        sequences = pool[start:end].reshape(-1, length)
        if len(sequences) and int(node["min_gram_length"]) <= length <= int(node["max_gram_length"]):
            found.append((length, sequences, columns[first : first + len(sequences)]))
        first += len(sequences)
    return found


@maker("TfIdfVectorizer")
def _tfidf(node: OperatorNode) -> Function:
    """How often each known sequence occurs in a row, its elements up to ``max_skip_count`` apart."""
    if node.get("pool_int64s") is None:
        raise refuse(node, "JAX has no strings")
    mode, weights, most = node["mode"], node.get("weights"), int(node["max_skip_count"])
    size = int(np.max(node["ngram_indexes"])) + 1
    grams = _grams(node)

    def tfidf(x: Any) -> Any:
        rows = x.reshape(1, -1) if x.ndim < 2 else x
        counts = jnp.zeros((rows.shape[0], size), jnp.float32)
        for length, sequences, columns in grams:
            # Single elements have no distance, and count once.
            for skip in range(1, 2 if length == 1 else most + 2):
                windows = rows.shape[1] - skip * (length - 1)
                if windows > 0:
                    places = np.arange(windows)[:, None] + skip * np.arange(length)
                    same = jnp.all(rows[:, places][:, :, None] == sequences, -1)
                    counts = counts.at[:, columns].add(jnp.sum(same, 1).astype(jnp.float32))
        if mode == "IDF":
            counts = (counts > 0).astype(jnp.float32)
        if mode != "TF" and weights is not None:
            # A weight belongs to the sequence at its place in the list, and so to that one's column.
            counts = counts * _by_column(np.asarray(weights, np.float32), node, size)
        return counts if x.ndim == 2 else counts[0]

    return tfidf


def _by_column(weights: Any, node: OperatorNode, size: int) -> Any:
    found = np.ones(size, np.float32)
    found[np.asarray(node["ngram_indexes"], np.int64)] = weights
    return found


# Update rules of ``ai.onnx.preview.training``: Adagrad, Adam, Momentum, for any number of parameters at once.


_TRAINING = "ai.onnx.preview.training"


def _each(rule: Callable[..., tuple[Any, ...]], kinds: int) -> Function:
    """``rule(rate, step, parameter, gradient, state...)`` for every parameter; inputs and outputs lie kind by kind."""

    def update(rate: Any, step: Any, *values: Any) -> tuple[Any, ...]:
        count = len(values) // kinds
        found = [rule(rate, step, *values[at::count]) for at in range(count)]
        return tuple(each for kind in zip(*found, strict=True) for each in kind)

    return update


@maker("Adagrad", domain=_TRAINING)
def _adagrad(node: OperatorNode) -> Function:
    decay, epsilon, norm = float(node["decay_factor"]), float(node["epsilon"]), float(node["norm_coefficient"])

    def adagrad(rate: Any, step: Any, x: Any, gradient: Any, squares: Any) -> tuple[Any, ...]:
        whole = norm * x + gradient
        total = squares + whole * whole
        adjusted = (rate / (1 + step * decay)).astype(x.dtype)
        return x - adjusted * whole / (jnp.sqrt(total) + epsilon), total

    return _each(adagrad, 3)


@maker("Adam", domain=_TRAINING)
def _adam(node: OperatorNode) -> Function:
    alpha, beta, epsilon = float(node["alpha"]), float(node["beta"]), float(node["epsilon"])
    norm, norm_post = float(node["norm_coefficient"]), float(node["norm_coefficient_post"])

    def adam(rate: Any, step: Any, x: Any, gradient: Any, mean: Any, square: Any) -> tuple[Any, ...]:
        whole = norm * x + gradient
        mean = alpha * mean + (1 - alpha) * whole
        square = beta * square + (1 - beta) * whole * whole
        # Without a step there is nothing to correct for, and the divisor would be zero.
        time = jnp.where(step > 0, step, 1).astype(x.dtype)
        corrected = rate * jnp.sqrt(1 - beta**time) / (1 - alpha**time)
        adjusted = jnp.where(step > 0, corrected, rate).astype(x.dtype)
        return (1 - norm_post) * (x - adjusted * mean / (jnp.sqrt(square) + epsilon)), mean, square

    return _each(adam, 4)


@maker("Momentum", domain=_TRAINING)
def _momentum(node: OperatorNode) -> Function:
    alpha, beta, norm = float(node["alpha"]), float(node["beta"]), float(node["norm_coefficient"])
    nesterov = node["mode"] == "nesterov"

    def momentum(rate: Any, step: Any, x: Any, gradient: Any, velocity: Any) -> tuple[Any, ...]:
        whole = norm * x + gradient
        velocity = alpha * velocity + jnp.where(step > 0, beta, 1.0).astype(x.dtype) * whole
        move = whole + alpha * velocity if nesterov else velocity
        return x - rate.astype(x.dtype) * move, velocity

    return _each(momentum, 3)
