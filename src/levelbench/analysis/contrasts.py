"""Contrasts of arms: a ratio of products of times, with an interval that allows for runs that missed the target.

If all arms have the same seeds, a contrast is formed seed by seed and tested by Student's t, which needs no equal
variances and removes the luck of the seeds; else Welch's approximation is used. A run that never reached its target
took longer than its limit. That bounds a contrast on one side and leaves the other side open; nothing is imputed or
dropped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from levelbench.measure.design import Span, schedule_of
from levelbench.measure.statistics import resolution_of, t_quantile
from levelbench.measure.statistics.compare import rounding_variance
from levelbench.measure.verdict import LEAST_RUNS, NOT_INTERLEAVED
from levelbench.records import RunSummary

__all__ = ["Contrast", "FactorArm", "apart", "contrast", "horizon_of"]

Logs = NDArray[np.float64]


@dataclass(frozen=True)
class FactorArm:
    """The runs of one arm by seed: the factors that were ``on``, and the seconds to the target.

    ``times`` has ``None`` for a run that missed, and ``given_up`` has, in the same order, how long each of these had
    tried: infinite for one that could never have arrived. ``failed`` says that no run of the arm finished.
    """

    on: frozenset[str]
    times: tuple[float | None, ...]
    given_up: tuple[float, ...]
    seeds: tuple[int, ...]
    label: str = ""
    failed: bool = False
    spans: tuple[Span, ...] | None = None
    """When each run started and ended, if known."""
    runs: tuple[RunSummary, ...] = ()
    """The runs themselves, if known."""

    @property
    def reached(self) -> int:
        """How many of the runs reached the target."""
        return sum(time is not None for time in self.times)

    def logs(self, horizon: float) -> tuple[Logs, Logs]:
        """Lower and upper bounds of the log times, shape (n,); ``horizon`` stands for an infinite time."""
        given_up = iter(self.given_up)
        low = [min(next(given_up), horizon) if time is None else time for time in self.times]
        high = [math.inf if time is None else time for time in self.times]
        with np.errstate(divide="ignore"):
            return np.log(np.array(low)), np.log(np.array(high))


@dataclass(frozen=True)
class Contrast:
    """A ratio with its interval; ``None`` if unknown, with the ``reason``.

    ``deviation`` is the standard deviation of the logarithm from one run of each arm, for planning.
    """

    ratio: float | None
    low: float | None
    high: float | None
    n: int
    level: float
    deviation: float | None = None
    method: str = ""
    reason: str = ""


def horizon_of(cells: Sequence[FactorArm]) -> float:
    """The longest time that any run took or was given: a lower bound for a run that could never arrive."""
    known = [time for cell in cells for time in (*cell.times, *cell.given_up) if time is not None]
    return max(filter(math.isfinite, known), default=math.inf)


def apart(cells: Sequence[FactorArm]) -> bool:
    """Whether two of the arms are known not to have taken turns, so that the machine may have changed in between."""
    paired = len({cell.seeds for cell in cells}) == 1
    return any(
        one.spans is not None
        and other.spans is not None
        and schedule_of(one.spans, other.spans, paired=paired) is not None
        for one, other in combinations(cells, 2)
    )


def contrast(
    cells: Sequence[FactorArm], coefficients: Sequence[float], level: float = 0.95, *, in_turns: bool | None = None
) -> Contrast:
    """The product of the arms' times, each to the power of its coefficient: 1 and -1 give a ratio of two arms.

    There is no interval if an arm has fewer than three runs, or if two arms did not take turns: ``in_turns`` says so
    where it is known (see :func:`apart`). ``ValueError`` unless there is one coefficient per cell.
    """
    used = [(cell, c) for cell, c in zip(cells, coefficients, strict=True) if c]
    n = min((len(cell.times) for cell, _ in used), default=0)
    if n == 0 or any(cell.failed for cell, _ in used):
        return Contrast(None, None, None, n, level, reason="an arm has no run, or all runs of one failed")
    horizon = horizon_of(cells)
    bounds = [cell.logs(horizon) for cell, _ in used]
    # The lower bound of the contrast has short times where the coefficient is positive, long ones where it is negative.
    small = [low if c > 0 else high for (low, high), (_, c) in zip(bounds, used, strict=True)]
    large = [high if c > 0 else low for (low, high), (_, c) in zip(bounds, used, strict=True)]
    weights = [c for _, c in used]
    paired = len({cell.seeds for cell, _ in used}) == 1
    method = "Student's t of each seed's contrast" if paired else "Welch's t of the contrast"
    if in_turns is None:
        in_turns = not apart([cell for cell, _ in used])
    missed = sum(len(cell.times) - cell.reached for cell, _ in used)
    below = _interval(small, weights, level, paired)
    above = _interval(large, weights, level, paired) if missed else below
    reason = f"{missed} run{'s' * (missed != 1)} never reached the target: a bound from one side" if missed else ""
    if missed and below is None and above is None:
        reason = f"{missed} run{'s' * (missed != 1)} never reached the target: no bound from either side"
    if n < LEAST_RUNS:
        reason = reason or f"too few runs: an interval needs at least {LEAST_RUNS} of each arm"
    elif not in_turns:
        reason = "; ".join(filter(None, (reason, NOT_INTERLEAVED)))
    known = n >= LEAST_RUNS and in_turns
    return Contrast(
        ratio=_power(below[0]) if below and not missed else None,
        low=_power(below[1]) if below and known else None,
        high=_power(above[2]) if above and known else None,
        n=n,
        level=level,
        deviation=below[3] if below and not missed and known else None,
        method=method,
        reason=reason,
    )


def _interval(
    logs: Sequence[Logs], weights: Sequence[float], level: float, paired: bool
) -> tuple[float, float, float, float] | None:
    """Mean, bounds, and the deviation of one run of each arm; ``None`` if a logarithm is not finite."""
    if not all(np.isfinite(each).all() for each in logs):
        return None
    mean = math.fsum(c * float(each.mean()) for each, c in zip(logs, weights, strict=True))
    if min(map(len, logs)) < 2:
        return mean, mean, mean, 0.0
    # No run is known more precisely than the resolution of the clock.
    step = resolution_of(*(np.exp(each).tolist() for each in logs))
    floors = [c * c * rounding_variance(np.exp(each), step) for each, c in zip(logs, weights, strict=True)]
    if paired:
        together = np.sum([c * each for each, c in zip(logs, weights, strict=True)], axis=0)
        parts, sizes = [max(float(together.var(ddof=1)), math.fsum(floors))], [len(together)]
    else:
        spreads = [c * c * float(each.var(ddof=1)) for each, c in zip(logs, weights, strict=True)]
        parts = [max(spread, floor) for spread, floor in zip(spreads, floors, strict=True)]
        sizes = [len(each) for each in logs]
    shares = [part / size for part, size in zip(parts, sizes, strict=True)]
    variance = math.fsum(shares)
    # Sums of equal numbers differ in the last digit: that is not a spread.
    if variance < 1e-24 * (1.0 + mean * mean):
        return mean, mean, mean, 0.0
    dof = 1.0 / math.fsum((s / variance) ** 2 / (size - 1) for s, size in zip(shares, sizes, strict=True))
    reach = t_quantile(0.5 + 0.5 * level, dof) * math.sqrt(variance)
    return mean, mean - reach, mean + reach, math.sqrt(math.fsum(parts))


def _power(logarithm: float) -> float:
    return math.exp(min(max(logarithm, -700.0), 700.0))
