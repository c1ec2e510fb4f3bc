"""A network edited node by node: the result can be executed, and impossible edits are refused by name."""

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from levelbench.errors import DefinitionError, LevelbenchError, UnknownNameError
from levelbench.networks import Network, zoo
from levelbench.networks.edit import readers_of, renamed, with_node, with_replaced_node, without_node
from levelbench.operators.frameworks import open_framework

BACKEND = open_framework("numpy")
X = np.float32([[-1.0, 2.0, -3.0]])


def network_of(text):
    return Network(parser.parse_model('<ir_version: 10, opset_import: ["" : 21]>\n' + text))


def chain():
    return network_of("g (float[n, 3] x) => (float[n, 3] y) { a = Neg(x)\n b = Relu(a)\n y = Exp(b) }")


def outcome(network, *inputs):
    onnx.checker.check_model(network.model, full_check=True)
    return [each.tolist() for each in BACKEND.executor(network).infer(*inputs)]


def test_makers_and_readers_of_a_value_are_found():
    network = chain()
    assert [each.op_type for each in readers_of(network, "a")] == ["Relu"]


def test_a_removed_node_is_bridged_by_its_first_input():
    edited = without_node(chain(), "b")
    assert [each.op_type for each in edited.nodes] == ["Neg", "Exp"]
    np.testing.assert_allclose(outcome(edited, X)[0], np.exp(-X), rtol=1e-6)


def test_its_readers_can_read_something_else():
    np.testing.assert_allclose(outcome(without_node(chain(), "b", instead="x"), X)[0], np.exp(X), rtol=1e-6)


def test_an_added_node_is_placed_after_its_inputs():
    edited = with_node(chain(), "Abs", ["a"], ["c"]).with_outputs(["c"])
    assert outcome(edited, X) == [np.abs(X).tolist()]


def test_a_node_is_replaced_in_its_place():
    edited = with_replaced_node(chain(), "b", "LeakyRelu", alpha=0.5)
    assert [each.op_type for each in edited.nodes] == ["Neg", "LeakyRelu", "Exp"]
    np.testing.assert_allclose(outcome(edited, X)[0], np.exp(np.where(-X > 0, -X, -0.5 * X)), rtol=1e-6)


def test_an_edited_network_trains():
    network = zoo.mlp(3, 4, 2)
    edited = with_replaced_node(network, "relu1", "Tanh").with_loss()
    loss, gradients = BACKEND.executor(edited).infer_and_backprop(X, np.array([1]))
    assert loss > 0
    assert set(gradients) == {each.name for each in network.parameters}


def test_everything_can_be_renamed():
    network = zoo.mlp(3, 4, 2).with_loss()
    names = {"input": "pixels", "layer0.weight": "w", "labels": "classes", "loss": "error", "relu1": "hidden"}
    values = network.initialise()
    edited = renamed(network.stored(values), names)
    assert [each.name for each in edited.inputs] == ["pixels", "classes"]
    assert (edited.loss, dict(edited.fills)) == ("error", {"classes": 2})
    assert "w" in edited.initialise()
    labels = np.array([1])
    first, again = (BACKEND.executor(each, each.initialise()).forward(X, labels) for each in (network, edited))
    assert first == again


def test_outer_reads_of_a_subgraph_are_renamed_and_its_own_values_are_not():
    network = network_of("""g (float[n, 3] x, bool c) => (float[n, 3] y) {
        a = Neg(x)
        y = If <then_branch = t () => (float[n, 3] p) { h = Abs(a) p = Relu(h) },
                else_branch = e () => (float[n, 3] q) { h = Exp(a) q = Relu(h) }> (c)
    }""")
    edited = renamed(network, {"a": "h_outer"})
    assert outcome(edited, X, np.array(True)) == [np.abs(X).tolist()]
    assert [each.op_type for each in readers_of(edited, "h_outer")] == ["If"]
    assert outcome(without_node(network, "a"), X, np.array(True)) == [np.abs(X).tolist()]


def test_the_edited_network_is_unchanged():
    network = chain()
    before = network.model.SerializeToString()
    without_node(network, "b"), with_node(network, "Abs", ["a"], ["c"]), renamed(network, {"a": "z"})
    assert network.model.SerializeToString() == before


@pytest.mark.parametrize(
    ("edit", "error", "says"),
    [
        (lambda n: without_node(n, "y"), DefinitionError, "is an output"),
        (lambda n: without_node(n, "z"), UnknownNameError, "'z'"),
        (lambda n: without_node(n, "b", instead="y"), DefinitionError, "cycle"),
        (lambda n: with_node(n, "Abs", ["nowhere"], ["c"]), DefinitionError, "nowhere"),
        (lambda n: with_node(n, "Abs", ["x"], ["a"]), DefinitionError, "made twice"),
        (lambda n: with_node(n, "Abz", ["x"], ["c"]), UnknownNameError, "Abs"),
        (lambda n: with_replaced_node(n, "b", "MatMul"), LevelbenchError, "2"),
        (lambda n: with_replaced_node(n, "b", "Concat", ["a", "x"]), LevelbenchError, "axis"),
        (lambda n: renamed(n, {"q": "p"}), UnknownNameError, "'q'"),
        (lambda n: renamed(n, {"a": "b"}), DefinitionError, "taken"),
        (lambda n: renamed(n, {"a": "z", "b": "z"}), DefinitionError, "same name"),
    ],
)
def test_an_impossible_edit_is_refused_with_the_reason(edit, error, says):
    with pytest.raises(error, match=says):
        edit(chain())


def test_the_example_of_the_page_runs_as_it_is_written(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "guides" / "networks.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    space = {}
    exec(code, space)
    assert [each.name for each in space["watched"].outputs] == ["gemm2", "probabilities"]
    assert [each.op_type for each in space["linear"].nodes] == ["Gemm", "Gemm"]
