"""Compiled networks compute the same as eager ones, and networks that cannot be compiled are refused."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.frameworks.torch_networks import branching, losses_and_gradients, native

from levelbench.errors import UnsupportedError, UsageError
from levelbench.networks import Builder, Draw, GraphBuilder, Network, Parameter, zoo
from levelbench.operators.custom import CustomOperator
from levelbench.operators.custom.definition import register

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


MODES = ("eager", "compiled")


def words():
    """Token ids that may be negative."""
    graph = GraphBuilder("words")
    table = graph.parameter("table", (7, 4), Draw("normal", 1.0))
    found = graph.node("Gather", table, graph.input("ids", ("batch", 3), "int64", high=7))
    graph.output(graph.node("ReduceSum", found, graph.constant([1]), keepdims=0), "logits")
    return graph.build()


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_an_update_in_place_changes_what_the_network_computes(torch_backend, mode):
    executor = torch_backend.executor(zoo.mlp(4, 3, 2), mode=mode)
    inputs = torch_backend.array(np.ones((1, 4), np.float32))
    before = torch_backend.host(executor.infer(inputs)[0])
    executor.parameters["layer1.bias"] += 1
    np.testing.assert_allclose(torch_backend.host(executor.infer(inputs)[0]), before + 1, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("build", [branching, words])
def test_a_compiled_network_trains_as_the_eager_one_does(torch_backend, build):
    network = build().with_loss().training()
    inputs = network.make_inputs(3)
    expected, wanted = losses_and_gradients(torch_backend, network, inputs)
    loss, gradients = losses_and_gradients(torch_backend, network, inputs, mode="compiled")
    assert loss == pytest.approx(float(expected), rel=1e-5)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(gradient, wanted[name], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_a_compiled_network_takes_batches_of_any_size(torch_backend):
    network = branching()
    eager, compiled = (torch_backend.executor(network, mode=mode) for mode in MODES)
    for batch in (2, 3, 2):
        inputs = native(torch_backend, network.make_inputs(batch))
        torch.testing.assert_close(compiled.infer(*inputs), eager.infer(*inputs))


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_indices_may_count_from_the_end(torch_backend, mode):
    network = words()
    table = network.initialise(0)["table"]
    ids = np.array([[-1, 0, -7]])
    (found,) = torch_backend.executor(network, mode=mode).infer(torch_backend.array(ids))
    np.testing.assert_allclose(torch_backend.host(found), table[ids].sum(1), rtol=1e-5)


@register
class ShiftedSquare(CustomOperator):
    """x^2 + bias."""

    def forward(self, x, bias):
        return np.square(x) + bias

    def backward(self, gradients, inputs, outputs):
        (gradient,), (x, bias) = gradients, inputs
        return gradient * 2 * x, gradient.sum(axis=0).astype(bias.dtype)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_custom_operator_is_trained_through(torch_backend, numpy_backend, mode):
    layers = Builder("custom", (4,)).operator("ShiftedSquare", [((4,), 0.5)], domain="levelbench.custom")
    network = layers.gemm(2).build().with_loss()
    inputs = network.make_inputs(3)
    _, wanted = losses_and_gradients(numpy_backend, network, inputs)
    _, gradients = losses_and_gradients(torch_backend, network, inputs, mode=mode)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(gradient, wanted[name], rtol=1e-3, atol=1e-5)


def chooses():
    """A graph with an If on one of its inputs."""
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])

    def branch(name, op_type):
        return helper.make_graph([helper.make_node(op_type, ["x"], [name])], name, [], [onnx.ValueInfoProto(name=name)])

    node = helper.make_node("If", ["on"], ["y"], then_branch=branch("a", "Relu"), else_branch=branch("b", "Neg"))
    on = helper.make_tensor_value_info("on", TensorProto.BOOL, [])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    graph = helper.make_graph([node], "chooses", [on, x], [y])
    return Network(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))


def test_a_branch_is_taken_by_value_in_eager_mode(torch_backend):
    executor = torch_backend.executor(chooses())
    x = torch_backend.array(np.array([-1, 2], np.float32))
    assert executor.infer(torch_backend.array(np.array(True)), x)[0].tolist() == [0, 2]
    assert executor.infer(torch_backend.array(np.array(False)), x)[0].tolist() == [1, -2]


def test_a_network_that_branches_by_value_cannot_be_compiled_and_says_so(torch_backend):
    executor = torch_backend.executor(chooses(), mode="compiled")
    with pytest.raises(UnsupportedError, match=r"If depends on a value\. Use mode eager"):
        executor.infer(torch_backend.array(np.array(True)), torch_backend.array(np.ones(2, np.float32)))


def test_the_operators_of_a_compiled_network_cannot_be_told_apart(torch_backend):
    executor = torch_backend.executor(zoo.mlp(4, 3, 2), mode="compiled")
    with pytest.raises(UnsupportedError, match="fuses them"):
        executor.operator_times(torch_backend.array(np.ones((1, 4), np.float32)))


def normalised(*outputs):
    """BatchNormalization in inference mode, in a node with more outputs than it has in this mode."""
    info = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", [2, 3]), ("y", None))
    ]
    ones = numpy_helper.from_array(np.ones(3, np.float32), "ones")
    node = helper.make_node("BatchNormalization", ["x", *["ones"] * 4], ["y", *outputs])
    shown = [*info[1:], *(helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in outputs if name)]
    graph = helper.make_graph([node], "normalised", info[:1], shown, [ones])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return Network(model, ())


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_outputs_that_are_left_out_do_not_cut_the_one_that_is_there(torch_backend, mode):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (y,) = torch_backend.executor(normalised("", ""), mode=mode).infer(torch_backend.array(x))
    np.testing.assert_allclose(torch_backend.host(y), (x - 1) / np.sqrt(1 + 1e-5) + 1, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_a_node_that_names_more_outputs_than_there_are_is_refused(torch_backend, mode):
    executor = torch_backend.executor(normalised("mean", "variance"), mode=mode)
    with pytest.raises(UnsupportedError, match=r"3 outputs of BatchNormalization on torch: .* returns 1"):
        executor.infer(torch_backend.array(np.ones((2, 3), np.float32)))


def test_outputs_are_counted_on_the_way_around_a_refusal_too(torch_backend):
    executor = torch_backend.executor(normalised("mean", "variance"))
    around = executor.lower(["y", "mean"], bare=False)
    with pytest.raises(UnsupportedError, match="returns 1"):
        around.function(torch.ones(2, 3))


def counting(first, second):
    """loss = mean(x * w * m); ``first`` and ``second`` are the nodes whose outputs replace the buffers m and v."""
    info = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])]
    loss = helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])
    held = {"w": [1, 2], "m": [3, 4], "v": [7, 8], "one": [1, 1]}
    stored = [numpy_helper.from_array(np.array(each, np.float32), name) for name, each in held.items()]
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["a"]),
        helper.make_node("Mul", ["a", "m"], ["y"]),
        helper.make_node("ReduceMean", ["y"], ["loss"], keepdims=0),
        helper.make_node(first[0], first[1:], ["new m"]),
        helper.make_node(second[0], second[1:], ["new v"]),
    ]
    graph = helper.make_graph(nodes, "counting", info, [loss], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    parameters = [Parameter(name, (2,), trainable=name == "w") for name in "wmv"]
    return Network(model, parameters, loss="loss", updates={"m": "new m", "v": "new v"})


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_buffer_that_is_computed_with_is_updated_without_spoiling_the_gradient(torch_backend, mode):
    executor = torch_backend.executor(counting(("Add", "m", "one"), ("Identity", "m")), mode=mode)
    for step in range(2):
        loss, gradients = executor.infer_and_backprop(torch_backend.array(np.ones((2, 2), np.float32)))
        assert float(loss) == pytest.approx((3 + step + 2 * (4 + step)) / 2)
        assert gradients["w"].tolist() == [(3 + step) / 2, (4 + step) / 2]
        assert executor.buffers["m"].tolist() == [4 + step, 5 + step]
        assert executor.buffers["v"].tolist() == [3 + step, 4 + step]


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_buffers_that_replace_each_other_are_swapped(torch_backend, mode):
    executor = torch_backend.executor(counting(("Identity", "v"), ("Identity", "m")), mode=mode)
    m, v = executor.buffers["m"], executor.buffers["v"]
    executor.forward(torch_backend.array(np.ones((2, 2), np.float32)))
    assert (m.tolist(), v.tolist()) == ([7, 8], [3, 4])


def test_running_statistics_that_only_normalise_are_not_copied_at_each_step(torch_backend):
    assert not torch_backend.executor(branching().with_loss().training())._forward._copied
    assert torch_backend.executor(counting(("Add", "m", "one"), ("Identity", "m")))._forward._copied


@pytest.mark.parametrize("mode", MODES)
def test_a_call_with_too_few_or_too_many_inputs_reports_the_expected_ones(torch_backend, mode):
    network = zoo.mlp(4, 3, 2).with_loss()
    executor = torch_backend.executor(network, mode=mode)
    x, labels = native(torch_backend, network.make_inputs(2))
    for inputs in [(), (x, labels)]:
        with pytest.raises(UsageError, match=rf"there are 1 \(\w+\), and {len(inputs)} were given"):
            executor.infer(*inputs)
    for inputs in [(x,), (x, labels, labels)]:
        with pytest.raises(UsageError, match=rf"there are 2 \(\w+, labels\), and {len(inputs)} were given"):
            executor.forward(*inputs)
