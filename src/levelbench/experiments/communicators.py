"""Starts the ranks of a sweep over a communicator, and collects what the first of them measures."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from levelbench.distributed.launching import ENGINES
from levelbench.distributed.launching.base import PEER_LOST, Engine, RunningJob
from levelbench.distributed.sweep import SweepPoint
from levelbench.errors import LevelbenchError, MissingError, UnknownNameError, UnsupportedError
from levelbench.experiments.communicator_child import JOB, POINTS, TOLD, SweepJob, Told

__all__ = ["default_communicator", "engine_for", "measure_communicator"]

_LOOK_S = 0.2


def default_communicator(engine: str | None) -> str:
    """What is measured where nobody says it: the engine's own communicator, or gloo."""
    return ENGINES[engine].communicators[0] if engine is not None and engine in ENGINES else "gloo"


def engine_for(name: str | None, communicator: str) -> Engine:
    """The engine of that name, or the first that opens such communicators; raises what stands in the way."""
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
    if lacking := engine.lacks():
        raise MissingError(f"engine {engine.name!r}", lacking, "use another engine")
    return engine


def measure_communicator(
    job: SweepJob,
    engine: Engine,
    ranks: int,
    on_point: Callable[[SweepPoint], None],
    options: Mapping[str, Any] | None = None,
) -> list[SweepPoint]:
    """Carry out ``job`` on ``ranks`` ranks; ``on_point`` is called as points come.

    Raises what a rank raised, and ``CommunicationError`` where one died; all ranks have ended when this returns.
    """
    with tempfile.TemporaryDirectory(prefix="levelbench-") as name:
        folder = Path(name)
        (folder / JOB).write_bytes(msgspec.json.encode(job))
        (folder / POINTS).touch()
        command = [sys.executable, "-m", "levelbench.experiments.communicator_child", str(folder)]
        with engine.start(command, ranks, folder, {}, **(options or {})) as running:
            points = _follow(running, folder / POINTS, on_point)
            if (failure := running.failure()) is None:
                return points
        told = _told(folder / TOLD)
        own = [each for each in told if not each.lost]
        # That a rank was lost is told by those who waited for it: how it ended says more.
        if own or (told and failure.code == PEER_LOST):
            raise _error((own or told)[0])
        error = failure.error(f"{job.communicator} on {ranks} ranks started by {engine.name}")
        # The log goes with the folder; its end is kept.
        error.do = "see the end of its log with --debug"
        raise error


def _follow(running: RunningJob, path: Path, on_point: Callable[[SweepPoint], None]) -> list[SweepPoint]:
    points: list[SweepPoint] = []
    with path.open("rb") as file:
        ended, begun = False, b""
        while not ended:
            ended = running.wait(_LOOK_S)
            # A line may be seen, or left by a rank that was killed, before it is whole.
            *lines, begun = (begun + file.read()).split(b"\n")
            for line in lines:
                points.append(msgspec.json.decode(line, type=SweepPoint))
                on_point(points[-1])
    return points


def _told(path: Path) -> list[Told]:
    """The errors of ranks, in the order in which they came."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [msgspec.json.decode(line, type=Told) for line in lines]


def _error(told: Told) -> LevelbenchError:
    error = LevelbenchError(told.asked, told.found, told.do)
    error.exit_code, error.trace = told.exit_code, told.trace
    return error
