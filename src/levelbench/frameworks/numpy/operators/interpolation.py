"""Resize along one axis as a linear map: which elements each output sees, and with which weights.

The one idea: every mode of Resize is a few indices and weights for each output; all modes share the rest.
"""

from __future__ import annotations

from math import floor
from typing import Any, NamedTuple

import numpy as np

from levelbench.errors import UnsupportedError
from levelbench.frameworks.numpy.operators.numeric import Array
from levelbench.operators.node import OperatorNode

__all__ = ["Taps", "taps"]


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
