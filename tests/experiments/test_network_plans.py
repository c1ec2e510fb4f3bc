"""Plans of network benchmarks: what is left to run, and why."""

import pytest
from tests.experiments.network_runs import NOW, plan_of, specification

from levelbench import __version__
from levelbench.errors import MissingError, UsageError
from levelbench.operators import frameworks
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
    monkeypatch.setattr(frameworks, "load_framework", lambda name: here())


@pytest.mark.usefixtures("anything_is_here")
def test_without_records_everything_is_to_go_and_arms_take_turns_in_each_case(tmp_path):
    grid = [[specification(name, batch) for name in ("a", "b")] for batch in (1, 8)]
    plan = plan_of(grid, 3, tmp_path)
    orders = [[turn.arm for turn in plan.to_go if turn.seed == seed] for seed in range(3)]
    assert {*map(tuple, orders)} == {(0, 1, 2, 3), (1, 0, 3, 2)}
    assert [plan.case_of(turn) for turn in plan.to_go[:4]] == [0, 0, 1, 1]
    assert [(each.case.batch, each.arm.framework) for each in plan.arms] == [(1, "a"), (1, "b"), (8, "a"), (8, "b")]


def test_a_finished_process_is_not_repeated(tmp_path):
    write(tmp_path, specification(), 1)
    plan = plan_of([[specification()]], 3, tmp_path)
    assert list(plan.done) == [(0, 1)]
    assert [step.seed for step in plan.to_go] == [0, 2]
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
def test_a_process_that_does_not_count_is_repeated_and_the_plan_says_why(tmp_path, record, why):
    write(tmp_path, specification(), **record)
    plan = plan_of([[specification()]], 1, tmp_path)
    assert not plan.done
    assert why in plan.lines()[1]


def test_with_fresh_nothing_counts_as_done(tmp_path):
    write(tmp_path, specification())
    assert len(plan_of([[specification()]], 1, tmp_path, fresh=True).to_go) == 1


def test_a_process_in_progress_is_refused(tmp_path):
    with begin(tmp_path, specification()), pytest.raises(UsageError, match="another process is already running it"):
        plan_of([[specification()]], 1, tmp_path)


def test_a_missing_device_is_reported_before_anything_is_measured(tmp_path):
    elsewhere = specification(arm=NetworkArm("numpy", "", "cuda"))
    with pytest.raises(MissingError, match="numpy runs on cpu only"):
        plan_of([[elsewhere]], 1, tmp_path)
