"""Quantiles of one sample with exact intervals, and how many values one needs.

An interval from order statistics assumes nothing about the distribution, so it exists only from some
number of values on (368 for the 99th percentile at 95 %), and below that there is no interval and no number is made up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from levelbench.measure.statistics.distributions import binomial_cdf
from levelbench.measure.statistics.values import Estimate, Interval, check_share, finite


@lru_cache(maxsize=1024)
def quantile_interval_ranks(n: int, q: float, level: float = 0.95) -> tuple[int, int] | None:
    """The 1-based ranks of an exact interval of the ``q`` quantile with equal tails; ``None`` if ``n`` is too small.

    Rank l is the largest with P(Bin(n, q) < l) <= (1 - level) / 2, rank u the smallest with P(Bin(n, q) >= u) of at
    most as much (David & Nagaraja, *Order Statistics*, 7.1).
    """
    check_share("the level", level)
    check_share("the quantile", q)
    tail = (1.0 - level) / 2.0
    low = _largest(lambda rank: binomial_cdf(rank - 1, n, q) <= tail, n)
    # P(Bin(n, q) >= u) = P(Bin(n, 1 - q) <= n - u): the same question asked from the other end.
    high = _largest(lambda rank: binomial_cdf(rank - 1, n, 1.0 - q) <= tail, n)
    return None if not low or not high else (low, n + 1 - high)


def _largest(holds: Callable[[int], bool], n: int) -> int:
    """The largest rank from 1 to ``n`` for which a condition holds that holds up to some rank; 0 if for none."""
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
    value that was measured. The values must be independent for the interval to hold.
    """
    ordered = np.sort(finite(values))
    ranks = quantile_interval_ranks(len(ordered), q, level)
    if ranks is None:
        return None
    interval = Interval(float(ordered[ranks[0] - 1]), float(ordered[ranks[1] - 1]), level, "exact order statistics")
    return Estimate(float(ordered[math.ceil(q * len(ordered)) - 1]), interval, len(ordered), f"quantile {q:g}")
