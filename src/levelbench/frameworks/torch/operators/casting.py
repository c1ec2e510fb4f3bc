"""Conversions between types, float8 with saturation and without, and integers below a byte."""

from __future__ import annotations

import torch
from torch import Tensor

from levelbench.frameworks.torch.arrays import FLOAT8, POWER_OF_TWO, SMALL, small_to_bytes, torch_dtype
from levelbench.frameworks.torch.operators.registry import Function, maker, refuse
from levelbench.operators.node import OperatorNode

__all__ = ["cast", "to_float8", "to_small"]

_SPECIAL = frozenset({*FLOAT8, *SMALL, POWER_OF_TWO} - {None})
_MANTISSA = 2**23
_E4M3FN_LIMIT = 464.0


def cast(x: Tensor, dtype: torch.dtype, saturate: bool = True, round_mode: str = "up") -> Tensor:
    """ONNX's Cast: IEEE types overflow to infinity, integers wrap, float8 saturates or overflows as asked."""
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
    """Rounded to the nearest, ties to even; beyond the largest value that one, or infinity or NaN."""
    x = x.to(torch.float32)
    if saturate:
        largest = torch.finfo(dtype).max
        return x.clamp(-largest, largest).to(dtype)
    if dtype == torch.float8_e4m3fn:
        # PyTorch stops at the largest value, 448; from half a step above it ONNX wants NaN.
        x = torch.where(x.abs() > _E4M3FN_LIMIT, torch.nan, x)
    return x.to(dtype)


def to_small(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Integers of four or two bits, one a byte: the lowest bits of the whole part."""
    bits, signed = SMALL[dtype]
    whole = x.to(torch.int32)
    above = 32 - bits
    kept = (whole << above) >> above if signed else whole & (2**bits - 1)
    return kept.to(torch.int8 if signed else torch.uint8).view(dtype)


def _to_power_of_two(x: Tensor, saturate: bool, round_mode: str) -> Tensor:
    """The exponents of x, 2^-127 to 2^127, rounded up, down or to the nearest; NaN is all ones."""
    bits = x.to(torch.float32).view(torch.int32)
    exponent, mantissa = (bits >> 23) & 0xFF, bits & (_MANTISSA - 1)
    half = _MANTISSA // 2
    # A subnormal number is below 2^-126: rounding up is to 2^-126 once it exceeds 2^-127, whose mantissa is a half.
    subnormal = exponent == 0
    if round_mode == "up":
        carry = torch.where(subnormal, mantissa > half, mantissa > 0)
    elif round_mode == "nearest":
        # Ties go to the even mantissa, which has one bit: upwards where its hidden bit is the only one.
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


@maker("CastLike")
def _cast_like(node: OperatorNode) -> Function:
    saturate, round_mode = bool(node.get("saturate", 1)), node.get("round_mode", "up")
    return lambda x, like: cast(x, like.dtype, saturate, round_mode)


@maker("BitCast")
def _bit_cast(node: OperatorNode) -> Function:
    dtype = torch_dtype(node["to"])
    if dtype in SMALL:
        raise refuse(node, "PyTorch keeps integers of four and two bits in a byte each")

    def bit_cast(x: Tensor) -> Tensor:
        if x.dtype in SMALL:
            raise refuse(node, "PyTorch keeps integers of four and two bits in a byte each")
        return x.view(dtype)

    return bit_cast
