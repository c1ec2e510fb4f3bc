"""Activation functions with a kink or an exponential side, forward and backward.

The one idea: at a kink the gradient is PyTorch's: 0 for Relu at 0, that of the negative side for LeakyRelu, PRelu, Elu,
Celu and Selu.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from levelbench.frameworks.numpy.operators.broadcast import unbroadcast
from levelbench.frameworks.numpy.operators.kernel import Kernel, Registry
from levelbench.frameworks.numpy.operators.numeric import Array, alone, keep, lift, lower, quiet, within
from levelbench.frameworks.numpy.operators.pointwise import activation, negative_expm1
from levelbench.operators.node import OperatorNode

__all__ = ["OPERATORS"]

OPERATORS = Registry()


@OPERATORS.add("Relu")
def _relu(node: OperatorNode) -> Kernel:
    def backward(gradient: Array, inputs: Sequence[Any], output: Array) -> tuple[Array, ...]:
        return (gradient * (output > 0),)

    return Kernel(lambda x: np.asarray(np.maximum(x, x.dtype.type(0))), alone(backward))


@OPERATORS.add("LeakyRelu")
def _leaky_relu(node: OperatorNode) -> Kernel:
    alpha = node["alpha"]

    def fill(out: Array, x: Array) -> None:
        # The greater of two products takes two passes, selecting takes three times as long.
        if 0 < alpha <= 1:
            np.multiply(x, x.dtype.type(alpha), out=out)
            np.maximum(x, out, out=out)
        else:
            out[...] = np.where(x < 0, x * x.dtype.type(alpha), x)

    def slope(x: Array, y: Array) -> Array:
        if not 0 <= alpha <= 1:
            return np.where(x > 0, x.dtype.type(1), x.dtype.type(alpha))
        steep = (x > 0).astype(x.dtype)
        return np.maximum(steep, x.dtype.type(alpha), out=steep)

    return activation(fill, slope)


@OPERATORS.add("PRelu")
def _prelu(node: OperatorNode) -> Kernel:
    """x, times ``slope`` where it is negative; ``slope`` broadcasts to x."""

    def forward(x: Array, slope: Array) -> Array:
        wide = lift(x)
        factor, zero = lift(slope), wide.dtype.type(0)
        with quiet():
            if factor.size and factor.min() > 0 and factor.max() <= 1:
                y = np.multiply(wide, factor)
                return lower(np.maximum(y, wide), x.dtype)
            if not np.all(np.isfinite(factor)):
                return lower(np.where(wide < 0, wide * factor, wide), x.dtype)
            # Slopes of any sign: four passes over the whole array, up to six times the time of PyTorch's.
            y = np.asarray(np.minimum(wide, zero))
            y *= factor
            y += np.maximum(wide, zero)
            return lower(y, x.dtype)

    def backward(gradient: Array, inputs: Sequence[Any], output: Array) -> tuple[Array, ...]:
        x, slope, g = (lift(each) for each in (*inputs, gradient))
        steep = (x > 0).astype(x.dtype)
        by_x = g * (steep + (1 - steep) * slope)
        by_slope = g * np.minimum(x, x.dtype.type(0))
        return within(by_x, inputs[0]), within(unbroadcast(by_slope, slope.shape), inputs[1])

    return Kernel(forward, alone(backward))


def _exponential(x: Array, alpha: float, below: float, above: float) -> Array:
    """``above`` times x for positive x, ``below`` times (exp(x / alpha) - 1) for the others."""
    result = negative_expm1(x if alpha == 1 else x / x.dtype.type(alpha))
    result *= x.dtype.type(below)
    positive = np.maximum(x, x.dtype.type(0))
    if above != 1:
        positive *= x.dtype.type(above)
    result += positive
    return result


def _exponential_unit(alpha: float, below: float, above: float) -> Kernel:
    """Elu, Celu and Selu: ``below`` times (exp(x / alpha) - 1) up to 0, then ``above`` times x."""

    def fill(out: Array, x: Array) -> None:
        out[...] = _exponential(x, alpha, below, above)

    def slope(x: Array, y: Array) -> Array:
        if below == alpha * above:
            # Both sides meet at 0 with one slope, so that of the negative one serves the other, too.
            side = np.minimum(y, x.dtype.type(0))
            side += x.dtype.type(below)
            side *= x.dtype.type(1 / alpha)
            return side
        positive = x > 0
        side = y + x.dtype.type(below)
        side *= x.dtype.type(1 / alpha)
        side = keep(side, ~positive)
        side += positive * x.dtype.type(above)
        return side

    return activation(fill, slope)


@OPERATORS.add("Elu")
def _elu(node: OperatorNode) -> Kernel:
    return _exponential_unit(1.0, node["alpha"], 1.0)


@OPERATORS.add("Celu")
def _celu(node: OperatorNode) -> Kernel:
    return _exponential_unit(node["alpha"], node["alpha"], 1.0)


@OPERATORS.add("Selu")
def _selu(node: OperatorNode) -> Kernel:
    return _exponential_unit(1.0, node["gamma"] * node["alpha"], node["gamma"])


@OPERATORS.add("HardSigmoid")
def _hard_sigmoid(node: OperatorNode) -> Kernel:
    alpha, beta = node["alpha"], node["beta"]

    def fill(out: Array, x: Array) -> None:
        np.multiply(x, x.dtype.type(alpha), out=out)
        out += x.dtype.type(beta)
        np.clip(out, x.dtype.type(0), x.dtype.type(1), out=out)

    return activation(fill, lambda x, y: x.dtype.type(alpha) * ((y > 0) & (y < 1)))


@OPERATORS.add("HardSwish")
def _hard_swish(node: OperatorNode) -> Kernel:
    """The product x max(0, min(1, x/6 + 1/2))."""

    def fill(out: Array, x: Array) -> None:
        np.multiply(x, x.dtype.type(1 / 6), out=out)
        out += x.dtype.type(0.5)
        np.clip(out, x.dtype.type(0), x.dtype.type(1), out=out)
        out *= x

    def slope(x: Array, y: Array) -> Array:
        # Two kinks: ten passes, four times the time of PyTorch's.
        middle = x * x.dtype.type(1 / 3)
        middle += x.dtype.type(0.5)
        keep(middle, np.abs(x) < 3, out=middle)
        middle += x >= 3
        return middle

    return activation(fill, slope)


@OPERATORS.add("Softsign")
def _softsign(node: OperatorNode) -> Kernel:
    """The quotient x / (1 + |x|)."""

    def fill(out: Array, x: Array) -> None:
        np.abs(x, out=out)
        out += 1
        np.divide(x, out, out=out)

    return activation(fill, lambda x, y: np.square(1 / (1 + np.abs(x))))


@OPERATORS.add("ThresholdedRelu")
def _thresholded_relu(node: OperatorNode) -> Kernel:
    alpha = node["alpha"]

    def fill(out: Array, x: Array) -> None:
        keep(x, x > alpha, out=out)

    return activation(fill, lambda x, y: (x > alpha).astype(x.dtype))


@OPERATORS.add("Shrink")
def _shrink(node: OperatorNode) -> Kernel:
    """Answers x + bias below -lambd, x - bias above lambd, 0 between."""
    bias, limit = node["bias"], node["lambd"]

    def fill(out: Array, x: Array) -> None:
        if limit < 0:
            out[...] = np.where(x < -limit, x + x.dtype.type(bias), x - x.dtype.type(bias))
            return
        outside = np.abs(x) > limit
        np.subtract(x, np.copysign(x.dtype.type(bias), x) if bias else x.dtype.type(0), out=out)
        keep(out, outside, out=out)

    return activation(fill, lambda x, y: (np.abs(x) > limit).astype(x.dtype))
