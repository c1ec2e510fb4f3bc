"""Element by element: functions of one and more arrays, activations, the softmax family, casts.

At a kink the gradient is the one that PyTorch takes, so that frameworks can be compared there: the full one at both
bounds of Clip, none at zero of Abs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from levelbench.frameworks.jax.arrays import numpy_dtype
from levelbench.frameworks.jax.operators.registry import Function, maker, plain, refuse
from levelbench.operators.node import OperatorNode

__all__ = ["SATURATING", "cast"]


@jax.custom_jvp
def _absolute(x: Any) -> Any:
    return jnp.abs(x)


@_absolute.defjvp
def _absolute_slope(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    # JAX's own has a slope of one at zero.
    (x,), (tangent,) = primals, tangents
    return jnp.abs(x), jnp.sign(x) * tangent


plain(
    {
        "Abs": _absolute,
        "Acos": jnp.arccos,
        "Acosh": jnp.arccosh,
        "Asin": jnp.arcsin,
        "Asinh": jnp.arcsinh,
        "Atan": jnp.arctan,
        "Atanh": jnp.arctanh,
        "BitwiseNot": jnp.invert,
        "Ceil": jnp.ceil,
        "Cos": jnp.cos,
        "Cosh": jnp.cosh,
        "Erf": lax.erf,
        "Exp": jnp.exp,
        "Floor": jnp.floor,
        "Identity": lambda x: x,
        "IsNaN": jnp.isnan,
        "Log": jnp.log,
        "Neg": jnp.negative,
        "Not": jnp.logical_not,
        "Reciprocal": jnp.reciprocal,
        "Round": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
        "Sign": jnp.sign,
        "Sin": jnp.sin,
        "Sinh": jnp.sinh,
        "Sqrt": jnp.sqrt,
        "Tan": jnp.tan,
        "Tanh": jnp.tanh,
    }
)


@maker("IsInf")
def _is_inf(node: OperatorNode) -> Function:
    negative, positive = bool(node["detect_negative"]), bool(node["detect_positive"])
    if negative and positive:
        return jnp.isinf
    if negative:
        return jnp.isneginf
    return jnp.isposinf if positive else lambda x: jnp.zeros(x.shape, bool)


@maker("Clip")
def _clip(_: OperatorNode) -> Function:
    def clip(x: Any, low: Any = None, high: Any = None) -> Any:
        # Where the bounds cross, ONNX answers with the upper one.
        raised = x if low is None else jnp.where(x < low, low, x)
        return raised if high is None else jnp.where(raised > high, high, raised)

    return clip


# Element-wise functions of two and more arrays, with broadcasting: arithmetic, comparisons, logic, bits, Where.


def _divide(a: Any, b: Any) -> Any:
    """ONNX's integer division truncates, as C's and XLA's do."""
    if jnp.issubdtype(a.dtype, jnp.inexact):
        return jnp.divide(a, b)
    return lax.div(*jnp.broadcast_arrays(a, b))


def _power(base: Any, exponent: Any) -> Any:
    """Of the base's type, whatever the exponent's."""
    if jnp.issubdtype(base.dtype, jnp.inexact) or not jnp.issubdtype(exponent.dtype, jnp.inexact):
        return jnp.power(base, exponent.astype(base.dtype))
    # In 64 bits: a narrower exponent's type does not hold every base.
    return jnp.power(base.astype(jnp.float64), exponent.astype(jnp.float64)).astype(base.dtype)


def _mean(*inputs: Any) -> Any:
    return reduce(jnp.add, inputs) / len(inputs)


plain(
    {
        "Add": jnp.add,
        "And": jnp.logical_and,
        "BitwiseAnd": jnp.bitwise_and,
        "BitwiseOr": jnp.bitwise_or,
        "BitwiseXor": jnp.bitwise_xor,
        "Div": _divide,
        "Equal": jnp.equal,
        "Greater": jnp.greater,
        "GreaterOrEqual": jnp.greater_equal,
        "Less": jnp.less,
        "LessOrEqual": jnp.less_equal,
        "Max": lambda *inputs: reduce(jnp.maximum, inputs),
        "Mean": _mean,
        "Min": lambda *inputs: reduce(jnp.minimum, inputs),
        "Mul": jnp.multiply,
        "Or": jnp.logical_or,
        "Pow": _power,
        "Sub": jnp.subtract,
        "Sum": lambda *inputs: reduce(jnp.add, inputs),
        "Where": jnp.where,
        "Xor": jnp.logical_xor,
    }
)


