"""The interface between a command and the process of one run: job, messages, events of the record, a second clock.

The parent is the witness of a run: it reads its own clock whenever the run announces a moment. Both sides record two
readings that enclose the moment. For the parent, a message was sent after it last found none and before it read this
one; the run reads its clocks before and after it sends. At the start and at the end the run waits for the parent's
answer, off its clock, so that the whole run is bounded from both sides. ``records/witness.py`` compares the two.

A single process is a team of one, so the same code carries out both kinds of runs; a ``Member`` decides who writes
what.
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
from levelbench.measure.timeline import DeviceMarks, Timeline
from levelbench.networks.executor import Backend
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
    """A run to be made. ``data`` is the dataset's folder, if the user named one."""

    reference: str
    specification: Specification
    key: str
    seed: int
    id: str
    store: str
    data: str | None = None
    source: str = ""
    """The digest of the task's source as the parent read it; empty if any source is accepted."""
    resume: str | None = None
    """The checkpoint to resume from."""
    checkpoint: str | None = None
    """How often to write a checkpoint, such as "1 epoch"."""
    observe: list[str] = []
    """Observers as named on the command line: ``["csv=logs"]``."""
    timeout_s: float = 300.0
    """How long a rank waits for another one before it considers it lost."""
    keep_model: bool = False
    """Whether to keep the trained network in the store, for ``infer`` and ``analyze generalization``."""
    doubts: list[str] = []
    """Doubts about the task that the command found before the first run."""
    planned_effect: float | None = None
    """The effect for which looks at the comparison are planned, if it continues until it is clear."""
    planned_runs: int = 0
    """How many runs of each arm the command asked for."""
    replaced: int = 0
    """How many finished runs of this arm and seed this one replaces, including those that they had replaced."""
    chosen: list[str] | None = None
    """Which settings differ from the defaults, as in a record's header."""
    first: dict[str, Any] = {}
    """What the environment says of the command: its first seed, whether this is a trial of a search, and of the first
    run of this arm, where that is not counted with this one.
    """


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
    """Whether the error is the loss of another rank, and therefore not the cause."""
    fault: str = ""
    """The part of the error that a record keeps: its type and place, never its text."""
    moment: Literal["", "start", "evaluation", "end"] = ""
    """A moment at which the parent reads its clock; at the start and the end the run waits for its answer."""


class Appends(Protocol):
    """Anything to which events can be appended, such as a record."""

    def append(self, event: Event) -> None:
        """Append one event."""


class Recorder(Observer):
    """Appends each evaluation, and the raw step times before it, to the record; updates meters that could wrap."""

    def __init__(self, writer: Appends, tell: Tell, gauges: Sequence[Meter] = ()) -> None:
        self._writer = writer
        self._tell = tell
        self._gauges = gauges
        self._caught_up_ns = 0

    def on_start(self, progress: Progress) -> None:
        """Tell the parent."""
        self._tell(Message(phase="train"))

    def on_evaluation(self, progress: Progress, evaluation: Evaluation, step_times_ns: list[int]) -> None:
        """Append two lines, and read from time to time the counters that could wrap unnoticed in a long run."""
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
"""The least time between two evaluation messages: on a single core, waking the parent takes time from the run."""

Hear = Callable[[], list[Between] | str]
"""Waits for the parent's answer: all its readings, or why there are none."""


@final
class Parent:
    """The parent's side of the witness: readings of its own clock at the run's moments.

    ``testimony`` is its last answer, which the record must contain.
    """

    def __init__(self) -> None:
        self._seen: list[Between] = []
        self._nothing_ns = self._looking_ns = SECOND.now_ns()
        self.testimony: tuple[Between, ...] = ()

    def look(self) -> None:
        """To be called right before looking for messages."""
        self._nothing_ns, self._looking_ns = self._looking_ns, SECOND.now_ns()

    def found(self, messages: Sequence[Message]) -> list[Between] | None:
        """Note the moments among the ``messages`` found; returns the answer if the run waits for one."""
        now, answer = SECOND.now_ns(), None
        for message in messages:
            if message.moment == "start":
                self._seen = []
            if message.moment:
                # A run that waits for an answer is still waiting now.
                waits = message.moment != "evaluation"
                self._seen.append((now, now) if waits else (self._nothing_ns, now))
            if message.moment in ("start", "end"):
                answer = list(self._seen)
                self.testimony = tuple(answer)
        return answer


def no_parent() -> str:
    """The answer if no other process started the run: no readings, and no reason to miss them."""
    return ""


