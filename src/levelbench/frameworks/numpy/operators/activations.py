"""Activation functions, the softmax family and the error function, forward and backward.

At a kink the gradient is PyTorch's: 0 for Relu at 0, the negative side's for LeakyRelu, PRelu, Elu, Celu and Selu.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import pi, sqrt

import numpy as np
from numpy.typing import NDArray

from levelbench.frameworks.numpy.operators.kernel import (
    Array,
    Inputs,
    Kernel,
    Maker,
    activation,
    blockwise,
    cast_like,
    is_narrow,
    lift,
    logistic,
    lower,
    masked,
    negative_expm1,
    quiet,
    register,
    single_output,
    unbroadcast,
)
from levelbench.operators.node import OperatorNode

# erf(x) = tanh(x P(x²)) in float32: NumPy's tanh takes the time of four products. A minimax fit of relative error
# 7.1e-8; with rounding, up to 3.1 units in the last place. The last term is positive, so that large x end at 1.
_P = (
    1.12837925, 0.102769863, -1.95284305e-4, -6.1484195e-4, 8.45982487e-5, -4.79497258e-6, 2.76142082e-8,
    5.42013395e-9,
)  # fmt: skip

# Constant term first.
_NEAR_P = (
    5.55923013010394962768e4, 7.00332514112805075473e3, 2.23200534594684319226e3, 9.00260197203842689217e1,
    9.60497373987051638749e0,
)  # fmt: skip
_NEAR_Q = (
    4.92673942608635921086e4, 2.26290000613890934246e4, 4.59432382970980127987e3, 5.21357949780152679795e2,
    3.35617141647503099647e1, 1.0,
)  # fmt: skip
_MIDDLE_P = (
    1.23033935479799725e03, 2.05107837782607147e03, 1.71204761263407058e03, 8.81952221241769090e02,
    2.98635138197400131e02, 6.61191906371416295e01, 8.88314979438837594e00, 5.64188496988670089e-1,
    2.15311535474403846e-8,
)  # fmt: skip
_MIDDLE_Q = (
    1.23033935480374942e03, 3.43936767414372164e03, 4.36261909014324716e03, 3.29079923573345963e03,
    1.62138957456669019e03, 5.37181101862009858e02, 1.17693950891312499e02, 1.57449261107098347e01,
    1.0,
)  # fmt: skip
_FAR_P = (
    6.58749161529837803e-4, 1.60837851487422766e-2, 1.25781726111229246e-1, 3.60344899949804439e-1,
    3.05326634961232344e-1, 1.63153871373020978e-2,
)  # fmt: skip
_FAR_Q = (
    2.33520497626869185e-3, 6.05183413124413191e-2, 5.27905102951428412e-1, 1.87295284992346725e00,
    2.56852019228982242e00, 1.0,
)  # fmt: skip
_NEAR, _MIDDLE, _FAR = 1.0, 4.0, 6.0
_INVERSE_ROOT_PI = 0.5641895835477563


def erf(out: Array, x: Array) -> None:
    """Fill ``out`` with the error function, 2/sqrt(pi) times the integral of exp(-t²) from 0 to x; flat arrays."""
    if x.dtype == np.float32:
        _erf_float32(out, x)
    else:
        out[...] = _erf_float64(x)


def erf_slope(x: Array) -> Array:
    """The derivative of erf, 2/sqrt(pi) exp(-x²)."""
    slope: Array = np.multiply(x, x)
    np.negative(slope, out=slope)
    np.exp(slope, out=slope)
    slope *= x.dtype.type(2 * _INVERSE_ROOT_PI)
    return slope


def _horner(coefficients: Sequence[float], x: Array) -> Array:
    result: Array = x * x.dtype.type(coefficients[-1])
    for each in coefficients[-2:0:-1]:
        result += each
        result *= x
    result += coefficients[0]
    return result


def _erf_float32(out: Array, x: Array) -> None:
    np.multiply(x, _horner(_P, x * x), out=out)
    np.tanh(out, out=out)


def _erf_float64(x: NDArray[np.float64]) -> Array:
    size = np.abs(x)
    # The formula for small values is applied to all elements first: it keeps NaN.
    result = np.minimum(size, _NEAR)
    result = np.copysign(result, x)
    square = result * result
    result *= _horner(_NEAR_P, square) / _horner(_NEAR_Q, square)
    result[size > _MIDDLE] = 1.0
    middle = np.flatnonzero((size > _NEAR) & (size <= _MIDDLE))
    if middle.size:
        y = size[middle]
        result[middle] = 1.0 - _gaussian(y) * (_horner(_MIDDLE_P, y) / _horner(_MIDDLE_Q, y))
    far = np.flatnonzero((size > _MIDDLE) & (size < _FAR))
    if far.size:
        y = size[far]
        square = 1.0 / (y * y)
        ratio = square * _horner(_FAR_P, square) / _horner(_FAR_Q, square)
        result[far] = 1.0 - _gaussian(y) * (_INVERSE_ROOT_PI - ratio) / y
    return np.copysign(result, x)


def _gaussian(y: NDArray[np.float64]) -> Array:
    """exp(-y²), with y² split so that its rounding is not amplified: y = h + (y - h), h a multiple of 1/16."""
    coarse = np.floor(y * 16.0) / 16.0
    return np.exp(-coarse * coarse) * np.exp(-(y - coarse) * (y + coarse))


# Activation functions with a kink or an exponential side.


@register("Relu")
def _relu(node: OperatorNode) -> Kernel:
    def backward(gradient: Array, inputs: Inputs, output: Array) -> tuple[Array, ...]:
        return (gradient * (output > 0),)

    return Kernel(lambda x: np.asarray(np.maximum(x, x.dtype.type(0))), single_output(backward))


@register("LeakyRelu")
def _leaky_relu(node: OperatorNode) -> Kernel:
    alpha = node["alpha"]

    def fill(out: Array, x: Array) -> None:
        # The maximum of two products takes two passes; np.where takes three times as long.
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


@register("PRelu")
def _prelu(node: OperatorNode) -> Kernel:
    """X where it is positive, else x times ``slope``, which broadcasts to x."""

    def forward(x: Array, slope: Array) -> Array:
        wide = lift(x)
        factor, zero = lift(slope), wide.dtype.type(0)
        with quiet():
            if factor.size and factor.min() > 0 and factor.max() <= 1:
                y = np.multiply(wide, factor)
                return lower(np.maximum(y, wide), x.dtype)
            if not np.all(np.isfinite(factor)):
                return lower(np.where(wide < 0, wide * factor, wide), x.dtype)
            # Slopes of any sign: four passes over the whole array, up to six times PyTorch's time.
            y = np.asarray(np.minimum(wide, zero))
            y *= factor
            y += np.maximum(wide, zero)
            return lower(y, x.dtype)

    def backward(gradient: Array, inputs: Inputs, output: Array) -> tuple[Array, ...]:
        x, slope, g = (lift(each) for each in (*inputs, gradient))
        steep = (x > 0).astype(x.dtype)
        by_x = g * (steep + (1 - steep) * slope)
        by_slope = g * np.minimum(x, x.dtype.type(0))
        return cast_like(by_x, inputs[0]), cast_like(unbroadcast(by_slope, slope.shape), inputs[1])

    return Kernel(forward, single_output(backward))


def _exponential(x: Array, alpha: float, below: float, above: float) -> Array:
    """``above`` times x for positive x, else ``below`` times (exp(x / alpha) - 1)."""
    result = negative_expm1(x if alpha == 1 else x / x.dtype.type(alpha))
    result *= x.dtype.type(below)
    positive = np.maximum(x, x.dtype.type(0))
    if above != 1:
        positive *= x.dtype.type(above)
    result += positive
    return result


@register("Elu", "Celu", "Selu")
def _exponential_unit(node: OperatorNode) -> Kernel:
    """``below`` times (exp(x / alpha) - 1) up to 0, ``above`` times x beyond."""
    alpha = node["alpha"] if node.op_type == "Celu" else 1.0
    above = node.get("gamma", 1.0)
    below = above * node["alpha"]

    def fill(out: Array, x: Array) -> None:
        out[...] = _exponential(x, alpha, below, above)

    def slope(x: Array, y: Array) -> Array:
        if below == alpha * above:
            # Both sides have the same slope at 0, so the formula of the negative side covers both.
            side = np.minimum(y, x.dtype.type(0))
            side += x.dtype.type(below)
            side *= x.dtype.type(1 / alpha)
            return side
        positive = x > 0
        side = y + x.dtype.type(below)
        side *= x.dtype.type(1 / alpha)
        side = masked(side, ~positive)
        side += positive * x.dtype.type(above)
        return side

    return activation(fill, slope)


@register("HardSigmoid")
def _hard_sigmoid(node: OperatorNode) -> Kernel:
    alpha, beta = node["alpha"], node["beta"]

    def fill(out: Array, x: Array) -> None:
        np.multiply(x, x.dtype.type(alpha), out=out)
        out += x.dtype.type(beta)
        np.clip(out, x.dtype.type(0), x.dtype.type(1), out=out)

    return activation(fill, lambda x, y: x.dtype.type(alpha) * ((y > 0) & (y < 1)))


@register("HardSwish")
def _hard_swish(node: OperatorNode) -> Kernel:
    """X max(0, min(1, x/6 + 1/2))."""

    def fill(out: Array, x: Array) -> None:
        np.multiply(x, x.dtype.type(1 / 6), out=out)
        out += x.dtype.type(0.5)
        np.clip(out, x.dtype.type(0), x.dtype.type(1), out=out)
        out *= x

    def slope(x: Array, y: Array) -> Array:
        # Two kinks: ten passes, four times PyTorch's time.
        middle = x * x.dtype.type(1 / 3)
        middle += x.dtype.type(0.5)
        masked(middle, np.abs(x) < 3, out=middle)
        middle += x >= 3
        return middle

    return activation(fill, slope)


@register("Softsign")
def _softsign(node: OperatorNode) -> Kernel:
    """X / (1 + |x|)."""

    def fill(out: Array, x: Array) -> None:
        np.abs(x, out=out)
        out += 1
        np.divide(x, out, out=out)

    return activation(fill, lambda x, y: np.square(1 / (1 + np.abs(x))))


@register("ThresholdedRelu")
def _thresholded_relu(node: OperatorNode) -> Kernel:
    alpha = node["alpha"]

    def fill(out: Array, x: Array) -> None:
        masked(x, x > alpha, out=out)

    return activation(fill, lambda x, y: (x > alpha).astype(x.dtype))


@register("Shrink")
def _shrink(node: OperatorNode) -> Kernel:
    """X + bias below -lambd, x - bias above lambd, 0 in between."""
    bias, limit = node["bias"], node["lambd"]

    def fill(out: Array, x: Array) -> None:
        if limit < 0:
            out[...] = np.where(x < -limit, x + x.dtype.type(bias), x - x.dtype.type(bias))
            return
        outside = np.abs(x) > limit
        np.subtract(x, np.copysign(x.dtype.type(bias), x) if bias else x.dtype.type(0), out=out)
        masked(out, outside, out=out)

    return activation(fill, lambda x, y: (np.abs(x) > limit).astype(x.dtype))


# Smooth activation functions: one exponential, tanh or erf each, and products done in place.


@register("Gelu")
def _gelu(node: OperatorNode) -> Kernel:
    """X times the standard normal distribution function of x, or its approximation by tanh."""
    if node["approximate"] == "tanh":
        return _gelu_tanh()

    def fill(out: Array, x: Array) -> None:
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


@register("Sigmoid")
def _sigmoid(node: OperatorNode) -> Kernel:
    return activation(logistic, lambda x, y: y * (1 - y))


@register("Swish")
def _swish(node: OperatorNode) -> Kernel:
    """X sigmoid(alpha x)."""
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


@register("SwiGLU")
def _swiglu(node: OperatorNode) -> Kernel:
    """A sigmoid(alpha a) b, for a and b of one shape."""
    alpha = node["alpha"]

    def fill(out: Array, a: Array, b: Array) -> None:
        logistic(out, a if alpha == 1 else a * a.dtype.type(alpha))
        out *= a
        out *= b

    def by_a(out: Array, gradient: Array, a: Array, b: Array) -> None:
        np.multiply(_swish_slope(a, alpha), gradient, out=out)
        out *= b

    def backward(gradient: Array, inputs: Inputs, output: Array) -> tuple[Array, ...]:
        return blockwise(by_a, gradient, *inputs), blockwise(fill, inputs[0], gradient)

    return Kernel(lambda a, b: blockwise(fill, a, b), single_output(backward))


@register("Mish")
def _mish(node: OperatorNode) -> Kernel:
    """X tanh(ln(1 + exp(x))), as x n / (n + 2) with n = exp(x) (exp(x) + 2): one exponential and no tanh."""

    def gate(x: Array) -> Array:
        # From x = 20 on, n / (n + 2) rounds to 1 even in float64.
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


@register("Softplus")
def _softplus(node: OperatorNode) -> Kernel:
    """ln(1 + exp(x)), computed as max(x, 0) + ln(1 + exp(-|x|))."""

    def fill(out: Array, x: Array) -> None:
        np.abs(x, out=out)
        np.negative(out, out=out)
        np.exp(out, out=out)
        # ln(1 + u) without the C library's slow log1p: the rounding error of 1 + u is divided out (Kahan).
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


# Softmax, LogSoftmax and Hardmax along one axis, in place over blocks that stay in the cache. The maximum is subtracted
# first, so that no exponential overflows.


_BLOCK = 1 << 16
_SHORT = 64


def rows(function: Callable[..., None], axis: int, *arrays: Array) -> Array:
    """``function(out, *blocks)`` over blocks of shape (outer, axis, inner); ``out`` must not alias the others."""
    first = arrays[0]
    if first.ndim == 0 or first.size == 0:
        shape: tuple[int, ...] = (1, 1, 1) if first.ndim == 0 else (0, 1, 1)
    else:
        axis %= first.ndim
        outer = int(np.prod(first.shape[:axis], dtype=np.int64))
        shape = (outer, first.shape[axis], first.size // (outer * first.shape[axis]))
    flat = [each.reshape(shape) for each in arrays]
    result = np.empty(first.shape, first.dtype)
    target = result.reshape(shape)
    step = max(1, _BLOCK // max(1, shape[1] * shape[2]))
    if shape[2] == 1 and shape[1] < _SHORT:
        _short_rows(function, target[..., 0], [each[..., 0] for each in flat], step)
        return result
    with quiet():
        for start in range(0, shape[0], step):
            blocks = [lift(each[start : start + step]) for each in flat]
            if not is_narrow(first.dtype):
                function(target[start : start + step], *blocks)
                continue
            scratch = np.empty(blocks[0].shape, np.float32)
            function(scratch, *blocks)
            target[start : start + step] = lower(scratch, first.dtype)
    return result


def _short_rows(function: Callable[..., None], target: Array, flat: Sequence[Array], step: int) -> None:
    """The same with the short axis first: NumPy vectorises over long inner axes, but pays an overhead for each row."""
    with quiet():
        for start in range(0, len(target), step):
            blocks = [np.array(lift(each[start : start + step]).T, order="C")[None] for each in flat]
            scratch = np.empty_like(blocks[0])
            function(scratch, *blocks)
            target[start : start + step] = lower(scratch[0].T, target.dtype)


def softmax(out: Array, x: Array) -> None:
    """Fill ``out`` with exp(x) divided by its sum along axis 1; both are (outer, axis, inner)."""
    np.subtract(x, x.max(axis=1, keepdims=True), out=out)
    np.exp(out, out=out)
    out /= out.sum(axis=1, keepdims=True)


def log_softmax(out: Array, x: Array) -> None:
    """Fill ``out`` with x minus the log of the sum of exp(x) along axis 1; both are (outer, axis, inner)."""
    np.subtract(x, x.max(axis=1, keepdims=True), out=out)
    out -= np.log(np.exp(out).sum(axis=1, keepdims=True))


def _softmax_gradient(out: Array, gradient: Array, y: Array) -> None:
    np.multiply(gradient, y, out=out)
    out -= y * out.sum(axis=1, keepdims=True)


def _log_softmax_gradient(out: Array, gradient: Array, y: Array) -> None:
    np.exp(y, out=out)
    out *= gradient.sum(axis=1, keepdims=True)
    np.subtract(gradient, out, out=out)


def _maker(fill: Callable[..., None], pull: Callable[..., None]) -> Maker:
    def maker(node: OperatorNode) -> Kernel:
        axis = node["axis"]

        def backward(gradient: Array, inputs: Inputs, output: Array) -> tuple[Array, ...]:
            return (rows(pull, axis, gradient, output),)

        return Kernel(lambda x: rows(fill, axis, x), single_output(backward))

    return maker


register("Softmax")(_maker(softmax, _softmax_gradient))
register("LogSoftmax")(_maker(log_softmax, _log_softmax_gradient))


@register("Hardmax")
def _hardmax(node: OperatorNode) -> Kernel:
    """1 at the first maximum along the axis, else 0; its gradient is zero."""

    def forward(x: Array) -> Array:
        result = np.zeros_like(x)
        if x.size:
            chosen = np.expand_dims(np.argmax(lift(x), axis=node["axis"]), node["axis"])
            np.put_along_axis(result, chosen, np.ones((), x.dtype), axis=node["axis"])
        return result

    return Kernel(forward, single_output(lambda gradient, inputs, output: (np.zeros_like(inputs[0]),)))
