"""A backend that runs each node with onnx.reference, so that these tests do not depend on our adapters."""

import numpy as np
import pytest

from levelbench.errors import UnsupportedError
from levelbench.operators.contract import Operator, OperatorBackend


class ReferenceOperator(Operator):
    def __init__(self, node):
        from onnx import helper
        from onnx.reference import ReferenceEvaluator

        def value(name):
            return helper.make_value_info(name, helper.make_tensor_type_proto(1, None))

        self.node = node
        graph = helper.make_graph(
            [node.to_proto()],
            "one",
            [value(name) for name in node.inputs if name],
            [value(name) for name in node.outputs if name],
        )
        opset = helper.make_opsetid(node.domain, node.opset)
        self._run = ReferenceEvaluator(helper.make_model(graph, opset_imports=[opset])).run

    def forward(self, *inputs):
        named = {name: value for name, value in zip(self.node.inputs, inputs, strict=False) if name}
        found = iter(self._run(None, named))
        return tuple(next(found) if name else None for name in self.node.outputs)


class ReferenceBackend(OperatorBackend):
    """``refused`` names operators that it refuses; ``made`` lists those that were requested."""

    def __init__(self, refused=()):
        self.refused, self.made = set(refused), []

    def operator(self, node):
        self.made.append(node.op_type)
        if node.op_type in self.refused:
            raise UnsupportedError(f"operator {node.op_type}", "it is refused in this test", "nothing")
        return ReferenceOperator(node)

    def array(self, host):
        return host

    def host(self, array):
        return np.asarray(array)

    def describe(self):
        return {"name": "reference"}


@pytest.fixture
def backend():
    return ReferenceBackend()


@pytest.fixture
def refusing():
    return ReferenceBackend
