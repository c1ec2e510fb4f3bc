"""Faults planted in samplers and schedules of recipes, each found by its probe and raised with advice."""

from dataclasses import dataclass

import numpy as np
import pytest
from tests.training.probes.recipes import checked, found, recipe

from levelbench.errors import CheckFailedError
from levelbench.training import Sequential, Shuffled
from levelbench.training.samplers import Epoch
from levelbench.training.schedules import Schedule


def test_findings_are_raised_with_advice():
    with pytest.raises(CheckFailedError, match=r"planted.*schedule"):
        checked(recipe(schedule=Climbing())).raise_for_findings()


@dataclass(frozen=True)
class Unseeded(Shuffled):
    def epoch(self, split, seed, epoch):
        return self.batched(np.random.default_rng().permutation(len(split)))


@dataclass(frozen=True)
class Twice(Shuffled):
    def epoch(self, split, seed, epoch):
        order = super().epoch(split, seed, epoch).order
        order[0] = order[1]
        return self.batched(order)


@dataclass(frozen=True)
class Drops(Shuffled):
    def epoch(self, split, seed, epoch):
        return self.batched(super().epoch(split, seed, epoch).order[: -self.batch])


@dataclass(frozen=True)
class Overlapping(Shuffled):
    def epoch(self, split, seed, epoch):
        made = super().epoch(split, seed, epoch)
        return Epoch(made.order, np.append(made.bounds, made.bounds[-2]))


@pytest.mark.parametrize(
    ("sampler", "says"),
    [
        (Unseeded(32), "gives different batches when requested again"),
        (Twice(32), "1 examples are not visited and 1 more than once"),
        (Drops(32), "it has 7 batches, and steps() says 8"),
        (Overlapping(32), "do not cut its order into batches"),
    ],
)
def test_a_sampler_that_breaks_its_promise_is_found(sampler, says):
    assert says in found(recipe(sampler=sampler))["sampler"]


@dataclass(frozen=True)
class Tires(Shuffled):
    """From the third epoch on it visits the first half twice."""

    def epoch(self, split, seed, epoch):
        order = super().epoch(split, seed, epoch).order
        half = len(order) // 2
        return self.batched(np.concatenate([order[:half], order[:half]]) if epoch > 1 else order)


def test_a_sampler_that_goes_wrong_in_a_later_epoch_is_found():
    assert "epoch 2: 128 examples are not visited" in found(recipe(sampler=Tires(32)))["sampler"]


def test_an_unseeded_sampler_makes_unequal_runs():
    assert "differ within 3 steps" in found(recipe(sampler=Unseeded(32)))["determinism"]


@dataclass(frozen=True)
class Unshuffled(Shuffled):
    def epoch(self, split, seed, epoch):
        return self.batched(np.arange(len(split)))


def test_a_constant_order_that_claims_to_be_random_is_found():
    assert "another epoch has the same order" in found(recipe(sampler=Unshuffled(32)))["sampler"]


def test_a_constant_order_is_noted_but_not_a_fault():
    report = checked(recipe(sampler=Sequential(32)))
    assert report.failed == ()
    assert {each.found for each in report.of("sampler") if each.status == "noted"} == {
        "another epoch has the same order",
        "another seed has the same order",
    }


@dataclass(frozen=True)
class Climbing(Schedule):
    fixed_length = False

    def factor(self, progress):
        return 1 / (1 - progress) if progress < 1 else float("inf")


@dataclass(frozen=True)
class Zero(Schedule):
    fixed_length = False

    def factor(self, progress):
        return 0.0


@dataclass(frozen=True)
class Below(Schedule):
    fixed_length = False

    def factor(self, progress):
        return 0.5 - progress


class Counting(Schedule):
    fixed_length = False
    calls = 0

    def factor(self, progress):
        self.calls += 1
        return 1 / self.calls


@pytest.mark.parametrize(
    ("schedule", "says"),
    [
        (Climbing(), "its factor is inf at a share of 1"),
        (Zero(), "nothing is trained"),
        (Below(), "-0.5"),
        (Counting(), "called again, it returns different factors"),
    ],
)
def test_an_impossible_schedule_is_found(schedule, says):
    said = found(recipe(schedule=schedule))["schedule"]
    assert says in said or (isinstance(schedule, Below) and "its factor is -" in said)
