"""ONNX Runtime trains as the reference does, by the gradients that onnxruntime-training adds to a network's graph."""

import sys

import numpy as np
import pytest
from tests.frameworks.onnxruntime.networks import HE

from levelbench.errors import DefinitionError, MissingError, UnsupportedError, UsageError
from levelbench.frameworks.numpy import framework as reference
from levelbench.frameworks.onnxruntime import training_framework as framework
from levelbench.networks import Draw, GraphBuilder, zoo
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
    with pytest.raises(UnsupportedError, match="BatchNormalization would be wrong or missing with fixed statistics"):
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
    with pytest.raises(UnsupportedError, match="MaxPool would be wrong or missing with a parameter"):
        backend.executor(network).forward(*network.make_inputs(1, seed=0).values())


def test_what_it_has_no_gradient_of_is_refused_in_words(backend):
    g = GraphBuilder("odd")
    x = g.node("Mod", g.input("x", ["batch", 4]), g.constant(np.float32(0.5)), fmod=1)
    hidden = g.node("MatMul", x, g.parameter("w", [4, 4], HE))
    g.output(g.node("Erf", g.node("Mish", hidden)), "y")
    network = g.build().with_loss()
    with pytest.raises(UnsupportedError, match="gradient of Mish is missing"):
        backend.executor(network).forward(*network.make_inputs(2, seed=0).values())


def summed(build, *shapes, opset=21):
    """A network whose loss is the mean of y * (y + 0.3), where ``build(g, *parameters)`` makes y."""
    g = GraphBuilder("summed", opset=opset)
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
    "Gemm with a factor of 0": (lambda g, a, b, c: g.node("Gemm", a, b, c, beta=0.0), [2, 3], [3, 2], [2]),
    "LeakyRelu": (lambda g, w: g.node("LeakyRelu", w, alpha=-0.3), [3]),
    "MatMul": (lambda g, w, v: g.node("MatMul", w, v), [2, 3], [3]),
    "MaxPool": (
        lambda g, w: g.node("MaxPool", opened(g, w), kernel_shape=[2, 2], storage_order=1),
        [3, 4, 4],
    ),
    "Pad": (lambda g, w: g.node("Pad", w, g.constant([1, 1]), mode="reflect"), [3]),
    "Pad with axes": (lambda g, w: g.node("Pad", w, g.constant([1, 1]), None, g.constant([0])), [3, 4]),
    "Pow with an integer": (lambda g, w: g.node("Pow", w, g.constant(2)), [3]),
    "Pow": (lambda g, w: g.node("Pow", g.node("Exp", w), g.constant([[1.0], [2.0]])), [3]),
    "ReduceL2": (lambda g, w: g.node("ReduceL2", w, g.constant([0, 1]), keepdims=0), [3, 4]),
    "ReduceLogSumExp": (lambda g, w: g.node("ReduceLogSumExp", w, keepdims=0), [3]),
    "ReduceMean": (lambda g, w: g.node("ReduceMean", w, noop_with_empty_axes=1), [3]),
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
    with pytest.raises(
        UnsupportedError,
        match=f"gradient of {kind.split()[0]} (would be wrong or missing with|is missing, or not known)",
    ):
        backend.executor(network).forward(*network.make_inputs(2, seed=0).values())


def agrees(backend, network):
    ours, theirs = backend.executor(network), reference.open().executor(network)
    given = network.make_inputs(2, seed=0).values()
    loss, gradients = ours.infer_and_backprop(*given)
    wanted, expected = theirs.infer_and_backprop(*given)
    np.testing.assert_allclose(loss, wanted, rtol=1e-6)
    assert list(gradients) == list(expected)
    for name, each in expected.items():
        assert gradients[name].shape == each.shape
        np.testing.assert_allclose(gradients[name], each, rtol=1e-5, atol=1e-7)


def test_gelus_gradient_is_that_of_its_approximation(backend):
    agrees(backend, summed(lambda g, w: g.node("Gelu", w, approximate="tanh"), [20, 20]))


