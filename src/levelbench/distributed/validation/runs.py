"""A scheme let loose on ranks in this process, with all that each rank did written down.

The one idea: a run is a value (``Case``), so checks that need the same run share it, and two runs that must end alike
differ in one field.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from levelbench.distributed.communicator import Communicator
from levelbench.distributed.communicators.algorithmic import Algorithmic
from levelbench.distributed.communicators.threads import rank_outcomes
from levelbench.distributed.communicators.wrapping import CountingCommunicator, Delays
from levelbench.distributed.scheme import Observations, Scheme
from levelbench.distributed.validation.loop import Kept, RankLoop, single_process
from levelbench.distributed.validation.models import Model, Regression, Scripted
from levelbench.distributed.validation.rules import RATE, SHORT, Told
from levelbench.distributed.validation.watching import Abandoned, Pulse, Watched, receipts_as_sends
from levelbench.errors import CommunicationError, MissingError, UnsupportedError, UsageError
from levelbench.measure.timeline import Phase
from levelbench.networks.executor import Array, Backend
from levelbench.operators.frameworks import open_framework
from levelbench.training.optimizers.base import Optimizer

__all__ = ["EVEN", "UNEVEN", "Bench", "Case", "Outcome", "Trace"]

Floats = NDArray[Any]

_LATE_S, _SLOW_S, _LOOK_S, _GRACE_S = 0.002, 0.004, 0.1, 1.0
# The first run on a number of ranks may have to compile.
_FIRST = 6.0

EVEN = (12,)
UNEVEN = (12, 7, 5, 1, 8)
"""Examples of the global batches: no number of ranks from 2 to 5 divides all, and of the fourth most have none."""


@dataclass(frozen=True)
class Case:
    """What is run. ``sizes`` are the examples of the global batches, again from the beginning after the last."""

    ranks: int
    steps: int = SHORT
    learns: bool = False
    """Real gradients of a small network, in place of scripted ones."""
    optimizer: Optimizer | None = None
    """``None``: plain gradient descent that writes down what it is told."""
    dtype: str = "float64"
    sizes: tuple[int, ...] = UNEVEN
    constant: bool = False
    """Scripted gradients are those of the first step at every step."""
    decays: bool = True
    """Whether the factor of the learning rate changes from step to step."""
    early: bool = False
    """Gradients are told as they become final, too."""
    perturbed: bool = False
    """Ranks other than 0 begin with other parameters and buffers."""
    spoiled: bool = False
    """Gradients are overwritten as soon as their step has returned."""
    accumulate: int = 1
    keeps: bool = True
    """Whether the parameters after each step are kept, and not only the last."""
    pauses: tuple[int, ...] = ()
    """Steps after which all meet twice and look at the averaged weights, as before an evaluation."""
    saves: int = 0
    """The step after which all ranks keep their state, if any."""
    resumes: bool = False
    """Fresh ranks go on from what those of this very case kept who did not."""
    synchronous: bool = False
    """Sends last until they were received."""
    messages: bool = False
    """Collectives are made of messages, so that what is counted is what is sent."""
    late: int | None = None
    """The seed of random delays before each operation."""
    slow: int | None = None
    """A rank that is later than the others."""
    dies: tuple[int, int] | None = None
    """The rank that dies, and at which of its operations (from 1)."""

    @property
    def delays(self) -> Delays | None:
        """What goes wrong."""
        if self.late is None and self.slow is None and self.dies is None:
            return None
        slow = {} if self.slow is None else {self.slow: _SLOW_S}
        fail_at = {} if self.dies is None else dict([self.dies])
        return Delays(self.late or 0, 0.0 if self.late is None else _LATE_S, slow, fail_at)

    def factor(self, step: int) -> float:
        """The factor of the learning rate at a step, from 1."""
        return 1.0 / (1.0 + 0.1 * (step - 1)) if self.decays else 1.0

    def examples(self, step: int) -> list[int]:
        """Those of the global batches that make up a step."""
        first = (step - 1) * self.accumulate
        return [self.sizes[at % len(self.sizes)] for at in range(first, first + self.accumulate)]


@dataclass(eq=False)
class Trace:
    """What one rank did. Arrays are copies on the host, but ``live``."""

    rank: int
    trains: bool = True
    start: dict[str, Floats] = field(default_factory=dict)
    """The parameters once the scheme has started."""
    start_buffers: dict[str, Floats] = field(default_factory=dict)
    after: list[dict[str, Floats]] = field(default_factory=list)
    """The parameters after each step."""
    final: dict[str, Floats] = field(default_factory=dict)
    """... at the very end, after all have met."""
    averaged: dict[str, Floats] | None = None
    kept: Kept | None = None
    unkept: str | None = None
    """Why it cannot be kept, as the stepper says."""
    sent: list[tuple[int, int]] = field(default_factory=list)
    """Bytes and messages by step; of a server by stretch of steps."""
    told: list[tuple[int, float, tuple[str, ...]]] = field(default_factory=list)
    """Step, factor and parameters that its optimizer was told of."""
    phases: set[Phase] = field(default_factory=set)
    """Those in which a step returned."""
    talks: dict[str, set[Phase]] = field(default_factory=dict)
    """The phases in which it waited within a step, by operation."""
    ledger: Observations = field(default_factory=Observations)
    live: dict[str, Array] = field(default_factory=dict)
    operations: int = 0
    asked_early: bool = False
    wraps: bool = False
    """Whether the scheme goes forward and backward by itself."""
    doing: Callable[[], str] = lambda: "nothing yet"
    """The operation that it began last."""
    step: int = 0
    """The step it was in last, from 1."""
    finished: bool = False
    error: BaseException | None = None
    stubborn: bool = False
    """Whether it went on, again and again, after errors of communication."""


@final
@dataclass(eq=False)
class Outcome:
    """What all ranks did; ``error`` is what ended the run, if something did."""

    case: Case
    traces: list[Trace]
    error: BaseException | None

    @property
    def workers(self) -> list[Trace]:
        """The ranks that train."""
        return [each for each in self.traces if each.trains]

    @property
    def hung(self) -> list[Trace]:
        """Ranks that neither came to their end nor were told to end."""
        return [each for each in self.traces if not each.finished and each.error is None]

    @property
    def cause(self) -> BaseException | None:
        """What ended the run: rather what a rank raised by itself than what the others heard of it."""
        own = [each.error for each in self.traces if each.error is not None]
        return next((each for each in own if not isinstance(each, CommunicationError)), self.error)

    def why(self) -> str:
        """What ended the run, and what each rank was about."""
        error = self.cause
        culprit = next((each for each in self.traces if each.error is error), None)
        where = "; ".join(f"rank {each.rank}: step {each.step}, {_about(each)}" for each in self.traces)
        if isinstance(error, CommunicationError):
            return f"{receipts_as_sends(f'{error.asked}: {error.found}')} ({where})"
        who = f"rank {culprit.rank} raised " if culprit is not None else ""
        return f"{who}{type(error).__name__}: {error} ({where})"


def _about(trace: Trace) -> str:
    return "ended" if trace.finished else trace.doing()


@final
class Bench:
    """A scheme, a framework and a seed; ``seconds`` is how long a run may last. Runs are made once."""

    def __init__(self, scheme: Scheme, framework: str, seed: int, seconds: float) -> None:
        self.scheme, self.framework, self.seed, self.seconds = scheme, framework, seed, seconds
        backend = open_framework(framework)
        if not isinstance(backend, Backend):
            raise UnsupportedError(f"framework {framework!r}", "it does not train", "use numpy, torch or jax")
        self.backend: Backend = backend
        self._made: dict[Case, Outcome] = {}
        self._alone: dict[Case, list[dict[str, Floats]]] = {}

    def run(self, case: Case) -> Outcome:
        """The outcome of a case; that of the same case before, if there was one."""
        if case not in self._made:
            first = all(other.ranks != case.ranks for other in self._made)
            self._made[case] = self.again(case, _FIRST if first else 1.0)
        return self._made[case]

    def alone(self, case: Case) -> list[dict[str, Floats]]:
        """The parameters after each step of one process on whole batches."""
        if case not in self._alone:
            self._alone[case] = single_process(self, case)
        return self._alone[case]

    def again(self, case: Case, patience: float = 1.0) -> Outcome:
        """The outcome of a case, run anew; ``patience`` times as long may pass before it is taken for hung."""
        seconds = self.seconds * patience
        pulse = Pulse(seconds)
        traces = [Trace(rank) for rank in range(case.ranks)]
        before = self.run(replace(case, resumes=False)).traces if case.resumes else []
        errors: list[BaseException] = []

        def work(communicator: Communicator) -> None:
            trace = traces[communicator.rank]
            try:
                with np.errstate(all="ignore"):
                    kept = before[trace.rank].kept if before else None
                    self._rank(communicator, case, trace, pulse, kept)
            except BaseException as error:  # noqa: BLE001  # the boundary to a user's scheme, and whatever ends it
                trace.stubborn = isinstance(error, Abandoned)
                trace.error = _told(error, communicator.rank)
                errors.append(trace.error)
                raise trace.error from None
            trace.finished = True

        # By daemons, and from another thread: a rank that never asks for anything must not hold up the check.
        ended = threading.Event()
        outcomes: list[Any] = []

        def play() -> None:
            outcomes.extend(rank_outcomes(case.ranks, work, timeout_s=seconds, delays=case.delays))
            ended.set()

        threading.Thread(target=play, name="ranks", daemon=True).start()
        while not ended.wait(_LOOK_S):
            if pulse.stopped and not ended.wait(seconds + _GRACE_S):
                break
        for trace in traces:
            # Before its first step a scheme may refuse; later on it has failed.
            if not trace.step and isinstance(trace.error, UsageError | UnsupportedError | MissingError):
                raise trace.error
        return Outcome(case, traces, next(iter(errors), None) or _unended(traces, seconds))

    def model(self, case: Case, rank: int) -> Model:
        """The network of a rank, as it is before the scheme has started."""
        apart = rank if case.perturbed else 0
        if case.learns:
            return Regression(self.backend, self.seed, case.dtype, case.early, apart)
        return Scripted(self.backend, self.seed, rank, case.dtype, case.early, apart)

    def _rank(self, communicator: Communicator, case: Case, trace: Trace, pulse: Pulse, before: Kept | None) -> None:
        optimizer = case.optimizer or Told(RATE, notes=trace.told)
        loop = RankLoop(self, case, trace, optimizer, before)
        watched = Watched(communicator, pulse, synchronous=case.synchronous, tell=loop.talk)
        trace.doing = lambda: watched.last
        inner = Algorithmic(watched) if case.messages else watched
        try:
            loop.run(CountingCommunicator(inner, loop.current))
        finally:
            trace.operations = watched.operations


def _told(error: BaseException, rank: int) -> BaseException:
    """What a rank is said to have raised."""
    if not isinstance(error, Abandoned):
        return error
    found = "it went on, again and again, after it was told that another rank is lost"
    return CommunicationError(f"rank {rank}", found, "let the error end it")


def _unended(traces: Sequence[Trace], seconds: float) -> BaseException | None:
    for trace in traces:
        if not trace.finished:
            do = "see that its loop ends, or give the check more --seconds"
            return CommunicationError(f"rank {trace.rank}", f"it has not ended after {seconds:g} s", do)
    return None
