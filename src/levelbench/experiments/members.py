"""What becomes of a run's record on each rank of a team, and in a process alone.

A process alone is a team of one with nothing beside the record, so the run is carried out by one piece of
code; who writes what is decided here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, final

from levelbench.errors import LevelbenchError
from levelbench.experiments.jobs import Job
from levelbench.measure.meters import Reading
from levelbench.records import Event, Header, RecordWriter
from levelbench.training.checkpoints import Saving, Snapshot, load
from levelbench.training.observers.base import Observer
from levelbench.training.stopping import Evaluate
from levelbench.training.trainer import Alone, Team

__all__ = ["AloneMember", "Member", "Together", "Written"]


class Written(AbstractContextManager["Written"]):
    """A record that is being written, or the place of one that another rank writes."""

    def __init__(self, path: Path, writer: RecordWriter | None) -> None:
        self.path, self._writer = path, writer

    def append(self, event: Event) -> None:
        """Write an event, where this rank writes the record."""
        if self._writer is not None:
            self._writer.append(event)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.close()


@dataclass(frozen=True)
class Together:
    """What the members of a run have together at its end.

    ``readings`` of meters, reasons to doubt the run, ``facts`` about the team for the record, and the seconds that
    other members on this machine spent on its processors.
    """

    readings: tuple[Reading, ...]
    doubts: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    others_cpu_s: float = 0.0


class Member(ABC):
    """A process among those that carry out a run."""

    team: Team
    first: bool
    """Whether it writes the record, and tells those who look on."""
    ends_failures: bool = True
    """Whether it writes the end of a run that failed: alone it knows the cause, and of a team whoever started it."""

    restarts: int = 0
    """How often the members were started again after one of them was lost."""

    def device(self, asked: str) -> str:
        """The device that this member opens where the run's is ``asked``."""
        return asked

    def lost(self, error: LevelbenchError) -> bool:
        """Whether the error is that another member was lost."""
        return False

    def resumed(self, job: Job) -> tuple[Job, Snapshot | None]:
        """The job, and the state from which this member goes on; before the clock starts.

        ``DataError`` where a checkpoint cannot be read.
        """
        return job, load(Path(job.resume)) if job.resume else None

    def before_ns(self, resume: Snapshot | None) -> dict[str, int]:
        """The nanoseconds by phase with which the clock starts; right before it does."""
        return dict(resume.facts.totals_ns) if resume else {}

    def saving(self, path: Path, every: Evaluate, key: str) -> Saving:
        """How this member keeps its state."""
        return Saving(path, every, key)

    def started(self, resume: Snapshot | None, saves: bool) -> None:  # noqa: B027  # alone there is nothing to do
        """The trainer stands, with the state of ``resume``; ``UnsupportedError`` for one that cannot be kept."""

    @abstractmethod
    def begin(self, store: Path, header: Header) -> Written:
        """Begin the record."""

    @abstractmethod
    def ready(self) -> None:
        """Right before the clock starts."""

    @abstractmethod
    def observers(self) -> Sequence[Observer]:
        """Who looks on for this member."""

    @abstractmethod
    def end(self, readings: Sequence[Reading]) -> Together:
        """Bring together what the members have, ``readings`` of this one's meters. Before the record's last line."""

    @abstractmethod
    def leave(self) -> None:
        """After the record's last line."""


@final
class AloneMember(Member):
    """The one process of a run."""

    def __init__(self) -> None:
        self.team, self.first = Alone(), True

    def begin(self, store: Path, header: Header) -> Written:
        """Its record."""
        writer = RecordWriter.create(store, header)
        return Written(writer.path, writer)

    def ready(self) -> None:
        """It waits for nobody."""

    def observers(self) -> Sequence[Observer]:
        """Nobody else."""
        return ()

    def end(self, readings: Sequence[Reading]) -> Together:
        """Nothing to bring together."""
        return Together(tuple(readings))

    def leave(self) -> None:
        """Nobody to leave."""
