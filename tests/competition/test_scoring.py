"""Scores of small boards computed by hand, and of published figures."""

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.competition.scored import DAWNBENCH, MEDIAN, MLPERF, OURS, TARGET, a_run, submission

from levelbench.competition.entries import Inference, SubmittedCurve, SubmittedRun, SystemPrice
from levelbench.competition.rulesets import Aggregation
from levelbench.competition.scoring import aggregation_words, score, sweep, thinned
from levelbench.records.schema import Target


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
    price = SystemPrice(usd_per_hour) if usd_per_hour else None
    found = score(submission([a_run(hours * 3600)], price=price), DAWNBENCH)
    assert found.time.value == pytest.approx(seconds, abs=0.005)
    assert (found.time.low, found.time.high) == (None, None)
    if usd is None:
        assert found.cost.value is None
        assert "price-missing" in found.flags
    else:
        assert found.cost.value == pytest.approx(usd, abs=5e-5)


def test_the_first_crossing_counts_and_a_later_fall_is_reported():
    curve = SubmittedCurve([1.0, 2.0, 3.0, 4.0], [0.9, 0.94, 0.93, 0.95])
    found = score(submission([SubmittedRun(curve)]), DAWNBENCH)
    assert found.time.value == 2.0
    assert "falls-back" in found.flags
    assert score(submission([SubmittedRun(curve)]), OURS).time.value is None


def test_a_curve_that_ends_at_its_crossing_is_reported():
    found = score(submission([SubmittedRun(SubmittedCurve([1.0, 2.0], [0.9, 0.95]))]), DAWNBENCH)
    assert "stops-at-target" in found.flags


def test_a_schedule_of_fixed_length_is_judged_at_its_end():
    fixed = submission([SubmittedRun(SubmittedCurve([1.0, 2.0], [0.9, 0.95]))], crossing="final")
    assert score(fixed, OURS).time.value == 2.0
    assert "judged-at-end" in score(fixed, OURS).flags
    assert score(submission(fixed.runs), OURS).time.value is None
    assert "judged-at-end" not in score(submission(fixed.runs), OURS).flags


def test_another_threshold_moves_the_crossing():
    runs = [SubmittedRun(SubmittedCurve([1.0, 2.0, 3.0], [0.9, 0.94, 0.96]))]
    assert [each.value for each in sweep(submission(runs), DAWNBENCH, [0.9, 0.94, 0.95, 0.97])] == [1.0, 2.0, 3.0, None]


def test_a_lower_quality_may_be_the_better_one():
    target = next(each.target for each in OURS.tasks if each.task == "charlm")
    runs = [SubmittedRun(SubmittedCurve([1.0, 2.0, 3.0], [2.5, 1.8, 1.7]))]
    assert score(submission(runs, task="charlm", target=target), MEDIAN).time.value == 2.0


def test_another_metric_is_not_scored_unless_the_curve_has_the_wanted_one_too():
    other = msgspec.structs.replace(TARGET, metric="top5")
    plain = SubmittedRun(SubmittedCurve([1.0, 2.0], [0.95, 0.96]))
    both = SubmittedRun(SubmittedCurve([1.0, 2.0], [0.95, 0.96], others={"top1": [0.9, 0.94]}))
    found = score(submission([plain], target=other), DAWNBENCH)
    assert found.time.value is None
    assert "other-metric" in found.flags
    assert score(submission([both], target=other), DAWNBENCH).time.value == 2.0


def test_an_unknown_task_has_no_figure_and_the_reason():
    found = score(submission([a_run(10.0)], task="chess"), OURS)
    assert found.time.how == "levelbench-1.0 has no task 'chess'"


def test_a_price_that_is_not_on_demand_makes_no_cost():
    found = score(submission([a_run(10.0)], price=SystemPrice(1.0, on_demand=False)), DAWNBENCH)
    assert found.cost.value is None
    assert "on-demand" in found.cost.how


@pytest.mark.parametrize("rule", ["first-run", "olympic", "median"])
def test_every_aggregation_is_a_sentence(rule):
    assert aggregation_words(Aggregation(rule, 5, 1)).endswith(".")


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (Aggregation("olympic", 5, 1, windows="upper"), "windows of 5 in the order of their start counts; of two"),
        (Aggregation("median", 15, best_of=5), "over studies of the fastest of 5 runs each, 15 runs or more"),
    ],
)
def test_windows_and_studies_are_in_the_sentence(rules, words):
    assert words in aggregation_words(rules)


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
    runs = [SubmittedRun(SubmittedCurve(times, values)) for times, values in curves]
    found = score(submission(runs, price=SystemPrice(price)), rules)
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
