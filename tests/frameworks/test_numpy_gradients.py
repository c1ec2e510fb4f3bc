"""The reference's gradients against central differences in float64 and against PyTorch's autograd."""

import numpy as np
import onnx
import pytest

from levelbench.errors import DefinitionError, UnsupportedError, UsageError
from levelbench.frameworks.numpy.backend import NumpyBackend
from levelbench.frameworks.numpy.operators import OPERATORS, Kernel
from levelbench.networks import Builder, Draw, GraphBuilder, Network, zoo

NETWORKS = [
    zoo.mlp(6, 5, 3).with_loss(),
    zoo.cnn((2, 8, 8), 3, 4, 3).with_loss(),
    Builder("flat", (1, 3, 3)).flatten().gemm(4).relu().gemm(3, gain=1.0).build().with_loss(),
    Builder("strided", (2, 7, 9)).conv(3, 3, padding=1, stride=2).relu().flatten().gemm(3).build().with_loss(),
    Builder("odd pooling", (1, 7, 5)).conv(2, 2).max_pool(2).flatten().gemm(3).build().with_loss(),
]


def executor_of(network, parameters):
    return NumpyBackend().executor(network, parameters)


def problem(network, batch=4):
    generator = np.random.default_rng(1)
    parameters = {name: array.astype(np.float64) for name, array in network.initialise(0).items()}
    for array in parameters.values():
        array += 0.01 * generator.standard_normal(array.shape)
    shape = network.inputs[0].shape[1:]
    return parameters, generator.standard_normal((batch, *shape)), generator.integers(0, 3, batch)


def worst_error_against_central_differences(network):
    parameters, inputs, labels = problem(network)
    executor = executor_of(network, parameters)
    _, gradients = executor.infer_and_backprop(inputs, labels)
    generator = np.random.default_rng(2)
    worst, step = 0.0, 1e-6
    for name in parameters:
        direction = generator.standard_normal(parameters[name].shape)
        losses = []
        for sign in (1, -1):
            moved = {**parameters, name: parameters[name] + sign * step * direction}
            losses.append(executor_of(network, moved).forward(inputs, labels))
        numeric = (losses[0] - losses[1]) / (2 * step)
        analytic = float((gradients[name] * direction).sum())
        worst = max(worst, abs(numeric - analytic) / max(1e-3, abs(numeric)))
    return worst


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
def test_every_gradient_agrees_with_central_differences(network):
    assert worst_error_against_central_differences(network) < 1e-5


@pytest.mark.parametrize("name", ["Gemm", "Conv", "Relu", "MaxPool"])
def test_a_planted_fault_in_a_backward_is_seen(monkeypatch, name):
    make = OPERATORS[name]

    def make_wrong(node):
        right = make(node)

        def wrong(gradients, inputs, outputs):
            _, pullback = right.differentiate(inputs)
            return tuple(None if part is None else 1.01 * part for part in pullback(*gradients))

        return Kernel(right.forward, wrong)

    monkeypatch.setitem(OPERATORS, name, make_wrong)
    network = Builder("all", (2, 6, 6)).conv(3, 3).relu().max_pool(2).flatten().gemm(3).build().with_loss()
    assert worst_error_against_central_differences(network) > 1e-3


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
def test_loss_and_gradients_equal_those_of_torch_in_float64(network, torch_backend):
    parameters, inputs, labels = problem(network)
    loss, gradients = executor_of(network, parameters).infer_and_backprop(inputs, labels)
    other = torch_backend.executor(network, parameters)
    torch_loss, torch_gradients = other.infer_and_backprop(torch_backend.array(inputs), torch_backend.array(labels))
    assert float(torch_loss) == pytest.approx(float(loss), rel=1e-12)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(torch_backend.host(torch_gradients[name]), gradient, rtol=1e-9, atol=1e-12)


def test_the_loss_of_huge_logits_does_not_overflow():
    network = Builder("one", (2,)).gemm(2).build().with_loss()
    parameters = {"layer0.weight": np.array([[1e4, 0], [0, 1e4]]), "layer0.bias": np.zeros(2)}
    loss = executor_of(network, parameters).forward(np.array([[1.0, 0.0]]), np.array([1]))
    assert float(loss) == pytest.approx(1e4)


def shared_weights():
    graph = GraphBuilder("shared weights")
    x = graph.input("input", ("batch", 3))
    w0, w1 = (graph.parameter(f"w{i}", (3, 3), Draw("normal", 1.0)) for i in range(2))
    b0, b1 = (graph.parameter(f"b{i}", (3,), Draw("constant", 0.0)) for i in range(2))
    a = graph.node("Gemm", x, w0, b0)
    b = graph.node("Gemm", a, w1, b1)
    graph.output(graph.node("Add", graph.node("Gemm", b, w1, b1), a))
    return graph.build().with_loss()


def test_a_value_read_twice_gets_the_sum_of_both_gradients():
    assert worst_error_against_central_differences(shared_weights()) < 1e-5


