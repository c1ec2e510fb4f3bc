"""Matrix products: MatMul, Gemm, Einsum and Attention, forward and backward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from levelbench.errors import UnsupportedError, UsageError
from levelbench.frameworks.numpy.operators.kernel import (
    Array,
    Arrays,
    Inputs,
    Kernel,
    Wanted,
    cast_like,
    is_real,
    lift,
    lower,
    quiet,
    register,
    selective,
    unbroadcast,
)
from levelbench.frameworks.shared.sequences import Allowed, allowed_by
from levelbench.operators.contract import DType
from levelbench.operators.node import OperatorNode

_EXACT_IN_FLOAT64 = 1 << 53


def matmul(a: Array, b: Array) -> Array:
    """NumPy's matmul in working dtypes: 1-d operands are vectors, leading axes broadcast."""
    if a.dtype.kind in "iu" and a.size and b.size and _exact(a, b):
        wide: Array = np.asarray(np.matmul(a.astype(np.float64), b.astype(np.float64)))
        return wide.astype(np.uint64 if a.dtype.kind == "u" else np.int64).astype(a.dtype)
    if a.ndim > 2 and b.ndim == 2 and a.flags.c_contiguous:
        return (a.reshape(prod(a.shape[:-1]), a.shape[-1]) @ b).reshape(*a.shape[:-1], b.shape[-1])
    return np.asarray(np.matmul(a, b))


def _exact(a: Array, b: Array) -> bool:
    largest = [max(abs(int(each.max())), abs(int(each.min()))) for each in (a, b)]
    return largest[0] * largest[1] * a.shape[-1] < _EXACT_IN_FLOAT64


@register("MatMul")
def _matmul(node: OperatorNode) -> Kernel:
    def forward(a: Array, b: Array) -> Array:
        with quiet():
            return lower(matmul(lift(a), lift(b)), a.dtype)

    def backward(gradient: Array, inputs: Inputs, wanted: Sequence[bool]) -> list[Array | None]:
        a, b, g = (lift(each) for each in (*inputs, gradient))
        a = a[None] if a.ndim == 1 else a
        b = b[:, None] if b.ndim == 1 else b
        found: list[Array | None] = [None, None]
        if b.ndim == 2:
            count = prod(a.shape[:-1])
            rows, columns = g.reshape(count, b.shape[1]), a.reshape(count, b.shape[0])
            if wanted[0]:
                found[0] = rows @ b.T
            if wanted[1]:
                found[1] = columns.T @ rows
        else:
            g = g[..., None, :] if inputs[0].ndim == 1 else g
            if wanted[0]:
                found[0] = unbroadcast(np.matmul(g, b.swapaxes(-1, -2)), a.shape)
            if wanted[1]:
                found[1] = unbroadcast(np.matmul(a.swapaxes(-1, -2), g), b.shape)
        pairs = zip(found, inputs, strict=True)
        return [None if each is None else cast_like(each.reshape(x.shape), x) for each, x in pairs]

    return Kernel(forward, selective(backward), selective=True)


@register("Gemm")
def _gemm(node: OperatorNode) -> Kernel:
    """Alpha A' B' + beta C, where ' transposes if the attribute says so; C broadcasts to the product."""
    alpha, beta, turn_a, turn_b = node["alpha"], node["beta"], node["transA"], node["transB"]

    def forward(a: Array, b: Array, c: Array | None = None) -> Array:
        left, right = (lift(a.T if turn_a else a), lift(b.T if turn_b else b))
        whole = float(alpha).is_integer() and float(beta).is_integer()
        if not (is_real(a) or whole):
            left, right = left.astype(np.float64), right.astype(np.float64)
        with quiet():
            y = matmul(left, right)
            if alpha != 1:
                y *= y.dtype.type(alpha)
            if c is not None and beta != 0:
                y += lift(c) if beta == 1 else lift(c) * y.dtype.type(beta)
            return lower(y, a.dtype)

    def backward(gradient: Array, inputs: Inputs, wanted: Sequence[bool]) -> list[Array | None]:
        a, b, g = lift(inputs[0]), lift(inputs[1]), lift(gradient)
        right, left = (b.T if turn_b else b), (a.T if turn_a else a)
        scaled = g if alpha == 1 else g * g.dtype.type(alpha)
        found: list[Array | None] = [None] * len(inputs)
        if wanted[0]:
            found[0] = cast_like(right @ scaled.T if turn_a else scaled @ right.T, inputs[0])
        if wanted[1]:
            found[1] = cast_like(scaled.T @ left if turn_b else left.T @ scaled, inputs[1])
        if len(inputs) > 2 and wanted[2]:
            by_c = unbroadcast(g, inputs[2].shape)
            found[2] = cast_like(by_c if beta == 1 else by_c * by_c.dtype.type(beta), inputs[2])
        return found

    return Kernel(forward, selective(backward), selective=True)


