"""The nine topologies in ONNX's wheel: they load, have the sizes that were published, and agree across frameworks."""

import numpy as np
import onnx
import pytest
from benchmarks.third_party import MODELS

from levelbench.networks.files import load
from levelbench.networks.network import Network
from levelbench.networks.probes import compare_network
from levelbench.operators.frameworks import load_framework
from levelbench.operators.node import OPSETS

LIGHT = {each.name.removeprefix("light "): each for each in MODELS if not each.trained}
# Caffe's AlexNet, and torchvision's counts for the others.
PUBLISHED = {
    "bvlc_alexnet": 60_965_224,
    "resnet50": 25_557_032,
    "squeezenet": 1_235_496,
    "vgg19": 143_667_240,
}


def opened(name):
    framework = load_framework(name)
    if lacking := framework.lacks():
        pytest.skip(lacking)
    return framework.open()


def test_there_are_nine():
    assert len(LIGHT) == 9
    assert all(each.path() is not None for each in LIGHT.values())


@pytest.mark.parametrize("name", LIGHT)
def test_a_topology_of_opset_9_is_converted_to_an_implemented_opset(name):
    old = Network(onnx.load(LIGHT[name].path()))
    new = load(LIGHT[name].path())
    assert old.opsets[""] == 9
    assert new.opsets[""] in OPSETS
    assert [each.name for each in new.outputs] == [each.name for each in old.outputs]
    assert new.model.graph.name == old.model.graph.name


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_number_of_weights_is_the_published_one(name):
    assert LIGHT[name].network().parameter_count() == PUBLISHED[name]


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet", "inception_v1"])
def test_torch_agrees_with_onnxruntime_on_drawn_weights(name):
    network = LIGHT[name].network()
    found = compare_network(
        network,
        {"torch": opened("torch")},
        opened("onnxruntime"),
        LIGHT[name].inputs(network),
        gradients=False,
        reference_name="onnxruntime",
    )
    found.raise_for_findings()
    assert all(each.status == "agrees" for each in found.backends[0].tensors)


def test_the_shipped_constant_weights_run_everywhere():
    model = LIGHT["shufflenet"]
    network = load(model.path())
    backends = {"torch": opened("torch")}
    inputs = model.inputs(network)
    found = compare_network(network, backends, opened("onnxruntime"), inputs, gradients=False)
    found.raise_for_findings()


def test_drawn_weights_distinguish_channels_unlike_constant_ones():
    model = LIGHT["squeezenet"]
    drawn, shipped = model.network(), load(model.path())
    runtime = opened("onnxruntime")
    from levelbench.networks.probes.running import Runner

    runner, inputs = Runner("onnxruntime", runtime), model.inputs(drawn)
    (same,) = runner.outputs(shipped, shipped.initialise(), inputs).values()
    different = runner.outputs(drawn, drawn.initialise(), inputs)[drawn.outputs[0].name]
    assert len(np.unique(same)) == 1
    assert len(np.unique(different)) > 500
