"""What passes between a command and the process of one run: a job, messages, and the events of the record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import msgspec

from levelbench.measure.meters import Meter
from levelbench.records import Evaluation, Event, Samples, Specification
from levelbench.training.observers.base import Observer, Progress
from levelbench.training.pulse import Pulse

__all__ = ["Job", "Message", "Recorder", "Tell", "phase_text"]

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


def phase_text(phase: str, pulse: Pulse) -> str:
    """What a run is at, in words: ``train, step 812/4,292``."""
    return f"{phase}, {pulse.text}" if phase == "train" and pulse.text else phase


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
