from dataclasses import dataclass

import numpy as np
import pytest

from levelbench.errors import UsageError
from levelbench.measure.clocks import FakeClock
from levelbench.measure.stopping import FixedCount
from levelbench.training.datasets.base import Split
from levelbench.training.input import Loader
from levelbench.training.sampler_bias import dataset_latency, sampling_bias
from levelbench.training.samplers import (
    Bucketed,
    Sampler,
    Sequential,
    Shuffled,
    Stratified,
    Subset,
    Weighted,
    generator_of,
)


@dataclass(frozen=True)
class Planted(Sampler):
    """A sampler with a fault."""

    fault: str = ""

    def epoch(self, split, seed, epoch):
        n, generator = len(split), generator_of(seed, epoch)
        order = generator.permutation(n)
        match self.fault:
            case "twice":
                order[-1] = order[0]
            case "first half only":
                order = generator.permutation(n // 2).repeat(2)
            case "window":
                # A shuffle buffer of 100 examples, as in streaming loaders.
                order = np.argsort(np.arange(n) + generator.random(n) * 100)
            case "same order":
                order = generator_of(seed, 0).permutation(n)
            case "sorted by class":
                order = order[np.argsort(split.labels[order], kind="stable")]
        return self.batched(order.astype(np.int64))


@dataclass(frozen=True)
class Leaning(Planted):
    """Draws with replacement, some slightly more often than promised."""

    exact = False

    def epoch(self, split, seed, epoch):
        n, generator = len(split), generator_of(seed, epoch)
        order = generator.integers(0, n, n)
        heavy = generator.random(n) < 0.1
        order[heavy] = generator.integers(0, n // 4, heavy.sum())
        return self.batched(order)


@pytest.mark.parametrize("fault", ["twice", "first half only", "window", "same order"])
def test_a_planted_bias_is_caught(split, fault):
    assert sampling_bias(Planted(10, fault), split(1000), epochs=5).biased()


def test_an_order_by_class_is_caught_in_data_that_is_ordered_by_class():
    labels = np.arange(1000) // 100
    assert sampling_bias(Planted(10, "sorted by class"), Split.of(labels[:, None], labels)).biased()


def test_a_slight_bias_of_draws_with_replacement_is_caught(split):
    assert sampling_bias(Leaning(10), split(1000), epochs=10).biased()


@pytest.mark.parametrize(
    "sampler",
    [
        Sequential(10),
        Shuffled(10),
        Shuffled(7, drop_last=True),
        Stratified(10),
        Bucketed(10),
        Weighted(10),
        Weighted(10, (1.0, 5.0, 0.0)),
        Weighted(10, (1.0, 2.0, 3.0), replacement=False),
        Weighted(10, (1.0, 2.0, 3.0), replacement=False, draws=20),
        Subset(Shuffled(10), 100),
    ],
    ids=repr,
)
def test_a_sampler_that_keeps_its_promise_passes(split, sampler):
    found = sampling_bias(sampler, split(1000), epochs=10)
    assert found.p_value > 0.001
    assert not found.biased()


@pytest.mark.parametrize("sampler", [Shuffled(10), Weighted(10)], ids=repr)
def test_false_alarms_are_as_rare_as_the_level_says(split, sampler):
    data = split(200)
    alarms = sum(sampling_bias(sampler, data, seed=seed, epochs=3).p_value < 0.05 for seed in range(400))
    # At most 5 % by Holm's correction: 20 of 400 and four standard deviations.
    assert alarms <= 38


def test_the_order_test_alone_has_its_level(split):
    data = split(300)
    found = [sampling_bias(Shuffled(10), data, seed=seed, epochs=4).tests[-1].found.p_value for seed in range(400)]
    # Uniform p values: 40 of 400 below 0.1, give or take four standard deviations.
    assert 16 <= sum(p < 0.1 for p in found) <= 64


def test_omitted_tests_are_reported(split):
    found = sampling_bias(Sequential(10), split(100))
    assert any("order is not tested" in line for line in found.lines())
    data = split(100)
    answers = Split.of(data.inputs, data.inputs * 0.5)
    assert any("labels are not tested" in line for line in sampling_bias(Shuffled(10), answers).lines())


def test_too_little_to_count_is_refused(split):
    with pytest.raises(UsageError, match="nothing to count"):
        sampling_bias(Shuffled(1), split(1, 1))


MS = 1_000_000


class Slow(Loader):
    """Three batches per epoch, each of which takes as long as the script says."""

    steps = 3

    def __init__(self, clock, batch_ms):
        self.clock, self.batch_ms, self.epochs = clock, batch_ms, []

    def batches(self, epoch, first=0, last=None, progress=0.0):
        self.epochs.append(epoch)
        for step in range(3):
            self.clock.advance(self.batch_ms * MS)
            yield (np.array([step]),)

    def sizes(self, epoch):
        return np.ones(3, np.int64)


def test_the_latency_of_a_dataset_is_the_time_of_a_batch_with_its_interval():
    clock = FakeClock()
    loader = Slow(clock, 200)
    found = dataset_latency(loader, FixedCount(8), clock=clock, warmup=0)
    estimate = found.estimate()
    assert (estimate.value, estimate.n) == (pytest.approx(0.2), 8)
    assert 0.2 in estimate.interval or estimate.interval.low == pytest.approx(0.2)
    assert found.name == "dataset latency"


def test_the_epochs_follow_each_other():
    clock = FakeClock()
    loader = Slow(clock, 200)
    dataset_latency(loader, FixedCount(8), clock=clock, warmup=0)
    assert loader.epochs[:3] == [0, 1, 2]


def test_on_a_device_the_batch_must_have_arrived():
    clock = FakeClock()

    class Device:
        finished = 0

        def finish(self, arrays):
            self.finished += 1
            clock.advance(50 * MS)

    device = Device()
    found = dataset_latency(Slow(clock, 200), FixedCount(8), backend=device, clock=clock, warmup=0)
    assert found.estimate().value == pytest.approx(0.25)
    assert device.finished >= 8
