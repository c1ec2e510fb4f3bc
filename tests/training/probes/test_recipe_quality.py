"""Faults planted in how a recipe's quality is measured, each found by its probe."""

from dataclasses import replace

import numpy as np
import pytest
from tests.training.probes.recipes import DATA, NUMPY, SIDE, found, recipe, regularised

from levelbench.networks import Builder
from levelbench.training import AUROC, Quality, Top1
from levelbench.training.datasets.base import Split
from levelbench.training.probes import bench as bench_module
from levelbench.training.probes.bench import Bench, measure_coverage, part_of
from levelbench.training.probes.quality import qualities


class Trains(Top1):
    """An evaluation that takes a step."""

    def measure(self, executor, held):
        for columns in held.batches():
            executor.forward(*columns)
            for name, gradient in executor.backward().items():
                executor.parameters[name] = executor.parameters[name] - 1e-3 * gradient
        return super().measure(executor, held)


def test_an_evaluation_that_trains_is_found():
    assert "it changes" in found(recipe(), Trains(0.9))["evaluation"]


class MovesStatistics(Top1):
    """An evaluation in training mode: buffers move."""

    def measure(self, executor, held):
        for columns in held.batches():
            executor.forward(*columns)
        return super().measure(executor, held)


def test_an_evaluation_that_updates_running_statistics_is_found():
    said = found(recipe(network=regularised(0.0)), MovesStatistics(0.9))
    assert "it changes buffer norm" in said["evaluation"]


class Draws(Top1):
    """An evaluation of half of the examples, drawn again each time."""

    def measure(self, executor, held):
        return super().measure(executor, held) * float(np.random.default_rng().random())


def test_an_evaluation_that_draws_is_found():
    assert "twice on the same weights" in found(recipe(), Draws(0.9))["evaluation"]


@pytest.mark.parametrize(
    ("further", "probe", "says"),
    [
        (Trains(0.9), "evaluation", "further: it changes"),
        (Draws(0.9), "evaluation", "further: measured twice on the same weights"),
    ],
)
def test_further_qualities_are_checked_too(further, probe, says, monkeypatch):
    monkeypatch.setattr(type(further), "metric", "further")
    assert says in found(recipe(), also=(further,))[probe]


class OfTheFirst(Top1):
    """The first 100 examples, as if there were no more."""

    def measure(self, executor, held):
        *inputs, labels = next(iter(held.batches(100)))
        return float((executor.infer(*inputs)[0].argmax(1) == labels).mean())


class OfTheFirstBatch(Top1):
    def measure(self, executor, held):
        *inputs, labels = next(iter(held.batches()))
        return float((executor.infer(*inputs)[0].argmax(1) == labels).mean())


class OfSomeRows(Top1):
    """All rows are read, but few of each batch are used."""

    def measure(self, executor, held):
        right = [executor.infer(x[:10])[0].argmax(1) == labels[:10] for x, labels in held.batches()]
        return float(np.concatenate(right).mean())


@pytest.mark.parametrize(
    ("quality", "says"),
    [
        (OfTheFirst(0.9), "top1 reads 64 of the 256 examples"),
        (OfTheFirstBatch(0.9), "top1 reads 64 of the 256 examples"),
        (OfSomeRows(0.9), "infers 40 of the 256 examples"),
    ],
)
def test_a_quality_of_part_of_the_split_is_found(quality, says):
    bench = Bench(recipe(), DATA, NUMPY, quality)
    _, seen = measure_coverage(quality, bench.start_training(0).executor, bench.held(DATA.train))
    assert says in seen.found
    assert seen.status == "failed"


def test_a_quality_of_part_of_the_split_fails_the_check():
    assert "top1 reads 16 of the 64 examples" in found(recipe(), OfTheFirstBatch(0.9))["examples"]