@maker("Mod")
def _mod(node: OperatorNode) -> Function:
    """The sign of the divisor, or with ``fmod`` that of the dividend."""
    return jnp.fmod if node["fmod"] else jnp.mod


@maker("BitShift")
def _bit_shift(node: OperatorNode) -> Function:
    return jnp.left_shift if node["direction"] == "LEFT" else jnp.right_shift


# Activations: Relu to Gelu, the gated ones, and the softmax family. Each is the formula of ONNX's documentation; where
# JAX has a function of it, whose gradients stay finite, it is that.


def _ramp(x: Any) -> Any:
    """Held between 0 and 1, without a slope at these."""
    return jnp.where(x <= 0, 0, jnp.where(x >= 1, 1, x))


plain(
    {
        "HardSwish": lambda x: x * _ramp(x / 6 + 0.5),
        "Mish": lambda x: x * jnp.tanh(jax.nn.softplus(x)),
        "PRelu": lambda x, slope: jnp.where(x > 0, x, slope * x),
        "Relu": jax.nn.relu,
        "Sigmoid": jax.nn.sigmoid,
        "Softplus": jax.nn.softplus,
        "Softsign": jax.nn.soft_sign,
    }
)


@maker("Elu")
def _elu(node: OperatorNode) -> Function:
    alpha = float(node["alpha"])
    return lambda x: jax.nn.elu(x, alpha)


@maker("Celu")
def _celu(node: OperatorNode) -> Function:
    alpha = float(node["alpha"])
    return lambda x: jax.nn.celu(x, alpha)


@maker("Selu")
def _selu(node: OperatorNode) -> Function:
    alpha, gamma = float(node["alpha"]), float(node["gamma"])
    return lambda x: gamma * jax.nn.elu(x, alpha)


@maker("LeakyRelu")
def _leaky_relu(node: OperatorNode) -> Function:
    alpha = float(node["alpha"])
    return lambda x: jnp.where(x > 0, x, alpha * x)


@maker("ThresholdedRelu")
def _thresholded_relu(node: OperatorNode) -> Function:
    alpha = float(node["alpha"])
    return lambda x: jnp.where(x > alpha, x, 0)


@maker("HardSigmoid")
def _hard_sigmoid(node: OperatorNode) -> Function:
    alpha, beta = float(node["alpha"]), float(node["beta"])
    return lambda x: _ramp(alpha * x + beta)


@maker("Gelu")
def _gelu(node: OperatorNode) -> Function:
    tanh = node["approximate"] == "tanh"
    return lambda x: jax.nn.gelu(x, approximate=tanh)


@maker("Shrink")
def _shrink(node: OperatorNode) -> Function:
    bias, lambd = float(node["bias"]), float(node["lambd"])

    def shrink(x: Any) -> Any:
        shrunk = jnp.where(x < -lambd, x + bias, jnp.where(x > lambd, x - bias, 0))
        return shrunk.astype(x.dtype)

    return shrink


@maker("Swish")
def _swish(node: OperatorNode) -> Function:
    alpha = float(node["alpha"])
    return lambda x: x * jax.nn.sigmoid(alpha * x)


@maker("SwiGLU")
def _swiglu(node: OperatorNode) -> Function:
    alpha = float(node.get("alpha", 1.0))
    return lambda gate, x: gate * jax.nn.sigmoid(alpha * gate) * x


@maker("Softmax")
def _softmax(node: OperatorNode) -> Function:
    axis = int(node["axis"])
    return lambda x: jax.nn.softmax(x, axis)


@maker("LogSoftmax")
def _log_softmax(node: OperatorNode) -> Function:
    axis = int(node["axis"])
    return lambda x: jax.nn.log_softmax(x, axis)


