"""Element-wise operators: arithmetic, comparisons, activations, the softmax family, casts, quantisation.

At a kink the gradient is PyTorch's, so that frameworks can be compared there: the full gradient at both bounds of Clip,
zero at 0 for Abs.
"""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

import ml_dtypes
import numpy as np
import tensorflow as tf

from levelbench.frameworks.shared.operators import POINTWISE, with_attributes
from levelbench.frameworks.shared.quantisation import QUANTISED
from levelbench.frameworks.tensorflow.arrays import DTYPES, Raw, TensorArray, no_type, numpy_dtype, xp
from levelbench.frameworks.tensorflow.operators.registry import (
    Maker,
    maker,
    on_arrays,
    operator,
    refuse,
    sizes_of,
    table,
)
from levelbench.operators.contract import Array, DType, Function
from levelbench.operators.node import OperatorNode

for _name, _standard in POINTWISE.items():
    on_arrays(_name, partial(lambda function, _: function, getattr(xp, _standard)))


def _clip(x: Raw, low: Raw = None, high: Raw = None) -> Raw:
    # If the bounds cross, ONNX returns the upper one.
    raised = x if low is None else tf.where(x < low, low, x)
    return raised if high is None else tf.where(raised > high, high, raised)


def _divide(a: Raw, b: Raw) -> Raw:
    """ONNX's integer division truncates, like C's."""
    return tf.raw_ops.TruncateDiv(x=a, y=b) if a.dtype.is_integer else tf.math.divide(a, b)


def _whole_power(base: Raw, exponent: Raw) -> Raw:
    """A negative exponent makes a fraction, which is cut to zero, of all bases but 1 and -1."""
    found = tf.pow(base, tf.abs(exponent))
    return tf.where((exponent < 0) & (tf.abs(base) != 1), tf.zeros_like(found), found)


def _power(base: Raw, exponent: Raw) -> Raw:
    """The result has the base's type, whatever the exponent's."""
    if base.dtype.is_floating or not exponent.dtype.is_floating:
        if base.dtype.is_integer:
            return tf.cast(_whole_power(tf.cast(base, tf.int64), tf.cast(exponent, tf.int64)), base.dtype)
        return tf.pow(base, tf.cast(exponent, base.dtype))
    # In 64 bits: a narrow exponent type cannot represent every base.
    return tf.cast(tf.pow(tf.cast(base, tf.float64), tf.cast(exponent, tf.float64)), base.dtype)


def _shift(x: Raw, bits: Raw, *, direction: str) -> Raw:
    """Shifts by a negative number, or by more bits than there are, leave zeros or the sign."""
    most = 8 * x.dtype.size - 1
    beyond = (bits > most) if bits.dtype.is_unsigned else (bits < 0) | (bits > most)
    within = tf.where(beyond, tf.cast(most, bits.dtype), bits)
    found = (tf.bitwise.left_shift if direction == "LEFT" else tf.bitwise.right_shift)(x, within)
    return found if direction != "LEFT" and not x.dtype.is_unsigned else tf.where(beyond, tf.zeros_like(x), found)


def _modulo(a: Raw, b: Raw, *, fmod: int) -> Raw:
    if not fmod:
        return tf.math.floormod(a, b)
    kind = a.dtype
    widened = tf.float32 if kind.is_floating and kind.size < 4 else tf.int64 if kind.is_integer else kind
    return tf.cast(tf.truncatemod(tf.cast(a, widened), tf.cast(b, widened)), kind)


def _erf(x: Raw) -> Raw:
    found = tf.math.erf(x)
    # That of float64 is NaN at infinity.
    return tf.where(tf.math.is_inf(x), tf.sign(x), found) if x.dtype == tf.float64 else found


table(
    BitShift=_shift,
    Clip=_clip,
    Div=_divide,
    Erf=_erf,
    Identity=lambda x: x,
    Max=lambda *inputs: reduce(tf.maximum, inputs),
    Mean=lambda *inputs: reduce(tf.add, inputs) / len(inputs),
    Min=lambda *inputs: reduce(tf.minimum, inputs),
    Mod=_modulo,
    Pow=_power,
    Sum=lambda *inputs: reduce(tf.add, inputs),
)


# Activations and the softmax family.


def _ramp(x: Raw) -> Raw:
    """Clipped to [0, 1], with a gradient of zero at both bounds."""
    return tf.where(x <= 0, tf.zeros_like(x), tf.where(x >= 1, tf.ones_like(x), x))


def _elu(x: Raw, alpha: float) -> Raw:
    return tf.where(x > 0, x, alpha * tf.math.expm1(tf.minimum(x, tf.zeros_like(x))))


def _along(function: Function) -> Function:
    def call(x: Raw, *, axis: int) -> Raw:
        return function(x, axis)

    return call


