"""Fits of y = base * (1 + sum of rate_j * x_j) to positive values, on logarithms, with censored values.

Three laws of this field have this form, with rates that are not negative:

- samples to a target at batch size B: E_min (1 + B / B_crit) (McCandlish et al. 2018, equation 2.11);
- Amdahl's law, for work in processor seconds on p processors: p t(p) = t(1) (1 + s (p - 1));
- the Universal Scalability Law (Gunther 1993): p t(p) = t(1) (1 + s (p - 1) + k p (p - 1)).

Deviations of the logarithms are normal with one variance. A value that was only seen to exceed a bound is censored
there, and counts by the probability of that (Tobin 1958, maximised in the parameters of Olsen 1978, where the
likelihood is concave). Intervals are those of the profile likelihood, with the F distribution in place of chi-squared,
so that without censored values they are those of the sum of squares (Bates & Watts 1988, 6.1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from levelbench.measure.statistics.distributions import f_survival, t_quantile
from levelbench.measure.statistics.values import Interval, Vector, check_share, positive

__all__ = ["GrowthFit", "fit_growth"]

_METHOD = "profile likelihood, F"
_GRID = 41
_ROUNDS = 6
_LEAST, _MOST = 1e-5, 1e5
"""Of a rate times the largest value of its variable: beyond, it cannot be told from 0 or infinity."""
_EXACT = 1e-5
"""A deviation of logarithms below which values do not vary: what the grids leave."""
_BINS = 0.02
"""Censoring bounds are counted in bins of this width, in deviations, so that many runs cost no more than few."""
_ERFC = np.frompyfunc(math.erfc, 1, 1)


@dataclass(frozen=True)
class GrowthFit:
    """The law fitted to ``n`` values, ``censored`` of them censored.

    ``rates`` has a value per variable. Its item in ``intervals`` is ``None`` if too few values are known or they do not
    vary; an end of 0 or infinity means that the values do not bound it. ``deviation`` is that of the logarithms.
    ``misfit`` is the p value of the law against any other curve through the same points (lack-of-fit F test), ``None``
    with censored values or without replicates.
    """

    base: float
    rates: tuple[float, ...]
    intervals: tuple[Interval | None, ...]
    deviation: float
    n: int
    censored: int
    misfit: float | None

    def at(self, variables: Sequence[float]) -> float:
        """The value of the law at these values of its variables."""
        return self.base * (1.0 + sum(rate * x for rate, x in zip(self.rates, variables, strict=True)))


def fit_growth(
    values: Sequence[float],
    variables: Sequence[Sequence[float]],
    censored: Sequence[bool] | None = None,
    level: float = 0.95,
) -> GrowthFit:
    """Fit the law to ``values``, shape (n,), at ``variables``, shape (n, one or two), none of them negative.

    A value where ``censored`` is true is a lower bound. Raises ``ValueError`` if the known values lie at fewer
    different points than the law has parameters.
    """
    check_share("the level", level)
    data = _Data(values, variables, censored)
    count = data.x.shape[1]
    if len(data.points) < count + 1:
        raise ValueError(f"{count + 1} parameters, but values at {len(data.points)} points")
    best = _maximum(data, {})
    likelihood, rates, log_base, deviation = best
    free = data.known - count - 1
    known = free > 0 and deviation > _EXACT
    intervals: list[Interval | None] = [None] * count
    if known:
        drop = 0.5 * data.known * math.log1p(t_quantile(0.5 + 0.5 * level, free) ** 2 / free)
        intervals = [_interval(data, at, rates[at], likelihood - drop, level) for at in range(count)]
    return GrowthFit(
        base=math.exp(log_base),
        rates=tuple((rates / data.scale).tolist()),
        intervals=tuple(intervals),
        deviation=deviation * math.sqrt(data.known / free) if free > 0 else 0.0,
        n=data.known + data.hidden,
        censored=data.hidden,
        misfit=_misfit(data, rates, log_base) if known and not data.hidden else None,
    )


class _Data:
    """The values by distinct point: counts, means and squares of known logarithms; bins of censored ones."""

    def __init__(
        self, values: Sequence[float], variables: Sequence[Sequence[float]], censored: Sequence[bool] | None
    ) -> None:
        logs = np.log(positive(values))
        x = np.asarray(variables, dtype=np.float64).reshape(len(logs), -1)
        hidden = np.zeros(len(logs), bool) if censored is None else np.asarray(censored, bool)
        self.scale = np.maximum(x.max(axis=0), 1e-300)
        seen, place = np.unique(x[~hidden] / self.scale, axis=0, return_inverse=True)
        place = place.ravel()
        self.x = seen
        self.points = range(len(seen))
        self.counts = np.bincount(place, minlength=len(seen)).astype(np.float64)
        self.means = np.bincount(place, logs[~hidden], minlength=len(seen)) / self.counts
        self.within = float(((logs[~hidden] - self.means[place]) ** 2).sum()) if len(seen) else 0.0
        self.known, self.hidden = int((~hidden).sum()), int(hidden.sum())
        spread = math.sqrt(self.within / max(1, self.known - len(seen))) or 0.1
        binned = np.round(logs[hidden] / (_BINS * spread)) * (_BINS * spread)
        bounds, times = np.unique(np.column_stack([x[hidden] / self.scale, binned]), axis=0, return_counts=True)
        self.hidden_x, self.bounds, self.times = bounds[:, :-1], bounds[:, -1], times.astype(np.float64)


def _profile(data: _Data, rates: NDArray[np.float64]) -> tuple[Vector, Vector, Vector]:
    """The greatest log likelihood for each row of ``rates``, with the log base and the deviation that give it."""
    growth = np.log1p(rates @ data.x.T)
    residuals = data.means - growth
    n = data.known
    mean = (residuals * data.counts).sum(axis=1) / n
    squares = data.within + (data.counts * (residuals - mean[:, None]) ** 2).sum(axis=1)
    deviation = np.sqrt(np.maximum(squares / n, 1e-24))
    if not data.hidden:
        return -n * np.log(deviation) - 0.5 * n, mean, deviation
    bounds = data.bounds - np.log1p(rates @ data.hidden_x.T)
    total, raw = mean * n, squares + n * mean**2
    precision, location = 1.0 / deviation, mean / deviation
    for _ in range(60):
        z = location[:, None] - precision[:, None] * bounds
        mills, _ = _normal(z)
        curve = -mills * (mills + z) * data.times
        push = mills * data.times
        by_precision = n / precision - precision * raw + location * total - (push * bounds).sum(axis=1)
        by_location = precision * total - location * n + push.sum(axis=1)
        pp = -n / precision**2 - raw + (curve * bounds**2).sum(axis=1)
        pl = total - (curve * bounds).sum(axis=1)
        ll = -n + curve.sum(axis=1)
        size = pp * ll - pl**2
        move_p, move_l = (pl * by_location - ll * by_precision) / size, (pl * by_precision - pp * by_location) / size
        # A step may not halve the precision more than once: it stays above zero.
        share = np.minimum(1.0, 0.5 * precision / np.maximum(-move_p, 1e-300))
        precision, location = precision + share * move_p, location + share * move_l
        if float(np.max(np.abs(move_p) / precision)) < 1e-9:
            break
    _, log_share = _normal(location[:, None] - precision[:, None] * bounds)
    known = n * np.log(precision) - 0.5 * (precision**2 * raw - 2 * precision * location * total + n * location**2)
    return known + (log_share * data.times).sum(axis=1), location / precision, 1.0 / precision


def _normal(z: Vector) -> tuple[Vector, Vector]:
    """The normal density over its distribution function at ``z``, and the logarithm of the latter."""
    far = z < -25.0
    near = np.where(far, 0.0, z)
    below = 0.5 * np.asarray(_ERFC(-near / math.sqrt(2.0)), dtype=np.float64)
    density = np.exp(-0.5 * near**2) / math.sqrt(2.0 * math.pi)
    away = np.where(far, -z, 1.0)
    tail = 1.0 / away - 1.0 / away**3 + 3.0 / away**5
    logs = np.where(far, -0.5 * away**2 - 0.5 * math.log(2.0 * math.pi) + np.log(np.abs(tail)), np.log(below))
    return np.where(far, 1.0 / tail, density / below), logs


def _maximum(data: _Data, fixed: dict[int, float]) -> tuple[float, Vector, float, float]:
    """The greatest likelihood with the scaled rates of ``fixed``: itself, the rates, the log base, the deviation."""
    count = data.x.shape[1]
    free = [at for at in range(count) if at not in fixed]
    low, high = math.log(_LEAST), math.log(_MOST)
    ranges = dict.fromkeys(free, (low, high))
    best: tuple[float, Vector, float, float] | None = None
    for turn in range(_ROUNDS if free else 1):
        axes = []
        for at in range(count):
            if at in fixed:
                axes.append(np.array([fixed[at]]))
                continue
            grid = np.exp(np.linspace(*ranges[at], _GRID))
            axes.append(np.append(0.0, grid) if turn == 0 else grid)
        rates = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, count)
        if best is not None:
            rates = np.vstack([rates, best[1]])
        likelihood, mean, deviation = _profile(data, rates)
        top = int(np.argmax(likelihood))
        best = (float(likelihood[top]), rates[top], float(mean[top]), float(deviation[top]))
        step = {at: 2.0 * (end - start) / (_GRID - 1) for at, (start, end) in ranges.items()}
        for at in free:
            # A rate of zero stays where it is; the search goes on among the smallest ones.
            middle = math.log(max(float(best[1][at]), _LEAST))
            ranges[at] = (middle - step[at], middle + step[at])
    assert best is not None
    return best


def _interval(data: _Data, at: int, best: float, least: float, level: float) -> Interval:
    """All rates whose profile likelihood is at least ``least``, in the units of the values."""

    def inside(rate: float) -> bool:
        return _maximum(data, {at: rate})[0] >= least

    low, high = 0.0, math.inf
    middle = max(best, _LEAST)
    if not inside(0.0) and best > 0.0:
        low = _edge(inside, _LEAST, middle)
    if not inside(_MOST):
        high = _edge(inside, _MOST, middle)
    return Interval(low / float(data.scale[at]), high / float(data.scale[at]), level, _METHOD)


def _edge(inside: Callable[[float], bool], out: float, within: float) -> float:
    """Where the interval ends between ``out`` and ``within``, by bisection on the logarithm."""
    a, b = math.log(out), math.log(within)
    for _ in range(40):
        middle = 0.5 * (a + b)
        a, b = (a, middle) if inside(math.exp(middle)) else (middle, b)
        if abs(b - a) < 1e-5:
            break
    return math.exp(0.5 * (a + b))


def _misfit(data: _Data, rates: Vector, log_base: float) -> float | None:
    """The p value of the F test for lack of fit; ``None`` without replicates or spare points."""
    spare, pure = len(data.points) - data.x.shape[1] - 1, data.known - len(data.points)
    if spare < 1 or pure < 1 or data.within <= 0.0:
        return None
    apart = float((data.counts * (data.means - log_base - np.log1p(data.x @ rates)) ** 2).sum())
    return f_survival(apart / spare / (data.within / pure), spare, pure)
