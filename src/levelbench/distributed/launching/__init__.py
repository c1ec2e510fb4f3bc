"""Launching: engines that start the ranks of a team, watch them, and leave none behind."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from levelbench.distributed.launching.base import PEER_LOST, Engine, Failure, RunningJob
from levelbench.distributed.launching.environment import RankPlace, place_of

if TYPE_CHECKING:
    ENGINES: Mapping[str, Engine]
    """All engines by name."""

__all__ = ["ENGINES", "PEER_LOST", "Engine", "Failure", "RankPlace", "RunningJob", "place_of"]


def __getattr__(name: str) -> Mapping[str, Engine]:
    if name != "ENGINES":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _engines()


# Ranks and their supervisors import this package on their way to a module in it, and start no engine.
@cache
def _engines() -> Mapping[str, Engine]:
    from levelbench.distributed.launching.launchers import Mpi, Slurm, Torchrun
    from levelbench.distributed.launching.local import OnHosts, Process

    return MappingProxyType({each.name: each for each in (Process(), Torchrun(), Mpi(), Slurm(), OnHosts())})
