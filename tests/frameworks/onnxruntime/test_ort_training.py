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
    with pytest.raises(UnsupportedError, match="BatchNormalization would be wrong with fixed statistics"):
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
    with pytest.raises(UnsupportedError, match="MaxPool would be wrong with a parameter"):
        backend.executor(network).forward(*network.make_inputs(1, seed=0).values())


def test_what_it_has_no_gradient_of_is_refused_in_words(backend):
    g = GraphBuilder("odd")
    x = g.node("Mod", g.input("x", ["batch", 4]), g.constant(np.float32(0.5)), fmod=1)
    hidden = g.node("MatMul", x, g.parameter("w", [4, 4], HE))
    g.output(g.node("Erf", g.node("Mish", hidden)), "y")
    network = g.build().with_loss()
    with pytest.raises(UnsupportedError, match="gradient of Mish is missing"):
        backend.executor(network).forward(*network.make_inputs(2, seed=0).values())


def summed(build, *shapes):
    """A network whose loss is the mean of y * (y + 0.3), where ``build(g, *parameters)`` makes y."""
    g = GraphBuilder("summed")
    y = build(g, *[g.parameter(f"w{at}", shape, HE) for at, shape in enumerate(shapes)])
    g.output(g.node("ReduceMean", g.node("Mul", y, g.node("Add", y, g.constant(0.3))), keepdims=0), "loss")
    return g.build().replace(loss="loss")


def opened(g, w):
    """The parameter with an axis of open size before it."""
    return g.node("Mul", g.input("x", ["batch", *[1] * 3]), w)


SCATTERED = np.array([[0, 1], [1, 0]])
WRONG = {
    "AveragePool": (lambda g, w: g.node("AveragePool", opened(g, w), kernel_shape=[2, 2]), [3, 4, 4]),
    "Clip": (lambda g, w, low: g.node("Mul", g.node("Clip", w, low), low), [3], []),
    "Conv": (lambda g, x, w: g.node("Conv", x, w, auto_pad="SAME_UPPER"), [1, 1, 4, 4], [1, 1, 2, 2]),
    "Gemm": (lambda g, a, b, c: g.node("Gemm", a, b, c), [2, 3], [3, 2], []),
    "LeakyRelu": (lambda g, w: g.node("LeakyRelu", w, alpha=-0.3), [3]),
    "Pow": (lambda g, w: g.node("Pow", g.node("Exp", w), g.constant([[1.0], [2.0]])), [3]),
    "ScatterElements": (
        lambda g, w, v: g.node("ScatterElements", w, g.constant(SCATTERED), v, reduction="add"),
        [3, 2],
        [2, 2],
    ),
    "SoftmaxCrossEntropyLoss": (
        lambda g, w: g.node("SoftmaxCrossEntropyLoss", w, g.constant([0, 2]), outputs=2)[1],
        [2, 3],
    ),
    "Split": (lambda g, w: g.node("Split", w, num_outputs=2, outputs=2)[1], [4]),
    "Where": (lambda g, w, v: g.node("Where", g.node("Greater", w, v), w, v), [2, 3], [3]),
}


@pytest.mark.parametrize("kind", WRONG)
def test_operators_whose_gradients_would_be_wrong_without_a_word_are_refused(backend, kind):
    network = summed(*WRONG[kind])
    with pytest.raises(UnsupportedError, match=f"gradient of {kind} (would be wrong with|is missing, or not known)"):
        backend.executor(network).forward(*network.make_inputs(2, seed=0).values())


def test_gelus_gradient_is_that_of_its_approximation(backend):
    network = summed(lambda g, w: g.node("Gelu", w, approximate="tanh"), [20, 20])
    ours, theirs = backend.executor(network), reference.open().executor(network)
    loss, gradients = ours.infer_and_backprop()
    wanted, expected = theirs.infer_and_backprop()
    np.testing.assert_allclose(loss, wanted, rtol=1e-6)
    np.testing.assert_allclose(gradients["w0"], expected["w0"], rtol=1e-5, atol=1e-8)


def test_a_parameter_that_the_loss_does_not_depend_on_has_a_gradient_of_zero(backend):
    _, gradients = backend.executor(summed(lambda g, w, unused: g.node("Sin", w), [3], [2])).infer_and_backprop()
    assert gradients["w0"].all()
    assert not gradients["w1"].any()


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
