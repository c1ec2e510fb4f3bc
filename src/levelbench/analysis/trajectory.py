"""Whether two sides follow the same trajectory: the recorded losses, or qualities, of runs with the same seed.

A change that only makes steps faster leaves the losses as they are, up to the order in which sums are rounded. A change
that trains differently parts from them, and then fewer or more samples to the target are its doing. Two questions are
kept apart: from which evaluation on any pair differs at all, and from which on the sides differ on average, beyond what
chance does to pairs (Student's t, with Holm's correction over the evaluations).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

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
    """What ``pairs`` of runs with one seed say at their common evaluations, ``points`` of them.

    ``kind``: all values are equal (``identical``), agree in three digits (``alike``), or do not (``parted``, from
    evaluation ``parted_at`` on, counted from 1, after ``parted_samples`` samples). ``differ_at`` is the first one
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

    def line(self) -> str:
        """What it means, in a sentence."""
        return self._meaning() + (f"; {self.reason}" if self.reason and self.kind != "unknown" else "")

    def _meaning(self) -> str:
        of = f"{self.measure} of {self.pairs} pair{'s' * (self.pairs > 1)} at {self.points} evaluations"
        if self.kind == "unknown":
            return f"whether both follow the same trajectory is unknown: {self.reason}"
        if self.kind == "identical":
            return f"the same trajectory: {of} is the same to the last digit"
        if self.kind == "alike":
            return f"the same trajectory: {of} agrees in three digits"
        parted = f"another trajectory: {of} parts at evaluation {self.parted_at} ({self.parted_samples:,} samples)"
        if self.differ_at is None or self.difference is None:
            if self.pairs < _LEAST_PAIRS:
                return f"{parted}; too few pairs to tell luck from a difference (three seeds or more on both sides)"
            return f"{parted}, and on average it is nowhere clearly better or worse"
        size = f"{self.difference:+.3g}"
        if self.measure.endswith("loss"):
            size = f"x{math.exp(self.difference):.3g}"
        at = f"evaluation {self.differ_at} ({self.differ_samples:,} samples)"
        if self.stays:
            return f"{parted}, and on average from {at} on ({size} there)"
        return f"{parted}, and on average at {at} ({size} there), but not clearly at all later ones"


def curves_by_seed(records: Sequence[Record]) -> dict[int, Sequence[Evaluation]]:
    """The evaluations of the records by seed; of several with one seed, those of the first."""
    found: dict[int, Sequence[Evaluation]] = {}
    for record in records:
        found.setdefault(record.header.seed, record.evaluations)
    return found


def trajectories(a: Curves, b: Curves, target: Target) -> Trajectories:
    """Compare the curves of both sides where they have evaluations after the same number of samples."""
    seeds = sorted(a.keys() & b.keys())
    losses = "the training loss"
    if not seeds:
        return Trajectories("unknown", losses, reason="no seed was run on both sides: run the same seeds")
    common = _common([a[seed] for seed in seeds] + [b[seed] for seed in seeds])
    if not common:
        found = "the sides were never evaluated after the same number of samples: evaluate both alike (--every)"
        return Trajectories("unknown", losses, len(seeds), reason=found)
    measure = losses
    values = [_values([side[seed] for seed in seeds], common, "") for side in (a, b)]
    diverged = _diverged([a[seed] for seed in seeds], [b[seed] for seed in seeds])
    if any(np.isnan(each).any() for each in values) or any((each <= 0).any() for each in values):
        measure = f"the {target.split} {target.metric}"
        values = [_values([side[seed] for seed in seeds], common, target.split) for side in (a, b)]
        if any(np.isnan(each).any() for each in values):
            found = f"the runs record neither losses nor the {target.split} quality at every common evaluation"
            found = f"{found}; {diverged}" if diverged else found
            return Trajectories("unknown", measure, len(seeds), len(common), reason=found)
    first, second = values
    size = len(seeds), len(common)
    if (first == second).all():
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
    column = differences[:, where]
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
        len(clear) == len(common) - where,
    )


def _diverged(a: Sequence[Sequence[Evaluation]], b: Sequence[Sequence[Evaluation]]) -> str:
    """How many runs have a loss that is no finite number; empty if none has."""
    counts = [
        sum(any(each.loss is not None and not math.isfinite(each.loss) for each in curve) for curve in side)
        for side in (a, b)
    ]
    return f"the loss of {counts[0]} + {counts[1]} runs (A + B) became no finite number" if any(counts) else ""


def _common(curves: Sequence[Sequence[Evaluation]]) -> list[int]:
    """The numbers of samples after which all runs were evaluated, in order."""
    shared = set.intersection(*({each.samples for each in curve} for curve in curves))
    return sorted(shared)


def _values(curves: Sequence[Sequence[Evaluation]], common: Sequence[int], split: str) -> np.ndarray:
    """One row a run, one column a common evaluation: the loss, or the quality on ``split`` if it is not empty."""
    rows = []
    for curve in curves:
        at = {each.samples: each for each in curve}
        found = [at[samples].quality.get(split) if split else at[samples].loss for samples in common]
        rows.append([math.nan if value is None else value for value in found])
    return np.array(rows, np.float64)


def _differ_at(differences: np.ndarray, level: float = 0.95) -> list[int]:
    """The columns whose mean is not zero, after Holm's correction; none for fewer than three rows."""
    n = len(differences)
    if n < _LEAST_PAIRS:
        return []
    means, deviations = differences.mean(axis=0), differences.std(axis=0, ddof=1)
    p_values = []
    for mean, deviation in zip(means.tolist(), deviations.tolist(), strict=True):
        if deviation == 0.0:
            p_values.append(1.0 if mean == 0.0 else 0.0)
            continue
        p_values.append(min(1.0, 2.0 * t_survival(abs(mean) / (deviation / math.sqrt(n)), n - 1)))
    return [at for at, p in enumerate(holm(p_values)) if p <= 1.0 - level]