def test_a_further_quality_of_part_of_the_split_is_found():
    assert "top1 reads 16 of the 64 examples" in found(recipe(), also=(OfTheFirstBatch(0.9),))["examples"]


class TokenByToken(Top1):
    """Like a translation: the network infers each example many times."""

    def measure(self, executor, held):
        for *inputs, _ in held.batches():
            for _ in range(20):
                executor.infer(*inputs)
        return 0.0


def test_a_quality_with_many_inferences_per_example_gets_fewer_examples(monkeypatch):
    # An example of the recipe's network takes 1,728 operations.
    monkeypatch.setattr(bench_module, "_SIZES", ((1e4, (256, 64, 32)), (np.inf, (64, 8, 4))))
    assert len(Bench(recipe(), DATA, NUMPY, Top1(0.9)).dataset.validation) == 64
    assert len(Bench(recipe(), DATA, NUMPY, TokenByToken(0.9)).dataset.validation) == 8


def test_a_quality_that_raises_is_a_separate_finding():
    class Raises(Top1):
        def measure(self, executor, held):
            raise ValueError("no such column")

    assert "it raised ValueError: no such column" in found(recipe(), Raises(0.9))["quality"]


class Words(list):
    """References that also decode tokens, as those of a translation do."""

    def decode(self, tokens):
        return " ".join(f"w{each}" for each in tokens)


def test_references_of_part_of_a_split_keep_their_methods():
    whole = Split(DATA.train.columns, reference=Words(f"verse {at}" for at in range(256)))
    some = part_of(whole, 3).reference
    assert list(some) == ["verse 0", "verse 127", "verse 255"]
    assert some[1:] == ["verse 127", "verse 255"]
    assert some.decode([1, 2]) == "w1 w2"


class Percent(Top1):
    def measure(self, executor, held):
        return 100 * super().measure(executor, held)


def test_a_quality_off_its_scale_is_found():
    assert "its scale of 0 to 1" in found(recipe(), Percent(0.9))["scale"]


def test_a_further_quality_off_its_scale_is_found():
    assert "its scale of 0 to 1" in found(recipe(), also=(Percent(0.9),))["scale"]


def test_a_target_reached_without_training_is_found():
    assert "without a step of training" in found(recipe(), Top1(0.01))["untrained"]


class Either(AUROC):
    """The area, or one minus it, whichever is larger."""

    def measure(self, executor, held):
        area = super().measure(executor, held)
        return max(area, 1 - area)


class OrInfinite(Quality):
    """The mean surprisal, infinite where an output is no number."""

    metric, direction, low, high = "log_loss", "lower", 0.0, float("inf")

    def measure(self, executor, held):
        total = 0.0
        for x, labels in held.batches():
            scores = executor.infer(x)[0].astype(np.float64)
            if not np.isfinite(scores).all():
                return float("inf")
            scores = scores - scores.max(1, keepdims=True)
            shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
            total -= np.log(np.maximum(shares[np.arange(len(labels)), labels], 1e-15)).sum()
        return total / len(held)


def of_two(dataset):
    """The same images in two classes."""
    parts = {name: Split.of(each.inputs, each.labels % 2) for name, each in dataset.splits().items()}
    return replace(dataset, classes=2, **parts)


@pytest.mark.parametrize(("quality", "probes"), [(Either(0.9), {"formula"}), (AUROC(0.9), set())])
def test_a_figure_that_takes_wrong_answers_for_right_ones_is_found(quality, probes):
    network = Builder("two", (1, SIDE, SIDE)).flatten().gemm(2).build()
    bench = Bench(recipe(network=network), of_two(DATA), NUMPY, quality)
    assert {each.probe for each in qualities(bench, 0) if each.status == "failed"} == probes


def test_a_figure_that_is_infinite_for_lost_outputs_is_not_accused():
    bench = Bench(recipe(), DATA, NUMPY, OrInfinite(0.5))
    assert [each for each in qualities(bench, 0) if each.status == "failed"] == []
