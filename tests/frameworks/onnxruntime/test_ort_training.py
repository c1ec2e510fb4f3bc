"""ONNX Runtime trains as the reference does, by the gradients that onnxruntime-training adds to a network's graph."""

import numpy as np
import pytest
from tests.frameworks.onnxruntime.networks import HE

from levelbench.errors import DefinitionError, MissingError, UnsupportedError, UsageError
from levelbench.frameworks.numpy import framework as reference
from levelbench.frameworks.onnxruntime import training_framework as framework
from levelbench.networks import GraphBuilder, zoo
from levelbench.operators.node import OperatorNode


@pytest.fixture(scope="module")
def backend():
    if lacking := framework.lacks():
        pytest.skip(lacking)
    return framework.open()


NETWORKS = {
    "mlp": lambda: zoo.mlp(16, 8, 4).with_loss(),
    "cnn": lambda: zoo.cnn((1, 12, 12), 4, 8, 3).with_loss(),
    "transformer": lambda: zoo.build("gpt2-tiny", dropout_ratio=0.0).with_loss(),
    "normalised": lambda: zoo.build("resnet20").with_loss().training(),
}


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_outputs_losses_gradients_and_buffers_are_those_of_the_reference(backend, network):
    made = network()
    ours, theirs = backend.executor(made), reference.open().executor(made)
    for seed in (1, 2):
        *inputs, labels = made.make_inputs(5, seed=seed).values()
        loss, gradients = ours.infer_and_backprop(*inputs, labels)
        wanted, expected = theirs.infer_and_backprop(*inputs, labels)
        np.testing.assert_allclose(loss, wanted, rtol=1e-5)
        assert list(gradients) == list(expected)
        for name, each in expected.items():
            assert np.abs(gradients[name] - each).max() <= 1e-4 * max(1e-3, np.abs(each).max())
            ours.parameters[name] -= 0.05 * gradients[name]
            theirs.parameters[name] -= 0.05 * each
        for name in theirs.buffers:
            np.testing.assert_allclose(ours.buffers[name], theirs.buffers[name], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(ours.infer(*inputs)[0], theirs.infer(*inputs)[0], rtol=1e-3, atol=1e-3)


def test_fixed_statistics_are_refused_since_its_gradients_are_those_of_a_batchs(backend):
    network = zoo.build("resnet20").with_loss()
    executor = backend.executor(network)
    with pytest.raises(UnsupportedError, match="by the batch where the network has fixed statistics"):
        executor.forward(*network.make_inputs(2, seed=0).values())


def test_random_operators_are_refused(backend):
    g = GraphBuilder("dropping")
    x = g.node("Dropout", g.input("x", ["batch", 4]), g.constant(np.float32(0.5)), g.constant(np.bool_(True)))
    g.output(g.node("MatMul", x, g.parameter("w", [4, 3], HE)), "y")
    network = g.build().with_loss()
    with pytest.raises(UnsupportedError, match="Dropout would draw"):
        backend.executor(network).forward(*network.make_inputs(2, seed=0).values())


def test_a_pool_of_a_parameter_is_refused_since_it_would_end_the_process(backend):
    g = GraphBuilder("pooled")
    y = g.node("MaxPool", g.parameter("w", [1, 2, 4, 4], HE), kernel_shape=[2, 2])
    g.output(g.node("Add", g.node("Flatten", y), g.input("x", ["batch", 18])), "y")
    network = g.build().with_loss()
    with pytest.raises(UnsupportedError, match="MaxPool of a parameter"):
        backend.executor(network).forward(*network.make_inputs(1, seed=0).values())


def test_what_it_has_no_gradient_of_is_refused_in_words(backend):
    g = GraphBuilder("odd")
    x = g.node("Mod", g.input("x", ["batch", 4]), g.constant(np.float32(0.5)), fmod=1)
    hidden = g.node("MatMul", x, g.parameter("w", [4, 4], HE))
    g.output(g.node("Erf", g.node("Mish", hidden)), "y")
    network = g.build().with_loss()
    with pytest.raises(UnsupportedError, match="Mish for node"):
        backend.executor(network).forward(*network.make_inputs(2, seed=0).values())


def test_a_network_without_a_loss_a_wrong_number_of_inputs_and_a_backward_pass_alone_are_refused(backend):
    network = zoo.mlp(4, 4, 3)
    with pytest.raises(DefinitionError, match="it has no loss"):
        backend.executor(network).forward(np.ones((2, 4), "f4"))
    executor = backend.executor(network.with_loss())
    with pytest.raises(UsageError, match="there are 2"):
        executor.forward(np.ones((2, 4), "f4"))
    with pytest.raises(UsageError, match="no forward pass"):
        executor.backward()


def test_operators_are_left_to_the_framework_that_infers(backend):
    with pytest.raises(UnsupportedError, match="Use onnxruntime"):
        backend.operator(OperatorNode("Relu", ("x",), ("y",)))


def test_it_says_what_to_install_where_onnxruntime_only_infers():
    if framework.lacks() is None:
        pytest.skip("onnxruntime-training is installed")
    with pytest.raises(MissingError, match="pip install onnxruntime-training"):
        framework.open()


def test_other_devices_are_refused():
    assert "cpu only" in framework.lacks("cuda")
