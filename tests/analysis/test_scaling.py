"""Efficiencies against closed forms, and what is not claimed."""

import dataclasses
import math

import msgspec
import numpy as np
import pytest
from benchmarks.analysis import RANKS, law_times, scaled_point

from levelbench.analysis.scaling import CROWDED, EntryRuns, fit_scaling, scaling, scaling_of_entries
from levelbench.errors import UsageError
from levelbench.measure.statistics import amdahl_bound


@pytest.fixture
def point():
    return scaled_point


def found(*points):
    return scaling("t", [group for group, _ in points], [record for _, records in points for record in records])


def test_efficiency_is_the_speed_up_over_how_many_times_the_ranks(point):
    one, four = found(point(4, [2.0, 2.0, 2.0], epoch_s=0.25), point(1, [4.0, 4.0, 4.0], epoch_s=1.0)).points
    assert (one.ranks, four.ranks) == (1, 4)
    assert four.to_accuracy.value == pytest.approx(0.5)
    assert four.per_epoch.value == pytest.approx(1.0)
    assert one.to_accuracy.value == 1


@pytest.mark.parametrize(
    ("times", "answer"),
    [
        ([2.0, 2.01, 2.02], "sooner than digits[ranks=1]: it takes 0.502 ["),
        ([8.0, 8.1, 8.2], "later than digits[ranks=1]: it takes 2.02 ["),
        ([2.0, 4.0, 8.0], "neither clearly sooner nor clearly later than digits[ranks=1]: it takes 1 ["),
    ],
)
def test_a_sentence_says_whether_more_ranks_reach_the_target_sooner(point, times, answer):
    (said,) = found(point(1, [4.0, 4.01, 3.99]), point(2, times)).answers
    assert said.startswith(f"digits[ranks=2] reaches the target {answer}")


def test_an_efficiency_to_accuracy_allows_for_late_evaluations_that_few_runs_show(point):
    def tied(each):
        group, records = each
        runs = tuple(msgspec.structs.replace(run, evaluations=5) for run in group.runs)
        return dataclasses.replace(group, runs=runs), records

    study = found(tied(point(1, [4.0, 4.01, 3.99])), tied(point(2, [2.1, 2.11, 2.12])))
    # Of three pairs that tie, up to 63 % may be late, by two of five evaluations.
    late = (1 - 0.05 ** (1 / 3)) * math.log(7 / 5)
    efficiency = study.points[1].to_accuracy
    assert math.log(efficiency.value / efficiency.low) == pytest.approx(late)
    assert math.log(efficiency.high / efficiency.value) == pytest.approx(late)


def test_strong_and_weak_scaling_of_a_scheme_have_laws_of_their_own(point):
    study = found(
        point(1, [4.0, 4.01]),
        point(2, [2.0, 2.01]),
        point(4, [1.0, 1.01]),
        point(2, [3.0, 3.01], grows="weak"),
        point(4, [2.5, 2.51], grows="weak"),
    )
    laws = {each.scheme: each for each in study.laws if each.quantity == "accuracy"}
    assert set(laws) == {"all-reduce", "all-reduce, weak scaling"}
    assert laws["all-reduce"].serial == pytest.approx(0, abs=0.01)
    assert laws["all-reduce, weak scaling"].serial > 0.4
    assert {each.n for each in laws.values()} == {6}


def test_a_scheme_is_named_with_the_settings_in_which_the_compared_ones_differ(point):
    def made(ranks, **settings):
        group, records = point(ranks, [2.0, 2.01])
        team = msgspec.structs.replace(group.specification.distribution, settings=settings)
        specification = msgspec.structs.replace(group.specification, distribution=team)
        return dataclasses.replace(group, specification=specification), records

    same = found(point(1, [4.0, 4.01]), made(2, overlap=True, bucket_mb=25.0), made(4, overlap=True, bucket_mb=25.0))
    assert [each.scheme for each in same.points] == ["", "all-reduce", "all-reduce"]
    other = found(made(2, overlap=True, bucket_mb=25.0), made(4, overlap=True, bucket_mb=50.0))
    assert {each.scheme for each in other.points} == {"all-reduce[bucket_mb=25.0]", "all-reduce[bucket_mb=50.0]"}


def test_no_sentence_is_said_of_crowded_ranks(point):
    assert found(point(1, [4.0, 4.0, 4.0]), point(4, [2.0, 2.0, 2.0], cores=2)).answers == ()


def test_time_per_epoch_is_training_alone(point):
    (only,) = found(point(1, [4.0, 4.0], epoch_s=1.5)).points
    assert only.epoch_s.value == pytest.approx(1.5)


