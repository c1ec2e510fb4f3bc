"""If a run or its parent is killed, nothing is lost, and the run resumes with the same result."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager

import msgspec
import pytest
from tests.experiments.campaigns import NUMPY, Quiet, carry_out, losses, plan_of

from levelbench.errors import LevelbenchError
from levelbench.experiments.jobs import Job
from levelbench.experiments.request import resolve
from levelbench.experiments.training import Extras
from levelbench.records import new_id
from levelbench.training.checkpoints import checkpoint_of


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")
def test_a_run_does_not_outlive_a_parent_that_is_killed(arm, store, tmp_path):
    slow = resolve(arm.reference, {"epochs": 100_000, "target": 0.999}, NUMPY)
    job = Job(slow.reference, slow.specification, slow.key, 0, new_id(), str(store.path))
    (tmp_path / "job.json").write_bytes(msgspec.json.encode(job))
    code = (
        "import msgspec, sys\nfrom levelbench.experiments.jobs import Job\n"
        "from levelbench.experiments.training import launch\n"
        "launch(msgspec.json.decode(open(sys.argv[1], 'rb').read(), type=Job))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "job.json")])
    for _ in range(400):
        if store.rows():
            break
        time.sleep(0.05)
    assert store.rows()[0].status == "running"
    parent.kill()
    parent.wait()
    for _ in range(400):
        if store.rows()[0].status == "interrupted":
            break
        time.sleep(0.05)
    assert store.rows()[0].status == "interrupted"


@pytest.mark.slow
@pytest.mark.usefixtures("cold")
def test_a_killed_run_is_reported_as_killed_and_can_be_resumed(arm, store):
    def kill(turn, stage, elapsed_s=0.0, events=(), steps=None):
        subprocess.run(["pkill", "-KILL", "-n", "-P", str(os.getpid())], check=False)

    class Killer(Quiet):
        progress = staticmethod(kill)

    slow = resolve(arm.reference, {"epochs": 100_000, "target": 0.999}, NUMPY)
    with pytest.raises(LevelbenchError, match="killed by signal 9") as caught:
        carry_out(plan_of([slow], [0], store), store, None, Killer())
    assert "resume" in caught.value.do
    assert caught.value.exit_code == 3


@pytest.mark.slow
def test_killed_at_random_instants_a_run_loses_nothing_and_resumes_to_the_same_result(task_file, store):
    arm = resolve(str(task_file), {"epochs": 250, "target": 0.999}, NUMPY)
    whole = carry_out(plan_of([arm], [5], store), store, None, Quiet())[0, 5]
    generator, statuses = random.Random(0), Counter()
    for _ in range(6):
        job = Job(arm.reference, arm.specification, arm.key, 5, new_id(), str(store.path))
        _kill_after(job, generator.uniform(-0.2, 0.3))
        for record in store.records(job.id) if _exists(store, job.id) else []:
            statuses[record.status] += 1
            seen = len(record.evaluations)
            # Every whole event is a prefix of the uninterrupted run, bit for bit.
            assert losses(record) == losses(whole)[:seen]
            assert [each.quality for each in record.evaluations] == [e.quality for e in whole.evaluations[:seen]]
    assert statuses["interrupted"] >= 3
    assert store.problems == []
    again = carry_out(plan_of([arm], [5], store, fresh=True), store, None, Quiet())[0, 5]
    assert losses(again) == losses(whole)
    assert again.end.quality == whole.end.quality


def _exists(store, identity):
    return any(row.id == identity for row in store.rows())


def _kill_after(job, seconds):
    """Kill the run this many seconds after its record appeared; if negative, after its start."""
    with _started(job) as (process, told):
        if seconds >= 0:
            assert told.recv(1)
        time.sleep(abs(seconds))
        process.send_signal(signal.SIGKILL)


@contextmanager
def _started(job):
    """A run whose parent listens but never answers: the process, and its messages."""
    told, telling = socket.socketpair()
    with told, telling:
        process = subprocess.Popen(
            [sys.executable, "-m", "levelbench.experiments.child", str(telling.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=(telling.fileno(),),
        )
        telling.close()
        # It need not wait for answers.
        told.shutdown(socket.SHUT_WR)
        process.stdin.write(msgspec.json.encode(job))
        process.stdin.close()
        yield process, told
        process.wait()


def test_a_killed_run_resumes_from_its_checkpoint_with_the_same_result(task_file, store):
    arm = resolve(str(task_file), {"epochs": 60, "target": 0.999}, NUMPY)
    extras = Extras(checkpoint="1 epoch")
    job = Job(arm.reference, arm.specification, arm.key, 6, new_id(), str(store.path), checkpoint="1 epoch")
    _kill_after_evaluations(job, store, 3)
    plan = plan_of([arm], [6], store)
    assert [step.resume is not None for step in plan.to_go] == [True]
    assert "resumes from its checkpoint" in plan.lines()[1]
    resumed = carry_out(plan, store, None, Quiet(), extras)[0, 6]
    straight = carry_out(plan_of([arm], [6], store, fresh=True), store, None, Quiet(), extras)[0, 6]
    assert not checkpoint_of(straight.path).exists()
    assert losses(resumed) == losses(straight)
    assert resumed.end.quality == straight.end.quality
    assert any("resumed from a checkpoint" in doubt for doubt in resumed.end.suspect)
    assert len(resumed.samples["step_time"].values) == resumed.evaluations[-1].step
    assert not list(store.path.rglob("*.npz"))


_FROM_FILES = """

from pathlib import Path
import os


@task.recipe
def from_files(hidden: int = 16, epochs: int = 300) -> Recipe:
    lr = float(os.environ.get("MY_LR", "") or Path(__file__).with_name("lr.txt").read_text())
    return Recipe(zoo.mlp(64, hidden, 10), Shuffled(64), Momentum(lr), epochs=epochs)
"""


@pytest.mark.slow
@pytest.mark.parametrize("changed", ["lr.txt", "$MY_LR"])
def test_a_killed_run_whose_settings_have_changed_starts_over(task_file, store, monkeypatch, changed):
    settings = task_file.with_name("lr.txt")
    settings.write_text("0.05")
    task_file.write_text(task_file.read_text() + _FROM_FILES)
    arm = resolve(str(task_file), {"recipe": "from_files", "target": 0.999}, NUMPY)
    job = Job(arm.reference, arm.specification, arm.key, 6, new_id(), str(store.path), checkpoint="1 epoch")
    _kill_after_evaluations(job, store, 2)
    assert plan_of([arm], [6], store).to_go[0].resume is not None
    if changed == "lr.txt":
        settings.write_text("0.01")
    else:
        monkeypatch.setenv("MY_LR", "0.01")
    plan = plan_of([arm], [6], store)
    assert plan.to_go[0].resume is None
    assert f"was interrupted, and what the task reads has changed since: {changed}" in plan.lines()[1]


def _kill_after_evaluations(job, store, count):
    with _started(job) as (process, _):
        while True:
            found = list(store.records(job.id)) if _exists(store, job.id) else []
            if found and len(found[0].evaluations) >= count and checkpoint_of(found[0].path).exists():
                break
            assert process.poll() is None
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
