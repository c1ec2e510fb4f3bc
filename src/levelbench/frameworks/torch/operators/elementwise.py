"""Arithmetic, comparisons, logic and bits, element by element with broadcasting."""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor

from levelbench.frameworks.torch.operators.registry import Function, maker, plain
from levelbench.frameworks.torch.operators.unsigned import divide, modular, ordered, remainder, shift_right
from levelbench.operators.node import OperatorNode

__all__: list[str] = []

_UNSIGNED = {torch.uint16, torch.uint32, torch.uint64}


def _same(x: Tensor) -> Tensor:
    return x


plain(
    {
        "Acos": torch.acos,
        "Acosh": torch.acosh,
        "And": torch.logical_and,
        "Asin": torch.asin,
        "Asinh": torch.asinh,
        "Atan": torch.atan,
        "Atanh": torch.atanh,
        "Ceil": torch.ceil,
        "Cos": torch.cos,
        "Cosh": torch.cosh,
        "Erf": torch.erf,
        "Exp": torch.exp,
        "Floor": torch.floor,
        "Identity": _same,
        "IsNaN": torch.isnan,
        "Log": torch.log,
        "Neg": torch.neg,
        "Not": torch.logical_not,
        "Or": torch.logical_or,
        "Reciprocal": torch.reciprocal,
        "Round": torch.round,
        "Sin": torch.sin,
        "Sinh": torch.sinh,
        "Sqrt": torch.sqrt,
        "Tan": torch.tan,
        "Tanh": torch.tanh,
        "Where": torch.where,
        "Xor": torch.logical_xor,
    }
)
plain(
    {
        "Add": torch.add,
        "BitwiseAnd": torch.bitwise_and,
        "BitwiseNot": torch.bitwise_not,
        "BitwiseOr": torch.bitwise_or,
        "BitwiseXor": torch.bitwise_xor,
        "Mul": torch.mul,
        "Sub": torch.sub,
    },
    unsigned=modular,
)
plain(
    {
        "Equal": torch.eq,
        "Greater": torch.gt,
        "GreaterOrEqual": torch.ge,
        "Less": torch.lt,
        "LessOrEqual": torch.le,
    },
    unsigned=ordered,
)
plain({"Abs": torch.abs}, unsigned=lambda _, inputs: inputs[0])
plain({"Sign": torch.sign}, unsigned=lambda _, inputs: inputs[0].ne(0).to(inputs[0].dtype))


@maker("Div", unsigned=divide)
def _div(_: OperatorNode) -> Function:
    def divide_elements(a: Tensor, b: Tensor) -> Tensor:
        # ONNX divides integers towards zero, PyTorch's plain division makes floats of them.
        return torch.div(a, b) if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")

    return divide_elements


@maker("Mod", unsigned=remainder)
def _mod(node: OperatorNode) -> Function:
    return torch.fmod if node["fmod"] else torch.remainder


@maker("Pow", unsigned=modular)
def _pow(_: OperatorNode) -> Function:
    def power(base: Tensor, exponent: Tensor) -> Tensor:
        if base.dtype == exponent.dtype:
            return torch.pow(base, exponent)
        if base.is_floating_point():
            # The result has the base's type; in the exponent's, where that is wider, nothing is lost on the way.
            wider = torch.promote_types(base.dtype, exponent.dtype) if exponent.is_floating_point() else base.dtype
            return torch.pow(base.to(wider), exponent.to(wider)).to(base.dtype)
        return torch.pow(base, exponent.to(torch.float64 if exponent.is_floating_point() else base.dtype)).to(
            base.dtype
        )

    return power


@maker("Max", unsigned=ordered)
def _max(node: OperatorNode) -> Function:
    return _variadic(node, torch.maximum)


@maker("Min", unsigned=ordered)
def _min(node: OperatorNode) -> Function:
    return _variadic(node, torch.minimum)


@maker("Sum")
def _sum(node: OperatorNode) -> Function:
    return _variadic(node, torch.add)


@maker("Mean")
def _mean(node: OperatorNode) -> Function:
    total, count = _variadic(node, torch.add), len(node.inputs)
    return lambda *inputs: total(*inputs) / count


def _variadic(node: OperatorNode, binary: Function) -> Function:
    match len(node.inputs):
        case 1:
            return _same
        case 2:
            return binary
    return lambda *inputs: reduce(binary, inputs)


@maker("Clip", unsigned=ordered)
def _clip(_: OperatorNode) -> Function:
    def clip(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
        return x if low is None and high is None else torch.clamp(x, low, high)

    return clip


@maker("IsInf")
def _is_inf(node: OperatorNode) -> Function:
    match bool(node["detect_negative"]), bool(node["detect_positive"]):
        case True, True:
            return torch.isinf
        case True, False:
            return torch.isneginf
        case False, True:
            return torch.isposinf
    return lambda x: torch.zeros_like(x, dtype=torch.bool)


@maker("BitShift")
def _bit_shift(node: OperatorNode) -> Function:
    left = node["direction"] == "LEFT"
    function = torch.bitwise_left_shift if left else torch.bitwise_right_shift

    def shift(x: Tensor, bits: Tensor) -> Tensor:
        if x.dtype in _UNSIGNED:
            return modular(function, (x, bits)) if left else shift_right(function, (x, bits))
        width = 8 * x.itemsize
        outside = (bits < 0) | (bits >= width)
        # A shift by all bits or more leaves what the sign alone leaves: PyTorch leaves that open.
        fill = torch.where(x < 0, -1, 0).to(x.dtype) if not left and x.dtype.is_signed else 0
        return torch.where(outside, fill, function(x, bits.clamp(0, width - 1)))

    return shift
