"""Networks other than vision classifiers give the same outputs and gradients in every framework."""

import numpy as np
import pytest
from tests.networks.zoo.compared import assert_close, run, shaken

from levelbench.networks import zoo
from levelbench.operators.frameworks import load_framework, open_framework

SMALL = {
    "lstm-lm-small": {"vocabulary": 23, "width": 8},
    "seq2seq": {"layers": 2, "width": 8, "source_vocabulary": 17, "target_vocabulary": 19},
    "gnmt": {"width": 8, "vocabulary": 17, "layers": 3},
    "bert-tiny": {"vocabulary": 31, "width": 16, "layers": 1},
    "gpt2-tiny": {"vocabulary": 29, "width": 16, "layers": 1},
    "llama-tiny": {"vocabulary": 29, "width": 16, "inner": 24, "layers": 1},
    "moe-tiny": {"vocabulary": 29, "width": 16, "inner": 24, "layers": 1},
    "transformer-tiny": {"vocabulary": 29, "width": 16, "inner": 24, "layers": 1},
    "deepspeech2-tiny": {"hidden": 6, "channels": 2},
    "memnet": {"hops": 2},
    "dqn": {},
    "a3c": {},
    "autoencoder": {"widths": (12, 7, 3)},
    "flux-tiny": {},
    "vae": {"pixels": 9, "hidden": 7, "latent": 3},
    "ncf": {"users": 11, "items": 13, "factors": 4, "layers": (16, 8, 4)},
    "rnnt-tiny": {"features": 7, "encoder": 6, "prediction": 5, "joint": 4, "classes": 9},
    "dlrm": {"tables": (5, 7, 11), "width": 4, "bottom": (8, 7), "top": (9,)},
    "alphago-zero-tiny": {"filters": 4, "board": 5},
    "wgan-generator": {"features": 2},
    "wgan-critic": {"features": 2},
}
SIZES = {"length": 7, "source": 6, "target": 5, "frames": 52, "steps": 11, "sentences": 9, "tokens": 3, "text": 5}
TRAINED = (
    "bert-tiny",
    "deepspeech2-tiny",
    "flux-tiny",
    "gpt2-tiny",
    "llama-tiny",
    "lstm-lm-small",
    "memnet",
    "moe-tiny",
)
"""Networks whose gradients are compared, and thereby their outputs."""


# XLA takes long to compile, so outputs are computed only for networks whose gradients are not.
@pytest.mark.parametrize(
    ("framework", "name"),
    [
        (framework, name)
        for framework in ("torch", "jax", "onnxruntime")
        for name in SMALL
        if framework != "jax" or name not in TRAINED
    ],
)
def test_a_framework_computes_what_the_reference_computes(framework, name):
    if missing := load_framework(framework).lacks():
        pytest.skip(missing)
    backend, network = open_framework(framework), zoo.build(name, **SMALL[name])
    parameters, inputs = shaken(network), network.make_inputs(2, sizes=SIZES)
    found = backend.executor(network, parameters, trains=False).infer(*map(backend.array, inputs.values()))
    for mine, reference in zip(found, run(network, parameters, *inputs.values()), strict=True):
        assert_close(backend.host(mine), reference, 1e-4)


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_framework_finds_the_gradients_that_the_reference_finds(name, framework):
    if missing := load_framework(framework).lacks():
        pytest.skip(missing)
    network = zoo.build(name, **SMALL[name])
    network = network.with_loss("cross-entropy" if network.outputs[0].name == "logits" else "mse")
    parameters, inputs = shaken(network), network.make_inputs(2, sizes=SIZES)
    loss, wanted = open_framework("numpy").executor(network, parameters).infer_and_backprop(*inputs.values())
    backend = open_framework(framework)
    executor = backend.executor(network, parameters)
    found, gradients = executor.infer_and_backprop(*map(backend.array, inputs.values()))
    assert float(backend.host(found)) == pytest.approx(float(loss), rel=1e-4)
    floor = 1e-6 * max(float(np.abs(each).max()) for each in wanted.values())
    assert set(gradients) == set(wanted)
    for parameter, gradient in wanted.items():
        assert_close(backend.host(gradients[parameter]), gradient, 1e-3, floor)
