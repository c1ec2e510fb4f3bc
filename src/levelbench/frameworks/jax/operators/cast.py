"""Cast, CastLike and BitCast, with ONNX's rules for the small floating-point types.

The one idea: to a float8 type with a sign, what is too large becomes the largest value (infinity too) where
``saturate`` is on, and NaN or infinity where it is off. ``float8_e8m0`` is an exponent alone: it is cut out of
float32's bits and rounded as ``round_mode`` says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from levelbench.frameworks.jax.arrays import numpy_dtype
from levelbench.frameworks.jax.operators.registry import Function, maker, refuse
from levelbench.operators.node import OperatorNode

__all__ = ["SATURATING", "cast"]

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
