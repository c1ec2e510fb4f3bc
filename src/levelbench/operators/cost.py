"""The cost of an ONNX node for given shapes: floating-point operations, and the bytes that must be moved.

The convention is stated here and used everywhere. Where there is none, the cost is ``None``, never a guess.

- A multiply-add counts 2; bias, alpha and beta are not counted (torch's FlopCounterMode does the same).
- Any other arithmetic, comparison or function of one element counts 1, even a composite activation. Softmax and the
  norms count the passes over their input that their definitions need (listed below). Moving data counts 0.
- Bytes are the compulsory ones: each input is read once and each output written once, regardless of caches and
  workspaces. For operators that need not move anything (Reshape) they are ``None``.
- Backward costs one forward for each differentiable operand of a product. Its bytes are those of the inputs and of the
  gradients of outputs and inputs. The backward of other operators is ``None``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from levelbench.operators.node import OperatorNode

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Signature:
    """An array's shape, the bytes of one element, and whether its dtype is floating-point."""

    shape: Shape
    itemsize: int
    floating: bool = True

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """The bytes of all elements."""
        return self.size * self.itemsize


class Cost(NamedTuple):
    """Floating-point operations (two per multiply-add) and compulsory bytes of one call; ``None`` if unknown."""

    flops: float | None
    bytes: float | None


Arrays = Sequence[Signature | None]
Rule = Callable[[OperatorNode, Arrays, Arrays], float | None]


def cost_of(node: OperatorNode, inputs: Arrays, outputs: Arrays, direction: str = "forward") -> Cost:
    """The cost of one call; ``None`` stands for an omitted input or output.

    >>> from levelbench.operators.node import operator_node
    >>> a, b, y = Signature((2, 3), 4), Signature((3, 5), 4), Signature((2, 5), 4)
    >>> cost_of(operator_node("Gemm", ["A", "B"]), [a, b], [y])
    Cost(flops=60.0, bytes=124.0)
    """
    if node.domain or not inputs or inputs[0] is None or not outputs or outputs[0] is None:
        return Cost(None, None)
    rule = _RULES.get(node.op_type)
    flops = None if rule is None else rule(node, inputs, outputs)
    moved = _bytes(node, inputs, outputs)
    if direction == "backward":
        operands = sum(each is not None and each.floating for each in inputs[: _PRODUCTS.get(node.op_type, 0)])
        flops = flops * operands if flops is not None and operands else None
        # Inputs are read, gradients of outputs read, and those of differentiable inputs written.
        written = sum(each.bytes for each in inputs if each is not None and each.floating)
        moved = None if moved is None else moved + written
    return Cost(None if flops is None else float(flops), None if moved is None else float(moved))


def _bytes(node: OperatorNode, inputs: Arrays, outputs: Arrays) -> float | None:
    written = sum(each.bytes for each in outputs if each is not None)
    read = sum(each.bytes for each in inputs if each is not None)
    if node.op_type in _CHOOSING:
        # Of the data only what is chosen has to be read: as much as is written.
        first = inputs[0]
        return 2 * written + read - (first.bytes if first is not None else 0)
    return read + written if node.op_type in _RULES and node.op_type not in _FREE else None


def _size(arrays: Arrays, at: int = 0) -> int:
    found = arrays[at] if at < len(arrays) else None
    return found.size if found is not None else 0


def _shape(arrays: Arrays, at: int) -> Shape:
    found = arrays[at] if at < len(arrays) else None
    return found.shape if found is not None else ()


def _gemm(node: OperatorNode, inputs: Arrays, outputs: Arrays) -> float:
    rows, columns = _shape(inputs, 0)
    return 2.0 * _size(outputs) * (rows if node["transA"] else columns)


def _matmul(node: OperatorNode, inputs: Arrays, outputs: Arrays) -> float:
    return 2.0 * _size(outputs) * _shape(inputs, 0)[-1]


def _conv(node: OperatorNode, inputs: Arrays, outputs: Arrays) -> float:
    return 2.0 * _size(outputs) * math.prod(_shape(inputs, 1)[1:])


