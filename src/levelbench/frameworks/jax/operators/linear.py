"""Products of matrices: MatMul, Gemm, Einsum, Det.

The one idea: float32 products are taken in float32 on every device; an accelerator's faster, coarser ones (TF32,
bfloat16 passes) are not what ONNX asks for.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from levelbench.frameworks.jax.operators.registry import Function, maker, plain
from levelbench.operators.node import OperatorNode

__all__ = ["PRECISION"]

PRECISION = lax.Precision.HIGHEST

plain(
    {
        "Det": jnp.linalg.det,
        "MatMul": lambda a, b: jnp.matmul(a, b, precision=PRECISION),
    }
)


@maker("Gemm")
def _gemm(node: OperatorNode) -> Function:
    alpha, beta = float(node["alpha"]), float(node["beta"])
    trans_a, trans_b = bool(node["transA"]), bool(node["transB"])

    def gemm(a: Any, b: Any, c: Any = None) -> Any:
        product = jnp.matmul(a.T if trans_a else a, b.T if trans_b else b, precision=PRECISION)
        product = product if alpha == 1 else (alpha * product).astype(product.dtype)
        if c is None:
            return product
        return product + (c if beta == 1 else (beta * c).astype(c.dtype))

    return gemm


@maker("Einsum")
def _einsum(node: OperatorNode) -> Function:
    equation = node["equation"].replace(" ", "")
    return lambda *inputs: jnp.einsum(equation, *inputs, precision=PRECISION)
