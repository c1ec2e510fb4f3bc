"""Operators that choose elements: TopK, Compress, NonZero, Trilu.

The one idea: the largest of a row are found by a partial sort of values, and the lowest indices among equals by
counting them; only what was chosen is sorted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from levelbench.frameworks.numpy.operators.kernel import Kernel, Registry
from levelbench.frameworks.numpy.operators.logic import no_gradient
from levelbench.frameworks.numpy.operators.numeric import Array, is_narrow, is_real, lift
from levelbench.operators.node import OperatorNode

__all__ = ["OPERATORS"]

OPERATORS = Registry()


@OPERATORS.add("TopK")
def _top_k(node: OperatorNode) -> Kernel:
    """The k largest or smallest along ``axis`` in order, and their indices; the lower index first among equals.

    NaN counts as larger than any number. ``sorted=0`` leaves the order open, so it is sorted, too.
    """
    axis, largest = node["axis"], bool(node["largest"])

    def forward(x: Array, k: Array) -> tuple[Array, Array]:
        rows = np.moveaxis(x, axis, -1)
        values = lift(rows) if is_narrow(x.dtype) else rows
        indices = _best(values, int(np.asarray(k).item()), largest)
        chosen = np.take_along_axis(rows, indices, -1)
        return np.moveaxis(chosen, -1, axis), np.moveaxis(indices, -1, axis)

    def backward(gradients: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[Any, ...]:
        if gradients[0] is None or not is_real(inputs[0]):
            return None, None
        result = np.zeros_like(inputs[0])
        indices = outputs[1] if len(outputs) > 1 and outputs[1] is not None else forward(*inputs)[1]
        np.put_along_axis(result, indices, gradients[0], axis)
        return result, None

    return Kernel(forward, backward)


def _in_order(rows: Array, largest: bool) -> Array:
    """Indices that sort the last axis, equal elements by index."""
    if not largest:
        return np.argsort(rows, axis=-1, kind="stable")
    # Backwards twice: it holds for unsigned integers, too, which have no negative.
    backwards = np.argsort(rows[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    return np.asarray(rows.shape[-1] - 1 - backwards)


def _best(rows: Array, k: int, largest: bool) -> Array:
    size = rows.shape[-1]
    if k * 4 > size or (rows.dtype.kind == "f" and bool(np.isnan(rows).any())):
        return np.ascontiguousarray(_in_order(rows, largest)[..., :k])
    if k == 0:
        return np.empty((*rows.shape[:-1], 0), np.int64)
    at = size - k if largest else k - 1
    threshold = np.partition(rows, at, axis=-1)[..., at : at + 1]
    better = rows > threshold if largest else rows < threshold
    equal = rows == threshold
    missing = k - np.count_nonzero(better, axis=-1, keepdims=True)
    if np.any(np.count_nonzero(equal, axis=-1, keepdims=True) != missing):
        equal &= np.cumsum(equal, axis=-1) <= missing
    better |= equal
    chosen = np.flatnonzero(better).reshape(*rows.shape[:-1], k) % size
    order = _in_order(np.take_along_axis(rows, chosen, -1), largest)
    return np.take_along_axis(chosen, order, -1)


@OPERATORS.add("Compress")
def _compress(node: OperatorNode) -> Kernel:
    """Slices of x (elements of it flattened, without ``axis``) where the condition holds; a short one is false on."""
    axis = node.get("axis")

    def backward(gradients: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[Any, ...]:
        x, condition = inputs
        if gradients[0] is None or not is_real(x):
            return None, None
        chosen = np.flatnonzero(condition)
        if axis is None:
            flat = np.zeros(x.size, x.dtype)
            flat[chosen] = gradients[0]
            return flat.reshape(x.shape), None
        result = np.zeros_like(x)
        np.moveaxis(result, axis, 0)[chosen] = np.moveaxis(gradients[0], axis, 0)
        return result, None

    return Kernel(lambda x, condition: np.compress(condition, x, axis), backward)


@OPERATORS.add("NonZero")
def _non_zero(node: OperatorNode) -> Kernel:
    """Indices of elements that are not zero, (rank, count), in row order."""

    def forward(x: Array) -> Array:
        if x.ndim == 0:
            return np.empty((0, np.count_nonzero(x)), np.int64)
        return np.stack(np.nonzero(x)).astype(np.int64, copy=False)

    return Kernel(forward, no_gradient)


@OPERATORS.add("Trilu")
def _trilu(node: OperatorNode) -> Kernel:
    """The upper or lower triangle of each matrix, from the k-th diagonal on."""
    part = np.triu if node["upper"] else np.tril

    def triangle(x: Array, k: Any) -> Array:
        return part(x, 0 if k is None else int(np.asarray(k).item()))

    def backward(gradients: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[Any, ...]:
        rest = (None,) * (len(inputs) - 1)
        if gradients[0] is None or not is_real(inputs[0]):
            return None, *rest
        return triangle(gradients[0], inputs[1] if rest else None), *rest

    return Kernel(lambda x, k=None: triangle(x, k), backward)
