"""Which initialisers of a foreign model are parameters, and which of those are trained.

The one idea: ONNX does not say, so the rule is one that holds for what exporters write: floating, at least one axis,
and read by an operator as a number, not as a size.
"""

from __future__ import annotations

import onnx
from onnx import helper

from levelbench.networks.values import Parameter
from levelbench.operators.node import OperatorNode, structural

__all__ = ["default_parameters"]

_FLOATING = {
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.DOUBLE,
    onnx.TensorProto.FLOAT16,
    onnx.TensorProto.BFLOAT16,
}
_STATISTICS = {"BatchNormalization": (3, 4)}


def default_parameters(graph: onnx.GraphProto) -> tuple[Parameter, ...]:
    """Floating initialisers of rank 1 and up that no node reads as a structural input.

    Those read only as the mean or variance of BatchNormalization are buffers.
    """
    structure: set[str] = set()
    statistics: set[str] = set()
    numbers: set[str] = set()
    for proto in graph.node:
        node = OperatorNode(proto.op_type, (), (), {}, "" if proto.domain == "ai.onnx" else proto.domain)
        sizes, buffers = structural(node), _STATISTICS.get(proto.op_type, ())
        for at, name in enumerate(proto.input):
            (structure if at in sizes else statistics if at in buffers else numbers).add(name)
    return tuple(
        Parameter(
            each.name,
            tuple(each.dims),
            helper.tensor_dtype_to_np_dtype(each.data_type).name,
            trainable=each.name not in statistics - numbers,
        )
        for each in graph.initializer
        if each.data_type in _FLOATING and each.dims and each.name not in structure
    )
