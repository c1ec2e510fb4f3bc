"""A sweep over a communicator: starts its ranks, and collects what the first of them measures.

An engine starts each rank as ``python -m levelbench.experiments.communicators FOLDER``. Rank 0 writes each point as
soon as it is measured, so that the parent can show it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec
import numpy as np

from levelbench.distributed.communicator import Communicator
from levelbench.distributed.finding import named_scheme, open_communicator
from levelbench.distributed.launching import ENGINES
from levelbench.distributed.launching.base import PEER_LOST, Engine, Failure, RunningJob
from levelbench.distributed.launching.environment import PATIENCE, RankPlace, StopWatch, accelerator_of, place_of
from levelbench.distributed.simulation.encoding import encoding_s
from levelbench.distributed.sweep import How, SweepPoint, computing, rule_for, sweep
from levelbench.errors import CommunicationError, LevelbenchError, MissingError, UnknownNameError, UnsupportedError
from levelbench.experiments.processes import reported_error
from levelbench.measure.clocks import HOST
from levelbench.measure.forking import die_with_parent, end_on_interrupt
from levelbench.networks.executor import Backend
from levelbench.operators.frameworks import open_framework
from levelbench.records import format_item

__all__ = ["ERRORS", "JOB", "POINTS", "Encoding", "RankError", "SweepJob", "default_communicator", "engine_for", "main"]
__all__ += ["measure_communicator"]


_LOOK_S = 0.2


def default_communicator(engine: str | None) -> str:
    """The default communicator: the engine's first one, or gloo."""
    return ENGINES[engine].communicators[0] if engine is not None and engine in ENGINES else "gloo"


def engine_for(name: str | None, communicator: str, options: Mapping[str, object] | None = None) -> Engine:
    """The engine of that name, or the first that supports ``communicator``; raises an error if none can run it."""
    if name is not None and name not in ENGINES:
        raise UnknownNameError("engine", name, ENGINES)
    offered = {each for engine in ENGINES.values() for each in engine.communicators}
    if communicator not in offered:
        raise UnknownNameError("communicator", communicator, offered)
    fitting = [each for each in ENGINES.values() if communicator in each.communicators]
    engine = next((each for each in fitting if name in (None, each.name)), None)
    if engine is None:
        raise UnsupportedError(
            f"communicator {communicator!r} with engine {name!r}",
            f"its ranks open {', '.join(ENGINES[name or ''].communicators)}",
            f"use --engine {fitting[0].name}",
        )
    if lacking := engine.lacks(options):
        raise MissingError(f"engine {engine.name!r}", lacking, "use another engine")
    return engine


def measure_communicator(
    job: SweepJob,
    engine: Engine,
    ranks: int,
    on_point: Callable[[SweepPoint], None],
    options: Mapping[str, object] | None = None,
) -> list[SweepPoint]:
    """Carry out ``job`` on ``ranks`` ranks; ``on_point`` gets each point as it is measured.

    Raises what a rank raised, and ``CommunicationError`` if one died; all ranks have ended when this returns.
    """
    with tempfile.TemporaryDirectory(prefix="levelbench-") as name:
        folder = Path(name)
        (folder / JOB).write_bytes(msgspec.json.encode(job))
        (folder / POINTS).touch()
        command = [sys.executable, "-m", "levelbench.experiments.communicators", str(folder)]
        with engine.start(command, ranks, folder, {}, **(options or {})) as running:
            stops = StopWatch(running.job, ranks, PATIENCE * job.timeout_s)
            points, stopped = _follow(running, folder / POINTS, on_point, stops)
            if (failure := stopped or running.failure()) is None:
                return points
        told = _errors_of(folder / ERRORS)
        own = [each for each in told if not each.lost]
        # Ranks that waited only know that another was lost; how that one ended is more informative.
        if own or (told and failure.code == PEER_LOST):
            first = (own or told)[0]
            raise reported_error((first.asked, first.found, first.do), first.exit_code, first.trace)
        error = failure.error(f"{job.communicator} on {ranks} ranks started by {engine.name}")
        # The folder with the log is removed; the error keeps the log's end.
        error.do = "see the end of its log with --debug"
        raise error


def _follow(
    running: RunningJob, path: Path, on_point: Callable[[SweepPoint], None], stops: StopWatch
) -> tuple[list[SweepPoint], Failure | None]:
    """The points, until all ranks have ended, or been ended because one of them was stopped."""
    points: list[SweepPoint] = []
    with path.open("rb") as file:
        ended, begun = False, b""
        while not ended:
            ended = running.wait(_LOOK_S)
            if not ended and (rank := stops.lost()) is not None:
                running.kill()
                return points, running.silence(rank, "stopped")
            # The last line may be incomplete, for now or because its rank was killed.
            *lines, begun = (begun + file.read()).split(b"\n")
            for line in lines:
                points.append(msgspec.json.decode(line, type=SweepPoint))
                on_point(points[-1])
    return points, None


