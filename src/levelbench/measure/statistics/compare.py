"""Comparing two samples, and one sample with a target.

Disturbances multiply run times, so these are compared as a ratio of geometric means, by Student's or Welch's t on the
logarithms. From six values on, values that lie far from the others are trimmed, the same number at both ends (Tukey &
McLaughlin 1963, Sankhya A 25:331; Yuen 1974, Biometrika 61:165): one run in twenty that takes four times as long would
otherwise cost three quarters of the power. How many are trimmed follows from the data: if none lies far out, none are,
and the t test is unchanged. benchmarks/belief.py measures the error rates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from levelbench.measure.crossing import sign_of
from levelbench.measure.statistics.distributions import binomial_cdf, t_quantile, t_survival
from levelbench.measure.statistics.values import Estimate, Interval, Vector, check_share, exponential, finite, positive

__all__ = [
    "LogMean",
    "LogRatio",
    "MeanTest",
    "log_mean",
    "mean_difference",
    "paired_log_ratio",
    "reaches_on_average",
    "resolution_of",
    "welch_log_ratio",
]

_MOST_TRIMMED = 0.25
_TRIM_FROM = 6

_FAR = 8.0
"""Median absolute deviations beyond which a time is an outlier; the long tails of times are not outliers."""

_ACCIDENT = math.log(2.5)
"""A run that takes this much longer than the others had an accident; a slower mode of a recipe is closer."""

_GAP = 1.5
"""Accidents lie this many times as far out as any other pair."""

RARE = 0.0625
"""At most this share of the runs may be outliers other than accidents, unless both sides have some."""

_ON_BOTH_SIDES = 2

_FAR_PAIRED = 3.0
"""The same for ratios of pairs, which are symmetric, so that trimming both ends alike does not move their centre."""


@dataclass(frozen=True)
class LogRatio:
    """The ratio b / a of two samples' geometric means, its interval, and the test that it is 1.

    ``dof`` are Welch's degrees of freedom (infinite if both samples are constant), ``p_value`` is two-sided;
    ``deviation_a`` and ``deviation_b`` are the standard deviations of the logarithms (winsorised if ``trimmed`` values
    were cut off at each end). ``untrimmed`` is the ratio of the geometric means of all values; ``moderate`` says that
    some of those cut off were not accidents (which take more than 2.5 times as long), ``fast`` that some took less by
    that factor. ``accidents`` is the number of pairs left out because of one; ``without`` is the ratio without them if
    they were not left out although chance may have put them all at one end. ``untrimmed_interval`` is that of all
    values if some were cut off or left out. ``slow_a`` and ``slow_b`` count the outlying slow values of each sample.
    """

    ratio: float
    interval: Interval
    dof: float
    p_value: float
    deviation_a: float
    deviation_b: float
    trimmed: int = 0
    untrimmed: float = 1.0
    moderate: bool = False
    fast: bool = False
    accidents: int = 0
    without: float | None = None
    untrimmed_interval: Interval | None = None
    slow_a: int = 0
    slow_b: int = 0


@dataclass(frozen=True)
class LogMean:
    """The mean of logarithms after ``cut`` values at each end were trimmed, with its squared standard error.

    ``n`` values were kept; ``deviation`` is the standard deviation that gives this error for the original number of
    values, so that it can be used to plan how many more are needed.
    """

    mean: float
    squared_error: float
    n: int
    deviation: float
    cut: int


def resolution_of(*samples: Sequence[float]) -> float:
    """The step in which these times seem to have been read, in their unit; 0 if none is apparent.

    The coarsest decimal step (1, 2 or 5 times a power of ten, at most a million steps in the longest time) of which all
    are multiples; otherwise, if some times repeat, which continuous ones would not, the smallest gap between two.
    """
    values = np.concatenate([np.asarray(sample, dtype=np.float64) for sample in samples])
    longest, shortest, one = float(values.max()), float(values.min()), float(values[0])
    top = math.floor(math.log10(shortest)) if shortest > 0 else 0
    for exponent in range(top, math.floor(math.log10(longest)) - 6, -1):
        for factor in (5, 2, 1):
            step = factor * 10.0**exponent
            # One value that is no multiple settles most steps, in a tenth of the time that an array takes.
            count = one / step
            if abs(count - round(count)) < 1e-7:
                counts = values / step
                if np.abs(counts - np.round(counts)).max() < 1e-7:
                    return step
    distinct = np.unique(values)
    repeats = any(len(np.unique(sample)) < len(sample) for sample in samples)
    return float(np.diff(distinct).min()) if repeats and len(distinct) > 1 else 0.0


def rounding_variance(values: Vector, resolution: float) -> float:
    """The variance of the logarithms that comes from reading times in steps of ``resolution``."""
    return float(np.mean((resolution / values) ** 2)) / 12.0


@dataclass(frozen=True)
class Outliers:
    """How many values of a sample lie far below and far above the others, and how many of them are not accidents.

    An accident takes much longer than the others; ``fast`` values take much less, which never happens by accident.
    ``reach`` is how far from the median the others lie at most.
    """

    low: int
    high: int
    moderate: int
    fast: int = 0
    reach: float = math.inf


def outlying(logs: Vector, floor: float, deviations: float) -> Outliers:
    """The values that lie far from the others; none below six values or if half of them are equal.

    Far means ``deviations`` + 30 / n median absolute deviations (made consistent for a normal) from the median.
    """
    if len(logs) < _TRIM_FROM:
        return Outliers(0, 0, 0)
    away = logs - float(np.median(logs))
    spread = 1.4826 * float(np.median(np.abs(away)))
    if spread == 0.0:
        return Outliers(0, 0, 0)
    reach = (deviations + 30.0 / len(logs)) * max(spread, math.sqrt(floor))
    far = np.abs(away) > reach
    return Outliers(
        int((far & (away < 0)).sum()),
        int((far & (away > 0)).sum()),
        int((far & (np.abs(away) < _ACCIDENT)).sum()),
        int((far & (away <= -_ACCIDENT)).sum()),
        reach,
    )


def _noise(low: int, high: int, moderate: int, n: int) -> bool:
    """Whether the outliers on both sides may have a common cause that hits both arms, so that they may be trimmed.

    Chance must put that many more on one side in at least a fifth of cases. What makes a run only a little longer must
    be rare or on both sides: one more epoch, or a second mode, that only one arm has belongs to that arm, and trimming
    it would compare something else.
    """
    both = min(low, high) >= _ON_BOTH_SIDES
    return (both or moderate <= RARE * n) and 2.0 * binomial_cdf(min(low, high), low + high, 0.5) > 0.2


def log_mean(logs: Vector, cut: int = 0, floor: float = 0.0) -> LogMean:
    """The mean of ``logs`` (two or more) without ``cut`` values at each end, and its winsorised standard error.

    ``floor`` is the least variance that a value can have, from the resolution of the clock. Values that vary by less
    than half a step are all rounded alike, by an error that more values do not reduce.
    """
    n, kept = len(logs), len(logs) - 2 * cut
    ordered = np.sort(logs)
    inner = ordered[cut : n - cut]
    # A constant vector has exactly its value as mean and no variance, without rounding.
    if inner[0] == inner[-1]:
        mean, squares = float(inner[0]), 0.0
    else:
        # The values that are cut off count as the last ones kept (winsorised).
        bounded = np.clip(ordered, inner[0], inner[-1])
        mean, squares = float(inner.mean()), float(((bounded - bounded.mean()) ** 2).sum())
    error = squares / (kept * (kept - 1))
    # The variance of what was rounded in steps s is below s^2 / 4; floor is s^2 / 12.
    alike = squares / (kept - 1) < 3.0 * floor
    return LogMean(mean, max(error, floor) if alike else error, kept, math.sqrt(max(error * n, floor)), cut)


def _method(name: str, cut: int) -> str:
    return f"{name}, trimmed by {cut} at each end" if cut else name


def welch_log_ratio(
    a: Sequence[float], b: Sequence[float], level: float = 0.95, *, resolution: float | None = None
) -> LogRatio:
    """Welch's unequal-variances t test (Welch 1947) of b / a on logarithms; two positive values or more in each arm.

    From six values an arm on, outliers are trimmed (Yuen 1974), the same share of both arms, unless more than a quarter
    of one arm lies far out, which is a second mode, or only one arm has outliers. ``resolution`` is the clock's, in the
    unit of the values (default: :func:`resolution_of` them). The variance is taken to be at least what the resolution
    causes and, if the arms differ in size, at least the pooled one.
    """
    check_share("the level", level)
    values = positive(a, 2), positive(b, 2)
    step = resolution_of(a, b) if resolution is None else resolution
    logs, floors = [np.log(each) for each in values], [rounding_variance(each, step) for each in values]
    counts = [outlying(each, floor, _FAR) for each, floor in zip(logs, floors, strict=True)]
    share = max(max(each.low, each.high) / len(arm) for each, arm in zip(counts, logs, strict=True))
    # As many as there would be in arms of equal size.
    middle = sum(map(len, logs)) / 2
    sides = [round((each.low + each.high) * middle / len(arm)) for each, arm in zip(counts, logs, strict=True)]
    alike = all(_noise(sides[0], sides[1], each.moderate, len(arm)) for each, arm in zip(counts, logs, strict=True))
    if share > _MOST_TRIMMED or not alike:
        share = 0.0
    first, second = (
        log_mean(each, min(math.ceil(share * len(each)), (len(each) - 2) // 2), floor)
        for each, floor in zip(logs, floors, strict=True)
    )
    difference, variance = second.mean - first.mean, first.squared_error + second.squared_error
    dof = math.inf
    if variance > 0.0:
        # Divided through by the variance first: the squares of tiny variances would underflow.
        parts = first.squared_error / variance, second.squared_error / variance
        dof = 1.0 / (parts[0] ** 2 / (first.n - 1) + parts[1] ** 2 / (second.n - 1))
    # A small arm may lie within one mode by luck and says less about the noise: it must not narrow the interval.
    kept = first.n + second.n
    pooled = (first.deviation**2 * first.n + second.deviation**2 * second.n) / kept * (1.0 / first.n + 1.0 / second.n)
    if first.n != second.n and pooled > variance:
        variance = pooled
    method = _method("Welch's t on logarithms", max(first.cut, second.cut))
    cut = max(first.cut, second.cut)
    found = _tested(difference, variance, dof, level, method, (first, second), cut)
    moderate, fast = (cut > 0 and any(found) for found in ([x.moderate for x in counts], [x.fast for x in counts]))
    whole = None
    if cut:
        one, other = (log_mean(each, 0, floor) for each, floor in zip(logs, floors, strict=True))
        parts = one.squared_error, other.squared_error
        dof = sum(parts) ** 2 / (parts[0] ** 2 / (one.n - 1) + parts[1] ** 2 / (other.n - 1))
        whole = _tested(other.mean - one.mean, sum(parts), dof, level, method, (one, other), 0).interval
    untrimmed = exponential(float(logs[1].mean() - logs[0].mean()))
    return replace(
        found,
        untrimmed=untrimmed,
        moderate=moderate,
        fast=fast,
        untrimmed_interval=whole,
        slow_a=counts[0].high,
        slow_b=counts[1].high,
    )


def paired_log_ratio(
    a: Sequence[float], b: Sequence[float], level: float = 0.95, *, resolution: float | None = None
) -> LogRatio:
    """Student's paired t test (Student 1908) of b / a on logarithms: two positive values or more in each, in pairs.

    What the two runs of a pair share (a seed, and the moment at which they ran) cancels, and the rest is symmetric if
    both arms have the same kind of noise. From six pairs on, pairs with an accident are left out and other outliers
    trimmed, at most a quarter at each end, unless so many lie at one end that one arm alone seems to have them.
    ``deviation_a`` is that of the logarithms of the ratios and ``deviation_b`` is zero, so planning for pairs is
    planning for one sample. ``resolution`` as for :func:`welch_log_ratio`.
    """
    check_share("the level", level)
    first, second = positive(a, 2), positive(b, 2)
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} values cannot be paired")
    step = resolution_of(a, b) if resolution is None else resolution
    logs, floor = np.log(second) - np.log(first), rounding_variance(first, step) + rounding_variance(second, step)
    far = outlying(logs, floor, _FAR_PAIRED)
    alike, accidents = _noise(far.low, far.high, far.moderate, len(logs)), far.low + far.high
    name, without = "Student's t on logarithms of paired ratios", None
    away = np.abs(logs - np.median(logs))
    others = logs[away <= far.reach]
    # A long tail has no gap, and its pairs are trimmed: leaving them out would make the others look less noisy.
    apart = bool(accidents) and away[away > far.reach].min() > _GAP * away[away <= far.reach].max()
    if accidents and not alike and not far.moderate:
        # This many at one end are evidence of a slower arm only once the signs alone are.
        chance = 2.0 * binomial_cdf(min(far.low, far.high), accidents, 0.5)
        without = exponential(float(others.mean())) if chance > 1.0 - level else None
    if alike and apart and accidents <= _MOST_TRIMMED * len(logs) and not far.moderate:
        # Which pairs had an accident is known and independent of the noise, so the others are a plain sample.
        found = log_mean(others, 0, floor)
        method, cut = f"{name}, without {accidents} accident{'s' * (accidents > 1)}", 0
    else:
        found = log_mean(logs, min(max(far.low, far.high), int(_MOST_TRIMMED * len(logs))) if alike else 0, floor)
        method, cut, accidents = _method(name, found.cut), found.cut, 0
    nothing = LogMean(0.0, 0.0, found.n, 0.0, 0)
    ratio = _tested(found.mean, found.squared_error, found.n - 1.0, level, method, (found, nothing), cut)
    whole = None
    if cut or accidents:
        every = log_mean(logs, 0, floor)
        whole = _tested(every.mean, every.squared_error, every.n - 1.0, level, name, (every, nothing), 0).interval
    return replace(
        ratio,
        untrimmed=exponential(float(logs.mean())),
        moderate=cut > 0 and far.moderate > 0,
        fast=cut + accidents > 0 and any(outlying(np.log(each), floor, _FAR).fast for each in (first, second)),
        accidents=accidents,
        without=without,
        untrimmed_interval=whole,
        slow_a=far.low,
        slow_b=far.high,
    )


def _tested(
    difference: float, variance: float, dof: float, level: float, method: str, arms: tuple[LogMean, LogMean], cut: int
) -> LogRatio:
    reach, p_value = 0.0, 1.0 if difference == 0.0 else 0.0
    if variance > 0.0:
        error = math.sqrt(variance)
        reach = t_quantile(0.5 + 0.5 * level, dof) * error
        p_value = 2.0 * t_survival(abs(difference) / error, dof)
    interval = Interval(exponential(difference - reach), exponential(difference + reach), level, method)
    return LogRatio(exponential(difference), interval, dof, p_value, arms[0].deviation, arms[1].deviation, cut)


def _moments(vector: Vector) -> tuple[float, float]:
    """Mean and variance (n - 1); a constant vector has exactly its value and zero, without rounding."""
    if vector.min() == vector.max():
        return float(vector[0]), 0.0
    return float(vector.mean()), float(vector.var(ddof=1))


def mean_difference(a: Sequence[float], b: Sequence[float], level: float = 0.95, *, paired: bool = False) -> Estimate:
    """The mean of ``b`` minus that of ``a``, for qualities and others that may be zero; two values or more of each.

    The interval is Student's t of the differences where ``paired`` (``a[i]`` belongs to ``b[i]``), else Welch's t of
    two independent samples (Welch 1947); ``n`` is the size of the smaller sample.
    """
    one, two = finite(a, 2), finite(b, 2)
    if paired:
        apart = finite((two - one).tolist() if len(one) == len(two) else [], 2)
        value, error, dof, method = (
            float(apart.mean()),
            float(apart.var(ddof=1)) / len(apart),
            len(apart) - 1.0,
            "paired t",
        )
    else:
        (mean_a, square_a), (mean_b, square_b) = (
            (float(each.mean()), float(each.var(ddof=1)) / len(each)) for each in (one, two)
        )
        value, error, method = mean_b - mean_a, square_a + square_b, "Welch's t"
        parts = square_a**2 / (len(one) - 1) + square_b**2 / (len(two) - 1)
        dof = error**2 / parts if parts > 0 else math.inf
    reach = t_quantile(0.5 + 0.5 * check_share("the level", level), dof) * math.sqrt(error) if error > 0 else 0.0
    return Estimate(value, Interval(value - reach, value + reach, level, method), min(len(one), len(two)), "difference")


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
