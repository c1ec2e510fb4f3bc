"""Matrices of low rank in place of gradients: the steps of PowerSGD's power iteration.

The one idea: P = M Q and Q = Mᵀ P are linear in M, so the ranks' factors can be added up by an all-reduce, and no rank
needs the sum of the matrices themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from levelbench.distributed.compression.draws import Key
from levelbench.networks.executor import Array
from levelbench.training.optimizers.arrays import namespace

__all__ = ["Factors", "orthonormal", "start"]


@dataclass(frozen=True)
class Factors:
    """How an array of this shape is a matrix (its first axis, and all others), and the rank of its factors."""

    rows: int
    columns: int
    rank: int

    @classmethod
    def of(cls, shape: tuple[int, ...], rank: int, least_ratio: float) -> Factors | None:
        """``None`` for what travels as it is.

        That is arrays of fewer than two axes, and matrices whose factors are not ``least_ratio`` times smaller.
        """
        if len(shape) < 2 or not prod(shape):
            return None
        rows, columns = shape[0], prod(shape[1:])
        rank = min(rank, rows, columns)
        return cls(rows, columns, rank) if (rows + columns) * rank * least_ratio < rows * columns else None


def orthonormal(matrix: Array) -> Array:
    """An orthonormal basis of the columns, shape (rows, rank), by QR; any one where they are dependent."""
    return namespace(matrix).linalg.qr(matrix, mode="reduced")[0]


def start(factors: Factors, like: Array, key: Key) -> Array:
    """A first Q, shape (columns, rank): normal draws, the same on all ranks, orthonormal."""
    drawn = key.everywhere().generator().standard_normal((factors.columns, factors.rank))
    basis = np.ascontiguousarray(np.linalg.qr(drawn)[0])
    xp = namespace(like)
    return xp.astype(xp.asarray(basis, device=like.device), like.dtype)