def _hardmax(x: Raw, *, axis: int) -> Raw:
    return tf.one_hot(tf.argmax(x, axis), sizes_of(x)[axis], dtype=x.dtype, axis=axis)


def _prelu(x: Raw, slope: Raw) -> Raw:
    return tf.where(x > 0, x, slope * x) if not x.dtype.is_unsigned else x


table(
    HardSwish=lambda x: x * _ramp(x / 6 + 0.5),
    Mish=lambda x: x * tf.tanh(tf.math.softplus(x)),
    PRelu=_prelu,
    Relu=tf.nn.relu,
    Sigmoid=tf.sigmoid,
    Softplus=tf.math.softplus,
    Softsign=tf.nn.softsign,
    Elu=lambda x, *, alpha: _elu(x, alpha),
    Celu=lambda x, *, alpha: tf.where(x > 0, x, alpha * tf.math.expm1(tf.minimum(x, tf.zeros_like(x)) / alpha)),
    Selu=lambda x, *, alpha, gamma: gamma * _elu(x, alpha),
    LeakyRelu=lambda x, *, alpha: tf.where(x > 0, x, alpha * x),
    ThresholdedRelu=lambda x, *, alpha: tf.where(x > alpha, x, tf.zeros_like(x)),
    HardSigmoid=lambda x, *, alpha, beta: _ramp(alpha * x + beta),
    Gelu=lambda x, *, approximate: tf.nn.gelu(x, approximate=approximate == "tanh"),
    Swish=lambda x, *, alpha: x * tf.sigmoid(alpha * x),
    Softmax=_along(tf.nn.softmax),
    LogSoftmax=_along(tf.nn.log_softmax),
    Hardmax=_hardmax,
)


# Casts, by ONNX's rules: integers keep their lowest bits; what is too large for a saturating float8 type, infinity
# included, becomes its largest value.

_SATURATING = (np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2))
_FOUR = (tf.as_dtype(np.dtype(ml_dtypes.int4)), tf.as_dtype(np.dtype(ml_dtypes.uint4)))


def cast(x: Raw, dtype: DType, saturate: bool = True) -> Raw:
    """``x`` as ``dtype``; ``UnsupportedError`` for a type without kernels."""
    if dtype not in DTYPES:
        raise no_type(dtype)
    kind = tf.as_dtype(dtype)
    if x.dtype == kind:
        return x
    if dtype in _SATURATING:
        wide = tf.cast(x, tf.float64 if x.dtype == tf.float64 else tf.float32)
        if saturate:
            most = ml_dtypes.finfo(dtype)
            wide = tf.clip_by_value(wide, float(most.min), float(most.max))
        return tf.cast(wide, kind)
    if x.dtype in _FOUR:
        x = tf.cast(x, tf.int32)
    if kind in _FOUR:
        return _four_bits(x, kind)
    if x.dtype.is_floating and kind.is_integer and kind.size < 4:
        x = tf.cast(x, tf.int32)
    return tf.cast(x, kind)


def _four_bits(x: Raw, kind: Any) -> Raw:
    low = tf.cast(x, tf.int32) & 15
    return tf.cast(tf.where(low > 7, low - 16, low) if kind == _FOUR[0] else low, kind)


@maker("Cast")
def _cast(node: OperatorNode) -> Function:
    dtype, saturate = numpy_dtype(node["to"]), bool(node.get("saturate", 1))
    return lambda x: cast(x, dtype, saturate)


@maker("CastLike")
def _cast_like(node: OperatorNode) -> Function:
    saturate = bool(node.get("saturate", 1))
    return lambda x, like: cast(x, np.dtype(like.dtype.as_numpy_dtype), saturate)


@operator("BitCast")
def _bit_cast(x: Raw, *, node: OperatorNode, to: int) -> Raw:
    kind = tf.as_dtype(numpy_dtype(to))
    if x.dtype.size != kind.size or x.dtype in _FOUR or kind in _FOUR:
        raise refuse(node, f"{x.dtype.name} and {kind.name} differ in width", "cast between types of the same width")
    if tf.bool in (x.dtype, kind):
        return tf.cast(x, kind) if x.dtype == tf.bool else tf.bitcast(x, tf.uint8) != 0
    return tf.bitcast(x, kind)


def cast_array(x: Array, dtype: DType, saturate: bool = True) -> Array:
    """:func:`cast` of an array."""
    return TensorArray(cast(x.tensor, dtype, saturate))


def _quantised(function: Function) -> Maker:
    """The maker of a shared function of quantised values."""
    given = {"xp": xp, "cast": cast_array, "dtype_of": numpy_dtype}
    return lambda node: with_attributes(function, node, given)


for _name, _function in QUANTISED.items():
    on_arrays(_name, _quantised(_function))
