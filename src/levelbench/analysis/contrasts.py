"""Contrasts: sums of the logarithms of several arms' times, each with a coefficient, with an interval.

The one idea: on logarithms a product of speed-ups is a sum, so every question to a factorial experiment is one contrast
of its arms. Where all arms have the same seeds it is formed seed by seed and tested by Student's t, which needs neither
equal variances nor luck with the seeds; else by Welch's approximation.

A run that never reached its target took longer than it was given. That bounds a contrast from one side: the bound is
used and the other side stays open, so nothing is filled in and nothing is dropped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from levelbench.measure.statistics import t_quantile

__all__ = ["Contrast", "FactorArm", "contrast", "horizon_of"]

Logs = NDArray[np.float64]


@dataclass(frozen=True)
class FactorArm:
    """The runs of one arm by seed: which factors were ``on``, and the seconds to the target.

    ``times`` has ``None`` for a run that never got there, and ``given_up`` for each of these, in order, how long it had
    tried: infinite where it could never have arrived. ``failed`` says that no run of the arm came to its own end.
    """

    on: frozenset[str]
    times: tuple[float | None, ...]
    given_up: tuple[float, ...]
    seeds: tuple[int, ...]
    label: str = ""
    failed: bool = False

    @property
    def reached(self) -> int:
        """How many of the runs reached the target."""
        return sum(time is not None for time in self.times)

    def logs(self, horizon: float) -> tuple[Logs, Logs]:
        """The logarithms of the times from below and from above, shape (n,); ``horizon`` bounds an endless time."""
        given_up = iter(self.given_up)
        low = [min(next(given_up), horizon) if time is None else time for time in self.times]
        high = [math.inf if time is None else time for time in self.times]
        with np.errstate(divide="ignore"):
            return np.log(np.array(low)), np.log(np.array(high))


@dataclass(frozen=True)
class Contrast:
    """A ratio with its interval; ``None`` for what cannot be told, ``reason`` says why.

    ``deviation`` is the standard deviation that one run of each arm gives the logarithm, for planning.
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
    """The longest time that any run took or was given: what a run that could never arrive took at least."""
    known = [time for cell in cells for time in (*cell.times, *cell.given_up) if time is not None]
    return max(filter(math.isfinite, known), default=math.inf)


def contrast(cells: Sequence[FactorArm], coefficients: Sequence[float], level: float = 0.95) -> Contrast:
    """The product of the arms' times, each to the power of its coefficient: 1 and -1 make a ratio of two.

    ``ValueError`` for other than one coefficient a cell.
    """
    used = [(cell, c) for cell, c in zip(cells, coefficients, strict=True) if c]
    n = min((len(cell.times) for cell, _ in used), default=0)
    if n == 0 or any(cell.failed for cell, _ in used):
        return Contrast(None, None, None, n, level, reason="an arm has no run, or all runs of one failed")
    horizon = horizon_of(cells)
    bounds = [cell.logs(horizon) for cell, _ in used]
    # What makes the contrast small: short times that count for it, long ones that count against it.
    small = [low if c > 0 else high for (low, high), (_, c) in zip(bounds, used, strict=True)]
    large = [high if c > 0 else low for (low, high), (_, c) in zip(bounds, used, strict=True)]
    weights = [c for _, c in used]
    paired = len({cell.seeds for cell, _ in used}) == 1
    method = "Student's t of each seed's contrast" if paired else "Welch's t of the contrast"
    below, above = (_interval(side, weights, level, paired) for side in (small, large))
    missed = sum(len(cell.times) - cell.reached for cell, _ in used)
    reason = f"{missed} run{'s' * (missed != 1)} never reached the target: a bound from one side" if missed else ""
    if missed and below is None and above is None:
        reason = f"{missed} run{'s' * (missed != 1)} never reached the target: no bound from either side"
    if n < 2:
        reason = reason or "an interval needs two runs or more of each arm"
    return Contrast(
        ratio=_power(below[0]) if below and not missed else None,
        low=_power(below[1]) if below and n > 1 else None,
        high=_power(above[2]) if above and n > 1 else None,
        n=n,
        level=level,
        deviation=below[3] if below and not missed and n > 1 else None,
        method=method,
        reason=reason,
    )


def _interval(
    logs: Sequence[Logs], weights: Sequence[float], level: float, paired: bool
) -> tuple[float, float, float, float] | None:
    """Mean, bounds and the deviation of one run each; ``None`` where a logarithm is not finite."""
    if not all(np.isfinite(each).all() for each in logs):
        return None
    mean = math.fsum(c * float(each.mean()) for each, c in zip(logs, weights, strict=True))
    if min(map(len, logs)) < 2:
        return mean, mean, mean, 0.0
    if paired:
        together = np.sum([c * each for each, c in zip(logs, weights, strict=True)], axis=0)
        parts, sizes = [float(together.var(ddof=1))], [len(together)]
    else:
        parts = [c * c * float(each.var(ddof=1)) for each, c in zip(logs, weights, strict=True)]
        sizes = [len(each) for each in logs]
    shares = [part / size for part, size in zip(parts, sizes, strict=True)]
    variance = math.fsum(shares)
    # Sums of equal numbers differ in their last digit: that is no spread.
    if variance < 1e-24 * (1.0 + mean * mean):
        return mean, mean, mean, 0.0
    dof = 1.0 / math.fsum((s / variance) ** 2 / (size - 1) for s, size in zip(shares, sizes, strict=True))
    reach = t_quantile(0.5 + 0.5 * level, dof) * math.sqrt(variance)
    return mean, mean - reach, mean + reach, math.sqrt(math.fsum(parts))


def _power(logarithm: float) -> float:
    return math.exp(min(max(logarithm, -700.0), 700.0))
