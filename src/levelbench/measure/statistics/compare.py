"""Comparing two samples, and one sample with a target.

The one idea: run times multiply their disturbances, so they are compared as a ratio, by Welch's t test on the
logarithms; at three to ten runs an arm its false alarms stay near the nominal 5 % where a percentile bootstrap of the
mean gives 20 to 9 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from levelbench.measure.crossing import sign_of
from levelbench.measure.statistics.distributions import t_quantile, t_survival
from levelbench.measure.statistics.values import Interval, Vector, check_share, exponential, finite, positive

__all__ = ["LogRatio", "MeanTest", "paired_log_ratio", "reaches_on_average", "welch_log_ratio"]

_METHOD = "Welch's t on logarithms"
_PAIRED = "Student's t on logarithms of paired ratios"


@dataclass(frozen=True)
class LogRatio:
    """The ratio b / a of two samples' geometric means, its interval, and the test that it is 1.

    ``dof`` are Welch's degrees of freedom (infinite if both samples are constant), ``p_value`` is two-sided;
    ``deviation_a`` and ``deviation_b`` are the standard deviations of the logarithms.
    """

    ratio: float
    interval: Interval
    dof: float
    p_value: float
    deviation_a: float
    deviation_b: float


def welch_log_ratio(a: Sequence[float], b: Sequence[float], level: float = 0.95) -> LogRatio:
    """Welch's unequal-variances t test (Welch 1947) of b / a on logarithms; two positive values or more in each arm.

    Constant samples have a spread of zero: the interval is then a point.
    """
    check_share("the level", level)
    log_a, log_b = np.log(positive(a, 2)), np.log(positive(b, 2))
    (mean_a, var_a), (mean_b, var_b) = _moments(log_a), _moments(log_b)
    share_a, share_b = var_a / len(log_a), var_b / len(log_b)
    difference, variance = mean_b - mean_a, share_a + share_b
    dof, reach, p_value = math.inf, 0.0, 1.0 if difference == 0.0 else 0.0
    if variance > 0.0:
        # Divided through by the variance first: the squares of tiny variances would underflow.
        part_a, part_b = share_a / variance, share_b / variance
        dof = 1.0 / (part_a**2 / (len(log_a) - 1) + part_b**2 / (len(log_b) - 1))
        reach = t_quantile(0.5 + 0.5 * level, dof) * math.sqrt(variance)
        p_value = 2.0 * t_survival(abs(difference) / math.sqrt(variance), dof)
    interval = Interval(exponential(difference - reach), exponential(difference + reach), level, _METHOD)
    return LogRatio(exponential(difference), interval, dof, p_value, math.sqrt(var_a), math.sqrt(var_b))


def paired_log_ratio(a: Sequence[float], b: Sequence[float], level: float = 0.95) -> LogRatio:
    """Student's paired t test (Student 1908) of b / a on logarithms: two positive values or more in each, in pairs.

    What the two of a pair share (a seed, and the moment at which they ran) cancels. ``deviation_a`` is that of the
    logarithms of the ratios, ``deviation_b`` zero, so planning for pairs is planning for one sample.
    """
    check_share("the level", level)
    log_a, log_b = np.log(positive(a, 2)), np.log(positive(b, 2))
    if len(log_a) != len(log_b):
        raise ValueError(f"{len(log_a)} and {len(log_b)} values cannot be paired")
    n, (mean, variance) = len(log_a), _moments(log_b - log_a)
    reach, p_value = 0.0, 1.0 if mean == 0.0 else 0.0
    if variance > 0.0:
        error = math.sqrt(variance / n)
        reach = t_quantile(0.5 + 0.5 * level, n - 1.0) * error
        p_value = 2.0 * t_survival(abs(mean) / error, n - 1.0)
    interval = Interval(exponential(mean - reach), exponential(mean + reach), level, _PAIRED)
    return LogRatio(exponential(mean), interval, n - 1.0, p_value, math.sqrt(variance), 0.0)


def _moments(vector: Vector) -> tuple[float, float]:
    """Mean and variance (n - 1); a constant vector has exactly its value and zero, free of rounding."""
    if vector.min() == vector.max():
        return float(vector[0]), 0.0
    return float(vector.mean()), float(vector.var(ddof=1))


@dataclass(frozen=True)
class MeanTest:
    """Whether the mean of ``n`` final qualities is at the target. ``p_value`` is ``None`` for a single run."""

    mean: float
    p_value: float | None
    reached: bool
    n: int


def reaches_on_average(
    qualities: Sequence[float], threshold: float, direction: str = "higher", alpha: float = 0.05
) -> MeanTest:
    """One-sided one-sample t test that the mean final quality is at ``threshold`` or beyond.

    The rule of the speed runs, for schedules of fixed length (modded-nanogpt asks for ``alpha`` = 0.01; airbench
    averages hundreds of runs): the null hypothesis is that the mean falls short. A single run reaches nothing.
    """
    sign = sign_of(direction)
    check_share("alpha", alpha)
    vector = finite(qualities)
    n, (mean, variance) = len(vector), _moments(vector) if len(vector) > 1 else (float(vector[0]), 0.0)
    if n == 1:
        return MeanTest(mean, None, False, 1)
    beyond = sign * (mean - threshold)
    if variance == 0.0:
        return MeanTest(mean, 0.0 if beyond >= 0 else 1.0, beyond >= 0, n)
    p_value = t_survival(beyond / math.sqrt(variance / n), n - 1)
    return MeanTest(mean, p_value, p_value < alpha, n)
