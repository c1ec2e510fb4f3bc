"""How many terms the longest sum of an ONNX operator has, read from its shapes; what is unknown is bounded."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from levelbench.operators.node import OperatorNode

__all__ = ["sum_length"]

Shapes = Sequence[tuple[int, ...] | None]

_ELEMENTWISE = """
Abs Acos Acosh Add Asin Asinh Atan Atanh BitShift Cast Ceil Celu Clip Concat Cos Cosh Div Dropout Elu Erf Exp Expand
Flatten Floor Gather GatherElements GatherND Gelu HardSigmoid HardSwish Identity LeakyRelu Log Max Min Mish Mod Mul Neg
PRelu Pad Pow Reciprocal Relu Reshape Round Selu Shrink Sigmoid Sign Sin Sinh Slice Softplus Softsign Split Sqrt Squeeze
Sub Swish Tan Tanh ThresholdedRelu Tile Transpose Unsqueeze Where
"""


def sum_length(node: OperatorNode | None, shapes: Shapes) -> tuple[int, bool]:
    """(terms, whether that is known): without a rule the elements of the largest input, which no sum exceeds by much.

    ``shapes`` are those of the inputs, ``None`` for one that is left out.
    """
    most = max((math.prod(shape) for shape in shapes if shape is not None), default=1)
    if node is None or node.domain:
        return max(1, most), False
    if node.op_type in _ELEMENTWISE.split():
        return 1, True
    rule = _RULES.get(node.op_type)
    if rule is None or not shapes or shapes[0] is None:
        return max(1, most), False
    return max(1, rule(node, shapes)), True


def _conv(node: OperatorNode, shapes: Shapes) -> int:
    return math.prod(shapes[1][1:]) if shapes[1] else 1


def _conv_transpose(node: OperatorNode, shapes: Shapes) -> int:
    weight = shapes[1] or (1,)
    return weight[0] // max(1, int(node["group"])) * math.prod(weight[2:])


def _gemm(node: OperatorNode, shapes: Shapes) -> int:
    first = shapes[0] or (1, 1)
    return first[0] if node["transA"] else first[-1]


def _matmul(node: OperatorNode, shapes: Shapes) -> int:
    return (shapes[0] or (1,))[-1] if shapes[0] else 1


def _along_axis(node: OperatorNode, shapes: Shapes) -> int:
    first = shapes[0] or (1,)
    return first[int(node.get("axis", -1)) % len(first)]


_RULES: dict[str, Callable[[OperatorNode, Shapes], int]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "LogSoftmax": _along_axis,
    "MatMul": _matmul,
    "Softmax": _along_axis,
}
