"""Efficiencies against closed forms, and what is not claimed."""

import dataclasses

import msgspec
import pytest

from levelbench.analysis.scaling import CROWDED, scaling
from levelbench.records import Distribution, RunGroup
from levelbench.records.reader import Record
from levelbench.records.schema import End, Evaluation, Header, Source

SECOND = 1_000_000_000


@pytest.fixture
def point(run, specification):
    """A group of runs on so many ranks, and their records: ``point(ranks, times_s, epoch_s)``."""

    def make(ranks, times, epoch_s=1.0, threads=1, scheme="all-reduce", cores=64, **team_facts):
        team = Distribution(ranks, scheme, {}, "process", "gloo") if ranks > 1 else None
        spec = msgspec.structs.replace(specification, distribution=team)
        environment = {"machine": {"id": "m1", "cores_allowed": cores}, "framework": {"threads": threads}}
        runs = [
            run(time, seed=seed, distribution=team, path=f"{ranks}-{scheme}-{seed}", environment=environment)
            for seed, time in enumerate(times)
        ]
        phases = {"forward": round(4 * epoch_s * SECOND), "evaluate": 9 * SECOND}
        records = [
            Record(
                each.path,
                Header(1, "i", "k", seed, "", spec, {}, Source("", "", ""), ""),
                (Evaluation(13 * SECOND, 40, 4.0, 400, {"validation": 0.9}, 1.0, phases),),
                {},
                (),
                End("done", 1, {}, environment_after={"team": team_facts}),
                "done",
            )
            for seed, each in enumerate(runs)
        ]
        return RunGroup(f"digits[ranks={ranks}]", f"k{ranks}{scheme}", spec, tuple(runs)), records

    return make


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


def test_no_sentence_is_said_of_crowded_ranks(point):
    assert found(point(1, [4.0, 4.0, 4.0]), point(4, [2.0, 2.0, 2.0], cores=2)).answers == ()


def test_time_per_epoch_is_training_alone(point):
    (only,) = found(point(1, [4.0, 4.0], epoch_s=1.5)).points
    assert only.epoch_s.value == pytest.approx(1.5)


def test_an_efficiency_has_the_interval_of_the_ratio(point):
    _, two = found(point(1, [4.0, 4.4, 4.2]), point(2, [2.0, 2.2, 2.1])).points
    assert two.to_accuracy.low < 1.0 < two.to_accuracy.high


def test_a_process_alone_with_all_cores_is_no_better_base_than_one_with_one(point):
    _, two = found(point(1, [4.0, 4.0], threads=2), point(2, [4.0, 4.0], threads=1)).points
    assert two.to_accuracy.value == pytest.approx(1.0)


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
