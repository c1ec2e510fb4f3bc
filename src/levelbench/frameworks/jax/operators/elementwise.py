"""Element-wise operators: arithmetic, comparisons, activations, the softmax family, casts, quantisation.

At a kink the gradient is PyTorch's, so that frameworks can be compared there: the full gradient at both bounds of Clip,
zero at 0 for Abs.
"""

from __future__ import annotations

from functools import reduce

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import Array, lax

from levelbench.frameworks.jax.arrays import numpy_dtype
from levelbench.frameworks.jax.operators.registry import LIBRARY, PRECISION, maker, operator, refuse, table
from levelbench.frameworks.shared.convolution import lowest
from levelbench.frameworks.shared.functional import FUNCTIONAL, FunctionalMaker, Natives, Widths
from levelbench.frameworks.shared.operators import POINTWISE
from levelbench.frameworks.shared.quantisation import is_integer
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


def _divide(a: Array, b: Array) -> Array:
    """ONNX's integer division truncates, like C's and XLA's."""
    if jnp.issubdtype(a.dtype, jnp.inexact):
        return jnp.divide(a, b)
    return lax.div(*jnp.broadcast_arrays(a, b))


table(**{name: getattr(jnp, standard) for name, standard in POINTWISE.items()})
table(
    Abs=_absolute,
    BitShift=lambda x, bits, *, direction: (jnp.left_shift if direction == "LEFT" else jnp.right_shift)(x, bits),
    Div=_divide,
    Erf=lax.erf,
    Gelu=lambda x, *, approximate: jax.nn.gelu(x, approximate=approximate == "tanh"),
    LogSoftmax=lambda x, *, axis: jax.nn.log_softmax(x, axis),
    Max=lambda *inputs: reduce(jnp.maximum, inputs),
    Min=lambda *inputs: reduce(jnp.minimum, inputs),
    Mod=lambda a, b, *, fmod: jnp.fmod(a, b) if fmod else jnp.mod(a, b),
    Round=lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    Softmax=lambda x, *, axis: jax.nn.softmax(x, axis),
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


@operator("BitCast")
def _bit_cast(x: Array, *, node: OperatorNode, to: int) -> Array:
    dtype = numpy_dtype(to)
    if x.dtype.itemsize != dtype.itemsize:
        raise refuse(node, f"{x.dtype} and {dtype} differ in width", "cast between types of the same width")
    if bool in (x.dtype, dtype):
        return x.astype(dtype) if x.dtype == bool else lax.bitcast_convert_type(x, jnp.uint8) != 0
    return lax.bitcast_convert_type(x, dtype)


def _pad(x: Array, widths: Widths, mode: str, value: Array | None) -> Array:
    if mode == "constant":
        fill = jnp.zeros((), x.dtype) if value is None else jnp.asarray(value).reshape(()).astype(x.dtype)
        return lax.pad(x, fill, [(before, after, 0) for before, after in widths])
    inner = tuple(slice(max(-before, 0), min(after, 0) or None) for before, after in widths)
    return jnp.pad(x[inner], [(max(before, 0), max(after, 0)) for before, after in widths], mode=mode)


def _extreme(function: Function, start: Function) -> Function:
    """A maximum or minimum; JAX has none of nothing, and a start that is equal to it would take part of the slope."""

    def extreme(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
        given = {"initial": start(x.dtype)} if 0 in x.shape else {}
        return function(x, axis, keepdims=keepdims, **given)

    return extreme


def _highest(dtype: DType) -> Array:
    return np.array(ml_dtypes.iinfo(dtype).max if is_integer(dtype) else np.inf, dtype)


NATIVES = Natives(
    LIBRARY,
    cast=cast,
    absolute=_absolute,
    relu=jax.nn.relu,
    sigmoid=jax.nn.sigmoid,
    softplus=jax.nn.softplus,
    softsign=jax.nn.soft_sign,
    log_softmax=jax.nn.log_softmax,
    log_sum_exp=lambda x, axis, keepdims: jax.nn.logsumexp(x, axis=axis, keepdims=keepdims),
    amax=_extreme(jnp.max, lowest),
    amin=_extreme(jnp.min, _highest),
    moments=lambda x, axes: (jnp.mean(x, tuple(axes)), jnp.var(x, tuple(axes))),
    product=lambda a, b, turn_a, turn_b: jnp.matmul(a.T if turn_a else a, b.T if turn_b else b, precision=PRECISION),
    split=lambda x, sizes, axis: jnp.split(x, np.cumsum(sizes)[:-1], axis),
    pad=_pad,
    refuse=refuse,
)
"""What the functional operators need from JAX."""


def _functional(make: FunctionalMaker) -> Function:
    return lambda node: make(node, NATIVES)


for _name, _make in FUNCTIONAL.items():
    maker(_name)(_functional(_make))
