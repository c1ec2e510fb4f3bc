"""The time remaining of a plan: what is known of it, and how often the range holds the truth."""

import numpy as np
import pytest

from levelbench.analysis.remaining import CurrentRun, RemainingTime


def halving(epochs, last):
    """The errors of a run that halve from one evaluation to the next, down to ``last``."""
    return [(epoch, last * 2.0 ** (epochs - epoch)) for epoch in range(1, epochs + 1)]


def test_nothing_is_said_while_nothing_is_known():
    assert RemainingTime([0, 1, 0, 1]).range_s(CurrentRun(0, 3.0)) is None


def test_nothing_remains_of_a_plan_without_runs_to_go():
    remaining = RemainingTime([0])
    remaining.finished(0, 5.0)
    assert remaining.range_s(CurrentRun(0)) is None


def test_a_run_of_fixed_length_takes_its_pace_to_the_end():
    now = CurrentRun(0, 10.0, epoch=5.0, pace_s=2.0, warm=True, most_epochs=20.0, fixed_length=True)
    low, high = RemainingTime([0]).range_s(now)
    assert 10.0 < low < 30.0 < high < 90.0


def test_the_budget_of_epochs_bounds_a_run_whose_curve_does_not_fall():
    level = [(epoch, 4.0) for epoch in range(1, 6)]
    now = CurrentRun(0, 10.0, epoch=5.0, pace_s=2.0, warm=True, most_epochs=8.0, errors=level)
    low, high = RemainingTime([0]).range_s(now)
    assert low < 6.0 < high < 20.0


def test_the_budget_of_seconds_bounds_a_run():
    now = CurrentRun(0, 10.0, epoch=5.0, pace_s=2.0, warm=True, most_epochs=500.0, most_s=14.0)
    _, high = RemainingTime([0]).range_s(now)
    assert high <= 4.0


def spent(**others):
    """A run whose budget of seconds is spent, and whose evaluation took 20 s."""
    known = {"epoch": 0.2, "pace_s": 160.0, "most_epochs": 30.0, "most_s": 12.0, "evaluation_s": 20.0}
    return CurrentRun(0, 32.0, **{**known, **others})


def test_after_the_budget_the_test_is_still_to_come():
    low, high = RemainingTime([0]).range_s(spent(stage="test", stage_s=1.0))
    assert 4.0 < low < 20.0 < high < 80.0


def test_a_test_that_has_lasted_for_some_time_is_nearer_its_end():
    remaining = RemainingTime([0])
    (_, before), (low, after) = (remaining.range_s(spent(stage="test", stage_s=each)) for each in (1.0, 15.0))
    assert low > 0.0
    assert after < before


def test_the_evaluation_under_way_when_the_budget_ends_is_counted_once():
    low, high = RemainingTime([0]).range_s(spent(stage="evaluate", stage_s=5.0))
    waiting, _ = RemainingTime([0]).range_s(spent(stage="train"))
    assert 20.0 < low < 35.0 < high < 80.0
    assert waiting > low


def test_nothing_is_said_of_a_test_where_no_evaluation_was_timed():
    assert RemainingTime([0]).range_s(spent(stage="test", evaluation_s=0.0)) is None


def test_no_run_of_an_arm_begins_after_its_budget():
    remaining = RemainingTime([0] * 50, times_s={0: [10.0] * 5}, budgets_s={0: 30.0})
    low, high = remaining.range_s(CurrentRun(0, 1.0))
    assert 25.0 < low < high < 60.0


def test_a_curve_near_the_target_ends_sooner_than_one_far_from_it():
    def upper(last):
        now = CurrentRun(0, 8.0, epoch=4.0, pace_s=2.0, warm=True, most_epochs=1000.0, errors=halving(4, last))
        return RemainingTime([0]).range_s(now)[1]

    assert upper(1.1) < upper(2.0) < upper(8.0)


def test_a_target_that_was_reached_once_is_mostly_confirmed_by_the_next_evaluation():
    now = CurrentRun(0, 8.0, epoch=4.0, pace_s=2.0, warm=True, most_epochs=60.0, errors=halving(4, 0.9))
    low, high = RemainingTime([0]).range_s(now)
    assert 1.0 < low < 2.0 < high < 12.0


def test_several_evaluations_within_one_epoch_are_no_curve_over_the_epochs():
    now = CurrentRun(0, 8.0, epoch=2.0, pace_s=2.0, errors=[(2.0, 8.0), (2.0, 6.0), (2.0, 5.0)])
    low, high = RemainingTime([0]).range_s(now)
    assert 0.0 < low < high < np.inf


