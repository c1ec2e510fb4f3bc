"""Confidence intervals of one sample: exact for the median, Student's t for means.

Times are summarised by their geometric mean, which is what verdicts compare; a median is for latencies and for what is
named a median. No percentile bootstrap is offered: below some twenty values it covers far less than it claims.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from levelbench.measure.statistics.distributions import binomial_cdf, normal_quantile, t_quantile
from levelbench.measure.statistics.means import geometric_mean
from levelbench.measure.statistics.values import RANGE, Estimate, Interval, check_share, exponential, finite, positive

INTERVAL_FROM = 6
"""Values from which a typical value has an interval."""


@lru_cache(maxsize=1024)
def median_interval_ranks(n: int, level: float = 0.95) -> tuple[int, int] | None:
    """The 1-based ranks of the narrowest symmetric exact interval of the median, or ``None`` if ``n`` is too small.

    Ranks r and n + 1 - r cover the median with probability 1 - 2 P(Bin(n, 1/2) < r), whatever the distribution
    (Thompson 1936; David & Nagaraja, *Order Statistics*, 7.1).
    """
    check_share("the level", level)
    if n < 1 or 1.0 - 2.0 * 0.5**n < level:
        return None
    low, high = 1, (n + 1) // 2
    while low < high:
        middle = (low + high + 1) // 2
        covers = 1.0 - 2.0 * binomial_cdf(middle - 1, n, 0.5) >= level
        low, high = (middle, high) if covers else (low, middle - 1)
    return low, n + 1 - low


def median_interval_ranks_normal(n: int, level: float = 0.95) -> tuple[int, int] | None:
    """Le Boudec's normal approximation to the ranks (Hoefler & Belli, SC15, 4.2.2), clamped to 1..n; for comparison.

    From rank ceil((n - z sqrt n) / 2) to rank ceil(1 + (n + z sqrt n) / 2): up to a rank wider than the exact ones.
    ``None`` for five values or fewer.
    """
    if n <= 5:
        return None
    spread = normal_quantile(0.5 + 0.5 * check_share("the level", level)) * math.sqrt(n)
    return max(1, math.ceil((n - spread) / 2.0)), min(n, math.ceil(1.0 + (n + spread) / 2.0))


def median_interval(values: Sequence[float], level: float = 0.95) -> Interval | None:
    """The exact order-statistic interval of the median, or ``None`` below six values (at 95 %)."""
    ordered = np.sort(finite(values))
    ranks = median_interval_ranks(len(ordered), level)
    if ranks is None:
        return None
    return Interval(float(ordered[ranks[0] - 1]), float(ordered[ranks[1] - 1]), level, "exact order statistics")


def mean_interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """The mean +- t s / sqrt(n) (Student 1908), for two values or more; exact for normal samples."""
    vector = finite(values, 2)
    n = len(vector)
    mean = math.fsum(vector) / n
    reach = t_quantile(0.5 + 0.5 * check_share("the level", level), n - 1) * float(vector.std(ddof=1)) / math.sqrt(n)
    return Interval(mean - reach, mean + reach, level, "Student's t")


def log_mean_interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """The t interval of the mean of the logarithms, taken back: of the median if the values are log-normal."""
    logs = mean_interval([math.log(value) for value in positive(values, 2)], level)
    return Interval(exponential(logs.low), exponential(logs.high), level, "Student's t on logarithms")


def estimate(values: Sequence[float], level: float = 0.95) -> Estimate:
    """The geometric mean of a sample of costs, with its interval from six values on.

    It is what verdicts compare: the ratio of two of them is that of a verdict, or, where outliers were trimmed, the
    one that the verdict shows beside its own. The interval is Student's on the logarithms, for times without outliers
    or a second mode. Two to five values have their extremes in its place, at the level 1 - 2^(1 - n) at which these
    cover the median of any distribution: no 95 % interval of so few covers as often as it says. The values must be
    above zero (``ValueError``): use :func:`estimate_signed` for others.
    """
    vector = positive(values)
    n = len(vector)
    if n == 1:
        return Estimate(float(vector[0]), None, 1, "single value")
    if n < INTERVAL_FROM:
        extremes = Interval(float(vector.min()), float(vector.max()), 1.0 - 2.0 ** (1 - n), RANGE)
        return Estimate(geometric_mean(values), extremes, n, "geometric mean")
    return Estimate(geometric_mean(values), log_mean_interval(values, level), n, "geometric mean")


def estimate_median(values: Sequence[float], level: float = 0.95) -> Estimate:
    """The median with its exact interval, from six values (at 95 %); before that without one."""
    found = median_interval(values, level)
    return Estimate(float(np.median(finite(values))), found, len(values), "median")


def estimate_signed(values: Sequence[float], level: float = 0.95) -> Estimate:
    """The mean with its t interval, for quantities that may be zero or below (differences, qualities, errors)."""
    vector = finite(values)
    n = len(vector)
    mean = math.fsum(vector) / n
    return Estimate(mean, mean_interval(values, level) if n > 1 else None, n, "mean" if n > 1 else "single value")
