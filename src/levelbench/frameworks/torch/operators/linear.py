"""Matrix products: general, broadcast, by Einstein's summation, and determinants."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from levelbench.frameworks.torch.operators.registry import Function, maker, plain
from levelbench.frameworks.torch.operators.unsigned import modular
from levelbench.operators.node import OperatorNode

__all__: list[str] = []

plain({"MatMul": torch.matmul}, unsigned=modular)
plain({"Det": torch.linalg.det})


@maker("Gemm", unsigned=modular)
def _gemm(node: OperatorNode) -> Function:
    """Alpha A' B' + beta C (ONNX Gemm), by one call of BLAS where C is a row or absent."""
    alpha, beta = node["alpha"], node["beta"]
    turn_a, turn_b = bool(node["transA"]), bool(node["transB"])
    if alpha == beta == 1.0 and not turn_a and turn_b:
        # It adds a bias of any shape that goes with the product, as ONNX has it.
        return functional.linear
    if alpha == beta == 1.0 and not turn_a and not turn_b:
        return lambda a, b, c=None: torch.mm(a, b) if c is None else torch.addmm(c, a, b)
    whole: Any = (int(alpha), int(beta)) if alpha == int(alpha) and beta == int(beta) else None

    def gemm(a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
        a = a.t() if turn_a else a
        b = b.t() if turn_b else b
        if c is None:
            return torch.mm(a, b) if alpha == 1.0 else torch.mm(a, b) * alpha
        if a.is_floating_point():
            return torch.addmm(c, a, b, beta=beta, alpha=alpha)
        if whole is None:
            return (alpha * torch.mm(a, b) + beta * c).to(a.dtype)
        return torch.addmm(c, a, b, beta=whole[1], alpha=whole[0])

    return gemm


@maker("Einsum")
def _einsum(node: OperatorNode) -> Function:
    equation = node["equation"].replace(" ", "")
    return lambda *inputs: torch.einsum(equation, *inputs)
