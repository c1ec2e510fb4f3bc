"""Smooth activation functions, forward and backward: Gelu, Sigmoid, Swish, SwiGLU, Mish, Softplus.

The one idea: all are made of one exponential, tanh or erf, and of products done in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import pi, sqrt
from typing import Any

import numpy as np

from levelbench.frameworks.numpy.operators.erf import erf, erf_slope
from levelbench.frameworks.numpy.operators.kernel import Kernel, Registry
from levelbench.frameworks.numpy.operators.numeric import Array, alone, blockwise
from levelbench.frameworks.numpy.operators.pointwise import activation, logistic
from levelbench.operators.node import OperatorNode

__all__ = ["OPERATORS"]

OPERATORS = Registry()


@OPERATORS.add("Gelu")
def _gelu(node: OperatorNode) -> Kernel:
    """The product of x and the normal distribution's probability of less than x, or its approximation by tanh."""
    if node["approximate"] == "tanh":
        return _gelu_tanh()

    def fill(out: Array, x: Array) -> None:
        # Its erf is most of the time, forward and backward: up to six times PyTorch's (NumPy has none).
        erf(out, x * x.dtype.type(sqrt(0.5)))
        out += 1
        out *= x
        out *= x.dtype.type(0.5)

    def slope(x: Array, y: Array) -> Array:
        scaled = x * x.dtype.type(sqrt(0.5))
        density = erf_slope(scaled)
        density *= x
        density *= x.dtype.type(sqrt(0.125))
        probability = np.empty_like(x)
        erf(probability, scaled)
        probability += 1
        probability *= x.dtype.type(0.5)
        probability += density
        return probability

    return activation(fill, slope)


def _gelu_tanh() -> Kernel:
    scale, cubic = sqrt(2 / pi), 0.044715

    def bent(x: Array) -> Array:
        result: Array = x * x
        result *= x.dtype.type(scale * cubic)
        result += x.dtype.type(scale)
        result *= x
        np.tanh(result, out=result)
        return result

    def fill(out: Array, x: Array) -> None:
        np.add(bent(x), 1, out=out)
        out *= x
        out *= x.dtype.type(0.5)

    def slope(x: Array, y: Array) -> Array:
        t = bent(x)
        inner = scale + 3 * scale * cubic * x * x
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner

    return activation(fill, slope)


@OPERATORS.add("Sigmoid")
def _sigmoid(node: OperatorNode) -> Kernel:
    return activation(logistic, lambda x, y: y * (1 - y))


@OPERATORS.add("Swish")
def _swish(node: OperatorNode) -> Kernel:
    """The product x sigmoid(alpha x)."""
    alpha = node["alpha"]

    def fill(out: Array, x: Array) -> None:
        logistic(out, x if alpha == 1 else x * x.dtype.type(alpha))
        out *= x

    def slope(x: Array, y: Array) -> Array:
        return _swish_slope(x, alpha)

    return activation(fill, slope)


def _swish_slope(x: Array, alpha: float) -> Array:
    scaled = x if alpha == 1 else x * x.dtype.type(alpha)
    gate = np.empty_like(x)
    logistic(gate, scaled)
    return gate * (1 + scaled * (1 - gate))


@OPERATORS.add("SwiGLU")
def _swiglu(node: OperatorNode) -> Kernel:
    """The product a sigmoid(alpha a) b, for a and b of one shape."""
    alpha = node["alpha"]

    def fill(out: Array, a: Array, b: Array) -> None:
        logistic(out, a if alpha == 1 else a * a.dtype.type(alpha))
        out *= a
        out *= b

    def by_a(out: Array, gradient: Array, a: Array, b: Array) -> None:
        np.multiply(_swish_slope(a, alpha), gradient, out=out)
        out *= b

    def backward(gradient: Array, inputs: Sequence[Any], output: Array) -> tuple[Array, ...]:
        return blockwise(by_a, gradient, *inputs), blockwise(fill, inputs[0], gradient)

    return Kernel(lambda a, b: blockwise(fill, a, b), alone(backward))


@OPERATORS.add("Mish")
def _mish(node: OperatorNode) -> Kernel:
    """The product x tanh(ln(1 + exp(x))), by n / (n + 2) with n = exp(x) (exp(x) + 2): one exponential, and no tanh."""

    def gate(x: Array) -> Array:
        # From 20 on n / (n + 2) rounds to 1 in float64, too.
        power = np.exp(np.minimum(x, x.dtype.type(20)))
        power *= power + 2
        power /= power + 2
        return power

    def fill(out: Array, x: Array) -> None:
        np.multiply(x, gate(x), out=out)

    def slope(x: Array, y: Array) -> Array:
        value, share = gate(x), np.empty_like(x)
        logistic(share, x)
        return value + x * share * (1 - value * value)

    return activation(fill, slope)


@OPERATORS.add("Softplus")
def _softplus(node: OperatorNode) -> Kernel:
    """ln(1 + exp(x)), as max(x, 0) + ln(1 + exp(-|x|))."""

    def fill(out: Array, x: Array) -> None:
        np.abs(x, out=out)
        np.negative(out, out=out)
        np.exp(out, out=out)
        # ln(1 + u) without the C library's log1p: the rounding of 1 + u is divided out (Kahan).
        rounded = out + 1
        step = rounded - 1
        np.log(rounded, out=rounded)
        tiny = step == 0
        step += tiny
        rounded += tiny
        out *= rounded
        out /= step
        out += np.maximum(x, x.dtype.type(0))

    def slope(x: Array, y: Array) -> Array:
        result = np.empty_like(x)
        logistic(result, x)
        return result

    return activation(fill, slope)
