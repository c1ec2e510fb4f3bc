"""Element by element: functions of one and more arrays, activations, the softmax family, casts.

At a kink the gradient is the one that PyTorch takes, so that frameworks can be compared there: the full one at both
bounds of Clip, none at zero of Abs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import Array, lax

from levelbench.frameworks.jax.arrays import DType, numpy_dtype
from levelbench.frameworks.jax.operators.registry import Function, maker, operator, refuse, table
from levelbench.frameworks.shared.operators import POINTWISE
from levelbench.operators.node import OperatorNode

__all__ = ["SATURATING", "cast"]


@jax.custom_jvp
def _absolute(x: Array) -> Array:
    return jnp.abs(x)


@_absolute.defjvp
def _absolute_slope(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    # JAX's own has a slope of one at zero.
    (x,), (tangent,) = primals, tangents
    return jnp.abs(x), jnp.sign(x) * tangent


table({name: getattr(jnp, standard) for name, standard in POINTWISE.items()})
table(
    {
        "Abs": _absolute,
        "Erf": lax.erf,
        "Identity": lambda x: x,
        "Max": lambda *inputs: reduce(jnp.maximum, inputs),
        "Mean": lambda *inputs: reduce(jnp.add, inputs) / len(inputs),
        "Min": lambda *inputs: reduce(jnp.minimum, inputs),
        "Mod": lambda a, b, *, fmod: jnp.fmod(a, b) if fmod else jnp.mod(a, b),
        "Round": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
        "Sum": lambda *inputs: reduce(jnp.add, inputs),
    }
)


@operator("Clip")
def _clip(x: Array, low: Array | None = None, high: Array | None = None) -> Array:
    # Where the bounds cross, ONNX answers with the upper one.
    raised = x if low is None else jnp.where(x < low, low, x)
    return raised if high is None else jnp.where(raised > high, high, raised)


# Element-wise functions of two and more arrays, with broadcasting: arithmetic, comparisons, logic, bits, Where.


def _divide(a: Array, b: Array) -> Array:
    """ONNX's integer division truncates, as C's and XLA's do."""
    if jnp.issubdtype(a.dtype, jnp.inexact):
        return jnp.divide(a, b)
    return lax.div(*jnp.broadcast_arrays(a, b))


def _power(base: Array, exponent: Array) -> Array:
    """Of the base's type, whatever the exponent's."""
    if jnp.issubdtype(base.dtype, jnp.inexact) or not jnp.issubdtype(exponent.dtype, jnp.inexact):
        return jnp.power(base, exponent.astype(base.dtype))
    # In 64 bits: a narrower exponent's type does not hold every base.
    return jnp.power(base.astype(jnp.float64), exponent.astype(jnp.float64)).astype(base.dtype)


table(
    {
        "BitShift": lambda x, bits, *, direction: (jnp.left_shift if direction == "LEFT" else jnp.right_shift)(x, bits),
        "Div": _divide,
        "Pow": _power,
    }
)


# Activations: Relu to Gelu, the gated ones, and the softmax family. Each is the formula of ONNX's documentation; where
# JAX has a function of it, whose gradients stay finite, it is that.


def _ramp(x: Array) -> Array:
    """Held between 0 and 1, without a slope at these."""
    return jnp.where(x <= 0, 0, jnp.where(x >= 1, 1, x))


table(
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


table(
    {
        "Elu": lambda x, *, alpha: jax.nn.elu(x, alpha),
        "Celu": lambda x, *, alpha: jax.nn.celu(x, alpha),
        "Selu": lambda x, *, alpha, gamma: gamma * jax.nn.elu(x, alpha),
        "LeakyRelu": lambda x, *, alpha: jnp.where(x > 0, x, alpha * x),
        "ThresholdedRelu": lambda x, *, alpha: jnp.where(x > alpha, x, 0),
        "HardSigmoid": lambda x, *, alpha, beta: _ramp(alpha * x + beta),
    }
)


@operator("Gelu")
def _gelu(x: Array, *, approximate: str) -> Array:
    tanh = approximate == "tanh"
    return jax.nn.gelu(x, approximate=tanh)


table(
    {
        "Swish": lambda x, *, alpha: x * jax.nn.sigmoid(alpha * x),
        "SwiGLU": lambda gate, x, *, alpha=1.0: gate * jax.nn.sigmoid(alpha * gate) * x,
        "Softmax": lambda x, *, axis: jax.nn.softmax(x, axis),
        "LogSoftmax": lambda x, *, axis: jax.nn.log_softmax(x, axis),
        "Hardmax": lambda x, *, axis: jax.nn.one_hot(jnp.argmax(x, axis), x.shape[axis], dtype=x.dtype, axis=axis),
    }
)


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


def cast(x: Array, dtype: DType, saturate: bool = True, round_mode: str = "up") -> Array:
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


def _exponents(x: Array, saturate: bool, round_mode: str) -> Array:
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


def _conversion(node: OperatorNode) -> Callable[[Array, DType], Array]:
    saturate, round_mode = bool(node.get("saturate", 1)), str(node.get("round_mode", "up"))
    return lambda x, dtype: cast(x, dtype, saturate, round_mode)


@operator("BitCast")
def _bit_cast(x: Array, *, node: OperatorNode, to: int) -> Array:
    dtype = numpy_dtype(to)
    if x.dtype.itemsize != dtype.itemsize:
        raise refuse(node, f"{x.dtype} and {dtype} differ in width", "cast between types of one width")
    if bool in (x.dtype, dtype):
        return x.astype(dtype) if x.dtype == bool else lax.bitcast_convert_type(x, jnp.uint8) != 0
    return lax.bitcast_convert_type(x, dtype)
