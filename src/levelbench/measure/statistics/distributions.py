"""Normal, Student t, F, binomial and chi-squared distributions in plain Python, and Pearson's test of counts.

Student's t, F and the binomial follow from the regularised incomplete beta function, whose continued fraction converges
in tens of terms; the tail of chi-squared is the regularised upper incomplete gamma function Q(k / 2, x / 2), a series
below its mean and a continued fraction above it. Small tails are computed directly and not as 1 minus something. So the
core does not need scipy; the tests check every function against scipy over a wide grid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from levelbench.measure.statistics.values import check_share

_NORMAL = NormalDist()
_TINY = 1e-300
_MOST_TERMS = 100_000


def normal_cdf(z: float) -> float:
    """P(Z <= z) of the standard normal, accurate in the lower tail."""
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


def normal_quantile(p: float) -> float:
    """The z with P(Z <= z) = p, 0 < p < 1 (Wichura 1988, AS 241)."""
    return _NORMAL.inv_cdf(p)


def _beta(a: float, b: float, x: float, y: float) -> float:
    """The regularised incomplete beta function I_x(a, b), for a, b > 0 (about 1e-9 relative for shapes up to 1e6).

    The caller computes ``y = 1 - x`` without cancellation.
    """
    if x <= 0.0:
        return 0.0
    if y <= 0.0:
        return 1.0
    log_x = math.log(x) if x < 0.5 else math.log1p(-y)
    log_y = math.log(y) if y < 0.5 else math.log1p(-x)
    front = math.exp(a * log_x + b * log_y - _log_beta(a, b))
    # The fraction converges fast only below the mean of the distribution; above it, use the mirror image.
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _fraction(a, b, x) / a
    return 1.0 - front * _fraction(b, a, y) / b


@lru_cache(maxsize=4096)
def _log_beta(a: float, b: float) -> float:
    """The logarithm of B(a, b); Stirling's series for large shapes, where the difference of ``lgamma`` cancels."""
    p, q = min(a, b), max(a, b)
    if q < 10.0:
        return math.lgamma(p) + math.lgamma(q) - math.lgamma(p + q)
    rest, tail = math.log1p(-p / (p + q)), _stirling(q) - _stirling(p + q)
    if p < 10.0:
        return math.lgamma(p) + tail + p - p * math.log(p + q) + (q - 0.5) * rest
    half_log_two_pi = 0.5 * math.log(2.0 * math.pi)
    return half_log_two_pi - 0.5 * math.log(q) + _stirling(p) + tail + (p - 0.5) * math.log(p / (p + q)) + q * rest


def _stirling(x: float) -> float:
    """The remainder of Stirling's formula for log Gamma(x), x >= 10 (DLMF 5.11.1)."""
    s = 1.0 / (x * x)
    return (1 / 12 - s * (1 / 360 - s * (1 / 1260 - s * (1 / 1680 - s / 1188)))) / x


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function (DLMF 8.17.22), by Lentz's method."""
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > _TINY else _TINY)
    value = d
    for m in range(1, _MOST_TERMS):
        m2 = a + 2 * m
        even = m * (b - m) * x / ((m2 - 1.0) * m2)
        odd = -(a + m) * (a + b + m) * x / (m2 * (m2 + 1.0))
        for step in (even, odd):
            d = 1.0 + step * d
            c = 1.0 + step / c
            d = 1.0 / (d if abs(d) > _TINY else _TINY)
            c = c if abs(c) > _TINY else _TINY
            change = c * d
            value *= change
        if abs(change - 1.0) < 1e-15:
            return value
    raise ArithmeticError(f"the incomplete beta function did not converge for a={a}, b={b}, x={x}")


def t_survival(t: float, dof: float) -> float:
    """P(T > t) of Student's t with ``dof`` > 0 degrees of freedom (not necessarily whole)."""
    if not dof > 0:
        raise ValueError(f"the degrees of freedom must be above zero, not {dof}")
    if math.isinf(t):
        return 0.0 if t > 0 else 1.0
    if math.isinf(dof):
        return normal_cdf(-t)
    square = t * t
    tail = 0.5 * _beta(0.5 * dof, 0.5, dof / (dof + square), square / (dof + square))
    return tail if t >= 0 else 1.0 - tail


@lru_cache(maxsize=4096)
def t_quantile(p: float, dof: float) -> float:
    """The t with P(T <= t) = p, 0 < p < 1."""
    check_share("p", p)
    if p < 0.5:
        return -_t_upper(p, dof)
    return 0.0 if p == 0.5 else _t_upper(1.0 - p, dof)


def f_survival(f: float, degrees: float, below: float) -> float:
    """P(F > f) of Fisher's F with ``degrees`` of freedom above and ``below`` the line, both above zero."""
    if not (degrees > 0 and below > 0):
        raise ValueError(f"the degrees of freedom must be above zero, not {degrees} and {below}")
    if f <= 0.0:
        return 1.0
    if math.isinf(f):
        return 0.0
    whole = below + degrees * f
    return _beta(0.5 * below, 0.5 * degrees, below / whole, degrees * f / whole)


