"""Scores on small boards that were worked out by hand, and on published figures."""

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelbench.measure.crossing import find_crossing
from levelbench.records.rulesets.registry import ruleset
from levelbench.records.rulesets.schema import Aggregation, InferenceRules
from levelbench.records.schema import Target
from levelbench.records.submissions.schema import (
    Author,
    Curve,
    Hardware,
    Inference,
    Price,
    Submission,
    SubmittedRun,
)
from levelbench.records.submissions.scoring import aggregation_words, score, sweep
from levelbench.records.submissions.steps import steps_of, thinned

DAWNBENCH, MLPERF, OURS = ruleset("dawnbench-1.0"), ruleset("mlperf-training-like-1.0"), ruleset("levelbench-1.0")
TARGET = Target("top1", 0.94)


def a_run(arrives_s, *, status="done", given_up_s=100.0):
    """A run that is at the target in two evaluations, the first ``arrives_s`` seconds in; ``None``: never."""
    if arrives_s is None:
        return SubmittedRun(Curve([1.0, given_up_s], [0.5, 0.9]), status=status)
    return SubmittedRun(Curve([arrives_s / 2, arrives_s, arrives_s * 2], [0.9, 0.94, 0.95]), status=status)


def submission(runs=(), *, mode="training", **parts):
    base = Submission(
        schema=1, ruleset="levelbench-1.0", task="cifar10", mode=mode, author=Author("A"), submitted="2026-01-02",
        model="net", framework="torch", hardware=Hardware("a machine"), target=TARGET, runs=list(runs),
    )  # fmt: skip
    return msgspec.structs.replace(base, **parts)


def under(rules, **aggregation):
    """``rules`` with the crossing rule ``first`` and another aggregation."""
    return msgspec.structs.replace(rules, crossing="first", aggregation=Aggregation(**aggregation))


MEDIAN = under(OURS, rule="median", runs=1)


@pytest.mark.parametrize(
    ("hours", "usd_per_hour", "seconds", "usd"),
    [
        (0.0026191027585688665, None, 9.43, None),
        (44.4429 / 3600, 8.5058, 44.44, 0.1050),
        (74.04 / 3600, 3.06, 74.04, 0.0629),
        (4075.0 / 3600, 3.06, 4075.00, 3.4638),
        (370087.79 / 3600, 0.533, 370087.79, 54.7936),
    ],
)
def test_times_and_costs_published_by_dawnbench_are_reproduced(hours, usd_per_hour, seconds, usd):
    price = Price(usd_per_hour) if usd_per_hour else None
    found = score(submission([a_run(hours * 3600)], price=price), DAWNBENCH)
    assert found.time.value == pytest.approx(seconds, abs=0.005)
    assert (found.time.low, found.time.high) == (None, None)
    if usd is None:
        assert found.cost.value is None
        assert "price-missing" in found.flags
    else:
        assert found.cost.value == pytest.approx(usd, abs=5e-5)


def test_the_first_crossing_counts_and_a_later_fall_is_told():
    curve = Curve([1.0, 2.0, 3.0, 4.0], [0.9, 0.94, 0.93, 0.95])
    found = score(submission([SubmittedRun(curve)]), DAWNBENCH)
    assert found.time.value == 2.0
    assert "falls-back" in found.flags
    assert score(submission([SubmittedRun(curve)]), OURS).time.value is None


def test_a_curve_that_ends_at_its_crossing_is_told():
    found = score(submission([SubmittedRun(Curve([1.0, 2.0], [0.9, 0.95]))]), DAWNBENCH)
    assert "stops-at-target" in found.flags


def test_the_olympic_mean_leaves_out_the_fastest_and_the_slowest():
    found = score(submission([a_run(each) for each in (10.0, 20.0, 30.0, 40.0, 90.0)]), MLPERF)
    assert found.time.value == 30.0
    # Kept 20, 30, 40; winsorised 20, 20, 30, 40, 40 with s = 10; t(2) = 4.302653.
    assert found.time.high - 30.0 == pytest.approx(4.302653 * 10 / (0.6 * math.sqrt(5)), rel=1e-6)
    assert found.time.low == 0.0


