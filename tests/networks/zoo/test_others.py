"""Networks other than vision classifiers have the published sizes and weights."""

import re
from pathlib import Path

import pytest

from levelbench.errors import DefinitionError
from levelbench.networks import zoo
from levelbench.networks.cost import network_cost
from levelbench.networks.zoo.table import coverage

# BiDAF's paper rounds its count; ours is tested in test_text_networks.py.
NAMES = [name for name in zoo.names() if zoo.entry(name).kind != "vision" and name != "bidaf"]
# Counted by hand from the papers' sizes, if no exact count was published.
COUNTS = {
    "lstm-lm-small": 2 * 10000 * 200 + 10000 + 2 * 4 * (200 * 400 + 200),
    "lstm-lm-medium": 2 * 10000 * 650 + 10000 + 2 * 4 * (650 * 1300 + 650),
    "lstm-lm-large": 2 * 10000 * 1500 + 10000 + 2 * 4 * (1500 * 3000 + 1500),
    "transformer-base": 37000 * 512
    + 6 * (4 * 512**2 + 2 * 512 * 2048 + 2560 + 4 * 512)
    + 6 * (8 * 512**2 + 2 * 512 * 2048 + 2560 + 6 * 512),
    "seq2seq": 3 * 50000 * 1000 + 8 * 4 * (2000 * 1000 + 1000) + 2000 * 1000,
    "deepspeech2": (41 * 11 + 3) * 32
    + (32 * 21 * 11 + 3) * 32
    + 2 * 3 * 800 * (672 + 800 + 2)
    + 4 * (2 * 3 * 800 * (800 + 800 + 2) + 2 * 800)
    + 2 * 800
    + 800 * 29,
    "alphago-zero": (9 * 17 + 2) * 256
    + 19 * 2 * (9 * 256 + 2) * 256
    + (256 + 2) * 2
    + (2 * 361 + 1) * 362
    + (256 + 2)
    + (361 + 1) * 256
    + 257,
    "dlrm": 33_762_577 * 16
    + 14 * 512
    + 513 * 256
    + 257 * 64
    + 65 * 16
    + (16 + 27 * 26 // 2 + 1) * 512
    + 513 * 256
    + 257,
    "transformer-big": 37000 * 1024
    + 6 * (4 * 1024**2 + 2 * 1024 * 4096 + 5120 + 4 * 1024)
    + 6 * (8 * 1024**2 + 2 * 1024 * 4096 + 5120 + 6 * 1024),
    "rnnt": 4096 * (240 + 1024 + 2)
    + 3 * 4096 * (2048 + 2)
    + 4096 * (3072 + 2)
    + 1023 * 512
    + 2 * 2048 * (1024 + 2)
    + (1024 + 1 + 512 + 1) * 512
    + 513 * 1024,
    "a3c": (4 * 64 + 1) * 16 + (16 * 16 + 1) * 32 + (32 * 81 + 1) * 256 + 257 * 5,
    "vae": 785 * 500 + 2 * 501 * 20 + 21 * 500 + 501 * 784,
    "memnet": 4 * (177 + 50) * 20,
}


@pytest.mark.parametrize("name", NAMES)
def test_the_parameter_count_is_the_published_one_or_the_entry_states_the_difference(name):
    published, count = zoo.entry(name).published, zoo.build(name).parameter_count()
    assert published.source
    if count != published.parameters:
        assert published.note
        assert published.parameters is None or f"{count:,}" in published.note


@pytest.mark.parametrize("name", COUNTS)
def test_a_count_that_was_not_published_exactly_follows_from_the_papers_sizes(name):
    assert zoo.build(name).parameter_count() == COUNTS[name]


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"head": "masked-lm"}, 109_514_298),
        ({"head": "question-answering"}, 109_482_240 - 768 * 769 + 2 * 769),
        ({"head": "classification"}, 109_482_240 + 2 * 769),
    ],
)
def test_bert_with_a_head_has_the_published_count(options, count):
    assert zoo.build("bert-base", **options).parameter_count() == count


