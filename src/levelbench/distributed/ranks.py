"""A team of ranks: what each rank's trainer does so that all ranks train one network.

The sampler's batch is split into a part per worker, and in step t each worker runs forward and backward on its part of
batch t. So a recipe means the same on any number of ranks, and a scheme only decides what happens to the gradients.
A worker's loop makes the same calls as the trainer's own and moves the same timeline.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from math import prod, sqrt
from typing import Any, TypeVar, cast, final

import numpy as np

from levelbench.distributed.communicator import Communicator
from levelbench.distributed.communicators.wrapping import CountingCommunicator
from levelbench.distributed.packing import FlatLayout
from levelbench.distributed.scheme import Observations, Scheme, SchemeStepper, Worker
from levelbench.errors import UnknownNameError, UnsupportedError
from levelbench.measure.timeline import Phase, Timeline
from levelbench.networks.executor import Array, Backend, Executor
from levelbench.training.observers import overridden
from levelbench.training.optimizers.arrays import namespace, zeros_like
from levelbench.training.optimizers.base import Stepper
from levelbench.training.samplers import Partitioned, Sampler
from levelbench.training.task import Recipe
from levelbench.training.trainer import Accumulating, Team, Trainer, grouped, grouped_sizes

SCALINGS = ("strong", "weak")
"""Strong scaling keeps the global batch. Weak scaling keeps the batch per worker, which changes the training."""
LR_SCALES = ("none", "linear", "sqrt")


def lr_factor(scale: str, workers: int) -> float:
    """The factor of the learning rate for a batch that is ``workers`` times as large.

    ``linear`` is the rule of Goyal et al. 2017, ``sqrt`` that of Krizhevsky 2014.
    """
    if scale not in LR_SCALES:
        raise UnknownNameError("rule of the learning rate", scale, LR_SCALES)
    return {"none": 1.0, "linear": float(workers), "sqrt": sqrt(workers)}[scale]


def scaled_batch(sampler: Sampler, times: int) -> Sampler:
    """The sampler with a batch ``times`` as large; a sampler that wraps another one has its inner one scaled."""
    by_name = {each.name: each for each in fields(sampler)}
    changed: dict[str, Any] = {}
    if by_name["batch"].init:
        changed["batch"] = sampler.batch * times
    elif "sampler" in by_name:
        changed["sampler"] = scaled_batch(sampler.sampler, times)  # type: ignore[attr-defined]
    else:
        raise UnsupportedError(
            f"weak scaling with {type(sampler).__name__}",
            "it neither takes a batch nor wraps a sampler that does",
            "use strong scaling",
        )
    return replace(sampler, **changed)


@contextmanager
def heartbeat(beat: Callable[[], object], every_s: float) -> Iterator[None]:
    """Call ``beat`` from a thread every ``every_s`` seconds until the block ends.

    Meanwhile nothing else may use what ``beat`` uses. If ``beat`` raises, the error is raised after a successful block.
    """
    over = threading.Event()
    raised: list[BaseException] = []

    def watch() -> None:
        while not over.wait(every_s):
            try:
                beat()
            except BaseException as error:  # noqa: BLE001  # raised again by the waiting thread
                raised.append(error)
                return

    thread = threading.Thread(target=watch, name="levelbench-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if raised:
        raise raised[0]


@final
class DeferredGradients(Executor):
    """An executor with several backward passes per update, so no gradient is final before the last of them."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.network, self.mode = executor.network, executor.mode
        self.parameters, self.buffers = executor.parameters, executor.buffers

    def infer(self, *inputs: Array) -> tuple[Array, ...]:
        return self._executor.infer(*inputs)

    def forward(self, *inputs: Array) -> Array:
        return self._executor.forward(*inputs)

    def backward(self) -> Mapping[str, Array]:
        return self._executor.backward()

    def on_gradient(self, callback: Callable[[str, Array], None] | None) -> bool:
        return False


