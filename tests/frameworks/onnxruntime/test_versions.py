import numpy as np
import onnx
import pytest
from onnx import TensorProto, defs, helper

from levelbench.errors import UnsupportedError, UsageError
from levelbench.operators.node import operator_node

pytest.importorskip("onnxruntime")

from levelbench.frameworks.onnxruntime import sessions


def model_of(nodes, opset, ir=10, functions=(), imports=()):
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    opsets = [helper.make_opsetid("", opset), *imports]
    graph = helper.make_graph(nodes, "g", [value], [result])
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir, functions=list(functions))


def relu(opset, **options):
    return model_of([helper.make_node("Relu", ["x"], ["y"])], opset, **options)


def changed_since(opset):
    """An operator with a newer version after ``opset``."""
    return next(each for each in defs.get_all_schemas() if not each.domain and each.since_version > opset)


needs_a_newer_onnx = pytest.mark.skipif(
    defs.onnx_opset_version() <= sessions.newest_opset(), reason="ONNX Runtime takes all opsets that ONNX has here"
)


def test_a_model_that_is_taken_as_it_is_is_not_touched():
    model = relu(21)
    found, changes = sessions.lowered(model)
    assert found is model
    assert changes == ()


@needs_a_newer_onnx
def test_an_opset_with_the_same_operators_is_lowered_and_said(backend):
    newest = defs.onnx_opset_version()
    model = relu(newest)
    found, changes = sessions.lowered(model)
    assert found.opset_import[0].version == sessions.newest_opset() < newest
    assert model.opset_import[0].version == newest
    (change,) = changes
    assert f"opset {newest} lowered to {sessions.newest_opset()}" in change
    program = backend.model(model)
    assert program.changes == changes
    np.testing.assert_array_equal(
        backend.host(program([backend.array(np.array([-1, 0, 2], np.float32))])[0]), [0, 0, 2]
    )


@needs_a_newer_onnx
def test_an_opset_in_which_an_operator_changed_is_refused(backend):
    schema = changed_since(sessions.newest_opset())
    model = model_of([helper.make_node(schema.name, ["x"] * schema.min_input, ["y"])], defs.onnx_opset_version())
    with pytest.raises(UnsupportedError, match=f"{schema.name} changed in opset {schema.since_version}"):
        backend.model(model)


@needs_a_newer_onnx
def test_a_changed_operator_in_a_subgraph_is_found():
    schema = changed_since(sessions.newest_opset())
    inner = helper.make_graph(
        [helper.make_node(schema.name, ["x"] * schema.min_input, ["z"])],
        "inner",
        [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
    )
    outer = helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=inner)
    with pytest.raises(UnsupportedError, match=schema.name):
        sessions.lowered(model_of([outer], defs.onnx_opset_version()))


@needs_a_newer_onnx
def test_a_changed_operator_in_a_function_is_found():
    newest = helper.make_opsetid("", defs.onnx_opset_version())
    schema = changed_since(sessions.newest_opset())
    inner = [helper.make_node(schema.name, ["x"] * schema.min_input, ["y"])]
    function = helper.make_function("mine", "F", ["x"], ["y"], inner, [newest])
    call = helper.make_node("F", ["x"], ["y"], domain="mine")
    model = model_of([call], newest.version, functions=[function], imports=[helper.make_opsetid("mine", 1)])
    with pytest.raises(UnsupportedError, match=schema.name):
        sessions.lowered(model)


@needs_a_newer_onnx
def test_a_function_of_unchanged_operators_is_lowered_with_its_model(backend):
    newest = helper.make_opsetid("", defs.onnx_opset_version())
    function = helper.make_function("mine", "F", ["x"], ["y"], [helper.make_node("Relu", ["x"], ["y"])], [newest])
    call = helper.make_node("F", ["x"], ["y"], domain="mine")
    model = model_of([call], newest.version, functions=[function], imports=[helper.make_opsetid("mine", 1)])
    (found,) = backend.model(model)([backend.array(np.array([-1, 0, 2], np.float32))])
    np.testing.assert_array_equal(backend.host(found), [0, 0, 2])


def test_an_opset_that_onnx_does_not_know_either_is_refused(backend):
    with pytest.raises(UnsupportedError, match="Relu is unknown there"):
        backend.model(relu(defs.onnx_opset_version() + 5))


@pytest.mark.skipif(sessions.newest_ir() >= onnx.IR_VERSION, reason="ONNX Runtime takes the newest format here")
def test_a_newer_file_format_is_lowered_and_said(backend):
    program = backend.model(relu(21, ir=onnx.IR_VERSION))
    assert program.changes == (f"IR version {onnx.IR_VERSION} lowered to {sessions.newest_ir()}",)


@needs_a_newer_onnx
def test_a_single_operator_of_a_newer_opset_runs_where_it_did_not_change(backend):
    operator = backend.operator(operator_node("Relu", opset=defs.onnx_opset_version()))
    (found,) = operator.forward(backend.array(np.array([-1, 2], np.float32)))
    np.testing.assert_array_equal(backend.host(found), [0, 2])


def test_the_newest_versions_are_in_the_description(backend):
    found = backend.describe()
    assert found["newest_opset"] == sessions.newest_opset() >= 21
    assert found["newest_ir"] == sessions.newest_ir() >= 10


def test_a_model_that_onnx_finds_invalid_is_the_callers_fault(backend):
    model = model_of([helper.make_node("Relu", ["nowhere"], ["y"])], 21)
    with pytest.raises(UsageError, match="ONNX finds it invalid"):
        backend.model(model)
