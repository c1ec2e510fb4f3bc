"""What passes between a command and the process of one run: a job, messages, the record's events, and a second clock.

The parent is the witness of a run: it looks at a clock of its own whenever the run says that a moment has come. Both
sides note between which two readings a moment lies. The parent knows that a message was sent after it last found none,
and before it read it; the run reads its clocks before and after it sends. At the start and at the end the run waits for
the parent's answer, off its clock, which bounds the whole from both sides. ``records/witness.py`` compares.

A process alone is a team of one with nothing but the record, so the run is carried out by one piece of code; who writes
what is decided by its ``Member``.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol, final

import msgspec

from levelbench.errors import LevelbenchError
from levelbench.measure.clocks import SECOND, Clock, uptime_ns
from levelbench.measure.meters import Meter, Reading
from levelbench.measure.timeline import Timeline
from levelbench.records import Evaluation, Event, Header, RecordWriter, Samples, Specification
from levelbench.records.schema import Between, Sight, Witness
from levelbench.training.checkpoints import Saving, Snapshot, load
from levelbench.training.observers import Observer, Progress
from levelbench.training.stopping import Evaluate
from levelbench.training.trainer import Alone, Team

__all__ = ["AloneMember", "Hear", "Job", "Member", "Message", "Parent", "Recorder", "Sights", "Tell", "Together"]
__all__ += ["Written", "held", "no_parent"]


_CATCH_UP_NS = 30_000_000_000


class Job(msgspec.Struct, frozen=True):
    """What the parent asks for. ``data`` is the folder of the dataset, if the user gave one."""

    reference: str
    specification: Specification
    key: str
    seed: int
    id: str
    store: str
    data: str | None = None
    source: str = ""
    """The digest of the task's source as the parent read it; empty if that does not matter."""
    resume: str | None = None
    """The checkpoint from which it goes on."""
    checkpoint: str | None = None
    """How often it keeps one: "1 epoch"."""
    observe: list[str] = []
    """Who looks on, in the words of the command: ``["csv=logs"]``."""
    timeout_s: float = 300.0
    """How long a rank waits for another one before it takes it for lost."""
    keep_model: bool = False
    """Whether the trained network is kept in the store, where ``levelbench infer`` finds it; of one process alone."""
    doubts: list[str] = []
    """What the command has found to doubt about the task before the first run."""
    planned_effect: float | None = None
    """The effect that looks at the comparison are planned for, where it goes on until it is clear."""
    planned_runs: int = 0
    """How many runs of each arm the command asked for."""
    replaced: int = 0
    """How many ended runs of this arm and seed were set aside, one after the other, for this one."""


Tell = Callable[["Message"], None]


class Message(msgspec.Struct, frozen=True):
    """A line to the parent: where the record is, or an error in its three parts."""

    path: str | None = None
    phase: str | None = None
    error: tuple[str, str, str] | None = None
    exit_code: int = 0
    trace: str = ""
    rank: int = 0
    lost: bool = False
    """Whether the error is that another rank was lost, and so not the cause."""
    fault: str = ""
    """What a record keeps of the error: its type and its place, never its text."""
    moment: Literal["", "start", "evaluation", "end"] = ""
    """What has come, so that the parent looks at its clock; at the start and the end the run waits for its answer."""


class Appends(Protocol):
    """What takes events: a record."""

    def append(self, event: Event) -> None:
        """Write one down."""


class Recorder(Observer):
    """Appends each evaluation, and the raw step times before it, to the record; lets meters keep up."""

    def __init__(self, writer: Appends, tell: Tell, gauges: Sequence[Meter] = ()) -> None:
        self._writer = writer
        self._tell = tell
        self._gauges = gauges
        self._caught_up_ns = 0

    def on_start(self, progress: Progress) -> None:
        """Tell the parent."""
        self._tell(Message(phase="train"))

    def on_evaluation(self, progress: Progress, evaluation: Evaluation, step_times_ns: list[int]) -> None:
        """Two lines, and now and then a look at the counters that would wrap unseen in a long run."""
        self._writer.append(Samples("step_time", "ns", step_times_ns))
        self._writer.append(evaluation)
        if evaluation.t_ns - self._caught_up_ns > _CATCH_UP_NS:
            self._caught_up_ns = evaluation.t_ns
            for gauge in self._gauges:
                gauge.catch_up()

    def on_end(self, progress: Progress) -> None:
        """Tell the parent."""
        self._tell(Message(phase="test"))


_APART_NS = 100_000_000
"""The parent gets an evaluation message at most this often, so that waking it up costs a run nothing on one core."""

Hear = Callable[[], list[Between] | str]
"""Waits for the parent's answer: all that it saw, or why there is none."""


