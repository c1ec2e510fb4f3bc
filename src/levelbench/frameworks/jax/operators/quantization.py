"""Quantised operators: (De)QuantizeLinear by tensor, axis or block, and products of quantised matrices and images.

A scale or zero point is first spread so that it broadcasts against the array; the rest is arithmetic. Products are
taken exactly, in 32-bit integers.
"""

from __future__ import annotations

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import Array

from levelbench.frameworks.jax.arrays import DType, numpy_dtype
from levelbench.frameworks.jax.operators.elementwise import cast
from levelbench.frameworks.jax.operators.registry import operator

__all__ = ["requantise", "shifted"]


def _spread(value: Array, shape: tuple[int, ...], axis: int, block: int) -> Array:
    """A scale or zero point that broadcasts against an array of ``shape``."""
    if value.size == 1:
        return value.reshape(())
    if not block:
        return value.reshape([-1 if at == axis % len(shape) else 1 for at in range(len(shape))])
    return jnp.take(jnp.repeat(value, block, axis), np.arange(shape[axis]), axis)


@operator("QuantizeLinear")
def _quantize(
    x: Array,
    scale: Array,
    zero: Array | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    saturate: int = 1,
    output_dtype: int = 0,
    precision: int = 0,
) -> Array:
    dtype = zero.dtype if zero is not None else numpy_dtype(output_dtype) if output_dtype else np.dtype(np.uint8)
    compute = numpy_dtype(precision) if precision else scale.dtype
    ratio = x.astype(compute) / _spread(scale, x.shape, axis, block_size).astype(compute)
    if not jnp.issubdtype(dtype, jnp.integer):
        return cast(ratio, dtype, bool(saturate))
    shift = 0 if zero is None else _spread(zero, x.shape, axis, block_size).astype(jnp.float32)
    return _to_integer(jnp.round(ratio.astype(jnp.float32)) + shift, dtype)


@operator("DequantizeLinear")
def _dequantize(
    x: Array, scale: Array, zero: Array | None = None, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0
) -> Array:
    # 32-bit integers have more digits than float32, and differences of small ones are exact in it.
    wide = jnp.int64 if x.dtype == jnp.int32 else jnp.float32
    shifted = x.astype(wide) - (0 if zero is None else _spread(zero, x.shape, axis, block_size).astype(wide))
    product = shifted.astype(jnp.float32) * _spread(scale, x.shape, axis, block_size).astype(jnp.float32)
    return product.astype(numpy_dtype(output_dtype) if output_dtype else scale.dtype)


@operator("DynamicQuantizeLinear")
def _dynamic_quantize(x: Array) -> tuple[Array, ...]:
    low, high = jnp.minimum(jnp.min(x), 0), jnp.maximum(jnp.max(x), 0)
    scale = jnp.where(low == high, 1, high - low) / 255
    zero = jnp.round(jnp.clip(-low / scale, 0, 255))
    quantized = jnp.clip(jnp.round(x / scale) + zero, 0, 255)
    return quantized.astype(jnp.uint8), scale.astype(x.dtype), zero.astype(jnp.uint8)


def shifted(x: Array, zero: Array, axis: int) -> Array:
    """``x - zero`` in int32; a zero point with more than one value runs along ``axis``."""
    wide = x.astype(jnp.int32)
    if zero is None:
        return wide
    zeros = zero.astype(jnp.int32)
    if zeros.ndim == 1 and zeros.size > 1:
        zeros = zeros.reshape([-1 if at == axis % wide.ndim else 1 for at in range(wide.ndim)])
    elif zeros.size == 1:
        zeros = zeros.reshape(())
    return wide - zeros


def requantise(product: Array, scale: Array, zero: Array, dtype: DType) -> Array:
    """``round(product * scale) + zero`` as ``dtype``, whose limits it is held to."""
    scaled = jnp.round(product.astype(jnp.float32) * scale)
    return _to_integer(scaled if zero is None else scaled + zero.astype(jnp.float32), dtype)


def _to_integer(value: Array, dtype: DType) -> Array:
    most = ml_dtypes.iinfo(dtype)
    return jnp.clip(value, int(most.min), int(most.max)).astype(dtype)


@operator("MatMulInteger")
def _matmul_integer(a: Array, b: Array, a_zero: Array | None = None, b_zero: Array | None = None) -> Array:
    return jnp.matmul(shifted(a, a_zero, -2), shifted(b, b_zero, -1))


@operator("QLinearMatMul")
def _qlinear_matmul(
    a: Array, a_scale: Array, a_zero: Array, b: Array, b_scale: Array, b_zero: Array, y_scale: Array, y_zero: Array
) -> Array:
    product = jnp.matmul(shifted(a, a_zero, -2), shifted(b, b_zero, -1))
    rows = a_scale.astype(jnp.float32)
    scale = (rows[:, None] if rows.size > 1 and rows.ndim == 1 else rows) * b_scale.astype(jnp.float32)
    return requantise(product, scale / y_scale.astype(jnp.float32), y_zero, y_zero.dtype)
