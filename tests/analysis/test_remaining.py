"""The time remaining of a plan: what is known of it, and how often the range holds the truth."""

import numpy as np
import pytest

from levelbench.analysis.remaining import RemainingTime


def test_nothing_is_said_while_nothing_is_known():
    assert RemainingTime([0, 1, 0, 1]).range_s(0, 3.0) is None


def test_the_first_run_is_judged_by_its_pace_and_its_budget():
    low, high = RemainingTime([0]).range_s(0, 10.0, epoch=5.0, most_epochs=20.0)
    assert 0.0 <= low < high <= 30.0


def test_runs_of_other_arms_say_how_many_epochs_it_takes():
    remaining = RemainingTime([0, 1])
    remaining.finished(0, 4.0, 10.0)
    low, high = remaining.range_s(1, 2.0, epoch=1.0, most_epochs=1000.0)
    assert low < 18.0 < high < 100.0


def test_finished_runs_are_no_longer_to_go():
    remaining = RemainingTime([0, 0])
    remaining.finished(0, 5.0)
    low, high = remaining.range_s(0, 0.0)
    assert low < 5.0 < high
    remaining.finished(0, 5.0)
    assert remaining.range_s(0, 0.0) is None


def test_a_run_that_takes_longer_than_all_before_is_not_over():
    remaining = RemainingTime([0, 0, 0])
    for _ in range(2):
        remaining.finished(0, 1.0)
    low, high = remaining.range_s(0, 50.0)
    assert 0.0 <= low < high < 50.0


def test_runs_made_before_count_as_known_and_not_as_planned():
    remaining = RemainingTime([0])
    remaining.finished(0, 2.0, planned=False)
    low, high = remaining.range_s(0, 0.0)
    assert low < 2.0 < high


@pytest.mark.parametrize("spread", [0.05, 0.3])
@pytest.mark.parametrize("finished", [1, 3])
def test_the_range_holds_the_truth_in_about_four_cases_of_five(spread, finished):
    rng = np.random.default_rng([finished, int(100 * spread)])
    held = 0
    for _ in range(400):
        times = 10.0 * np.exp(spread * rng.standard_normal((2, 5)))
        turns = [(arm, at) for at in range(5) for arm in range(2)]
        remaining = RemainingTime([arm for arm, _ in turns])
        for arm, at in turns[: 2 * finished]:
            remaining.finished(arm, times[arm, at])
        low, high = remaining.range_s(0, 1.0)
        held += low <= times[:, finished:].sum() - 1.0 <= high
    assert 0.72 <= held / 400 <= (1.0 if finished == 1 else 0.93)


def test_a_thousand_runs_are_added_up_like_a_few():
    remaining = RemainingTime([0] * 1000)
    for time_s in (9.0, 10.0, 11.0):
        remaining.finished(0, time_s, planned=False)
    low, high = remaining.range_s(0, 0.0)
    assert low < 10_000 < high < 13_000
