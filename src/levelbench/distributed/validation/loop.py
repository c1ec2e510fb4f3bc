"""What a rank does in a check: the steps that a trainer makes of it, on batches that are known.

The one idea: it asks a scheme for exactly what the trainer asks for, in the same order, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from levelbench.distributed.communicators.wrapping import CountingCommunicator
from levelbench.distributed.ranks import DeferredGradients
from levelbench.distributed.scheme import SchemeStepper, Worker
from levelbench.distributed.validation.models import FEATURES, SHAPES, TARGETS, Scripted
from levelbench.measure.timeline import Phase
from levelbench.networks.executor import Array, Executor
from levelbench.training.optimizers.base import Optimizer

if TYPE_CHECKING:
    from levelbench.distributed.validation.runs import Bench, Case, Trace

__all__ = ["Kept", "RankLoop", "batch", "part_of", "single_process"]

Floats = NDArray[Any]

_EXAMPLES, _TEACHER = 0xDA7A, 0x7EAC


def batch(seed: int, number: int, examples: int) -> tuple[Floats, Floats]:
    """Global batch ``number``, from 0: inputs (examples, FEATURES) and targets (examples, TARGETS), float64."""
    teacher = np.random.default_rng((seed, _TEACHER)).normal(0.0, 1.0, (FEATURES, TARGETS))
    draws = np.random.default_rng((seed, number, _EXAMPLES))
    inputs = draws.standard_normal((examples, FEATURES))
    return inputs, np.tanh(inputs @ teacher) + 0.1 * draws.standard_normal((examples, TARGETS))


def part_of(examples: int, rank: int, workers: int) -> slice:
    """The rows of a global batch that are a worker's, as ``Partitioned`` has them."""
    return slice(examples * rank // workers, examples * (rank + 1) // workers)


@dataclass(frozen=True, eq=False)
class Kept:
    """What a rank keeps at a checkpoint; copies on the host."""

    state: dict[str, Floats]
    """Of the scheme."""
    parameters: dict[str, Floats]
    buffers: dict[str, Floats]


@final
class RankLoop:
    """One rank of a case."""

    def __init__(
        self, bench: Bench, case: Case, trace: Trace, optimizer: Optimizer, before: Kept | None = None
    ) -> None:
        self._bench, self._case, self._trace, self._optimizer = bench, case, trace, optimizer
        self._before = before
        self._model = bench.model(case, trace.rank)
        self._phase, self._stepping = Phase.OTHER, False
        self._workers = bench.scheme.workers(case.ranks)
        self._stepper: SchemeStepper
        trace.trains = trace.rank < self._workers

    def current(self) -> Phase:
        """The phase that the rank is in."""
        return self._phase

    def talk(self, what: str) -> None:
        """The rank has waited for an operation."""
        if self._stepping:
            self._trace.talks.setdefault(what, set()).add(self._phase)

    def run(self, communicator: CountingCommunicator) -> None:
        """Start, all steps, the meetings in between, the end."""
        case, trace, model = self._case, self._trace, self._model
        executor: Executor = DeferredGradients(model) if case.accumulate > 1 else model
        worker = Worker(
            communicator,
            self._bench.backend,
            executor,
            self._optimizer,
            self._bench.seed,
            self._switch,
            trace.ledger,
        )
        self._stepper = stepper = self._bench.scheme.start(worker)
        trace.unkept = stepper.unkept
        trace.wraps = stepper.executor is not executor
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
            if last == case.saves:
                trace.kept = self._kept(communicator)
            communicator.take()
            done = last
        trace.final, trace.live = model.held(), dict(model.parameters)
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
                trace.after.append(self._model.held())

    def _step(self, step: int) -> None:
        stepper, case = self._stepper, self._case
        sizes = case.examples(step)
        parts = [part_of(each, self._trace.rank, self._workers) for each in sizes]
        own = sum(each.stop - each.start for each in parts)
        stepper.share = own / sum(sizes)
        self._switch(Phase.FORWARD)
        gradients = dict(self._gradients(step, sizes, parts, own))
        self._switch(Phase.BACKWARD)
        self._stepping = True
        stepper.step(gradients, step, case.factor(step))
        self._stepping = False
        self._trace.phases.add(self._phase)
        if case.spoiled:
            _spoil(gradients)

    def _gradients(self, step: int, sizes: list[int], parts: list[slice], own: int) -> Mapping[str, Array]:
        """Of the mean loss over this rank's examples of all batches of a step; zeros of none."""
        executor, case = self._stepper.executor, self._case
        if not own:
            return self._model.zeros()
        if isinstance(self._model, Scripted):
            self._model.step = 1 if case.constant else step
            executor.forward()
            return executor.backward()
        total: dict[str, Array] = {}
        for at, (size, part) in enumerate(zip(sizes, parts, strict=True)):
            count = part.stop - part.start
            if not count:
                continue
            number = (step - 1) * len(sizes) + at
            executor.forward(*(each[part] for each in batch(self._bench.seed, number, size)))
            gradients = executor.backward()
            if count == own:
                return gradients
            for name in SHAPES:
                weighted = gradients[name] * (count / own)
                total[name] = total[name] + weighted if name in total else weighted
        return total

    def _kept(self, communicator: CountingCommunicator) -> Kept:
        self._switch(Phase.CHECKPOINT)
        # Before the parameters, as the trainer does: what was under way may go into them.
        state = {name: np.array(each) for name, each in self._stepper.state().items()}
        kept = Kept(state, self._model.held(), self._model.held_buffers())
        # Nobody goes on before all have written theirs.
        communicator.barrier()
        return kept

    def _restore(self, kept: Kept) -> None:
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
        host = self._bench.backend.host
        trace.averaged = None if averaged is None else {name: np.array(host(each)) for name, each in averaged.items()}

    def _switch(self, phase: Phase) -> None:
        self._phase = phase


def single_process(bench: Bench, case: Case) -> list[dict[str, Floats]]:
    """The parameters after each step of one process on whole batches."""
    model, optimizer = bench.model(case, 0), case.optimizer
    assert optimizer is not None
    stepper = optimizer.start(bench.backend, model.parameters)
    after = []
    number = 0
    for step in range(1, case.steps + 1):
        columns = []
        for size in case.examples(step):
            columns.append(batch(bench.seed, number, size))
            number += 1
        model.forward(*(np.concatenate(parts) for parts in zip(*columns, strict=True)))
        stepper.step(dict(model.backward()), step, case.factor(step))
        after.append(model.held())
    return after


def _spoil(gradients: Mapping[str, Array]) -> None:
    """Overwrite them where the framework's arrays can be written to."""
    for gradient in gradients.values():
        try:
            gradient[...] = float("nan")
        except TypeError:
            return
