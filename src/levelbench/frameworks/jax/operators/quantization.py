"""Quantised operators: (De)QuantizeLinear by tensor, axis or block, and products of quantised matrices and images.

A scale or zero point is first spread so that it broadcasts against the array; the rest is arithmetic. Products are
taken exactly, in 32-bit integers.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np

from levelbench.frameworks.jax.arrays import numpy_dtype
from levelbench.frameworks.jax.operators.elementwise import cast
from levelbench.frameworks.jax.operators.registry import Function, maker
from levelbench.operators.node import OperatorNode

__all__ = ["requantise", "shifted"]


def _spread(value: Any, shape: tuple[int, ...], axis: int, block: int) -> Any:
    """A scale or zero point that broadcasts against an array of ``shape``."""
    if value.size == 1:
        return value.reshape(())
    if not block:
        return value.reshape([-1 if at == axis % len(shape) else 1 for at in range(len(shape))])
    return jnp.take(jnp.repeat(value, block, axis), np.arange(shape[axis]), axis)


@maker("QuantizeLinear")
def _quantize(node: OperatorNode) -> Function:
    axis, block = int(node.get("axis", 1)), int(node.get("block_size", 0))
    saturate = bool(node.get("saturate", 1))
    wanted, precision = int(node.get("output_dtype", 0)), int(node.get("precision", 0))

    def quantize(x: Any, scale: Any, zero: Any = None) -> Any:
        dtype = zero.dtype if zero is not None else numpy_dtype(wanted) if wanted else np.dtype(np.uint8)
        compute = numpy_dtype(precision) if precision else scale.dtype
        ratio = x.astype(compute) / _spread(scale, x.shape, axis, block).astype(compute)
        if not jnp.issubdtype(dtype, jnp.integer):
            return cast(ratio, dtype, saturate)
        shift = 0 if zero is None else _spread(zero, x.shape, axis, block).astype(jnp.float32)
        return _to_integer(jnp.round(ratio.astype(jnp.float32)) + shift, dtype)

    return quantize


@maker("DequantizeLinear")
def _dequantize(node: OperatorNode) -> Function:
    axis, block, wanted = int(node.get("axis", 1)), int(node.get("block_size", 0)), int(node.get("output_dtype", 0))

    def dequantize(x: Any, scale: Any, zero: Any = None) -> Any:
        # 32-bit integers have more digits than float32, and differences of small ones are exact in it.
        wide = jnp.int64 if x.dtype == jnp.int32 else jnp.float32
        shifted = x.astype(wide) - (0 if zero is None else _spread(zero, x.shape, axis, block).astype(wide))
        product = shifted.astype(jnp.float32) * _spread(scale, x.shape, axis, block).astype(jnp.float32)
        return product.astype(numpy_dtype(wanted) if wanted else scale.dtype)

    return dequantize


@maker("DynamicQuantizeLinear")
def _dynamic_quantize(_: OperatorNode) -> Function:
    def dynamic_quantize(x: Any) -> Any:
        low, high = jnp.minimum(jnp.min(x), 0), jnp.maximum(jnp.max(x), 0)
        scale = jnp.where(low == high, 1, high - low) / 255
        zero = jnp.round(jnp.clip(-low / scale, 0, 255))
        quantized = jnp.clip(jnp.round(x / scale) + zero, 0, 255)
        return quantized.astype(jnp.uint8), scale.astype(x.dtype), zero.astype(jnp.uint8)

    return dynamic_quantize


def shifted(x: Any, zero: Any, axis: int) -> Any:
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


def requantise(product: Any, scale: Any, zero: Any, dtype: np.dtype[Any]) -> Any:
    """``round(product * scale) + zero`` as ``dtype``, whose limits it is held to."""
    scaled = jnp.round(product.astype(jnp.float32) * scale)
    return _to_integer(scaled if zero is None else scaled + zero.astype(jnp.float32), dtype)


def _to_integer(value: Any, dtype: np.dtype[Any]) -> Any:
    most = ml_dtypes.iinfo(dtype)
    return jnp.clip(value, int(most.min), int(most.max)).astype(dtype)


@maker("MatMulInteger")
def _matmul_integer(_: OperatorNode) -> Function:
    def matmul_integer(a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
        return jnp.matmul(shifted(a, a_zero, -2), shifted(b, b_zero, -1))

    return matmul_integer


@maker("QLinearMatMul")
def _qlinear_matmul(_: OperatorNode) -> Function:
    def qlinear_matmul(
        a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, y_scale: Any, y_zero: Any
    ) -> Any:
        product = jnp.matmul(shifted(a, a_zero, -2), shifted(b, b_zero, -1))
        rows = a_scale.astype(jnp.float32)
        scale = (rows[:, None] if rows.size > 1 and rows.ndim == 1 else rows) * b_scale.astype(jnp.float32)
        return requantise(product, scale / y_scale.astype(jnp.float32), y_zero, y_zero.dtype)

    return qlinear_matmul
