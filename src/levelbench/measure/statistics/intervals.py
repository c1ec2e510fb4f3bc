"""Confidence intervals of one sample: exact for quantiles, Student's t for means, Wilson's for shares.

Times are summarised by their geometric mean, which is what verdicts compare; medians are for latencies and for whatever
is named a median. There is no percentile bootstrap: below about twenty values it covers far less than it claims. An
interval from order statistics assumes nothing about the distribution, so it needs a minimum number of values (368 for
the 99th percentile at 95 %). Runs are few and shares are often 0 or 1, where p +- z s has no width; Wilson's interval
remains valid there, and Fisher's test that two shares are equal is exact for any size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from levelbench.measure.statistics.distributions import (
    binomial_cdf,
    chi_squared_quantile,
    normal_quantile,
    t_quantile,
)
from levelbench.measure.statistics.values import (
    RANGE,
    Estimate,
    Interval,
    check_share,
    coefficient_of_variation,
    exponential,
    finite,
    geometric_mean,
    positive,
)

INTERVAL_FROM = 6
"""Number of values from which a typical value has an interval."""


@lru_cache(maxsize=1024)
def median_interval_ranks(n: int, level: float = 0.95) -> tuple[int, int] | None:
    """The 1-based ranks of the narrowest symmetric exact interval of the median, or ``None`` if ``n`` is too small.

    Ranks r and n + 1 - r cover the median with probability 1 - 2 P(Bin(n, 1/2) < r), whatever the distribution
    (Thompson 1936; David & Nagaraja, *Order Statistics*, 7.1).
    """
    check_share("the level", level)
    if n < 1 or 1.0 - 2.0 * 0.5**n < level:
        return None
    low = max(1, largest(lambda rank: 1.0 - 2.0 * binomial_cdf(rank - 1, n, 0.5) >= level, (n + 1) // 2))
    return low, n + 1 - low


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
    """The t interval of the mean of the logarithms, transformed back: of the median if the values are log-normal."""
    logs = mean_interval([math.log(value) for value in positive(values, 2)], level)
    return Interval(exponential(logs.low), exponential(logs.high), level, "Student's t on logarithms")


def deviation_interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """The interval of the standard deviation of a normal sample of two values or more, from chi-squared; exact."""
    vector = finite(values, 2)
    dof, tail = len(vector) - 1, 0.5 - 0.5 * check_share("the level", level)
    squares = float(vector.var(ddof=1)) * dof
    low, high = (math.sqrt(squares / chi_squared_quantile(p, dof)) for p in (1.0 - tail, tail))
    return Interval(low, high, level, "chi-squared")


def variation(values: Sequence[float], level: float = 0.95) -> Estimate:
    """The coefficient of variation of costs (ddof 1), with its interval from three values on.

    The interval is exact for log-normal values: sqrt(exp(s^2) - 1) at both ends of the interval of s, the deviation of
    the logarithms. If it does not contain the value, the values are not log-normal (an outlier, a second mode), and
    there is none. A single value has no variation (``ValueError``).
    """
    vector = positive(values, 2)
    value = coefficient_of_variation(values)
    if len(vector) < 3:
        return Estimate(value, None, len(vector), "coefficient of variation")
    found = deviation_interval(np.log(vector).tolist(), level)
    low, high = (math.sqrt(math.expm1(min(bound, 26.0) ** 2)) for bound in (found.low, found.high))
    inside = Interval(low, high, level, "chi-squared on logarithms") if low <= value <= high else None
    return Estimate(value, inside, len(vector), "coefficient of variation")


def estimate(values: Sequence[float], level: float = 0.95) -> Estimate:
    """The geometric mean of a sample of costs, with its interval from six values on.

    It is what verdicts compare: the ratio of two of them is that of a verdict or, if outliers were trimmed, the one
    that the verdict shows next to its own. The interval is Student's on the logarithms, for times without outliers or a
    second mode. Two to five values have their extremes instead, at the level 1 - 2^(1 - n) at which these cover the
    median of any distribution: no 95 % interval of so few values covers as often as it claims. The values must be above
    zero (``ValueError``): use :func:`estimate_signed` for others.
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


