"""Element-wise operators: arithmetic, comparisons, activations, the softmax family, casts, quantisation.

At a kink the gradient is PyTorch's, so that frameworks can be compared there: the full gradient at both bounds of Clip,
zero at 0 for Abs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import ml_dtypes
import numpy as np
import tensorflow as tf

from levelbench.frameworks.shared.functional import FUNCTIONAL, FunctionalMaker, Natives, Widths
from levelbench.frameworks.shared.operators import POINTWISE
from levelbench.frameworks.tensorflow.arrays import (
    DTYPES,
    Raw,
    TensorArray,
    in_either_order,
    larger,
    matmul,
    no_type,
    numpy_dtype,
    reduced_in_order,
    smaller,
    softmax,
    xp,
)
from levelbench.frameworks.tensorflow.operators.registry import (
    LIBRARY,
    Maker,
    on_arrays,
    on_tensors,
    operator,
    refuse,
    table,
)
from levelbench.frameworks.tensorflow.operators.shapes import padded
from levelbench.operators.contract import Array, DType, Function
from levelbench.operators.node import OperatorNode

for _name, _standard in POINTWISE.items():
    on_arrays(_name, partial(lambda function, _: function, getattr(xp, _standard)))


def _divide(a: Raw, b: Raw) -> Raw:
    """ONNX's integer division truncates, like C's."""
    return tf.raw_ops.TruncateDiv(x=a, y=b) if a.dtype.is_integer else tf.math.divide(a, b)


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
    return tf.cast(_remainder(tf.cast(a, widened), tf.cast(b, widened)), kind)


def _remainder(a: Raw, b: Raw) -> Raw:
    """With the sign of the dividend; TensorFlow's own has no gradient."""
    if not a.dtype.is_floating:
        return tf.truncatemod(a, b)

    @tf.custom_gradient
    def remainder(a: Raw, b: Raw) -> tuple[Raw, Function]:
        found = tf.truncatemod(a, b)
        return found, lambda upstream: (upstream, -upstream * tf.round((a - found) / b))

    shape = tf.broadcast_static_shape(a.shape, b.shape)
    return remainder(tf.broadcast_to(a, shape), tf.broadcast_to(b, shape))


def _erf(x: Raw) -> Raw:
    found = tf.math.erf(x)
    # That of float64 is NaN at infinity.
    return tf.where(tf.math.is_inf(x), tf.sign(x), found) if x.dtype == tf.float64 else found


def _along(function: Function) -> Function:
    def call(x: Raw, *, axis: int) -> Raw:
        return function(x, axis)

    return call


table(
    BitShift=_shift,
    Div=_divide,
    Erf=_erf,
    Gelu=lambda x, *, approximate: tf.nn.gelu(x, approximate=approximate == "tanh"),
    LogSoftmax=_along(tf.nn.log_softmax),
    Max=lambda *inputs: reduce(larger, inputs),
    Min=lambda *inputs: reduce(smaller, inputs),
    Mod=_modulo,
    Softmax=_along(softmax),
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


@operator("BitCast")
def _bit_cast(x: Raw, *, node: OperatorNode, to: int) -> Raw:
    kind = tf.as_dtype(numpy_dtype(to))
    if x.dtype.size != kind.size or x.dtype in _FOUR or kind in _FOUR:
        raise refuse(node, f"{x.dtype.name} and {kind.name} differ in width", "cast between types of the same width")
    if tf.bool in (x.dtype, kind):
        return tf.cast(x, kind) if x.dtype == tf.bool else tf.bitcast(x, tf.uint8) != 0
    return tf.bitcast(x, kind)


def _cast_array(x: Array, dtype: DType, saturate: bool = True, _: str = "up") -> Array:
    # The type that is rounded in several ways has no kernels.
    return TensorArray(cast(x.tensor, dtype, saturate))


def _pad(x: Array, widths: Widths, mode: str, value: Array | None) -> Array:
    tensor = x.tensor
    if mode == "constant":
        zeros = padded(tensor, widths, 0)
        if value is None:
            return TensorArray(zeros)
        # TensorFlow's padding has no gradient for the value.
        inside = padded(tf.ones(x.shape, tf.bool), widths, False)
        return TensorArray(tf.where(inside, zeros, tf.reshape(value.tensor, [])))
    for axis, (before, behind) in enumerate(widths):
        if before or behind:
            # NumPy knows where each element comes from; negative widths only crop.
            inner = np.arange(x.shape[axis])[max(-before, 0) : x.shape[axis] + min(behind, 0)]
            places = np.pad(inner, (max(before, 0), max(behind, 0)), mode)  # type: ignore[call-overload]
            tensor = tf.gather(tensor, places, axis=axis)
    return TensorArray(tensor)


def _product(a: Array, b: Array, turn_a: bool, turn_b: bool) -> Array:
    if a.tensor.dtype.is_integer:
        return matmul(a.T if turn_a else a, b.T if turn_b else b)
    return TensorArray(tf.matmul(a.tensor, b.tensor, transpose_a=turn_a, transpose_b=turn_b))


def _moments(x: Array, axes: Sequence[int]) -> tuple[Array, Array]:
    mean, variance = tf.nn.moments(*reduced_in_order(x.tensor, axes))
    return TensorArray(mean), TensorArray(variance)


NATIVES = Natives(
    LIBRARY,
    cast=_cast_array,
    absolute=xp.abs,
    relu=on_tensors(in_either_order(tf.nn.relu)),
    sigmoid=on_tensors(in_either_order(tf.sigmoid)),
    softplus=on_tensors(tf.math.softplus),
    softsign=on_tensors(tf.nn.softsign),
    log_softmax=on_tensors(tf.nn.log_softmax),
    log_sum_exp=lambda x, axis, keepdims: TensorArray(tf.reduce_logsumexp(x.tensor, axis, keepdims)),
    amax=xp.max,
    amin=xp.min,
    moments=_moments,
    product=_product,
    split=lambda x, sizes, axis: [TensorArray(each) for each in tf.split(x.tensor, sizes, axis)],
    pad=_pad,
    refuse=refuse,
)
"""What the functional operators need from TensorFlow."""


def _functional(make: FunctionalMaker) -> Maker:
    return lambda node: make(node, NATIVES)


for _name, _make in FUNCTIONAL.items():
    on_arrays(_name, _functional(_make))
