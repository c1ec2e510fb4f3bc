"""Update rules, step by step against torch.optim, and against the recursion written out."""

import numpy as np
import pytest

from levelbench.errors import DefinitionError
from levelbench.training.optimizers import SGD, Adam, Momentum, apply

STEPS = 300


def trajectory(rule, make=lambda array: array):
    """A noisy quadratic in float64: the parameter after each step."""
    generator = np.random.default_rng(0)
    parameters, states, path = {"w": make(generator.standard_normal(7))}, {}, []
    for step in range(1, STEPS + 1):
        gradient = 0.3 * parameters["w"] + make(generator.standard_normal(7))
        apply(rule, parameters, {"w": gradient}, states, step, 1.0)
        path.append(np.asarray(parameters["w"]).copy())
    return np.array(path)


def torch_trajectory(make_optimizer):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    generator = np.random.default_rng(0)
    parameter = torch.nn.Parameter(torch.from_numpy(generator.standard_normal(7)))
    optimizer, path = make_optimizer([parameter]), []
    for _ in range(STEPS):
        parameter.grad = 0.3 * parameter.detach() + torch.from_numpy(generator.standard_normal(7))
        optimizer.step()
        path.append(parameter.detach().numpy().copy())
    return np.array(path)


@pytest.mark.parametrize(
    ("rule", "name", "arguments"),
    [
        (SGD(0.05), "SGD", {"lr": 0.05}),
        (Momentum(0.05, 0.9), "SGD", {"lr": 0.05, "momentum": 0.9}),
        (Momentum(0.05, 0.9, nesterov=True), "SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
        (Adam(0.01), "Adam", {"lr": 0.01}),
        (Adam(0.01, 0.8, 0.95, 1e-4), "Adam", {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-4}),
    ],
    ids=["sgd", "momentum", "nesterov", "adam", "adam, other constants"],
)
def test_a_rule_equals_that_of_torch_at_every_step(rule, name, arguments):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    native = torch_trajectory(lambda parameters: getattr(torch.optim, name)(parameters, **arguments))
    np.testing.assert_allclose(trajectory(rule), native, rtol=1e-10, atol=1e-12)


def test_adam_follows_its_papers_recursion():
    generator = np.random.default_rng(0)
    weight, first, second = generator.standard_normal(7), np.zeros(7), np.zeros(7)
    path = []
    for step in range(1, STEPS + 1):
        gradient = 0.3 * weight + generator.standard_normal(7)
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        unbiased = first / (1 - 0.9**step), second / (1 - 0.999**step)
        weight = weight - 0.01 * unbiased[0] / (np.sqrt(unbiased[1]) + 1e-8)
        path.append(weight)
    np.testing.assert_allclose(trajectory(Adam(0.01)), np.array(path), rtol=1e-10)


@pytest.mark.parametrize("rule", [SGD(0.05), Momentum(0.05), Adam(0.01)], ids=lambda rule: type(rule).__name__)
def test_the_same_lines_serve_numpy_and_torch_arrays(rule):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    np.testing.assert_allclose(
        trajectory(rule, lambda array: torch.from_numpy(np.array(array))), trajectory(rule), rtol=1e-10
    )


@pytest.mark.parametrize("rule", [SGD(0.05), Momentum(0.05), Adam(0.01)], ids=lambda rule: type(rule).__name__)
def test_the_dtype_of_a_parameter_is_kept(rule):
    parameters, states = {"w": np.ones(3, np.float32)}, {}
    apply(rule, parameters, {"w": np.ones(3, np.float32)}, states, 1, 1.0)
    assert parameters["w"].dtype == np.float32


def test_a_schedules_factor_multiplies_the_rate():
    parameters = {"w": np.zeros(1)}
    apply(SGD(0.5), parameters, {"w": np.ones(1)}, {}, 1, 0.1)
    assert parameters["w"][0] == pytest.approx(-0.05)


@pytest.mark.parametrize("lr", [0.0, -1.0, float("nan")])
def test_a_rate_that_is_not_positive_is_refused(lr):
    with pytest.raises(DefinitionError, match="lr > 0"):
        Momentum(lr)