def _conv_transpose(node: OperatorNode, inputs: Arrays, outputs: Arrays) -> float:
    # Each input element is multiplied by every weight of its channel, including products that are cropped away.
    return 2.0 * _size(inputs) * math.prod(_shape(inputs, 1)[1:])


def _recurrent(node: OperatorNode, inputs: Arrays, outputs: Arrays) -> float:
    """The products with W (directions, gates x hidden, input) and R; elementwise work of the gates is not counted."""
    first = _shape(inputs, 0)
    steps = first[0] * first[1]
    return 2.0 * steps * (_size(inputs, 1) + _size(inputs, 2))


def _attention(node: OperatorNode, inputs: Arrays, outputs: Arrays) -> float | None:
    """Both products for every pair of positions, even masked ones; inputs are (batch, heads, length, size)."""
    query, key, value = (_shape(inputs, at) for at in range(3))
    if len(query) != 4 or len(key) != 4 or len(value) != 4 or any(each is not None for each in inputs[4:6]):
        return None
    return 2.0 * query[0] * query[1] * query[2] * key[2] * (query[3] + value[3])


def _pool(node: OperatorNode, inputs: Arrays, outputs: Arrays) -> float:
    return float(_size(outputs) * math.prod(node["kernel_shape"]))


def _local_response(node: OperatorNode, inputs: Arrays, outputs: Arrays) -> float:
    # Square, sum over the window, product, sum with the bias, power, quotient.
    return float(_size(outputs) * (int(node["size"]) + 4))


def _variadic(node: OperatorNode, inputs: Arrays, outputs: Arrays) -> float:
    return float(_size(outputs) * max(1, len(inputs) - (node.op_type != "Mean")))


def _an_output(node: OperatorNode, inputs: Arrays, outputs: Arrays) -> float:
    return float(_size(outputs))


def _nothing(node: OperatorNode, inputs: Arrays, outputs: Arrays) -> float:
    return 0.0


def _an_input(passes: float) -> Rule:
    def rule(node: OperatorNode, inputs: Arrays, outputs: Arrays) -> float:
        return passes * _size(inputs)

    return rule


_ELEMENTWISE = (
    "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Celu Clip "
    "Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish IsInf IsNaN LeakyRelu Less "
    "LessOrEqual Log Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh "
    "Softplus Softsign Sqrt Sub Swish Tan Tanh ThresholdedRelu Where Xor"
)
_MOVING = "Cast Compress Concat DepthToSpace Expand Pad ReverseSequence SpaceToDepth Split Tile Transpose Trilu"
_CHOOSING = frozenset({"Gather", "GatherElements", "GatherND", "Slice"})
_FREE = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
# The number of leading inputs that are operands of a product; the gradient of each costs as much as the forward.
_PRODUCTS = {"Conv": 2, "ConvTranspose": 2, "GRU": 2, "Gemm": 2, "LSTM": 2, "MatMul": 2, "RNN": 2}

_RULES: dict[str, Rule] = {
    **dict.fromkeys(_ELEMENTWISE.split(), _an_output),
    **dict.fromkeys([*_MOVING.split(), *_CHOOSING, *_FREE], _nothing),
    **dict.fromkeys(("Max", "Mean", "Min", "Sum"), _variadic),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrent),
    **dict.fromkeys(
        ("ArgMax", "ArgMin", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"), _an_input(1)
    ),
    # A second operation per element: an absolute value, a square, an exponential.
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceSumSquare"), _an_input(2)),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool", "CumSum"), _an_input(1)),
    **dict.fromkeys(("AveragePool", "MaxPool"), _pool),
    # Largest, difference, exponential, sum, and quotient or second difference.
    **dict.fromkeys(("LogSoftmax", "Softmax", "SoftmaxCrossEntropyLoss"), _an_input(5)),
    "LRN": _local_response,
    # Scale and shift; mean and variance are folded into them.
    "BatchNormalization": _an_input(2),
    # Mean, difference, square, sum, product with 1 / deviation, scale, shift.
    **dict.fromkeys(("GroupNormalization", "InstanceNormalization", "LayerNormalization"), _an_input(7)),
    # Square, sum, product with 1 / root, scale.
    "RMSNormalization": _an_input(4),
    "Attention": _attention,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "MatMul": _matmul,
}
