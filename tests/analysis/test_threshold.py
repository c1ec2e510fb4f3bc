"""Thresholds: the time to each target, where rankings turn round, which targets are out of reach, and the knee."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.analysis.threshold import SHOWN_RULES, TimedArm, TimedCurve, curve_of, default_targets, sweep
from levelbench.errors import UsageError
from levelbench.measure.crossing import find_crossing
from levelbench.records.schema import Target

TOP1 = Target("top1", 0.94)


def arm(label, *qualities, step_s=1.0, ended="end", rule="first"):
    """An arm with a run for each curve, evaluated every ``step_s``."""
    curves = [
        TimedCurve(tuple(step_s * (at + 1) for at in range(len(curve))), tuple(curve), ended) for curve in qualities
    ]
    return TimedArm(label, tuple(curves), rule)


SPRINTER = arm("sprinter", [0.90, 0.92, 0.93, 0.93])
STAYER = arm("stayer", [0.80, 0.85, 0.91, 0.95], step_s=1.1)


def values(cells):
    return [None if cell.time_s is None else cell.time_s.value for cell in cells]


def test_each_target_has_the_time_of_each_arm():
    found = sweep([SPRINTER, STAYER], [0.9, 0.93, 0.95], 0.93)
    assert found.targets == (0.9, 0.93, 0.95)
    assert values(found.cells[0]) == [1.0, 3.0, None]
    assert values(found.cells[1]) == pytest.approx([3.3, 4.4, 4.4])


def test_the_rules_stand_side_by_side_at_the_reference():
    falls_back = arm("a", [0.90, 0.95, 0.93, 0.94, 0.96, 0.93, 0.95, 0.96], step_s=10.0)
    (row,) = sweep([falls_back], [0.94], 0.94).crossings
    assert dict(zip(SHOWN_RULES, values(row), strict=True)) == pytest.approx(
        {"first": 20.0, "interpolated": 18.0, "confirmed": 50.0, "sustained": 70.0}
    )


@given(st.lists(st.integers(0, 8).map(lambda each: each / 8), min_size=1, max_size=9), st.sampled_from(SHOWN_RULES))
def test_a_sweep_is_the_crossing_rule_at_every_target(curve, rule):
    targets = sorted({*curve, 0.3})
    (row,) = sweep([arm("a", curve, rule=rule)], targets, targets[0]).cells
    times = [float(at + 1) for at in range(len(curve))]
    expected = [find_crossing(curve, each, rule=rule, x=times) for each in targets]
    assert values(row) == [None if each is None else pytest.approx(each.position) for each in expected]


def test_a_pair_that_changes_places_is_named_with_its_ratios():
    late = arm("late", [0.5, 0.6, 0.94, 0.95])
    early = arm("early", [0.92, 0.92, 0.93, 0.935, 0.94])
    (flip,) = sweep([late, early], [0.92, 0.94], 0.94).flips
    assert (flip.first, flip.second, flip.low, flip.high) == ("late", "early", 0.92, 0.94)
    assert (flip.before, flip.after) == pytest.approx((1 / 3, 5 / 3))


def test_rankings_are_compared_with_that_at_the_reference():
    late = arm("late", [0.5, 0.6, 0.94, 0.95])
    early = arm("early", [0.92, 0.92, 0.93, 0.935, 0.94])
    low, high = sweep([late, early], [0.92, 0.94], 0.94).orders
    assert (low.ranking, low.pairs, low.turned) == (("early", "late"), 1, 1)
    assert (high.ranking, high.pairs, high.turned) == (("late", "early"), 1, 0)


def test_an_arm_that_trained_to_its_end_comes_after_those_that_arrive():
    found = sweep([SPRINTER, STAYER], [0.9, 0.95], 0.9)
    assert [flip.after for flip in found.flips] == [0.0]
    assert found.limits[0].stopped == 0
    assert (found.limits[0].all, found.limits[0].any) == (0.93, 0.93)


@pytest.mark.parametrize("ended", ["target", "budget"])
def test_of_an_arm_that_stopped_nothing_is_known_beyond(ended):
    stopped = arm("sprinter", [0.90, 0.92, 0.93, 0.93], ended=ended)
    found = sweep([stopped, STAYER], [0.9, 0.95], 0.9)
    assert found.flips == ()
    assert found.limits[0].stopped == 1


@pytest.mark.parametrize(("ended", "stopped"), [("target", 1), ("unknown", 1), ("end", 0)])
def test_a_run_that_stopped_at_its_first_crossing_may_have_confirmed_it(ended, stopped):
    (row,) = sweep([arm("a", [0.9, 0.92, 0.94], ended=ended)], [0.94], 0.94).crossings
    confirmed = dict(zip(SHOWN_RULES, row, strict=True))["confirmed"]
    assert (confirmed.reached, confirmed.stopped) == (0, stopped)


def test_a_curve_of_unknown_end_that_stops_at_its_best_may_have_been_stopped():
    at_best, past_it = arm("a", [0.9, 0.94], ended="unknown"), arm("b", [0.9, 0.94, 0.93], ended="unknown")
    assert [limit.stopped for limit in sweep([at_best, past_it], [0.9], 0.9).limits] == [1, 0]


def test_a_target_that_no_run_of_three_reached_may_still_be_reached_by_some():
    (limit,) = sweep([arm("a", *[[0.9, 0.92, 0.91]] * 3)], [0.95], 0.95).limits
    assert limit.any == 0.92
    assert limit.chance == pytest.approx(0.5615, abs=1e-4)


def test_a_time_is_a_median_if_some_runs_missed_and_none_if_half_did():
    runs = [[0.9, 0.95], [0.9, 0.94], [0.95, 0.95]]
    (cells,) = sweep([arm("a", *runs)], [0.9, 0.95], 0.95).cells
    all_of_them, two = cells
    assert (all_of_them.reached, all_of_them.n) == (3, 3)
    assert all_of_them.time_s.statistic == "geometric mean"
    assert (two.reached, two.time_s.statistic, two.time_s.value) == (2, "Kaplan-Meier median", 2.0)
    (few,) = sweep([arm("a", [0.95], [0.9], [0.9])], [0.95], 0.95).cells
    assert few[0].time_s is None


def test_a_run_that_failed_reaches_nothing():
    (cells,) = sweep([arm("a", [0.9, 0.95], ended="failed")], [0.9], 0.9).cells
    assert (cells[0].reached, cells[0].n) == (0, 1)


def test_lower_may_be_better():
    losses = TimedArm("a", (TimedCurve((1.0, 2.0, 3.0), (3.5, 3.3, 3.2), "end"),), "first")
    found = sweep([losses], [3.2, 3.4], 3.3, "lower")
    assert found.targets == (3.4, 3.3, 3.2)
    assert values(found.cells[0]) == [2.0, 2.0, 3.0]
    assert found.limits[0].any == 3.2


def test_the_knee_is_where_the_curve_bends():
    curve = [1 - math.exp(-each / 10) for each in range(60)]
    (limit,) = sweep([arm("a", curve)], [0.5], 0.5).limits
    quality, seconds = limit.knee
    # Of 1 - exp(-t / 10) over [0, 59]: the slope with both ranges scaled to 1 is 1.
    exact = 10 * math.log(5.9 / (1 - math.exp(-5.9)))
    assert seconds == pytest.approx(exact + 1, abs=1.0)
    assert quality == pytest.approx(1 - math.exp(-(seconds - 1) / 10), abs=1e-9)


@pytest.mark.parametrize(
    ("stopped_by", "ended"),
    [
        ("all epochs done", "end"),
        ("target reached", "target"),
        ("budget of 3 epochs", "budget"),
        ("its program ended", "unknown"),
        ("its log ends", "unknown"),
    ],
)
def test_a_run_whose_program_or_log_ended_may_have_been_stopped(stopped_by, ended):
    header = SimpleNamespace(specification=SimpleNamespace(target=Target("top1", 0.9)))
    record = SimpleNamespace(header=header, status="done", end=SimpleNamespace(stopped_by=stopped_by), evaluations=[])
    assert curve_of(record, "wall").ended == ended


def test_a_curve_of_few_steps_has_no_knee_and_says_why():
    (limit,) = sweep([SPRINTER], [0.9], 0.9).limits
    assert limit.knee is None
    assert "3 steps" in limit.reason


def test_default_targets_are_round_lie_where_the_curves_are_and_have_the_target():
    curves = [[0.1 + 0.86 * (1 - math.exp(-(each + seed) / 6)) for each in range(40)] for seed in range(3)]
    found = default_targets([arm("a", *curves)], TOP1)
    assert list(found) == sorted(found)
    assert 0.94 in found
    assert 4 <= len(found) <= 9
    assert all(round(each, 3) == each for each in found)
    assert sweep([arm("a", *curves)], found, 0.94).cells[0][-1].reached > 0


def test_without_a_quality_the_only_default_is_the_target():
    assert default_targets([arm("a", [math.nan])], TOP1) == (0.94,)


@pytest.mark.parametrize(
    ("arms", "targets", "found"),
    [
        ([], [0.9], "no run"),
        ([SPRINTER, SPRINTER], [0.9], "one name"),
        ([SPRINTER], [math.nan], "not a finite number"),
        ([SPRINTER], [each / 1000 for each in range(200)], "more than 100"),
    ],
)
def test_what_cannot_be_swept_is_refused(arms, targets, found):
    with pytest.raises(UsageError, match=found):
        sweep(arms, targets, 0.9)


def late_now_and_then(random, n, base, share):
    """Runs that need ``base`` evaluations, or with probability ``share`` some more, and the mean logarithm of these."""
    late = [int(random.geometric(0.5)) * bool(random.random() < share) for _ in range(n)]
    curves = [
        TimedCurve(tuple(step * at for at in range(1, base + each + 1)), (*[0.5] * (base + each - 1), 0.95), "target")
        for each, step in zip(late, np.exp(0.005 * random.standard_normal(n)).tolist(), strict=True)
    ]
    truth = math.log(base) + share * sum(0.5**j * math.log1p(j / base) for j in range(1, 50))
    return TimedArm("a", tuple(curves), "first"), math.exp(truth)


def test_intervals_hold_the_truth_where_few_runs_need_another_evaluation():
    random, held = np.random.default_rng(3), []
    for _ in range(100):
        made, truth = late_now_and_then(random, 8, 5, 0.1)
        held.append(truth in sweep([made], [0.9], 0.9).cells[0][0].time_s.interval)
    # They held it in 62 before they had room for late evaluations.
    assert sum(held) >= 95


def test_times_between_evaluations_have_no_room_for_late_ones():
    made, _ = late_now_and_then(np.random.default_rng(0), 8, 5, 0.0)
    row = dict(zip(SHOWN_RULES, sweep([made], [0.9], 0.9).crossings[0], strict=True))
    assert row["interpolated"].time_s.interval.high / row["interpolated"].time_s.value < 1.02
    assert row["first"].time_s.interval.high / row["first"].time_s.value > 1.05
