"""Vision networks have the published sizes and weights, and the page of the zoo lists them."""

import inspect
import itertools
import re
from functools import cache
from pathlib import Path

import pytest
from tests.networks.zoo.built import built

from levelbench.networks import zoo
from levelbench.networks.cost import network_cost
from levelbench.networks.zoo.table import page

NAMES = [name for name in zoo.names() if zoo.entry(name).kind == "vision"]


@cache
def cost_of(name):
    return network_cost(built(name))


@pytest.mark.parametrize("name", NAMES)
def test_the_parameter_count_is_the_published_one_or_the_entry_explains_the_difference(name):
    published, count = zoo.entry(name).published, built(name).parameter_count()
    assert published.source
    if count != published.parameters:
        assert f"{count:,}" in published.note or published.note.startswith("ours, for tests")


def as_printed(count, published):
    """``count`` with as many digits as the published figure."""
    digits = len(f"{published:g}".split("e")[0].replace(".", "").rstrip("0"))
    return float(f"{count:.{digits - 1}e}")


@pytest.mark.parametrize("name", [name for name in NAMES if zoo.entry(name).published.multiply_adds])
def test_multiply_adds_are_the_published_ones_or_the_entry_explains_the_difference(name):
    published, count = zoo.entry(name).published, cost_of(name).multiply_adds
    if as_printed(count, published.multiply_adds) != published.multiply_adds:
        assert f"{count / 1e9:.3f} G" in published.note


# From the papers' figures, if no multiply-adds or counts were published.
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
def test_multiply_adds_follow_from_the_papers_sizes(name):
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
def test_a_network_has_its_name_and_no_stored_weights(name):
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


@pytest.mark.parametrize(
    ("name", "parameter", "std"),
    [
        ("lenet5", "c5.weight", 2.4 / 400 / 3**0.5),
        ("alexnet", "conv2.weight", 0.01),
        ("resnet18", "layer2.0.conv1.weight", (2 / (9 * 128)) ** 0.5),
        ("resnet50", "fc.weight", 2048**-0.5 / 3**0.5),
        ("wideresnet28-10", "layer1.1.conv1.weight", (2 / (9 * 160)) ** 0.5),
        ("densenet121", "block1.layer2.conv2.weight", (2 / (9 * 128)) ** 0.5),
        ("mobilenetv2", "block2.depthwise.weight", (2 / (9 * 96)) ** 0.5),
        ("mobilenetv2", "conv1.weight", (2 / 1280) ** 0.5),
        ("squeezenet", "fire5.expand3x3.weight", (2 / (9 * 32)) ** 0.5),
        ("squeezenet", "conv10.weight", 0.01),
        ("inceptionv1", "3a.3x3.weight", (1 / (9 * 96)) ** 0.5),
        ("unet", "up3.conv.weight", (2 / 1024) ** 0.5),
        ("ssd300", "conv9_2.weight", (2 / (9 * (128 + 256))) ** 0.5),
        ("vit-tiny", "layer3.mlp1.weight", 0.02),
    ],
)
def test_weights_are_drawn_as_in_the_paper_or_its_code(name, parameter, std):
    (found,) = (each for each in built(name).parameters if each.name == parameter)
    weights = found.initialise(0)
    assert weights.std() == pytest.approx(std, rel=0.05)
    assert abs(weights.mean()) < 4 * std / weights.size**0.5


def test_alexnets_biases_are_one_where_the_paper_says_so():
    values = zoo.build("alexnet", width=3)
    ones = {each.name for each in values.parameters if each.name.endswith("bias") and each.draw.scale == 1}
    assert ones == {f"{layer}.bias" for layer in ("conv2", "conv4", "conv5", "fc6", "fc7")}


@pytest.mark.slow
def test_the_page_of_the_zoo_matches_the_code():
    found = (Path(zoo.__file__).parents[4] / "docs" / "reference" / "zoo.md").read_text()
    assert re.findall(r"^\| `([^`]+)`", found, re.MULTILINE) != []
    assert found == page()
