"""The α-β model of a message, t = α + n β, fitted to measured times.

Times span seven decades, so each counts with its own uncertainty, and where the line misses the points by
more than those say, as it does where a library changes its protocol, the intervals widen by what it misses them by.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import UsageError
from levelbench.measure.statistics import Estimate, Interval, normal_quantile, t_quantile

__all__ = ["Fit", "Round", "Timed", "fit", "fit_points", "rounds_of"]

_LEAST_ERROR = 0.01
"""Of a median: no point counts for more than one that is known to a hundredth, or a lucky one would decide alone."""


@dataclass(frozen=True)
class Timed:
    """The time of an operation on ``nbytes`` bytes, in seconds, and its standard error."""

    nbytes: float
    time_s: float
    error_s: float


@dataclass(frozen=True)
class Fit:
    """t = ``alpha_s`` + n · ``beta_s_b``: seconds, and seconds a byte, with their intervals.

    ``misfit`` is √(χ² / degrees of freedom): how far the line misses the points, in their own errors; about 1 where it
    holds. ``relative`` is the largest |measured / fitted − 1|. ``n`` is the number of points.
    """

    alpha_s: float
    alpha_interval: Interval
    beta_s_b: float
    beta_interval: Interval
    misfit: float
    relative: float
    n: int

    def time_s(self, nbytes: float) -> float:
        """What the model says of a size, in seconds."""
        return self.alpha_s + nbytes * self.beta_s_b

    @property
    def bandwidth_b_s(self) -> float:
        """1 / β: bytes a second of a message without end."""
        return 1.0 / self.beta_s_b if self.beta_s_b > 0 else math.inf

    @property
    def half_size_b(self) -> float:
        """α / β: the size at which half of the time is latency (Hockney's n½)."""
        return self.alpha_s / self.beta_s_b if self.beta_s_b > 0 else math.inf


@dataclass(frozen=True)
class Round:
    """``count`` messages one after another, each of ``share`` of the operation's bytes."""

    count: int
    share: float

    @property
    def parts(self) -> tuple[float, float]:
        """One message's part of the operation's α and β: the operation is ``count`` (α + share · n β)."""
        return 1 / self.count, 1 / (self.count * self.share)

    def per_message(self, whole: Fit) -> tuple[float, float]:
        """α (s) and β (s/B) of one of the messages."""
        alpha, beta = self.parts
        return whole.alpha_s * alpha, whole.beta_s_b * beta


def rounds_of(operation: str, size: int) -> Round | None:
    """The messages that follow one another in the bandwidth-optimal algorithm of ``operation`` on ``size`` ranks.

    A ring for all-reduce, reduce-scatter and all-gather (Patarasuk & Yuan 2009), pairs for all-to-all. ``None`` for an
    operation without such a one, and for a single rank. The additions of a reduction count as part of β.
    """
    if size < 2:
        return None
    if operation == "all-reduce":
        return Round(2 * (size - 1), 1 / size)
    if operation in ("reduce-scatter", "all-gather", "all-to-all"):
        return Round(size - 1, 1 / size)
    return Round(1, 1.0) if operation == "send-receive" else None


def fit_points(estimates: Sequence[tuple[float, Estimate]]) -> list[Timed]:
    """Sizes with medians as points: the standard error is what the interval's width says of a normal one.

    A median without an interval (fewer than six values) counts as known to a tenth.
    """
    found = []
    for nbytes, estimate in estimates:
        error = 0.1 * estimate.value
        if estimate.interval is not None and math.isfinite(estimate.interval.width):
            error = estimate.interval.width / (2 * normal_quantile(0.5 + estimate.interval.level / 2))
        found.append(Timed(nbytes, estimate.value, max(error, _LEAST_ERROR * estimate.value)))
    return found


def fit(points: Sequence[Timed], level: float = 0.95) -> Fit:
    """Weighted least squares on at least three points of at least two sizes, neither parameter below zero.

    Intervals are Student's with n − 2 degrees of freedom, on errors widened by the misfit where that is above 1
    (Birge's ratio), cut at zero. A parameter that would be negative is 0 and the other is fitted alone; their intervals
    stay as wide as those of both together, around these values. Raises ``UsageError`` for fewer points.
    """
    sizes, times, errors = (np.array([getattr(each, name) for each in points]) for name in Timed.__dataclass_fields__)
    if len(points) < 3 or len(set(sizes.tolist())) < 2:
        raise UsageError(
            f"a line through {len(points)} points", "it needs three points, of two sizes or more", "measure more sizes"
        )
    # Columns of the same size, or the squares of bytes and seconds would drown one another.
    scale = float(sizes.max()) or 1.0
    design = np.stack([np.ones_like(sizes), sizes / scale], axis=1)
    solution, covariance = _weighted(design, times, errors, (True, True))
    free = (bool(solution[0] >= 0), bool(solution[1] >= 0))
    bounded = solution
    if not all(free):
        bounded, _ = _weighted(design, times, errors, free)
    left = times - design @ bounded
    freedom = len(points) - 2
    misfit = math.sqrt(float(np.sum((left / errors) ** 2)) / freedom)
    wide = t_quantile(0.5 + level / 2, freedom) * max(1.0, misfit)
    intervals = []
    for at, unit in ((0, 1.0), (1, scale)):
        reach = wide * math.sqrt(covariance[at, at])
        low, high = max(0.0, float(bounded[at]) - reach), float(bounded[at]) + reach
        intervals.append(Interval(low / unit, high / unit, level, "weighted least squares, Student's t, Birge's ratio"))
    fitted = design @ bounded
    return Fit(
        alpha_s=float(bounded[0]),
        alpha_interval=intervals[0],
        beta_s_b=float(bounded[1]) / scale,
        beta_interval=intervals[1],
        misfit=misfit,
        relative=float(np.max(np.abs(times / fitted - 1.0))),
        n=len(points),
    )


def _weighted(
    design: NDArray[np.float64], times: NDArray[np.float64], errors: NDArray[np.float64], free: tuple[bool, bool]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The solution with those parameters that are free, the others 0, and its covariance for these errors."""
    chosen = [at for at in (0, 1) if free[at]]
    weighted = design[:, chosen] / errors[:, None]
    inverse = np.linalg.inv(weighted.T @ weighted)
    solution, covariance = np.zeros(2), np.zeros((2, 2))
    solution[chosen] = inverse @ weighted.T @ (times / errors)
    covariance[np.ix_(chosen, chosen)] = inverse
    return solution, covariance
