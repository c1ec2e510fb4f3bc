"""Runs on several ranks: two real processes that leave one record, and how their errors are reported."""

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from tests.experiments.campaigns import Quiet, carry_out, plan_of
from tests.experiments.team_jobs import job, left_of, of_engine, said

from levelbench.distributed.launching import Failure
from levelbench.errors import LevelbenchError, UsageError
from levelbench.experiments.inference.models import find_model
from levelbench.experiments.jobs import Job, Message
from levelbench.experiments.request import Options, TeamOptions, resolve
from levelbench.experiments.teams import _error, run_team
from levelbench.measure.environment import capture
from levelbench.records import new_id
from levelbench.records.ranks import teamwork
from levelbench.training import datasets

pytest.importorskip("torch")

BROKEN = '''
"""A task whose second rank fails."""
import os

from levelbench.networks import zoo
from levelbench.training import Momentum, Recipe, Shuffled, Task, Top1, datasets

task = Task("broken", data=datasets.digits, quality=Top1(target=0.9))


@task.recipe
def small(hidden: int = 16) -> Recipe:
    """Small."""
    if os.environ.get("LEVELBENCH_RANK") == "1":
        {what}
    return Recipe(zoo.mlp(64, hidden, 10), Shuffled(64), Momentum(0.05), epochs=2)
'''


class Enough(Exception):
    """The test has seen enough."""


@pytest.fixture(autouse=True)
def one_thread_a_rank(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def run(reference, store, **team):
    arm = resolve(str(reference), {}, Options(framework="numpy", budget_epochs=2, team=TeamOptions(**team)))
    plan = plan_of([arm], [0], store, capture())
    return plan, carry_out(plan, store, None, Quiet())


@pytest.mark.slow
def test_two_ranks_leave_one_record_with_both_in_it(task_file, store):
    _, records = run(task_file, store, ranks=2)
    (record,) = records.values()
    assert record.status == "done"
    assert sorted(record.ranks) == [0, 1]
    steps = record.evaluations[-1].step
    for rank in record.ranks.values():
        assert len(rank["step_time"].values) == len(rank["sent"].values) == steps
    found = teamwork(record)
    assert found.sent_bytes == found.predicted_bytes > 0
    assert 0 < found.communicate_share < 1
    assert [each.name for each in record.path.parent.iterdir()] == [record.path.name]
    team = record.end.environment_after["team"]
    assert (team["hosts"], team["ranks_by_host"]) == (1, [2])
    assert len(team["threads_by_rank"]) == 2
    (peak,) = (each for each in record.measurements if each.name == "peak_memory")
    assert peak.value == max(team["peak_memory_bytes_by_rank"])
    assert "the largest of 2 ranks" in peak.method
    again, _ = run(task_file, store, ranks=2)
    assert not again.to_go


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "said"),
    [("all-reduce", "rank 0's: all ranks of all-reduce have the same"), ("local-sgd", "those that were evaluated")],
)
def test_the_kept_network_of_two_ranks_scores_what_the_run_recorded(task_file, store, scheme, said):
    options = Options(framework="numpy", budget_epochs=1, team=TeamOptions(ranks=2, scheme=scheme))
    arm = resolve(str(task_file), {}, options)
    job = Job(
        str(task_file), arm.specification, key=arm.key, seed=0, id=new_id(), store=str(store.path), keep_model=True
    )
    run_team(job, lambda *told: None)
    (record,) = store.records()
    kept = find_model(store.path, arm.key, 0)
    assert kept.facts.weights_of.startswith(said)
    weights = {each.name: numpy_helper.to_array(each) for each in onnx.load(kept.path).graph.initializer}
    assert sorted(array.shape for array in weights.values()) == [(10,), (10, 16), (16,), (16, 64)]
    by_shape = {array.shape: array for array in weights.values()}
    split = datasets.digits.load().test
    hidden = np.maximum(split.inputs @ by_shape[16, 64].T + by_shape[16,], 0)
    logits = hidden @ by_shape[10, 16].T + by_shape[10,]
    assert np.mean(logits.argmax(1) == split.labels) == pytest.approx(record.end.quality["test"], abs=1e-9)


@pytest.mark.slow
def test_steps_of_the_first_rank_are_visible_during_training(task_file, store):
    options = Options(framework="numpy", team=TeamOptions(ranks=2))
    arm = resolve(str(task_file), {"epochs": 100_000, "target": 0.999}, options)

    def look(events, elapsed_s, phase, steps):
        if phase == "train" and steps[0]:
            raise Enough

    long = Job(str(task_file), arm.specification, key=arm.key, seed=0, id=new_id(), store=str(store.path))
    with pytest.raises(Enough):
        run_team(long, look)


@pytest.mark.slow
def test_the_error_of_the_rank_that_raised_is_reported_and_not_that_of_waiting_ranks(tmp_path, store):
    pytest.importorskip("mpi4py")
    path = tmp_path / "broken.py"
    path.write_text(BROKEN.replace("{what}", "raise RuntimeError('no such thing')"))
    with pytest.raises(LevelbenchError, match="no such thing"):
        run(path, store, ranks=2, engine="mpi")
    (record,), others, jobs = left_of(store)
    assert record.status == "failed"
    assert re.fullmatch(r"rank 1: RuntimeError in broken.py, line \d+, in small", record.end.error)
    assert not others
    assert not jobs


@pytest.mark.slow
def test_a_killed_rank_is_named_and_its_run_is_interrupted_and_repeated(tmp_path, store):
    pytest.importorskip("mpi4py")
    path = tmp_path / "broken.py"
    path.write_text(BROKEN.replace("{what}", "os.kill(os.getpid(), 9)"))
    with pytest.raises(LevelbenchError, match="rank 1 was killed by SIGKILL"):
        run(path, store, ranks=2, engine="mpi")
    (record,), others, jobs = left_of(store)
    assert record.status == "interrupted"
    assert not others
    assert not jobs


def failed(rank, code, number=None, lines=()):
    return Failure(rank, code, number, lines, Path("log"))


CLOSED = said(0, "a rank was lost: Connection closed by peer", lost=True)


@pytest.mark.parametrize(
    ("failure", "told", "found"),
    [
        (failed(1, 3), [CLOSED, said(1, "the scheme gave up")], "the scheme gave up"),
        (failed(1, None, 9), [said(0, "it raised RuntimeError")], "rank 1 was killed by SIGKILL (nothing printed)"),
        (failed(0, 75), [CLOSED], "rank 0 ended with code 75 (a rank was lost: Connection closed by peer)"),
        (failed(2, None), [CLOSED], "rank 2 did not answer (rank 0: a rank was lost: Connection closed by peer)"),
        (failed(1, 1, lines=("out of memory",)), [CLOSED], "rank 1 ended with code 1 (out of memory)"),
        (failed(None, 1), [CLOSED, said(2, "no such file")], "no such file"),
        (failed(0, 75), [CLOSED, said(5, "of another node")], "of another node"),
        (None, [CLOSED], "without reporting an error"),
    ],
)
def test_the_reported_cause_is_that_of_the_rank_that_failed_first(tmp_path, failure, told, found):
    assert found in _error(job(tmp_path), failure, told).found


def test_a_run_whose_ranks_all_finished_has_no_error(tmp_path):
    assert _error(job(tmp_path), None, [Message(phase="done")]) is None


def test_restarts_without_checkpoints_are_refused(tmp_path):
    with pytest.raises(UsageError, match="without checkpoints they could not resume"):
        run_team(job(tmp_path, specification=of_engine("torchrun[max_restarts=2]")))