def _t_upper(tail: float, dof: float) -> float:
    """The t > 0 with P(T > t) = ``tail`` < 1/2.

    Newton's method on the logarithm of the tail, starting at the left of the root: the tail is log-convex beyond the
    normal quantile, so the steps rise towards the root; a bracket guards against rounding.
    """
    low = -normal_quantile(tail)
    if math.isinf(dof):
        return low
    high = max(2.0 * low, 1e-12)
    while t_survival(high, dof) > tail:
        low, high = high, 2.0 * high
    log_scale = -_log_beta(0.5 * dof, 0.5) - 0.5 * math.log(dof)
    t = low
    for _ in range(200):
        survival = t_survival(t, dof)
        low, high = (t, high) if survival > tail else (low, t)
        density = math.exp(log_scale - 0.5 * (dof + 1.0) * math.log1p(t * t / dof))
        after = t + survival * math.log(survival / tail) / density
        after = after if low <= after <= high else 0.5 * (low + high)
        if abs(after - t) <= 1e-14 * abs(after):
            return after
        t = after
    return t


def binomial_cdf(k: int, n: int, p: float) -> float:
    """P(X <= k) of a binomial variable with ``n`` trials of probability ``p``."""
    if k < 0:
        return 0.0
    if k >= n:
        return 1.0
    return _beta(n - k, k + 1.0, 1.0 - p, p)


_MOST_GAMMA_TERMS = 1_000_000


@dataclass(frozen=True)
class ChiSquared:
    """The statistic, its degrees of freedom, and the probability of one at least as large by chance."""

    statistic: float
    degrees: int
    p_value: float


def chi_squared_survival(x: float, degrees: float) -> float:
    """P(X > x) of a chi-squared variable with ``degrees`` > 0 degrees of freedom."""
    return gamma_survival(0.5 * degrees, 0.5 * x)


@lru_cache(maxsize=1024)
def chi_squared_quantile(p: float, degrees: float) -> float:
    """The x with P(X <= x) = p, 0 < p < 1, by bisection of the logarithm."""
    tail = 1.0 - check_share("p", p)
    low, high = math.log(degrees) - 1.0, math.log(degrees) + 1.0
    while chi_squared_survival(math.exp(low), degrees) < tail:
        low -= high - low
    while chi_squared_survival(math.exp(high), degrees) > tail:
        high += high - low
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if chi_squared_survival(math.exp(middle), degrees) > tail else (low, middle)
    return math.exp(0.5 * (low + high))


def gamma_survival(a: float, x: float) -> float:
    """The regularised upper incomplete gamma function Q(a, x), a > 0 (DLMF 8.2.4)."""
    if not a > 0:
        raise ValueError(f"the shape of a gamma distribution must be above zero, not {a}")
    if x <= 0.0:
        return 1.0
    if math.isinf(x):
        return 0.0
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    return 1.0 - front * _gamma_series(a, x) if x < a + 1.0 else front * _gamma_fraction(a, x)


def _gamma_series(a: float, x: float) -> float:
    """P(a, x) without its front (DLMF 8.11.4)."""
    term = total = 1.0 / a
    for at in range(1, _MOST_GAMMA_TERMS):
        term *= x / (a + at)
        total += term
        if term < total * 1e-17:
            return total
    raise ArithmeticError(f"the incomplete gamma function did not converge for a={a}, x={x}")


def _gamma_fraction(a: float, x: float) -> float:
    """Q(a, x) without its front: the continued fraction (DLMF 8.9.2), by Lentz's method."""
    b = x + 1.0 - a
    c, d = 1.0 / _TINY, 1.0 / b
    value = d
    for at in range(1, _MOST_GAMMA_TERMS):
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
    """Pearson's test (1900) that the counts of two or more cells come from ``expected`` ones of the same sum.

    ``fitted`` is the number of parameters estimated from the counts. A count in a cell where none is expected gives a p
    value of 0. The approximation needs 5 expected or more a cell. ``ValueError`` for other inputs.
    """
    counts, wanted = np.asarray(observed, np.float64).ravel(), np.asarray(expected, np.float64).ravel()
    if counts.shape != wanted.shape or len(counts) < 2 or (counts < 0).any() or (wanted < 0).any():
        raise ValueError("give as many observed as expected counts, two or more, none below 0")
    if not math.isclose(counts.sum(), wanted.sum(), rel_tol=1e-6):
        raise ValueError(f"the sums differ: {counts.sum():g} observed, {wanted.sum():g} expected")
    possible = wanted > 0
    degrees = int(possible.sum()) - 1 - fitted
    if counts[~possible].any():
        return ChiSquared(math.inf, max(degrees, 0), 0.0)
    if degrees < 1:
        return ChiSquared(0.0, 0, 1.0)
    statistic = float(((counts - wanted)[possible] ** 2 / wanted[possible]).sum())
    return ChiSquared(statistic, degrees, chi_squared_survival(statistic, degrees))
