"""The steps of a worker: the trainer's loop over this rank's part of each batch.

The one idea: it makes the same calls as the trainer's own loop and moves the same timeline; what is added a step is
this rank's share of the batch, and two readings of what the timeline holds already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from levelbench.errors import UnsupportedError
from levelbench.measure.timeline import Phase
from levelbench.training.accumulation import Accumulating, grouped, grouped_sizes
from levelbench.training.observers.base import overridden
from levelbench.training.optimizers.arrays import zeros_like

if TYPE_CHECKING:
    from levelbench.distributed.ranks import Ranks
    from levelbench.networks.executor import Array
    from levelbench.training.trainer import Trainer

__all__ = ["whole_sizes", "worker_steps"]


def whole_sizes(trainer: Trainer, epoch: int) -> list[int]:
    """Examples of all ranks by step of an epoch."""
    sizes = trainer.recipe.sampler.epoch(trainer.dataset.train, trainer.seed, epoch).sizes
    return grouped_sizes(sizes.tolist(), trainer.recipe.accumulate)


def worker_steps(team: Ranks, trainer: Trainer, epoch: int, start: int, end: int, planned: int, lr: float) -> None:
    """Steps ``start`` to ``end`` (exclusive) of an epoch; ``lr`` is by what the schedule's factor is multiplied."""
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
    turn, executor, factor = _Turn(team, trainer), trainer.executor, trainer.recipe.schedule.factor
    whole_forward, whole_backward, step, stepped = executor.forward, executor.backward, stepper.step, team.stepped
    plain, workers = accumulate == 1, team.workers
    began, talked = timeline.switched_ns, timeline.spent_ns(communicate)
    position = start
    # Not enumerated, which would hold a batch until the next one is made.
    for batch in _batches(trainer, epoch, start, end, planned):
        examples = own[position]
        stepper.share = share = examples / whole[position]
        switch(forwards)
        # What most steps are is called without a detour: each call counts beside a small network.
        direct = plain and examples > 0
        loss = whole_forward(*batch) if direct else turn.forward(batch, examples)
        losses.append(loss if share * workers == 1 else loss * (share * workers))
        switch(backwards)
        gradients = whole_backward() if direct else turn.backward()
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


class _Turn:
    """Forward and backward over this rank's part, which may be empty."""

    def __init__(self, team: Ranks, trainer: Trainer) -> None:
        self._team, self._trainer, self._empty = team, trainer, False
        self._group = Accumulating(trainer.executor, trainer.timeline) if trainer.recipe.accumulate > 1 else None

    def forward(self, batch: Any, examples: int) -> Array:
        """The mean loss over this part; zero of none."""
        self._empty = not examples
        if self._empty:
            return self._of_nothing()
        if self._group is None:
            return self._trainer.executor.forward(*batch)
        return self._group.forward(*(columns for columns in batch if len(columns[0])))

    def backward(self) -> Mapping[str, Array]:
        """The gradients of that loss; zeros of none."""
        executor = self._trainer.executor
        if self._empty:
            return {name: zeros_like(each) for name, each in executor.parameters.items()}
        return executor.backward() if self._group is None else self._group.backward()

    def _of_nothing(self) -> Array:
        if not self._team.takes_nothing:
            raise UnsupportedError(
                f"a batch of fewer examples than there are workers ({self._team.workers})",
                f"scheme {self._team.scheme.name!r} goes forward and backward on every rank",
                "choose a batch that leaves no smaller one at the end of an epoch, or the scheme all-reduce",
            )
        any_parameter = next(iter(self._trainer.executor.parameters.values()))
        return zeros_like(any_parameter).sum()
