"""(x - mean) / sqrt(variance + epsilon) over rows, and its gradient: what layer, instance and group norms share.

The one idea: an array is viewed as rows, each of which is standardised by itself; sums of products are dot products, so
no array of squares is made.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto, helper

from levelbench.frameworks.numpy.operators.numeric import Array, lift
from levelbench.operators.node import OperatorNode

__all__ = ["Standardised", "dots", "stage", "staged", "standardise", "standardise_gradient"]


_LONG = 4096


def stage(node: OperatorNode) -> np.dtype[Any]:
    """The type that ``stash_type`` asks the statistics to be computed in: float32, unless it is told another."""
    return np.dtype(helper.tensor_dtype_to_np_dtype(node.get("stash_type", TensorProto.FLOAT)))


def staged(x: Array, node: OperatorNode) -> Array:
    """``x`` in its working dtype or, if the node asks for it, in a wider one."""
    wide = lift(x)
    return wide.astype(np.float64) if stage(node) == np.float64 else wide


class Standardised(NamedTuple):
    """``values`` (rows, n), and by row, as columns (rows, 1), the mean and 1 / sqrt(variance + epsilon)."""

    values: Array
    mean: Array
    inverse: Array


def dots(a: Array, b: Array) -> Array:
    """The dot product of each pair of rows, as a column."""
    found: Array = np.einsum("ij,ij->i", a, b)[:, None]
    return found


def standardise(rows: Array, epsilon: float) -> Standardised:
    """``rows`` (rows, n) standardised; the variance is that of the population."""
    mean = _mean(rows)
    values = rows - mean
    inverse = 1 / np.sqrt(dots(values, values) / rows.shape[1] + rows.dtype.type(epsilon))
    values *= inverse
    return Standardised(values, mean, inverse)


def _mean(rows: Array) -> Array:
    """By row, as a column; short rows as a product of matrices, long ones pairwise, which loses fewer digits."""
    n = rows.shape[1]
    if n > _LONG or not n:
        return rows.mean(axis=1, keepdims=True)
    found: Array = rows @ np.ones((n, 1), rows.dtype)
    found /= n
    return found


def standardise_gradient(g: Array, found: Standardised, by_mean: Any = None, by_inverse: Any = None) -> Array:
    """The gradient by the rows, given those by the values and, as columns, by the mean and by the inverse."""
    n = g.shape[1]
    along = dots(g, found.values) / n
    if by_inverse is not None:
        # The derivative of the inverse by x is -inverse^2 values / n.
        along = along + by_inverse * (found.inverse / n)
    result: Array = found.values * -along
    result += g
    result -= _mean(g)
    result *= found.inverse
    if by_mean is not None:
        result += by_mean / n
    return result