@lru_cache(maxsize=1024)
def quantile_interval_ranks(n: int, q: float, level: float = 0.95) -> tuple[int, int] | None:
    """The 1-based ranks of an exact interval of the ``q`` quantile with equal tails; ``None`` if ``n`` is too small.

    Rank l is the largest with P(Bin(n, q) < l) <= (1 - level) / 2, rank u the smallest with P(Bin(n, q) >= u) of at
    most as much (David & Nagaraja, *Order Statistics*, 7.1).
    """
    check_share("the level", level)
    check_share("the quantile", q)
    tail = (1.0 - level) / 2.0
    low = largest(lambda rank: binomial_cdf(rank - 1, n, q) <= tail, n)
    # P(Bin(n, q) >= u) = P(Bin(n, 1 - q) <= n - u): the same question from the other end.
    high = largest(lambda rank: binomial_cdf(rank - 1, n, 1.0 - q) <= tail, n)
    return None if not low or not high else (low, n + 1 - high)


def largest(holds: Callable[[int], bool], n: int) -> int:
    """The largest rank from 1 to ``n`` for which a condition that holds up to some rank holds; 0 if it never does."""
    low, high = 0, n
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


@lru_cache(maxsize=64)
def values_needed(q: float, level: float = 0.95) -> int:
    """The least number of values for which the ``q`` quantile has an exact interval: 6, 36 and 368 for 0.5, 0.9, 0.99.

    All values lie on one side of the quantile with probability max(q, 1 - q)^n.
    """
    far = max(check_share("the quantile", q), 1.0 - q)
    return math.ceil(math.log((1.0 - check_share("the level", level)) / 2.0) / math.log(far))


def quantile_estimate(values: Sequence[float], q: float, level: float = 0.95) -> Estimate | None:
    """The ``q`` quantile with its exact interval, or ``None`` for fewer values than :func:`values_needed`.

    The value is the order statistic of rank ceil(q n), the inverse of the empirical distribution function, so it is a
    value that was measured. The interval holds for independent values.
    """
    ordered = np.sort(finite(values))
    ranks = quantile_interval_ranks(len(ordered), q, level)
    if ranks is None:
        return None
    interval = Interval(float(ordered[ranks[0] - 1]), float(ordered[ranks[1] - 1]), level, "exact order statistics")
    return Estimate(float(ordered[math.ceil(q * len(ordered)) - 1]), interval, len(ordered), f"quantile {q:g}")


def wilson(k: int, n: int, level: float = 0.95) -> Interval:
    """Wilson's score interval of a share of ``k`` in ``n`` (Wilson 1927); ``ValueError`` unless 0 <= k <= n, n >= 1."""
    _check(k, n)
    z = normal_quantile(0.5 + 0.5 * check_share("the level", level))
    share, square = k / n, z * z
    centre = (share + square / (2 * n)) / (1 + square / n)
    reach = z / (1 + square / n) * math.sqrt(share * (1 - share) / n + square / (4 * n * n))
    low = 0.0 if k == 0 else max(0.0, centre - reach)
    high = 1.0 if k == n else min(1.0, centre + reach)
    return Interval(low, high, level, "Wilson score")


def fisher_exact(k_a: int, n_a: int, k_b: int, n_b: int) -> float:
    """The two-sided p value that ``k_a`` of ``n_a`` and ``k_b`` of ``n_b`` have one share in common (Fisher 1935).

    The sum over all tables with the same margins that are no more probable than the one seen, in whole numbers.
    """
    _check(k_a, n_a)
    _check(k_b, n_b)
    k, n = k_a + k_b, n_a + n_b
    ways = [math.comb(n_a, i) * math.comb(n_b, k - i) for i in range(max(0, k - n_b), min(k, n_a) + 1)]
    seen = math.comb(n_a, k_a) * math.comb(n_b, k_b)
    return sum(way for way in ways if way <= seen) / math.comb(n, k)


def _check(k: int, n: int) -> None:
    if n < 1 or not 0 <= k <= n:
        raise ValueError(f"{k} of {n} is not a share")
