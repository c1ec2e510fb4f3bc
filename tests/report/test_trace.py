"""Runs as traces for Perfetto."""

import dataclasses
import json

import pytest

from levelbench.records.schema import Samples
from levelbench.report.trace import trace_json


def steps_of(record, factor=1.0):
    """A time for each of its steps, together less than the time between evaluations that is not evaluation."""
    count = record.evaluations[-1].step
    return {"step_time": Samples("step_time", "ns", [int(1e6 * factor)] * count)}


@pytest.fixture
def record(make):
    found = make()
    return dataclasses.replace(found, samples=steps_of(found))


@pytest.fixture
def team(record):
    talk = {"communicate_time": Samples("communicate_time", "ns", [300_000] * record.evaluations[-1].step)}
    return dataclasses.replace(record, ranks={0: steps_of(record) | talk, 1: steps_of(record, 0.5) | talk})


def trace(*records):
    return json.loads(trace_json([(f"run {at}", each) for at, each in enumerate(records)]))["traceEvents"]


def slices(events, **wanted):
    return [each for each in events if each["ph"] == "X" and all(each[name] == is_ for name, is_ in wanted.items())]


def test_the_stretches_between_evaluations_cover_the_run_without_a_gap(record):
    found = [each for each in slices(trace(record), tid=1) if each["name"].startswith("to ")]
    assert len(found) == len(record.evaluations)
    ends = [each["ts"] + each["dur"] for each in found]
    assert [each["ts"] for each in found] == pytest.approx([0.0, *ends[:-1]])
    assert ends[-1] == pytest.approx(record.end.t_ns / 1e3)


def test_the_slices_of_a_phase_sum_to_its_time_in_the_record(record):
    for phase, total_ns in record.end.phases_ns.items():
        found = slices(trace(record), tid=1, name=phase)
        assert sum(each["dur"] for each in found) == pytest.approx(total_ns / 1e3)


@pytest.fixture
def woken_late(team):
    """As the team, but its second rank leaves every other step later than the first, and is quicker in the next."""
    took = [each * (1.2 if at % 2 else 0.8) for at, each in enumerate(team.ranks[0]["step_time"].values)]
    late = team.ranks[1] | {"step_time": Samples("step_time", "ns", took)}
    return dataclasses.replace(team, ranks={0: team.ranks[0], 1: late})


@pytest.mark.parametrize("which", ["record", "team", "woken_late"])
def test_slices_of_a_track_lie_inside_each_other_or_apart(which, request):
    events = trace(request.getfixturevalue(which))
    for track in {each["tid"] for each in slices(events)}:
        open_until = []
        for each in sorted(slices(events, tid=track), key=lambda each: (each["ts"], -each["dur"])):
            while open_until and open_until[-1] <= each["ts"] + 1e-6:
                open_until.pop()
            assert not open_until or each["ts"] + each["dur"] <= open_until[-1] + 1e-3
            open_until.append(each["ts"] + each["dur"])


def test_each_step_has_its_length_and_the_last_ends_where_the_evaluation_begins(record):
    steps = [each for each in slices(trace(record), tid=2) if each["name"].startswith("step")]
    first = record.evaluations[0]
    assert len(steps) == record.evaluations[-1].step
    assert {each["dur"] for each in steps} == {1e3}
    end = steps[first.step - 1]["ts"] + steps[first.step - 1]["dur"]
    assert end == pytest.approx((first.t_ns - first.phases_ns["evaluate"]) / 1e3)


def test_every_rank_has_a_track_with_its_communication_at_the_end_of_each_step(team):
    events = trace(team)
    names = {each["args"]["name"] for each in events if each["name"] == "thread_name"}
    assert {"steps of rank 0", "steps of rank 1"} <= names
    step, talk = slices(events, tid=3, name="step 1")[0], slices(events, tid=3, name="communicate")[0]
    assert step["ts"] + step["dur"] == pytest.approx(talk["ts"] + talk["dur"])
    assert talk["dur"] == 300


def test_ranks_that_leave_a_step_together_end_it_at_the_same_time(team):
    events = trace(team)
    ends = [
        {
            each["name"]: each["ts"] + each["dur"]
            for each in slices(events, tid=track)
            if each["name"].startswith("step")
        }
        for track in (2, 3)
    ]
    assert ends[0] == pytest.approx(ends[1])


def test_ranks_that_do_not_step_together_are_drawn_each_by_its_own_times(team):
    apart = {"lockstep": Samples("lockstep", "1", [0.0])}
    team = dataclasses.replace(team, ranks={rank: each | apart for rank, each in team.ranks.items()})
    steps = [each for each in slices(trace(team), tid=3) if each["name"].startswith("step")]
    assert steps[0]["ts"] + steps[0]["dur"] == pytest.approx(steps[1]["ts"])


def test_quality_and_loss_are_counters_at_the_time_of_their_evaluation(record):
    counted = [each for each in trace(record) if each["ph"] == "C" and each["name"] == "validation"]
    assert [each["ts"] for each in counted] == [each.t_ns / 1e3 for each in record.evaluations]
    assert counted[-1]["args"] == {"validation": record.evaluations[-1].quality["validation"]}


def test_runs_are_processes_of_their_own(record):
    named = [each for each in trace(record, record) if each["name"] == "process_name"]
    assert [(each["pid"], each["args"]["name"]) for each in named] == [(1, "run 0"), (2, "run 1")]


def test_a_run_without_an_evaluation_has_its_steps_all_the_same(record):
    begun = dataclasses.replace(record, evaluations=(), end=None, status="interrupted")
    assert len(slices(trace(begun), tid=2)) == record.evaluations[-1].step


def test_ranks_that_do_not_step_together_are_placed_by_when_they_came_to_an_evaluation(team):
    met = [each.t_ns - 4_000_000 for each in team.evaluations]
    apart = {"lockstep": Samples("lockstep", "1", [0])}
    ranks = {rank: each | apart for rank, each in team.ranks.items()}
    ranks[1] = ranks[1] | {"met_at": Samples("met_at", "ns", met)}
    found = slices(trace(dataclasses.replace(team, ranks=ranks)), tid=3)
    ends = {each["name"]: each["ts"] + each["dur"] for each in found if each["name"].startswith("step")}
    assert [ends[f"step {each.step}"] for each in team.evaluations] == pytest.approx([ns / 1e3 for ns in met])
