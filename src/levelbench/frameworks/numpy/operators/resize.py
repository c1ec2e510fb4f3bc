"""Resize: nearest, linear and cubic, with all coordinates that ONNX names, forward and backward.

The one idea: each axis in turn is mapped linearly, by taking a few elements for each output, or by a product with the
map's matrix where there are many; the gradient is the product with its transpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose, prod
from typing import Any, NamedTuple

import numpy as np

from levelbench.errors import UnsupportedError
from levelbench.frameworks.numpy.operators.interpolation import Taps, taps
from levelbench.frameworks.numpy.operators.kernel import Kernel, Registry
from levelbench.frameworks.numpy.operators.numeric import Array, alone, is_real, lift, lower
from levelbench.operators.node import OperatorNode

__all__ = ["OPERATORS"]

OPERATORS = Registry()

_MANY = 4
"""More elements than this for each output, and a product of matrices is faster."""


class _Axis(NamedTuple):
    """One axis that changes."""

    axis: int
    size: int
    taps: Taps


@OPERATORS.add("Resize")
def _resize(node: OperatorNode) -> Kernel:
    nearest, beyond = node["mode"] == "nearest", node["extrapolation_value"]

    def forward(x: Array, roi: Any = None, scales: Any = None, sizes: Any = None) -> Array:
        if not nearest and not is_real(x):
            raise UnsupportedError(f"Resize of {x.dtype} on numpy", "it interpolates floats only", "cast the input")
        found = x if nearest else lift(x)
        for each in _axes(node, x.shape, roi, scales, sizes):
            found = _along(found, each)
            if each.taps.outside is not None and each.taps.outside.any():
                found[(slice(None),) * each.axis + (each.taps.outside,)] = beyond
        return lower(found, x.dtype)

    def backward(gradient: Array, inputs: Sequence[Any], y: Array) -> tuple[Array | None, ...]:
        x, *others = inputs
        found = lift(gradient)
        for each in reversed(_axes(node, x.shape, *others, *(None,) * (3 - len(others)))):
            found = _back(found, each)
        return lower(found, x.dtype), *(None,) * len(others)

    return Kernel(forward, alone(backward))


def _axes(node: OperatorNode, shape: tuple[int, ...], roi: Any, scales: Any, sizes: Any) -> list[_Axis]:
    """The axes that change, with their maps."""
    chosen = [int(axis) % len(shape) for axis in node.get("axes") or range(len(shape))]
    if sizes is not None and np.size(sizes):
        outs = [int(each) for each in sizes]
        factors = [out / shape[axis] for out, axis in zip(outs, chosen, strict=True)]
        policy = node.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            factor = min(factors) if policy == "not_larger" else max(factors)
            factors = [factor] * len(chosen)
            outs = [int(factor * shape[axis] + 0.5) for axis in chosen]
    else:
        factors = [float(each) for each in scales]
        outs = [int(factor * shape[axis]) for factor, axis in zip(factors, chosen, strict=True)]
    crops = roi is not None and np.size(roi) and node["coordinate_transformation_mode"] == "tf_crop_and_resize"
    found = []
    for at, (axis, factor, out) in enumerate(zip(chosen, factors, outs, strict=True)):
        part = (float(roi[at]), float(roi[at + len(chosen)])) if crops else None
        if isclose(factor, 1) and out == shape[axis] and part in (None, (0.0, 1.0)):
            continue
        found.append(_Axis(axis, shape[axis], taps(node, shape[axis], out, factor, part)))
    return found


def _along(x: Array, each: _Axis) -> Array:
    indices, weights, _ = each.taps
    if indices.shape[1] > _MANY:
        return _product(each.taps.matrix(each.size, x.dtype), x, each.axis)
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


def _back(g: Array, each: _Axis) -> Array:
    matrix = each.taps.matrix(each.size, g.dtype)
    if each.taps.outside is not None:
        matrix[each.taps.outside] = 0
    return _product(matrix.T, g, each.axis)


def _product(matrix: Array, x: Array, axis: int) -> Array:
    """``matrix`` times ``x`` along an axis."""
    shape = x.shape
    if axis == x.ndim - 1:
        return (np.ascontiguousarray(x).reshape(-1, shape[-1]) @ matrix.T).reshape(*shape[:-1], len(matrix))
    stack = np.ascontiguousarray(x).reshape(prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]))
    return np.matmul(matrix, stack).reshape(*shape[:axis], len(matrix), *shape[axis + 1 :])
