"""LpNormalization and MeanVarianceNormalization, forward and backward: an array divided by a norm of itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from levelbench.frameworks.numpy.operators.kernel import Kernel, Registry
from levelbench.frameworks.numpy.operators.numeric import Array, alone, lift, lower, quiet, within
from levelbench.operators.node import OperatorNode

__all__ = ["OPERATORS"]

OPERATORS = Registry()

_EPSILON = 1e-9
"""What ONNX's definition of MeanVarianceNormalization adds to the standard deviation."""


@OPERATORS.add("LpNormalization")
def _lp_normalization(node: OperatorNode) -> Kernel:
    """X over its L1 or L2 norm along an axis; zeros where the norm is zero."""
    axis, p = node["axis"], node["p"]

    def norm(x: Array) -> Array:
        if p == 1:
            return np.asarray(np.abs(x).sum(axis=axis, keepdims=True))
        return np.asarray(np.sqrt(np.square(x).sum(axis=axis, keepdims=True)))

    def forward(x: Array) -> Array:
        wide = lift(x)
        with quiet():
            size = norm(wide)
            return lower(np.where(size == 0, wide.dtype.type(0), wide / size), x.dtype)

    def backward(gradient: Array, inputs: Sequence[Any], output: Array) -> tuple[Array, ...]:
        x, y, g = lift(inputs[0]), lift(output), lift(gradient)
        size = norm(x)
        slope = np.sign(x) if p == 1 else y
        by_x = (g - slope * (g * y).sum(axis=axis, keepdims=True)) / size
        return (within(np.where(size == 0, x.dtype.type(0), by_x), inputs[0]),)

    return Kernel(forward, alone(backward))


@OPERATORS.add("MeanVarianceNormalization")
def _mean_variance_normalization(node: OperatorNode) -> Kernel:
    """X less its mean, over its standard deviation plus 1e-9, along axes."""
    axes = tuple(node.get("axes") or (0, 2, 3))

    def parts(x: Array) -> tuple[Array, Array]:
        centred = x - x.mean(axis=axes, keepdims=True)
        return centred, np.sqrt(np.square(centred).mean(axis=axes, keepdims=True))

    def forward(x: Array) -> Array:
        with quiet():
            centred, deviation = parts(lift(x))
            return lower(centred / (deviation + deviation.dtype.type(_EPSILON)), x.dtype)

    def backward(gradient: Array, inputs: Sequence[Any], output: Array) -> tuple[Array, ...]:
        g = lift(gradient)
        centred, deviation = parts(lift(inputs[0]))
        size = deviation + deviation.dtype.type(_EPSILON)
        share = (g * centred).mean(axis=axes, keepdims=True) / (size * size * deviation)
        by_centred = g / size - centred * np.where(deviation == 0, deviation.dtype.type(0), share)
        return (within(by_centred - by_centred.mean(axis=axes, keepdims=True), inputs[0]),)

    return Kernel(forward, alone(backward))
