"""Checkpoints: complete files, and training that resumes bitwise as if nothing had happened."""

import csv

import numpy as np
import pytest

from levelbench.errors import DataError, StoreError
from levelbench.frameworks.numpy import framework
from levelbench.measure.clocks import FakeClock
from levelbench.measure.timeline import Timeline
from levelbench.networks import Draw, GraphBuilder
from levelbench.operators.frameworks import load_framework
from levelbench.records import locks
from levelbench.training import Adam, Momentum, Observer, OneCycle, Recipe, Shuffled, Top1, Trainer
from levelbench.training.checkpoints import (
    RunPosition,
    Saving,
    Snapshot,
    checkpoint_of,
    load,
    part_of,
    remove_all,
    save,
)
from levelbench.training.datasets.base import Dataset, Split
from levelbench.training.observers.files import Tables
from levelbench.training.optimizers import ScheduleFreeAdamW
from levelbench.training.stopping import Evaluate, Stopping


def make_dataset():
    random = np.random.default_rng(0)

    def split(count):
        labels = np.arange(count) % 2
        return Split.of((random.standard_normal((count, 3)) + labels[:, None]).astype(np.float32), labels)

    return Dataset("toy", split(22), split(6), split(8), 2, {}, "none", "none", "made here", synthetic=True)


def network():
    g = GraphBuilder("small")
    value = g.input("images", ("batch", 3))
    weight = g.parameter("weight", (3, 8), Draw("normal", 0.5))
    ones, zeros = Draw("constant", 1.0), Draw("constant", 0.0)
    norm = [g.parameter("scale", (8,), ones), g.parameter("bias", (8,), zeros)]
    running = [g.parameter(name, (8,), draw, trainable=False) for name, draw in (("mean", zeros), ("var", ones))]
    value = g.node("BatchNormalization", g.node("MatMul", value, weight), *norm, *running)
    value = g.node("Dropout", g.node("Relu", value), g.constant(np.float32(0.5)))
    g.output(g.node("MatMul", value, g.parameter("last", (8, 2), Draw("normal", 0.5))), "logits")
    return g.build()


class Killed(Exception):
    """Ends a run in the middle."""


class KillAt(Observer):
    def __init__(self, step):
        self.step = step

    def on_step(self, progress):
        if progress.step == self.step:
            raise Killed


def make_trainer(backend, optimizer, path, *, every="3 steps", resume=None, observers=(), accumulate=1):
    recipe = Recipe(network(), Shuffled(4), optimizer, epochs=4, schedule=OneCycle(), accumulate=accumulate)
    quality = Top1(target=1.0)
    stopping = Stopping(quality.as_target(), "final", Evaluate.parse("2 steps"), 4)
    timeline = Timeline(FakeClock(tick_ns=1000), before_ns=resume.facts.totals_ns if resume else None)
    return Trainer(
        backend,
        make_dataset(),
        recipe,
        quality,
        stopping,
        seed=3,
        timeline=timeline,
        observers=observers,
        saving=Saving(path, Evaluate.parse(every), "key"),
        resume=resume,
    )


def outcome_and_state(trainer):
    outcome = trainer.run()
    arrays = {**trainer.executor.parameters, **trainer.executor.buffers}
    return outcome, {name: np.asarray(value).copy() for name, value in arrays.items()}


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [
        ("numpy", Momentum(0.1)),
        ("torch", Adam(0.01)),
        ("jax", Adam(0.01)),
        pytest.param("tensorflow", Adam(0.01), marks=pytest.mark.slow),
        pytest.param("tensorflow", ScheduleFreeAdamW(0.01), marks=pytest.mark.slow),
    ],
    ids=["numpy, momentum", "torch, adam", "jax, adam", "tensorflow, adam", "tensorflow, schedule-free"],
)
def test_resumed_training_is_bitwise_identical(tmp_path, name, optimizer):
    found = load_framework(name)
    if lacking := found.lacks():
        pytest.skip(lacking)
    backend = found.open()
    whole, expected = outcome_and_state(make_trainer(backend, optimizer, tmp_path / "whole.npz"))
    with pytest.raises(Killed):
        make_trainer(backend, optimizer, tmp_path / "cut.npz", observers=(KillAt(11),)).run()
    kept = load(tmp_path / "cut.npz")
    assert kept.facts.step == 9
    resumed, state = outcome_and_state(make_trainer(backend, optimizer, tmp_path / "cut.npz", resume=kept))
    assert {name: value.tobytes() for name, value in state.items()} == {
        name: value.tobytes() for name, value in expected.items()
    }
    assert [each.loss for each in resumed.evaluations] == [each.loss for each in whole.evaluations]
    assert [each.quality for each in resumed.evaluations] == [each.quality for each in whole.evaluations]
    assert resumed.quality == whole.quality


