"""Operators of opsets before 13 that are taken as those of 13, because they compute the same.

The one idea: ONNX's own reference knows few old versions and takes the newest for the others, which is not always
right; so an old version is refused, unless it is known to differ in the types it allows and in nothing else.
"""

from __future__ import annotations

from dataclasses import replace

from levelbench.errors import UnsupportedError
from levelbench.operators.node import OPSETS, OperatorNode, in_range

__all__ = ["modern"]

_ELEMENTWISE = {
    **dict.fromkeys(("Abs", "Ceil", "Exp", "Floor", "Log", "Neg", "Reciprocal", "Relu", "Sigmoid", "Sqrt", "Tanh"), 6),
    **dict.fromkeys(("Add", "Div", "Equal", "Greater", "Less", "Mul", "Pow", "Sub"), 7),
    **dict.fromkeys(("Max", "Mean", "Min", "Sum"), 8),
    **dict.fromkeys(("Erf", "Sign"), 9),
}
_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")
_SAME_SINCE = {
    **_ELEMENTWISE,
    **{f"Reduce{each}": 1 for each in _REDUCTIONS},
    **dict.fromkeys(("Gather", "Identity", "MatMul", "Transpose"), 1),
    "Cast": 9,
    "Clip": 11,
    "Concat": 4,
    "Expand": 8,
    "Flatten": 9,
    "Gemm": 7,
    "Reshape": 5,
    "Slice": 10,
    "Tile": 6,
}
"""The first version that computes what that of opset 13 does."""


def modern(node: OperatorNode) -> OperatorNode:
    """The node, or the same of opset 13; ``UnsupportedError`` for an opset that means something else."""
    if in_range(node):
        return node
    oldest = _SAME_SINCE.get(node.op_type)
    if oldest is not None and node.schema is not None and oldest <= node.schema.since_version < OPSETS[0]:
        return replace(node, opset=OPSETS[0])
    raise UnsupportedError(
        f"{node.title} of opset {node.opset} on numpy",
        f"opsets {OPSETS[0]} to {OPSETS[-1]} are implemented, and what did not change before them",
        "convert the model with onnx.version_converter",
    )