@pytest.mark.parametrize(("scored_by", "epoch_s"), [(None, 1.5), ("program", 2.5)])
def test_what_a_program_names_no_phase_of_is_training(point, scored_by, epoch_s):
    group, records = point(1, [4.0, 4.0], epoch_s=1.5)
    group = dataclasses.replace(group, specification=msgspec.structs.replace(group.specification, scored_by=scored_by))
    for record in records:
        record.evaluations[-1].phases_ns["other"] = 4_000_000_000
        record.evaluations[-1].phases_ns["prepare"] = 7_000_000_000
    (only,) = found((group, records)).points
    assert only.epoch_s.value == pytest.approx(epoch_s)


def test_a_program_that_names_no_time_of_training_has_no_time_per_epoch(point):
    (only,) = found(point(1, [4.0, 4.0], epoch_s=0.0)).points
    assert only.epoch_s is None


def test_an_efficiency_has_the_interval_of_the_ratio(point):
    _, two = found(point(1, [4.0, 4.4, 4.2]), point(2, [2.0, 2.2, 2.1])).points
    assert two.to_accuracy.low < 1.0 < two.to_accuracy.high


def test_a_process_alone_with_all_cores_is_no_better_base_than_one_with_one(point):
    _, two = found(point(1, [4.0, 4.0], threads=2), point(2, [4.0, 4.0], threads=1)).points
    assert two.to_accuracy.value == pytest.approx(1.0)


def test_no_efficiency_is_claimed_of_runs_with_different_numbers_of_threads(point):
    (group, records), (other, more) = point(2, [4.0, 4.1], threads=1), point(2, [4.0, 4.1], threads=2)
    mixed = dataclasses.replace(group, runs=(group.runs[0], other.runs[1])), [records[0], more[1]]
    study = found(point(1, [4.0, 4.1], threads=1), mixed)
    assert study.points[1].threads_said == "1 or 2"
    assert study.points[1].to_accuracy.value is None
    assert "1 or 2 threads each" in study.points[1].per_epoch.reason
    assert study.laws[0].counts == (1,)
    assert study.answers == ()


def test_a_ratio_without_an_interval_is_said_to_have_none(point):
    (said,) = found(point(1, [4.0]), point(2, [2.0])).answers
    assert said.startswith("digits[ranks=2] takes 0.5 times as long to the target as digits[ranks=1]")
    assert said.endswith("(no interval: one run has no spread)")


def test_no_efficiency_is_claimed_where_ranks_say_that_they_share_cores(point):
    result = found(point(1, [4.0, 4.0]), point(4, [4.0, 4.0], crowded=True))
    assert result.points[1].to_accuracy.value is None
    assert result.points[1].per_epoch.reason == CROWDED
    assert "on 4 ranks" in result.warnings[0]


def test_no_efficiency_is_claimed_where_threads_outnumber_cores(point):
    _, two = found(point(1, [4.0, 4.0], cores=2), point(2, [4.0, 4.0], threads=2, cores=2)).points
    assert two.crowded
    assert two.to_accuracy.value is None


def test_ranks_on_several_machines_are_judged_by_the_cores_of_each(point):
    facts = {"crowded": False, "ranks_by_host": [2, 2], "cores_by_host": [2, 2]}
    _, four = found(point(1, [4.0, 4.0], cores=2), point(4, [1.0, 1.0], cores=2, **facts)).points
    assert not four.crowded
    assert four.to_accuracy.value == pytest.approx(1.0)


def test_each_scheme_has_its_own_smallest_point_as_base_where_no_process_is_alone(point):
    dense, sparse = point(2, [4.0, 4.0]), point(2, [2.0, 2.0], scheme="top-k")
    more = point(4, [1.0, 1.0], scheme="top-k")
    points = {each.group.key: each for each in found(dense, sparse, more).points}
    assert points["k4top-k"].to_accuracy.value == pytest.approx(1.0)
    assert points["k2top-k"].to_accuracy.reason == "the base of the others"


def test_one_run_beside_several_is_compared_with_all_of_them(point):
    _, two = found(point(1, [4.0]), point(2, [1.0, 4.0])).points
    assert two.to_accuracy.value == pytest.approx(1.0)
    assert two.to_accuracy.low is None


def test_no_efficiency_to_accuracy_where_a_run_missed(point):
    _, two = found(point(1, [4.0, 4.0]), point(2, [2.0, None])).points
    assert two.to_accuracy.value is None
    assert "1 of 2 runs" in two.to_accuracy.reason
    assert two.per_epoch.value is not None


def test_one_run_has_a_value_and_no_spread(point):
    _, two = found(point(1, [4.0]), point(2, [2.0])).points
    assert (two.to_accuracy.value, two.to_accuracy.low) == (1.0, None)