def constants(g):
    return [g.constant(np.full(12, each, np.float32)) for each in (0.5, 0.1)]


REWRITTEN = {
    "a product with itself": (lambda g, w: g.node("MatMul", w, w), [3, 3]),
    "a hidden value with itself": (lambda g, w: g.node("Mul", *[g.node("Sin", w)] * 2), [3]),
    "three times the same": (lambda g, w: g.node("Gemm", w, w, w), [3, 3]),
    "a choice of one": (lambda g, w: g.node("Where", g.constant(np.array([True, False])), w, w), [2]),
    "a matrix turned by default": (lambda g, w: g.node("MatMul", w, g.node("Transpose", w)), [2, 3]),
    "a normalisation without bias": (lambda g, w, v: g.node("LayerNormalization", w, v), [2, 3], [3]),
    "normalisations by one constant": (
        lambda g, w: g.node("LayerNormalization", g.node("LayerNormalization", w, *constants(g)), *constants(g)),
        [2, 12],
    ),
    "a dropout that is off": (lambda g, w: g.node("Dropout", w, g.constant(0.5)), [3]),
}


@pytest.mark.parametrize("what", REWRITTEN)
def test_graphs_that_the_package_cannot_differentiate_are_written_so_that_it_can(backend, what):
    agrees(backend, summed(*REWRITTEN[what]))


@pytest.mark.parametrize("opset", [13, 22, 25, 28])
def test_operators_that_only_gained_types_are_trained_under_an_older_opset(backend, opset):
    def made(g, w, v):
        y = g.node("Relu", g.node("Conv", g.node("Reshape", w, g.constant([1, 1, 6, -1])), v))
        return g.node("Transpose", g.node("Squeeze", y, g.constant([0])), perm=[1, 2, 0])

    agrees(backend, summed(made, [36], [2, 1, 3, 3], opset=opset))


def test_what_changed_in_a_newer_opset_is_refused_with_its_name(backend):
    network = summed(lambda g, w: g.node("Cast", w, to=1, round_mode="up"), [3], opset=25)
    with pytest.raises(UnsupportedError, match="supports up to 21, and Cast changed in opset 25"):
        backend.executor(network).forward()


def test_statistics_that_are_parameters_have_no_gradient_while_the_batchs_are_used(backend):
    def made(g, x, *others):
        return g.node("BatchNormalization", x, *others, training_mode=1, outputs=3)[0]

    agrees(backend, summed(made, [4, 3, 2], [3], [3], [3], [3]))


def test_a_buffer_that_changes_changes_the_loss(backend):
    g = GraphBuilder("counting")
    count = g.parameter("count", [2], Draw("constant", 1.0), trainable=False)
    g.update(count, g.node("Add", count, g.constant(3.0), name="more"))
    y = g.node("Mul", g.parameter("w", [2], HE), g.node("Sqrt", count))
    g.output(g.node("ReduceSum", y, keepdims=0), "loss")
    g.output("more", "more")
    executor = backend.executor(g.build().replace(loss="loss"))
    first, second = (float(executor.infer_and_backprop()[0]) for _ in range(2))
    assert second == pytest.approx(2 * first)


def test_a_loss_of_another_type_is_refused(backend):
    g = GraphBuilder("double")
    y = g.node("Cast", g.parameter("w", [3], HE), to=11)
    g.output(g.node("ReduceMean", y, keepdims=0), "loss")
    with pytest.raises(UnsupportedError, match="its loss is float64"):
        backend.executor(g.build().replace(loss="loss")).forward()


def test_refusals_name_no_place_in_the_source_of_the_package(backend):
    network = summed(opened, [3, 1, 2, 2])
    with pytest.raises(UnsupportedError, match=r"ONNX Runtime: \w+: Attempting to broadcast"):
        backend.executor(network).forward(np.ones((2, 1, 1, 1), "f4"))


def test_pytorch_is_not_needed(backend):
    agrees(backend, summed(lambda g, w: g.node("Sin", w), [3]))
    assert "onnxruntime.training" not in sys.modules


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
