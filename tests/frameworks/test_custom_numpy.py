"""A custom operator on NumPy: a function of arrays, a node of a network, and a vector-Jacobian product."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from levelbench.errors import UnknownNameError, UnsupportedError
from levelbench.frameworks.numpy.custom import NumpyCustom, function
from levelbench.operators.custom import CustomOperator, register
from levelbench.operators.custom.definition import node_of
from levelbench.operators.frameworks import open_framework
from levelbench.operators.node import CUSTOM_DOMAIN, OperatorNode


@register
class NumpyTestPower(CustomOperator):
    def __init__(self, exponent: int = 2) -> None:
        self.exponent = exponent

    def forward(self, x):
        return x**self.exponent

    def backward(self, gradients, inputs, outputs):
        return self.exponent * inputs[0] ** (self.exponent - 1) * gradients[0]


def test_it_is_a_function_of_arrays():
    power = function(NumpyTestPower(3))
    assert power.__name__ == "NumpyTestPower"
    assert power(np.array([2.0])).tolist() == [8]


def test_it_has_a_vector_jacobian_product():
    (y,), pullback = NumpyCustom(NumpyTestPower).vjp(np.array([3.0]))
    assert y.tolist() == [9]
    assert pullback(np.array([10.0]))[0].tolist() == [60]


@pytest.mark.parametrize("name", ["numpy", "torch", "jax"])
def test_a_node_of_our_domain_runs_in_a_model_of_each_framework(name):
    pytest.importorskip(name)
    nodes = [
        helper.make_node("NumpyTestPower", ["x"], ["y"], domain=CUSTOM_DOMAIN, exponent=3),
        helper.make_node("Neg", ["y"], ["z"]),
    ]
    values = [helper.make_tensor_value_info(each, TensorProto.FLOAT, [2]) for each in "xz"]
    graph = helper.make_graph(nodes, "graph", values[:1], values[1:])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(CUSTOM_DOMAIN, 1)]
    backend = open_framework(name)
    run = backend.model(helper.make_model(graph, opset_imports=opsets))
    (z,) = run([backend.array(np.array([1, 2], np.float32))])
    np.testing.assert_array_equal(backend.host(z), np.array([-1, -8], np.float32), strict=True)


def test_onnx_runtime_says_that_it_has_no_custom_operators():
    pytest.importorskip("onnxruntime")
    with pytest.raises(UnsupportedError):
        open_framework("onnxruntime").operator(node_of(NumpyTestPower())).forward(np.ones(2, np.float32))


@pytest.mark.parametrize("name", ["numpy", "torch", "jax"])
def test_a_name_that_is_not_registered_is_refused_when_the_operator_is_made(name):
    pytest.importorskip(name)
    with pytest.raises(UnknownNameError, match="close: NumpyTestPower"):
        open_framework(name).operator(OperatorNode("NumpyTestPowr", ("x",), ("y",), {}, CUSTOM_DOMAIN))
