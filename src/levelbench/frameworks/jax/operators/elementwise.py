"""Element-wise operators: arithmetic, comparisons, activations, the softmax family, casts, quantisation.

At a kink the gradient is PyTorch's, so that frameworks can be compared there: the full gradient at both bounds of Clip,
zero at 0 for Abs. Products of quantised values are exact, in 32-bit integers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import Array, lax

from levelbench.frameworks.jax.arrays import numpy_dtype
from levelbench.frameworks.jax.operators.registry import Maker, maker, operator, refuse, table
from levelbench.frameworks.shared.operators import POINTWISE, with_attributes
from levelbench.frameworks.shared.quantisation import QUANTISED
from levelbench.operators.contract import DType, Function
from levelbench.operators.node import OperatorNode


@jax.custom_jvp
def _absolute(x: Array) -> Array:
    return jnp.abs(x)


@_absolute.defjvp
def _absolute_slope(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    # JAX's own derivative at zero is one.
    (x,), (tangent,) = primals, tangents
    return jnp.abs(x), jnp.sign(x) * tangent


table(**{name: getattr(jnp, standard) for name, standard in POINTWISE.items()})
table(
    Abs=_absolute,
    Erf=lax.erf,
    Identity=lambda x: x,
    Max=lambda *inputs: reduce(jnp.maximum, inputs),
    Mean=lambda *inputs: reduce(jnp.add, inputs) / len(inputs),
    Min=lambda *inputs: reduce(jnp.minimum, inputs),
    Mod=lambda a, b, *, fmod: jnp.fmod(a, b) if fmod else jnp.mod(a, b),
    Round=lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    Sum=lambda *inputs: reduce(jnp.add, inputs),
)


@operator("Clip")
def _clip(x: Array, low: Array | None = None, high: Array | None = None) -> Array:
    # If the bounds cross, ONNX returns the upper one.
    raised = x if low is None else jnp.where(x < low, low, x)
    return raised if high is None else jnp.where(raised > high, high, raised)


# Arithmetic and bits, with broadcasting.


def _divide(a: Array, b: Array) -> Array:
    """ONNX's integer division truncates, like C's and XLA's."""
    if jnp.issubdtype(a.dtype, jnp.inexact):
        return jnp.divide(a, b)
    return lax.div(*jnp.broadcast_arrays(a, b))


def _power(base: Array, exponent: Array) -> Array:
    """The result has the base's type, whatever the exponent's."""
    if jnp.issubdtype(base.dtype, jnp.inexact):
        return jnp.power(base, exponent.astype(base.dtype))
    if not jnp.issubdtype(exponent.dtype, jnp.inexact):
        found = jnp.power(base, jnp.abs(exponent).astype(base.dtype))
        # A negative exponent makes a fraction, which is cut to zero, of all bases but 1 and -1.
        return jnp.where((exponent < 0) & (jnp.abs(base) != 1), jnp.zeros_like(found), found)
    # In 64 bits: a narrow exponent type cannot represent every base.
    return jnp.power(base.astype(jnp.float64), exponent.astype(jnp.float64)).astype(base.dtype)


table(
    BitShift=lambda x, bits, *, direction: (jnp.left_shift if direction == "LEFT" else jnp.right_shift)(x, bits),
    Div=_divide,
    Pow=_power,
)


# Activations and the softmax family: JAX's functions, whose gradients stay finite, or ONNX's formulas.


def _ramp(x: Array) -> Array:
    """Clipped to [0, 1], with a gradient of zero at both bounds."""
    return jnp.where(x <= 0, 0, jnp.where(x >= 1, 1, x))