def worker_steps(team: Ranks, trainer: Trainer, epoch: int, start: int, end: int, planned: int, lr: float) -> None:
    """Run steps ``start`` to ``end`` (exclusive) of an epoch; ``lr`` multiplies the schedule's factor."""
    timeline, switch = trainer.timeline, trainer.timeline.switch
    data, forwards, backwards, communicate = map(int, (Phase.DATA, Phase.FORWARD, Phase.BACKWARD, Phase.COMMUNICATE))
    switch(data)
    whole = team.whole(trainer, epoch)
    accumulate, own = trainer.recipe.accumulate, trainer.loader.sizes(epoch).tolist()
    if accumulate > 1:
        own = grouped_sizes(own, accumulate)
    stepper: Any = trainer.stepper
    progress, losses, times = trainer.progress, trainer.losses, trainer.step_times_ns
    pulse = trainer.pulse.counts
    on_step = overridden(trainer.observers, "on_step")
    passes, executor, factor = _Passes(team, trainer), trainer.executor, trainer.recipe.schedule.factor
    whole_forward, whole_backward, step, stepped = executor.forward, executor.backward, stepper.step, team.stepped
    plain, workers = accumulate == 1, team.workers
    began, talked = timeline.switched_ns, timeline.spent_ns(communicate)
    position = start
    # Not enumerated, which would hold a batch until the next one is ready.
    for batch in _batches(trainer, epoch, start, end, planned):
        examples = own[position]
        stepper.share = share = examples / whole[position]
        switch(forwards)
        # Most steps make direct calls: for a small network each call counts.
        direct = plain and examples > 0
        loss = whole_forward(*batch) if direct else passes.forward(batch, examples)
        losses.append(loss if share * workers == 1 else loss * (share * workers))
        switch(backwards)
        gradients = whole_backward() if direct else passes.backward()
        done = progress.step
        progress.step = pulse[0] = done + 1
        step(gradients, done + 1, factor(done / planned) * lr)
        progress.samples += whole[position]
        position += 1
        for hook in on_step:
            hook(progress)
        switch(data)
        now, spent = timeline.switched_ns, timeline.spent_ns(communicate)
        times.append(now - began)
        stepped(now - began, spent - talked)
        began, talked = now, spent
        del batch


def _batches(trainer: Trainer, epoch: int, start: int, end: int, planned: int) -> Iterator[Any]:
    """The rank's part of each batch: columns, or with accumulation a group of them."""
    accumulate, loader = trainer.recipe.accumulate, trainer.loader
    share_done = epoch * trainer.steps_per_epoch / planned
    batches = loader.batches(epoch, start * accumulate, min(end * accumulate, loader.steps), share_done)
    return grouped(batches, accumulate) if accumulate > 1 else batches


class _Passes:
    """Forward and backward over this rank's part of a batch, which may be empty."""

    def __init__(self, team: Ranks, trainer: Trainer) -> None:
        self._team, self._trainer, self._empty = team, trainer, False
        self._group = Accumulating(trainer.executor, trainer.timeline) if trainer.recipe.accumulate > 1 else None

    def forward(self, batch: Any, examples: int) -> Array:
        """The mean loss over this part; zero if it is empty."""
        self._empty = not examples
        if self._empty:
            if not self._team.allows_empty:
                raise UnsupportedError(
                    f"a batch with fewer examples than workers ({self._team.workers})",
                    f"scheme {self._team.scheme.name!r} runs forward and backward on every rank",
                    "choose a batch that leaves no smaller one at the end of an epoch, or the scheme all-reduce",
                )
            return zeros_like(next(iter(self._trainer.executor.parameters.values()))).sum()
        if self._group is None:
            return self._trainer.executor.forward(*batch)
        return self._group.forward(*(columns for columns in batch if len(columns[0])))

    def backward(self) -> Mapping[str, Array]:
        """The gradients of that loss; zeros if the part is empty."""
        executor = self._trainer.executor
        if self._empty:
            return {name: zeros_like(each) for name, each in executor.parameters.items()}
        return executor.backward() if self._group is None else self._group.backward()


T = TypeVar("T")

_STEP_COLUMNS = (("step_time", "ns"), ("communicate_time", "ns"), ("sent", "B"), ("messages", "1"))
_SEED_STRIDE = 1_000_003
"""Between the seeds of two ranks' own draws: a prime, larger than any number of runs."""


