"""Gemm and MatMul, forward and backward, on BLAS.

The one idea: a stack of matrices times one matrix is one product of a taller matrix. Integers have no BLAS: where no
sum can exceed what float64 holds exactly, they are multiplied as float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from levelbench.frameworks.numpy.operators.broadcast import unbroadcast
from levelbench.frameworks.numpy.operators.kernel import Kernel, Registry
from levelbench.frameworks.numpy.operators.numeric import Array, is_real, lift, lower, quiet, selective, within
from levelbench.operators.node import OperatorNode

__all__ = ["OPERATORS", "matmul"]

OPERATORS = Registry()

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


@OPERATORS.add("MatMul")
def _matmul(node: OperatorNode) -> Kernel:
    def forward(a: Array, b: Array) -> Array:
        with quiet():
            return lower(matmul(lift(a), lift(b)), a.dtype)

    def backward(gradient: Array, inputs: Sequence[Any], wanted: Sequence[bool]) -> list[Array | None]:
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


@OPERATORS.add("Gemm")
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

    def backward(gradient: Array, inputs: Sequence[Any], wanted: Sequence[bool]) -> list[Array | None]:
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