def test_points_that_did_not_take_turns_have_no_interval(point, run):
    one, two = point(1, [4.0, 4.4, 4.2, 4.1]), point(2, [2.0, 2.2, 2.1, 2.3])
    later = [msgspec.structs.replace(each, started="2026-11-02T00:00:00+00:00") for each in two[0].runs]
    two = (dataclasses.replace(two[0], runs=tuple(later)), two[1])
    result = found(one, two)
    efficiency = result.points[1].to_accuracy
    assert efficiency.value == pytest.approx(0.97, abs=0.03)
    assert efficiency.low is None
    assert "not interleaved" in efficiency.reason
    assert any("not interleaved" in each for each in result.warnings)


def test_what_the_gate_finds_between_a_point_and_its_base_is_a_warning(point):
    one, two = point(1, [4.0, 4.4, 4.2]), point(2, [2.0, 2.2, 2.1])
    other = {**two[0].runs[0].environment, "machine": {"id": "m2", "cores_allowed": 64}}
    elsewhere = [msgspec.structs.replace(each, environment=other) for each in two[0].runs]
    result = found(one, (dataclasses.replace(two[0], runs=tuple(elsewhere)), two[1]))
    assert any("different machines" in each for each in result.warnings)
    assert not any("--across-machines" in each for each in result.warnings)


def test_the_pi_example_of_sc15_has_a_serial_share_of_one_percent():
    # Hoefler & Belli, SC15, section 5.1: a base of 20 ms, of which 0.2 ms are serial.
    law = fit_scaling("epoch", {ranks: [0.02 / amdahl_bound(ranks, 0.01)] * 2 for ranks in RANKS})
    assert law.serial == pytest.approx(0.0002 / 0.02, rel=1e-3)
    assert law.most == pytest.approx(100, rel=1e-3)
    assert law.base_s == pytest.approx(0.02, rel=1e-4)
    assert law.measured_s.value == pytest.approx(0.02)
    assert law.serial_interval is None
    assert any("lie exactly on it" in line for line in law.lacks)


def test_the_universal_law_is_fastest_where_it_was_made_to_be():
    rng, contention, coherency = np.random.default_rng(2), 0.05, 0.002
    times = {
        ranks: [
            9 * (1 + contention * (ranks - 1) + coherency * ranks * (ranks - 1)) / ranks * math.exp(0.01 * each)
            for each in rng.standard_normal(5)
        ]
        for ranks in (1, 2, 4, 8, 16, 32, 64)
    }
    law = fit_scaling("epoch", times)
    assert contention in law.contention_interval
    assert coherency in law.coherency_interval
    assert law.peak == pytest.approx(math.sqrt((1 - contention) / coherency), rel=0.1)
    assert any("Amdahl's law does not fit" in line for line in law.lacks)


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ({1: [4.0, 4.1]}, "reached the target on 1 rank alone"),
        ({}, "on no number of ranks"),
        ({1: [4.0], 2: [2.5]}, "2 runs are too few"),
        ({1: [4.0, 4.1, 4.05], 2: [2.5, 2.4, 2.6]}, "three parameters, and two numbers of ranks"),
        ({1: [8.0], 2: [4.5], 4: [2.7]}, "the Universal Scalability Law of an epoch has no interval"),
        ({1: [4.0, 4.1, 4.05], 2: [5.0, 5.1, 5.2]}, "which Amdahl's law cannot say"),
        ({1: [4.0, 4.1, 4.05], 2: [1.0, 1.1, 1.05]}, "falls at least in proportion"),
        ({2: [4.0, 4.1, 4.05], 4: [3.0, 3.1, 3.2]}, "the base of an epoch is extrapolated from 2"),
    ],
)
def test_what_a_law_lacks_is_said(times, said):
    assert any(said in line for line in fit_scaling("epoch", times).lacks)


def test_times_without_coherency_do_not_say_on_how_many_ranks_they_are_shortest():
    # Amdahl's law with a serial share of 0.2 exactly.
    law = fit_scaling("epoch", {1: [10, 10, 10], 2: [6, 6.0001, 6], 4: [4, 4, 4]})
    assert law.contention == pytest.approx(0.2, rel=1e-4)
    assert law.coherency < 1e-5
    assert law.peak == math.inf


def test_if_coherency_may_be_zero_no_number_of_ranks_is_the_fastest():
    rng = np.random.default_rng(0)
    times = {p: list(100 * (0.1 + 0.9 / p) * np.exp(0.01 * rng.standard_normal(3))) for p in (1, 2, 4, 8)}
    laws = [fit_scaling("epoch", {p: [t * scale for t in of] for p, of in times.items()}) for scale in (1, 2)]
    law = next(each for each in laws if each.coherency is not None)
    assert law.coherency_interval.low == 0.0
    assert law.peak == math.inf