# Einsum as matrix products, and its gradient as an Einsum.
# Two operands are one matrix product, once their axes are sorted into those that both keep (batch axes), those that are
# summed (the inner axis) and those that only one has. The gradient of an operand is the product of the output's
# gradient and the other operands, summed over the labels that the operand does not have.


Labels = tuple[int, ...]
"""The labels of the axes: letter codes, or negative numbers for axes of the ellipsis, counted from its end."""
Term = tuple[Labels, Array]


@register("Einsum")
def _einsum(node: OperatorNode) -> Kernel:
    """Einstein summation; ellipsis, repeated labels and implicit output as in NumPy."""
    equation = node["equation"].replace(" ", "")

    def forward(*inputs: Array) -> Array:
        labels, output = _parse(equation, [each.ndim for each in inputs])
        with quiet():
            result = contract([(each, lift(x)) for each, x in zip(labels, inputs, strict=True)], output)
            return lower(result, inputs[0].dtype)

    def backward(gradient: Array, inputs: Inputs, wanted: Sequence[bool]) -> list[Array | None]:
        labels, kept = _parse(equation, [each.ndim for each in inputs])
        terms = [(each, lift(x)) for each, x in zip(labels, inputs, strict=True)]
        found: list[Array | None] = [None] * len(inputs)
        for at, (mine, x) in enumerate(terms):
            if not wanted[at]:
                continue
            others = [(kept, lift(gradient)), *terms[:at], *terms[at + 1 :]]
            found[at] = cast_like(_gradient(mine, x.shape, others), inputs[at])
        return found

    return Kernel(forward, selective(backward), selective=True)


