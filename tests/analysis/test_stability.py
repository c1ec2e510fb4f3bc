"""Stability: the variation with the share that arrives, what a claim needs, the best of several, sources of spread."""

import dataclasses
import math

import msgspec
import numpy as np
import pytest
from benchmarks.analysis import stability_group
from scipy import stats

from levelbench.analysis.stability import by_machine, stability
from levelbench.errors import UsageError
from levelbench.measure.statistics import runs_needed_t, wilson
from levelbench.report.studies import stability_tables


@pytest.fixture
def study():
    return stability_group


def part(found, source):
    return next(each for each in found.parts if each.source == source)


def test_the_record_of_kakao_brain_reaches_its_target_in_two_of_three_runs(run, group):
    # wbaek/torchskeleton: 33 of 50 runs reach 94 % within their 27.98 s.
    missed = [run(None, seed=seed, given_up_s=27.98) for seed in range(33, 50)]
    arrived = [run(27.98 + 1e-3 * seed, seed=seed) for seed in range(33)]
    found = stability(group("digits", [*arrived, *missed]))
    assert (found.reached, found.n) == (33, 50)
    assert (round(found.share.low, 2), round(found.share.high, 2)) == (0.52, 0.78)
    assert found.restarts.value == pytest.approx(27.98 / 0.66, rel=1e-3)
    assert 27.98 / 0.66 in found.restarts.interval
    assert any("17 of 50 runs" in line for line in found.lacks)


def test_runs_whose_epochs_are_done_never_arrive_so_no_more_runs_reach_the_target_than_did(run, group):
    arrived = [run(28.0 + 0.01 * seed, seed=seed) for seed in range(33)]
    ended = [run(None, seed=seed, given_up_s=27.98, trained_out=True) for seed in range(33, 50)]
    found = stability(group("digits", [*arrived, *ended]))
    assert found.curve.quantile(0.65).value == pytest.approx(28.32)
    assert math.isinf(found.curve.quantile(0.75).value)
    assert found.trained_out == 17


def test_a_run_that_was_given_up_at_a_budget_stays_censored(run, group):
    arrived = [run(28.0 + 0.01 * seed, seed=seed) for seed in range(33)]
    stopped = [run(None, seed=seed, given_up_s=27.98) for seed in range(33, 50)]
    found = stability(group("digits", [*arrived, *stopped]))
    assert math.isfinite(found.curve.quantile(0.75).value)
    assert found.trained_out == 0


def test_the_variation_is_that_of_the_runs_that_arrived_and_the_curve_counts_all(study):
    times = [2.0, 2.2, None, 1.9, 2.1]
    found = stability(study(times))
    assert found.variation.value == pytest.approx(stats.variation([2.0, 2.2, 1.9, 2.1], ddof=1))
    assert found.curve.n == 5
    theirs = stats.ecdf(stats.CensoredData(uncensored=[2.0, 2.2, 1.9, 2.1], right=[5.0])).sf
    assert found.curve.at(2.05) == pytest.approx(float(theirs.evaluate(2.05)))


def test_a_claim_needs_the_runs_of_the_power_analysis_and_more_if_the_variation_is_larger(study):
    times = [2.0, 2.2, 1.9, 2.1, 2.3, 1.8]
    found = stability(study(times), effects=[0.05, 0.2])
    deviation = float(np.log(times).std(ddof=1))
    small, large = found.needed
    assert small.runs == runs_needed_t(deviation, math.log(1.05))
    assert small.low < small.runs < small.high
    assert large.runs < small.runs


def test_the_best_of_several_runs_is_below_the_typical_one_by_what_simulation_says(study):
    rng = np.random.default_rng(2)
    times = np.exp(0.1 * rng.standard_normal(400)).tolist()
    found = {each.count: each for each in stability(study(times)).best_of}
    truth = math.exp(np.mean(0.1 * rng.standard_normal((20_000, 5)).min(axis=1)))
    assert found[5].low < truth < found[5].high
    assert found[5].seen == pytest.approx(truth, rel=0.02)
    assert found[5].overstated == pytest.approx(1 / found[5].expected - 1)


