"""The reference's gradients against central differences in float64 and against PyTorch's autograd."""

import numpy as np
import pytest

from levelbench.errors import DefinitionError
from levelbench.frameworks.numpy.backend import NumpyExecutor
from levelbench.frameworks.numpy.operators import OPERATORS, Kernel
from levelbench.networks import Builder, Network, Node, Parameter, zoo

NETWORKS = [
    zoo.mlp(6, 5, 3),
    zoo.cnn((2, 8, 8), 3, 4, 3),
    Builder("flat", (1, 3, 3)).flatten().gemm(4).relu().gemm(3, gain=1.0).build(),
    Builder("strided", (2, 7, 9)).conv(3, 3, padding=1, stride=2).relu().flatten().gemm(3, gain=1.0).build(),
    Builder("odd pooling", (1, 7, 5)).conv(2, 2).max_pool(2).flatten().gemm(3).build(),
]


def problem(network, batch=4):
    generator = np.random.default_rng(1)
    parameters = {name: array.astype(np.float64) for name, array in network.initialise(0).items()}
    for array in parameters.values():
        array += 0.01 * generator.standard_normal(array.shape)
    return parameters, generator.standard_normal((batch, *network.input_shape)), generator.integers(0, 3, batch)


def worst_error_against_central_differences(network):
    parameters, inputs, labels = problem(network)
    executor = NumpyExecutor(network, parameters)
    _, gradients = executor.infer_and_backprop(inputs, labels)
    generator = np.random.default_rng(2)
    worst, step = 0.0, 1e-6
    for name in parameters:
        direction = generator.standard_normal(parameters[name].shape)
        losses = []
        for sign in (1, -1):
            moved = {**parameters, name: parameters[name] + sign * step * direction}
            losses.append(NumpyExecutor(network, moved).forward(inputs, labels))
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

    monkeypatch.setitem(OPERATORS.makers, name, make_wrong)
    network = Builder("all", (2, 6, 6)).conv(3, 3).relu().max_pool(2).flatten().gemm(3).build()
    assert worst_error_against_central_differences(network) > 1e-3


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
def test_loss_and_gradients_equal_those_of_torch_in_float64(network, torch_backend):
    parameters, inputs, labels = problem(network)
    loss, gradients = NumpyExecutor(network, parameters).infer_and_backprop(inputs, labels)
    other = torch_backend.executor(network, parameters)
    torch_loss, torch_gradients = other.infer_and_backprop(torch_backend.array(inputs), torch_backend.array(labels))
    assert float(torch_loss) == pytest.approx(float(loss), rel=1e-12)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(torch_backend.host(torch_gradients[name]), gradient, rtol=1e-9, atol=1e-12)


def test_the_loss_of_huge_logits_does_not_overflow():
    network = Builder("one", (2,)).gemm(2).build()
    parameters = {"layer0.weight": np.array([[1e4, 0], [0, 1e4]]), "layer0.bias": np.zeros(2)}
    loss = NumpyExecutor(network, parameters).forward(np.array([[1.0, 0.0]]), np.array([1]))
    assert float(loss) == pytest.approx(1e4)


def test_a_value_read_twice_gets_the_sum_of_both_gradients():
    weights = [Parameter(f"w{i}", (3, 3), 1.0) for i in range(3)] + [Parameter(f"b{i}", (3,), 0.0) for i in range(3)]
    nodes = (
        Node("Gemm", ("input", "w0", "b0"), "a"),
        Node("Gemm", ("a", "w1", "b1"), "b"),
        Node("Gemm", ("b", "w1", "b1"), "c"),
    )
    shared = Network("shared weights", (3,), (3,), nodes, (weights[0], weights[1], weights[3], weights[4]))
    assert worst_error_against_central_differences(shared) < 1e-5


def test_an_unknown_operator_is_refused_by_name():
    network = Network("odd", (2,), (2,), (Node("Sinc", ("input",), "y"),), ())
    with pytest.raises(DefinitionError, match="Sinc"):
        NumpyExecutor(network, {})


def test_an_executor_starts_from_a_copy_of_its_parameters():
    network = zoo.mlp(4, 3, 2)
    initial = network.initialise(0)
    executor = NumpyExecutor(network, initial)
    executor.parameters["layer0.weight"] += 1
    assert not np.array_equal(executor.parameters["layer0.weight"], initial["layer0.weight"])
