"""When a run is evaluated and when it ends: at its target, at the end of its schedule, or when a budget is spent.

This is decided only at evaluations, from what the record holds, so the record shows why a run ended where it did. A
budget of seconds that runs out between two evaluations brings the next one forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from levelbench.errors import UsageError
from levelbench.measure.crossing import find_crossing, sign_of
from levelbench.measure.timeline import Timeline
from levelbench.records.schema import Evaluation, Target

_UNITS = ("epoch", "step", "sample")


@dataclass(frozen=True)
class Evaluate:
    """Every ``count`` epochs, steps or samples: when to evaluate, or to save a checkpoint."""

    count: int
    unit: str

    @classmethod
    def parse(cls, text: str) -> Evaluate:
        """From ``"1 epoch"``, ``"2 epochs"``, ``"100 steps"`` or ``"10000 samples"``."""
        match text.split():
            case [count, unit] if count.isdecimal() and int(count) > 0 and unit.removesuffix("s") in _UNITS:
                return cls(int(count), unit.removesuffix("s"))
        raise UsageError(
            f"an interval of {text!r}", "this is not an interval", 'write "1 epoch", "100 steps" or "10000 samples"'
        )

    def __str__(self) -> str:
        return f"{self.count} {self.unit}{'s' * (self.count != 1)}"

    def steps(self, steps_per_epoch: int, samples_per_epoch: int) -> int:
        """The interval in steps, at least 1; samples are rounded up to whole steps of the mean size."""
        if self.unit == "epoch":
            return self.count * steps_per_epoch
        return self.count if self.unit == "step" else -(-self.count * steps_per_epoch // max(1, samples_per_epoch))


T = TypeVar("T")

_EXPLODED = 20.0
"""A mean loss above this many times the magnitude of the first is an explosion: for ten-class cross-entropy, above 46.
"""


@dataclass(frozen=True)
class Outcome:
    """Why a run ended and its qualities by split; ``diverged`` holds a sentence if the loss diverged."""

    stopped_by: str
    quality: dict[str, float]
    evaluations: tuple[Evaluation, ...]
    diverged: str | None = None


@dataclass(frozen=True)
class Stopping:
    """The target and its crossing rule, the evaluation interval, and what a run may spend.

    ``budget_samples`` counts training examples; ``budget_j`` is energy as read by ``energy_j``; ``plateau`` ends a run
    after that many evaluations without an improvement. Energy and plateau are checked at evaluations; time is also
    checked after each step of a process that trains alone.
    """

    target: Target
    crossing: str
    evaluate_every: Evaluate
    budget_epochs: float
    budget_s: float | None = None
    budget_samples: int | None = None
    budget_j: float | None = None
    plateau: int | None = None
    energy_j: Callable[[], float | None] | None = None

    def last_step(self, planned: int, steps_per_epoch: int, samples_per_epoch: int, fixed_length: bool) -> int:
        """The number of steps after which the run ends in any case."""
        last = max(1, round(self.budget_epochs * steps_per_epoch))
        if fixed_length:
            last = min(last, planned)
        if self.budget_samples is not None:
            last = min(last, -(-self.budget_samples * steps_per_epoch // samples_per_epoch))
        return last

    def in_time(self, batches: Iterator[T], timeline: Timeline, losses: Sequence[object]) -> Iterator[T]:
        """``batches`` while the time budget lasts; returned unchanged, at no cost, if there is none.

        ``losses`` are those since the last evaluation: at least one step comes before the next one.
        """
        return (
            batches if self.budget_s is None else _while_in_budget(batches, timeline, int(self.budget_s * 1e9), losses)
        )

    def reason(self, evaluations: Sequence[Evaluation], loss: float, fixed_length: bool, last: bool) -> str:
        """Why to stop after the latest evaluation, or an empty string; ``loss`` is the mean training loss."""
        latest = evaluations[-1]
        if loss - loss != 0:
            return f"diverged: the training loss is {loss} at step {latest.step}"
        first = next((each.loss for each in evaluations if each.loss is not None), None)
        if first is not None and abs(loss) > _EXPLODED * max(abs(first), 1e-3):
            return f"diverged: the training loss went from {first:.3g} to {loss:.3g} at step {latest.step}"
        # A run with a schedule of fixed length is judged at its end.
        if self.crossing in ("confirmed", "first") and not fixed_length and self._reached(evaluations):
            return "target reached"
        return self._spent(evaluations) or ("all epochs done" if last else "")

    def _reached(self, evaluations: Sequence[Evaluation]) -> bool:
        qualities = [each.quality["validation"] for each in evaluations]
        target = self.target
        return bool(find_crossing(qualities, target.threshold, direction=target.direction, rule=self.crossing))

    def _spent(self, evaluations: Sequence[Evaluation]) -> str:
        latest = evaluations[-1]
        if self.budget_s is not None and latest.t_ns > self.budget_s * 1e9:
            return f"budget of {self.budget_s:g} s spent"
        if self.budget_samples is not None and latest.samples >= self.budget_samples:
            return f"budget of {self.budget_samples} samples spent"
        if self.budget_j is not None and self.energy_j is not None:
            used = self.energy_j()
            if used is not None and used > self.budget_j:
                return f"budget of {self.budget_j:g} J spent"
        if self.plateau is not None:
            sign = sign_of(self.target.direction)
            scores = [sign * each.quality["validation"] for each in evaluations]
            since = len(scores) - 1 - scores.index(max(scores))
            if since >= self.plateau:
                return f"plateau: no better in {since} evaluations"
        return ""


def _while_in_budget(batches: Iterator[T], timeline: Timeline, budget_ns: int, losses: Sequence[object]) -> Iterator[T]:
    """See :meth:`Stopping.in_time`; uses the clock reading made at the end of each step and makes none of its own."""
    until_ns = timeline.started_ns + budget_ns
    if losses and timeline.switched_ns > until_ns:
        return
    for batch in batches:
        yield batch
        # Otherwise it would stay in memory while the next one is made.
        del batch
        if timeline.switched_ns > until_ns:
            return
