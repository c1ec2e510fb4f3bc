"""A team that its launcher starts again after a rank died: where it goes on, and what that cost.

What was lost is the time since the team was first ready, less what the checkpoint has on its clock. The
clock is the machine's own, which all processes on it read alike, so nobody needs to know when a rank died.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from pathlib import Path

import msgspec

from levelbench.distributed.launching.launchers import RESTARTS
from levelbench.errors import DataError
from levelbench.experiments.jobfolder import paths_told
from levelbench.experiments.together import machine
from levelbench.measure.clocks import HOST
from levelbench.training.checkpoints import checkpoint_of

__all__ = ["began", "count_start", "last_checkpoint", "lost_ns", "restarts_of"]

_BEGAN = "began.json"


class _Began(msgspec.Struct, frozen=True):
    """When the leading rank of a node was first ready, on the clock of its machine, with how much on the run's own."""

    machine: str
    now_ns: int
    before_ns: int


def restarts_of(environment: Mapping[str, str]) -> int:
    """How often the ranks were started again; 0 under a launcher that never does."""
    text = environment.get(RESTARTS, "0")
    return int(text) if text.isdecimal() else 0


def count_start(folder: Path, local_rank: int, environment: MutableMapping[str, str]) -> int:
    """How often the rank of this process was started before; put in the place of torchrun's number in ``environment``.

    torchrun's launcher on each node counts the failures of its own ranks alone, so on several nodes ranks that start
    together would be told different numbers. All are started together, so each counts its own starts, in a file of
    ``folder``, which is its node's own.
    """
    with (folder / f"starts-{local_rank}").open("ab") as file:
        before = file.tell()
        file.write(b"\n")
    restarts = max(before, restarts_of(environment))
    environment[RESTARTS] = str(restarts)
    return restarts


def last_checkpoint(folder: Path, otherwise: Path | None) -> Path | None:
    """The newest checkpoint that the ranks started before have kept; else the one with which the job began."""
    kept = [checkpoint_of(path) for path in paths_told(folder)]
    return next((path for path in reversed(kept) if path.is_file()), otherwise)


def began(folder: Path, before_ns: int) -> None:
    """Note that this node's leading rank is ready, ``before_ns`` on the run's clock; only the first time counts."""
    path = folder / _BEGAN
    if not path.exists():
        path.write_bytes(msgspec.json.encode(_Began(machine(), HOST.now_ns(), before_ns)))


def lost_ns(folder: Path, before_ns: int) -> int:
    """The nanoseconds since this node's leading rank was first ready that are not among ``before_ns``.

    0 where none ever was; ``DataError`` where it was on another machine, whose clock says nothing here.
    """
    asked = "the time that was lost before the ranks were started again"
    try:
        first = msgspec.json.decode((folder / _BEGAN).read_bytes(), type=_Began)
    except FileNotFoundError:
        return 0
    if first.machine != machine():
        raise DataError(asked, "the first rank is on another machine now", "start the same command again")
    return max(0, HOST.now_ns() - first.now_ns - (before_ns - first.before_ns))
