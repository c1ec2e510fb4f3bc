"""Launching: engines that start the ranks of a team, watch them, and leave no process behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from levelbench.distributed.launching.base import PEER_LOST, Engine, Failure, RunningJob
from levelbench.distributed.launching.environment import RankPlace, place_of

if TYPE_CHECKING:
    from levelbench.distributed.launching.launchers import ENGINES

__all__ = ["ENGINES", "PEER_LOST", "Engine", "Failure", "RankPlace", "RunningJob", "place_of"]


def __getattr__(name: str) -> Mapping[str, Engine]:
    # Ranks and their supervisors import this package too, but start no engine.
    if name != "ENGINES":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from levelbench.distributed.launching import launchers

    return launchers.ENGINES
