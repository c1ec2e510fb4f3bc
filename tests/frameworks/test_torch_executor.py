import weakref

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from levelbench.errors import UnknownNameError, UnsupportedError, UsageError
from levelbench.networks import Builder, Draw, GraphBuilder, Network, Parameter, zoo
from levelbench.operators.custom import CustomOperator
from levelbench.operators.custom.registry import register

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
MODES = ("eager", "compiled")


def branching():
    """Shape arithmetic, a value read twice, normalisation with statistics, and a parameter that nothing reads."""
    graph = GraphBuilder("branching")
    x = graph.input("x", ("batch", 4, 3))
    scale = graph.parameter("scale", (4,), Draw("normal", 1.0))
    bias = graph.parameter("bias", (4,), Draw("normal", 1.0))
    mean = graph.parameter("mean", (4,), Draw("constant", 0.5), trainable=False)
    variance = graph.parameter("variance", (4,), Draw("constant", 2.0), trainable=False)
    weight = graph.parameter("weight", (5, 12), Draw("normal", 0.3))
    graph.parameter("idle", (2,), Draw("normal", 1.0))
    y = graph.node("BatchNormalization", x, scale, bias, mean, variance)
    y = graph.node("Add", graph.node("Relu", y), y)
    rows = graph.node("Gather", graph.node("Shape", y), graph.constant([0]))
    y = graph.node("Reshape", y, graph.node("Concat", rows, graph.constant([-1]), axis=0))
    graph.output(graph.node("Gemm", y, weight, transB=1), "logits")
    return graph.build()


def words():
    """Token ids that may count from the end."""
    graph = GraphBuilder("words")
    table = graph.parameter("table", (7, 4), Draw("normal", 1.0))
    found = graph.node("Gather", table, graph.input("ids", ("batch", 3), "int64", high=7))
    graph.output(graph.node("ReduceSum", found, graph.constant([1]), keepdims=0), "logits")
    return graph.build()


def native(backend, inputs):
    return [backend.array(each) for each in inputs.values()]


def losses_and_gradients(backend, network, inputs, **options):
    executor = backend.executor(network, network.initialise(1), **options)
    loss, gradients = executor.infer_and_backprop(*native(backend, inputs))
    return backend.host(loss), {name: backend.host(each) for name, each in gradients.items()}


