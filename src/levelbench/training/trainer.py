"""The trainer runs the training loop and switches the phases of the timeline, alone or as one of a team.

Everything that can be done before the first step is done before it. A step consists of four phase switches and the
calls of a hand-written loop; what observers do costs time only if there are any.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice, pairwise
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DataError, UnsupportedError
from levelbench.measure.timeline import Phase, Timeline
from levelbench.networks.executor import Array, Backend, Executor
from levelbench.records.schema import Evaluation
from levelbench.training.checkpoints import RunPosition, Saving, Snapshot
from levelbench.training.datasets.base import Dataset
from levelbench.training.input import Held, Loader, make_loader
from levelbench.training.observers import Context, Observer, Progress, Pulse, overridden
from levelbench.training.optimizers.arrays import copy
from levelbench.training.optimizers.base import Stepper
from levelbench.training.quality import Quality
from levelbench.training.samplers import Sampler
from levelbench.training.schedules import has_fixed_length
from levelbench.training.stopping import Outcome, Stopping
from levelbench.training.task import Recipe

T = TypeVar("T")


class Team:
    """The processes that train one network, as seen by one of them: everything a trainer coordinates with others.

    The methods here are for a single process.
    """

    def recipe(self, recipe: Recipe) -> Recipe:
        """The recipe that all processes train together, given the user's."""
        return recipe

    def sampler(self, sampler: Sampler) -> Sampler:
        """The sampler for this process's part of each batch."""
        return sampler

    def seed(self, seed: int) -> int:
        """The seed of this process's own random numbers, such as dropout's."""
        return seed

    def start(
        self, recipe: Recipe, backend: Backend, executor: Executor, seed: int, timeline: Timeline
    ) -> tuple[Stepper, Executor]:
        """The optimizer's stepper, and the executor to train with."""
        return recipe.optimizer.start(backend, executor.parameters), executor

    def examples(self, trainer: Trainer) -> int:
        """Training examples per epoch, summed over all processes."""
        return int(trainer.loader.sizes(0).sum())

    def steps(self, trainer: Trainer, epoch: int, start: int, end: int, planned: int) -> None:
        """Take steps ``start`` to ``end`` (exclusive) of an epoch, as :meth:`Trainer.steps` does."""
        trainer.steps(epoch, start, end, planned)

    def meet(self, trainer: Trainer) -> None:
        """Synchronise before an evaluation."""

    def averaged(self, stepper: Stepper) -> Mapping[str, Array] | None:
        """The weights to evaluate with, if they differ from those being trained."""
        return stepper.averaged()

    def decide(self, work: Callable[[], T]) -> T:
        """The result of ``work`` in the process that decides, sent to all. It must consist of JSON types."""
        return work()

    def mean(self, backend: Backend, losses: Sequence[Array]) -> float:
        """The mean training loss over all processes, from this process's losses per step."""
        return backend.mean(losses)


@final
class Alone(Team):
    """One process."""


_VALUES = 64
"""A fingerprint includes this many values of each parameter, or up to twice as many."""


Batch = tuple[Array, ...]


def grouped(batches: Iterator[Batch], count: int) -> Iterator[tuple[Batch, ...]]:
    """The batches in groups of ``count``; the last group may be smaller."""
    while group := tuple(islice(batches, count)):
        yield group
        # Otherwise it would stay in memory until the next group is complete.
        del group


def grouped_sizes(sizes: Sequence[int], count: int) -> list[int]:
    """Examples in each group."""
    return [sum(sizes[at : at + count]) for at in range(0, len(sizes), count)]