# For one sample of the usual sizes: 35 tokens, 128 tokens, a frame.
MULTIPLY_ADDS = {
    "lstm-lm-medium": 35 * (2 * 4 * 650 * 1300 + 650 * 10000),
    "gpt2-small": 128 * (12 * 12 * 768**2 + 768 * 50257) + 12 * 2 * 128**2 * 768,
    "smollm-135m": 128 * (30 * (2 * 576**2 + 2 * 576 * 192 + 3 * 576 * 1536) + 576 * 49152) + 30 * 2 * 128**2 * 576,
    "mixtral-8x7b": 128 * (32 * (2 * 4096**2 + 2 * 4096 * 1024 + 8 * (3 * 14336 + 1) * 4096) + 4096 * 32000)
    + 32 * 2 * 128**2 * 4096,
    "bert-base": 128 * 12 * 12 * 768**2 + 12 * 2 * 128**2 * 768 + 768**2,
    "transformer-base": 64 * (6 * (12 + 16) * 512**2 + 512 * 37000) + 18 * 2 * 64**2 * 512,
    # 256 tokens of an image and 256 of a text; modulations once a picture.
    "flux-schnell": 256 * (64 + 4096) * 3072
    + (256 + 768 + 2 * 3072) * 3072
    + (19 * 12 + 38 * 3 + 2) * 3072**2
    + 512 * (19 * 12 + 38 * 12) * 3072**2
    + (19 + 38) * 2 * 512**2 * 3072
    + 256 * 64 * 3072,
    "dqn": 20**2 * 32 * 4 * 64 + 9**2 * 64 * 32 * 16 + 7**2 * 64 * 64 * 9 + 3136 * 512 + 512 * 4,
    "autoencoder": 2 * (784 * 1000 + 1000 * 500 + 500 * 250 + 250 * 30),
}


@pytest.mark.parametrize("name", MULTIPLY_ADDS)
def test_multiply_adds_follow_from_the_papers_sizes(name):
    assert network_cost(zoo.build(name)).multiply_adds == MULTIPLY_ADDS[name]


def test_flux_with_guidance_has_the_published_count():
    assert zoo.build("flux-schnell", guided=True).parameter_count() == 11_901_408_320


def test_mixtrals_parameters_of_a_token_are_the_published_ones():
    """12,879,925,248: all but those of six of eight experts in each layer."""
    experts = [each for each in zoo.build("mixtral-8x7b").parameters if each.shape[:1] == (8,) and len(each.shape) == 3]
    assert len(experts) == 3 * 32
    assert zoo.build("mixtral-8x7b").parameter_count() - sum(each.size for each in experts) * 6 // 8 == 12_879_925_248


def test_more_chosen_experts_than_there_are_is_refused():
    with pytest.raises(DefinitionError, match="5 of 4 experts"):
        zoo.build("moe-tiny", chosen=5)


def test_berts_multiply_adds_are_the_published_ones_within_1_percent():
    ours = network_cost(zoo.build("bert-base"), sizes={"length": 128}).multiply_adds
    assert ours == pytest.approx(zoo.entry("bert-base").published.multiply_adds, rel=0.01)


def test_the_page_of_coverage_matches_its_list_and_names_entries_that_exist():
    found = (Path(zoo.__file__).parents[4] / "docs" / "reference" / "zoo-coverage.md").read_text()
    assert found == coverage()
    cells = [line.split("|")[-3] for line in found.splitlines() if line.startswith("|")]
    named = {name for each in cells for name in re.findall(r"`([^`]+)`", each)}
    assert len(named) > 20
    assert named <= set(zoo.names())


def test_the_page_of_coverage_counts_the_benchmarks_of_each_round():
    """Of NCF, ResNet, SSD, Mask R-CNN, GNMT, the Transformer and Minigo, v0.5 has one that is missing here."""
    assert "6 of 7 in v0.5" in coverage()


@pytest.mark.parametrize(
    ("name", "parameter", "std"),
    [
        ("lstm-lm-small", "lstm0.recurrent", 0.1 / 3**0.5),
        ("lstm-lm-medium", "softmax.bias", 0.05 / 3**0.5),
        ("bert-tiny", "encoder.layer1.intermediate.weight", 0.02),
        ("gpt2-tiny", "token.weight", 0.02),
        ("gpt2-tiny", "position.weight", 0.01),
        ("transformer-tiny", "embedding.weight", 32**-0.5),
        ("transformer-tiny", "encoder0.feed_forward.input.weight", (2 / (32 + 64)) ** 0.5),
        ("memnet", "table2.weight", 0.1),
        ("dqn", "hidden.weight", 3136**-0.5 / 3**0.5),
        ("wgan-critic", "layer2.weight", 0.02),
        ("alphago-zero-tiny", "block1.first.conv.weight", (2 / (16 * 9)) ** 0.5),
    ],
)
def test_weights_are_drawn_as_in_the_paper_or_its_code(name, parameter, std):
    (found,) = (each for each in zoo.build(name).parameters if each.name == parameter)
    weights = found.initialise(0)
    assert weights.std() == pytest.approx(std, rel=0.05)
    assert abs(weights.mean()) < 4 * std / weights.size**0.5


def test_an_unknown_head_of_bert_is_refused_with_the_known_ones():
    with pytest.raises(DefinitionError, match="masked-lm"):
        zoo.build("bert-tiny", head="translation")


def test_names_of_entries_are_those_of_their_modules():
    assert set(NAMES) <= set(zoo.names())
    assert all(zoo.entry(name).paper and zoo.entry(name).summary for name in NAMES)
    assert all(zoo.build(name).name == name for name in NAMES)
