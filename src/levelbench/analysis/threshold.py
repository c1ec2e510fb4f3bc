"""Choosing a target: the quality just after the knee of the accuracy curves, which every seed reaches.

The one idea: a target is good where its crossing is well-conditioned. On the steep part before the knee the crossing is
a matter of which evaluation comes first; on the flat tail a hair of quality costs a large part of the schedule, so time
to accuracy measures luck (MLPerf Training's advice to benchmark owners, CONTRIBUTING.md). The knee is Kneedle's
(Satopää et al. 2011): the point furthest above the chord, where the slope, in shares of both ranges, is 1. It moves
with the length of the curves, so they should end where a user would stop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from levelbench.errors import UsageError
from levelbench.measure.crossing import find_crossing, sign_of
from levelbench.measure.statistics.means import coefficient_of_variation

__all__ = ["Candidate", "Proposal", "propose_target"]

LEAST_SEEDS = 10
LEAST_EVALUATIONS = 8
FLAT = 3.0
# With more, five runs an arm miss a factor of 1.5 between two recipes: 2.31 x 0.25 x sqrt(2 / 5) > ln 1.44.
LARGEST_CV = 0.25
LEAST_BEND = 0.1
SHOWN_BEFORE_KNEE = 5

_Curve = np.ndarray[tuple[int], np.dtype[np.float64]]
_Curves = np.ndarray[tuple[int, int], np.dtype[np.float64]]


@dataclass(frozen=True)
class Candidate:
    """One round value as a target.

    ``reached`` of the seeds confirmed it, at ``crossing`` (median, in the unit of x; ``None`` if none did) with the
    coefficient of variation ``cv``. ``slope`` is d(x) / d(threshold) on the median curve, ``conditioning`` the same in
    shares of the schedule by shares of the quality range (1 at the knee, above 3 flat), both infinite at the top.
    ``quantisation`` is the evaluation interval there by the crossing: what one evaluation more costs. ``finding`` is
    ``good``, ``steep``, ``flat``, ``unreached`` or ``scattered`` (``cv`` above 0.25).
    """

    threshold: float
    reached: int
    crossing: float | None
    cv: float | None
    slope: float
    conditioning: float
    quantisation: float | None
    finding: str


@dataclass(frozen=True)
class Proposal:
    """The proposed ``target`` (``None`` if there is no good one) with its ``reason``, and the table behind it."""

    target: float | None
    knee_x: float | None
    knee_quality: float | None
    seeds: int
    candidates: tuple[Candidate, ...]
    reason: str


@dataclass(frozen=True)
class _Study:
    """Curves as they are, and the median curve with its best so far, on a scale where higher is better."""

    curves: _Curves
    x: _Curve
    best: _Curve
    sign: float
    step: float

    @property
    def direction(self) -> str:
        return "higher" if self.sign > 0 else "lower"

    @property
    def ranges(self) -> tuple[float, float]:
        return float(self.x[-1] - self.x[0]), float(self.best[-1] - self.best[0])

    def arrival(self, quality: float) -> float:
        """The x at which the median curve gets to ``quality`` (higher is better), infinite if it does not."""
        if quality > self.best[-1]:
            return math.inf
        after = int(np.searchsorted(self.best, quality))
        if after == 0:
            return float(self.x[0])
        q0, q1, x0, x1 = (float(v) for v in (*self.best[after - 1 : after + 1], *self.x[after - 1 : after + 1]))
        return x0 + (quality - q0) / (q1 - q0) * (x1 - x0)


def propose_target(
    curves: ArrayLike, x: Sequence[float] | None = None, *, direction: str = "higher", step: float | None = None
) -> Proposal:
    """Propose the target of a task from its learning curves.

    ``curves`` holds qualities, evaluations x seeds (8 or more of the first, 10 or more of the second; NaN where a seed
    diverged), ``x`` the position of each evaluation (epochs, steps or seconds; 1, 2, 3, ... if omitted). Candidates are
    multiples of ``step``, by default the largest of 1, 2 or 5 times a power of ten that divides the range in 50.

    The proposal is the highest candidate that lies after the knee, is reached by *all* seeds (confirmed by two
    evaluations in a row), has a conditioning of at most 3 and crossings that vary by at most 25 %. Where none is, it
    is the highest one *before* the knee that all seeds reach with so little variation, and the reason says so.
    Raises ``UsageError`` for fewer curves or a malformed ``x``.
    """
    study = _study(curves, x, direction, step)
    seeds = study.curves.shape[1]
    knee = _knee(study)
    if isinstance(knee, str):
        return Proposal(None, None, None, seeds, (), knee)
    lowest = float(study.best[knee]) - SHOWN_BEFORE_KNEE * study.step
    values = _round_values(max(lowest, float(study.best[0])), float(np.nanmax(study.sign * study.curves)), study.step)
    table = [_candidate(study, value, float(study.best[knee])) for value in values]
    # One value that no seed reaches shows where the table ends.
    candidates = tuple(table[: 1 + next((i for i, c in enumerate(table) if not c.reached), len(table))])
    good = [candidate for candidate in candidates if candidate.finding == "good"]
    before = [each for each in candidates if each.finding == "steep" and each.reached == seeds and _narrow(each.cv)]
    chosen = next(iter([*reversed(good), *reversed(before)]), None)
    return Proposal(
        None if chosen is None else chosen.threshold,
        float(study.x[knee]),
        study.sign * float(study.best[knee]),
        seeds,
        candidates,
        _reason(chosen, candidates, seeds),
    )


def _study(curves: ArrayLike, x: Sequence[float] | None, direction: str, step: float | None) -> _Study:
    sign = sign_of(direction)
    asked, table = "a target from learning curves", np.asarray(curves, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] < LEAST_EVALUATIONS or table.shape[1] < LEAST_SEEDS:
        needed = f"give {LEAST_EVALUATIONS} evaluations or more of {LEAST_SEEDS} seeds or more"
        raise UsageError(asked, f"curves of shape {table.shape} (evaluations x seeds)", needed)
    at = np.arange(1.0, len(table) + 1.0) if x is None else np.asarray(x, dtype=np.float64)
    if at.shape != (len(table),) or not np.isfinite(at).all() or not (np.diff(at) > 0).all() or at[0] < 0:
        raise UsageError(asked, "positions that do not rise from evaluation to evaluation", "give one x an evaluation")
    # A seed that diverged is worse than any other, not absent.
    median = np.median(np.where(np.isfinite(table), sign * table, -np.inf), axis=1)
    if not np.isfinite(median).all():
        raise UsageError(asked, "half of the seeds or more have no finite quality", "correct the recipe first")
    best = np.maximum.accumulate(median)
    if step is not None and not step > 0:
        raise UsageError(asked, f"a step of {step} between candidates", "give a step above zero")
    return _Study(table, at, best, sign, step or _nice(float(best[-1] - best[0]) / 50.0))


def _nice(value: float) -> float:
    """The largest of 1, 2 or 5 times a power of ten that is not above ``value``; 1 for a curve without a range."""
    if value <= 0.0:
        return 1.0
    power = math.floor(math.log10(value))
    digit = max(d for d in (1, 2, 5) if d <= value / 10.0**power + 1e-9)
    return float(f"{digit}e{power}")


def _knee(study: _Study) -> int | str:
    """The evaluation at the knee, or the reason why there is none."""
    x_range, q_range = study.ranges
    if q_range <= 0.0:
        return "no knee: the quality does not improve after the first evaluation"
    bend = (study.best - study.best[0]) / q_range - (study.x - study.x[0]) / x_range
    knee = int(np.argmax(bend))
    if bend[knee] < LEAST_BEND:
        return "no knee: the curves are still climbing at their end; train longer"
    if knee == 1:
        return "no knee: it lies before the second evaluation; evaluate more often"
    return knee


def _round_values(low: float, high: float, step: float) -> list[float]:
    digits = max(0, 1 - math.floor(math.log10(step))) + 1
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, digits) for i in range(first, last + 1)]


def _candidate(study: _Study, value: float, knee_quality: float) -> Candidate:
    """The table's line for ``value`` (higher is better)."""
    threshold = study.sign * value
    found = (find_crossing(c, threshold, direction=study.direction, x=list(study.x)) for c in study.curves.T.tolist())
    crossings = [c.position for c in found if c is not None and c.position is not None]
    crossing = float(np.median(crossings)) if crossings else None
    cv = coefficient_of_variation(crossings) if len(crossings) > 1 else None
    x_range, q_range = study.ranges
    after = study.arrival(value + study.step)
    slope = math.inf if math.isinf(after) else (after - study.arrival(value - study.step)) / (2.0 * study.step)
    conditioning = slope * q_range / x_range
    if value < knee_quality:
        finding = "steep"
    elif len(crossings) < study.curves.shape[1]:
        finding = "unreached"
    elif conditioning > FLAT:
        finding = "flat"
    else:
        finding = "good" if _narrow(cv) else "scattered"
    quantisation = None if crossing is None else _quantisation(study.x, crossing)
    return Candidate(threshold, len(crossings), crossing, cv, study.sign * slope, conditioning, quantisation, finding)


def _quantisation(x: _Curve, crossing: float) -> float:
    index = max(1, int(np.searchsorted(x, crossing)))
    return float(x[index] - x[index - 1]) / crossing


def _narrow(cv: float | None) -> bool:
    return cv is not None and cv <= LARGEST_CV


def _reason(chosen: Candidate | None, candidates: Sequence[Candidate], seeds: int) -> str:
    if chosen is not None and chosen.finding == "good":
        return (
            f"the highest round value after the knee that all {seeds} seeds reach, confirmed, on a slope of "
            f"{chosen.conditioning:.2g} (1 at the knee, {FLAT:g} flat)"
        )
    found = sorted({candidate.finding for candidate in candidates} - {"steep"})
    none = f"no round value after the knee will do: {', '.join(found) or 'the step between them is too wide'}"
    if chosen is None:
        return none
    return f"{none}; the highest before it that all {seeds} seeds reach, confirmed, without scattering"