table(
    HardSwish=lambda x: x * _ramp(x / 6 + 0.5),
    Mish=lambda x: x * jnp.tanh(jax.nn.softplus(x)),
    PRelu=lambda x, slope: jnp.where(x > 0, x, slope * x),
    Relu=jax.nn.relu,
    Sigmoid=jax.nn.sigmoid,
    Softplus=jax.nn.softplus,
    Softsign=jax.nn.soft_sign,
    Elu=lambda x, *, alpha: jax.nn.elu(x, alpha),
    Celu=lambda x, *, alpha: jax.nn.celu(x, alpha),
    Selu=lambda x, *, alpha, gamma: gamma * jax.nn.elu(x, alpha),
    LeakyRelu=lambda x, *, alpha: jnp.where(x > 0, x, alpha * x),
    ThresholdedRelu=lambda x, *, alpha: jnp.where(x > alpha, x, 0),
    HardSigmoid=lambda x, *, alpha, beta: _ramp(alpha * x + beta),
    Gelu=lambda x, *, approximate: jax.nn.gelu(x, approximate=approximate == "tanh"),
    Swish=lambda x, *, alpha: x * jax.nn.sigmoid(alpha * x),
    SwiGLU=lambda gate, x, *, alpha=1.0: gate * jax.nn.sigmoid(alpha * gate) * x,
    Softmax=lambda x, *, axis: jax.nn.softmax(x, axis),
    LogSoftmax=lambda x, *, axis: jax.nn.log_softmax(x, axis),
    Hardmax=lambda x, *, axis: jax.nn.one_hot(jnp.argmax(x, axis), x.shape[axis], dtype=x.dtype, axis=axis),
)


# Cast, CastLike and BitCast, with ONNX's rules for small floating-point types.
# In a cast to a signed float8 type, values that are too large (infinity included) become the largest value if
# ``saturate`` is set, else NaN or infinity. ``float8_e8m0`` has only an exponent, which is extracted from float32's
# bits and rounded by ``round_mode``.


SATURATING = frozenset(
    np.dtype(getattr(ml_dtypes, name))
    for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
)
"""The signed float8 types."""

_E8M0 = np.dtype(ml_dtypes.float8_e8m0fnu)
_SPECIAL = 0xFF
"""The exponent bits of infinity and NaN, and the NaN of ``float8_e8m0``."""


def cast(x: Array, dtype: DType, saturate: bool = True, round_mode: str = "up") -> Array:
    """``x`` as ``dtype``, by ONNX's rules."""
    if dtype == _E8M0 and x.dtype != _E8M0:
        return _exponents(x, saturate, round_mode)
    if saturate and dtype in SATURATING:
        most = ml_dtypes.finfo(dtype)
        wide = x.astype(jnp.float32) if x.dtype.itemsize < 4 else x
        return jnp.clip(wide, float(most.min), float(most.max)).astype(dtype)
    if jnp.issubdtype(dtype, jnp.integer) and dtype.itemsize < 4 and jnp.issubdtype(x.dtype, jnp.floating):
        # Values that do not fit keep their lowest bits, as in NumPy; XLA by itself would clip them.
        return x.astype(jnp.int32).astype(dtype)
    return x.astype(dtype)


def _exponents(x: Array, saturate: bool, round_mode: str) -> Array:
    """Each value rounded to a power of two; subnormal numbers have exponent bits of zero."""
    bits = lax.bitcast_convert_type(x.astype(jnp.float32), jnp.uint32)
    exponent, fraction = (bits >> 23) & _SPECIAL, bits & 0x7FFFFF
    half = 0x400000
    up = {
        "up": fraction > 0,
        "down": jnp.zeros_like(fraction, bool),
        # Only the tie at half of the smallest power of two rounds down.
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
        raise refuse(node, f"{x.dtype} and {dtype} differ in width", "cast between types of the same width")
    if bool in (x.dtype, dtype):
        return x.astype(dtype) if x.dtype == bool else lax.bitcast_convert_type(x, jnp.uint8) != 0
    return lax.bitcast_convert_type(x, dtype)


def _quantised(function: Function) -> Maker:
    """The maker of a shared function of quantised values."""
    return lambda node: with_attributes(function, node, {"xp": jnp, "cast": cast, "dtype_of": numpy_dtype})


for _name, _function in QUANTISED.items():
    maker(_name)(_quantised(_function))
