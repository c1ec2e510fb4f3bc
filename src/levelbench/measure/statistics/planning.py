"""How many runs to see an effect or to settle a comparison, what the best of several overstates, many comparisons.

Runs grow with the square of noise over effect, so a difference half as large costs four times the runs; someone who
wants 2 % on a machine with 5 % noise should be told "99 runs" before starting. Of a hundred comparisons of equal
things, five come out "significant" at 5 %, so a suite's verdicts use p values that bound the chance of a single false
alarm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from levelbench.measure.statistics.distributions import normal_cdf, normal_quantile, t_quantile
from levelbench.measure.statistics.values import check_share, finite

_MOST_RUNS = 10**9


def runs_needed(cv: float, effect: float, alpha: float = 0.05, power: float = 0.8) -> int:
    """Runs an arm to see a relative difference ``effect`` where runs vary by ``cv``; at least 2.

    n = 2 (z_(1 - alpha/2) + z_power)^2 (cv / effect)^2, the normal approximation (Lehr 1992 for its short form). It is
    slightly too low below about ten runs: see :func:`runs_needed_t`.
    """
    return max(2, math.ceil(_normal_runs(cv, effect, alpha, power)))


def runs_needed_t(cv: float, effect: float, alpha: float = 0.05, power: float = 0.8) -> int:
    """Like :func:`runs_needed`, but with t quantiles at 2 n - 2 degrees of freedom, found by increasing n."""
    n = max(2, math.ceil(_normal_runs(cv, effect, alpha, power)))
    square = 2.0 * (cv / effect) ** 2
    while n < (t_quantile(1.0 - alpha / 2.0, 2 * n - 2) + t_quantile(power, 2 * n - 2)) ** 2 * square:
        n += 1
    return n


def _normal_runs(cv: float, effect: float, alpha: float, power: float) -> float:
    if not (math.isfinite(cv) and cv >= 0.0):
        raise ValueError(f"the coefficient of variation must be finite and not below zero, not {cv}")
    if not effect > 0.0:
        raise ValueError(f"the effect must be above zero, not {effect}")
    z = normal_quantile(1.0 - check_share("alpha", alpha) / 2.0) + normal_quantile(check_share("power", power))
    return 2.0 * (z * cv / effect) ** 2


def settling_error(log_ratio: float, log_margin: float, level: float = 0.95, power: float = 0.8) -> float:
    """The standard error of a log ratio that settles a comparison with probability ``power``; 0 if there is none.

    Settled means that the interval excludes 0 or lies inside +- ``log_margin``, whichever is easier, if the true log
    ratio is the one given. For the second, two one-sided tests have the power Phi((m - d) / e - z) +
    Phi((m + d) / e - z) - 1 (Schuirmann 1987).
    """
    z = normal_quantile(0.5 + 0.5 * check_share("the level", level))
    distance = abs(log_ratio)
    different = distance / (z + normal_quantile(check_share("power", power)))
    room = log_margin - distance
    if room <= 0.0:
        return different
    # Bisect in shares of the largest possible error, so that the smallest margins do not underflow.
    low, high, far = 0.0, 1.0, (log_margin + distance) / room
    for _ in range(50):
        share = 0.5 * (low + high)
        reached = normal_cdf(z / share - z) + normal_cdf(far * z / share - z) - 1.0
        low, high = (share, high) if reached >= power else (low, share)
    return max(different, low * room / z)


def more_runs(
    deviation_a: float, n_a: int, deviation_b: float, n_b: int, error: float, level: float = 0.95
) -> int | None:
    """How many more runs an arm bring the standard error of a difference of means down to ``error``; at least 1.

    ``None`` if no number of runs does. z^2 / 4 runs are added because of the t instead of the normal distribution
    (Guenther 1981).
    """
    if not error > 0.0:
        return None
    target, correction = error * error, normal_quantile(0.5 + 0.5 * level) ** 2 / 4.0

    def enough(more: int) -> bool:
        return deviation_a**2 / (n_a + more) + deviation_b**2 / (n_b + more) <= target

    high = 1
    while not enough(high):
        high *= 2
        if high > _MOST_RUNS:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return max(1, high + round(correction))


@lru_cache(maxsize=256)
def normal_minimum(count: int) -> float:
    """The expected least of ``count`` standard normal values (0, -0.564, -0.846, ...; David & Nagaraja, 4.5)."""
    if count < 1:
        raise ValueError(f"{count} values, but 1 or more are needed")
    # The trapezoid rule is exact to rounding for so smooth an integrand that vanishes at both ends.
    at = np.linspace(-12.0, 12.0, 2401)
    above = np.array([normal_cdf(-each) for each in at.tolist()])
    density = np.exp(-0.5 * at * at) / math.sqrt(2.0 * math.pi)
    return float((at * count * density * above ** (count - 1)).sum() * (at[1] - at[0]))


def best_of(values: Sequence[float], count: int) -> float:
    """The expected least of ``count`` of the values, drawn without replacement: whatever their distribution, unbiased.

    The i-th of n ascending values is the least of C(n - i, count - 1) of all C(n, count) choices. ``ValueError`` unless
    1 <= ``count`` <= n.
    """
    ordered = np.sort(finite(values))
    n = len(ordered)
    if not 1 <= count <= n:
        raise ValueError(f"the best of {count} among {n} values")
    weight, total = count / n, 0.0
    for at, value in enumerate(ordered[: n - count + 1].tolist()):
        total += weight * value
        weight *= (n - at - count) / (n - at - 1) if at < n - 1 else 0.0
    return total


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p values, in the order given (Holm 1979); reject where one is below alpha.

    Bounds the family-wise error under any dependence, and is never weaker than Bonferroni's correction.
    """
    if not all(0.0 <= p <= 1.0 for p in p_values):
        raise ValueError("p values lie between 0 and 1")
    adjusted = [0.0] * len(p_values)
    greatest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        greatest = max(greatest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = greatest
    return adjusted
