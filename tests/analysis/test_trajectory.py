"""Whether two sides follow the same trajectory, and from which evaluation on they do not."""

import numpy as np
import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from levelbench.analysis.trajectory import trajectories
from levelbench.records import Evaluation
from levelbench.records.schema import Target

TARGET = Target("top1", 0.9)


def curve(losses, every=100, qualities=None):
    qualities = qualities or [0.5] * len(losses)
    return [
        Evaluation(at, at, float(at), at * every, {"validation": quality}, loss, {})
        for at, (loss, quality) in enumerate(zip(losses, qualities, strict=True), 1)
    ]


def test_equal_losses_are_the_same_trajectory():
    side = {seed: curve([1.0, 0.5, 0.25]) for seed in range(3)}
    found = trajectories(side, side, TARGET)
    assert (found.kind, found.pairs, found.points) == ("identical", 3, 3)
    assert "the same to the last digit" in found.line()


@pytest.mark.parametrize(
    ("steps", "said"), [(True, "parts at evaluation 1 (1 step)"), (False, "parts at evaluation 1,")]
)
def test_evaluations_without_samples_are_paired_by_steps_or_their_number(steps, said):
    """As those of imported logs, which end on one plateau."""

    def uncounted(qualities):
        made = curve([None] * 3, qualities=qualities)
        return [replace(each, samples=0, step=each.step if steps else 0) for each in made]

    a = {seed: uncounted([0.68 + 0.001 * seed, 0.87, 0.95]) for seed in range(4)}
    b = {seed: uncounted([0.39 + 0.001 * seed, 0.61, 0.95]) for seed in range(4)}
    found = trajectories(a, b, TARGET)
    assert (found.points, found.differ_at) == (3, 1)
    assert found.difference == pytest.approx(-0.29)
    assert said in found.line()


def test_counts_that_are_the_number_of_the_evaluation_are_not_called_samples():
    a = {seed: curve([1.0, 0.5], every=1) for seed in range(3)}
    b = {seed: curve([1.0, 0.4], every=1) for seed in range(3)}
    assert "parts at evaluation 2;" in trajectories(a, b, TARGET).line().replace(", and", ";")


def test_losses_that_differ_by_rounding_are_alike():
    a = {seed: curve([1.0, 0.5]) for seed in range(3)}
    b = {seed: curve([1.0 + 1e-6, 0.5 - 1e-6]) for seed in range(3)}
    assert trajectories(a, b, TARGET).kind == "alike"


def test_the_evaluation_at_which_they_part_and_that_at_which_they_differ_on_average_are_named():
    rng = np.random.default_rng(0)
    a = {seed: curve([1.0, *np.exp(rng.normal(0, 0.01, 3))]) for seed in range(6)}
    b = {seed: curve([1.0, *(np.exp(rng.normal(0, 0.01, 3)) * [1.0, 0.5, 0.5])]) for seed in range(6)}
    found = trajectories(a, b, TARGET)
    assert (found.kind, found.parted_at, found.parted_samples) == ("parted", 2, 200)
    assert (found.differ_at, found.differ_samples) == (3, 300)
    assert found.difference == pytest.approx(np.log(0.5), abs=0.02)
    assert found.difference in found.interval
    # It goes into --json as it is.
    assert to_builtins(found)["stays"] is True


def test_a_difference_that_vanishes_is_not_said_to_last_and_a_loss_that_is_no_number_is_said():
    rng = np.random.default_rng(0)
    a = {seed: curve(np.exp(rng.normal(0, 0.01, 4)).tolist()) for seed in range(6)}
    b = {seed: curve((np.exp(rng.normal(0, 0.01, 4)) * [2, 1, 1, 1]).tolist()) for seed in range(6)}
    assert trajectories(a, b, TARGET).line().endswith("there), but not clearly at all later ones")
    broken = {**b, 0: curve([1.0, float("nan"), 1.0, 1.0], qualities=[0.5] * 4)}
    assert "; the loss of 0 + 1 runs (A + B) became no finite number" in trajectories(a, broken, TARGET).line()