@pytest.mark.parametrize("build", [branching, lambda: zoo.cnn((1, 8, 8), 4, 8, 3)], ids=["branching", "cnn"])
def test_outputs_equal_those_of_the_reference(torch_backend, numpy_backend, build):
    network = build()
    inputs = network.make_inputs(5)
    (reference,) = numpy_backend.executor(network, network.initialise(1)).infer(*inputs.values())
    (found,) = torch_backend.executor(network, network.initialise(1)).infer(*native(torch_backend, inputs))
    np.testing.assert_allclose(torch_backend.host(found), reference, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("build", [branching, lambda: zoo.cnn((1, 8, 8), 4, 8, 3)], ids=["branching", "cnn"])
def test_gradients_equal_those_of_the_reference(torch_backend, numpy_backend, build):
    network = build().with_loss().training()
    inputs = network.make_inputs(6)
    expected, wanted = losses_and_gradients(numpy_backend, network, inputs)
    loss, gradients = losses_and_gradients(torch_backend, network, inputs)
    assert loss == pytest.approx(float(expected), rel=1e-5)
    assert gradients.keys() == wanted.keys()
    for name, gradient in gradients.items():
        np.testing.assert_allclose(gradient, wanted[name], rtol=1e-3, atol=1e-5)


def test_the_gradient_of_a_parameter_that_nothing_reads_is_zero(torch_backend):
    network = branching().with_loss()
    _, gradients = losses_and_gradients(torch_backend, network, network.make_inputs(2))
    assert set(gradients) == {"scale", "bias", "weight", "idle"}
    assert not gradients["idle"].any()


def test_running_statistics_are_updated_by_a_training_forward(torch_backend):
    network = branching().with_loss().training()
    executor = torch_backend.executor(network)
    mean, variance = executor.buffers["mean"], executor.buffers["variance"]
    inputs = network.make_inputs(6)
    executor.forward(*native(torch_backend, inputs))
    x = inputs["x"]
    np.testing.assert_allclose(torch_backend.host(mean), 0.9 * 0.5 + 0.1 * x.mean((0, 2)), rtol=1e-5)
    # Over the population, as ONNX has it.
    np.testing.assert_allclose(torch_backend.host(variance), 0.9 * 2.0 + 0.1 * x.var((0, 2)), rtol=1e-5)
    assert not mean.requires_grad


def test_running_statistics_that_are_computed_with_can_be_differentiated(torch_backend, numpy_backend):
    graph = GraphBuilder("moments")
    x = graph.input("x", ("batch", 2))
    weight = graph.parameter("weight", (2, 2), Draw("normal", 1.0))
    ones = [graph.constant(np.full(2, each, np.float32)) for each in (1.0, 0.0, 0.25, 2.0)]
    y = graph.node("MatMul", x, weight)
    y, mean, _ = graph.node("BatchNormalization", y, *ones, outputs=3, training_mode=1)
    graph.output(graph.node("Add", y, mean), "logits")
    network = graph.build().with_loss()
    inputs = network.make_inputs(5)
    _, wanted = losses_and_gradients(numpy_backend, network, inputs)
    _, gradients = losses_and_gradients(torch_backend, network, inputs)
    np.testing.assert_allclose(gradients["weight"], wanted["weight"], rtol=1e-3, atol=1e-5)


def test_a_network_in_training_mode_infers_with_its_running_statistics(torch_backend):
    network = branching()
    inputs = native(torch_backend, network.make_inputs(6))
    training = torch_backend.executor(network.with_loss().training())
    torch.testing.assert_close(training.infer(*inputs), torch_backend.executor(network).infer(*inputs))


def test_an_inference_leaves_running_statistics_alone(torch_backend):
    network = branching()
    executor = torch_backend.executor(network)
    executor.infer(*native(torch_backend, network.make_inputs(6)))
    assert torch_backend.host(executor.buffers["mean"]).tolist() == [0.5] * 4


@pytest.mark.parametrize("mode", MODES)
def test_an_update_in_place_changes_what_the_network_computes(torch_backend, mode):
    executor = torch_backend.executor(zoo.mlp(4, 3, 2), mode=mode)
    inputs = torch_backend.array(np.ones((1, 4), np.float32))
    before = torch_backend.host(executor.infer(inputs)[0])
    executor.parameters["layer1.bias"] += 1
    np.testing.assert_allclose(torch_backend.host(executor.infer(inputs)[0]), before + 1, rtol=1e-6)


@pytest.mark.parametrize("trains", [True, False])
def test_another_array_in_the_place_of_a_parameter_changes_what_the_network_computes(torch_backend, trains):
    executor = torch_backend.executor(zoo.mlp(4, 3, 2), trains=trains)
    inputs = torch_backend.array(np.ones((1, 4), np.float32))
    before = torch_backend.host(executor.infer(inputs)[0])
    executor.parameters["layer1.bias"] = executor.parameters["layer1.bias"] + 1
    np.testing.assert_allclose(torch_backend.host(executor.infer(inputs)[0]), before + 1, rtol=1e-6)


def test_the_caller_s_own_arrays_stay_as_they_are(torch_backend):
    network = zoo.mlp(4, 3, 2)
    parameters = network.initialise()
    torch_backend.executor(network, parameters).parameters["layer1.bias"] += 1
    assert not parameters["layer1.bias"].any()


def test_weights_that_were_updated_in_place_are_the_ones_that_are_differentiated(torch_backend):
    network = zoo.mlp(4, 3, 2).with_loss()
    inputs = network.make_inputs(3)
    executor = torch_backend.executor(network, network.initialise(1))
    _, gradients = executor.infer_and_backprop(*native(torch_backend, inputs))
    stepped = {name: each - 0.1 * torch_backend.host(gradients[name]) for name, each in network.initialise(1).items()}
    for name, gradient in gradients.items():
        executor.parameters[name] -= 0.1 * gradient
    again, _ = executor.infer_and_backprop(*native(torch_backend, inputs))
    fresh, _ = torch_backend.executor(network, stepped).infer_and_backprop(*native(torch_backend, inputs))
    assert float(again) == pytest.approx(float(fresh), rel=1e-6)


def test_outputs_can_be_what_another_network_is_trained_on(torch_backend):
    network = zoo.mlp(4, 4, 4)
    (made,) = torch_backend.executor(network).infer(torch_backend.array(np.ones((3, 4), np.float32)))
    trained = torch_backend.executor(network.with_loss("mse"))
    assert trained.infer_and_backprop(made, made)[1]["layer0.weight"].any()


def test_an_executor_for_inference_alone_makes_tensors_that_autograd_does_not_know(torch_backend):
    inputs = torch_backend.array(np.ones((1, 4), np.float32))
    (found,) = torch_backend.executor(zoo.mlp(4, 3, 2), trains=False).infer(inputs)
    assert found.is_inference()


def test_the_loss_carries_no_graph_so_that_keeping_it_keeps_no_memory(torch_backend):
    network = zoo.mlp(4, 3, 2).with_loss()
    assert not torch_backend.executor(network).forward(*native(torch_backend, network.make_inputs(2))).requires_grad


def test_what_backward_needs_is_kept_until_then_and_no_longer(torch_backend):
    executor = torch_backend.executor(zoo.mlp(4, 3, 2).with_loss())
    host = np.ones((2, 4), np.float32)
    held = weakref.ref(host)
    inputs = [torch_backend.array(host), torch_backend.array(np.zeros(2, np.int64))]
    executor.forward(*inputs)
    del host, inputs
    assert held() is not None
    executor.backward()
    assert held() is None


def test_training_without_a_loss_is_refused(torch_backend):
    with pytest.raises(UsageError, match="with_loss"):
        torch_backend.executor(zoo.mlp(4, 3, 2)).forward(torch_backend.array(np.ones((1, 4), np.float32)))


def test_training_what_was_made_for_inference_is_refused(torch_backend):
    network = zoo.mlp(4, 3, 2).with_loss()
    with pytest.raises(UsageError, match="made for inference"):
        torch_backend.executor(network, trains=False).forward(*native(torch_backend, network.make_inputs(1)))


def test_a_second_backward_of_one_forward_is_refused(torch_backend):
    network = zoo.mlp(4, 3, 2).with_loss()
    executor = torch_backend.executor(network)
    executor.infer_and_backprop(*native(torch_backend, network.make_inputs(1)))
    with pytest.raises(UsageError, match="forward first"):
        executor.backward()


@pytest.mark.parametrize("build", [branching, words])
def test_a_compiled_network_trains_as_the_eager_one_does(torch_backend, build):
    network = build().with_loss().training()
    inputs = network.make_inputs(3)
    expected, wanted = losses_and_gradients(torch_backend, network, inputs)
    loss, gradients = losses_and_gradients(torch_backend, network, inputs, mode="compiled")
    assert loss == pytest.approx(float(expected), rel=1e-5)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(gradient, wanted[name], rtol=1e-4, atol=1e-6)


def test_a_compiled_network_takes_batches_of_any_size(torch_backend):
    network = branching()
    eager, compiled = (torch_backend.executor(network, mode=mode) for mode in MODES)
    for batch in (2, 3, 2):
        inputs = native(torch_backend, network.make_inputs(batch))
        torch.testing.assert_close(compiled.infer(*inputs), eager.infer(*inputs))


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


def test_a_type_without_a_kernel_takes_the_way_around(torch_backend):
    info = [helper.make_tensor_value_info(name, TensorProto.UINT32, [3]) for name in ("x", "y")]
    seven = numpy_helper.from_array(np.array(7, np.uint32), "seven")
    nodes = [helper.make_node("Mul", ["x", "seven"], ["z"]), helper.make_node("Sub", ["z", "x"], ["y"])]
    graph = helper.make_graph(nodes, "unsigned", info[:1], info[1:], [seven])
    network = Network(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    x = np.array([1, 2, 2**31], np.uint32)
    executor = torch_backend.executor(network)
    for _ in range(2):
        np.testing.assert_array_equal(torch_backend.host(executor.infer(torch_backend.array(x))[0]), x * 6)


def test_a_wrong_shape_is_the_framework_s_own_error_and_spoils_nothing(torch_backend):
    executor = torch_backend.executor(zoo.mlp(4, 3, 2))
    with pytest.raises(RuntimeError, match="shape"):
        executor.infer(torch_backend.array(np.ones((1, 5), np.float32)))
    assert executor.infer(torch_backend.array(np.ones((1, 4), np.float32)))[0].shape == (1, 2)


def test_frozen_parameters_of_a_stored_model_are_its_own_values(torch_backend):
    network = zoo.mlp(4, 3, 2)
    stored = network.stored(network.initialise(3))
    x = torch_backend.array(np.ones((2, 4), np.float32))
    expected = torch_backend.executor(network, network.initialise(3)).infer(x)[0]
    np.testing.assert_array_equal(torch_backend.host(torch_backend.executor(stored).infer(x)[0]), expected)


def test_each_operator_has_its_times_in_seconds(torch_backend):
    network = branching()
    executor = torch_backend.executor(network)
    times = executor.operator_times(*native(torch_backend, network.make_inputs(2)), repeats=3)
    assert [each.title for each in times] == [each.op_type for each in network.nodes]
    assert [each.index for each in times] == list(range(len(network.nodes)))
    assert [each.output for each in times] == [each.outputs[0] for each in network.nodes]
    assert all(len(each.times_s) == 3 and all(0 < time < 1 for time in each.times_s) for each in times)


def test_the_operators_of_a_compiled_network_cannot_be_told_apart(torch_backend):
    executor = torch_backend.executor(zoo.mlp(4, 3, 2), mode="compiled")
    with pytest.raises(UnsupportedError, match="fuses them"):
        executor.operator_times(torch_backend.array(np.ones((1, 4), np.float32)))


def test_parameters_of_other_types_keep_their_bits(torch_backend):
    graph = GraphBuilder("narrow")
    weight = graph.parameter("weight", (3,), Draw("normal", 1.0), dtype="bfloat16")
    graph.output(graph.node("Mul", graph.input("x", (3,), "bfloat16"), weight))
    network = graph.build()
    assert network.parameters == (Parameter("weight", (3,), "bfloat16", Draw("normal", 1.0)),)
    executor = torch_backend.executor(network)
    expected = network.initialise()["weight"]
    assert torch_backend.host(executor.parameters["weight"]).tobytes() == expected.tobytes()


def normalised(*outputs):
    """BatchNormalization that infers, in a node with places for more outputs than it then has."""
    info = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", [2, 3]), ("y", None))
    ]
    ones = numpy_helper.from_array(np.ones(3, np.float32), "ones")
    node = helper.make_node("BatchNormalization", ["x", *["ones"] * 4], ["y", *outputs])
    shown = [*info[1:], *(helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in outputs if name)]
    graph = helper.make_graph([node], "normalised", info[:1], shown, [ones])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return Network(model, ())


@pytest.mark.parametrize("mode", MODES)
def test_outputs_that_are_left_out_do_not_cut_the_one_that_is_there(torch_backend, mode):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (y,) = torch_backend.executor(normalised("", ""), mode=mode).infer(torch_backend.array(x))
    np.testing.assert_allclose(torch_backend.host(y), (x - 1) / np.sqrt(1 + 1e-5) + 1, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_a_node_that_names_more_outputs_than_there_are_is_refused(torch_backend, mode):
    executor = torch_backend.executor(normalised("mean", "variance"), mode=mode)
    with pytest.raises(UnsupportedError, match=r"3 outputs of BatchNormalization on torch: .* gives 1"):
        executor.infer(torch_backend.array(np.ones((2, 3), np.float32)))


def test_outputs_are_counted_on_the_way_around_a_refusal_too(torch_backend):
    executor = torch_backend.executor(normalised("mean", "variance"))
    around = executor.lower(["y", "mean"], bare=False)
    with pytest.raises(UnsupportedError, match="gives 1"):
        around.function(torch.ones(2, 3))


def test_parameters_are_replaced_whole_by_every_way_to_write_to_a_mapping(torch_backend):
    executor = torch_backend.executor(zoo.mlp(4, 3, 2))
    x = torch_backend.array(np.ones((1, 4), np.float32))
    before = torch_backend.host(executor.infer(x)[0])
    bias = executor.parameters["layer1.bias"]
    executor.parameters.update({"layer1.bias": torch.ones(2)})
    np.testing.assert_allclose(torch_backend.host(executor.infer(x)[0]), before + 1, rtol=1e-6)
    executor.parameters |= {"layer1.bias": np.full(2, 2.0)}
    np.testing.assert_allclose(torch_backend.host(executor.infer(x)[0]), before + 2, rtol=1e-6)
    executor.parameters["layer1.bias"] = [3.0, 3.0]
    np.testing.assert_allclose(torch_backend.host(executor.infer(x)[0]), before + 3, rtol=1e-6)
    assert executor.parameters["layer1.bias"] is bias


def test_a_parameter_of_another_shape_or_name_is_refused_and_none_can_be_removed(torch_backend):
    parameters = torch_backend.executor(zoo.mlp(4, 3, 2)).parameters
    before = parameters["layer1.bias"].clone()
    for value in (torch.ones(1), np.ones((1, 2), np.float32)):
        with pytest.raises(UsageError, match=r"it is \(2,\), and the new array"):
            parameters["layer1.bias"] = value
    with pytest.raises(UnknownNameError, match=r"close: layer1\.bias"):
        parameters["layer1.bais"] = before
    for remove in (parameters.__delitem__, parameters.pop):
        with pytest.raises(UsageError, match="the network needs it"):
            remove("layer1.bias")
    torch.testing.assert_close(parameters["layer1.bias"], before)


def test_parameters_of_other_types_take_arrays_of_the_host(torch_backend):
    graph = GraphBuilder("narrow")
    weight = graph.parameter("weight", (3,), Draw("normal", 1.0), dtype="bfloat16")
    graph.output(graph.node("Mul", graph.input("x", (3,), "bfloat16"), weight))
    network = graph.build()
    executor = torch_backend.executor(network)
    executor.parameters["weight"] = network.initialise(5)["weight"]
    assert torch_backend.host(executor.parameters["weight"]).tobytes() == network.initialise(5)["weight"].tobytes()


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


@pytest.mark.parametrize("mode", MODES)
def test_a_buffer_that_is_computed_with_is_updated_without_spoiling_the_gradient(torch_backend, mode):
    executor = torch_backend.executor(counting(("Add", "m", "one"), ("Identity", "m")), mode=mode)
    for step in range(2):
        loss, gradients = executor.infer_and_backprop(torch_backend.array(np.ones((2, 2), np.float32)))
        assert float(loss) == pytest.approx((3 + step + 2 * (4 + step)) / 2)
        assert gradients["w"].tolist() == [(3 + step) / 2, (4 + step) / 2]
        assert executor.buffers["m"].tolist() == [4 + step, 5 + step]
        assert executor.buffers["v"].tolist() == [3 + step, 4 + step]


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
def test_a_call_with_too_few_or_too_many_inputs_is_told_which_there_are(torch_backend, mode):
    network = zoo.mlp(4, 3, 2).with_loss()
    executor = torch_backend.executor(network, mode=mode)
    x, labels = native(torch_backend, network.make_inputs(2))
    for inputs in [(), (x, labels)]:
        with pytest.raises(UsageError, match=rf"there are 1 \(\w+\), and {len(inputs)} were given"):
            executor.infer(*inputs)
    for inputs in [(x,), (x, labels, labels)]:
        with pytest.raises(UsageError, match=rf"there are 2 \(\w+, labels\), and {len(inputs)} were given"):
            executor.forward(*inputs)


def test_an_input_that_the_loss_does_not_read_is_to_be_given_all_the_same(torch_backend):
    graph = GraphBuilder("partly")
    y = graph.node("Mul", graph.input("x", ("batch", 2)), graph.parameter("w", (2,), Draw("normal", 1.0)))
    graph.output(graph.node("Relu", graph.input("other", ("batch", 2))), "z")
    graph.output(y, "y")
    network = graph.build().with_loss("mse", "y")
    executor = torch_backend.executor(network)
    inputs = native(torch_backend, network.make_inputs(2))
    executor.forward(*inputs)
    for wrong in (inputs[:-1], [*inputs, inputs[0]]):
        with pytest.raises(UsageError, match=r"there are 3 \(x, other, targets\)"):
            executor.forward(*wrong)
