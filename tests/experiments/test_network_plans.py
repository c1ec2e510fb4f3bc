"""What a benchmark of networks has still to run, and why."""

import pytest
from tests.experiments.network_runs import NOW, specification

from levelbench import __version__
from levelbench.errors import MissingError, UsageError
from levelbench.experiments import replicates
from levelbench.experiments.networks import plan_networks
from levelbench.records import key_of
from levelbench.records.networks import NetworkArm, NetworkHeader, NetworkOutcome, NetworkRecord, NetworkWriter
from levelbench.records.processes import ProcessEnd


def begin(store, spec, seed=0, environment=NOW, version=__version__):
    started = "2026-01-02T03:04:05.000+00:00"
    header = NetworkHeader(1, f"id{seed}", key_of(spec), seed, started, spec, environment, version)
    return NetworkWriter.begin(store, header)


def write(store, spec, seed=0, end=True, **more):
    with begin(store, spec, seed, **more) as writer:
        writer.add(NetworkOutcome("measured"))
        if end:
            writer.add(ProcessEnd())
    return NetworkRecord.read(writer.path)


@pytest.fixture
def anything_is_here(monkeypatch):
    here = type("Here", (), {"lacks": lambda self, device: None})
    monkeypatch.setattr(replicates, "load_framework", lambda name: here())


@pytest.mark.usefixtures("anything_is_here")
def test_without_records_all_is_to_go_and_arms_take_turns_at_each_case(tmp_path):
    grid = [[specification(name, batch) for name in ("a", "b")] for batch in (1, 8)]
    plan = plan_networks(grid, 2, tmp_path, NOW)
    places = [step.place for step in plan.steps]
    assert places == [(0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0), (0, 1, 1), (0, 0, 1), (1, 1, 1), (1, 0, 1)]
    assert plan.specification(plan.steps[3]) == specification("b", 8)


def test_a_process_that_is_done_is_not_made_again(tmp_path):
    write(tmp_path, specification(), 1)
    plan = plan_networks([[specification()]], 3, tmp_path, NOW)
    assert list(plan.done) == [(0, 0, 1)]
    assert [step.seed for step in plan.steps] == [0, 2]
    assert plan.lines() == ["3 processes wanted · 1 done · 2 to go"]


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({"end": False}, "interrupted"),
        ({"environment": {**NOW, "machine": {"id": "m2"}}}, "another machine"),
        ({"environment": {**NOW, "libraries": {"numpy": "1.0"}}}, "numpy 1.0"),
        ({"version": "0.0.0"}, "levelbench 0.0.0"),
    ],
)
def test_a_process_that_does_not_count_is_made_again_and_the_plan_says_why(tmp_path, record, why):
    write(tmp_path, specification(), **record)
    plan = plan_networks([[specification()]], 1, tmp_path, NOW)
    assert not plan.done
    assert why in plan.lines()[1]


def test_fresh_counts_nothing_as_done(tmp_path):
    write(tmp_path, specification())
    assert len(plan_networks([[specification()]], 1, tmp_path, NOW, fresh=True).steps) == 1


def test_a_process_that_is_at_it_right_now_is_not_joined(tmp_path):
    with begin(tmp_path, specification()), pytest.raises(UsageError, match="right now"):
        plan_networks([[specification()]], 1, tmp_path, NOW)


def test_a_device_that_is_not_here_is_missing_before_anything_is_measured(tmp_path):
    elsewhere = specification(arm=NetworkArm("numpy", "", "cuda"))
    with pytest.raises(MissingError, match="numpy runs on cpu only"):
        plan_networks([[elsewhere]], 1, tmp_path, NOW)
