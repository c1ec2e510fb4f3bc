import json
from contextlib import nullcontext
from types import SimpleNamespace

import msgspec
import pytest

from levelbench.distributed.launching import ENGINES, PEER_LOST
from levelbench.distributed.launching.base import Failure
from levelbench.distributed.sweep import SweepPoint
from levelbench.errors import LevelbenchError, MissingError, UnknownNameError, UnsupportedError
from levelbench.experiments import communicators
from levelbench.experiments.communicators import (
    ERRORS,
    JOB,
    POINTS,
    Encoding,
    RankError,
    SweepJob,
    default_communicator,
    engine_for,
    measure_communicator,
)

SWEEP = SweepJob("gloo", ("all-reduce",), (4,), 1.0, 1.0)
POINT = SweepPoint("all-reduce", 4, (1e-3, 2e-3), 0, "", "done")


class Planted:
    """An engine whose ranks leave given files and end in a given way."""

    name = "planted"

    def __init__(self, points=(), told=(), failure=None):
        self.points, self.told, self.ended = points, told, failure

    def start(self, command, ranks, folder, environment):
        self.job = json.loads((folder / JOB).read_text())
        (folder / POINTS).write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in self.points))
        if self.told:
            (folder / ERRORS).write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in self.told))
        failure = self.ended and Failure(*self.ended, lines=("its last words",), log=folder / "rank-1.log")
        return nullcontext(SimpleNamespace(wait=lambda seconds: True, failure=lambda: failure, job="planted"))


def told(rank, found, lost):
    return RankError(rank, "asked", found, "do", 3, lost, "its traceback")


def test_points_are_delivered_one_by_one_and_returned_together():
    engine, seen = Planted(points=[POINT, POINT]), []
    assert measure_communicator(SWEEP, engine, 2, seen.append) == [POINT, POINT] == seen
    assert engine.job["operations"] == ["all-reduce"]


def test_a_rank_that_is_stopped_while_the_others_wait_for_it_is_named(monkeypatch):
    class Waiting(Planted):
        def start(self, command, ranks, folder, environment):
            (folder / POINTS).touch()

            def silence(rank, note):
                return Failure(rank, None, None, (), folder / "rank-1.log", note)

            return nullcontext(SimpleNamespace(wait=lambda _: False, kill=lambda: None, silence=silence, job="planted"))

    class Watch:
        def __init__(self, job, ranks, patience_s):
            self.lost = lambda: 1

    monkeypatch.setattr(communicators, "StopWatch", Watch)
    with pytest.raises(LevelbenchError, match="rank 1 did not answer, stopped"):
        measure_communicator(SWEEP, Waiting(), 2, lambda _: None)


@pytest.mark.parametrize(
    ("reports", "failure", "says"),
    [
        # A rank that was killed counts for more than one that waited for it.
        ([told(0, "a rank was lost", True)], (1, None, 9), "rank 1 was killed by SIGKILL"),
        ([told(0, "a rank was lost", True), told(1, "no memory", False)], (1, 3, None), "no memory"),
        ([told(0, "a rank was lost", True)], (0, PEER_LOST, None), "a rank was lost"),
        ([], (1, 3, None), "its last words"),
    ],
)
def test_the_error_is_that_of_the_rank_that_failed_first(reports, failure, says):
    engine = Planted(told=reports, failure=failure)
    with pytest.raises(LevelbenchError, match=says) as caught:
        measure_communicator(SWEEP, engine, 2, lambda point: None)
    assert caught.value.trace in ("its traceback", "its last words")
    assert caught.value.exit_code == 3


def test_the_default_engine_is_the_first_that_supports_the_communicator():
    assert engine_for(None, "gloo").name == "process"
    assert engine_for("torchrun", "gloo").name == "torchrun"


def test_an_engine_that_does_not_support_the_communicator_is_refused():
    with pytest.raises(UnknownNameError, match="close: process"):
        engine_for("proces", "gloo")
    with pytest.raises(UnknownNameError, match="close: gloo"):
        engine_for(None, "glo")
    with pytest.raises(UnsupportedError, match="--engine mpi"):
        engine_for("process", "mpi")


def test_an_engine_reports_what_it_lacks(monkeypatch):
    from levelbench.distributed.launching.launchers import Mpi

    monkeypatch.setattr(Mpi, "lacks", lambda *_: "no mpiexec")
    with pytest.raises(MissingError, match="no mpiexec"):
        engine_for(None, "mpi")


def test_a_line_that_is_written_in_two_parts_is_one_point(tmp_path):
    class Slow(Planted):
        def start(self, command, ranks, folder, environment):
            line = msgspec.json.encode(POINT) + b"\n"
            parts = [line[:10], line[10:] + line[:5]]

            def wait(seconds):
                with (folder / POINTS).open("ab") as file:
                    file.write(parts.pop(0))
                return not parts

            return nullcontext(SimpleNamespace(job="planted", wait=wait, failure=lambda: None))

    assert measure_communicator(SWEEP, Slow(), 2, lambda point: None) == [POINT]


@pytest.mark.parametrize(("engine", "communicator"), [(None, "gloo"), ("mpi", "mpi"), ("torchrun", "gloo")])
def test_the_default_communicator_is_the_engines_own(engine, communicator):
    assert default_communicator(engine) == communicator


@pytest.mark.slow
def test_two_ranks_measure_what_a_scheme_computes():
    scheme = Encoding("top-k", {"ratio": 0.1}, 8, {"weight": (64, 32)}, "numpy", "cpu")
    job = SweepJob("gloo", ("all-reduce",), (1024,), 0.5, 60.0, encodings=(scheme,))
    *_, found = measure_communicator(job, ENGINES["process"], 2, lambda point: None)
    assert (found.operation, found.nbytes) == ("encoding top-k[ratio=0.1]", 8)
    mean, low, high = found.times_s
    assert 0 < low <= mean <= high
