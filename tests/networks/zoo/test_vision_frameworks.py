"""Vision networks give the same outputs and gradients in every framework."""

import inspect

import numpy as np
import pytest
from tests.networks.zoo.compared import assert_close, shaken

from levelbench.networks import zoo
from levelbench.operators.frameworks import load_framework, open_framework

SMALL = {
    "lenet5": {},
    "lenet5-dense": {},
    "alexnet": {"size": 67, "width": 8},
    "resnet18": {"size": 32, "width": 8},
    "resnet50": {"size": 32, "width": 8},
    "preresnet18": {"size": 32, "width": 8},
    "resnet20": {},
    "wideresnet28-10": {"depth": 10, "widening": 1, "dropout": 0.3},
    "densenet121": {"blocks": (2, 2), "growth": 4, "size": 32},
    "mobilenetv2": {"size": 64},
    "squeezenet": {"size": 64},
    "inceptionv1": {"size": 64},
    "unet-tiny": {},
    "vit-tiny": {"layers": 2, "width": 12, "heads": 3, "size": 48},
}
# XLA takes long for these, and other networks have the same operators.
# Rounding to float32 alone moves their gradients more: normalisations over few values, and ReLUs that switch at zero.
IN_FLOAT64 = {"inceptionv1", "mobilenetv2", "preresnet18", "resnet18", "resnet50", "squeezenet"}
SLOW_TO_COMPILE = {"inceptionv1", "preresnet18", "resnet18", "resnet20", "resnet50", "squeezenet"}
TRAINED_ON_JAX = ("lenet5", "vit-tiny", "wideresnet28-10")
"""Networks whose gradients are compared on JAX, and thereby their outputs."""


def small(name):
    options = {"classes": 7, **SMALL[name]}
    return zoo.build(name, **options)


def opened(framework):
    if missing := load_framework(framework).lacks():
        pytest.skip(missing)
    return open_framework(framework)


@pytest.mark.parametrize(
    ("framework", "name"),
    [
        (framework, name)
        for framework in ("torch", "jax", "onnxruntime")
        for name in SMALL
        if framework != "jax" or name not in {*SLOW_TO_COMPILE, *TRAINED_ON_JAX}
    ],
)
def test_a_framework_computes_what_the_reference_computes(framework, name):
    backend, network = opened(framework), small(name)
    parameters, inputs = shaken(network, 0.1, least=0.5), network.make_inputs(2)
    reference = open_framework("numpy").executor(network, parameters).infer(*inputs.values())
    found = backend.executor(network, parameters, trains=False).infer(*map(backend.array, inputs.values()))
    for mine, theirs in zip(found, reference, strict=True):
        assert_close(backend.host(mine), theirs, 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "name"),
    [
        *(("torch", name) for name in SMALL),
        *(("jax", name) for name in TRAINED_ON_JAX),
    ],
)
def test_a_framework_finds_the_gradients_that_the_reference_finds(name, framework):
    backend = opened(framework)
    takes = inspect.signature(zoo.entry(name).build).parameters
    network = zoo.build(name, **{"classes": 7, **SMALL[name], **({"dropout": 0.0} if "dropout" in takes else {})})
    network = network.with_loss().training()
    parameters, inputs = shaken(network, 0.1, least=0.5), network.make_inputs(4)
    if name in IN_FLOAT64:
        parameters = {key: array.astype(np.float64) for key, array in parameters.items()}
        inputs = {**inputs, "input": inputs["input"].astype(np.float64)}
    reference = open_framework("numpy").executor(network, parameters)
    loss, wanted = reference.infer_and_backprop(*inputs.values())
    executor = backend.executor(network, parameters)
    found, gradients = executor.infer_and_backprop(*map(backend.array, inputs.values()))
    assert float(backend.host(found)) == pytest.approx(float(loss), rel=1e-4)
    floor = 1e-5 * max(float(np.abs(each).max()) for each in wanted.values())
    assert set(gradients) == set(wanted)
    for parameter, gradient in wanted.items():
        assert_close(backend.host(gradients[parameter]), gradient, 1e-3, floor)
    for buffer, value in reference.buffers.items():
        assert_close(backend.host(executor.buffers[buffer]), value, 1e-4)