def test_gradients_that_are_equal_lie_in_memory_of_their_own():
    graph = GraphBuilder("sum")
    x = graph.input("input", ("batch", 3))
    a, b = (graph.parameter(name, (3,), Draw("normal", 1.0)) for name in "ab")
    graph.output(graph.node("Mul", x, graph.node("Add", a, b)))
    executor = executor_of(graph.build().with_loss(), None)
    _, gradients = executor.infer_and_backprop(np.ones((2, 3), np.float32), np.array([0, 1]))
    assert not np.shares_memory(gradients["a"], gradients["b"])


def test_a_parameter_that_the_loss_does_not_read_has_a_gradient_of_zeros():
    graph = GraphBuilder("idle")
    x = graph.input("input", ("batch", 3))
    idle = graph.parameter("idle", (2, 3), Draw("normal", 1.0))
    graph.output(graph.node("Mul", x, graph.parameter("used", (3,), Draw("normal", 1.0))))
    graph.output(graph.node("Relu", idle), "other")
    executor = executor_of(graph.build().with_loss(), None)
    _, gradients = executor.infer_and_backprop(np.ones((2, 3), np.float32), np.array([0, 1]))
    assert gradients["idle"].shape == (2, 3)
    assert not gradients["idle"].any()


def test_an_operator_without_a_gradient_is_refused_by_name_when_it_is_trained_and_not_before():
    graph = GraphBuilder("odd")
    x = graph.input("input", ("batch", 1, 4, 4))
    grid = graph.parameter("grid", (1, 2, 2, 2), Draw("uniform", 0.9))
    graph.output(graph.node("Flatten", graph.node("GridSample", x, grid)))
    executor = executor_of(graph.build().with_loss(), None)
    inputs = np.ones((1, 1, 4, 4), np.float32)
    assert executor.infer(inputs)[0].shape == (1, 4)
    with pytest.raises(UnsupportedError, match="GridSample"):
        executor.forward(inputs, np.array([0]))


@pytest.mark.parametrize("after", ["z = Identity(y)", "z = Mul(y, w)"])
def test_a_gradient_that_a_branch_would_lose_is_refused(after):
    model = onnx.parser.parse_model(f"""
    <ir_version: 10, opset_import: ["" : 21]>
    g (float[n, 2] x, bool b) => (float[n, 2] z) <float[2] w = {{1, 2}}> {{
        y = If <then_branch = t () => (float[n, 2] p) {{ p = Mul(x, w) }},
                else_branch = e () => (float[n, 2] q) {{ q = Add(x, w) }}> (b)
        {after}
    }}""")
    executor = executor_of(Network(model).with_loss("mse"), None)
    x = np.ones((3, 2), np.float32)
    with pytest.raises(UnsupportedError, match="If"):
        executor.forward(x, np.array(True), x)


def test_each_backward_wants_a_forward_of_its_own():
    executor = executor_of(zoo.mlp(4, 3, 2).with_loss(), None)
    for _ in range(2):
        with pytest.raises(UsageError, match="Call forward before each"):
            executor.backward()
        executor.infer_and_backprop(np.ones((1, 4), np.float32), np.array([0]))


def test_training_without_a_loss_says_how_to_get_one():
    executor = executor_of(zoo.mlp(4, 3, 2), None)
    with pytest.raises(DefinitionError, match="with_loss"):
        executor.forward(np.ones((1, 4), np.float32))


def test_running_statistics_follow_the_batch_when_trained_and_stay_when_inferred():
    graph = GraphBuilder("norm")
    x = graph.input("input", ("batch", 3))
    start = {"scale": 1.0, "bias": 0.0, "mean": 0.0, "var": 1.0}
    given = [
        graph.parameter(name, (3,), Draw("constant", value), trainable=name in ("scale", "bias"))
        for name, value in start.items()
    ]
    graph.output(graph.node("BatchNormalization", x, *given))
    executor = executor_of(graph.build().with_loss().training(), None)
    inputs = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32) + 5
    executor.forward(inputs, np.zeros(8, np.int64))
    np.testing.assert_allclose(executor.buffers["mean"], 0.1 * inputs.mean(0), rtol=1e-5)
    np.testing.assert_allclose(executor.buffers["var"], 0.9 + 0.1 * inputs.var(0), rtol=1e-5)
    before = executor.buffers["mean"].copy()
    (found,) = executor.infer(inputs)
    assert np.array_equal(executor.buffers["mean"], before)
    np.testing.assert_allclose(found, (inputs - before) / np.sqrt(executor.buffers["var"] + 1e-5), rtol=1e-5)


def test_an_executor_starts_from_a_copy_of_its_parameters():
    network = zoo.mlp(4, 3, 2)
    initial = network.initialise(0)
    executor = executor_of(network, initial)
    executor.parameters["layer0.weight"] += 1
    assert not np.array_equal(executor.parameters["layer0.weight"], initial["layer0.weight"])
