"""Unsigned integers of 16, 32 and 64 bits, for which PyTorch has few kernels: computed in a wider or signed type.

The one idea: sums and products modulo 2^64 are the same bits with or without a sign. What depends on the order is too,
once the highest bit of 64 is flipped, which maps 0..2^64-1 to -2^63..2^63-1 in order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from levelbench.frameworks.torch.operators.registry import Function

__all__ = ["divide", "modular", "ordered", "remainder", "shift_right"]

_WIDER = {torch.uint16: torch.int32, torch.uint32: torch.int64, torch.uint64: torch.int64}
_TOP = -(2**63)


def _first(inputs: tuple[Any, ...]) -> torch.dtype:
    return next(each.dtype for each in inputs if isinstance(each, Tensor) and each.dtype in _WIDER)


def _wide(value: Any) -> Any:
    return value.to(_WIDER[value.dtype]) if isinstance(value, Tensor) and value.dtype in _WIDER else value


def modular(function: Function, inputs: tuple[Any, ...]) -> Any:
    """For results that are right modulo a power of two: sums, products, bits, left shifts."""
    dtype = _first(inputs)
    found = function(*[_wide(each) for each in inputs])
    return found.to(dtype) if found.dtype == _WIDER[dtype] else found


def ordered(function: Function, inputs: tuple[Any, ...]) -> Any:
    """For results that depend on the order alone: comparisons, maxima, sorting."""
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
    """Quotients: wide integers by ``function``, those of 64 bits without a sign."""
    if _first(inputs) != torch.uint64:
        return modular(function, inputs)
    a, b = (each.view(torch.int64) for each in inputs)
    return _quotient(a, b).view(torch.uint64)


def remainder(function: Function, inputs: tuple[Any, ...]) -> Any:
    """Remainders, likewise."""
    if _first(inputs) != torch.uint64:
        return modular(function, inputs)
    a, b = (each.view(torch.int64) for each in inputs)
    return (a - _quotient(a, b) * b).view(torch.uint64)


def _quotient(a: Tensor, b: Tensor) -> Tensor:
    """Of 64 bits without a sign: of the halved dividend, then corrected (Warren, Hacker's Delight, section 9-3)."""
    half = torch.div(_logical_shift(a, torch.ones_like(a)), b, rounding_mode="trunc") << 1
    quotient = half + ((a - half * b) ^ _TOP).ge(b ^ _TOP)
    # A divisor of 2^63 and up goes into the dividend once, or not at all.
    return torch.where(b < 0, (a ^ _TOP).ge(b ^ _TOP).to(torch.int64), quotient)


def shift_right(_: Function, inputs: tuple[Any, ...]) -> Tensor:
    """The logical shift to the right; more bits than there are make zero."""
    dtype = _first(inputs)
    x, bits = (_wide(each) for each in inputs)
    return _logical_shift(x, bits).to(dtype)


def _logical_shift(x: Tensor, bits: Tensor) -> Tensor:
    kept = torch.where(bits > 0, ~(torch.full_like(x, -1) << (64 - bits).clamp(0, 63)), -1)
    found = (x >> bits.clamp(max=63)) & kept.to(x.dtype)
    return torch.where(bits > 63, torch.zeros_like(found), found)
