"""Resize and Upsample: nearest, linear and cubic, with every rule of ONNX for where an output element lies.

The one idea: an output element along one axis is a weighted sum of a few input elements whose places and weights follow
from shapes and scales alone; so they are found in NumPy while tracing, and each axis is one gather and one sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from levelbench.frameworks.jax.operators.registry import Function, maker, refuse
from levelbench.operators.node import OperatorNode

__all__: list[str] = []

Float = NDArray[np.float64]


class _Rules(NamedTuple):
    """What the node says."""

    mode: str
    coordinates: str
    nearest: str
    cubic: float
    antialias: bool
    exclude_outside: bool
    extrapolation: float


class _Axis(NamedTuple):
    """Along one axis: lengths, scale, and the part of the input that ``tf_crop_and_resize`` looks at."""

    length: int
    output: int
    scale: float
    start: float
    end: float


def _sources(rules: _Rules, axis: _Axis) -> Float:
    """Where each output element lies in the input, in elements."""
    y = np.arange(axis.output, dtype=np.float64)
    last, scaled = axis.length - 1, axis.scale * axis.length
    match rules.coordinates:
        case "align_corners":
            return np.zeros_like(y) if scaled == 1 else y * last / (scaled - 1)
        case "asymmetric":
            return y / axis.scale
        case "tf_crop_and_resize":
            inner = axis.end - axis.start
            first = axis.start * last
            return np.full_like(y, first + inner * last / 2) if scaled == 1 else first + y * inner * last / (scaled - 1)
        case "pytorch_half_pixel":
            return np.full_like(y, -0.5) if scaled == 1 else (y + 0.5) / axis.scale - 0.5
        case "half_pixel_symmetric":
            return axis.length / 2 * (1 - axis.output / scaled) + (y + 0.5) / axis.scale - 0.5
    return (y + 0.5) / axis.scale - 0.5


def _weights(rules: _Rules, ratio: Float, scale: float) -> tuple[Float, int]:
    """(output, neighbour) weights, and the first neighbour's distance from the element left of the source."""
    shrink = min(scale, 1.0) if rules.antialias else 1.0
    column = ratio[:, None]
    if rules.mode == "nearest":
        right = {"round_prefer_ceil": ratio >= 0.5, "floor": ratio == 1, "ceil": ratio > 0}
        chosen = right.get(rules.nearest, ratio > 0.5)
        return np.stack([~chosen, chosen], 1).astype(np.float64), 0
    reach = 1 if rules.mode == "linear" else 2
    first = int(np.floor(-reach / shrink)) + 1
    distance = np.abs(np.arange(first, 2 - first) - column) * shrink
    if rules.mode == "linear":
        found = np.clip(1 - distance, 0, 1)
    else:
        a = rules.cubic
        near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
        far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        found = np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))
    return (found / found.sum(1, keepdims=True) if rules.antialias else found), first


def _along(rules: _Rules, axis: _Axis) -> tuple[NDArray[np.int64], Float, NDArray[np.bool_]]:
    """Neighbours and their weights, both (output, neighbour), and which output elements lie outside."""
    source = _sources(rules, axis)
    left = np.floor(source)
    # A source on an element counts as one whole step right of the element before.
    left = np.where(left == source, left - 1, left)
    weights, first = _weights(rules, source - left, axis.scale)
    places = left.astype(np.int64)[:, None] + first + np.arange(weights.shape[1])
    if rules.exclude_outside:
        weights = np.where((places < 0) | (places >= axis.length), 0.0, weights)
        total = weights.sum(1, keepdims=True)
        weights = weights / np.where(total == 0, 1.0, total)
    outside = np.zeros(axis.output, bool)
    if rules.coordinates == "tf_crop_and_resize":
        outside = (source < 0) | (source > axis.length - 1)
    return np.clip(places, 0, axis.length - 1), weights, outside


def _apply(rules: _Rules, x: Any, at: int, axis: _Axis) -> Any:
    places, weights, outside = _along(rules, axis)
    if rules.mode == "nearest":
        found = jnp.take(x, places[np.arange(axis.output), weights.argmax(1)], at)
    else:
        shape = [1] * (x.ndim + 1)
        shape[at : at + 2] = weights.shape
        found = jnp.sum(jnp.take(x, places, at) * jnp.asarray(weights.reshape(shape), x.dtype), at + 1)
    if not outside.any():
        return found
    mask = outside.reshape([-1 if each == at else 1 for each in range(x.ndim)])
    return jnp.where(mask, jnp.asarray(rules.extrapolation, x.dtype), found)


def _resized(rules: _Rules, x: Any, plan: Sequence[tuple[int, _Axis]]) -> Any:
    """One axis after the other, rounded at the end where the elements are integers."""
    integer = not jnp.issubdtype(x.dtype, jnp.inexact)
    wide = x if rules.mode == "nearest" else x.astype(jnp.float64 if x.dtype.itemsize > 4 else jnp.float32)
    for at, axis in plan:
        still = axis.output == axis.length and axis.scale == 1
        if not (still and axis.start == 0 and axis.end == 1):
            wide = _apply(rules, wide, at, axis)
    if integer and rules.mode != "nearest":
        most = jnp.iinfo(x.dtype)
        wide = jnp.clip(jnp.round(wide), most.min, most.max)
    return wide.astype(x.dtype)


def _plan(node: OperatorNode, shape: Sequence[int], roi: Any, scales: Any, sizes: Any) -> list[tuple[int, _Axis]]:
    axes = [int(each) % len(shape) for each in node.get("axes") or range(len(shape))]
    lengths = [shape[each] for each in axes]
    if sizes is not None and sizes.size:
        factors = [int(size) / length for size, length in zip(sizes, lengths, strict=True)]
        outputs = [int(each) for each in sizes]
        policy = node.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            factors = [min(factors) if policy == "not_larger" else max(factors)] * len(axes)
            outputs = [int(factor * length + 0.5) for factor, length in zip(factors, lengths, strict=True)]
    else:
        factors = [float(each) for each in scales]
        outputs = [int(factor * length) for factor, length in zip(factors, lengths, strict=True)]
    count = len(axes)
    crop = [0.0] * count + [1.0] * count if roi is None or not roi.size else [float(each) for each in roi]
    return [
        (axis, _Axis(lengths[at], outputs[at], factors[at], crop[at], crop[count + at])) for at, axis in enumerate(axes)
    ]


@maker("Resize")
def _resize(node: OperatorNode) -> Function:
    rules = _Rules(
        node["mode"],
        node["coordinate_transformation_mode"],
        node["nearest_mode"],
        float(node["cubic_coeff_a"]),
        bool(node.get("antialias", 0)),
        bool(node["exclude_outside"]),
        float(node["extrapolation_value"]),
    )
    if rules.mode not in {"nearest", "linear", "cubic"}:
        raise refuse(node, f"there is no mode {rules.mode!r}")

    def resize(x: Any, roi: Any = None, scales: Any = None, sizes: Any = None) -> Any:
        crop = roi if rules.coordinates == "tf_crop_and_resize" else None
        return _resized(rules, x, _plan(node, x.shape, crop, scales, sizes))

    return resize


@maker("Upsample")
def _upsample(node: OperatorNode) -> Function:
    """What Resize does with asymmetric coordinates, rounded down."""
    rules = _Rules(node["mode"], "asymmetric", "floor", -0.75, False, False, 0.0)
    return lambda x, scales: _resized(rules, x, _plan(node, x.shape, None, scales, None))
