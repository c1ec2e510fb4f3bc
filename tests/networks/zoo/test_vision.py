"""Vision networks have the published sizes and the layers of independent models, and every framework computes them."""

import inspect
import itertools
import re
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest

from levelbench.errors import DefinitionError
from levelbench.networks import zoo
from levelbench.networks.cost import network_cost
from levelbench.networks.shapes import infer_shapes
from levelbench.networks.zoo import (
    alexnet,
    densenet,
    inception,
    lenet,
    mobilenet,
    resnet,
    resnet_cifar,
    squeezenet,
    ssd,
    unet,
    vgg,
    vit,
)
from levelbench.networks.zoo.layers import ImageBuilder
from levelbench.networks.zoo.table import page
from levelbench.operators.frameworks import load_framework, open_framework

MODULES = (alexnet, densenet, inception, lenet, mobilenet, resnet, resnet_cifar, squeezenet, ssd, unet, vgg, vit)
NAMES = [name for module in MODULES for name in module.NAMES]


@cache
def built(name):
    """The network as the zoo has it; made once, for it is only looked at."""
    return zoo.build(name)


@cache
def cost_of(name):
    return network_cost(built(name))


# Sizes


@pytest.mark.parametrize("name", NAMES)
def test_the_count_of_parameters_is_the_published_one_or_the_entry_says_which_and_why(name):
    published, count = zoo.entry(name).published, built(name).parameter_count()
    assert published.source
    if count != published.parameters:
        assert f"{count:,}" in published.note or published.note.startswith("ours, for tests")


def as_printed(count, published):
    """``count`` with as many digits as the published figure has."""
    digits = len(f"{published:g}".split("e")[0].replace(".", "").rstrip("0"))
    return float(f"{count:.{digits - 1}e}")


@pytest.mark.parametrize("name", [name for name in NAMES if zoo.entry(name).published.multiply_adds])
def test_multiply_adds_are_the_published_ones_as_printed_or_the_entry_says_which_and_why(name):
    published, count = zoo.entry(name).published, cost_of(name).multiply_adds
    if as_printed(count, published.multiply_adds) != published.multiply_adds:
        assert f"{count / 1e9:.3f} G" in published.note


# By the papers' figures, where nobody published multiply-adds, or a count.
MULTIPLY_ADDS = {
    "lenet5": 28**2 * 6 * 25 + 10**2 * 60 * 25 + 400 * 120 + 120 * 84 + 840,
    "lenet5-dense": 28**2 * 6 * 25 + 10**2 * 16 * 150 + 400 * 120 + 120 * 84 + 840,
    **{
        f"resnet{6 * n + 2}": 32**2 * 9 * (3 * 16 + 2 * n * 16**2)
        + (16**2 * 9 * 32 * (16 + (2 * n - 1) * 32))
        + (8**2 * 9 * 64 * (32 + (2 * n - 1) * 64))
        + 640
        for n in (3, 5, 7, 9, 18)
    },
}


@pytest.mark.parametrize("name", MULTIPLY_ADDS)
def test_multiply_adds_are_those_of_the_papers_sizes(name):
    assert cost_of(name).multiply_adds == MULTIPLY_ADDS[name]


def test_the_unet_has_the_parameters_of_the_papers_figure():
    def twice(inputs, made):
        return 9 * inputs * made + 9 * made * made + 2 * made

    widths = (64, 128, 256, 512, 1024)
    down = sum(twice(a, b) for a, b in zip((1, *widths[:-1]), widths, strict=True))
    up = sum(4 * b * a + a + twice(2 * a, a) for a, b in itertools.pairwise(widths))
    assert built("unet").parameter_count() == down + up + 64 * 2 + 2
    assert built("unet").outputs[0].shape == ("batch", 2, 388, 388)


def test_the_detector_has_the_papers_default_boxes():
    shapes = {each.name: each.shape for each in built("ssd300").outputs}
    boxes = 38**2 * 4 + 19**2 * 6 + 10**2 * 6 + 5**2 * 6 + 3**2 * 4 + 1 * 4
    assert shapes == {"boxes": ("batch", boxes, 4), "scores": ("batch", boxes, 91)}


@pytest.mark.parametrize("name", NAMES)
def test_a_network_bears_its_name_and_holds_no_weights(name):
    network = built(name)
    assert network.name == name
    assert network.model.ByteSize() < 2**20
    assert network.inputs[0].name == "input"
    assert all(value.shape[0] == "batch" for value in (*network.inputs, *network.outputs))
    assert zoo.entry(name).paper
    assert zoo.entry(name).summary