def test_one_miss_in_an_olympic_mean_is_the_slowest_run_and_two_are_none():
    times = [10.0, 20.0, 30.0, 40.0]
    assert score(submission(map(a_run, [*times, None])), MLPERF).time.value == 30.0
    found = score(submission(map(a_run, [*times[:3], None, None])), MLPERF)
    assert found.time.value is None
    assert found.time.how == "2 of 5 runs did not reach the target, and 1 may"
    assert (found.reached, found.n) == (3, 5)


def test_an_olympic_mean_wants_its_number_of_runs():
    assert "4 runs, where the rules want 5" in score(submission(map(a_run, [1.0, 2.0, 3.0, 4.0])), MLPERF).time.how


@pytest.mark.parametrize(
    ("times", "level"), [((10.0, 20.0, 40.0), "75 %"), ((69.0, 90.0, 200.0, 210.0, 290.0), "93.75 %")]
)
def test_a_median_of_few_runs_has_their_range_at_the_level_that_it_has(times, level):
    found = score(submission(map(a_run, times)), MEDIAN).time
    assert (found.low, found.value, found.high) == (times[0], sorted(times)[len(times) // 2], times[-1])
    assert f"{level} interval" in found.how


def test_the_range_of_five_runs_holds_the_median_as_often_as_it_says():
    rng = np.random.default_rng(5)
    runs = np.exp(rng.normal(size=(20_000, 5)))
    held = np.mean((runs.min(axis=1) <= 1.0) & (runs.max(axis=1) >= 1.0))
    assert held == pytest.approx(0.9375, abs=0.005)


def test_a_median_of_six_runs_has_the_interval_of_their_range():
    found = score(submission(map(a_run, [1.0, 2.0, 3.0, 5.0, 8.0, 13.0])), MEDIAN)
    assert (found.time.low, found.time.value, found.time.high) == (1.0, 4.0, 13.0)


def test_a_single_run_is_a_point_and_says_so():
    found = score(submission([a_run(10.0)]), MEDIAN)
    assert (found.time.value, found.time.low, found.expected_with_restarts_s) == (10.0, None, None)
    assert "single-run" in found.flags


def test_ending_runs_that_look_bad_early_gains_nothing():
    early = [a_run(None, given_up_s=1.5) for _ in range(9)]
    assert score(submission([a_run(5.0), *early]), MEDIAN).time.how == "no median: 1 of 10 runs reached the target"
    some = [a_run(each) for each in (10.0, 20.0, 30.0, 40.0)]
    stopped = score(submission([*some, a_run(None, given_up_s=1.5), a_run(None, given_up_s=1.5)]), MEDIAN)
    patient = score(submission([*some, a_run(None), a_run(None)]), MEDIAN)
    assert stopped.time == patient.time
    assert (stopped.time.low, stopped.time.value, stopped.time.high) == (10.0, 35.0, math.inf)


def test_a_run_that_misses_is_never_and_never_left_out():
    found = score(submission(map(a_run, [10.0, 20.0, 30.0, None, None])), MEDIAN)
    assert found.time.value == 30.0
    assert (found.reached, found.best_s) == (3, 10.0)
    # 60 s of runs that arrived and twice 100 s of runs that did not, for three arrivals.
    assert found.expected_with_restarts_s == pytest.approx(260 / 3)
    assert "censored" in found.flags


def test_fewer_arrivals_than_half_have_no_median():
    found = score(submission(map(a_run, [10.0, 20.0, None, None, None])), MEDIAN)
    assert found.time.value is None
    assert found.time.how == "no median: 2 of 5 runs reached the target"


def test_a_failed_run_has_not_arrived_whatever_its_curve_says():
    found = score(submission([a_run(10.0), a_run(11.0), a_run(5.0, status="failed")]), MEDIAN)
    assert found.times_s == (10.0, 11.0, None)
    assert "failed-runs" in found.flags


def test_wilsons_interval_is_the_published_one_of_33_in_50():
    found = score(submission(map(a_run, [27.98] * 33 + [None] * 17)), MEDIAN)
    assert (round(found.reached_low, 2), round(found.reached_high, 2)) == (0.52, 0.78)


def test_a_schedule_of_fixed_length_is_judged_at_its_end():
    fixed = submission([SubmittedRun(Curve([1.0, 2.0], [0.9, 0.95]))], crossing="final")
    assert score(fixed, OURS).time.value == 2.0
    assert "judged-at-end" in score(fixed, OURS).flags
    assert score(submission(fixed.runs), OURS).time.value is None
    assert "judged-at-end" not in score(submission(fixed.runs), OURS).flags


def test_another_threshold_moves_the_crossing():
    runs = [SubmittedRun(Curve([1.0, 2.0, 3.0], [0.9, 0.94, 0.96]))]
    assert [each.value for each in sweep(submission(runs), DAWNBENCH, [0.9, 0.94, 0.95, 0.97])] == [1.0, 2.0, 3.0, None]


def test_a_lower_quality_may_be_the_better_one():
    target = next(each.target for each in OURS.tasks if each.task == "charlm")
    runs = [SubmittedRun(Curve([1.0, 2.0, 3.0], [2.5, 2.0, 1.9]))]
    assert score(submission(runs, task="charlm", target=target), MEDIAN).time.value == 2.0


def test_another_metric_is_not_scored_unless_the_curve_has_the_wanted_one_too():
    other = msgspec.structs.replace(TARGET, metric="top5")
    plain = SubmittedRun(Curve([1.0, 2.0], [0.95, 0.96]))
    both = SubmittedRun(Curve([1.0, 2.0], [0.95, 0.96], others={"top1": [0.9, 0.94]}))
    found = score(submission([plain], target=other), DAWNBENCH)
    assert found.time.value is None
    assert "other-metric" in found.flags
    assert score(submission([both], target=other), DAWNBENCH).time.value == 2.0


def test_an_unknown_task_has_no_figure_and_the_reason():
    found = score(submission([a_run(10.0)], task="chess"), OURS)
    assert found.time.how == "levelbench-1.0 has no task 'chess'"


def test_a_price_that_is_not_on_demand_makes_no_cost():
    found = score(submission([a_run(10.0)], price=Price(1.0, on_demand=False)), DAWNBENCH)
    assert found.cost.value is None
    assert "on-demand" in found.cost.how


def measured(**parts):
    return Inference("dawnbench", 100, 100, 3.0, quality=0.95, **parts)


def test_latency_and_cost_of_inference_published_by_dawnbench_are_reproduced():
    entry = submission(mode="inference", inference=[measured(mean_latency_s=0.028688)], price=Price(0.90))
    found = score(entry, DAWNBENCH)
    assert found.latency.value == 0.028688
    assert found.inference_cost.value == pytest.approx(7.172)


def test_a_stated_cost_stands_in_for_a_price_and_says_so():
    found = score(submission(mode="inference", inference=[measured(mean_latency_s=1.0, cost_usd=2e-6)]), DAWNBENCH)
    assert found.inference_cost.value == pytest.approx(2.0)
    assert "cost-stated" in found.flags


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"quality": 0.9}, "a quality of 0.9, where the rules keep 0.94"),
        ({"quality": None}, "the quality of the same answers is not stated"),
        ({"valid": False}, "not valid by the scenario's own rules"),
    ],
)
def test_a_measurement_that_does_not_count_says_why(parts, reason):
    found = measured(mean_latency_s=1.0)
    entry = submission(mode="inference", inference=[msgspec.structs.replace(found, **parts)])
    assert score(entry, DAWNBENCH).latency.how == reason


