"""Matrix products: MatMul, Gemm and Einsum, forward and backward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod

import numpy as np

from levelbench.errors import UsageError
from levelbench.frameworks.numpy.operators.kernel import (
    Array,
    Inputs,
    Kernel,
    is_real,
    lift,
    lower,
    quiet,
    register,
    selective,
    unbroadcast,
    within,
)
from levelbench.operators.node import OperatorNode

__all__ = ["contract", "matmul"]

_EXACT_IN_FLOAT64 = 1 << 53


def matmul(a: Array, b: Array) -> Array:
    """NumPy's matmul of working dtypes: 1-d operands are vectors, leading axes broadcast."""
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
        return [None if each is None else within(each.reshape(x.shape), x) for each, x in pairs]

    return Kernel(forward, selective(backward), selective=True)


@register("Gemm")
def _gemm(node: OperatorNode) -> Kernel:
    """Computes alpha A' B' + beta C, where ' transposes if its attribute says so; C broadcasts to the product."""
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
            found[0] = within(right @ scaled.T if turn_a else scaled @ right.T, inputs[0])
        if wanted[1]:
            found[1] = within(scaled.T @ left if turn_b else left.T @ scaled, inputs[1])
        if len(inputs) > 2 and wanted[2]:
            by_c = unbroadcast(g, inputs[2].shape)
            found[2] = within(by_c if beta == 1 else by_c * by_c.dtype.type(beta), inputs[2])
        return found

    return Kernel(forward, selective(backward), selective=True)


# Einsum by matrix products, and its gradient by Einsum.
# Two operands are one product of matrices, once their axes are sorted into those that both keep (a stack), those that
# are summed (the inner axis) and those of one alone; and the gradient of an operand is the sum over the labels that it
# has not of the gradient of the output times the other operands.


Labels = tuple[int, ...]
"""An axis's label: a letter's number, or a negative one for an axis of the ellipsis, counted from its end."""
Term = tuple[Labels, Array]


@register("Einsum")
def _einsum(node: OperatorNode) -> Kernel:
    """Einstein's summation: ellipsis, repeated labels and the implicit output as in NumPy."""
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
            found[at] = within(_gradient(mine, x.shape, others), inputs[at])
        return found

    return Kernel(forward, selective(backward), selective=True)


def _parse(equation: str, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """The labels of each operand and of the output, the ellipsis written out."""
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise UsageError(f"Einsum {equation!r}", f"{len(ranks)} operands for {len(terms)} terms", "give one a term")
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
    """The sum over all labels that ``output`` has not of the product of ``terms``, with axes in the order of it."""
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
    """The two operands to multiply next: those that NumPy's greedy search takes first."""
    if len(terms) == 2:
        return 0, 1
    names = {label: at for at, label in enumerate(dict.fromkeys(label for labels, _ in terms for label in labels))}
    arguments = [each for labels, array in terms for each in (array, [names[label] for label in labels])]
    path, _ = np.einsum_path(*arguments, [], optimize="greedy")
    first, second = sorted(path[1])[:2]
    return first, second


def _alone(term: Term, needed: set[int]) -> Term:
    """One operand with its diagonals taken and the labels that nobody needs summed out."""
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
    # Without an inner axis it is an outer product: nothing for BLAS to do.
    result = matmul(left, right) if inner else left * right
    return (*stack, *mine, *theirs), result.reshape(shape)


def _unstretched(term: Term, other: Term) -> Term:
    """Without the axes of size 1 that the other operand has longer: they repeat a value."""
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
    """The gradient of an operand of ``shape``, given those of the output and the other operands."""
    own = tuple(dict.fromkeys(labels))
    known = set().union(*(each for each, _ in others))
    kept = tuple(label for label in own if label in known)
    result = contract(others, kept)
    sizes = [shape[labels.index(label)] for label in own]
    # An axis that was stretched gets the sum of the gradients of its copies, one that was summed out a copy a place.
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
