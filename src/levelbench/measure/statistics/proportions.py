"""Shares of runs: how many reach the target, and whether two shares differ.

Runs are few and shares are often 0 or 1, where the textbook interval p +- z s has no width at all;
Wilson's stays honest there, and Fisher's test is exact for any size.
"""

from __future__ import annotations

import math

from levelbench.measure.statistics.distributions import normal_quantile
from levelbench.measure.statistics.values import Interval, check_share


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
