"""A custom operator as a layer of a network trains on each framework, with the same losses."""

import numpy as np
import pytest

from levelbench.networks import Builder
from levelbench.operators.custom import CustomOperator
from levelbench.operators.custom.definition import register
from levelbench.operators.frameworks import load_framework
from levelbench.training.optimizers import Momentum


@register
class ScaledSquare(CustomOperator):
    """(scale x)^2 + bias, with the gradients of x and bias."""

    def __init__(self, scale=1.0):
        self.scale = scale

    def forward(self, x, bias):
        return np.square(np.asarray(self.scale, x.dtype) * x) + bias

    def backward(self, gradients, inputs, outputs):
        (gradient,), (x, bias) = gradients, inputs
        return gradient * np.asarray(2 * self.scale**2, x.dtype) * x, gradient.sum(axis=0).astype(bias.dtype)


def losses(framework, steps=30):
    found = load_framework(framework)
    if lacking := found.lacks():
        pytest.skip(lacking)
    backend = found.open()
    network = (
        Builder("custom", (8,))
        .gemm(16)
        .operator("ScaledSquare", [((16,), 0.1)], domain="levelbench.custom", scale=0.5)
        .gemm(3, gain=1.0)
        .build()
        .with_loss()
    )
    random = np.random.default_rng(0)
    x = random.standard_normal((64, 8)).astype(np.float32)
    labels = backend.array((x[:, 0] > 0).astype(np.int64) + (x[:, 1] > 0))
    executor = backend.executor(network, network.initialise(0))
    inputs, path = backend.array(x), []
    stepper = Momentum(0.05, 0.9).start(backend, executor.parameters)
    for step in range(1, steps + 1):
        loss, gradients = executor.infer_and_backprop(inputs, labels)
        path.append(backend.mean([loss]))
        stepper.step(gradients, step, 1.0)
    return np.array(path)


def test_a_network_with_a_custom_layer_learns():
    path = losses("numpy")
    assert path[-1] < 0.6 * path[0]


def test_it_follows_the_same_path_on_numpy_and_torch():
    assert losses("torch") == pytest.approx(losses("numpy"), rel=1e-4)
