"""Whether two sides follow the same trajectory: the recorded losses, or qualities, of runs with the same seed.

A change that only makes steps faster leaves the losses as they are, up to the order in which sums are rounded. A change
that trains differently parts from them, and then fewer or more samples to the target are its doing. Two questions are
kept apart: from which evaluation on any pair differs at all, and from which on the sides differ on average, beyond what
chance does to pairs (Student's t, with Holm's correction over the evaluations).

A recorded loss is the mean over the steps since the evaluation before. Sides that are evaluated at different intervals
record means over different steps, so losses are averaged over the steps between evaluations that both runs of a pair
have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from msgspec import structs

from levelbench.measure.statistics import Interval, holm, mean_interval, t_survival
from levelbench.records import Evaluation, Record
from levelbench.records.schema import Target

__all__ = ["Curves", "Trajectories", "curves_by_seed", "trajectories"]

Curves = Mapping[int, Sequence[Evaluation]]
"""The evaluations of one side by seed."""

ALIKE = 1e-3
"""Values that differ by less than this share are taken to differ by rounding: they agree in three digits."""
_LEAST_PAIRS = 3


@dataclass(frozen=True)
class Trajectories:
    """What ``pairs`` of runs with one seed say at their common evaluations, up to ``points`` of them.

    Evaluations of a pair are common if they come after the same number of samples (of steps, where runs do not count
    samples, or else have the same number: ``unit`` says which). ``kind``: all values are equal
    (``identical``), agree in three digits (``alike``), or do not (``parted``, from common evaluation ``parted_at`` on,
    counted from 1, after ``parted_samples`` samples). ``differ_at`` is the first one
    at which the sides differ on average, with the mean ``difference`` of b and a there (of logarithms, for losses) and
    its ``interval``; ``None`` if they never do, or if there are fewer than three pairs. ``stays``: they differ at all
    later ones, too. ``reason`` says why nothing is known (``unknown``), or that losses became no numbers.
    """

    kind: Literal["identical", "alike", "parted", "unknown"]
    measure: str
    pairs: int = 0
    points: int = 0
    parted_at: int | None = None
    parted_samples: int | None = None
    differ_at: int | None = None
    differ_samples: int | None = None
    difference: float | None = None
    interval: Interval | None = None
    reason: str = ""
    stays: bool = False
    unit: str = "samples"

    def line(self) -> str:
        """What it means, in a sentence."""
        return self._meaning() + (f"; {self.reason}" if self.reason and self.kind != "unknown" else "")

    def _meaning(self) -> str:
        at = f"{self.points} common evaluation{'s' * (self.points > 1)}"
        of = f"{self.measure} of {self.pairs} pair{'s' * (self.pairs > 1)} at {at}"
        if self.kind == "unknown":
            return f"whether both follow the same trajectory is unknown: {self.reason}"
        if self.kind == "identical":
            return f"the same trajectory: {of} is the same to the last digit"
        if self.kind == "alike":
            return f"the same trajectory: {of} agrees in three digits"
        parted = f"another trajectory: {of} parts at {self._place(self.parted_at, self.parted_samples)}"
        if self.differ_at is None or self.difference is None:
            if self.pairs < _LEAST_PAIRS:
                return f"{parted}; too few pairs to tell luck from a difference (three seeds or more on both sides)"
            return f"{parted}, and on average it is nowhere clearly better or worse"
        size = f"{self.difference:+.3g}"
        if self.measure.endswith("loss"):
            size = f"x{math.exp(self.difference):.3g}"
        at = self._place(self.differ_at, self.differ_samples)
        if self.stays:
            return f"{parted}, and on average from {at} on ({size} there)"
        return f"{parted}, and on average at {at} ({size} there), but not clearly at all later ones"

    def _place(self, number: int | None, amount: int | None) -> str:
        if self.unit == "evaluations":
            return f"evaluation {number}"
        return f"evaluation {number} ({amount:,} {self.unit if amount != 1 else self.unit[:-1]})"


def curves_by_seed(records: Sequence[Record]) -> dict[int, Sequence[Evaluation]]:
    """The evaluations of the records by seed; of several with one seed, those of the first."""
    found: dict[int, Sequence[Evaluation]] = {}
    for record in records:
        found.setdefault(record.header.seed, record.evaluations)
    return found


def trajectories(a: Curves, b: Curves, target: Target) -> Trajectories:
    """Compare the curves of both sides where they have evaluations after the same number of samples."""
    seeds, losses = sorted(a.keys() & b.keys()), "the training loss"
    if not seeds:
        return Trajectories("unknown", losses, reason="no seed was run on both sides: run the same seeds")
    a, b, unit = _counted({seed: a[seed] for seed in seeds}, {seed: b[seed] for seed in seeds})
    found = _of_counted(a, b, target)
    return replace(found, unit=unit)


def _counted(a: Curves, b: Curves) -> tuple[Curves, Curves, str]:
    """The curves with the first that all of them count in place of samples: samples, steps or evaluations."""
    curves = [curve for side in (a, b) for curve in side.values() if curve]
    if all(each.samples == at for curve in curves for at, each in enumerate(curve, 1)):
        return a, b, "evaluations"
    if all(curve[-1].samples > 0 for curve in curves):
        return a, b, "samples"
    steps = all(curve[-1].step > 0 for curve in curves)

    def placed(side: Curves) -> Curves:
        return {
            seed: [structs.replace(each, samples=each.step if steps else at) for at, each in enumerate(curve, 1)]
            for seed, curve in side.items()
        }

    return placed(a), placed(b), "steps" if steps else "evaluations"


def _of_counted(a: Curves, b: Curves, target: Target) -> Trajectories:
    seeds, losses = sorted(a), "the training loss"
    shared = {seed: _common(a[seed], b[seed]) for seed in seeds}
    common = sorted({samples for each in shared.values() for samples in each})
    if not common:
        found = "no pair was evaluated after the same number of samples: evaluate both sides alike (--every)"
        return Trajectories("unknown", losses, len(seeds), reason=found)
    seeds = [seed for seed in seeds if shared[seed]]
    known = np.array([[samples in shared[seed] for samples in common] for seed in seeds])
    measure = losses
    values = [_values(side, shared, common, "") for side in (a, b)]
    diverged = _diverged([a[seed] for seed in seeds], [b[seed] for seed in seeds])
    if any(np.isnan(each[known]).any() or (each[known] <= 0).any() for each in values):
        measure = f"the {target.split} {target.metric}"
        values = [_values(side, shared, common, target.split) for side in (a, b)]
        if any(np.isnan(each[known]).any() for each in values):
            found = f"the runs record neither losses nor the {target.split} quality at every common evaluation"
            found = f"{found}; {diverged}" if diverged else found
            return Trajectories("unknown", measure, len(seeds), len(common), reason=found)
    first, second = values
    size = len(seeds), len(common)
    if (first == second)[known].all():
        return Trajectories("identical", measure, *size, reason=diverged)
    scale = np.maximum(np.abs(first), np.abs(second))
    apart = (np.abs(first - second) > ALIKE * scale).any(axis=0)
    if not apart.any():
        return Trajectories("alike", measure, *size, reason=diverged)
    at = int(apart.argmax())
    differences = np.log(second / first) if measure == losses else second - first
    clear = _differ_at(differences)
    parted = Trajectories("parted", measure, *size, at + 1, common[at], reason=diverged)
    if not clear:
        return parted
    where = clear[0]
    column = differences[known[:, where], where]
    interval = mean_interval(column.tolist()) if len(column) > 1 else None
    return Trajectories(
        "parted",
        measure,
        *size,
        at + 1,
        common[at],
        where + 1,
        common[where],
        float(column.mean()),
        interval,
        diverged,
        len(clear) == int(np.count_nonzero(known[:, where:].sum(axis=0) >= _LEAST_PAIRS)),
    )


def _diverged(a: Sequence[Sequence[Evaluation]], b: Sequence[Sequence[Evaluation]]) -> str:
    """How many runs have a loss that is no finite number; empty if none has."""
    counts = [
        sum(any(each.loss is not None and not math.isfinite(each.loss) for each in curve) for curve in side)
        for side in (a, b)
    ]
    return f"the loss of {counts[0]} + {counts[1]} runs (A + B) became no finite number" if any(counts) else ""


def _common(a: Sequence[Evaluation], b: Sequence[Evaluation]) -> list[int]:
    """The numbers of samples after which both runs were evaluated, in order."""
    return sorted({each.samples for each in a} & {each.samples for each in b})


def _values(side: Curves, shared: Mapping[int, Sequence[int]], common: Sequence[int], split: str) -> np.ndarray:
    """One row a pair with shared evaluations, a column for each of ``common``; NaN where a pair has none, or no value.

    A value is the quality on ``split`` or, if it is empty, the mean loss since the pair's shared evaluation before.
    """
    rows = []
    for seed, own in shared.items():
        if own:
            found = _mean_losses(side[seed], own) if not split else _qualities(side[seed], own, split)
            rows.append([found.get(samples, math.nan) for samples in common])
    return np.array(rows, np.float64)


def _qualities(curve: Sequence[Evaluation], common: Sequence[int], split: str) -> dict[int, float]:
    return {each.samples: each.quality.get(split, math.nan) for each in curve if each.samples in common}


def _mean_losses(curve: Sequence[Evaluation], common: Sequence[int]) -> dict[int, float]:
    """The mean loss over the steps between two of ``common``; NaN where an evaluation in between lacks its loss."""
    found: dict[int, float] = {}
    losses: list[float] = []
    steps: list[int] = []
    before = 0
    for each in curve:
        if each.loss is None and each.step == before:
            continue
        losses.append(math.nan if each.loss is None else each.loss)
        steps.append(each.step - before)
        before = each.step
        if each.samples in common and each.samples not in found:
            # A mean over one evaluation is the recorded value, to the last digit.
            weights = steps if sum(steps) else None
            found[each.samples] = losses[0] if len(losses) == 1 else float(np.average(losses, weights=weights))
            losses, steps = [], []
    return found


def _differ_at(differences: np.ndarray, level: float = 0.95) -> list[int]:
    """The columns whose mean is not zero, after Holm's correction; none with fewer than three numbers is tested."""
    tested, p_values = [], []
    for at, column in enumerate(differences.T):
        known = column[~np.isnan(column)]
        if (n := len(known)) < _LEAST_PAIRS:
            continue
        tested.append(at)
        mean, deviation = float(known.mean()), float(known.std(ddof=1))
        if deviation == 0.0:
            p_values.append(1.0 if mean == 0.0 else 0.0)
            continue
        p_values.append(min(1.0, 2.0 * t_survival(abs(mean) / (deviation / math.sqrt(n)), n - 1)))
    return [at for at, p in zip(tested, holm(p_values), strict=True) if p <= 1.0 - level]