def _errors_of(path: Path) -> list[RankError]:
    """The errors of ranks, in the order in which they were written."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [msgspec.json.decode(line, type=RankError) for line in lines]


JOB, POINTS, ERRORS = "job.json", "points.jsonl", "errors.jsonl"
"""The files in the folder: the job, the measured points, and errors."""
_DEVICES = {"gloo": ("torch", "cpu"), "nccl": ("torch", "cuda"), "mpi": ("numpy", "cpu")}
"""The framework and device of the arrays that are sent: those that the library sends without a copy."""


class Encoding(msgspec.Struct, frozen=True):
    """A scheme whose own work in a step is measured for a number of ranks, on parameters of these shapes."""

    scheme: str
    settings: dict[str, int | float | str | bool]
    ranks: int
    shapes: dict[str, tuple[int, ...]]
    framework: str
    device: str
    before_s: float = 0.0
    """How long a rank computes before it, in the forward and backward pass."""

    @property
    def operation(self) -> str:
        """The name of its point: ``nbytes`` is then the number of ranks, and the times are a mean and its interval."""
        return f"encoding {format_item(self.scheme, self.settings)}"


class SweepJob(msgspec.Struct, frozen=True):
    """Which operations to measure, at which sizes in bytes, for about ``seconds`` in total, and how.

    After them the own work of schemes, on all ranks at the same time.
    """

    communicator: str
    operations: tuple[str, ...]
    sizes: tuple[int, ...]
    seconds: float
    timeout_s: float
    how: How = How()
    encodings: tuple[Encoding, ...] = ()


class RankError(msgspec.Struct, frozen=True):
    """An error of a rank in its three parts; ``lost`` if it is only the loss of another rank."""

    rank: int
    asked: str
    found: str
    do: str
    exit_code: int
    lost: bool
    trace: str


def main(arguments: Sequence[str]) -> int:
    """Connect to the other ranks and measure with them; returns the exit code."""
    end_on_interrupt()
    die_with_parent()
    folder = Path(arguments[0])
    job = msgspec.json.decode((folder / JOB).read_bytes(), type=SweepJob)
    place = place_of(os.environ)
    try:
        _measure(job, place, folder / POINTS)
    except LevelbenchError as error:
        lost = isinstance(error, CommunicationError)
        told = RankError(place.rank, error.asked, error.found, error.do, error.exit_code, lost, traceback.format_exc())
        with (folder / ERRORS).open("ab", buffering=0) as file:
            file.write(msgspec.json.encode(told) + b"\n")
        return PEER_LOST if lost else error.exit_code
    return 0


def _measure(job: SweepJob, place: RankPlace, points: Path) -> None:
    framework, device = _DEVICES[job.communicator]
    communicator = open_communicator(job.communicator, place, job.timeout_s)
    try:
        if device == "cuda":
            device = f"cuda:{accelerator_of(place.local_rank, os.environ)}"
        backend = cast("Backend", open_framework(framework, device))
        until = rule_for(job.seconds, len(job.operations) * len(job.sizes))
        waits_s = 0.0
        for point in sweep(communicator, backend, job.operations, job.sizes, until, backend.clock(), job.how):
            _show(point, place, points)
            waits_s = max(waits_s, min(_LONGEST_PAUSE_S, float(np.median(point.times_s))))
        for each in job.encodings:
            if (encoded := _encoded(each, communicator, waits_s)) is not None:
                _show(encoded, place, points)
    except BaseException:
        communicator.abort()
        raise
    communicator.close()


def _show(point: SweepPoint, place: RankPlace, points: Path) -> None:
    if place.rank == 0:
        with points.open("ab", buffering=0) as file:
            file.write(msgspec.json.encode(point) + b"\n")


_LONGEST_PAUSE_S = 0.05


def _encoded(wanted: Encoding, communicator: Communicator, waits_s: float) -> SweepPoint | None:
    """The time of the slowest rank, where the others compute, too; ``None`` if it cannot be measured. Collective."""
    backend = cast("Backend", open_framework(wanted.framework, wanted.device))

    def slowest(times_s: list[float]) -> list[float]:
        count = min(int(each[0]) for each in communicator.all_gather(np.array([len(times_s)])))
        every = communicator.all_gather(np.array(times_s[:count]))
        return list(np.max(every, axis=0).tolist())

    communicator.barrier()
    compute = computing(wanted.before_s, HOST)

    def before() -> None:
        # As in a run: where other programs wait, a process that has slept runs at once, and that has computed does not.
        time.sleep(waits_s)
        compute()

    scheme = named_scheme(wanted.scheme, wanted.settings)
    found = encoding_s(scheme, wanted.shapes, wanted.ranks, backend, before=before, slowest=slowest)
    if found is None:
        return None
    return SweepPoint(wanted.operation, wanted.ranks, (found.value, found.low, found.high), 0, "", "")


if __name__ == "__main__":
    ended = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    if ended:
        # A library's own cleanup may wait forever for lost ranks.
        os._exit(ended)
    sys.exit(ended)
