"""Pearson's chi-squared test: whether counts agree with what was expected of them.

The tail of the distribution is the regularised upper incomplete gamma function Q(k / 2, x / 2), a series
below its mean and a continued fraction above it; small tails are computed as such and not as 1 minus something.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

_TINY = 1e-300
_MOST_TERMS = 1_000_000


@dataclass(frozen=True)
class ChiSquared:
    """The statistic, its degrees of freedom, and the probability of one so large or larger by chance."""

    statistic: float
    degrees: int
    p_value: float


def chi_squared_survival(x: float, degrees: float) -> float:
    """P(X > x) of a chi-squared variable with ``degrees`` > 0 degrees of freedom."""
    return gamma_survival(0.5 * degrees, 0.5 * x)


def gamma_survival(a: float, x: float) -> float:
    """The regularised upper incomplete gamma function Q(a, x), a > 0 (DLMF 8.2.4)."""
    if not a > 0:
        raise ValueError(f"the shape of a gamma distribution must be above zero, not {a}")
    if x <= 0.0:
        return 1.0
    if math.isinf(x):
        return 0.0
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    return 1.0 - front * _series(a, x) if x < a + 1.0 else front * _fraction(a, x)


def _series(a: float, x: float) -> float:
    """P(a, x) without its front (DLMF 8.11.4)."""
    term = total = 1.0 / a
    for at in range(1, _MOST_TERMS):
        term *= x / (a + at)
        total += term
        if term < total * 1e-17:
            return total
    raise ArithmeticError(f"the incomplete gamma function did not converge for a={a}, x={x}")


def _fraction(a: float, x: float) -> float:
    """Q(a, x) without its front: the continued fraction (DLMF 8.9.2), by Lentz's method."""
    b = x + 1.0 - a
    c, d = 1.0 / _TINY, 1.0 / b
    value = d
    for at in range(1, _MOST_TERMS):
        numerator = at * (a - at)
        b += 2.0
        d = numerator * d + b
        d = 1.0 / (d if abs(d) > _TINY else _TINY)
        c = b + numerator / c
        c = c if abs(c) > _TINY else _TINY
        change = c * d
        value *= change
        if abs(change - 1.0) < 1e-15:
            return value
    raise ArithmeticError(f"the incomplete gamma function did not converge for a={a}, x={x}")


def chi_squared_test(observed: ArrayLike, expected: ArrayLike, *, fitted: int = 0) -> ChiSquared:
    """Pearson's test (1900) that counts come from ``expected`` ones of the same sum, two cells or more.

    ``fitted`` are the parameters that were taken from the counts. Where nothing is expected nothing may be: a count
    there is a p value of 0. The approximation wants 5 expected a cell or more. ``ValueError`` for other inputs.
    """
    counts, wanted = np.asarray(observed, np.float64).ravel(), np.asarray(expected, np.float64).ravel()
    if counts.shape != wanted.shape or len(counts) < 2 or (counts < 0).any() or (wanted < 0).any():
        raise ValueError("observed and expected counts are two or more each, as many of one as of the other, from 0 on")
    if not math.isclose(counts.sum(), wanted.sum(), rel_tol=1e-6):
        raise ValueError(f"{counts.sum():g} were observed and {wanted.sum():g} expected")
    possible = wanted > 0
    degrees = int(possible.sum()) - 1 - fitted
    if counts[~possible].any():
        return ChiSquared(math.inf, max(degrees, 0), 0.0)
    if degrees < 1:
        return ChiSquared(0.0, 0, 1.0)
    statistic = float(((counts - wanted)[possible] ** 2 / wanted[possible]).sum())
    return ChiSquared(statistic, degrees, chi_squared_survival(statistic, degrees))