def _parse(equation: str, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """The labels of each operand and of the output, with the ellipsis expanded."""
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise UsageError(f"Einsum {equation!r}", f"{len(ranks)} operands for {len(terms)} terms", "give one per term")
    hidden = [
        rank - len(term.replace("...", "")) if "..." in term else 0 for term, rank in zip(terms, ranks, strict=True)
    ]
    labels = [_labels(term, count) for term, count in zip(terms, hidden, strict=True)]
    for term, each, rank in zip(terms, labels, ranks, strict=True):
        if len(each) != rank:
            raise UsageError(f"Einsum {equation!r}", f"an operand of rank {rank} for {term!r}", "label each axis")
    if arrow:
        return labels, _labels(right, max(hidden))
    counts = Counter(label for each in labels for label in each if label >= 0)
    once = sorted(label for label, count in counts.items() if count == 1)
    return labels, (*range(-max(hidden), 0), *once)


def _labels(term: str, hidden: int) -> Labels:
    before, dots, after = term.partition("...")
    middle = range(-hidden, 0) if dots else ()
    return (*map(ord, before), *middle, *map(ord, after))


def contract(terms: Sequence[Term], output: Labels) -> Array:
    """The product of ``terms``, summed over all labels that are not in ``output``, with its axes in that order."""
    remaining = list(terms)
    while len(remaining) > 1:
        first, second = _next(remaining)
        a, b = remaining[first], remaining[second]
        remaining = [each for at, each in enumerate(remaining) if at not in (first, second)]
        needed = set(output).union(*(labels for labels, _ in remaining))
        remaining.append(_pair(a, b, needed))
    labels, array = _alone(remaining[0], set(output))
    return array.transpose([labels.index(label) for label in output])


def _next(terms: Sequence[Term]) -> tuple[int, int]:
    """The two operands to multiply next: the first pair of NumPy's greedy path."""
    if len(terms) == 2:
        return 0, 1
    names = {label: at for at, label in enumerate(dict.fromkeys(label for labels, _ in terms for label in labels))}
    arguments = [each for labels, array in terms for each in (array, [names[label] for label in labels])]
    path, _ = np.einsum_path(*arguments, [], optimize="greedy")
    first, second = sorted(path[1])[:2]
    return first, second


def _alone(term: Term, needed: set[int]) -> Term:
    """One operand with its diagonals taken and the labels that are not needed summed out."""
    labels, array = term
    kept = tuple(dict.fromkeys(label for label in labels if label in needed))
    if kept == labels:
        return term
    names = {label: at for at, label in enumerate(dict.fromkeys(labels))}
    return kept, np.asarray(np.einsum(array, [names[each] for each in labels], [names[each] for each in kept]))


def _pair(a: Term, b: Term, needed: set[int]) -> Term:
    a, b = _alone(a, needed | set(b[0])), _alone(b, needed | set(a[0]))
    a, b = _alone(_unstretched(a, b), needed | set(b[0])), _alone(_unstretched(b, a), needed | set(a[0]))
    a, b = _alone(a, needed | set(b[0])), _alone(b, needed | set(a[0]))
    shared = [label for label in a[0] if label in b[0]]
    stack = [label for label in shared if label in needed]
    inner = [label for label in shared if label not in needed]
    mine = [label for label in a[0] if label not in shared]
    theirs = [label for label in b[0] if label not in shared]
    left, right = _sorted(a, stack, mine, inner), _sorted(b, stack, inner, theirs)
    shape = (*left.shape[: len(stack)], *_sizes(a, mine), *_sizes(b, theirs))
    heads = left.shape[: len(stack)]
    left = left.reshape(*heads, _product(_sizes(a, mine)), _product(_sizes(a, inner)))
    right = right.reshape(*heads, _product(_sizes(b, inner)), _product(_sizes(b, theirs)))
    # Without an inner axis it is an outer product, for which BLAS is no help.
    result = matmul(left, right) if inner else left * right
    return (*stack, *mine, *theirs), result.reshape(shape)


def _unstretched(term: Term, other: Term) -> Term:
    """The term without axes of size 1 that are longer in the other operand: those broadcast."""
    labels, array = term
    longer = dict(zip(other[0], other[1].shape, strict=True))
    drop = [at for at, label in enumerate(labels) if array.shape[at] == 1 and longer.get(label, 1) != 1]
    if not drop:
        return term
    return tuple(label for at, label in enumerate(labels) if at not in drop), array.squeeze(tuple(drop))


def _sorted(term: Term, *groups: Sequence[int]) -> Array:
    labels, array = term
    return array.transpose([labels.index(label) for group in groups for label in group])


def _sizes(term: Term, labels: Sequence[int]) -> tuple[int, ...]:
    return tuple(term[1].shape[term[0].index(label)] for label in labels)


def _product(sizes: Sequence[int]) -> int:
    return int(np.prod(sizes, dtype=np.int64))


def _gradient(labels: Labels, shape: tuple[int, ...], others: Sequence[Term]) -> Array:
    """The gradient of an operand of ``shape``, given the output's gradient and the other operands."""
    own = tuple(dict.fromkeys(labels))
    known = set().union(*(each for each, _ in others))
    kept = tuple(label for label in own if label in known)
    result = contract(others, kept)
    sizes = [shape[labels.index(label)] for label in own]
    # A broadcast axis gets the sum of its copies' gradients; a summed axis gets a copy at each position.
    stretched = tuple(at for at, label in enumerate(kept) if result.shape[at] != 1 and sizes[own.index(label)] == 1)
    result = result.sum(axis=stretched, keepdims=True) if stretched else result
    result = result[tuple(slice(None) if label in kept else None for label in own)]
    full = np.broadcast_to(result, sizes)
    if own == labels:
        return full.copy()
    gradient = np.zeros(shape, result.dtype)
    names = {label: at for at, label in enumerate(own)}
    np.einsum(gradient, [names[label] for label in labels], list(range(len(own))))[...] = full
    return gradient


def _bias(mask: Array | None, allowed: Array | None, keys: int, dtype: DType) -> Array | None:
    """What is added to the scores, broadcastable to (batch, heads, queries, keys); ``None`` if nothing is."""
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
    """The mask extended to all keys: those after its end are masked out."""
    missing = keys - mask.shape[-1]
    if missing <= 0 or mask.ndim == 0:
        return mask
    return np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, missing)], constant_values=value)


