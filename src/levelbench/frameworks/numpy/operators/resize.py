"""Resize: nearest, linear and cubic, with all coordinates that ONNX names, forward and backward.

Each axis in turn is mapped linearly, by taking a few elements for each output, or by a product with the map's matrix
where there are many; the gradient is the product with its transpose.
"""

from __future__ import annotations

from math import prod

import numpy as np

from levelbench.errors import UnsupportedError
from levelbench.frameworks.numpy.operators.kernel import (
    Array,
    DType,
    Inputs,
    Kernel,
    alone,
    is_real,
    lift,
    lower,
    register,
)
from levelbench.frameworks.shared.resize import AxisChange, Taps, changes_of, rule_of, taps_of
from levelbench.operators.node import OperatorNode

_MANY = 4
"""More elements than this for each output, and a product of matrices is faster."""


@register("Resize")
def _resize(node: OperatorNode) -> Kernel:
    rule = rule_of(node)
    nearest = rule.mode == "nearest"

    def forward(x: Array, roi: Array | None = None, scales: Array | None = None, sizes: Array | None = None) -> Array:
        if not nearest and not is_real(x):
            raise UnsupportedError(f"Resize of {x.dtype} on numpy", "it interpolates floats only", "cast the input")
        found = x if nearest else lift(x)
        for each in changes_of(node, x.shape, roi, scales, sizes):
            taps = taps_of(each, rule)
            found = _along(found, each, taps)
            if taps.outside is not None and taps.outside.any():
                found[(slice(None),) * each.axis + (taps.outside,)] = rule.extrapolation
        return lower(found, x.dtype)

    def backward(gradient: Array, inputs: Inputs, y: Array) -> tuple[Array | None, ...]:
        x, *others = inputs
        found = lift(gradient)
        for each in reversed(changes_of(node, x.shape, *others)):
            found = _back(found, each, taps_of(each, rule))
        return lower(found, x.dtype), *(None,) * len(others)

    return Kernel(forward, alone(backward))


def _along(x: Array, each: AxisChange, taps: Taps) -> Array:
    indices, weights, _ = taps
    if indices.shape[1] > _MANY:
        return _product(_matrix(taps, each.size, x.dtype), x, each.axis)
    if indices.shape[1] == 1:
        return x.take(indices[:, 0], axis=each.axis)
    shape = (-1, *(1,) * (x.ndim - each.axis - 1))
    found: Array | None = None
    for index, weight in zip(indices.T, weights.T, strict=True):
        part = x.take(index, axis=each.axis)
        part *= weight.reshape(shape).astype(x.dtype)
        found = part if found is None else np.add(found, part, out=found)
    assert found is not None
    return found


def _back(g: Array, each: AxisChange, taps: Taps) -> Array:
    matrix = _matrix(taps, each.size, g.dtype)
    if taps.outside is not None:
        matrix[taps.outside] = 0
    return _product(matrix.T, g, each.axis)


def _matrix(taps: Taps, size: int, dtype: DType) -> Array:
    """The map of an axis as a matrix (outputs, ``size``)."""
    found = np.zeros((len(taps.places), size), dtype)
    rows = np.arange(len(taps.places))
    for column, weight in zip(taps.places.T, taps.weights.T, strict=True):
        found[rows, column] += weight.astype(dtype)
    return found


def _product(matrix: Array, x: Array, axis: int) -> Array:
    """``matrix`` times ``x`` along an axis."""
    shape = x.shape
    if axis == x.ndim - 1:
        return (np.ascontiguousarray(x).reshape(-1, shape[-1]) @ matrix.T).reshape(*shape[:-1], len(matrix))
    stack = np.ascontiguousarray(x).reshape(prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]))
    return np.matmul(matrix, stack).reshape(*shape[:axis], len(matrix), *shape[axis + 1 :])