def test_one_run_on_each_of_three_numbers_says_nothing_of_the_fastest():
    law = fit_scaling("epoch", {1: [10.0], 2: [6.0], 4: [5.0]})
    assert law.coherency > 0
    assert law.peak is None
    assert any("coherency has no interval" in line for line in law.lacks)


def test_if_more_ranks_are_slower_one_is_the_fastest_and_the_speed_up_is_none():
    law = fit_scaling("epoch", {1: [4.0, 4.1, 4.05], 2: [8.0, 8.1, 8.2], 4: [20.0, 20.5, 21.0]})
    assert law.most == 1.0
    assert law.peak == 1.0


def test_a_run_without_a_time_is_refused():
    with pytest.raises(UsageError, match="a run on 2 ranks took 0 s"):
        fit_scaling("epoch", {1: [4.0, 4.1], 2: [0.0, 2.0]})


def test_two_runs_and_a_censored_one_are_too_few_and_not_exact():
    law = fit_scaling("accuracy", {1: [4.0], 2: [2.5]}, {2: [3.0]})
    assert any("2 runs that reached the target are too few" in line for line in law.lacks)
    assert not any("exactly" in line for line in law.lacks)


def test_where_more_ranks_save_more_than_their_share_no_law_has_a_time_on_one_or_a_bound():
    pair = fit_scaling("accuracy", {1: [73.8], 4: [10.7]}, unit="accelerator")
    assert (pair.base_s, pair.serial, pair.most) == (None, None, None)
    assert pair.measured_s.value == pytest.approx(73.8)
    several = fit_scaling("epoch", {1: [4.0, 4.1, 4.05], 2: [1.0, 1.1, 1.05]})
    assert several.serial is None
    assert several.serial_interval.low == 0.0


def test_laws_are_fitted_to_epochs_and_to_time_to_accuracy_by_scheme(point):
    points = [point(1, [4.0, 4.1, 3.9]), point(2, [2.5, 2.6, 2.4], epoch_s=0.6), point(4, [2.0, 2.1, 1.9], epoch_s=0.4)]
    laws = found(*points).laws
    assert [(law.scheme, law.quantity, law.counts) for law in laws] == [
        ("all-reduce", "epoch", (1, 2, 4)),
        ("all-reduce", "accuracy", (1, 2, 4)),
    ]
    assert laws[1].serial in laws[1].serial_interval


def test_runs_that_missed_are_censored_in_the_law_of_time_to_accuracy(point):
    law = found(point(1, [4.0, 4.1, 3.9]), point(2, [2.5, None, 2.4]), point(4, [2.0, 2.1, 1.9])).laws[1]
    assert (law.n, law.censored) == (9, 1)


def test_crowded_points_are_in_no_law(point):
    law = found(point(1, [4.0, 4.1]), point(2, [2.5, 2.4]), point(4, [9.0, 9.1], cores=2)).laws[1]
    assert law.counts == (1, 2)
    alone = found(point(1, [4.0, 4.1]), point(4, [9.0, 9.1], cores=2)).laws[1]
    assert "on 1 rank alone, apart from those on 4, where threads outnumbered cores" in alone.lacks[0]
    assert "no more ranks times threads than there are cores" in alone.lacks[0]


def test_the_base_is_stated_in_seconds(point):
    assert found(point(1, [4.0, 4.0, 4.0]), point(2, [2.0, 2.1, 2.0])).base == (
        "base: digits[ranks=1] on 1 rank: 4 s to accuracy, 1 s an epoch (n = 3)"
    )


def test_entries_lose_more_to_accuracy_than_per_epoch_if_they_need_more_epochs():
    # Kakao Brain's entries to DAWNBench: 24 epochs in 57.05 s on one V100, 34 in 28.81 s on four (27.98 s to 94 %).
    entries = [EntryRuns("4 V100", 4, (27.98,), (28.811 / 34,)), EntryRuns("1 V100", 1, (57.046,), (57.046 / 24,))]
    one, four = scaling_of_entries("t", entries).points
    assert one.label == "1 V100"
    assert four.per_epoch.value == pytest.approx(57.046 / 24 / (28.811 / 34) / 4)
    assert four.to_accuracy.value == pytest.approx(57.046 / 27.98 / 4)
    assert four.to_accuracy.value < four.per_epoch.value


def test_a_hundred_thousand_runs_have_the_law_of_a_few():
    rng = np.random.default_rng(3)
    assert fit_scaling("epoch", law_times(rng, 0.1, runs=20_000)).serial == pytest.approx(0.1, rel=0.01)
