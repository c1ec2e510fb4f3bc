"""A rank that stops or hangs is named, and everything ends, also while a library without a timeout waits for it."""

import os
import select
import signal
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from levelbench.distributed.launching import ENGINES
from levelbench.distributed.launching.base import ExitReport
from levelbench.distributed.launching.environment import StopWatch, marked, state_of
from levelbench.experiments.jobfolder import mark
from levelbench.experiments.jobs import Job
from levelbench.experiments.request import Options, TeamOptions, resolve
from levelbench.experiments.teams import _Waits, run_team
from levelbench.records import Store, new_id

STOPS = "import os, signal, time; os.environ['LEVELBENCH_RANK'] == '1' and os.kill(os.getpid(), signal.SIGSTOP)"


def until(true):
    while not (found := true()):
        select.select([], [], [], 0.02)
    return found


def stopped_in(job):
    return [pid for pid in marked(job) if state_of(pid) == "T"]


@pytest.fixture
def stopping(start, python):
    """A job of two ranks of which the second has stopped itself."""
    running = start("process", [*python, f"{STOPS}; time.sleep(1000)"], 2)
    until(lambda: stopped_in(running.job))
    return running


def test_a_rank_that_stays_stopped_is_lost(stopping):
    watch = StopWatch(stopping.job, 2, 0.2)
    assert until(lambda: [each for each in [watch.lost()] if each is not None]) == [1]


@pytest.mark.slow
def test_a_rank_that_is_continued_in_time_is_not_lost(stopping):
    watch = StopWatch(stopping.job, 2, 0.5)
    (pid,) = stopped_in(stopping.job)
    until(lambda: (watch.lost(), watch.seen)[1])
    os.kill(pid, signal.SIGCONT)
    until(lambda: state_of(pid) != "T")
    for _ in range(30):
        assert watch.lost() is None
        select.select([], [], [], 0.05)


def marked_by(folder, moment, *ranks):
    for rank in ranks:
        mark(folder, moment, rank).touch()


def test_the_others_wait_for_the_rank_that_is_not_ready(tmp_path):
    waits = _Waits(tmp_path, 3, 0.0, mpi=False)
    assert waits.lost(0, done=False) is None
    marked_by(tmp_path, "ready", 0, 2)
    assert waits.lost(0, done=False) == (1, "while the others waited for it")


def test_ranks_that_are_ready_and_do_not_meet_are_ended_where_mpi_has_no_timeout(tmp_path):
    marked_by(tmp_path, "ready", 0, 1)
    assert _Waits(tmp_path, 2, 0.0, mpi=False).lost(0, done=False) is None
    waits = _Waits(tmp_path, 2, 0.0, mpi=True)
    assert waits.lost(0, done=False) == (None, "and its ranks did not meet")
    marked_by(tmp_path, "met", 0)
    assert waits.lost(0, done=False) is None


def test_restarted_ranks_are_waited_for_again(tmp_path):
    waits = _Waits(tmp_path, 2, 0.0, mpi=False)
    marked_by(tmp_path, "ready", 0, 1)
    assert waits.lost(0, done=False) is None
    mark(tmp_path, "ready", 1, 1).touch()
    assert waits.lost(1, done=False) == (0, "while the others waited for it")


def test_the_rank_that_does_not_leave_after_the_run_is_named_before_those_that_end_later(tmp_path):
    waits = _Waits(tmp_path, 3, 0.0, mpi=True)
    marked_by(tmp_path, "left", 0, 1)
    assert waits.lost(0, done=True) == (2, "while the others waited for it")
    marked_by(tmp_path, "left", 2)
    ExitReport(0, 0, None, ended=False, stopped=False, time_ns=1).write(tmp_path)
    assert waits.lost(0, done=True) == (1, "while the others waited for it")


SCHEME = '''
"""An all-reduce of which a rank stops, hangs or dies at a stage."""
import atexit, os, signal, time
from dataclasses import dataclass
from typing import ClassVar

from levelbench.distributed.schemes.all_reduce import AllReduce


def at(stage):
    if stage == "{stage}" and os.environ.get("LEVELBENCH_RANK") == "1":
        if "{how}" == "hang":
            time.sleep(1e6)
        os.kill(os.getpid(), signal.{how})


at("start")
atexit.register(at, "exit")


@dataclass(frozen=True)
class Stops(AllReduce):
    name: ClassVar[str] = "stops"

    def start(self, worker):
        at("rendezvous")
        stepper = super().start(worker)
        step, meet, close = stepper.step, stepper.meet, stepper.close
        stepper.step = lambda gradients, number, factor: (number == 3 and at("middle"), step(gradients, number, factor))
        stepper.meet = lambda: (at("evaluation"), meet())
        stepper.close = lambda: (at("end"), close())
        return stepper
'''
STAGES = ("start", "rendezvous", "middle", "evaluation", "end")


def stopped_run(tmp_path, engine, stage, how, timeout_s):
    """The error of a run on three ranks, and the marks of its processes."""
    if lacking := ENGINES[engine].lacks():
        pytest.skip(lacking)
    path = tmp_path / "stops.py"
    path.write_text(SCHEME.replace("{stage}", stage).replace("{how}", how))
    team = TeamOptions(ranks=3, scheme=f"{path}:stops", engine=engine)
    arm = resolve("digits", {}, Options(framework="numpy", budget_epochs=1, team=team))
    store = Store(tmp_path / "store")
    job = Job("digits", arm.specification, key=arm.key, seed=0, id=new_id(), store=str(store.path))
    return run_team(msgspec.structs.replace(job, timeout_s=timeout_s))[1]


def test_a_rank_that_stops_as_mpi_starts_is_named_and_ends_the_others(tmp_path):
    pytest.importorskip("mpi4py")
    error = stopped_run(tmp_path, "mpi", "start", "SIGSTOP", 3.0)
    assert error.found.startswith("rank 1 did not answer, stopped")


STOPPED = [("process", "rendezvous"), ("torchrun", "middle"), ("mpi", "evaluation"), ("process", "end")]
HANGING = [("process", "start"), ("mpi", "start"), ("process", "exit"), ("mpi", "exit")]


@pytest.fixture(scope="module")
def awaited(tmp_path_factory):
    """The runs of which a rank stops or hangs, four at a time: each waits half a minute for its rank."""
    runs = [(*each, how) for each, how in [(e, "SIGSTOP") for e in STOPPED] + [(e, "hang") for e in HANGING]]
    with ThreadPoolExecutor(4) as pool:
        yield {run: pool.submit(stopped_run, tmp_path_factory.mktemp("run"), *run, 30.0) for run in runs}


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "stage"), STOPPED)
def test_a_rank_that_stops_at_any_stage_is_named(awaited, engine, stage):
    pytest.importorskip("torch" if engine != "mpi" else "mpi4py")
    assert awaited[engine, stage, "SIGSTOP"].result().found.startswith("rank 1 did not answer")


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "stage"), HANGING)
def test_a_rank_that_hangs_where_no_timeout_ends_it_is_named(awaited, engine, stage):
    pytest.importorskip("torch" if engine != "mpi" else "mpi4py")
    found = awaited[engine, stage, "hang"].result().found
    assert found.startswith("rank 1 did not answer, while the others waited for it")


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_a_rank_that_is_killed_at_any_stage_is_named(tmp_path, stage):
    pytest.importorskip("torch")
    error = stopped_run(tmp_path, "process", stage, "SIGKILL", 30.0)
    assert error.found.startswith("rank 1 was killed by SIGKILL")
