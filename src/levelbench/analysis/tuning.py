"""What a search for settings found: its trials, the best of them, and what the winners do on seeds of their own.

The best of many trials is partly luck, so its time is never the result: the winners run again on seeds that no trial
used, and those runs are compared. A trial that missed the target is worse than any that reached it; among these the
quality at the end decides, so that a search in which nothing arrives still moves towards the target.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from levelbench.analysis.comparison import Comparison
from levelbench.analysis.ties import time_estimate
from levelbench.measure.crossing import sign_of
from levelbench.measure.statistics import Estimate
from levelbench.records import RunGroup, RunSummary

__all__ = ["TunedSide", "TuningStudy", "TuningTrial", "score_of", "trial_of"]

_MISSED, _FAILED = 1e6, 1e9
"""Added to the score of a trial that missed or failed; no logarithm of a time is as large."""

Value = int | float | str | bool


@dataclass(frozen=True)
class TuningTrial:
    """One trial: the settings tried, seconds to the target (``None`` if it missed), the quality at the end, its cost.

    ``spent_s`` is the wall time of the run; ``score`` orders trials, the lower the better.
    """

    number: int
    settings: dict[str, Value]
    time_s: float | None
    quality: float | None
    spent_s: float
    score: float
    failed: bool
    path: str


@dataclass(frozen=True)
class TunedSide:
    """One side of a search. ``ended`` is what ended it: ``trials`` or ``budget``; ``fresh`` are the winner's own runs.

    ``space`` has each dimension as it is written on the command line.
    """

    label: str
    space: tuple[str, ...]
    trials: tuple[TuningTrial, ...]
    ended: str
    fresh: RunGroup | None = None

    @property
    def best(self) -> TuningTrial:
        """The trial with the lowest score, the earliest of several."""
        return min(self.trials, key=lambda each: (each.score, each.number))

    @property
    def spent_s(self) -> float:
        """The seconds of all trials."""
        return math.fsum(each.spent_s for each in self.trials)

    @property
    def reached(self) -> int:
        """How many trials reached the target."""
        return sum(each.time_s is not None for each in self.trials)


@dataclass(frozen=True)
class TuningStudy:
    """A search of one or two sides under one budget, and the comparison of the winners on fresh seeds.

    ``planned`` trials and ``budget_s`` (``None`` without one) hold for each side alike. ``comparison`` is ``None`` for
    one side, or if the gate refuses it, which ``refusals`` explain.
    """

    task: str
    sampler: str
    seed: int
    fresh_seeds: tuple[int, ...]
    planned: int
    budget_s: float | None
    sides: tuple[TunedSide, ...]
    comparison: Comparison | None = None
    refusals: tuple[str, ...] = ()

    @property
    def objective(self) -> str:
        """What the search minimised, in words."""
        return "time to the target; where none reached it, the distance of the final quality to the target"

    def fresh_time(self, side: TunedSide) -> Estimate | None:
        """The time of a side's winner on fresh seeds, by the statistic that all sides have; ``None`` if it has none."""
        return time_estimate(side.fresh, self.fresh) if side.fresh is not None else None

    @property
    def fresh(self) -> list[RunGroup]:
        """The winners' runs on fresh seeds."""
        return [side.fresh for side in self.sides if side.fresh is not None]

    def answer(self) -> list[str]:
        """The verdict on the winners if there are two, else how the winner does."""
        if self.comparison is not None:
            return self.comparison.answer()
        return [*self.refusals, *([] if len(self.sides) > 1 else [self._single(self.sides[0])])]

    def lines(self) -> list[str]:
        """What a reader of the numbers needs to know besides them."""
        lines = [f"objective: {self.objective}", f"budget of each side: {_budget(self)}"]
        for side in self.sides:
            if side.best.time_s is None:
                lines.append(f"none of the {len(side.trials)} trials of {side.label} reached the target")
            elif (fresh := self.fresh_time(side)) is not None:
                over = fresh.value / side.best.time_s - 1
                lines.append(
                    f"{side.label}: its best trial took {side.best.time_s:.3g} s, the same settings {fresh.value:.3g} "
                    f"s on fresh seeds ({fresh.statistic}, {over:+.0%})"
                    + ": the best of many is partly luck"
                    * (over > 0 and len(side.trials) > 1)
                )
            if len(side.trials) < 2:
                lines.append(f"doubt: the budget left {side.label} a single trial, which is no search")
        return lines

    def _single(self, side: TunedSide) -> str:
        chosen = ", ".join(f"{name}={_short(value)}" for name, value in side.best.settings.items())
        runs: Sequence[RunSummary] = side.fresh.runs if side.fresh else ()
        reached, fresh = sum(run.reached for run in runs), self.fresh_time(side)
        time = "" if fresh is None else f" in {fresh.value:.3g} s ({fresh.statistic})"
        return f"{side.label}: {chosen} reached the target in {reached} of {len(runs)} runs on fresh seeds{time}"


def trial_of(number: int, settings: dict[str, Value], run: RunSummary) -> TuningTrial:
    """The trial that ``run`` is the record of."""
    quality = run.quality.get(run.target.split)
    return TuningTrial(
        number=number,
        settings=settings,
        time_s=run.time_to_accuracy_s,
        quality=quality,
        spent_s=run.wall_s,
        score=score_of(run),
        failed=run.status == "failed",
        path=run.path,
    )


def score_of(run: RunSummary) -> float:
    """The logarithm of the seconds to the target; for a miss a large number plus what the quality lacks.

    Only the order of scores counts: reached, missed, without a finite quality or failed.
    """
    if run.time_to_accuracy_s is not None:
        return math.log(max(run.time_to_accuracy_s, 1e-9))
    quality = run.quality.get(run.target.split, math.nan)
    if run.status == "failed" or not math.isfinite(quality):
        return _FAILED
    lacking = sign_of(run.target.direction) * (run.target.threshold - quality)
    # It may be at the target at its end without having confirmed it.
    return _MISSED * (1 + math.tanh(lacking / (1 + abs(run.target.threshold))) / 2)


def _budget(study: TuningStudy) -> str:
    seconds = (
        "" if study.budget_s is None else f", or {study.budget_s:g} s: a trial begins only while there is some left"
    )
    return f"{study.planned} trials{seconds}"


def _short(value: Value) -> str:
    return f"{value:.4g}" if isinstance(value, float) else f"{value}"
