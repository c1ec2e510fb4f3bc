"""Quantised values, for the frameworks whose arrays have a namespace: products of them are exact, in 32-bit integers.

The functions take their framework's namespace ``xp``, its ``cast(x, dtype, saturate)`` by ONNX's rules, and
``dtype_of`` ONNX's number of a type, as keyword-only parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType

import ml_dtypes
import numpy as np

from levelbench.operators.contract import Array, DType, Function

Cast = Callable[..., Array]
_INT32, _INT64, _FLOAT = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.float32)


def _spread(xp: ModuleType, value: Array, shape: Sequence[int], axis: int, block: int) -> Array:
    """A scale or zero point that broadcasts against an array of ``shape``."""
    if value.size == 1:
        return value.reshape(())
    if not block:
        return value.reshape([-1 if at == axis % len(shape) else 1 for at in range(len(shape))])
    return xp.take(xp.repeat(value, block, axis=axis), np.arange(shape[axis]), axis)


def is_integer(dtype: DType) -> bool:
    """Whether a type is one of integers, 2 and 4 bits included."""
    return dtype.kind in "iu" or dtype.name in {"int2", "int4", "uint2", "uint4"}


def _to_integer(xp: ModuleType, cast: Cast, value: Array, dtype: DType) -> Array:
    most = ml_dtypes.iinfo(dtype)
    # NaN becomes the lowest, as in ONNX Runtime.
    value = xp.where(xp.isnan(value), xp.full_like(value, int(most.min)), value)
    return cast(xp.clip(value, int(most.min), int(most.max)), dtype)


def _quantize(
    x: Array,
    scale: Array,
    zero: Array | None = None,
    *,
    xp: ModuleType,
    cast: Cast,
    dtype_of: Callable[[int], DType],
    axis: int = 1,
    block_size: int = 0,
    saturate: int = 1,
    output_dtype: int = 0,
    precision: int = 0,
) -> Array:
    dtype = zero.dtype if zero is not None else dtype_of(output_dtype) if output_dtype else np.dtype(np.uint8)
    compute = dtype_of(precision) if precision else scale.dtype
    ratio = x.astype(compute) / _spread(xp, scale, x.shape, axis, block_size).astype(compute)
    if not is_integer(dtype):
        return cast(ratio, dtype, bool(saturate))
    shift = 0 if zero is None else _spread(xp, cast(zero, _FLOAT), x.shape, axis, block_size)
    return _to_integer(xp, cast, xp.round(ratio.astype(_FLOAT)) + shift, dtype)


def _dequantize(
    x: Array,
    scale: Array,
    zero: Array | None = None,
    *,
    xp: ModuleType,
    cast: Cast,
    dtype_of: Callable[[int], DType],
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Array:
    # 32-bit integers are more precise than float32; differences of narrower integers are exact in float32.
    wide = _INT64 if x.dtype == _INT32 else _FLOAT
    difference = cast(x, wide) - (0 if zero is None else _spread(xp, cast(zero, wide), x.shape, axis, block_size))
    product = difference.astype(_FLOAT) * _spread(xp, scale, x.shape, axis, block_size).astype(_FLOAT)
    return cast(product, dtype_of(output_dtype) if output_dtype else scale.dtype, False)


def _dynamic_quantize(x: Array, *, xp: ModuleType) -> tuple[Array, ...]:
    low, high = xp.clip(xp.min(x), max=0), xp.clip(xp.max(x), min=0)
    scale = xp.where(low == high, xp.ones_like(low), high - low) / 255
    zero = xp.round(xp.clip(-low / scale, 0, 255))
    quantized = xp.clip(xp.round(x / scale) + zero, 0, 255)
    return xp.astype(quantized, xp.uint8), xp.astype(scale, x.dtype), xp.astype(zero, xp.uint8)


def shifted(x: Array, zero: Array | None, axis: int) -> Array:
    """``x - zero`` in int32; several zero points run along ``axis``."""
    wide = x.astype(_INT32)
    if zero is None:
        return wide
    zeros = zero.astype(_INT32)
    if zeros.ndim == 1 and zeros.size > 1:
        zeros = zeros.reshape([-1 if at == axis % wide.ndim else 1 for at in range(wide.ndim)])
    elif zeros.size == 1:
        zeros = zeros.reshape(())
    return wide - zeros


def requantise(xp: ModuleType, cast: Cast, product: Array, scale: Array, zero: Array) -> Array:
    """``round(product * scale) + zero``, clipped to the type of ``zero``."""
    scaled = xp.round(product.astype(_FLOAT) * scale)
    return _to_integer(xp, cast, scaled + zero.astype(_FLOAT), zero.dtype)


def _matmul_integer(
    a: Array, b: Array, a_zero: Array | None = None, b_zero: Array | None = None, *, xp: ModuleType
) -> Array:
    return xp.matmul(shifted(a, a_zero, -2), shifted(b, b_zero, -1))


def _qlinear_matmul(
    a: Array,
    a_scale: Array,
    a_zero: Array,
    b: Array,
    b_scale: Array,
    b_zero: Array,
    y_scale: Array,
    y_zero: Array,
    *,
    xp: ModuleType,
    cast: Cast,
) -> Array:
    product = xp.matmul(shifted(a, a_zero, -2), shifted(b, b_zero, -1))
    rows = a_scale.astype(_FLOAT)
    scale = (rows[:, None] if rows.size > 1 and rows.ndim == 1 else rows) * b_scale.astype(_FLOAT)
    return requantise(xp, cast, product, scale / y_scale.astype(_FLOAT), y_zero)


QUANTISED: dict[str, Function] = {
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "MatMulInteger": _matmul_integer,
    "QLinearMatMul": _qlinear_matmul,
    "QuantizeLinear": _quantize,
}
"""The functions by operator."""