@final
class Ranks(Team):
    """A process as a rank of ``communicator``; ``scheme`` keeps the ranks together.

    Each worker normalises its own part of a batch (running statistics are averaged over workers before each evaluation)
    and draws its own dropout. Rank 0, which trains, evaluates and decides. ``scaling`` is one of ``SCALINGS``,
    ``lr_scale`` one of ``LR_SCALES``.
    """

    def __init__(
        self,
        communicator: Communicator,
        scheme: Scheme,
        scaling: str = "strong",
        lr_scale: str = "none",
        heartbeat_s: float = 60.0,
    ) -> None:
        """While rank 0 decides, it tells the others every ``heartbeat_s`` seconds, which is below their timeout."""
        self.communicator = CountingCommunicator(communicator)
        self.scheme, self._weak = scheme, scaling == "weak"
        self.workers = scheme.workers(communicator.size)
        self.trains = communicator.rank < self.workers
        self._lr_factor = lr_factor(lr_scale, self.workers)
        self.ledger = Observations()
        """What this rank observes: by step ``step_time`` and ``communicate_time`` in ns, ``sent`` in B, ``messages``;
        the same with ``_at_start`` and ``_between`` for what is sent outside of steps; what the scheme notes."""
        self.allows_empty = True
        """Whether a worker's part of a batch may be empty: not if the scheme wraps the backward pass."""
        self._stepper: SchemeStepper
        self._counted = (0, 0)
        self._sizes: tuple[int, list[int]] = (-1, [])
        self._heartbeat_s = heartbeat_s

    def recipe(self, recipe: Recipe) -> Recipe:
        """Weak scaling multiplies the batch by the number of workers; strong scaling leaves it."""
        return replace(recipe, sampler=scaled_batch(recipe.sampler, self.workers)) if self._weak else recipe

    def sampler(self, sampler: Sampler) -> Sampler:
        """A worker's part of each batch; a server has none and counts the steps of the first worker."""
        return Partitioned(sampler, self.communicator.rank if self.trains else 0, self.workers)

    def seed(self, seed: int) -> int:
        return seed + self.communicator.rank * _SEED_STRIDE

    def start(
        self, recipe: Recipe, backend: Backend, executor: Executor, seed: int, timeline: Timeline
    ) -> tuple[Stepper, Executor]:
        """Start the scheme. With several batches per update, no gradient is final before the last of them."""
        self._count("_between")
        self.communicator.phase = lambda: timeline.current
        given = DeferredGradients(executor) if recipe.accumulate > 1 else executor
        worker = Worker(self.communicator, backend, given, recipe.optimizer, seed, timeline.switch, self.ledger)
        self._stepper = stepper = self.scheme.start(worker)
        self._count("_at_start")
        self._predict(executor)
        if stepper.executor is given:
            return stepper, executor
        self.allows_empty = False
        if recipe.accumulate > 1:
            raise UnsupportedError(
                f"scheme {self.scheme.name!r} with accumulate={recipe.accumulate}",
                "it reduces the gradients after every backward pass by itself",
                "use the scheme all-reduce, or accumulate=1",
            )
        return stepper, stepper.executor

    def examples(self, trainer: Trainer) -> int:
        return sum(self.whole(trainer, 0))

    def whole(self, trainer: Trainer, epoch: int) -> list[int]:
        """The examples of all ranks in each step of an epoch."""
        if self._sizes[0] != epoch:
            sizes = trainer.recipe.sampler.epoch(trainer.dataset.train, trainer.seed, epoch).sizes
            self._sizes = epoch, grouped_sizes(sizes.tolist(), trainer.recipe.accumulate)
        return self._sizes[1]

    def steps(self, trainer: Trainer, epoch: int, start: int, end: int, planned: int) -> None:
        schedule, lr = trainer.recipe.schedule, self._lr_factor
        # What was sent since the last steps, such as for an evaluation, is not part of the next step.
        self._count("_between")

        if self.trains:
            worker_steps(self, trainer, epoch, start, end, planned, lr)
            return

        def factor(step: int) -> float:
            return schedule.factor((step - 1) / planned) * lr

        sizes, progress = self.whole(trainer, epoch)[start:end], trainer.progress
        trainer.timeline.switch(Phase.COMMUNICATE)
        self._stepper.serve(progress.step + 1, progress.step + len(sizes), factor)
        progress.step = trainer.pulse.counts[0] = progress.step + len(sizes)
        progress.samples += sum(sizes)
        self._count("_serving")

    def stepped(self, step_ns: int, communicate_ns: int) -> None:
        """Note the end of a step."""
        communicator, before = self.communicator, self._counted
        self._counted = sent, messages = communicator.sent_bytes, communicator.sent_messages
        self.ledger.note_row(_STEP_COLUMNS, (step_ns, communicate_ns, sent - before[0], messages - before[1]))

    def meet(self, trainer: Trainer) -> None:
        """Finish what is in progress, then average the running statistics."""
        timeline = trainer.timeline
        timeline.switch(Phase.COMMUNICATE)
        # For traces: the clocks of all ranks start together, after a barrier.
        self.ledger.note("met_at", timeline.switched_ns - timeline.started_ns, "ns")
        self._stepper.meet()
        self._average(trainer.executor.buffers)
        self._count("_between")

    def averaged(self, stepper: Stepper) -> Mapping[str, Array] | None:
        """The weights that the scheme evaluates, on the ranks that train."""
        return stepper.averaged() if self.trains else None

    def decide(self, work: Callable[[], T]) -> T:
        """Rank 0's answer, sent as JSON. If it fails there, the others notice that it is gone."""
        broadcast = self.communicator.broadcast
        if self.communicator.rank == 0:
            with heartbeat(lambda: broadcast(np.zeros(1, np.int64)), self._heartbeat_s):
                text = json.dumps(work()).encode()
            broadcast(np.array([len(text)], np.int64))
            broadcast(np.frombuffer(text, np.uint8).copy())
            return cast("T", json.loads(text))
        while not (length := int(broadcast(np.zeros(1, np.int64))[0])):
            continue
        return cast("T", json.loads(broadcast(np.zeros(length, np.uint8)).tobytes()))

    def mean(self, backend: Backend, losses: Sequence[Array]) -> float:
        """The mean over all workers, whose losses carry the weights of their parts."""
        own = backend.mean(losses) / self.workers if self.trains else 0.0
        return float(self.communicator.all_reduce(np.array([own]))[0])

    def require_kept(self) -> None:
        """``UnsupportedError`` if this scheme cannot resume from a checkpoint. Call it after the start."""
        if found := self._stepper.unkept:
            raise UnsupportedError(
                f"checkpoints of a run with the scheme {self.scheme.name!r}", found, "leave --checkpoint out"
            )

    def go_on(self, observed: Mapping[str, tuple[str, list[float]]]) -> None:
        """Restore what this rank had observed up to a checkpoint, in place of what it saw since it started."""
        self._counted = self.communicator.sent_bytes, self.communicator.sent_messages
        self.communicator.take()
        self.ledger.begin_with(observed)

    def close(self) -> None:
        """Leave together with the other ranks."""
        self._stepper.close()
        self.communicator.close()

    def _average(self, buffers: MutableMapping[str, Array]) -> None:
        """Average the floating-point buffers over workers, one reduction per dtype."""
        groups: dict[str, dict[str, Array]] = {}
        for name in sorted(buffers):
            own = buffers[name]
            if namespace(own).isdtype(own.dtype, "real floating"):
                groups.setdefault(str(own.dtype), {})[name] = own
        for group in groups.values():
            layout = FlatLayout(group)
            packed = layout.pack(group)
            part = packed / self.workers if self.trains else zeros_like(packed)
            for name, mean in layout.unpack(self.communicator.all_reduce(part)).items():
                buffers[name] = mean

    def _predict(self, executor: Executor) -> None:
        """Note what the scheme declares that this rank sends per step."""
        self.ledger.note("lockstep", float(self.scheme.lockstep))
        self.ledger.note("counted", float(self.scheme.counted))
        shapes = {name: tuple(each.shape) for name, each in executor.parameters.items()}
        sizes = {each.nbytes // max(1, prod(each.shape)) for each in executor.parameters.values()}
        if len(sizes) > 1:
            # The closed forms assume a single dtype.
            return
        name, size, rank = self.communicator.name, self.communicator.size, self.communicator.rank
        expected = self.scheme.traffic_over(name, shapes, sizes.pop(), size, rank)
        self.ledger.note("sent_predicted", expected.sent_bytes, "B")
        self.ledger.note("messages_predicted", expected.messages)

    def note_operations(self) -> None:
        """Note the counts of each operation in each phase: ``calls:all_reduce:communicate``, ..."""
        self._count("_between")
        for (operation, phase), count in self.communicator.take().counts.items():
            for name, value, unit in (
                ("calls", count.calls, "1"),
                ("sent", count.sent_bytes, "B"),
                ("messages", count.messages, "1"),
                ("time", count.time_ns, "ns"),
            ):
                self.ledger.note(f"{name}:{operation}:{phase}", value, unit)

    def _count(self, when: str) -> None:
        """Note what was sent since the last call."""
        sent, messages = self.communicator.sent_bytes, self.communicator.sent_messages
        before, self._counted = self._counted, (sent, messages)
        self.ledger.note(f"sent{when}", sent - before[0], "B")
        self.ledger.note(f"messages{when}", messages - before[1])