def test_no_more_runs_are_chosen_from_than_there_are(study):
    found = {each.count: each.seen for each in stability(study([2.0, 2.2, 1.9])).best_of}
    assert found[2] is not None
    assert found[3] is not None
    assert found[5] is None


def test_samples_and_time_per_sample_share_the_variance_of_the_time(study):
    samples = [1000, 1200, 900, 1100, 1300]
    found = stability(study([each * 1e-3 * (1 + 0.001 * at) for at, each in enumerate(samples)], samples))
    luck, machine = part(found, "samples to target"), part(found, "time per sample")
    assert luck.share + machine.share == pytest.approx(1.0)
    assert luck.share > 0.95
    assert luck.deviation == pytest.approx(np.log(samples).std(ddof=1))
    assert luck.deviation in luck.interval


def test_seeds_that_are_run_again_on_other_days_tell_seed_and_session_from_the_rest(study):
    rng = np.random.default_rng(4)
    seeds = [seed for _ in range(4) for seed in range(12)]
    days = [day for day in range(4) for _ in range(12)]
    of_seed, of_day = 0.3 * rng.standard_normal(12), 0.1 * rng.standard_normal(4)
    times = [math.exp(of_seed[s] + of_day[d] + 0.02 * rng.standard_normal()) for s, d in zip(seeds, days, strict=True)]
    found = stability(study(times, day=days, seeds=seeds))
    assert found.n == 12
    assert part(found, "seed").deviation == pytest.approx(of_seed.std(ddof=1), rel=0.1)
    assert part(found, "session").deviation == pytest.approx(of_day.std(ddof=1), rel=0.2)
    assert part(found, "run to run").deviation == pytest.approx(0.02, rel=0.4)
    assert part(found, "seed").ratio.low > 5


def test_runs_that_get_slower_show_a_drift(study):
    rng = np.random.default_rng(6)
    found = stability(study([math.exp(0.03 * at + 0.01 * rng.standard_normal()) for at in range(12)]))
    assert 0.03 in part(found, "order").slope.interval
    assert part(found, "order").slope.interval.low > 0


def test_runs_that_vary_too_much_to_show_a_drift_say_so_in_words(study):
    order = part(stability(study([2.0, 900.0, 3.0])), "order")
    assert order.slope is None
    assert order.reason == "the runs are too few to show a drift"


def test_one_session_and_no_repeated_seed_say_what_to_run(study):
    found = stability(study([2.0, 2.2, 1.9, 2.1]))
    assert "run the same seeds into another --store" in part(found, "seed").reason
    assert "six hours" in part(found, "session").reason


def test_runs_of_a_session_each_are_not_said_to_be_of_one(study):
    found = stability(study([2.0, 2.2, 1.9, 2.1], day=[0, 1, 2, 3]))
    assert part(found, "session").reason.startswith("each run is a session of its own: make several in a row")


@pytest.mark.parametrize(
    ("times", "line"),
    [
        ([2.0], "one has no spread"),
        ([2.0, 2.1], "without an interval"),
        ([None, None, None], "no run of digits reached the target (3 tried; at most 56% would)"),
        ([2.0, 2.0, 2.0, 2.0], "the times are all the same"),
    ],
)
def test_what_is_missing_is_said_with_how_to_get_it(study, times, line):
    assert any(line in each for each in stability(study(times)).lacks)


def test_a_single_run_and_runs_that_all_missed_have_no_figure_of_their_spread(study):
    one, none = stability(study([2.0])), stability(study([None] * 4))
    for found in (one, none):
        assert found.variation is None
        assert (found.needed, found.best_of, found.parts) == ((), (), ())
    assert one.restarts.interval is None
    assert none.restarts is None


def test_times_that_are_all_the_same_have_no_variation_instead_of_a_sure_one_of_zero(study):
    found = stability(study([2.0] * 6))
    assert found.variation is None
    assert "do not vary" in repr(stability_tables([found])[0].rows)