def test_a_column_compares_one_scenario():
    entry = submission(mode="inference", inference=[measured(mean_latency_s=1.0)])
    assert "compares single-stream; this entry measured dawnbench" in score(entry, OURS).latency.how
    assert "other-scenario" in score(entry, OURS).flags


def single_stream_rules():
    tasks = [msgspec.structs.replace(each, inference=InferenceRules(["single-stream"])) for each in OURS.tasks]
    return msgspec.structs.replace(OURS, tasks=tasks)


def test_the_early_stopping_estimate_is_the_latency_and_the_quantile_stands_in_for_it():
    stream = Inference("single-stream", 9, 9, 9.0, mean_latency_s=1.0, quantiles_s={"0.9": 2.0})
    plain = score(submission(mode="inference", inference=[stream]), single_stream_rules())
    assert (plain.latency.value, "no-estimate" in plain.flags) == (2.0, True)
    estimated = msgspec.structs.replace(stream, estimate_s=3.0, estimate_quantile=0.9)
    found = score(submission(mode="inference", inference=[estimated]), single_stream_rules())
    assert (found.latency.value, "no-estimate" in found.flags) == (3.0, False)
    assert found.latency.how.startswith("single-stream: 90th percentile")


@pytest.mark.parametrize("rule", ["first-run", "olympic", "median"])
def test_every_aggregation_is_a_sentence(rule):
    assert aggregation_words(Aggregation(rule, 5, 1)).endswith(".")


