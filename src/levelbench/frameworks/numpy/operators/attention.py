"""Attention, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from levelbench.errors import UnsupportedError
from levelbench.frameworks.numpy.operators.kernel import (
    Array,
    Arrays,
    DType,
    Inputs,
    Kernel,
    Wanted,
    is_real,
    lift,
    lower,
    quiet,
    register,
    unbroadcast,
    within,
)
from levelbench.frameworks.shared.sequences import Allowed, allowed_by
from levelbench.operators.node import OperatorNode


def _bias(mask: Array | None, allowed: Array | None, keys: int, dtype: DType) -> Array | None:
    """What is added to the scores, broadcastable to (batch, heads, queries, keys); ``None`` where nothing is."""
    if mask is not None and mask.dtype == np.bool_:
        given = _padded(mask, keys, False)
        allowed = given if allowed is None else allowed & given
        mask = None
    bias = None if allowed is None else np.where(allowed, dtype.type(0), dtype.type(-np.inf))
    if mask is not None:
        added = _padded(lift(mask).astype(dtype, copy=False), keys, -np.inf)
        bias = added if bias is None else bias + added
    return bias


def _padded(mask: Array, keys: int, value: float) -> Array:
    """The mask for all keys: those behind its end are forbidden."""
    missing = keys - mask.shape[-1]
    if missing <= 0 or mask.ndim == 0:
        return mask
    return np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, missing)], constant_values=value)


# Attention: scaled dot products of queries and keys, softmax, weighted values, forward and backward.
# Scores are made a few heads at a time and never all at once, so that they stay in the cache; the backward makes them
# again. Query heads that share a key head are rows of one product, so keys and values are never repeated.

_BLOCK = 1 << 18
"""Scores of a block: 1 MiB of float32."""

_FLOAT, _DOUBLE = 1, 11
RAW, CAPPED, BIASED, SOFTMAX = range(4)
"""What qk_matmul_output shows, by its mode."""


class _Problem(NamedTuple):
    """Inputs as (batch, key heads, rows, size): a row of ``q`` is a query of one of the heads that share a key head."""

    q: Array
    k: Array
    v: Array
    bias: Any
    """Broadcast to (batch, key heads, sharing heads, queries, keys), or None."""
    sharing: int
    scale: Any
    cap: Any


@register("Attention")
def _attention(node: OperatorNode) -> Kernel:
    precision = node.get("softmax_precision")
    if precision not in (None, _FLOAT, _DOUBLE):
        raise UnsupportedError("Attention on numpy", "its softmax is float32 or wider", "ask for no narrower one")
    double, allowed = precision == _DOUBLE, allowed_by(node, np.arange)
    mode = int(node["qk_matmul_output_mode"]) if len(node.outputs) > 3 and node.outputs[3] else None

    def forward(*inputs: Array) -> Arrays:
        q = inputs[0]
        with quiet():
            problem, present = _problem(node, inputs, double, allowed)
            queries = problem.q.shape[2] // problem.sharing
            heads, keys = problem.q.shape[1] * problem.sharing, problem.k.shape[2]
            y = np.empty((*problem.q.shape[:3], problem.v.shape[3]), problem.q.dtype)
            shown = None if mode is None else np.empty((len(q), heads, queries, keys), problem.q.dtype)
            for at in _blocks(problem):
                steps = _scores(problem, at)
                np.matmul(steps[SOFTMAX], problem.v[at], out=y[at])
                if mode is not None and shown is not None:
                    shown.reshape(*problem.q.shape[:3], keys)[at] = steps[mode]
            y = _merged(y.reshape(len(q), heads, queries, y.shape[3]), q.ndim)
            return (lower(y, q.dtype), *present, None if shown is None else lower(shown, q.dtype))

    def backward(gradients: Inputs, inputs: Inputs, outputs: Inputs, wanted: Wanted = None) -> Arrays:
        g = [*gradients, *(None,) * (4 - len(gradients))]
        with quiet():
            problem, _ = _problem(node, inputs, double, allowed)
            by_mask = len(inputs) > 3 and is_real(inputs[3]) and (wanted is None or wanted[3])
            found = _pull(problem, _as_rows(g[0], problem), _as_rows(g[3], problem), mode, by_mask)
            return _answer(inputs, found, g, problem)

    return Kernel(forward, backward, selective=True)


def _problem(
    node: OperatorNode, inputs: Inputs, double: bool, allowed: Allowed
) -> tuple[_Problem, tuple[Array, Array]]:
    """The problem, and present key and value (batch, key heads, keys, size) in their own dtype."""
    q, k, v, mask, past_k, past_v, lengths = list(inputs) + [None] * (7 - len(inputs))
    kind = np.dtype(np.float64) if double else lift(q).dtype
    q = _split(q, node.get("q_num_heads"))
    heads_held = node.get("kv_num_heads")
    k, v = _split(k, heads_held), _split(v, heads_held)
    if past_k is not None:
        k, v = np.concatenate([past_k, k], axis=2), np.concatenate([past_v, v], axis=2)
    batch, heads, queries, size = q.shape
    held, keys = k.shape[1:3]
    if heads % held:
        found = f"{heads} heads of queries do not share {held} of keys"
        raise UnsupportedError("Attention on numpy", found, "give a multiple")
    sharing = heads // held
    past = None if past_k is None else past_k.shape[2]
    bias = _bias(mask, allowed(queries, keys, past, lengths), keys, kind)
    if bias is not None:
        bias = np.broadcast_to(bias, (batch, heads, queries, keys)).reshape(batch, held, sharing, queries, keys)
    scale = node.get("scale")
    rows = q.astype(kind, copy=False).reshape(batch, held, sharing * queries, size)
    factor = kind.type(size**-0.5 if scale is None else scale)
    cap = float(node["softcap"])
    wide_k, wide_v = (each.astype(kind, copy=False) for each in (k, v))
    return _Problem(rows, wide_k, wide_v, bias, sharing, factor, kind.type(cap) if cap > 0 else None), (k, v)


def _split(x: Array, heads: Any) -> Array:
    """(batch, sequence, heads * size) as (batch, heads, sequence, size)."""
    if x.ndim == 4:
        return x
    return x.reshape(*x.shape[:2], int(heads), x.shape[2] // int(heads)).swapaxes(1, 2)


def _merged(x: Array, rank: int) -> Array:
    """The reverse of :func:`_split`, for inputs of that rank."""
    if rank == 4:
        return x
    batch, heads, sequence, size = x.shape
    return np.ascontiguousarray(x.swapaxes(1, 2)).reshape(batch, sequence, heads * size)


def _as_rows(g: Array | None, problem: _Problem) -> Array | None:
    """A gradient of Y or of the scores as (batch, key heads, rows, size)."""
    if g is None:
        return None
    batch, held, rows, _ = problem.q.shape
    whole = _split(lift(g), held * problem.sharing).astype(problem.q.dtype, copy=False)
    return whole.reshape(batch, held, rows, whole.shape[3])


def _blocks(problem: _Problem) -> Iterator[tuple[int, slice]]:
    """Samples and ranges of key heads that make about ``_BLOCK`` scores."""
    batch, held, rows, _ = problem.q.shape
    step = max(_BLOCK // max(rows * problem.k.shape[2], 1), 1)
    for sample in range(batch):
        for head in range(0, held, step):
            yield sample, slice(head, head + step)


def _scores(problem: _Problem, at: tuple[int, slice]) -> list[Array]:
    """The scores of a block (key heads, rows, keys): raw, capped, biased, after the softmax."""
    raw = np.matmul(problem.q[at] * problem.scale, problem.k[at].swapaxes(1, 2))
    capped = raw if problem.cap is None else np.tanh(raw / problem.cap) * problem.cap
    biased = capped
    if problem.bias is not None:
        bias = problem.bias[at]
        biased = (capped.reshape(bias.shape) + bias).reshape(capped.shape)
    largest = biased.max(axis=-1, keepdims=True, initial=-np.inf)
    # A query that may attend to no key attends to none: its row is zero.
    np.copyto(largest, 0, where=np.isneginf(largest))
    weights = biased - largest
    np.exp(weights, out=weights)
    total = weights.sum(axis=-1, keepdims=True)
    np.copyto(total, 1, where=total == 0)
    weights /= total
    return [raw, capped, biased, weights]


def _pull(problem: _Problem, by_y: Any, by_shown: Any, mode: int | None, with_mask: bool) -> list[Any]:
    """The gradients by q, k and v as the problem has them, and by the scores with the bias added, if asked for."""
    by_q, by_k, by_v = (np.zeros_like(each) for each in problem[:3])
    scores = np.zeros((*problem.q.shape[:3], problem.k.shape[2]), problem.q.dtype) if with_mask else None
    for at in _blocks(problem):
        _, capped, _, weights = _scores(problem, at)
        extra = None if by_shown is None else by_shown[at]
        g = np.zeros_like(weights)
        if by_y is not None:
            by_v[at] = np.matmul(weights.swapaxes(1, 2), by_y[at])
            g += np.matmul(by_y[at], problem.v[at].swapaxes(1, 2))
        if extra is not None and mode == SOFTMAX:
            g += extra
        g -= np.einsum("hij,hij->hi", g, weights)[:, :, None]
        g *= weights
        if extra is not None and mode == BIASED:
            g += extra
        if scores is not None:
            scores[at] = g
        if extra is not None and mode == CAPPED:
            g += extra
        if problem.cap is not None:
            g *= 1 - (capped / problem.cap) ** 2
        if extra is not None and mode == RAW:
            g += extra
        g *= problem.scale
        by_q[at] = np.matmul(g, problem.k[at])
        by_k[at] = np.matmul(g.swapaxes(1, 2), problem.q[at])
    return [by_q, by_k, by_v, scores]


def _answer(inputs: Inputs, found: list[Any], gradients: Inputs, problem: _Problem) -> Arrays:
    """The gradients by the node's inputs: caches cut off, heads merged, the mask's in its own shape."""
    by_q, by_k, by_v, scores = found
    batch, held, rows, size = by_q.shape
    heads = held * problem.sharing
    for whole, g in ((by_k, gradients[1]), (by_v, gradients[2])):
        if g is not None:
            whole += lift(g)
    answer: list[Any] = [None] * len(inputs)
    answer[0] = within(_merged(by_q.reshape(batch, heads, rows // problem.sharing, size), inputs[0].ndim), inputs[0])
    for at, whole in ((1, by_k), (2, by_v)):
        past = inputs[at + 3] if len(inputs) > at + 3 else None
        old = 0 if past is None else past.shape[2]
        answer[at] = within(_merged(whole[:, :, old:], inputs[at].ndim), inputs[at])
        if past is not None:
            answer[at + 3] = within(whole[:, :, :old], past)
    if scores is not None:
        mask = inputs[3]
        keys = scores.shape[3]
        # A mask that is shorter than the keys was padded, not broadcast.
        shape = (*mask.shape[:-1], keys) if mask.ndim else ()
        by_mask = unbroadcast(scores.reshape(batch, heads, rows // problem.sharing, keys), shape)
        answer[3] = within(by_mask[..., : mask.shape[-1]] if mask.ndim else by_mask, mask)
    return tuple(answer)
