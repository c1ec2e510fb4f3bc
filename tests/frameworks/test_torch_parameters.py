"""Parameters and buffers of PyTorch's executor are live and separate from the caller's arrays."""

import numpy as np
import pytest
from tests.frameworks.torch_networks import branching, losses_and_gradients, native

from levelbench.errors import UnknownNameError, UsageError
from levelbench.networks import Draw, GraphBuilder, Parameter, zoo

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def test_running_statistics_are_updated_by_a_training_forward(torch_backend):
    network = branching().with_loss().training()
    executor = torch_backend.executor(network)
    mean, variance = executor.buffers["mean"], executor.buffers["variance"]
    inputs = network.make_inputs(6)
    executor.forward(*native(torch_backend, inputs))
    x = inputs["x"]
    np.testing.assert_allclose(torch_backend.host(mean), 0.9 * 0.5 + 0.1 * x.mean((0, 2)), rtol=1e-5)
    # The population variance, as in ONNX.
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


def test_frozen_parameters_of_a_stored_model_are_its_own_values(torch_backend):
    network = zoo.mlp(4, 3, 2)
    stored = network.stored(network.initialise(3))
    x = torch_backend.array(np.ones((2, 4), np.float32))
    expected = torch_backend.executor(network, network.initialise(3)).infer(x)[0]
    np.testing.assert_array_equal(torch_backend.host(torch_backend.executor(stored).infer(x)[0]), expected)


def test_parameters_of_other_types_keep_their_bits(torch_backend):
    graph = GraphBuilder("narrow")
    weight = graph.parameter("weight", (3,), Draw("normal", 1.0), dtype="bfloat16")
    graph.output(graph.node("Mul", graph.input("x", (3,), "bfloat16"), weight))
    network = graph.build()
    assert network.parameters == (Parameter("weight", (3,), "bfloat16", Draw("normal", 1.0)),)
    executor = torch_backend.executor(network)
    expected = network.initialise()["weight"]
    assert torch_backend.host(executor.parameters["weight"]).tobytes() == expected.tobytes()


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
