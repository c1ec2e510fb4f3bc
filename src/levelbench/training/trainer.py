"""The trainer turns the loop and moves the timeline.

The one idea: everything that can be done before the first step is done before it, so a step is four phase switches,
the calls that a hand-written loop makes, and nothing else; what observers want costs only where they ask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from levelbench.measure.crossing import find_crossing
from levelbench.measure.timeline import Phase, Timeline
from levelbench.networks.executor import Array, Backend, Executor
from levelbench.records.schema import Evaluation, Target
from levelbench.training.datasets.base import Dataset, Split
from levelbench.training.observers import Observer, Progress, overridden
from levelbench.training.optimizers import apply
from levelbench.training.quality import Quality
from levelbench.training.task import Evaluate, Recipe

__all__ = ["Outcome", "Stopping", "Trainer"]


@dataclass(frozen=True)
class Stopping:
    """When a run ends: the target and how it counts as reached, the evaluation interval, and the budget."""

    target: Target
    crossing: str
    evaluate_every: Evaluate
    budget_epochs: float
    budget_s: float | None = None


@dataclass(frozen=True)
class Outcome:
    """How a run ended: why, and the qualities by split; ``diverged`` holds a sentence if the loss was not finite."""

    stopped_by: str
    quality: dict[str, float]
    evaluations: tuple[Evaluation, ...]
    diverged: str | None = None


class Trainer:
    """Trains one recipe on one backend. The timeline must be running; it is left in phase ``other``."""

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
    ) -> None:
        self._backend = backend
        self._recipe = recipe
        self._quality = quality
        self._stopping = stopping
        self._seed = seed
        self._timeline = timeline
        self.observers = observers
        backend.seed(seed)
        self._train = self._native(dataset.train)
        self._validation = self._native(dataset.validation)
        self._test = self._native(dataset.test)
        self._samples = len(dataset.train)
        self.executor: Executor = backend.executor(recipe.trained_network(), recipe.network.initialise(seed))
        self._states: dict[str, object] = {}
        self.losses: list[Array] = []
        """Training losses since the last evaluation, as native scalars."""
        self._step_times_ns: list[int] = []
        self._evaluations: list[Evaluation] = []
        self.progress = Progress()

    def run(self) -> Outcome:
        """Train until the target, the schedule's end or the budget; then look at the test set, once."""
        self._timeline.switch(Phase.OTHER)
        self._tell("on_start")
        stopped_by = self._epochs()
        self._timeline.switch(Phase.OTHER)
        self._tell("on_end")
        self._timeline.switch(Phase.EVALUATE)
        last = self._evaluations[-1]
        test = self._quality.measure(self.executor, self._backend, *self._test)
        self._timeline.switch(Phase.OTHER)
        quality = {**last.quality, "test": test}
        diverged = stopped_by if stopped_by.startswith("diverged") else None
        return Outcome(stopped_by, quality, tuple(self._evaluations), diverged)

    def _epochs(self) -> str:
        recipe, stopping = self._recipe, self._stopping
        steps_per_epoch = recipe.sampler.steps(self._samples)
        planned = recipe.epochs * steps_per_epoch
        last_step = max(1, round(stopping.budget_epochs * steps_per_epoch))
        if recipe.schedule.fixed_length:
            last_step = min(last_step, planned)
        every = min(stopping.evaluate_every.steps(steps_per_epoch), last_step)
        on_epoch = overridden(self.observers, "on_epoch")
        epoch = 0
        while True:
            self._timeline.switch(Phase.DATA)
            order = self._backend.array(recipe.sampler.order(self._samples, self._seed, epoch))
            first = epoch * steps_per_epoch
            for start, end in _pieces(first, min(first + steps_per_epoch, last_step), every):
                self.steps(order, start - first, end - first, planned)
                if end == first + steps_per_epoch:
                    self._timeline.switch(Phase.OTHER)
                    self.progress.epoch = epoch + 1.0
                    for hook in on_epoch:
                        hook(self.progress)
                if end % every == 0 or end == last_step:
                    reason = self._evaluate(end == last_step)
                    if reason:
                        return reason
            epoch += 1

    def steps(self, order: Array, start: int, end: int, planned: int) -> None:
        """Steps ``start`` to ``end`` (exclusive) of an epoch of this ``order``, of ``planned`` steps in all.

        This is the code on the clock; ``run`` is what calls it, and benchmarks of the harness.
        """
        switch, timeline = self._timeline.switch, self._timeline
        forward, backward, take = self.executor.forward, self.executor.backward, self._backend.take
        parameters, states, rule = self.executor.parameters, self._states, self._recipe.optimizer
        factor, batch, progress = self._recipe.schedule.factor, self._recipe.sampler.batch, self.progress
        inputs, labels = self._train
        losses, times, samples = self.losses, self._step_times_ns, self._samples
        on_step = overridden(self.observers, "on_step")
        data, forwards, backwards, update = map(int, (Phase.DATA, Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE))
        switch(data)
        for position in range(start, end):
            began = timeline.switched_ns
            rows = order[position * batch : (position + 1) * batch]
            x, y = take(inputs, rows), take(labels, rows)
            switch(forwards)
            losses.append(forward(x, y))
            switch(backwards)
            gradients = backward()
            switch(update)
            progress.step += 1
            apply(rule, parameters, gradients, states, progress.step, factor((progress.step - 1) / planned))
            progress.samples += min(batch, samples - position * batch)
            for hook in on_step:
                hook(progress)
            switch(data)
            times.append(timeline.switched_ns - began)

    def _evaluate(self, last: bool) -> str:
        """Evaluate and tell the observers; the reason to stop, or an empty string."""
        timeline, progress = self._timeline, self.progress
        timeline.switch(Phase.EVALUATE)
        progress.epoch = progress.step / self._recipe.sampler.steps(self._samples)
        validation = self._quality.measure(self.executor, self._backend, *self._validation)
        loss = self._backend.mean(self.losses)
        timeline.switch(Phase.OTHER)
        totals = timeline.totals_ns()
        evaluation = Evaluation(
            t_ns=sum(totals.values()),
            step=progress.step,
            epoch=progress.epoch,
            samples=progress.samples,
            quality={"validation": validation},
            loss=loss if loss - loss == 0 else None,
            phases_ns=totals,
        )
        self._evaluations.append(evaluation)
        times, self._step_times_ns, self.losses = self._step_times_ns, [], []
        for hook in overridden(self.observers, "on_evaluation"):
            hook(progress, evaluation, times)
        if evaluation.loss is None:
            return f"diverged: the training loss is {loss} at step {progress.step}"
        return self._reason_to_stop(evaluation, last)

    def _reason_to_stop(self, evaluation: Evaluation, last: bool) -> str:
        stopping = self._stopping
        # A schedule of fixed length was promised all its steps: it is judged at its end.
        if stopping.crossing in ("confirmed", "first") and not self._recipe.schedule.fixed_length:
            qualities = [each.quality["validation"] for each in self._evaluations]
            target = stopping.target
            if find_crossing(qualities, target.threshold, direction=target.direction, rule=stopping.crossing):
                return "target reached"
        if stopping.budget_s is not None and evaluation.t_ns > stopping.budget_s * 1e9:
            return f"budget of {stopping.budget_s:g} s spent"
        return "all epochs done" if last else ""

    def _native(self, split: Split) -> tuple[Array, Array]:
        return self._backend.array(split.inputs), self._backend.array(split.labels)

    def _tell(self, hook: str) -> None:
        hooks: tuple[Callable[[Progress], None], ...] = overridden(self.observers, hook)
        for each in hooks:
            each(self.progress)


def _pieces(first: int, last: int, every: int) -> list[tuple[int, int]]:
    """The steps from ``first`` to ``last``, cut where a multiple of ``every`` lies."""
    cuts = [first, *range((first // every + 1) * every, last, every), last]
    return list(pairwise(cuts))
