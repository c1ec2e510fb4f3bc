"""Launching: engines that start the ranks of a team, watch them, and leave none behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from levelbench.distributed.launching.base import PEER_LOST, Engine, Failure, Running
from levelbench.distributed.launching.environment import Place, place_of

if TYPE_CHECKING:
    ENGINES: Mapping[str, Engine]

__all__ = ["ENGINES", "PEER_LOST", "Engine", "Failure", "Place", "Running", "place_of"]


def __getattr__(name: str) -> Mapping[str, Engine]:
    # Ranks and their keepers come through here on their way to a module beside this, and start no engine.
    if name != "ENGINES":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from levelbench.distributed.launching.engines import ENGINES

    return ENGINES