def test_runs_of_other_arms_say_how_many_epochs_it_takes():
    now = CurrentRun(1, 2.0, epoch=1.0, pace_s=2.0, most_epochs=1000.0)
    remaining = RemainingTime([0, 1])
    remaining.finished(0, 4.0, 10.0)
    low, high = remaining.range_s(now)
    assert low < 18.0 < high < 80.0


def test_the_first_evaluation_of_a_run_is_slow_and_no_pace_where_another_run_has_shown_one():
    def upper(*paces):
        remaining = RemainingTime([0] * (1 + len(paces)))
        for pace_s in paces:
            remaining.finished(0, 10.0, 10.0, pace_s)
        return remaining.range_s(CurrentRun(0, 5.0, epoch=1.0, pace_s=5.0, most_epochs=60.0))[1]

    assert upper(1.0) < upper(0.0)


def test_finished_runs_are_no_longer_to_go():
    remaining = RemainingTime([0, 0])
    remaining.finished(0, 5.0)
    low, high = remaining.range_s(CurrentRun(0))
    assert low < 5.0 < high
    remaining.finished(0, 5.0)
    assert remaining.range_s(CurrentRun(0)) is None


def test_an_arm_without_a_finished_run_is_less_certain_than_one_with():
    def ratio(*arms):
        remaining = RemainingTime([0, 1])
        for arm in arms:
            remaining.finished(arm, 5.0, planned=False)
        low, high = remaining.range_s(CurrentRun(0))
        return high / low

    assert ratio(0, 1) < ratio(0, 0)


def test_runs_that_agree_narrow_the_range():
    def ratio(count):
        remaining = RemainingTime([0])
        for _ in range(count):
            remaining.finished(0, 5.0, planned=False)
        low, high = remaining.range_s(CurrentRun(0))
        return high / low

    assert ratio(20) < ratio(5) < ratio(1)


def test_a_run_that_takes_longer_than_all_before_is_not_over():
    remaining = RemainingTime([0, 0, 0])
    for _ in range(2):
        remaining.finished(0, 1.0)
    low, high = remaining.range_s(CurrentRun(0, 50.0))
    assert 0.0 <= low < high < 60.0


def test_runs_made_before_count_as_known_and_not_as_planned():
    remaining = RemainingTime([0])
    remaining.finished(0, 2.0, planned=False)
    low, high = remaining.range_s(CurrentRun(0))
    assert low < 2.0 < high


def test_earlier_commands_say_how_arms_compare_but_not_how_fast_the_machine_is():
    remaining = RemainingTime([1])
    remaining.earlier(0, 1.0)
    remaining.earlier(1, 20.0)
    assert remaining.range_s(CurrentRun(1)) is None
    remaining.finished(0, 3.0, planned=False)
    low, high = remaining.range_s(CurrentRun(1))
    assert 10.0 < low < 60.0 < high


def test_earlier_commands_say_how_many_epochs_it_takes():
    remaining = RemainingTime([0])
    remaining.earlier(0, 1.0, 10.0)
    now = CurrentRun(0, 4.0, epoch=2.0, pace_s=2.0, warm=True, most_epochs=1000.0)
    low, high = remaining.range_s(now)
    assert low < 16.0 < high < 80.0


def test_imports_to_come_are_a_part_of_what_remains():
    remaining = RemainingTime([0])
    remaining.finished(0, 1.0, planned=False)
    _, before = remaining.range_s(CurrentRun(0))
    remaining.imports_to_go, remaining.import_s = 2, 10.0
    low, _ = remaining.range_s(CurrentRun(0))
    assert low > before


@pytest.mark.parametrize("spread", [0.1, 0.5])
@pytest.mark.parametrize("finished", [1, 3])
def test_the_range_holds_the_truth_of_noise_between_runs_in_four_cases_of_five_or_more(spread, finished):
    rng = np.random.default_rng([finished, int(100 * spread)])
    held = 0
    for _ in range(300):
        times = 10.0 * np.exp(spread * rng.standard_normal((2, 5)))
        turns = [(arm, at) for at in range(5) for arm in range(2)]
        remaining = RemainingTime([arm for arm, _ in turns])
        for arm, at in turns[: 2 * finished]:
            remaining.finished(arm, times[arm, at])
        low, high = remaining.range_s(CurrentRun(0, 1.0))
        held += low <= times[:, finished:].sum() - 1.0 <= high
    assert held / 300 >= 0.75


def test_a_thousand_runs_are_added_up_like_a_few():
    remaining = RemainingTime([0] * 1000)
    for time_s in (9.0, 10.0, 11.0):
        remaining.finished(0, time_s, planned=False)
    low, high = remaining.range_s(CurrentRun(0))
    assert low < 10_000 < high < 30_000