@final
class Parent:
    """The parent's side: what it saw, by its own clock, of the run that it listens to.

    ``testimony`` is what it answered last, which the record has to hold.
    """

    def __init__(self) -> None:
        self._seen: list[Between] = []
        self._nothing_ns = self._looking_ns = SECOND.now_ns()
        self.testimony: tuple[Between, ...] = ()

    def look(self) -> None:
        """Right before it looks for messages."""
        self._nothing_ns, self._looking_ns = self._looking_ns, SECOND.now_ns()

    def found(self, messages: Sequence[Message]) -> list[Between] | None:
        """What came of the look; the answer, where one is waited for."""
        now, answer = SECOND.now_ns(), None
        for message in messages:
            if message.moment == "start":
                self._seen = []
            if message.moment:
                # Whoever waits for an answer is still waiting now.
                waits = message.moment != "evaluation"
                self._seen.append((now, now) if waits else (self._nothing_ns, now))
            if message.moment in ("start", "end"):
                answer = list(self._seen)
                self.testimony = tuple(answer)
        return answer


def no_parent() -> str:
    """The answer where no other process has started the run: none, and nothing that it lacks."""
    return ""


@final
class Sights(Observer):
    """The run's side: what its clocks were at each moment. An observer, the first of all, as it tells the time.

    It looks at the start before the timeline is made, as a wait for the parent is not on the clock.
    """

    def __init__(self, clock: Clock, tell: Tell, hear: Hear) -> None:
        self._now_ns, self._tell, self._hear = clock.now_ns, tell, hear
        self._absent = ""
        self._told: list[int] = []
        """Which of the moments the parent got a message for."""
        self._moments: list[tuple[int, Between, Between, Between | None]] = []
        self._last_ns = 0
        self._evaluations = 0
        self._zero_ns = 0
        self._slept_ns = -_slept_ns()

    def begin(self, evaluations: int = 0) -> None:
        """The moment before the clock starts; ``evaluations`` are those of an earlier process."""
        self._evaluations = evaluations
        self._look("start")

    def started(self, timeline: Timeline) -> None:
        """The clock has started."""
        self._zero_ns = timeline.started_ns

    def on_evaluation(self, progress: Progress, evaluation: Evaluation, step_times_ns: list[int]) -> None:
        """Right after it."""
        self.evaluated()

    def evaluated(self) -> None:
        """An evaluation was made."""
        self._evaluations += 1
        self._look("evaluation")

    def on_end(self, progress: Progress) -> None:
        """When training is over."""
        self._look("evaluation", always=True)

    def end(self) -> Witness:
        """The last moment, and what all have seen; right after the clock was read for the last time."""
        seen = self._look("end")
        if isinstance(seen, str) or len(seen) != len(self._told):
            self._absent, seen = seen if isinstance(seen, str) else "its answer is of other moments", []
        parents = dict(zip(self._told, seen, strict=False))
        sights = []
        for at, (evaluations, run, second, uptime) in enumerate(self._moments):
            first = self._moments[0]
            sights.append(
                Sight(
                    evaluations,
                    _since(run, self._zero_ns),
                    _since(parents[at], seen[0][0]) if at in parents else None,
                    _since(second, first[2][0]),
                    _since(uptime, first[3][0]) if uptime is not None and first[3] is not None else None,
                )
            )
        return Witness(sights, self._absent, max(0, self._slept_ns + _slept_ns()))

    def _look(self, moment: Literal["start", "evaluation", "end"], *, always: bool = False) -> list[Between] | str:
        """Read all clocks, tell the parent in between, and read them again."""
        early_second, early = SECOND.now_ns(), self._now_ns()
        answer: list[Between] | str = []
        uptime: Between | None = None
        if moment != "evaluation" or always or early_second - self._last_ns > _APART_NS:
            self._told.append(len(self._moments))
            self._last_ns = early_second
            before = uptime_ns()
            self._tell(Message(moment=moment))
            if moment != "evaluation":
                answer = self._hear()
            after = uptime_ns()
            uptime = None if before is None or after is None else (before[0], after[1])
        late, late_second = self._now_ns(), SECOND.now_ns()
        self._moments.append((self._evaluations, (early, late), (early_second, late_second), uptime))
        return answer


def held(witness: Witness | None, testimony: Sequence[Between]) -> bool:
    """Whether a record holds what the parent said. A run that never asked it must not have its words, either."""
    told = [each.parent_ns for each in witness.sights if each.parent_ns is not None] if witness else []
    return told == [_since(each, testimony[0][0]) for each in testimony]


def _since(moment: Between, zero: int) -> Between:
    return moment[0] - zero, moment[1] - zero


def _slept_ns() -> int:
    """How long this machine was suspended since it started, as far as its clocks tell."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return 0
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)


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
    """The one process of a run, with those who look on for it; ``path`` is its record, once it has begun."""

    def __init__(self, *observers: Observer) -> None:
        self.team, self.first = Alone(), True
        self.path = Path()
        self._observers = observers

    def begin(self, store: Path, header: Header) -> Written:
        """Its record."""
        writer = RecordWriter.create(store, header)
        self.path = writer.path
        return Written(writer.path, writer)

    def ready(self) -> None:
        """No-op."""

    def observers(self) -> Sequence[Observer]:
        """Those that it was given."""
        return self._observers

    def end(self, readings: Sequence[Reading]) -> Together:
        """Nothing to bring together."""
        return Together(tuple(readings))

    def leave(self) -> None:
        """No-op."""
