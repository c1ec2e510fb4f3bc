"""Builders make checked ONNX; impossible networks are refused with the reason."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from levelbench.errors import DefinitionError, LevelbenchError
from levelbench.networks import Draw, GraphBuilder, Network


def small():
    graph = GraphBuilder("small")
    x = graph.input("x", ("batch", 3))
    with graph.scope("block"), graph.scope("0"):
        weight = graph.parameter("weight", (3, 2), Draw("uniform", 0.5))
        y = graph.node("MatMul", x, weight)
    graph.output(graph.node("Add", y, graph.constant([1.0, 2.0])), "y")
    return graph.build()


def test_scopes_are_prefixes_of_names():
    network = small()
    assert [each.name for each in network.parameters] == ["block.0.weight"]
    assert network.nodes[0].outputs == ("block.0.matmul",)


def test_an_output_is_renamed_without_an_extra_node():
    network = small()
    assert [each.name for each in network.outputs] == ["y"]
    assert [each.op_type for each in network.nodes] == ["MatMul", "Add"]


def test_types_of_outputs_are_inferred_with_the_batch_left_open():
    (output,) = small().outputs
    assert (output.dtype, output.shape) == ("float32", ("batch", 2))


def test_equal_constants_are_stored_once_and_are_not_parameters():
    graph = GraphBuilder("constants")
    x = graph.input("x", ("batch", 3))
    one, again, other = graph.constant([1, 2]), graph.constant([1, 2]), graph.constant([1, 2], "int32")
    graph.output(x, "y")
    assert one == again != other


def test_python_numbers_become_int64_and_float32():
    graph = GraphBuilder("constants")
    graph.input("x", ("batch",))
    graph.constant(3), graph.constant(0.5), graph.constant(np.float64(0.5)), graph.constant(True)
    graph.output(graph.node("Relu", "x"))
    kinds = [numpy_helper.to_array(each).dtype.name for each in graph.build().model.graph.initializer]
    assert kinds == ["int64", "float32", "float64", "bool"]


def test_a_built_network_equals_the_loaded_one():
    network = small().replace(sizes={"length": 7}, fills={"x": 3})
    again = Network.from_proto(onnx.ModelProto.FromString(network.to_proto().SerializeToString()))
    assert again.parameters == network.parameters
    assert (dict(again.sizes), dict(again.fills)) == ({"length": 7}, {"x": 3})
    assert np.array_equal(again.initialise(5)["block.0.weight"], network.initialise(5)["block.0.weight"])


def test_stored_parameters_need_no_levelbench_to_run():
    reference = pytest.importorskip("onnx.reference")
    network = small()
    values = network.initialise(1)
    x = np.ones((4, 3), np.float32)
    (found,) = reference.ReferenceEvaluator(network.stored(values).model).run(None, {"x": x})
    np.testing.assert_allclose(found, x @ values["block.0.weight"] + [1, 2], rtol=1e-6)
    assert np.array_equal(network.stored(values).initialise(99)["block.0.weight"], values["block.0.weight"])


def test_the_output_of_an_unknown_operator_has_the_declared_shape():
    graph = GraphBuilder("custom")
    x = graph.input("x", ("batch", 3))
    graph.output(graph.node("Mine", x, domain="levelbench.custom", shape=("batch", 5)), "y")
    (output,) = graph.build().outputs
    assert (output.name, output.shape) == ("y", ("batch", 5))


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda g: g.output(g.node("Relv", "x")), "Relv"),
        (lambda g: g.output(g.node("Relu", "nowhere")), "nowhere"),
        (lambda g: g.output(g.node("MatMul", "x", g.constant(np.ones((4, 2), np.float32)))), "[Ii]ncompatible"),
        (lambda g: g.output(g.node("Conv", "x", g.constant(np.ones(3, np.float32)), colour=1)), "colour"),
        (lambda g: g.node("Relu", "x"), "no output"),
        (lambda g: g.parameter("x", (2,), Draw("normal", 1.0)), "taken"),
        (lambda g: g.parameter("w", (2, -1), Draw("normal", 1.0)), "-1"),
        (lambda g: Draw("cauchy", 1.0), "cauchy"),
    ],
)
def test_impossible_networks_are_refused_with_the_reason(build, says):
    graph = GraphBuilder("wrong")
    graph.input("x", ("batch", 3))

    def made():
        build(graph)
        return graph.build()

    with pytest.raises(LevelbenchError, match=says):
        made()


def test_a_property_that_does_not_fit_the_model_is_refused():
    model = small().to_proto()
    model.metadata_props[0].value = model.metadata_props[0].value.replace("block.0.weight", "block.1.weight")
    with pytest.raises(DefinitionError, match=r"block\.1\.weight"):
        Network.from_proto(model)
    model.metadata_props[0].value = '{"parameters": 3}'
    with pytest.raises(DefinitionError, match="Remove the property"):
        Network.from_proto(model)
