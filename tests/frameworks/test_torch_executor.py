"""PyTorch's backend and executor: results equal the reference's, nothing is kept alive, invalid calls are refused."""

import weakref

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.frameworks.torch_networks import branching, losses_and_gradients, native

from levelbench.errors import MissingError, UnknownNameError, UnsupportedError, UsageError
from levelbench.networks import Draw, GraphBuilder, Network, zoo


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


def test_outputs_can_be_what_another_network_is_trained_on(torch_backend):
    network = zoo.mlp(4, 4, 4)
    (made,) = torch_backend.executor(network).infer(torch_backend.array(np.ones((3, 4), np.float32)))
    trained = torch_backend.executor(network.with_loss("mse"))
    assert trained.infer_and_backprop(made, made)[1]["layer0.weight"].any()


def test_an_executor_for_inference_only_makes_tensors_that_autograd_does_not_know(torch_backend):
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
    with pytest.raises(UsageError, match="forward before each"):
        executor.backward()


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


def test_each_operator_has_its_times_in_seconds(torch_backend):
    network = branching()
    executor = torch_backend.executor(network)
    times = executor.operator_times(*native(torch_backend, network.make_inputs(2)), repeats=3)
    assert [each.title for each in times] == [each.op_type for each in network.nodes]
    assert [each.index for each in times] == list(range(len(network.nodes)))
    assert [each.output for each in times] == [each.outputs[0] for each in network.nodes]
    assert all(len(each.times_s) == 3 and all(0 < time < 1 for time in each.times_s) for each in times)


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


def test_the_mean_of_losses_is_taken_in_double_precision(torch_backend):
    scalars = [torch_backend.array(np.array(value, np.float32)) for value in (1e8, 1.0, 1.0)]
    assert torch_backend.mean(scalars) == pytest.approx((1e8 + 2) / 3, rel=1e-12)


def test_rows_are_taken_at_indices(torch_backend):
    rows = torch_backend.take(torch_backend.array(np.arange(6).reshape(3, 2)), torch_backend.array(np.array([2, 0])))
    assert torch_backend.host(rows).tolist() == [[4, 5], [0, 1]]


def test_a_network_with_an_operator_that_does_not_exist_is_refused(torch_backend):
    graph = GraphBuilder("strange")
    strange = graph.node("NoSuchOperator", graph.input("x", (2,)), domain="strange", shape=(2,))
    graph.output(graph.node("Relu", strange))
    with pytest.raises(UnsupportedError, match="NoSuchOperator on torch"):
        torch_backend.executor(graph.build())


def test_a_mode_that_does_not_exist_is_refused_with_the_known_modes(torch_backend):
    with pytest.raises(UnknownNameError, match="compiled, eager"):
        torch_backend.executor(zoo.mlp(4, 3, 2), mode="jit")


@pytest.mark.parametrize("device", ["cuda:99", "nonsense", "meta"])
def test_a_device_that_does_not_exist_is_an_error_that_says_so(device):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from levelbench.frameworks.torch import framework

    with pytest.raises(MissingError, match="device"):
        framework.open(device)


def test_numpy_is_refused_on_another_device_than_the_cpu():
    from levelbench.frameworks.numpy import framework

    with pytest.raises(MissingError, match="cpu only"):
        framework.open("cuda")