# Attention: scaled dot products of queries and keys, softmax, weighted values.
# Scores are computed for a few heads at a time, so that they stay in the cache; the backward recomputes them. Query
# heads that share a key head are rows of one product, so keys and values are never repeated.

_BLOCK = 1 << 18
"""Scores per block: 1 MiB of float32."""

_FLOAT, _DOUBLE = 1, 11
RAW, CAPPED, BIASED, SOFTMAX = range(4)
"""The modes of qk_matmul_output: which scores it returns."""


class _Problem(NamedTuple):
    """Inputs as (batch, key heads, rows, size); a row of ``q`` is a query of one of the heads that share a key head."""

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
        raise UnsupportedError("Attention on numpy", "its softmax is float32 or wider", "use one of these types")
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
    """The problem, and the present key and value (batch, key heads, keys, size) in their own dtype."""
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
        found = f"{heads} query heads cannot share {held} key heads evenly"
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
    """The inverse of :func:`_split`, for inputs of that rank."""
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
    """Samples and ranges of key heads with about ``_BLOCK`` scores each."""
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
    # A query that may not attend to any key gets a row of zeros.
    np.copyto(largest, 0, where=np.isneginf(largest))
    weights = biased - largest
    np.exp(weights, out=weights)
    total = weights.sum(axis=-1, keepdims=True)
    np.copyto(total, 1, where=total == 0)
    weights /= total
    return [raw, capped, biased, weights]


def _pull(problem: _Problem, by_y: Any, by_shown: Any, mode: int | None, with_mask: bool) -> list[Any]:
    """The gradients of q, k and v in the problem's layout and, ``with_mask``, of the biased scores."""
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
    """The gradients of the node's inputs: caches split off, heads merged, the mask's in its own shape."""
    by_q, by_k, by_v, scores = found
    batch, held, rows, size = by_q.shape
    heads = held * problem.sharing
    for whole, g in ((by_k, gradients[1]), (by_v, gradients[2])):
        if g is not None:
            whole += lift(g)
    answer: list[Any] = [None] * len(inputs)
    answer[0] = cast_like(_merged(by_q.reshape(batch, heads, rows // problem.sharing, size), inputs[0].ndim), inputs[0])
    for at, whole in ((1, by_k), (2, by_v)):
        past = inputs[at + 3] if len(inputs) > at + 3 else None
        old = 0 if past is None else past.shape[2]
        answer[at] = cast_like(_merged(whole[:, :, old:], inputs[at].ndim), inputs[at])
        if past is not None:
            answer[at + 3] = cast_like(whole[:, :, :old], past)
    if scores is not None:
        mask = inputs[3]
        keys = scores.shape[3]
        # A mask shorter than the keys was padded, not broadcast.
        shape = (*mask.shape[:-1], keys) if mask.ndim else ()
        by_mask = unbroadcast(scores.reshape(batch, heads, rows // problem.sharing, keys), shape)
        answer[3] = cast_like(by_mask[..., : mask.shape[-1]] if mask.ndim else by_mask, mask)
    return tuple(answer)
