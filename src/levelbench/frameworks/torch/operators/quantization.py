"""Linear quantisation, by tensor, axis or block, and integer products.

Products of integers of eight bits are exact in double precision up to 2^37 terms, and PyTorch has fast kernels for
doubles where it has none for integers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from levelbench.frameworks.torch.arrays import FLOAT8, SMALL, small_to_bytes, torch_dtype
from levelbench.frameworks.torch.operators.elementwise import to_float8, to_small
from levelbench.frameworks.torch.operators.registry import Function, maker, operator, refuse
from levelbench.frameworks.torch.operators.windows import convolution
from levelbench.operators.node import OperatorNode


def _aligned(values: Tensor, x: Tensor, axis: int, block: int) -> Tensor:
    """Scales or zero points so that they go with ``x``: one, one a place along ``axis``, or one a block of places."""
    if values.dim() == 0 or values.numel() == 1:
        return values.reshape(())
    if values.dim() == 1 and not block:
        return values.reshape([-1 if at == axis % x.dim() else 1 for at in range(x.dim())])
    size = x.shape[axis]
    # Without a block size each block is as long as it must be.
    length = block or -(-size // values.shape[axis])
    return values.repeat_interleave(length, axis).narrow(axis, 0, size)


def _bounds(dtype: torch.dtype) -> tuple[int, int]:
    if dtype in SMALL:
        bits, signed = SMALL[dtype]
        return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    limits = torch.iinfo(dtype)
    return limits.min, limits.max


def _saturated(x: Tensor, dtype: torch.dtype) -> Tensor:
    low, high = _bounds(dtype)
    x = x.clamp(low, high)
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
        return _saturated(whole, dtype)

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


def _shifted(x: Tensor, zero: Tensor | None, by_first: bool = False) -> Tensor:
    """``x`` less its zero point, exact; ``by_first``: one a place of the first axis, else of the last but one."""
    values = x.double()
    if zero is None:
        return values
    zero = zero.double()
    if zero.numel() == 1:
        return values - zero.reshape(())
    return values - (zero.reshape(-1, *[1] * (x.dim() - 1)) if by_first else zero)


def _rows(values: Tensor | None) -> Tensor | None:
    """One a row of the first factor."""
    return values.unsqueeze(-1) if values is not None and values.dim() == 1 and values.numel() > 1 else values


@operator("MatMulInteger")
def _mat_mul_integer(a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None) -> Tensor:
    return torch.matmul(_shifted(a, _rows(a_zero)), _shifted(b, b_zero)).to(torch.int32)


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
        raise refuse(node, "only integers of eight bits are multiplied here")
    total = torch.matmul(_shifted(a, _rows(a_zero)), _shifted(b, b_zero))
    left = _rows(a_scale)
    scaled = total * left.double() * b_scale.double() / y_scale.double() if left is not None else total
    return _saturated(torch.round(scaled) + y_zero.double(), y_zero.dtype)


@maker("ConvInteger")
def _conv_integer(node: OperatorNode) -> Function:
    conv = convolution(node)

    def integer(x: Tensor, w: Tensor, x_zero: Tensor | None = None, w_zero: Tensor | None = None) -> Tensor:
        return conv(_shifted(x, x_zero), _shifted(w, w_zero, by_first=True)).to(torch.int32)

    return integer


@maker("QLinearConv")
def _q_linear_conv(node: OperatorNode) -> Function:
    conv = convolution(node)

    def quantised(
        x: Tensor,
        x_scale: Tensor,
        x_zero: Tensor,
        w: Tensor,
        w_scale: Tensor,
        w_zero: Tensor,
        y_scale: Tensor,
        y_zero: Tensor,
        bias: Tensor | None = None,
    ) -> Tensor:
        total = conv(_shifted(x, x_zero), _shifted(w, w_zero, by_first=True), None if bias is None else bias.double())
        scale = x_scale.double() * w_scale.double() / y_scale.double()
        if scale.numel() > 1:
            scale = scale.reshape(-1, *[1] * (x.dim() - 2))
        return _saturated(torch.round(total * scale) + y_zero.double(), y_zero.dtype)

    return quantised