@final
class Sights(Observer):
    """The run's side of the witness: readings of its clocks at each moment. It must be the first observer.

    It reads the start before the timeline begins, so that waiting for the parent is off the clock.
    """

    def __init__(self, clock: Clock, tell: Tell, hear: Hear) -> None:
        self._now_ns, self._tell, self._hear = clock.now_ns, tell, hear
        self._absent = ""
        self._sent: list[int] = []
        """The indices of the moments that were sent to the parent."""
        self._moments: list[tuple[int, Between, Between, Between | None]] = []
        self._last_ns = 0
        self._evaluations = 0
        self._zero_ns = 0
        self._slept_ns = -_slept_ns()

    def begin(self, evaluations: int = 0) -> None:
        """Note the moment before the clock starts; ``evaluations`` is the number made by an earlier process."""
        self._evaluations = evaluations
        self._look("start")

    def started(self, timeline: Timeline) -> None:
        """The clock has started."""
        self._zero_ns = timeline.started_ns

    def on_evaluation(self, progress: Progress, evaluation: Evaluation, step_times_ns: list[int]) -> None:
        """Note the moment right after an evaluation."""
        self.evaluated()

    def evaluated(self) -> None:
        """Note the moment right after an evaluation."""
        self._evaluations += 1
        self._look("evaluation")

    def on_end(self, progress: Progress) -> None:
        """Note the end of training."""
        self._look("evaluation", always=True)

    def end(self) -> Witness:
        """Note the last moment and return all readings; to be called right after the clock's last reading."""
        seen = self._look("end")
        if isinstance(seen, str) or len(seen) != len(self._sent):
            self._absent, seen = seen if isinstance(seen, str) else "its answer is about other moments", []
        parents = dict(zip(self._sent, seen, strict=False))
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
            self._sent.append(len(self._moments))
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
    """Whether a record contains exactly the parent's readings: none if the run never asked for them."""
    told = [each.parent_ns for each in witness.sights if each.parent_ns is not None] if witness else []
    return told == [_since(each, testimony[0][0]) for each in testimony]


def _since(moment: Between, zero: int) -> Between:
    return moment[0] - zero, moment[1] - zero


def _slept_ns() -> int:
    """How long this machine has been suspended since it started; 0 if its clocks do not show that."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return 0
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class Written(AbstractContextManager["Written"]):
    """A record that this process writes, or only the path of one that another rank writes."""

    def __init__(self, path: Path, writer: RecordWriter | None) -> None:
        self.path, self._writer = path, writer

    def append(self, event: Event) -> None:
        """Append an event if this rank writes the record."""
        if self._writer is not None:
            self._writer.append(event)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.close()


@dataclass(frozen=True)
class Together:
    """What the members of a run have collected at its end.

    These are ``readings`` of meters, ``doubts`` about the run, ``facts`` about the team for the record, and the CPU
    seconds of the other members on this machine.
    """

    readings: tuple[Reading, ...]
    doubts: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    others_cpu_s: float = 0.0


class Member(ABC):
    """One of the processes that carry out a run."""

    team: Team
    first: bool
    """Whether it writes the record and informs observers."""
    ends_failures: bool = True
    """Whether it writes the end of a failed run. In a team only the launching process knows the cause."""

    restarts: int = 0
    """How often the members were restarted after one of them was lost."""

    def device(self, asked: str) -> str:
        """The device that this member opens if the run's device is ``asked``."""
        return asked

    def clock(self, backend: Backend) -> Clock:
        """The clock of the run's phases."""
        return backend.clock()

    def marks(self, backend: Backend) -> DeviceMarks | None:
        """Points in the device's work, for phases that need not wait for it at each switch."""
        return backend.marks()

    def lost(self, error: LevelbenchError) -> bool:
        """Whether the error is the loss of another member."""
        return False

    def resumed(self, job: Job) -> tuple[Job, Snapshot | None]:
        """The job, and the state from which this member resumes; called before the clock starts.

        Raises ``DataError`` if a checkpoint cannot be read.
        """
        return job, load(Path(job.resume)) if job.resume else None

    def before_ns(self, resume: Snapshot | None) -> dict[str, int]:
        """The nanoseconds by phase with which the clock starts; called right before that."""
        return dict(resume.facts.totals_ns) if resume else {}

    def saving(self, path: Path, every: Evaluate, key: str) -> Saving:
        """How this member saves its state."""
        return Saving(path, every, key)

    def started(self, resume: Snapshot | None, saves: bool) -> None:  # noqa: B027  # alone there is nothing to do
        """The trainer is ready, with the state of ``resume``; ``UnsupportedError`` if its state cannot be saved."""

    @abstractmethod
    def begin(self, store: Path, header: Header) -> Written:
        """Begin the record."""

    @abstractmethod
    def ready(self) -> None:
        """Called right before the clock starts."""

    @abstractmethod
    def observers(self) -> Sequence[Observer]:
        """The observers of this member."""

    @abstractmethod
    def end(self, readings: Sequence[Reading]) -> Together:
        """Collect what the members have; ``readings`` are of this one's meters. Called before the record's end."""

    @abstractmethod
    def leave(self) -> None:
        """Called after the record's last line."""


@final
class AloneMember(Member):
    """The only process of a run."""

    def __init__(self) -> None:
        self.team, self.first = Alone(), True

    def begin(self, store: Path, header: Header) -> Written:
        """Begin its record."""
        writer = RecordWriter.create(store, header)
        return Written(writer.path, writer)

    def ready(self) -> None:
        """No-op."""

    def observers(self) -> Sequence[Observer]:
        """None of its own."""
        return ()

    def end(self, readings: Sequence[Reading]) -> Together:
        """Its own readings."""
        return Together(tuple(readings))

    def leave(self) -> None:
        """No-op."""