def test_a_resumed_run_has_the_complete_table_of_evaluations(tmp_path):
    path = tmp_path / "cut.npz"
    with pytest.raises(Killed):
        make_trainer(framework.open(), Momentum(0.1), path, observers=(KillAt(11),)).run()
    again = make_trainer(framework.open(), Momentum(0.1), path, resume=load(path), observers=(Tables(tmp_path, "run"),))
    outcome = again.run()
    with (tmp_path / "run-evaluations.csv").open() as file:
        found = [(int(row["step"]), float(row["validation"])) for row in csv.DictReader(file)]
    assert found == [(each.step, each.quality["validation"]) for each in outcome.evaluations]
    assert found[0][0] == 2
    with (tmp_path / "run-steps.csv").open() as file:
        assert [int(row["step"]) for row in csv.DictReader(file)] == list(range(9, 25))


def test_saving_checkpoints_does_not_change_training(tmp_path):
    first = make_trainer(framework.open(), Momentum(0.1), tmp_path / "a.npz", every="1 step").run()
    second = make_trainer(framework.open(), Momentum(0.1), tmp_path / "b.npz", every="1000 steps").run()
    assert [each.loss for each in first.evaluations] == [each.loss for each in second.evaluations]
    assert first.quality == second.quality


def test_the_time_before_counts_after_a_resume(tmp_path):
    path = tmp_path / "cut.npz"
    with pytest.raises(Killed):
        make_trainer(framework.open(), Momentum(0.1), path, observers=(KillAt(11),)).run()
    kept = load(path)
    outcome = make_trainer(framework.open(), Momentum(0.1), path, resume=kept).run()
    times = [each.t_ns for each in outcome.evaluations]
    assert times == sorted(times)
    assert times[-1] > sum(kept.facts.totals_ns.values()) > 0


def test_a_checkpoint_of_another_network_is_refused(tmp_path):
    path = tmp_path / "cut.npz"
    with pytest.raises(Killed):
        make_trainer(framework.open(), Momentum(0.1), path, observers=(KillAt(11),)).run()
    kept = load(path)
    del kept.arrays["parameter/" + next(iter(kept.of("parameter")))]
    with pytest.raises(DataError, match="are not this network's"):
        make_trainer(framework.open(), Momentum(0.1), path, resume=kept)


def snapshot():
    facts = RunPosition("key", 0, 5, 20, {"forward": 7}, [], [0.5], [3])
    return Snapshot(facts, {"parameter/a/b": np.arange(3.0), "optimizer/a": np.array(2)})


def test_a_saved_checkpoint_is_read_back(tmp_path):
    save(tmp_path / "a.npz", snapshot())
    found = load(tmp_path / "a.npz")
    assert found.facts == snapshot().facts
    assert found.of("parameter")["a/b"].tolist() == [0, 1, 2]
    assert [each.name for each in tmp_path.iterdir()] == ["a.npz"]


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04", b"no zip"])
def test_a_damaged_checkpoint_is_an_error_that_says_what_to_do(tmp_path, damage):
    (tmp_path / "a.npz").write_bytes(damage)
    with pytest.raises(DataError, match="starts again"):
        load(tmp_path / "a.npz")


def test_a_truncated_checkpoint_is_an_error(tmp_path):
    save(tmp_path / "a.npz", snapshot())
    whole = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError):
        load(tmp_path / "a.npz")


def test_a_checkpoint_with_objects_is_not_unpickled(tmp_path):
    np.savez(tmp_path / "a.npz", **{"facts.json": np.array([object()], dtype=object)}, allow_pickle=True)
    with pytest.raises(DataError):
        load(tmp_path / "a.npz")


def test_a_failed_write_keeps_the_previous_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    save(path, snapshot())
    before = path.read_bytes()

    def full(*arguments, **named):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(StoreError, match="No space left"):
        save(path, snapshot())
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["a.npz"]


def test_a_checkpoint_is_next_to_its_record(tmp_path):
    assert checkpoint_of(tmp_path / "x-s0-ab.jsonl") == tmp_path / "x-s0-ab.checkpoint.npz"


def test_drafts_of_a_killed_process_are_removed_with_its_checkpoints(tmp_path):
    record = tmp_path / "2026-01-02" / "0123abcd-s1-aaaa.jsonl"
    record.parent.mkdir()
    whole = checkpoint_of(record)
    draft, part = (path.with_name(f".{path.name}.new") for path in (whole, part_of(whole, 5, 1)))
    other = whole.with_name(f".{whole.name.replace('-s1-', '-s2-')}.new")
    for path in (record, whole, draft, part, other):
        path.write_bytes(b"")
    with record.open("rb") as file:
        locks.hold(file.fileno())
        remove_all(record, "0123abcd" * 8, 1)
        assert draft.exists()
        assert part.exists()
    remove_all(record, "0123abcd" * 8, 1)
    assert sorted(path.name for path in record.parent.iterdir()) == sorted([record.name, other.name])
