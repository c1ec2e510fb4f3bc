"""Runs a scheme on ranks in this process and records everything that each rank does.

A run is a value (``Rehearsal``), so probes that need the same run share it, and two runs that must end equally differ
in a single field. A rank makes exactly the same calls to a scheme as the trainer, in the same order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf
from typing import final

import numpy as np

from levelbench.checks.arrays import Host
from levelbench.checks.findings import EndProbe, Finding, failed
from levelbench.distributed.communicator import Communicator
from levelbench.distributed.communicators.algorithmic import Algorithmic
from levelbench.distributed.communicators.threads import rank_outcomes
from levelbench.distributed.communicators.wrapping import CountingCommunicator, Delays
from levelbench.distributed.probes.doubles import (
    FEATURES,
    LARGE,
    RATE,
    SHAPES,
    SHORT,
    TARGETS,
    Abandoned,
    HangDetector,
    NotingSGD,
    Regression,
    Scripted,
    ToyNetwork,
    Watched,
    receipts_as_sends,
)
from levelbench.distributed.ranks import DeferredGradients
from levelbench.distributed.scheme import Observations, Scheme, SchemeStepper, Worker
from levelbench.errors import CommunicationError, MissingError, UnsupportedError, UsageError
from levelbench.measure.timeline import Phase
from levelbench.networks.executor import Array, Backend, Executor, host_copies
from levelbench.operators.frameworks import open_framework
from levelbench.training.optimizers.base import Optimizer

Floats = Host

_EXAMPLES, _TEACHER = 0xDA7A, 0x7EAC


@lru_cache(maxsize=1024)
def batch(seed: int, number: int, examples: int) -> tuple[Floats, Floats]:
    """Global batch ``number``, from 0: inputs (examples, FEATURES) and targets (examples, TARGETS), float64.

    Read-only, because ranks and runs share them.
    """
    teacher = np.random.default_rng((seed, _TEACHER)).normal(0.0, 1.0, (FEATURES, TARGETS))
    draws = np.random.default_rng((seed, number, _EXAMPLES))
    inputs = draws.standard_normal((examples, FEATURES))
    targets = np.tanh(inputs @ teacher) + 0.1 * draws.standard_normal((examples, TARGETS))
    inputs.flags.writeable = targets.flags.writeable = False
    return inputs, targets


def part_of(examples: int, rank: int, workers: int) -> slice:
    """A worker's rows of a global batch, as in ``Partitioned``."""
    return slice(examples * rank // workers, examples * (rank + 1) // workers)


@dataclass(frozen=True, eq=False)
class RankState:
    """What a rank saves at a checkpoint; copies on the host."""

    state: dict[str, Floats]
    """The scheme's state."""
    parameters: dict[str, Floats]
    buffers: dict[str, Floats]


@final
class RankLoop:
    """One rank of a case."""

    def __init__(self, trial: SchemeTrial, case: Rehearsal, trace: RankTrace, before: RankState | None) -> None:
        self._trial, self._case, self._trace, self._before = trial, case, trace, before
        self._optimizer = case.optimizer or NotingSGD(RATE, notes=trace.given)
        self._model = trial.model(case, trace.rank)
        self._phase, self._stepping = Phase.OTHER, False
        self._workers = trial.scheme.workers(case.ranks)
        self._stepper: SchemeStepper
        trace.trains = trace.rank < self._workers

    def current(self) -> Phase:
        """The rank's current phase."""
        return self._phase

    def talk(self, what: str) -> None:
        """Note that the rank has waited for an operation."""
        if self._stepping:
            self._trace.talks.setdefault(what, set()).add(self._phase)

    def run(self, communicator: CountingCommunicator) -> None:
        """Run the start, all steps, the meetings in between, and the end."""
        case, trace, model = self._case, self._trace, self._model
        executor: Executor = DeferredGradients(model) if case.accumulate > 1 else model
        trial = self._trial
        worker = Worker(communicator, trial.backend, executor, self._optimizer, trial.seed, self._switch, trace.ledger)
        self._stepper = stepper = trial.scheme.start(worker)
        trace.unkept = stepper.unkept
        trace.start, trace.start_buffers = model.held(), model.held_buffers()
        done = 0
        if self._before is not None:
            self._restore(self._before)
            done = case.saves
        communicator.take()
        meetings = {*case.pauses, case.steps}
        for last in sorted(each for each in {*meetings, case.saves} if each > done):
            self._stretch(communicator, done + 1, last)
            if last in meetings:
                self._meet(twice=last in case.pauses)
                totals = communicator.take()
                trace.met.append((totals.sent_bytes, totals.messages))
            if last == case.saves:
                trace.kept = self._kept(communicator)
            communicator.take()
            done = last
        trace.final, trace.final_buffers, trace.live = model.held(), model.held_buffers(), dict(model.parameters)
        trace.asked_early = model.asked_early
        stepper.close()

    def _stretch(self, communicator: CountingCommunicator, first: int, last: int) -> None:
        trace, note = self._trace, self._trace.sent.append
        if not trace.trains:
            trace.step = first
            self._stepper.serve(first, last, self._case.factor)
            trace.step = last
            totals = communicator.take()
            note((totals.sent_bytes, totals.messages))
            return
        for step in range(first, last + 1):
            trace.step = step
            self._step(step)
            totals = communicator.take()
            note((totals.sent_bytes, totals.messages))
            if self._case.keeps:
                held = self._model.held()
                trace.after.append(
                    {name: each[:: self._case.every] if each.ndim else each for name, each in held.items()}
                )

    def _step(self, step: int) -> None:
        stepper, case = self._stepper, self._case
        sizes = case.examples(step)
        parts = [part_of(each, self._trace.rank, self._workers) for each in sizes]
        own = sum(each.stop - each.start for each in parts)
        stepper.share = own / sum(sizes)
        self._switch(Phase.FORWARD)
        gradients = dict(self._gradients(step, sizes, parts, own))
        if case.spoilt is not None and case.spoilt[:2] == (self._trace.rank, step):
            gradients[SPOILT] = self._model.native(spoilt(self._trial.backend.host(gradients[SPOILT]), case.spoilt[2]))
        self._switch(Phase.BACKWARD)
        self._stepping = True
        stepper.step(gradients, step, case.factor(step))
        self._stepping = False
        self._trace.phases.add(self._phase)
        if case.spoiled:
            # Some frameworks' arrays are not writable.
            with suppress(TypeError):
                for gradient in gradients.values():
                    gradient[...] = float("nan")

    def _gradients(self, step: int, sizes: list[int], parts: list[slice], own: int) -> Mapping[str, Array]:
        """The gradients of the mean loss over this rank's examples of all batches of a step; zeros without examples."""
        executor, case = self._stepper.executor, self._case
        if not own or step > case.until:
            return self._model.zeros()
        if isinstance(self._model, Scripted):
            self._model.step = 1 if case.constant else step
            executor.forward()
            found = executor.backward()
            turned = case.turned(step)
            return found if turned == 1 else {name: each * turned for name, each in found.items()}
        total: dict[str, Array] = {}
        for at, (size, part) in enumerate(zip(sizes, parts, strict=True)):
            count = part.stop - part.start
            if not count:
                continue
            number = (step - 1) * len(sizes) + at
            executor.forward(*(each[part] for each in batch(self._trial.seed, number, size)))
            gradients = executor.backward()
            if count == own:
                return gradients
            for name in SHAPES:
                weighted = gradients[name] * (count / own)
                total[name] = total[name] + weighted if name in total else weighted
        return total

    def _kept(self, communicator: CountingCommunicator) -> RankState:
        self._switch(Phase.CHECKPOINT)
        # Before the parameters, like the trainer: what is in progress may change them.
        state = {name: np.array(each) for name, each in self._stepper.state().items()}
        kept = RankState(state, self._model.held(), self._model.held_buffers())
        # No rank continues before all have saved theirs.
        communicator.barrier()
        return kept

    def _restore(self, kept: RankState) -> None:
        model = self._model
        model.parameters.update({name: model.native(each) for name, each in kept.parameters.items()})
        model.buffers.update({name: model.native(each) for name, each in kept.buffers.items()})
        self._stepper.restore({name: each.copy() for name, each in kept.state.items()})

    def _meet(self, *, twice: bool) -> None:
        stepper, trace = self._stepper, self._trace
        for _ in range(2 if twice else 1):
            stepper.meet()
        if not trace.trains:
            return
        averaged = stepper.averaged()
        trace.averaged = None if averaged is None else host_copies(self._trial.backend, averaged)

    def _switch(self, phase: Phase) -> None:
        self._phase = phase


SPOILT = "hidden.weight"
"""The parameter whose gradient is spoilt where a case asks for it."""


def spoilt(gradient: Floats, value: float) -> Floats:
    """A copy with ``value`` as its middle element."""
    changed = np.array(gradient)
    changed.flat[changed.size // 2] = value
    return changed


def single_process(trial: SchemeTrial, case: Rehearsal) -> list[dict[str, Floats]]:
    """The parameters after each step of one process on whole batches."""
    model, optimizer = trial.model(case, 0), case.optimizer
    assert optimizer is not None
    stepper = optimizer.start(trial.backend, model.parameters)
    after = []
    number = 0
    for step in range(1, case.steps + 1):
        columns = []
        for size in case.examples(step):
            columns.append(batch(trial.seed, number, size))
            number += 1
        model.forward(*(np.concatenate(parts) for parts in zip(*columns, strict=True)))
        stepper.step(dict(model.backward()), step, case.factor(step))
        after.append(model.held())
    return after


_LATE_S, _SLOW_S, _LOOK_S, _GRACE_S = 0.002, 0.004, 0.1, 1.0
# The first run on a number of ranks may need to compile or to import, but NumPy has nothing to.
_FIRST = 6.0
# Of collectives built from messages: beyond those of a scheme that builds its own.
_TAGS = 1 << 20

OTHERS = range(2, 10)
"""Numbers of ranks that are tried besides those asked for."""
EVEN = (12,)
UNEVEN = (12, 7, 5, 1, 8)
"""Examples of the global batches: no rank count from 2 to 5 divides all, and in the fourth most ranks have none."""


@dataclass(frozen=True)
class Rehearsal:
    """A run. ``sizes`` are the examples of the global batches, repeated cyclically."""

    ranks: int
    steps: int = SHORT
    learns: bool = False
    """Real gradients of a small network instead of scripted ones."""
    optimizer: Optimizer | None = None
    """``None``: plain gradient descent that records its arguments."""
    dtype: str = "float64"
    sizes: tuple[int, ...] = UNEVEN
    constant: bool = False
    """Use the scripted gradients of the first step in every step."""
    turns: int = 0
    """Steps in which the gradients of the first step slowly become their opposite, which they stay."""
    alike: bool = False
    """Let all ranks have the scripted gradients of rank 0."""
    until: float = inf
    """The last step with gradients; those of later ones are zero."""
    large: bool = False
    """Use parameters of a million elements, if gradients are scripted."""
    decays: bool = True
    """Whether the factor of the learning rate changes from step to step."""
    times: float = 1.0
    """What the factor of every step is multiplied by."""
    early: bool = False
    """Also pass on gradients as they become final."""
    perturbed: bool = False
    """Start other ranks than 0 with different parameters and buffers."""
    spoilt: tuple[int, int, float] | None = None
    """A rank, a step of it, and the value that one element of its gradient has there."""
    spoiled: bool = False
    """Overwrite gradients as soon as their step has returned."""
    accumulate: int = 1
    keeps: bool = True
    """Whether to record the parameters after each step, not only the last."""
    every: int = 1
    """Of the elements of a large array, how many there are for each one recorded after each step."""
    pauses: tuple[int, ...] = ()
    """Steps after which all ranks meet twice and take the averaged weights, as before an evaluation."""
    saves: int = 0
    """The step after which all ranks save their state, if any."""
    resumes: bool = False
    """Resume fresh ranks from what the ranks of the same case without ``resumes`` saved."""
    synchronous: bool = False
    """Sends complete only when they are received."""
    messages: bool = False
    """Build collectives from messages, so that counts are exact."""
    late: int | None = None
    """The seed of random delays before each operation."""
    slow: int | None = None
    """A rank that is slower than the others."""
    dies: tuple[int, int] | None = None
    """The rank that dies, and at which of its operations (from 1)."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the parameters."""
        return LARGE if self.large else SHAPES

    @property
    def delays(self) -> Delays | None:
        """The delays and failures of the run."""
        if self.late is None and self.slow is None and self.dies is None:
            return None
        slow = {} if self.slow is None else {self.slow: _SLOW_S}
        fail_at = {} if self.dies is None else dict([self.dies])
        return Delays(self.late or 0, 0.0 if self.late is None else _LATE_S, slow, fail_at)

    def factor(self, step: int) -> float:
        """The factor of the learning rate at a step, from 1."""
        return self.times / (1.0 + 0.1 * (step - 1)) if self.decays else self.times

    def turned(self, step: int) -> float:
        """What the gradients of a step are multiplied by."""
        return 1.0 - 2.0 * min(1.0, (step - 1) / self.turns) if self.turns else 1.0

    def examples(self, step: int) -> list[int]:
        """The examples of the global batches that make up a step."""
        first = (step - 1) * self.accumulate
        return [self.sizes[at % len(self.sizes)] for at in range(first, first + self.accumulate)]


@dataclass(eq=False)
class RankTrace:
    """What one rank did. Arrays are host copies, except ``live``."""

    rank: int
    trains: bool = True
    start: dict[str, Floats] = field(default_factory=dict)
    """The parameters after the scheme has started."""
    start_buffers: dict[str, Floats] = field(default_factory=dict)
    after: list[dict[str, Floats]] = field(default_factory=list)
    """The parameters after each step."""
    final: dict[str, Floats] = field(default_factory=dict)
    """The parameters at the end, after the last meeting."""
    final_buffers: dict[str, Floats] = field(default_factory=dict)
    averaged: dict[str, Floats] | None = None
    kept: RankState | None = None
    unkept: str | None = None
    """Why it cannot be resumed, according to the stepper."""
    sent: list[tuple[int, int]] = field(default_factory=list)
    """Bytes and messages by step; on a server, by stretch of steps."""
    met: list[tuple[int, int]] = field(default_factory=list)
    """Bytes and messages by meeting."""
    given: list[tuple[int, float, tuple[str, ...]]] = field(default_factory=list)
    """The steps, factors and parameter names passed to its optimizer."""
    phases: set[Phase] = field(default_factory=set)
    """The phases in which a step returned."""
    talks: dict[str, set[Phase]] = field(default_factory=dict)
    """The phases in which it waited within a step, by operation."""
    ledger: Observations = field(default_factory=Observations)
    live: dict[str, Array] = field(default_factory=dict)
    operations: int = 0
    asked_early: bool = False
    doing: Callable[[], str] = lambda: "nothing yet"
    """Describes the last operation that it began."""
    step: int = 0
    """The last step it was in, from 1."""
    finished: bool = False
    error: BaseException | None = None
    stubborn: bool = False
    """Whether it kept going after communication errors."""


@final
@dataclass(eq=False)
class RanksOutcome:
    """What all ranks did; ``error`` is what ended the run, if anything."""

    case: Rehearsal
    traces: list[RankTrace]
    error: BaseException | None

    @property
    def workers(self) -> list[RankTrace]:
        """The ranks that train."""
        return [each for each in self.traces if each.trains]

    def why(self) -> str:
        """What ended the run, and where each rank was."""
        own = [each.error for each in self.traces if each.error is not None]
        # Prefer what a rank raised itself over what the others heard of it.
        error = next((each for each in own if not isinstance(each, CommunicationError)), self.error)
        culprit = next((each for each in self.traces if each.error is error), None)
        where = "; ".join(
            f"rank {each.rank}: step {each.step}, {'ended' if each.finished else each.doing()}" for each in self.traces
        )
        if isinstance(error, CommunicationError):
            return f"{receipts_as_sends(f'{error.asked}: {error.found}')} ({where})"
        who = f"rank {culprit.rank} raised " if culprit is not None else ""
        return f"{who}{type(error).__name__}: {error} ({where})"


@final
class SchemeTrial:
    """A scheme on a framework, with a seed. Each run is made once.

    ``steps`` are those of a run with real gradients; ``seconds`` is how long a run may do nothing.
    """

    def __init__(self, scheme: Scheme, framework: str, seed: int, seconds: float, steps: int) -> None:
        self.scheme, self.framework, self.seed, self.seconds, self.steps = scheme, framework, seed, seconds, steps
        self.ranks: tuple[int, ...] = ()
        """The numbers of ranks to check, ascending, once it is known which the scheme accepts."""
        backend = open_framework(framework)
        if not isinstance(backend, Backend):
            raise UnsupportedError(f"framework {framework!r}", "it does not train", "use numpy, torch or jax")
        self.backend: Backend = backend
        self._made: dict[Rehearsal, RanksOutcome] = {}
        self._alone: dict[Rehearsal, list[dict[str, Floats]]] = {}

    def run(self, case: Rehearsal) -> RanksOutcome:
        """The outcome of a case, from an earlier run if there was one."""
        if case not in self._made:
            first = self.framework != "numpy" and all(other.ranks != case.ranks for other in self._made)
            self._made[case] = self.again(case, _FIRST if first else 1.0)
        return self._made[case]

    def forget(self, case: Rehearsal) -> None:
        """Free what a run of this case has recorded."""
        self._made.pop(case, None)

    @property
    def most(self) -> int:
        """The largest number of ranks."""
        return self.ranks[-1]

    def finished(self, case: Rehearsal, what: str = "", do: str = "") -> RanksOutcome:
        """The outcome of a case that completed; if it did not, the probe ends."""
        outcome = self.run(case)
        if outcome.error is not None:
            raise EndProbe(stopped(outcome, what, do))
        return outcome

    def alone(self, case: Rehearsal) -> list[dict[str, Floats]]:
        """The parameters after each step of one process on whole batches."""
        if case not in self._alone:
            self._alone[case] = single_process(self, case)
        return self._alone[case]

    def again(self, case: Rehearsal, allowance: float = 1.0) -> RanksOutcome:
        """The outcome of a new run of a case; it counts as hung after ``allowance`` times ``seconds``."""
        seconds = self.seconds * allowance
        pulse = HangDetector(seconds)
        traces = [RankTrace(rank) for rank in range(case.ranks)]
        before = self.run(replace(case, resumes=False)).traces if case.resumes else []
        errors: list[BaseException] = []

        def work(communicator: Communicator) -> None:
            trace = traces[communicator.rank]
            try:
                with np.errstate(all="ignore"):
                    kept = before[trace.rank].kept if before else None
                    self._rank(communicator, case, trace, pulse, kept)
            except BaseException as error:  # noqa: BLE001  # user code, and whatever ends it
                trace.stubborn = isinstance(error, Abandoned)
                if trace.stubborn:
                    found = "it kept going after it was told that another rank is lost"
                    error = CommunicationError(f"rank {communicator.rank}", found, "let the error end it")
                trace.error = error
                errors.append(trace.error)
                raise trace.error from None
            trace.finished = True

        # In daemons, and from another thread, so that a rank that never communicates does not block the check.
        ended = threading.Event()

        def play() -> None:
            rank_outcomes(case.ranks, work, timeout_s=seconds, delays=case.delays)
            ended.set()

        threading.Thread(target=play, name="ranks", daemon=True).start()
        while not ended.wait(_LOOK_S):
            if pulse.stopped and not ended.wait(seconds + _GRACE_S):
                break
        for trace in traces:
            # Before its first step a scheme may refuse; afterwards it has failed.
            if not trace.step and isinstance(trace.error, UsageError | UnsupportedError | MissingError):
                raise trace.error
        return RanksOutcome(case, traces, next(iter(errors), None) or _unfinished(traces, seconds))

    def model(self, case: Rehearsal, rank: int) -> ToyNetwork:
        """The network of a rank before the scheme has started."""
        apart = rank if case.perturbed else 0
        if case.learns:
            return Regression(self.backend, self.seed, case.dtype, case.early, apart)
        source = 0 if case.alike else rank
        return Scripted(self.backend, self.seed, source, case.dtype, case.early, apart, case.large)

    def _rank(
        self,
        communicator: Communicator,
        case: Rehearsal,
        trace: RankTrace,
        pulse: HangDetector,
        before: RankState | None,
    ) -> None:
        loop = RankLoop(self, case, trace, before)
        watched = Watched(communicator, pulse, synchronous=case.synchronous, tell=loop.talk)
        trace.doing = lambda: watched.last
        inner = Algorithmic(watched, first_tag=_TAGS) if case.messages else watched
        try:
            loop.run(CountingCommunicator(inner, loop.current))
        finally:
            trace.operations = watched.operations


def _unfinished(traces: Sequence[RankTrace], seconds: float) -> BaseException | None:
    for trace in traces:
        if not trace.finished:
            do = "make sure that its loop ends, or give the check more --seconds"
            return CommunicationError(f"rank {trace.rank}", f"it has not ended after {seconds:g} s", do)
    return None


def with_one_worker(subject: SchemeTrial, case: Rehearsal) -> list[int]:
    """The smallest number of ranks with a single worker on which a run like ``case`` ends; empty if there is none."""
    for ranks in (1, 2):
        try:
            if subject.scheme.workers(ranks) == 1 and subject.run(replace(case, ranks=ranks)).error is None:
                return [ranks]
        except UsageError:
            continue
    return []


def place(ranks: int, rank: int | None = None, step: int | None = None, name: str = "") -> str:
    """A location, such as ``3 ranks, rank 1, step 7, 'gain'``."""
    parts = [f"{ranks} ranks"]
    if rank is not None:
        parts.append(f"rank {rank}")
    if step is not None:
        parts.append(f"step {step}")
    if name:
        parts.append(repr(name))
    return ", ".join(parts)


def stopped(outcome: RanksOutcome, what: str = "", do: str = "") -> Finding:
    """The finding that a run did not complete."""
    number = outcome.case.ranks
    advice = do or "make sure that all ranks make the same calls in the same order and each message has a receiver"
    return failed(f"{place(number)}: {what}{outcome.why()}", advice)


def unlike(one: dict[str, Floats], other: dict[str, Floats]) -> str:
    """The first parameter whose bits differ between two ranks; empty if there is none."""
    if one.keys() != other.keys():
        return next(iter(one.keys() ^ other.keys()))
    return next((name for name in one if one[name].tobytes() != other[name].tobytes()), "")


def apart(one: dict[str, Floats], other: dict[str, Floats]) -> tuple[float, str]:
    """The largest difference, relative to the parameter's largest magnitude in ``other``, and the parameter's name."""
    worst, where = 0.0, ""
    for name, value in other.items():
        scale = float(np.abs(value).max(initial=0.0)) or 1.0
        distance = float(np.abs(one[name].astype(np.float64) - value).max(initial=0.0)) / scale
        # NaN counts as infinitely far away.
        if not distance <= worst:
            worst, where = distance if distance == distance else float("inf"), name
    return worst, where


def evaluated(trace: RankTrace) -> dict[str, Floats]:
    """The weights that are evaluated on a rank."""
    return trace.final if trace.averaged is None else trace.averaged


def require_alike(first: RanksOutcome, second: RanksOutcome, what: str, do: str = "") -> None:
    """End the probe if two runs do not end with the same bits."""
    for outcome in (first, second):
        if outcome.error is not None:
            raise EndProbe(stopped(outcome))
    for one, other in zip(first.workers, second.workers, strict=True):
        name = unlike(one.final, other.final) or unlike(evaluated(one), evaluated(other))
        if name:
            where = place(first.case.ranks, one.rank, None, name)
            advice = do or "let only seed, step and rank decide what is computed"
            raise EndProbe(failed(f"{where}: {what} ends with different bits", advice))