def test_chance_alone_makes_no_difference_on_average():
    rng = np.random.default_rng(7)
    wrong = 0
    for _ in range(200):
        a, b = ({s: curve(np.exp(rng.normal(0, 0.1, 8)).tolist()) for s in range(5)} for _ in range(2))
        wrong += trajectories(a, b, TARGET).differ_at is not None
    assert wrong <= 20


def test_two_pairs_are_too_few_to_tell_luck_from_a_difference():
    a, b = {0: curve([1.0]), 1: curve([1.1])}, {0: curve([2.0]), 1: curve([2.2])}
    found = trajectories(a, b, TARGET)
    assert found.differ_at is None
    assert "too few pairs" in found.line()


def test_without_losses_the_qualities_are_compared():
    a = {seed: curve([None, None], qualities=[0.5, 0.9]) for seed in range(3)}
    b = {seed: curve([None, None], qualities=[0.5, 0.8]) for seed in range(3)}
    found = trajectories(a, b, TARGET)
    assert (found.measure, found.kind, found.parted_at) == ("the validation top1", "parted", 2)


def half_as_often(evaluations):
    """Every second evaluation, with the mean loss since the one before."""
    pairs = zip(evaluations[::2], evaluations[1::2], strict=True)
    return [replace(second, loss=(first.loss + second.loss) / 2) for first, second in pairs]


def test_the_same_training_evaluated_half_as_often_is_the_same_trajectory():
    a = {seed: curve([2.0012, 0.7993, 0.5, 0.4 + seed]) for seed in range(4)}
    b = {seed: half_as_often(each) for seed, each in a.items()}
    for found in (trajectories(a, b, TARGET), trajectories(b, a, TARGET)):
        assert found.kind in ("identical", "alike")
        assert (found.measure, found.pairs, found.points) == ("the training loss", 4, 2)


def test_other_training_evaluated_half_as_often_parts_where_its_loss_does():
    a = {seed: curve([2.0, 1.0, 0.5, 0.4]) for seed in range(4)}
    b = {seed: half_as_often(curve([2.0, 1.0, 0.5, 0.3])) for seed in range(4)}
    found = trajectories(a, b, TARGET)
    assert (found.kind, found.parted_at, found.parted_samples) == ("parted", 2, 400)
    assert found.difference == pytest.approx(np.log(0.4 / 0.45))


def test_losses_are_averaged_over_steps():
    a = curve([1.0, 4.0])
    a[1] = replace(a[1], step=4)
    b = [replace(a[1], loss=(1.0 + 3 * 4.0) / 4)]
    assert trajectories({0: a}, {0: b}, TARGET).kind in ("identical", "alike")


def test_pairs_are_compared_where_both_runs_were_evaluated_and_not_where_all_were():
    a = {seed: curve([1.0] * (6 if seed else 2)) for seed in range(4)}
    b = {seed: curve([1.0, 1.0], every=300) for seed in range(4)}
    found = trajectories(a, b, TARGET)
    assert (found.kind, found.pairs, found.points) == ("identical", 3, 2)


def test_a_pair_that_goes_on_after_the_others_ended_can_part_there():
    a = {seed: curve([1.0] * (6 if seed == 3 else 2)) for seed in range(4)}
    b = {**a, 3: curve([1.0] * 5 + [2.0])}
    found = trajectories(a, b, TARGET)
    assert (found.kind, found.pairs, found.parted_at, found.differ_at) == ("parted", 4, 6, None)


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        ({0: curve([1.0])}, {1: curve([1.0])}, "no seed was run on both sides"),
        ({0: curve([1.0])}, {0: curve([1.0], every=30)}, "no pair was evaluated after the same number of samples"),
    ],
)
def test_what_cannot_be_compared_is_said(a, b, reason):
    found = trajectories(a, b, TARGET)
    assert found.kind == "unknown"
    assert reason in found.line()