qualities = st.lists(st.integers(0, 8).map(lambda each: each / 8), min_size=1, max_size=12)


@given(qualities, st.sampled_from(["first", "confirmed", "sustained", "final"]), st.sampled_from(["higher", "lower"]))
@settings(max_examples=40, deadline=None)
def test_steps_give_the_time_at_every_target_as_the_crossing_rule_does(values, rule, direction):
    times = [float(at + 1) for at in range(len(values))]
    steps = steps_of(times, values, rule, direction)
    sign = 1 if direction == "higher" else -1
    for threshold in {*values, 0.3}:
        found = find_crossing(values, threshold, direction=direction, rule=rule, x=times)
        by_steps = next((time for quality, time in steps if sign * quality >= sign * threshold), None)
        assert by_steps == (found.position if found else None)


def test_thinned_steps_keep_the_first_the_last_and_the_one_at_the_target():
    steps = [[at / 100, float(at)] for at in range(100)]
    few = thinned(steps, 10, Target("top1", 0.333))
    assert len(few) <= 10
    assert (few[0], few[-1]) == (steps[0], steps[-1])
    assert steps[34] in few


numbers = st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.lists(st.tuples(st.lists(numbers, max_size=4), st.lists(numbers, max_size=4)), max_size=7),
    st.sampled_from([DAWNBENCH, MLPERF, OURS, MEDIAN]),
    st.floats(min_value=1e-300, max_value=1e300),
)
@settings(max_examples=40, deadline=None)
def test_whatever_the_curves_hold_a_score_comes_out(curves, rules, price):
    runs = [SubmittedRun(Curve(times, values)) for times, values in curves]
    found = score(submission(runs, price=Price(price)), rules)
    assert found.n == len(curves)
    assert found.time.value is None or found.time.low is None or found.time.low <= found.time.value <= found.time.high


@given(st.lists(st.tuples(numbers, numbers, st.integers(0, 2**62)), min_size=1, max_size=7), numbers)
@settings(max_examples=40, deadline=None)
def test_whatever_is_measured_a_score_of_inference_comes_out(values, quality):
    found = [
        Inference("dawnbench", each, each, b, mean_latency_s=a, throughput_per_s=b, quality=quality, cost_usd=a)
        for a, b, each in values
    ]
    latency = score(submission(mode="inference", inference=found), DAWNBENCH).latency
    assert latency.value is None or 0 <= latency.value < math.inf