class Accumulating:
    """``forward`` and ``backward`` of a group of batches that make one update, each timed in its own phase.

    Each batch is weighted by its share of the examples, so the sum is the gradient of the mean loss over all of them,
    even if the last batch of an epoch is smaller. (Batch normalisation still sees each batch by itself.)
    """

    def __init__(self, executor: Executor, timeline: Timeline) -> None:
        self._executor, self._timeline = executor, timeline
        self._sum: dict[str, Array] = {}
        self._share = 1.0

    def forward(self, *group: Batch) -> Array:
        """The mean loss over all examples of the group; accumulates all gradients but the last batch's."""
        examples = [len(batch[0]) for batch in group]
        total = sum(examples)
        self._sum, loss = {}, None
        for at, (batch, count) in enumerate(zip(group, examples, strict=True)):
            self._timeline.switch(Phase.FORWARD)
            part = self._executor.forward(*batch) * (count / total)
            loss = part if loss is None else loss + part
            self._share = count / total
            if at + 1 < len(group):
                self._timeline.switch(Phase.BACKWARD)
                self._add()
        return loss

    def backward(self) -> Mapping[str, Array]:
        """The gradients of the mean loss over all examples of the group."""
        self._add()
        return self._sum

    def _add(self) -> None:
        share = self._share
        for name, gradient in self._executor.backward().items():
            gradient = gradient * share
            self._sum[name] = self._sum[name] + gradient if name in self._sum else gradient


