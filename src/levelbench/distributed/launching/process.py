"""Our own engine: one process a rank on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, final

from levelbench.distributed.launching.base import Engine, Running
from levelbench.distributed.launching.environment import Place, variables_of
from levelbench.distributed.launching.kept import (
    Kept,
    environment_of_ranks,
    free_port,
    keeper_words,
    start_keeper,
    tidy_folder,
)
from levelbench.distributed.launching.marked import JOB

__all__ = ["Process"]


@final
class Process(Engine):
    """One process a rank on this machine; they meet at a free port of the loopback."""

    name: ClassVar[str] = "process"
    communicators: ClassVar[tuple[str, ...]] = ("gloo", "nccl")

    def lacks(self) -> str | None:
        """Nothing."""
        return None

    def start(
        self, command: Sequence[str], ranks: int, folder: Path, environment: Mapping[str, str], **options: Any
    ) -> Running:
        """Start them. There are no options."""
        self.check(ranks, options)
        folder = tidy_folder(folder, command, ranks)
        base = environment_of_ranks(environment, self.name, ranks)
        running = Kept(folder, ranks, base[JOB])
        port = free_port()
        try:
            for rank in range(ranks):
                place = Place(rank, ranks, rank, "127.0.0.1", port, self.name)
                running.add(start_keeper(keeper_words(folder, command), {**base, **variables_of(place)}))
        except BaseException:
            running.kill()
            raise
        return running
