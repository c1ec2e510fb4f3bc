"""Whether a sample is too skewed or too heavy in its tails to pass for a normal one.

The one idea: it accuses only at the 1 % level and only from eight values on; below that no test can tell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

__all__ = ["FEWEST", "Normality", "kurtosis_z", "normality", "skewness_z"]

FEWEST = 8
"""The approximation of the skewness's distribution begins here (D'Agostino 1970)."""
_FEWEST_FOR_TAILS = 20
"""That of the kurtosis's distribution (Anscombe & Glynn 1983)."""
_Z = 2.5758293
_CHI_SQUARED = 9.2103404
"""Two-sided 1 % points: of the standard normal, and of chi-squared with two degrees of freedom."""


class Normality(NamedTuple):
    """``rejected`` at 1 %; ``skewness`` and ``kurtosis`` (3 for a normal sample) are those of the sample."""

    rejected: bool
    skewness: float
    kurtosis: float
    n: int


def normality(values: Sequence[float]) -> Normality | None:
    """D'Agostino and Pearson's K-squared (1973) from 20 values on, the test of skewness alone from 8; else ``None``.

    Shapiro and Wilk's test has more power; this one needs no tables. ``None`` also for values that do not vary.
    """
    n = len(values)
    if n < FEWEST or max(values) - min(values) <= 1e-12 * max(map(abs, values)):
        return None
    m2, m3, m4 = _moments(values)
    skewness, kurtosis = m3 / m2**1.5, m4 / m2**2
    z = skewness_z(skewness, n)
    if n < _FEWEST_FOR_TAILS:
        return Normality(abs(z) > _Z, skewness, kurtosis, n)
    return Normality(z * z + kurtosis_z(kurtosis, n) ** 2 > _CHI_SQUARED, skewness, kurtosis, n)


def _moments(values: Sequence[float]) -> tuple[float, float, float]:
    """Central moments 2 to 4, of values scaled to a largest deviation of 1."""
    mean = fmean(values)
    largest = max(abs(value - mean) for value in values)
    scaled = [(value - mean) / largest for value in values]
    return fmean(x**2 for x in scaled), fmean(x**3 for x in scaled), fmean(x**4 for x in scaled)


def skewness_z(skewness: float, n: int) -> float:
    """The skewness of ``n`` >= 8 normal values as a standard normal one (D'Agostino 1970, Biometrika 57)."""
    y = skewness * math.sqrt((n + 1) * (n + 3) / (6.0 * (n - 2)))
    beta = 3.0 * (n * n + 27 * n - 70) * (n + 1) * (n + 3) / ((n - 2.0) * (n + 5) * (n + 7) * (n + 9))
    w2 = math.sqrt(2.0 * (beta - 1.0)) - 1.0
    return math.asinh(y / math.sqrt(2.0 / (w2 - 1.0))) / math.sqrt(0.5 * math.log(w2))


def kurtosis_z(kurtosis: float, n: int) -> float:
    """The kurtosis of ``n`` >= 20 normal values as a standard normal one (Anscombe & Glynn 1983, Biometrika 70)."""
    variance = 24.0 * n * (n - 2) * (n - 3) / ((n + 1.0) ** 2 * (n + 3) * (n + 5))
    x = (kurtosis - 3.0 * (n - 1) / (n + 1)) / math.sqrt(variance)
    skew = 6.0 * (n * n - 5 * n + 2) / ((n + 7.0) * (n + 9))
    skew *= math.sqrt(6.0 * (n + 3) * (n + 5) / (n * (n - 2.0) * (n - 3)))
    a = 6.0 + 8.0 / skew * (2.0 / skew + math.sqrt(1.0 + 4.0 / skew**2))
    below = 1.0 + x * math.sqrt(2.0 / (a - 4.0))
    cube = math.copysign((1.0 - 2.0 / a) ** (1 / 3) / abs(below) ** (1 / 3), below) if below else math.inf
    return (1.0 - 2.0 / (9.0 * a) - cube) / math.sqrt(2.0 / (9.0 * a))
