"""Vision networks have the layers of independent models, and layers that do not fit are an error."""

from collections import Counter
from pathlib import Path

import onnx
import pytest
from tests.networks.zoo.built import built

from levelbench.errors import DefinitionError
from levelbench.networks import zoo
from levelbench.networks.shapes import infer_shapes
from levelbench.networks.zoo.blocks import ImageBuilder
from levelbench.networks.zoo.convolutional import cifar_resnet

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def layers_of(model, shapes):
    """Convolutions, linear layers and max poolings of a model, in order, without the padding of poolings."""
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
    """A model of the ONNX model zoo without its weights, converted from files of Caffe and others."""
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
def test_the_layers_are_those_of_an_independent_model(theirs, name):
    assert Counter(ours(name)) == Counter(light(theirs))


def test_the_layers_of_a_chain_are_in_the_same_order():
    assert ours("vgg19") == light("vgg19")
    assert ours("alexnet") == light("bvlc_alexnet")


def test_the_layers_of_densenet_are_those_of_an_independent_model_except_the_form_of_the_last():
    here, there = Counter(ours("densenet121")), Counter(light("densenet121"))
    assert here - there == Counter([("Gemm", (1000, 1024))])
    assert there - here == Counter([("Conv", (1000, 1024, 1, 1), (1, 1), (0, 0, 0, 0), 1)])


def test_the_versions_of_resnet_differ():
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


def test_a_size_that_does_not_fit_names_the_layer():
    with pytest.raises(DefinitionError, match="smaller than the window"):
        zoo.build("alexnet", size=20)


def test_an_impossible_depth_is_an_error():
    with pytest.raises(DefinitionError, match="6n"):
        cifar_resnet(21)
    with pytest.raises(DefinitionError, match="6n"):
        zoo.build("wideresnet28-10", depth=29)


@pytest.mark.parametrize("join", ["add", "concat"])
def test_images_of_different_sizes_are_not_joined(join):
    g = ImageBuilder("wrong")
    x = g.image(3, 8)
    with pytest.raises(DefinitionError, match="samples have shapes"):
        getattr(g, join)(x, g.max_pool(x, 2, 2))


def test_groups_must_divide_the_channels():
    g = ImageBuilder("wrong")
    with pytest.raises(DefinitionError, match="groups"):
        g.conv(g.image(3, 8), 4, 3, name="conv", groups=2)
