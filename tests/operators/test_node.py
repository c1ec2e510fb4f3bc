"""An operator as data."""

import numpy as np
import onnx
import pytest

from levelbench.errors import UnknownNameError, UsageError
from levelbench.operators.node import OPSETS, OperatorNode, in_range, operator_node


def test_a_missing_attribute_has_the_schemas_default():
    node = operator_node("Gemm", ["a", "b"], transB=1)
    assert (node["transA"], node["transB"], node["alpha"]) == (0, 1, 1.0)


def test_an_attribute_without_a_default_is_a_key_error_or_the_callers_default():
    node = operator_node("Conv")
    assert node.get("pads") is None
    assert "pads" not in node
    with pytest.raises(KeyError):
        _ = node["pads"]


def test_names_default_to_the_required_inputs_and_the_first_output():
    node = operator_node("Conv")
    assert (node.inputs, node.outputs) == (("X", "W"), ("Y",))


def test_an_unknown_operator_is_refused_with_similar_names():
    with pytest.raises(UnknownNameError, match="Conv"):
        operator_node("Convv")


def test_an_operator_of_a_later_opset_is_unknown_before_it():
    with pytest.raises(UnknownNameError, match="opset 21"):
        operator_node("RMSNormalization", opset=21)
    assert operator_node("RMSNormalization", opset=23).schema is not None


def test_an_unknown_attribute_is_refused_with_similar_names():
    with pytest.raises(UnknownNameError, match="pads"):
        operator_node("Conv", padz=[1, 1])


def test_a_missing_attribute_is_named():
    with pytest.raises(UsageError, match="'axis' is missing"):
        operator_node("Concat", ["a", "b"])


def test_too_many_inputs_are_refused_with_the_allowed_number():
    with pytest.raises(UsageError, match="takes 1 to 1"):
        operator_node("Relu", ["a", "b"])


@pytest.mark.parametrize("value", [3, 0.5, "SAME_UPPER", [1, 2], [0.5, 1.5], ["a", "b"]])
def test_attributes_survive_a_round_trip_through_onnx(value):
    node = OperatorNode("Thing", ("x",), ("y",), {"a": value}, "somewhere", 1)
    back = OperatorNode.from_proto(node.to_proto(), 1)
    assert back.attributes["a"] == value


def test_a_tensor_attribute_is_an_array():
    node = operator_node("Constant", [], value=np.arange(3.0))
    back = OperatorNode.from_proto(node.to_proto(), 21)
    assert back["value"].tolist() == [0.0, 1.0, 2.0]


def test_a_reference_to_a_functions_attribute_is_not_an_attribute():
    proto = onnx.helper.make_node("Relu", ["x"], ["y"])
    proto.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="alpha", type=onnx.AttributeProto.FLOAT))
    assert not OperatorNode.from_proto(proto, 21).attributes


@pytest.mark.parametrize(
    ("operator", "opset", "expected"),
    [
        ("Relu", OPSETS[0], True),
        ("Relu", OPSETS[-1], True),
        ("Relu", OPSETS[-1] + 1, False),
        ("NonMaxSuppression", 11, True),
        ("Softmax", 11, False),
        ("Squeeze", 11, False),
        ("Not", 1, True),
    ],
)
def test_an_older_opset_is_in_range_if_the_operator_has_not_changed_since(operator, opset, expected):
    assert in_range(OperatorNode(operator, ("x",), ("y",), {}, "", opset)) is expected


def test_another_domain_is_always_in_range():
    assert in_range(OperatorNode("Mine", ("x",), ("y",), {}, "levelbench.custom", 1))
