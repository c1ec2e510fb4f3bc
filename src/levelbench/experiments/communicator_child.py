"""A rank of a sweep over a communicator: ``python -m levelbench.experiments.communicator_child FOLDER``, by an engine.

Rank 0 writes each point down as soon as it is measured, so that whoever waits sees it.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import msgspec

from levelbench.distributed.finding import open_communicator
from levelbench.distributed.launching.base import PEER_LOST
from levelbench.distributed.launching.environment import RankPlace, place_of
from levelbench.distributed.sweep import rule_for, sweep
from levelbench.errors import CommunicationError, LevelbenchError
from levelbench.measure.lifetime import die_with_parent, end_on_interrupt
from levelbench.networks.executor import Backend
from levelbench.operators.frameworks import open_framework

__all__ = ["JOB", "POINTS", "TOLD", "SweepJob", "Told", "main"]

JOB, POINTS, TOLD = "job.json", "points.jsonl", "told.jsonl"
"""The files in the folder: what is to be done, what was measured, what went wrong."""
_DEVICES = {"gloo": ("torch", "cpu"), "nccl": ("torch", "cuda"), "mpi": ("numpy", "cpu")}
"""Whose arrays are sent, and from which device: each library is given what it takes without a copy."""


class SweepJob(msgspec.Struct, frozen=True):
    """Which operations at which sizes (bytes), for about so many seconds in all."""

    communicator: str
    operations: tuple[str, ...]
    sizes: tuple[int, ...]
    seconds: float
    timeout_s: float


class Told(msgspec.Struct, frozen=True):
    """An error of a rank in its three parts; ``lost``: it is that of another rank."""

    rank: int
    asked: str
    found: str
    do: str
    exit_code: int
    lost: bool
    trace: str


def main(arguments: Sequence[str]) -> int:
    """Find the other ranks, and measure with them; the exit code."""
    end_on_interrupt()
    die_with_parent()
    folder = Path(arguments[0])
    job = msgspec.json.decode((folder / JOB).read_bytes(), type=SweepJob)
    place = place_of(os.environ)
    try:
        _measure(job, place, folder / POINTS)
    except LevelbenchError as error:
        lost = isinstance(error, CommunicationError)
        told = Told(place.rank, error.asked, error.found, error.do, error.exit_code, lost, traceback.format_exc())
        with (folder / TOLD).open("ab", buffering=0) as file:
            file.write(msgspec.json.encode(told) + b"\n")
        return PEER_LOST if lost else error.exit_code
    return 0


def _measure(job: SweepJob, place: RankPlace, points: Path) -> None:
    framework, device = _DEVICES[job.communicator]
    communicator = open_communicator(job.communicator, place, job.timeout_s)
    try:
        backend = cast("Backend", open_framework(framework, f"cuda:{place.local_rank}" if device == "cuda" else device))
        until = rule_for(job.seconds, len(job.operations) * len(job.sizes))
        for point in sweep(communicator, backend, job.operations, job.sizes, until, backend.clock()):
            if place.rank == 0:
                with points.open("ab", buffering=0) as file:
                    file.write(msgspec.json.encode(point) + b"\n")
    except BaseException:
        communicator.abort()
        raise
    communicator.close()


if __name__ == "__main__":
    ended = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    if ended:
        # A library's own tidying up may wait for ranks that will never come.
        os._exit(ended)
    sys.exit(ended)