@pytest.mark.parametrize("name", NAMES)
def test_the_number_of_classes_is_an_option(name):
    if "classes" in inspect.signature(zoo.entry(name).build).parameters:
        assert zoo.build(name, classes=7).outputs[-1].shape[1 if name != "ssd300" else 2] == 7


# Layers

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def layers_of(model, shapes):
    """Convolutions, matrices and max poolings of a model, in order, without what a border adds to a pooling."""
    found = []
    for node in model.graph.node:
        given = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
        strides, pads = tuple(given.get("strides", (1, 1))), tuple(given.get("pads", (0, 0, 0, 0)))
        if node.op_type == "Conv":
            found.append(("Conv", shapes[node.input[1]], strides, pads, given.get("group", 1)))
        elif node.op_type == "Gemm":
            found.append(("Gemm", shapes[node.input[1]]))
        elif node.op_type == "MaxPool":
            found.append(("MaxPool", tuple(given["kernel_shape"]), strides, pads[:2]))
    return found


def light(name):
    """A model of the ONNX model zoo, without its weights: converted from Caffe's and others' own files."""
    model = onnx.load(LIGHT / f"light_{name}.onnx")
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    shapes = {
        each.name: tuple(size.dim_value for size in each.type.tensor_type.shape.dim)
        for each in (*inferred.value_info, *inferred.input)
    }
    shapes |= {each.name: tuple(each.dims) for each in inferred.initializer}
    return layers_of(model, shapes)


def ours(name):
    network = built(name)
    return layers_of(network.model, {each.name: each.shape for each in network.parameters})


@pytest.mark.parametrize(
    ("theirs", "name"), [("bvlc_alexnet", "alexnet"), ("vgg19", "vgg19"), ("inception_v1", "inceptionv1")]
)
def test_the_layers_are_those_of_a_model_that_others_made(theirs, name):
    assert Counter(ours(name)) == Counter(light(theirs))


def test_the_layers_of_a_chain_are_in_the_same_order():
    assert ours("vgg19") == light("vgg19")
    assert ours("alexnet") == light("bvlc_alexnet")


def test_the_layers_of_densenet_are_those_of_a_model_that_others_made_but_for_the_form_of_the_last():
    here, there = Counter(ours("densenet121")), Counter(light("densenet121"))
    assert here - there == Counter([("Gemm", (1000, 1024))])
    assert there - here == Counter([("Conv", (1000, 1024, 1, 1), (1, 1), (0, 0, 0, 0), 1)])


def test_the_versions_of_resnet_are_told_apart():
    there = Counter(light("resnet50"))
    assert Counter(ours("resnet50")) == there
    first = Counter(ours("resnet50-v1"))
    assert sum((first - there).values()) == 6
    assert {(each[1][2], each[2]) for each in first - there} == {(1, (2, 2)), (3, (1, 1))}


def order_of(name, block):
    network = built(name)
    return [each.op_type for each in network.nodes if any(output.startswith(block) for output in each.outputs)]


def test_only_a_preactivation_network_normalises_before_it_convolves():
    assert order_of("resnet18", "layer1.1.")[:3] == ["Conv", "BatchNormalization", "Relu"]
    assert order_of("preresnet18", "layer1.1.")[:3] == ["BatchNormalization", "Relu", "Conv"]
    assert order_of("resnet18", "layer1.1.")[-2:] == ["Add", "Relu"]
    assert order_of("preresnet18", "layer1.1.")[-2:] == ["Conv", "Add"]


def test_inception_averages_over_seven_by_seven_pixels():
    network = built("inceptionv1")
    (at,) = (each.inputs[0] for each in network.nodes if each.op_type == "GlobalAveragePool")
    assert infer_shapes(network)[at].shape == ("batch", 1024, 7, 7)


# Weights