def test_unfinished_runs_are_counted_apart(study, run):
    group = dataclasses.replace(study([2.0, 2.1, 2.2]), unfinished=(run(None, status="running"),))
    found = stability(group)
    assert (found.n, found.unfinished) == (3, 1)
    assert any("1 run of digits is still running" in each for each in found.lacks)


@pytest.mark.parametrize(("evaluations", "said"), [((5, 5, 5, 5, 5), True), ((5, 5, 5, 5, 6), False)])
def test_runs_that_all_arrive_at_one_evaluation_are_said_to_leave_out_later_ones(study, evaluations, said):
    group = study([2.0, 2.01, 2.02, 2.01, 2.0])
    pairs = zip(group.runs, evaluations, strict=True)
    runs = tuple(msgspec.structs.replace(run, evaluations=each) for run, each in pairs)
    lacks = stability(dataclasses.replace(group, runs=runs)).lacks
    # None of five is late: 1 - 0.05 ** (1 / 5).
    assert any("at evaluation 5: up to 45% of all may need another one" in line for line in lacks) is said


def test_runs_of_several_machines_have_a_spread_each(study):
    group = study([2.0, 2.1, 9.0, 9.1])
    machines = [{"machine": {"id": name, "cpu": {"model": name}}} for name in ("one", "one", "two", "two")]
    runs = [msgspec.structs.replace(each, environment=there) for each, there in zip(group.runs, machines, strict=True)]
    one, two = by_machine([dataclasses.replace(group, runs=tuple(runs))])
    assert (one.label, one.n, two.n) == ("digits on machine 1 of 2", 2, 2)


def test_runs_that_do_not_say_where_they_ran_stay_together_with_a_doubt(study):
    group = study([2.0, 2.1, 2.3])
    runs = tuple(msgspec.structs.replace(run, environment={"started": "imported"}) for run in group.runs)
    (one,) = by_machine([dataclasses.replace(group, runs=runs)])
    assert (one.label, one.n) == ("digits", 3)
    assert any("do not say on which machine they ran" in line for line in stability(one).lacks)
    assert not any("on which machine" in line for line in stability(group).lacks)


def test_seeds_that_ran_on_two_machines_count_on_each(study):
    there = [{"machine": {"id": name, "cpu": {"model": name}}} for name in ("one", "two")]
    one, two = (
        tuple(msgspec.structs.replace(run, environment=where) for run in study(times).runs)
        for where, times in zip(there, ([2.0, 2.1, 2.3], [9.0, 9.1, 9.4]), strict=True)
    )
    found = by_machine([dataclasses.replace(study([2.0, 2.1, 2.3]), runs=one, repeats=two)])
    assert [(each.n, each.repeats) for each in found] == [(3, ()), (3, ())]
    assert [max(each.times()) for each in found] == [2.3, 9.4]


def test_a_group_of_one_machine_keeps_its_label(study):
    group = study([2.0, 2.1])
    assert by_machine([group]) == [group]


@pytest.mark.parametrize("effect", [0.0, -0.1, math.nan])
def test_an_impossible_claim_is_refused(study, effect):
    with pytest.raises(UsageError, match="above zero"):
        stability(study([2.0, 2.1]), effects=[effect])


def test_a_group_in_which_no_run_has_ended_is_refused(group):
    with pytest.raises(UsageError, match="none of its runs has ended"):
        stability(group("digits", []))


@pytest.mark.parametrize(
    ("budget", "miss_s"),
    [
        ({"budget_s": 9.0}, 9.0),
        ({"budget_epochs": 60.0}, 6.0),
        ({"budget_samples": 4000, "budget_s": 9.0}, 4.0),
        ({}, 1.1),
    ],
)
def test_a_miss_that_no_run_shows_costs_a_run_its_budget(run, group, budget, miss_s):
    times = [0.9, 1.1, 1.0, 1.0, 0.95, 1.05, 1.0, 1.0]
    runs = [run(time, 1000, seed=at, **budget) for at, time in enumerate(times)]
    found = stability(group("g", runs)).restarts
    odds = 1 / wilson(8, 8).low - 1
    assert found.interval.high == pytest.approx(1.0 + odds * miss_s, rel=0.02)
