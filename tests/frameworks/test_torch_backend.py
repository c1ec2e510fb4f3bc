import numpy as np
import pytest

from levelbench.errors import DefinitionError, MissingError, UnsupportedError
from levelbench.networks import Network, Node, zoo


def test_logits_equal_those_of_the_reference(torch_backend, numpy_backend):
    network = zoo.cnn((1, 8, 8), 4, 8, 3)
    parameters = network.initialise(0)
    inputs = np.random.default_rng(0).standard_normal((5, 1, 8, 8)).astype(np.float32)
    reference = numpy_backend.executor(network, parameters).infer(inputs)
    logits = torch_backend.host(torch_backend.executor(network, parameters).infer(torch_backend.array(inputs)))
    np.testing.assert_allclose(logits, reference, rtol=1e-4, atol=1e-5)


def test_an_update_in_place_changes_what_the_network_computes(torch_backend):
    network = zoo.mlp(4, 3, 2)
    executor = torch_backend.executor(network, network.initialise(0))
    inputs = torch_backend.array(np.ones((1, 4), np.float32))
    before = torch_backend.host(executor.infer(inputs))
    executor.parameters["layer1.bias"] += 1
    np.testing.assert_allclose(torch_backend.host(executor.infer(inputs)), before + 1, rtol=1e-6)


def test_another_array_in_the_place_of_a_parameter_changes_what_the_network_computes(torch_backend):
    network = zoo.mlp(4, 3, 2)
    executor = torch_backend.executor(network, network.initialise(0))
    inputs = torch_backend.array(np.ones((1, 4), np.float32))
    before = torch_backend.host(executor.infer(inputs))
    executor.parameters["layer1.bias"] = executor.parameters["layer1.bias"] + 1
    np.testing.assert_allclose(torch_backend.host(executor.infer(inputs)), before + 1, rtol=1e-6)


def test_the_loss_carries_no_graph_so_that_keeping_it_keeps_no_memory(torch_backend):
    network = zoo.mlp(4, 3, 2)
    executor = torch_backend.executor(network, network.initialise(0))
    loss = executor.forward(torch_backend.array(np.ones((2, 4), np.float32)), torch_backend.array(np.array([0, 1])))
    assert not loss.requires_grad


def test_the_mean_of_losses_is_taken_in_double_precision(torch_backend):
    scalars = [torch_backend.array(np.array(value, np.float32)) for value in (1e8, 1.0, 1.0)]
    assert torch_backend.mean(scalars) == pytest.approx((1e8 + 2) / 3, rel=1e-12)


def test_a_network_that_is_no_chain_is_refused(torch_backend):
    branching = Network("branching", (2,), (2,), (Node("Relu", ("input",), "a"), Node("Relu", ("input",), "b")), ())
    with pytest.raises(DefinitionError, match="no chain"):
        torch_backend.executor(branching, {})


def test_uneven_padding_is_that_of_the_reference(torch_backend, numpy_backend):
    attributes = {"kernel_shape": (2, 2), "pads": (0, 1, 1, 0), "strides": (1, 1)}
    network = Network("uneven", (1, 3, 3), (1, 3, 3), (Node("Conv", ("input", "w", "b"), "y", attributes),), ())
    parameters = {"w": np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2), "b": np.ones(1, np.float32)}
    inputs = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
    found = torch_backend.executor(network, parameters).infer(torch_backend.array(inputs))
    reference = numpy_backend.executor(network, parameters).infer(inputs)
    np.testing.assert_allclose(torch_backend.host(found), reference)


def test_a_network_with_an_operator_that_is_not_there_is_refused(torch_backend):
    network = Network("strange", (2,), (2,), (Node("NoSuchOperator", ("input",), "y"),), ())
    with pytest.raises(UnsupportedError, match="NoSuchOperator on torch"):
        torch_backend.executor(network, {})


@pytest.mark.parametrize("device", ["cuda:99", "nonsense", "meta"])
def test_a_device_that_is_not_there_is_an_error_that_says_so(device):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from levelbench.frameworks.torch import framework

    with pytest.raises(MissingError, match="device"):
        framework.open(device)


def test_numpy_is_refused_on_another_device_than_the_cpu():
    from levelbench.frameworks.numpy import framework

    with pytest.raises(MissingError, match="cpu only"):
        framework.open("cuda")