@pytest.mark.parametrize(
    ("name", "parameter", "std"),
    [
        ("lenet5", "c5.weight", 2.4 / 400 / 3**0.5),
        ("alexnet", "conv2.weight", 0.01),
        ("resnet18", "layer2.0.conv1.weight", (2 / (9 * 128)) ** 0.5),
        ("resnet50", "fc.weight", 2048**-0.5 / 3**0.5),
        ("wideresnet28-10", "layer1.1.conv1.weight", (2 / (9 * 160)) ** 0.5),
        ("densenet121", "block1.layer2.conv2.weight", (2 / (9 * 128)) ** 0.5),
        ("mobilenetv2", "block2.depthwise.weight", (2 / 9) ** 0.5),
        ("mobilenetv2", "conv1.weight", (2 / 1280) ** 0.5),
        ("squeezenet", "fire5.expand3x3.weight", (2 / (9 * 32)) ** 0.5),
        ("squeezenet", "conv10.weight", 0.01),
        ("inceptionv1", "3a.3x3.weight", (1 / (9 * 96)) ** 0.5),
        ("unet", "up3.conv.weight", (2 / 1024) ** 0.5),
        ("ssd300", "conv9_2.weight", (2 / (9 * (128 + 256))) ** 0.5),
        ("vit-tiny", "layer3.mlp1.weight", 0.02),
    ],
)
def test_weights_are_drawn_as_the_paper_or_its_code_says(name, parameter, std):
    (found,) = (each for each in built(name).parameters if each.name == parameter)
    weights = found.initialise(0)
    assert weights.std() == pytest.approx(std, rel=0.05)
    assert abs(weights.mean()) < 4 * std / weights.size**0.5


def test_alexnets_biases_are_one_where_the_paper_says():
    values = zoo.build("alexnet", width=3)
    ones = {each.name for each in values.parameters if each.name.endswith("bias") and each.draw.scale == 1}
    assert ones == {f"{layer}.bias" for layer in ("conv2", "conv4", "conv5", "fc6", "fc7")}


# Agreement

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


# XLA takes long for these, and others have the same operators.
# Rounding to float32 alone moves their gradients by more: normalisations by few values, and ReLUs at zero turn over.
IN_FLOAT64 = {"inceptionv1", "mobilenetv2", "preresnet18", "resnet18", "resnet50", "squeezenet"}
SLOW_TO_COMPILE = {"inceptionv1", "preresnet18", "resnet18", "resnet20", "resnet50", "squeezenet"}
TRAINED_ON_JAX = ("lenet5", "vit-tiny", "wideresnet28-10")
"""Those whose gradients are compared on JAX, and with them what they compute."""


def small(name):
    options = {"classes": 7, **SMALL[name]}
    return zoo.build(name, **options)


def shaken(network, scale=0.1):
    """Parameters away from where training starts, where biases of zero and scales of one would hide a mistake."""
    generator = np.random.default_rng(0)
    return {
        name: (np.abs(noisy) + 0.5 if name.endswith("running_var") else noisy).astype(array.dtype)
        for name, array in network.initialise(0).items()
        for noisy in [array + scale * generator.standard_normal(array.shape)]
    }


def assert_close(found, wanted, relative, floor=0.0):
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= max(relative * np.abs(wanted).max(), floor)


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
    parameters, inputs = shaken(network), network.make_inputs(2)
    reference = open_framework("numpy").executor(network, parameters).infer(*inputs.values())
    found = backend.executor(network, parameters, trains=False).infer(*map(backend.array, inputs.values()))
    for mine, theirs in zip(found, reference, strict=True):
        assert_close(backend.host(mine), theirs, 1e-4)


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
    parameters, inputs = shaken(network), network.make_inputs(4)
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


# Errors


def test_a_size_that_does_not_fit_names_the_layer():
    with pytest.raises(DefinitionError, match="smaller than the window"):
        zoo.build("alexnet", size=20)


def test_a_depth_that_there_is_not_is_an_error():
    with pytest.raises(DefinitionError, match="6n"):
        resnet_cifar.cifar_resnet(21)
    with pytest.raises(DefinitionError, match="6n"):
        zoo.build("wideresnet28-10", depth=29)


@pytest.mark.parametrize("join", ["add", "concat"])
def test_images_that_do_not_fit_are_not_joined(join):
    g = ImageBuilder("wrong")
    x = g.image(3, 8)
    with pytest.raises(DefinitionError, match="samples are of shapes"):
        getattr(g, join)(x, g.max_pool(x, 2, 2))


def test_groups_must_divide_the_channels():
    g = ImageBuilder("wrong")
    with pytest.raises(DefinitionError, match="groups"):
        g.conv(g.image(3, 8), 4, 3, name="conv", groups=2)


# The page


def test_the_page_of_the_zoo_is_what_the_code_prints():
    found = (Path(zoo.__file__).parents[4] / "docs" / "zoo.md").read_text()
    assert re.findall(r"^\| `([^`]+)`", found, re.MULTILINE) != []
    assert found == page()
