"""ScatterElements and ScatterND with their reductions, forward and backward.

The one idea: both write rows of a flattened array at flat positions (ScatterElements' rows are of one element), so one
implementation serves them. Without a reduction, of several updates to a place the last stays, and ONNX defines no
gradient for that: each gets the whole. Where min and max are tied, the gradient is shared evenly, as PyTorch does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from levelbench.frameworks.numpy.operators.indexing import add_rows, flat_positions, flat_rows
from levelbench.frameworks.numpy.operators.kernel import Kernel, Registry
from levelbench.frameworks.numpy.operators.numeric import Array, alone, lift, lower, quiet, within
from levelbench.operators.node import OperatorNode

__all__ = ["OPERATORS"]

OPERATORS = Registry()

Locate = Callable[[Sequence[int], Array], tuple[Array, int]]
"""(shape of data, indices) -> rows of the flattened data, elements of a row."""

_UFUNCS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _scattered(data: Array, rows: Array, updates: Array, reduction: str) -> Array:
    """A copy of ``data`` (count, width) with ``updates`` (n, width) put at ``rows`` or combined with what is there."""
    result = data.copy()
    if reduction == "none":
        result[rows] = updates
    elif reduction == "add" and data.shape[1] > 1 and data.dtype.kind == "f":
        result += add_rows(updates, rows, len(data))
    elif data.shape[1] == 1:
        _UFUNCS[reduction].at(result[:, 0], rows, updates[:, 0])
    else:
        _UFUNCS[reduction].at(result, rows, updates)
    return result


def _pulled(g: Array, data: Array, rows: Array, updates: Array, y: Array, reduction: str) -> tuple[Array, Array]:
    """The gradients of data (count, width) and updates (n, width)."""
    taken = g[rows]
    match reduction:
        case "none":
            kept = g.copy()
            kept[rows] = 0
            return kept, taken
        case "add":
            return g, taken
        case "mul":
            return _pulled_product(g, data, rows, updates)
    holds, won = data == y, updates == y[rows]
    count = holds + add_rows(won.astype(g.dtype), rows, len(data))
    share = g / np.maximum(count, 1)
    return np.where(holds, share, 0), np.where(won, share[rows], 0)


def _pulled_product(g: Array, data: Array, rows: Array, updates: Array) -> tuple[Array, Array]:
    """Products of all others: zeros are counted, and only the rest is multiplied and divided by."""
    zero = updates == 0
    filled = np.where(zero, updates.dtype.type(1), updates)
    product = _scattered(np.ones_like(data), rows, filled, "mul")
    zeros = add_rows(zero.astype(g.dtype), rows, len(data))
    by_data = np.where(zeros == 0, g * product, 0)
    others = np.where(zero, zeros[rows] == 1, zeros[rows] == 0)
    by_updates = np.where(others, (g * data * product)[rows] / filled, 0)
    return by_data, by_updates


def _scatter(locate: Locate, reduction: str) -> Kernel:
    def forward(data: Array, indices: Array, updates: Array) -> Array:
        rows, width = locate(data.shape, indices)
        if not (rows.size and width):
            return data.copy()
        flat, rising = data.reshape(-1, width), updates.reshape(-1, width)
        if reduction == "none":
            return _scattered(flat, rows, rising, reduction).reshape(data.shape)
        with quiet():
            return lower(_scattered(lift(flat), rows, lift(rising), reduction), data.dtype).reshape(data.shape)

    def backward(gradient: Array, inputs: Sequence[Any], output: Array) -> tuple[Array | None, ...]:
        data, indices, updates = inputs
        rows, width = locate(data.shape, indices)
        if not (rows.size and width):
            return gradient, None, np.zeros_like(updates)
        g, x, u, y = (lift(each).reshape(-1, width) for each in (gradient, data, updates, output))
        by_data, by_updates = _pulled(g, x, rows, u, y, reduction)
        found = within(by_data.reshape(data.shape), data), within(by_updates.reshape(updates.shape), updates)
        return found[0], None, found[1]

    return Kernel(forward, alone(backward))


@OPERATORS.add("ScatterElements", "Scatter")
def _scatter_elements(node: OperatorNode) -> Kernel:
    axis = node["axis"]

    def locate(shape: Sequence[int], indices: Array) -> tuple[Array, int]:
        return flat_positions(shape, indices, axis).reshape(-1), 1

    return _scatter(locate, node.get("reduction", "none"))


@OPERATORS.add("ScatterND")
def _scatter_nd(node: OperatorNode) -> Kernel:
    return _scatter(lambda shape, indices: flat_rows(shape, indices, 0), node.get("reduction", "none"))
