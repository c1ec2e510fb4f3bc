"""Resize and Upsample: nearest, linear and cubic, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, isclose, prod
from typing import Any, NamedTuple

import numpy as np

from levelbench.errors import UnsupportedError
from levelbench.frameworks.numpy.operators.kernel import Array, Kernel, Registry, alone, is_real, lift, lower
from levelbench.operators.node import OperatorNode

__all__ = ["OPERATORS", "Taps", "taps"]


class Taps(NamedTuple):
    """``indices`` and ``weights`` (outputs, elements each sees); ``outside`` outputs take the extrapolation value."""

    indices: Array
    weights: Array
    outside: Any

    def matrix(self, size: int, dtype: np.dtype[Any]) -> Array:
        """The map as a matrix (outputs, ``size``)."""
        found = np.zeros((len(self.indices), size), dtype)
        rows = np.arange(len(self.indices))
        for column, weight in zip(self.indices.T, self.weights.T, strict=True):
            found[rows, column] += weight.astype(dtype)
        return found


def taps(node: OperatorNode, size: int, out: int, scale: float, roi: tuple[float, float] | None) -> Taps:
    """Those of an axis of ``size`` elements that becomes one of ``out``."""
    x, outside = _coordinates(node["coordinate_transformation_mode"], size, out, scale, roi)
    if node["mode"] == "nearest":
        return Taps(np.clip(_nearest(x, node["nearest_mode"]), 0, size - 1)[:, None], np.ones((out, 1)), outside)
    left = np.floor(x).astype(np.int64)
    shrink = min(scale, 1.0) if node.get("antialias", 0) else 1.0
    reach = 1 if node["mode"] == "linear" else 2
    # A filter stretched by 1 / shrink sees the elements less than reach / shrink away.
    first = floor(-reach / shrink) + 1
    offsets = np.arange(first, 2 - first)
    distance = np.abs(offsets[None, :] - (x - left)[:, None]) * shrink
    weights = np.clip(1 - distance, 0, 1) if reach == 1 else _cubic(distance, node["cubic_coeff_a"])
    indices = left[:, None] + offsets[None, :]
    if shrink < 1:
        weights = weights / weights.sum(axis=1, keepdims=True)
    if node["exclude_outside"]:
        weights = np.where((indices < 0) | (indices >= size), 0, weights)
        total = weights.sum(axis=1, keepdims=True)
        weights = weights / np.where(total == 0, 1, total)
    return Taps(np.clip(indices, 0, size - 1), weights, outside)


def _coordinates(mode: str, size: int, out: int, scale: float, roi: tuple[float, float] | None) -> tuple[Array, Any]:
    """Where each output lies on the input, and which are outside of it (ONNX's formulas)."""
    at, width = np.arange(out, dtype=np.float64), scale * size
    match mode:
        case "half_pixel":
            return (at + 0.5) / scale - 0.5, None
        case "pytorch_half_pixel":
            return (at + 0.5) / scale - 0.5 if width > 1 else np.zeros(out), None
        case "half_pixel_symmetric":
            return size / 2 * (1 - out / width) + (at + 0.5) / scale - 0.5, None
        case "asymmetric":
            return at / scale, None
        case "align_corners":
            return np.zeros(out) if width == 1 else at * (size - 1) / (width - 1), None
        case "tf_crop_and_resize":
            start, end = roi or (0.0, 1.0)
            step = at / (width - 1) if width != 1 else np.full(out, 0.5)
            x = start * (size - 1) + step * (end - start) * (size - 1)
            return x, (x < 0) | (x > size - 1)
    raise UnsupportedError(f"Resize by {mode!r} on numpy", "ONNX has no such coordinates", "use half_pixel")


def _nearest(x: Array, mode: str) -> Array:
    match mode:
        case "floor":
            found = np.floor(x)
        case "ceil":
            found = np.ceil(x)
        case "round_prefer_ceil":
            found = np.floor(x + 0.5)
        case _:
            found = np.ceil(x - 0.5)
    return np.asarray(found.astype(np.int64))


def _cubic(distance: Array, a: float) -> Array:
    """Keys' cubic convolution (1981, equation 4) with coefficient ``a``."""
    d = distance
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


# Resize: nearest, linear and cubic, with all coordinates that ONNX names, forward and backward.
# Each axis in turn is mapped linearly, by taking a few elements for each output, or by a product with the map's matrix
# where there are many; the gradient is the product with its transpose.


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
