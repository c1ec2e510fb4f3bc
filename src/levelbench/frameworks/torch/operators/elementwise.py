"""Element-wise operators: arithmetic, comparisons, logic, bits, activations, the softmax family, casts, quantisation.

Quantisation works per tensor, axis or block. Products of eight-bit integers are exact in double precision up to 2^37
terms, and PyTorch has fast kernels for doubles but not for integers.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from levelbench.frameworks.shared.operators import POINTWISE
from levelbench.frameworks.torch.arrays import FLOAT8, POWER_OF_TWO, SMALL, small_to_bytes, torch_dtype
from levelbench.frameworks.torch.operators.registry import maker, operator, refuse, table
from levelbench.operators.contract import Function
from levelbench.operators.node import OperatorNode

_WIDER = {torch.uint16: torch.int32, torch.uint32: torch.int64, torch.uint64: torch.int64}
_TOP = -(2**63)


def _first(inputs: tuple[Any, ...]) -> torch.dtype:
    return next(each.dtype for each in inputs if isinstance(each, Tensor) and each.dtype in _WIDER)


def _wide(value: Any) -> Any:
    return value.to(_WIDER[value.dtype]) if isinstance(value, Tensor) and value.dtype in _WIDER else value


def modular(function: Function, inputs: tuple[Any, ...]) -> Any:
    """For results that are correct modulo a power of two: sums, products, bits, left shifts."""
    dtype = _first(inputs)
    found = function(*[_wide(each) for each in inputs])
    return found.to(dtype) if found.dtype == _WIDER[dtype] else found


def ordered(function: Function, inputs: tuple[Any, ...]) -> Any:
    """For results that depend only on the order: comparisons, maxima, sorting."""
    dtype = _first(inputs)
    found = function(*[_in_order(each) for each in inputs])
    if isinstance(found, tuple):
        return tuple(_back(each, dtype) for each in found[:1]) + found[1:]
    return _back(found, dtype)


def _in_order(value: Any) -> Any:
    if isinstance(value, Tensor) and value.dtype == torch.uint64:
        return value.view(torch.int64) ^ _TOP
    return _wide(value)


def _back(value: Tensor, dtype: torch.dtype) -> Tensor:
    if value.dtype != _WIDER[dtype]:
        return value
    return (value ^ _TOP).view(dtype) if dtype == torch.uint64 else value.to(dtype)


def divide(function: Function, inputs: tuple[Any, ...]) -> Any:
    """Quotients: in wider integers by ``function``, for 64 bits by unsigned division."""
    if _first(inputs) != torch.uint64:
        return modular(function, inputs)
    a, b = (each.view(torch.int64) for each in inputs)
    return _quotient(a, b).view(torch.uint64)


def remainder(function: Function, inputs: tuple[Any, ...]) -> Any:
    """Remainders, in the same way."""
    if _first(inputs) != torch.uint64:
        return modular(function, inputs)
    a, b = (each.view(torch.int64) for each in inputs)
    return (a - _quotient(a, b) * b).view(torch.uint64)


def _quotient(a: Tensor, b: Tensor) -> Tensor:
    """The unsigned 64-bit quotient: of the halved dividend, then corrected (Warren, Hacker's Delight, section 9-3)."""
    half = torch.div(_logical_shift(a, torch.ones_like(a)), b, rounding_mode="trunc") << 1
    quotient = half + ((a - half * b) ^ _TOP).ge(b ^ _TOP)
    # For a divisor of at least 2^63 the quotient is 1 or 0.
    return torch.where(b < 0, (a ^ _TOP).ge(b ^ _TOP).to(torch.int64), quotient)


def shift_right(_: Function, inputs: tuple[Any, ...]) -> Tensor:
    """The logical right shift; by more bits than the width the result is zero."""
    dtype = _first(inputs)
    x, bits = (_wide(each) for each in inputs)
    return _logical_shift(x, bits).to(dtype)


def _logical_shift(x: Tensor, bits: Tensor) -> Tensor:
    kept = torch.where(bits > 0, ~(torch.full_like(x, -1) << (64 - bits).clamp(0, 63)), -1)
    found = (x >> bits.clamp(max=63)) & kept.to(x.dtype)
    return torch.where(bits > 63, torch.zeros_like(found), found)


# Arithmetic, comparisons, logic and bits, element by element with broadcasting.


_UNSIGNED = {torch.uint16, torch.uint32, torch.uint64}


_OWN: dict[str, Function] = {
    "BitwiseNot": torch.bitwise_not,
    "Equal": torch.eq,
    "Greater": torch.gt,
    "GreaterOrEqual": torch.ge,
    "Less": torch.lt,
    "LessOrEqual": torch.le,
    "Mul": torch.mul,
    "Neg": torch.neg,
    "Sub": torch.sub,
}
"""PyTorch's primary name of a function that has several: an alias costs an extra call."""
_UNSIGNED_BY = {
    **dict.fromkeys(("Add", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Mul", "Sub"), modular),
    **dict.fromkeys(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"), ordered),
    "Abs": lambda _, inputs: inputs[0],
    "Sign": lambda _, inputs: inputs[0].ne(0).to(inputs[0].dtype),
}
for _name, _standard in POINTWISE.items():
    operator(_name, unsigned=_UNSIGNED_BY.get(_name))(_OWN.get(_name) or getattr(torch, _standard))


@operator("Div", unsigned=divide)
def _div(a: Tensor, b: Tensor) -> Tensor:
    # ONNX truncates integer division towards zero; PyTorch's plain division returns floats.
    return torch.div(a, b) if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


@maker("Mod", unsigned=remainder)
def _mod(node: OperatorNode) -> Function:
    return torch.fmod if node["fmod"] else torch.remainder


@operator("Pow", unsigned=modular)
def _pow(base: Tensor, exponent: Tensor) -> Tensor:
    if base.dtype == exponent.dtype:
        return torch.pow(base, exponent)
    if base.is_floating_point():
        # The result has the base's type; computing in a wider exponent type loses nothing.
        wider = torch.promote_types(base.dtype, exponent.dtype) if exponent.is_floating_point() else base.dtype
        return torch.pow(base.to(wider), exponent.to(wider)).to(base.dtype)
    return torch.pow(base, exponent.to(torch.float64 if exponent.is_floating_point() else base.dtype)).to(base.dtype)


table(
    unsigned=ordered,
    Max=lambda *inputs: reduce(torch.maximum, inputs),
    Min=lambda *inputs: reduce(torch.minimum, inputs),
)
table(
    Erf=torch.erf,
    Identity=lambda x: x,
    Mean=lambda *inputs: reduce(torch.add, inputs) / len(inputs),
    Sum=lambda *inputs: reduce(torch.add, inputs),
)


@operator("Clip", unsigned=ordered)
def _clip(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    return x if low is None and high is None else torch.clamp(x, low, high)


@operator("BitShift")
def _bit_shift(x: Tensor, bits: Tensor, *, direction: str) -> Tensor:
    left = direction == "LEFT"
    function = torch.bitwise_left_shift if left else torch.bitwise_right_shift
    if x.dtype in _UNSIGNED:
        return modular(function, (x, bits)) if left else shift_right(function, (x, bits))
    width = 8 * x.itemsize
    outside = (bits < 0) | (bits >= width)
    # A shift by the width or more leaves only the sign; PyTorch does not define it.
    fill = torch.where(x < 0, -1, 0).to(x.dtype) if not left and x.dtype.is_signed else 0
    return torch.where(outside, fill, function(x, bits.clamp(0, width - 1)))


# Activation functions and the softmax family.


# Above its threshold PyTorch's softplus is the identity; at 40, log(1 + exp(-40)) is below half an ulp of a double.
_STRAIGHT = 40.0

table(
    HardSigmoid=lambda x, *, alpha, beta: torch.clamp(x * alpha + beta, 0.0, 1.0),
    HardSwish=functional.hardswish,
    Mish=functional.mish,
    Relu=torch.relu,
    Sigmoid=torch.sigmoid,
    Softsign=functional.softsign,
    Softplus=lambda x: functional.softplus(x, 1.0, _STRAIGHT),
    LeakyRelu=lambda x, *, alpha: functional.leaky_relu(x, alpha),
    Elu=lambda x, *, alpha: functional.elu(x, alpha),
    Celu=lambda x, *, alpha: functional.celu(x, alpha),
    Selu=lambda x, *, alpha, gamma: functional.elu(x, alpha) * gamma,
)


@maker("Gelu")
def _gelu(node: OperatorNode) -> Function:
    if node["approximate"] == "tanh":
        return lambda x: functional.gelu(x, approximate="tanh")
    return functional.gelu


@operator("PRelu")
def _prelu(x: Tensor, slope: Tensor) -> Tensor:
    if x.is_floating_point():
        if slope.numel() == 1:
            return torch.prelu(x, slope.reshape(1))
        if slope.dim() == x.dim() - 1 and slope.numel() == slope.shape[0] == x.shape[1]:
            return torch.prelu(x, slope.reshape(-1))
    return torch.where(x < 0, x * slope, x)


@maker("Swish")
def _swish(node: OperatorNode) -> Function:
    return _swish_of(node["alpha"])


@maker("SwiGLU")
def _swiglu(node: OperatorNode) -> Function:
    swish = _swish_of(node["alpha"])
    return lambda gate, value: swish(gate) * value


def _swish_of(alpha: float) -> Function:
    """X sigmoid(alpha x)."""
    if alpha == 1.0:
        return functional.silu
    return lambda x: x * torch.sigmoid(x * alpha)


table(
    ThresholdedRelu=lambda x, *, alpha: functional.threshold(x, alpha, 0.0),
    Softmax=lambda x, *, axis: torch.softmax(x, axis),
    LogSoftmax=lambda x, *, axis: torch.log_softmax(x, axis),
    Hardmax=lambda x, *, axis: torch.zeros_like(x).scatter_(axis, x.argmax(axis, keepdim=True), 1),
)


# Conversions between types, including float8 with and without saturation, and integers below a byte.


_SPECIAL = frozenset({*FLOAT8, *SMALL, POWER_OF_TWO} - {None})
_MANTISSA = 2**23
_E4M3FN_LIMIT = 464.0


def cast(x: Tensor, dtype: torch.dtype, saturate: bool = True, round_mode: str = "up") -> Tensor:
    """ONNX's Cast: IEEE types overflow to infinity, integers wrap, float8 saturates if ``saturate`` is set."""
    if x.dtype in SMALL:
        x = small_to_bytes(x)
    if dtype in FLOAT8:
        return to_float8(x, dtype, saturate)
    if dtype in SMALL:
        return to_small(x, dtype)
    if dtype == POWER_OF_TWO:
        return _to_power_of_two(x, saturate, round_mode)
    if x.dtype == POWER_OF_TWO and dtype == torch.float32:
        return _from_power_of_two(x)
    return x.to(dtype)


def to_float8(x: Tensor, dtype: torch.dtype, saturate: bool) -> Tensor:
    """Round to nearest even; values above the largest become the largest or, without ``saturate``, infinity or NaN."""
    x = x.to(torch.float32)
    if saturate:
        largest = torch.finfo(dtype).max
        return x.clamp(-largest, largest).to(dtype)
    if dtype == torch.float8_e4m3fn:
        # PyTorch saturates at the largest value, 448; ONNX specifies NaN from half a step above it.
        x = torch.where(x.abs() > _E4M3FN_LIMIT, torch.nan, x)
    return x.to(dtype)


def to_small(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Integers of four or two bits, one per byte: the lowest bits of the integer part."""
    bits, signed = SMALL[dtype]
    whole = x.to(torch.int32)
    above = 32 - bits
    kept = (whole << above) >> above if signed else whole & (2**bits - 1)
    return kept.to(torch.int8 if signed else torch.uint8).view(dtype)


def _to_power_of_two(x: Tensor, saturate: bool, round_mode: str) -> Tensor:
    """X rounded up, down or to the nearest power of two from 2^-127 to 2^127; NaN is all ones."""
    bits = x.to(torch.float32).view(torch.int32)
    exponent, mantissa = (bits >> 23) & 0xFF, bits & (_MANTISSA - 1)
    half = _MANTISSA // 2
    # A subnormal is below 2^-126; it rounds up to 2^-126 if it exceeds 2^-127, whose mantissa is one half.
    subnormal = exponent == 0
    if round_mode == "up":
        carry = torch.where(subnormal, mantissa > half, mantissa > 0)
    elif round_mode == "nearest":
        # Ties to even: a tie rounds up if the hidden bit is the only one.
        carry = torch.where(subnormal, mantissa > half, (mantissa > half) | ((mantissa == half) & (exponent > 0)))
    else:
        carry = torch.zeros_like(subnormal)
    rounded = exponent + carry.to(torch.int32)
    finite = torch.isfinite(x)
    rounded = torch.where(rounded > 254, 254 if saturate else 255, rounded)
    if not saturate:
        rounded = torch.where((x == 0) | ~finite, 255, rounded)
    rounded = torch.where(torch.isnan(x), 255, rounded)
    return rounded.to(torch.uint8).view(POWER_OF_TWO)


def _from_power_of_two(x: Tensor) -> Tensor:
    exponent = x.view(torch.uint8).to(torch.int32)
    bits = torch.where(exponent == 0, _MANTISSA // 2, exponent << 23)
    bits = torch.where(exponent == 255, 0x7FC00000, bits)
    return bits.to(torch.int32).view(torch.float32)


@maker("Cast")
def _cast(node: OperatorNode) -> Function:
    dtype = torch_dtype(node["to"])
    saturate, round_mode = bool(node.get("saturate", 1)), node.get("round_mode", "up")
    special = dtype in _SPECIAL

    def convert(x: Tensor) -> Tensor:
        if special or x.dtype in _SPECIAL:
            return cast(x, dtype, saturate, round_mode)
        return x.to(dtype)

    return convert


@operator("CastLike")
def _cast_like(x: Tensor, like: Tensor, *, saturate: int = 1, round_mode: str = "up") -> Tensor:
    return cast(x, like.dtype, bool(saturate), round_mode)


@maker("BitCast")
def _bit_cast(node: OperatorNode) -> Function:
    dtype = torch_dtype(node["to"])
    if dtype in SMALL:
        raise refuse(node, "PyTorch stores integers of four and two bits in one byte each")

    def bit_cast(x: Tensor) -> Tensor:
        if x.dtype in SMALL:
            raise refuse(node, "PyTorch stores integers of four and two bits in one byte each")
        return x.view(dtype)

    return bit_cast


def _aligned(values: Tensor, x: Tensor, axis: int, block: int) -> Tensor:
    """Scales or zero points that broadcast to ``x``: one, one per index along ``axis``, or one per block."""
    if values.dim() == 0 or values.numel() == 1:
        return values.reshape(())
    if values.dim() == 1 and not block:
        return values.reshape([-1 if at == axis % x.dim() else 1 for at in range(x.dim())])
    size = x.shape[axis]
    # Without a block size, it follows from the number of blocks.
    length = block or -(-size // values.shape[axis])
    return values.repeat_interleave(length, axis).narrow(axis, 0, size)


def _bounds(dtype: torch.dtype) -> tuple[int, int]:
    if dtype in SMALL:
        bits, signed = SMALL[dtype]
        return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    limits = torch.iinfo(dtype)
    return limits.min, limits.max


def saturated(x: Tensor, dtype: torch.dtype) -> Tensor:
    """``x`` clipped to the range of an integer type, as that type; NaN becomes the lowest, as in ONNX Runtime."""
    low, high = _bounds(dtype)
    x = x.nan_to_num(nan=low, posinf=high, neginf=low).clamp(low, high)
    return to_small(x, dtype) if dtype in SMALL else x.to(dtype)


@maker("QuantizeLinear")
def _quantize_linear(node: OperatorNode) -> Function:
    axis, block, saturate = node["axis"], node.get("block_size", 0), bool(node.get("saturate", 1))
    output, precision = node.get("output_dtype", 0), node.get("precision", 0)
    declared = torch_dtype(output) if output else torch.uint8
    exact = torch_dtype(precision) if precision else None

    def quantize(x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
        dtype = declared if zero is None else zero.dtype
        scale = _aligned(scale, x, axis, block)
        quotient = x / scale if exact is None else x.to(exact) / scale.to(exact)
        if dtype in FLOAT8:
            return to_float8(quotient, dtype, saturate)
        whole = torch.round(quotient.to(torch.float32))
        if zero is not None:
            whole = whole + _aligned(small_to_bytes(zero).to(torch.float32), x, axis, block)
        return saturated(whole, dtype)

    return quantize


@maker("DequantizeLinear")
def _dequantize_linear(node: OperatorNode) -> Function:
    axis, block, output = node["axis"], node.get("block_size", 0), node.get("output_dtype", 0)
    declared = torch_dtype(output) if output else None

    def dequantize(x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
        dtype = scale.dtype if declared is None else declared
        values = small_to_bytes(x).to(torch.float32)
        if zero is not None:
            values = values - _aligned(small_to_bytes(zero).to(torch.float32), x, axis, block)
        return (values * _aligned(scale.to(torch.float32), x, axis, block)).to(dtype)

    return dequantize


@operator("DynamicQuantizeLinear")
def _dynamic_quantize_linear(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    low, high = torch.aminmax(x)
    low, high = low.clamp(max=0), high.clamp(min=0)
    scale = (high - low) / 255
    zero = torch.round((-low / scale).clamp(0, 255))
    return (torch.round(x / scale) + zero).clamp(0, 255).to(torch.uint8), scale, zero.to(torch.uint8)


def shifted(x: Tensor, zero: Tensor | None, by_first: bool = False) -> Tensor:
    """``x`` minus its zero point, exactly; ``by_first``: zero points run along the first axis."""
    values = x.double()
    if zero is None:
        return values
    zero = zero.double()
    if zero.numel() == 1:
        return values - zero.reshape(())
    return values - (zero.reshape(-1, *[1] * (x.dim() - 1)) if by_first else zero)


def _rows(values: Tensor | None) -> Tensor | None:
    """Values per row of the first factor, as a column."""
    return values.unsqueeze(-1) if values is not None and values.dim() == 1 and values.numel() > 1 else values


@operator("MatMulInteger")
def _mat_mul_integer(a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None) -> Tensor:
    return torch.matmul(shifted(a, _rows(a_zero)), shifted(b, b_zero)).to(torch.int32)


@operator("QLinearMatMul")
def _q_linear_mat_mul(
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    *,
    node: OperatorNode,
) -> Tensor:
    if a.dtype in FLOAT8 or b.dtype in FLOAT8:
        raise refuse(node, "only eight-bit integers are implemented")
    total = torch.matmul(shifted(a, _rows(a_zero)), shifted(b, b_zero))
    left = _rows(a_scale)
    scaled = total * left.double() * b_scale.double() / y_scale.double() if left is not None else total
    return saturated(torch.round(scaled) + y_zero.double(), y_zero.dtype)
