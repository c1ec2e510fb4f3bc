"""Variance components: how much of the spread of runs comes from each factor, such as the seed or the session.

A factor (a seed, a session) is a random effect: its levels are a sample of all that could have been. One factor at a
time is taken as random, with the others as fixed. Then the ratio of its variance to that of the rest has an exact
interval for any design, balanced or not (Wald 1947; Harville & Fenech, Biometrics 41, 1985), and Henderson's third
method gives unbiased variances, before negative ones are set to 0. A covariate, such as the place in the order, is a
slope with a t interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from levelbench.measure.statistics.distributions import f_survival, t_quantile
from levelbench.measure.statistics.values import Estimate, Interval, Vector, check_share, finite

__all__ = ["VarianceComponent", "VarianceParts", "variance_parts"]

_Matrix = np.ndarray[tuple[int, int], np.dtype[np.float64]]
_MOST_RATIO = 1e12


@dataclass(frozen=True)
class VarianceComponent:
    """The ``variance`` that a factor of ``levels`` levels adds (``None`` if unknown, with the ``reason``).

    ``ratio`` is the exact interval of this variance over that of the rest, ``p_value`` the probability of such a spread
    if the factor adds none.
    """

    factor: str
    levels: int
    variance: float | None
    ratio: Interval | None
    p_value: float | None
    reason: str = ""


@dataclass(frozen=True)
class VarianceParts:
    """The parts of the spread: the variance of the rest with its degrees of freedom, one part a factor, the slopes."""

    rest: float | None
    dof: int
    factors: tuple[VarianceComponent, ...]
    slopes: Mapping[str, Estimate]


def variance_parts(
    values: Sequence[float],
    factors: Mapping[str, Sequence[object]],
    covariates: Mapping[str, Sequence[float]] | None = None,
    level: float = 0.95,
) -> VarianceParts:
    """The variance components of ``values`` (n of them), with the level of each factor and the covariates by value.

    A factor with one level, or with a level of its own for each value, adds nothing that can be told from the rest, and
    is left out with a reason; so is one that another factor determines. Slopes are per unit of the covariate, given the
    factors.
    """
    check_share("the level", level)
    y, n = finite(values), len(values)
    known: dict[str, _Matrix] = {}
    reasons: dict[str, str] = {}
    for name, levels in factors.items():
        count = len(set(levels))
        if count < 2 or count == n:
            reasons[name] = "it has one level" if count < 2 else "no level has two values"
        else:
            known[name] = _indicators(levels)
    lines = {name: _column(each) for name, each in (covariates or {}).items() if len(set(each)) > 1}
    whole = _span([np.ones((n, 1)), *known.values(), *lines.values()])
    dof = n - whole.shape[1]
    left = y - whole @ (whole.T @ y)
    # Sums of equal numbers differ in the last digit: that is not a spread.
    exact = float(left @ left) <= 1e-24 * (1.0 + float(y @ y))
    rest = None if dof < 1 else 0.0 if exact else float(left @ left) / dof
    found = []
    for name, levels in factors.items():
        count, reason = len(set(levels)), reasons.get(name, "")
        if reason or not rest:
            spread = "values are too few to tell it from the rest" if rest is None else "the rest has no spread"
            found.append(VarianceComponent(name, count, None, None, None, reason or spread))
            continue
        others = [np.ones((n, 1)), *(each for other, each in known.items() if other != name), *lines.values()]
        found.append(_component(name, count, y, known[name], _span(others), rest, dof, level))
    slopes = {}
    for name, line in lines.items():
        basis = _span([np.ones((n, 1)), *known.values(), *(each for other, each in lines.items() if other != name)])
        free = line[:, 0] - basis @ (basis.T @ line[:, 0])
        square = float(free @ free)
        if rest and square > 1e-12 * float(line[:, 0] @ line[:, 0]):
            slope = float(free @ y) / square
            reach = t_quantile(0.5 + 0.5 * level, dof) * math.sqrt(rest / square)
            slopes[name] = Estimate(slope, Interval(slope - reach, slope + reach, level, "Student's t"), n, "slope")
    return VarianceParts(rest, max(0, dof), tuple(found), slopes)


def _component(
    name: str, count: int, y: Vector, indicators: _Matrix, others: _Matrix, rest: float, dof: int, level: float
) -> VarianceComponent:
    """One factor as random, given the space of the others and the mean square of the rest."""
    free = indicators - others @ (others.T @ indicators)
    directions, singular, _ = np.linalg.svd(free, full_matrices=False)
    kept = singular > 1e-9 * max(1.0, float(singular[0]))
    if not kept.any():
        return VarianceComponent(name, count, None, None, None, "the other factors determine it")
    # Along each direction the values have the variance rest * (1 + ratio * size), independently.
    sizes, squares = singular[kept] ** 2, (directions[:, kept].T @ y) ** 2
    rank = len(sizes)
    variance = max(0.0, (float(squares.sum()) - rank * rest) / float(sizes.sum()))

    def p_value(ratio: float) -> float:
        return f_survival(float((squares / (1.0 + ratio * sizes)).sum()) / rank / rest, rank, dof)

    tail = 0.5 - 0.5 * level
    low, high = _where(p_value, tail), _where(p_value, 1.0 - tail)
    return VarianceComponent(name, count, variance, Interval(low, high, level, "Wald's, exact"), p_value(0.0))


def _where(p_value: Callable[[float], float], wanted: float) -> float:
    """The ratio at which an increasing p value is ``wanted``; 0 if it starts above, infinite if it never gets there."""
    if p_value(0.0) >= wanted:
        return 0.0
    low, high = 0.0, 1.0
    while p_value(high) < wanted:
        low, high = high, 4.0 * high
        if high > _MOST_RATIO:
            return math.inf
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if p_value(middle) < wanted else (low, middle)
    return 0.5 * (low + high)


def _indicators(levels: Sequence[object]) -> _Matrix:
    """A column for each level, 1 where a value has it."""
    number = {level: at for at, level in enumerate(dict.fromkeys(levels))}
    table = np.zeros((len(levels), len(number)))
    table[np.arange(len(levels)), [number[level] for level in levels]] = 1.0
    return table


def _column(values: Sequence[float]) -> _Matrix:
    """The centred covariate as a column."""
    vector = finite(values)
    column: _Matrix = (vector - vector.mean()).reshape(-1, 1)
    return column


def _span(blocks: Sequence[_Matrix]) -> _Matrix:
    """An orthonormal basis of the columns of all blocks."""
    directions, singular, _ = np.linalg.svd(np.hstack(blocks), full_matrices=False)
    basis: _Matrix = directions[:, singular > 1e-9 * float(singular[0])]
    return basis