class Trainer:
    """Trains one recipe on one backend. The timeline must be running; it is left in phase ``other``.

    ``also`` are further qualities to measure. With ``saving`` checkpoints are saved; with ``resume`` training goes on
    from one, and the timeline must have been given its totals. ``team`` are the processes that train together; all of
    them make a trainer with the same arguments. ``pulse`` receives the number of each step.
    """

    def __init__(
        self,
        backend: Backend,
        dataset: Dataset,
        recipe: Recipe,
        quality: Quality,
        stopping: Stopping,
        *,
        seed: int,
        timeline: Timeline,
        observers: Sequence[Observer] = (),
        also: Sequence[Quality] = (),
        saving: Saving | None = None,
        resume: Snapshot | None = None,
        team: Team | None = None,
        pulse: Pulse | None = None,
    ) -> None:
        self._team = team = team or Alone()
        self.recipe = recipe = team.recipe(recipe)
        self.backend, self.dataset, self.timeline, self.seed = backend, dataset, timeline, seed
        self._fixed_length = has_fixed_length(recipe.schedule)
        self._quality, self._also, self._stopping, self._saving = quality, tuple(also), stopping, saving
        self.observers, self.pulse = observers, pulse or Pulse()
        backend.seed(team.seed(seed))
        if recipe.experience is not None:
            _refuse_team(recipe, team)
        else:
            self.loader = make_loader(
                backend,
                dataset,
                dataset.train,
                team.sampler(recipe.sampler),
                seed=seed,
                augment=recipe.augment,
                mix=recipe.mix,
                workers=recipe.workers,
            )
        self._validation = Held(backend, dataset, dataset.validation)
        self._test = Held(backend, dataset, dataset.test)
        drawn = backend.initialise(recipe.network, seed)
        self.began_with = fingerprint(drawn)
        executor = recipe.build(backend, drawn)
        self.stepper: Stepper
        self.executor: Executor
        self.stepper, self.executor = team.start(recipe, backend, executor, seed, timeline)
        if recipe.experience is not None:
            self.loader = experience_of(recipe, backend, dataset, executor, seed, timeline)
        # Catches an optimizer that replaces the weights with trained ones. Sharded parameters cannot be read.
        self.started_with = self.fingerprint_of(executor) if self.executor is executor else None
        self.steps_per_epoch = -(-self.loader.steps // recipe.accumulate)
        self._samples = team.examples(self)
        self.losses: list[Array] = []
        """Training losses since the last evaluation, as native scalars."""
        self.step_times_ns: list[int] = []
        """Times of the steps since the last evaluation, as far as they are known."""
        self._spans_ns: list[tuple[int, int]] = []
        """When the steps since then began and ended on the host."""
        self._evaluations: list[Evaluation] = []
        self.changed_by_evaluation = False
        """Whether measuring the quality on the test split changed the weights."""
        self.progress = Progress()
        if resume is not None:
            self._restore(resume)
        looked_at = (dataset, recipe, quality, self._validation, self._test, tuple(self._evaluations))
        self._context = Context(backend, self.executor, *looked_at)

    def fingerprint_of(self, executor: Executor) -> int:
        """The fingerprint of an executor's parameters, which are read one at a time."""
        return fingerprint({name: self.backend.host(value) for name, value in executor.parameters.items()})

    @property
    def evaluated(self) -> int:
        """The number of evaluations so far."""
        return len(self._evaluations)

    def run(self) -> Outcome:
        """Train until the target, the schedule's end or the budget; then measure on the test set, once."""
        self.timeline.switch(Phase.OTHER)
        for prepared in overridden(self.observers, "on_prepared"):
            prepared(self._context)
        self._notify("on_start")
        try:
            stopped_by = self._epochs()
        finally:
            self.loader.close()
        self.timeline.switch(Phase.OTHER)
        last = self._evaluations[-1]
        with self._evaluated_weights(self._team.averaged(self.stepper)):
            self._notify("on_end")
            before = self.fingerprint_of(self.executor)
            self.timeline.switch(Phase.EVALUATE)
            test = self._team.decide(lambda: self._measure("test"))
            self.timeline.switch(Phase.OTHER)
            self.changed_by_evaluation = self.fingerprint_of(self.executor) != before
        diverged = stopped_by if stopped_by.startswith("diverged") else None
        return Outcome(stopped_by, {**last.quality, **test}, tuple(self._evaluations), diverged)

    def measure_again(self, held: Held) -> float:
        """The quality, on another split, of the weights that were evaluated last."""
        with self._evaluated_weights(self._team.averaged(self.stepper)):
            return self._quality.measure(self.executor, held)

    def _epochs(self) -> str:
        recipe, stopping, per_epoch = self.recipe, self._stopping, self.steps_per_epoch
        planned = recipe.epochs * per_epoch
        fixed = self._fixed_length
        last_step = stopping.last_step(planned, per_epoch, self._samples, fixed)
        counts = self.pulse.counts
        counts[1], counts[2], counts[3] = last_step, round(self._samples / per_epoch), 0
        every = min(stopping.evaluate_every.steps(per_epoch, self._samples), last_step)
        saved = self._saving.every.steps(per_epoch, self._samples) if self._saving else last_step + 1
        on_epoch = overridden(self.observers, "on_epoch")
        while True:
            done = self.progress.step
            epoch = done // per_epoch
            first = epoch * per_epoch
            for start, end in _intervals(done, min(first + per_epoch, last_step), every, saved):
                self._team.steps(self, epoch, start - first, end - first, planned)
                cut = self.progress.step < end
                if end == first + per_epoch and not cut:
                    self.timeline.switch(Phase.OTHER)
                    self.progress.epoch = epoch + 1.0
                    for hook in on_epoch:
                        hook(self.progress)
                if cut or end % every == 0 or end == last_step:
                    reason = self._evaluate(end == last_step)
                    if reason:
                        return reason
                if end % saved == 0:
                    self._save()

    def steps(self, epoch: int, start: int, end: int, planned: int) -> None:
        """Take steps ``start`` to ``end`` (exclusive) of an epoch, of ``planned`` in all; fewer if time runs out.

        This is the timed code; it is called by ``run`` and by benchmarks of the harness.
        """
        switch, timeline = self.timeline.switch, self.timeline
        accumulate = self.recipe.accumulate
        data, forwards, backwards, update = map(int, (Phase.DATA, Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE))
        switch(data)
        batches: Iterator[tuple[Array, ...]] = self.loader.batches(
            epoch, start * accumulate, min(end * accumulate, self.loader.steps), epoch * self.steps_per_epoch / planned
        )
        sizes = self.loader.sizes(epoch).tolist()
        turn: Executor | Accumulating = self.executor
        if accumulate > 1:
            turn = Accumulating(self.executor, timeline)
            batches, sizes = grouped(batches, accumulate), grouped_sizes(sizes, accumulate)
        batches = self._stopping.in_time(batches, timeline, self.losses)
        forward, backward = turn.forward, turn.backward
        step, factor, progress = self.stepper.step, self.recipe.schedule.factor, self.progress
        losses, spans, pulse = self.losses, self._spans_ns, self.pulse.counts
        on_step = overridden(self.observers, "on_step")
        position, began = start, timeline.switched_ns
        for columns in batches:
            switch(forwards)
            losses.append(forward(*columns))
            switch(backwards)
            gradients = backward()
            switch(update)
            done = progress.step
            progress.step = pulse[0] = done + 1
            step(gradients, done + 1, factor(done / planned))
            progress.samples += sizes[position]
            position += 1
            for hook in on_step:
                hook(progress)
            switch(data)
            now = timeline.switched_ns
            spans.append((began, now))
            began = now
            # Freed here so that the next batch can reuse the memory.
            del columns

    def _evaluate(self, last: bool) -> str:
        """Evaluate and notify the observers; returns the reason to stop, or an empty string."""
        timeline, progress = self.timeline, self.progress
        self._team.meet(self)
        # Under every clock, the optimizer's work for the weights to evaluate is training: it belongs to the previous
        # step.
        timeline.switch(Phase.UPDATE)
        began = timeline.switched_ns
        averaged = self._team.averaged(self.stepper)
        timeline.switch(Phase.EVALUATE)
        # A rank has already logged its step's time, together with what it sent.
        averaging = (began, timeline.switched_ns) if self._spans_ns else None
        progress.epoch = progress.step / self.steps_per_epoch
        # Observers see the weights that were evaluated.
        with self._evaluated_weights(averaged):
            self.pulse.counts[3] = 1
            quality = self._team.decide(lambda: self._measure("validation"))
            self.pulse.counts[3] = 0
            loss = self._team.mean(self.backend, self.losses)
            timeline.switch(Phase.OTHER)
            totals = timeline.totals_ns()
            self._note_steps(averaging)
            evaluation = Evaluation(
                t_ns=sum(totals.values()),
                step=progress.step,
                epoch=progress.epoch,
                samples=progress.samples,
                quality=quality,
                loss=loss if loss - loss == 0 else None,
                phases_ns=totals,
            )
            self._evaluations.append(evaluation)
            times, self.step_times_ns, self.losses = self.step_times_ns, [], []
            for hook in overridden(self.observers, "on_evaluation"):
                hook(progress, evaluation, times)
        fixed = self._fixed_length
        return self._team.decide(lambda: self._stopping.reason(self._evaluations, loss, fixed, last))

    def _note_steps(self, averaging: tuple[int, int] | None = None) -> None:
        """Add the times of the last steps; the timeline's totals must have been read since.

        ``averaging`` is when work for the weights to evaluate began and ended: it belongs to the last step.
        """
        times = self.timeline.on_device(self._spans_ns if averaging is None else [*self._spans_ns, averaging])
        self.step_times_ns += times if averaging is None else [*times[:-2], sum(times[-2:])]
        self._spans_ns = []

    def _measure(self, split: str) -> dict[str, float]:
        """The quality under the split's name, and the further ones as ``SPLIT.METRIC``."""
        held = self._test if split == "test" else self._validation
        if self.dataset.environment is not None:
            held = Held(self.backend, self.dataset, self.dataset.held_out(split, self.seed, self.evaluated))
        result = {split: self._quality.measure(self.executor, held)}
        return result | {f"{split}.{each.metric}": each.measure(self.executor, held) for each in self._also}

    @contextmanager
    def _evaluated_weights(self, averaged: Mapping[str, Array] | None) -> Iterator[None]:
        """Put the weights to evaluate in the place of those being trained, for the duration of the block."""
        if averaged is None:
            yield
            return
        parameters = self.executor.parameters
        # Copied, because a framework may assign to arrays in place.
        trained = {name: copy(parameters[name]) for name in averaged}
        try:
            parameters.update(averaged)
            yield
        finally:
            parameters.update(trained)

    def _save(self) -> None:
        """Save everything that is needed to resume from here."""
        assert self._saving is not None
        self.timeline.switch(Phase.CHECKPOINT)
        host, executor, progress = self.backend.host, self.executor, self.progress
        # First, because a scheme's pending communication may change the parameters.
        state = self.stepper.state()
        arrays = {f"parameter/{name}": host(value) for name, value in executor.parameters.items()}
        arrays |= {f"buffer/{name}": host(value) for name, value in executor.buffers.items()}
        arrays |= {f"optimizer/{name}": value for name, value in state.items()}
        arrays |= {f"loader/{name}": value for name, value in self.loader.state().items()}
        arrays["draws/"] = self.backend.draws()
        totals = self.timeline.totals_ns()
        self._note_steps()
        facts = RunPosition(
            key=self._saving.key,
            seed=self.seed,
            step=progress.step,
            samples=progress.samples,
            totals_ns=totals,
            evaluations=self._evaluations,
            losses=[float(host(loss)) for loss in self.losses],
            step_times_ns=self.step_times_ns,
            settings=dict(self._saving.settings),
        )
        self._saving.write(self._saving.path, Snapshot(facts, arrays))
        self.timeline.switch(Phase.OTHER)

    def _restore(self, snapshot: Snapshot) -> None:
        """Resume from a checkpoint."""
        facts, array = snapshot.facts, self.backend.array
        for kind, live in (("parameter", self.executor.parameters), ("buffer", self.executor.buffers)):
            kept = snapshot.of(kind)
            if {name: value.shape for name, value in kept.items()} != {
                name: tuple(value.shape) for name, value in live.items()
            }:
                raise DataError(
                    f"the checkpoint of step {facts.step}",
                    f"its arrays of kind {kind} are not this network's",
                    "remove it; the run then starts again",
                )
            live.update({name: array(value) for name, value in kept.items()})
        self.stepper.restore(snapshot.of("optimizer"))
        self.loader.restore(snapshot.of("loader"))
        self.progress.step, self.progress.samples = facts.step, facts.samples
        self.progress.epoch = facts.step / self.steps_per_epoch
        self._evaluations = list(facts.evaluations)
        self.losses = [array(np.array(loss, np.float32)) for loss in facts.losses]
        self.step_times_ns = list(facts.step_times_ns)
        self.backend.restore_draws(snapshot.of("draws").get("", np.zeros(0, np.uint8)))

    def _notify(self, hook: str) -> None:
        hooks: tuple[Callable[[Progress], None], ...] = overridden(self.observers, hook)
        for each in hooks:
            each(self.progress)


def experience_of(
    recipe: Recipe, backend: Backend, dataset: Dataset, executor: Executor, seed: int, timeline: Timeline | None = None
) -> Loader:
    """The batches of what the network of a recipe with experience does."""
    from levelbench.training.experience import ExperienceLoader

    assert recipe.experience is not None
    about = dataset.environment, recipe.experience, recipe.sampler
    return ExperienceLoader(backend, *about, seed=seed, executor=executor, timeline=timeline)


def _refuse_team(recipe: Recipe, team: Team) -> None:
    if not isinstance(team, Alone):
        found, do = "its examples are made by the process that trains", "run it without --ranks"
        raise UnsupportedError(f"several processes for {recipe.network.name} with experience", found, do)


def fingerprint(parameters: Mapping[str, NDArray[Any]]) -> int:
    """A checksum of a few values of each parameter, quick to compute whatever its size."""
    found = 0
    for name, value in sorted(parameters.items()):
        flat = np.asarray(value).reshape(-1)
        few = flat[:: max(1, flat.size // _VALUES)]
        found = zlib.crc32(name.encode() + np.ascontiguousarray(few).tobytes(), found)
    return found


def _intervals(first: int, last: int, *every: int) -> list[tuple[int, int]]:
    """The steps from ``first`` to ``last``, split at multiples of each of ``every``."""
    cuts = {first, last}
    for each in every:
        cuts.update(range((first // each + 1) * each, last, each))
    return list(pairwise(sorted(cuts)))