@maker("Hardmax")
def _hardmax(node: OperatorNode) -> Function:
    axis = int(node["axis"])

    def hardmax(x: Any) -> Any:
        return jax.nn.one_hot(jnp.argmax(x, axis), x.shape[axis], dtype=x.dtype, axis=axis)

    return hardmax


# Cast, CastLike and BitCast, with ONNX's rules for the small floating-point types.
# To a float8 type with a sign, what is too large becomes the largest value (infinity too) where ``saturate`` is on,
# and NaN or infinity where it is off. ``float8_e8m0`` is an exponent alone: it is cut out of float32's bits and
# rounded as ``round_mode`` says.


SATURATING = frozenset(
    np.dtype(getattr(ml_dtypes, name))
    for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
)
"""The float8 types with a sign."""

_E8M0 = np.dtype(ml_dtypes.float8_e8m0fnu)
_SPECIAL = 0xFF
"""The exponent of infinity and NaN, and the one value of ``float8_e8m0`` that is no number."""


def cast(x: Any, dtype: np.dtype[Any], saturate: bool = True, round_mode: str = "up") -> Any:
    """``x`` as ``dtype``."""
    if dtype == _E8M0 and x.dtype != _E8M0:
        return _exponents(x, saturate, round_mode)
    if saturate and dtype in SATURATING:
        most = ml_dtypes.finfo(dtype)
        wide = x.astype(jnp.float32) if x.dtype.itemsize < 4 else x
        return jnp.clip(wide, float(most.min), float(most.max)).astype(dtype)
    if jnp.issubdtype(dtype, jnp.integer) and dtype.itemsize < 4 and jnp.issubdtype(x.dtype, jnp.floating):
        # What does not fit keeps its lowest bits, as it does in NumPy; XLA alone would hold it to the limits.
        return x.astype(jnp.int32).astype(dtype)
    return x.astype(dtype)


def _exponents(x: Any, saturate: bool, round_mode: str) -> Any:
    """The power of two that each value is rounded to; a subnormal number has the exponent of zero."""
    bits = lax.bitcast_convert_type(x.astype(jnp.float32), jnp.uint32)
    exponent, fraction = (bits >> 23) & _SPECIAL, bits & 0x7FFFFF
    half = 0x400000
    up = {
        "up": fraction > 0,
        "down": jnp.zeros_like(fraction, bool),
        # Half of the smallest power of two is the one tie that goes down.
        "nearest": (fraction > half) | ((fraction == half) & (exponent > 0)),
    }[round_mode]
    if saturate:
        up &= exponent != _SPECIAL - 1
    rounded = jnp.where(exponent == _SPECIAL, exponent, exponent + up.astype(jnp.uint32))
    return lax.bitcast_convert_type(rounded.astype(jnp.uint8), _E8M0)


@maker("Cast")
def _cast(node: OperatorNode) -> Function:
    convert, dtype = _conversion(node), numpy_dtype(node["to"])
    return lambda x: convert(x, dtype)


@maker("CastLike")
def _cast_like(node: OperatorNode) -> Function:
    convert = _conversion(node)
    return lambda x, like: convert(x, like.dtype)


def _conversion(node: OperatorNode) -> Callable[[Any, np.dtype[Any]], Any]:
    saturate, round_mode = bool(node.get("saturate", 1)), str(node.get("round_mode", "up"))
    return lambda x, dtype: cast(x, dtype, saturate, round_mode)


@maker("BitCast")
def _bit_cast(node: OperatorNode) -> Function:
    dtype = numpy_dtype(node["to"])

    def bit_cast(x: Any) -> Any:
        if x.dtype.itemsize != dtype.itemsize:
            raise refuse(node, f"{x.dtype} and {dtype} differ in width", "cast between types of one width")
        if bool in (x.dtype, dtype):
            return x.astype(dtype) if x.dtype == bool else lax.bitcast_convert_type(x, jnp.uint8) != 0
        return lax.bitcast_convert_type(x, dtype)

    return bit_cast
