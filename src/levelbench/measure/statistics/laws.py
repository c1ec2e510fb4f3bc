"""Fits of y = base * (1 + sum of rate_j * x_j) to positive values, on logarithms, with censored values.

Three laws of this field have this form, with rates that are not negative:

- samples to a target at batch size B: E_min (1 + B / B_crit) (McCandlish et al. 2018, equation 2.11);
- Amdahl's law, for work in processor seconds on p processors: p t(p) = t(1) (1 + s (p - 1));
- the Universal Scalability Law (Gunther 1993): p t(p) = t(1) (1 + s (p - 1) + k p (p - 1)).

Deviations of the logarithms are normal with one variance. A value that was only seen to exceed a bound is censored
there, and counts by the probability of that; so does one that is only known to lie between two bounds (Tobin 1958,
maximised in the parameters of Olsen 1978, where the likelihood is concave in both cases). Intervals are those of the
profile likelihood, with the F distribution in place of chi-squared, so that without bounds they are those of the sum of
squares (Bates & Watts 1988, 6.1).
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
"""Rates that are tried of each variable, from which the search goes on."""
_LEAST, _MOST = 1e-5, 1e5
"""Of a rate times the largest value of its variable: beyond, it cannot be told from 0 or infinity."""
_ALIKE = 1e-9
"""A difference of likelihoods that is none: a rate of zero counts, then."""
_EXACT = 1e-5
"""A deviation of logarithms below which values do not vary."""
_ROOT = 1e-5
"""The precision of an end of an interval, in the root of the likelihood and in the logarithm of the rate."""
_BINS = 0.02
"""Bounds are counted in bins of this width, in deviations, so that many runs cost no more than few."""
_NARROW = 0.25
"""Bounds nearer to one another, in deviations, are a value: their distance adds half a per cent to the variance."""
_RESOLVED = 0.1
"""The least deviation that bounds can show, in their distance: where all hold, any smaller one is as likely."""
_PRECISIONS = 120
_FAR = 1e8
_ERFC = np.frompyfunc(math.erfc, 1, 1)


@dataclass(frozen=True)
class GrowthFit:
    """The law fitted to ``n`` values, of which ``censored`` have a lower bound alone and ``bracketed`` two bounds.

    ``rates`` has a value per variable. Its item in ``intervals`` is ``None`` if too few values are known or they do not
    vary; an end of 0 or infinity means that the values do not bound it. ``deviation`` is that of the logarithms.
    ``misfit`` is the p value of the law against any other curve through the points without censored values (lack-of-fit
    F test; conservative with censored values, to which the law is fitted as well), ``None`` without replicates there.
    """

    base: float
    rates: tuple[float, ...]
    intervals: tuple[Interval | None, ...]
    deviation: float
    n: int
    censored: int
    misfit: float | None
    bracketed: int = 0

    def at(self, variables: Sequence[float]) -> float:
        """The value of the law at these values of its variables."""
        return self.base * (1.0 + sum(rate * x for rate, x in zip(self.rates, variables, strict=True)))


def fit_growth(
    values: Sequence[float],
    variables: Sequence[Sequence[float]],
    censored: Sequence[bool] | None = None,
    level: float = 0.95,
    *,
    above: Sequence[float] | None = None,
) -> GrowthFit:
    """Fit the law to ``values``, shape (n,), at ``variables``, shape (n, one or two), none of them negative.

    A value where ``censored`` is true is a lower bound. With ``above``, shape (n,), the others are upper bounds: each
    lies between the item there, which may be 0, and the value. Raises ``ValueError`` if the values that are not
    censored lie at fewer different points than the law has parameters, and for an ``above`` that is above its value.
    """
    check_share("the level", level)
    data = _Data(values, variables, censored, above)
    count = data.x.shape[1]
    if len(data.points) < count + 1:
        raise ValueError(f"{count + 1} parameters, but values at {len(data.points)} points")
    likelihood, rates, log_base, deviation = _maximum(data, {})
    free = data.known - count - 1
    varied = free > 0 and (deviation > _EXACT or data.bracketed > 0)
    intervals: list[Interval | None] = [None] * count
    if varied:
        drop = 0.5 * data.known * math.log1p(t_quantile(0.5 + 0.5 * level, free) ** 2 / free)
        intervals = [_interval(data, at, rates[at], likelihood, drop, level) for at in range(count)]
    return GrowthFit(
        base=math.exp(log_base),
        rates=tuple((rates / data.scale).tolist()),
        intervals=tuple(intervals),
        deviation=deviation * math.sqrt(data.known / free) if free > 0 else 0.0,
        n=data.known + data.censored,
        censored=data.censored,
        misfit=_misfit(data, log_base + np.log1p(data.x @ rates)) if varied else None,
        bracketed=data.bracketed,
    )


class _Data:
    """The values by distinct point: counts, means and squares of the logarithms of values, bins of bounds.

    ``known`` values are those that are not ``censored``; of these, ``exact`` are values and the others lie between
    bounds, ``bracketed`` of them as the caller gave them (narrow ones are exact).
    """

    def __init__(
        self,
        values: Sequence[float],
        variables: Sequence[Sequence[float]],
        censored: Sequence[bool] | None,
        above: Sequence[float] | None,
    ) -> None:
        high = np.log(positive(values))
        x = np.asarray(variables, dtype=np.float64).reshape(len(high), -1)
        self.scale = np.maximum(x.max(axis=0), 1e-300)
        x = x / self.scale
        missed = np.zeros(len(high), bool) if censored is None else np.asarray(censored, bool)
        with np.errstate(divide="ignore"):
            low = high if above is None else np.log(np.asarray(above, dtype=np.float64))
        if (low[~missed] > high[~missed]).any():
            raise ValueError("a lower bound above its value")
        low, high = np.where(missed, high, low), np.where(missed, np.inf, high)
        self.known, self.censored = int((~missed).sum()), int(missed.sum())
        self.bracketed = int((high[~missed] > low[~missed]).sum())
        self.x, place = np.unique(x[~missed], axis=0, return_inverse=True)
        self.points = range(len(self.x))
        middle = np.where(np.isfinite(low), 0.5 * (low + np.where(missed, low, high)), high)
        spread = _spread(middle[~missed], place.ravel())
        apart = ~missed & (high > low) & ~(high - low <= _NARROW * spread)
        exact = ~missed & ~apart
        spread = spread or 0.1
        place = place.ravel()[exact[~missed]]
        self.exact = int(exact.sum())
        self.counts = np.bincount(place, minlength=len(self.x)).astype(np.float64)
        self.means = np.bincount(place, middle[exact], minlength=len(self.x)) / np.maximum(self.counts, 1.0)
        self.within_at = np.bincount(place, (middle[exact] - self.means[place]) ** 2, minlength=len(self.x))
        self.within = float(self.within_at.sum())
        # What lies between bounds, and where the search begins for it: in the middle, or at the only bound.
        hidden = ~exact
        binned = [np.round(each[hidden] / (_BINS * spread)) * (_BINS * spread) for each in (low, high)]
        bounds, times = np.unique(np.column_stack([x[hidden], *binned]), axis=0, return_counts=True)
        self.hidden_x, self.low, self.high = bounds[:, :-2], bounds[:, -2], bounds[:, -1]
        self.times = times.astype(np.float64)
        width = self.high - self.low
        finite = np.isfinite(width)
        self.width = float(np.median(width[finite])) if finite.any() else 0.0
        # Of bounds on one side alone, none shows a deviation.
        self.finest = max(1e-12, _RESOLVED * self.width) if self.exact or finite.any() else _RESOLVED
        self.middle = np.where(finite, self.low + 0.5 * np.where(finite, width, 0.0), np.minimum(self.high, 1e300))
        self.middle = np.where(np.isfinite(self.high), self.middle, self.low)


def _spread(logs: Vector, place: NDArray[np.intp]) -> float:
    """The deviation of ``logs`` within their points."""
    counts = np.maximum(np.bincount(place), 1)
    means = np.bincount(place, logs) / counts
    return math.sqrt(float(((logs - means[place]) ** 2).sum()) / max(1, len(logs) - len(counts)))


def _profile(data: _Data, rates: NDArray[np.float64]) -> tuple[Vector, Vector, Vector]:
    """The greatest log likelihood for each row of ``rates``, with the log base and the deviation that give it."""
    growth = np.log1p(rates @ data.x.T)
    residuals = data.means - growth
    n, hidden = data.exact, len(data.times)
    if not hidden:
        mean = (residuals * data.counts).sum(axis=1) / n
        squares = data.within + (data.counts * (residuals - mean[:, None]) ** 2).sum(axis=1)
        deviation = np.sqrt(np.maximum(squares / n, 1e-24))
        return -n * np.log(deviation) - 0.5 * n, mean, deviation
    more = np.log1p(rates @ data.hidden_x.T)
    low, high = data.low - more, data.high - more
    total = (residuals * data.counts).sum(axis=1)
    raw = data.within + (data.counts * residuals**2).sum(axis=1)
    # The search begins as if the middles were values.
    middle = data.middle - more
    count = n + data.times.sum()
    mean = (total + (data.times * middle).sum(axis=1)) / count
    squares = raw - 2 * mean * total + n * mean**2 + (data.times * (middle - mean[:, None]) ** 2).sum(axis=1)
    most = 1.0 / data.finest
    precision = np.minimum(most, 1.0 / np.sqrt(np.maximum(squares / count, 1e-24)))
    location = mean * precision
    best, at = np.full(len(rates), -np.inf), (precision, location)
    step = (np.zeros(len(rates)), np.zeros(len(rates)))
    for _ in range(100):
        precision, location = at[0] + step[0], at[1] + step[1]
        log_share, from_low, from_high = _between(low, high, precision[:, None], location[:, None])
        with np.errstate(divide="ignore"):
            likelihood = n * np.log(precision) if n else np.zeros(len(rates))
        likelihood = likelihood - 0.5 * (precision**2 * raw - 2 * precision * location * total + n * location**2)
        likelihood = likelihood + (log_share * data.times).sum(axis=1)
        better = likelihood >= best
        gained = np.where(better, likelihood - best, np.inf)
        at = (np.where(better, precision, at[0]), np.where(better, location, at[1]))
        best = np.where(better, likelihood, best)
        newton = _newton(data, low, high, precision, location, (from_low, from_high), (total, raw), most)
        # A step that made it worse is halved.
        step = tuple(np.where(better, new, 0.5 * old) for new, old in zip(newton, step, strict=True))  # type: ignore[assignment]
        small = np.maximum(np.abs(step[0]) / at[0], np.abs(step[1]) / (1.0 + np.abs(at[1]))) < 1e-9
        if bool((small | (gained < 1e-12)).all()):
            break
    return best, at[1] / at[0], 1.0 / at[0]


def _newton(
    data: _Data, low: Vector, high: Vector, precision: Vector, location: Vector, slopes: tuple[Vector, Vector],
    sums: tuple[Vector, Vector], most: float,
) -> tuple[Vector, Vector]:  # fmt: skip
    """The step of Newton's method in the precision (at most ``most``) and the location."""
    n, times, (from_low, from_high), (total, raw) = data.exact, data.times, slopes, sums
    low, high = np.where(np.isfinite(low), low, 0.0), np.where(np.isfinite(high), high, 0.0)
    a, b = precision[:, None] * low - location[:, None], precision[:, None] * high - location[:, None]
    push, pull = from_high * high - from_low * low, from_high - from_low
    by_precision = n / precision - precision * raw + location * total + (times * push).sum(axis=1)
    by_location = precision * total - location * n - (times * pull).sum(axis=1)
    bent_low, bent_high = a * from_low, b * from_high
    pp = -n / precision**2 - raw + (times * (bent_low * low**2 - bent_high * high**2 - push**2)).sum(axis=1)
    pl = total + (times * (bent_high * high - bent_low * low + pull * push)).sum(axis=1)
    ll = -n + (times * (bent_low - bent_high - pull**2)).sum(axis=1)
    # Where all bounds hold the likelihood is flat, and a step would be without bounds.
    pp, ll = pp - 1e-9 / precision**2, ll - 1e-9
    size = np.maximum(pp * ll - pl**2, 1e-300)
    move_p, move_l = (pl * by_location - ll * by_precision) / size, (pl * by_precision - pp * by_location) / size
    # A step may not halve the precision more than once: it stays above zero.
    share = np.minimum(1.0, 0.5 * precision / np.maximum(-move_p, 0.1 * precision))
    capped = precision + share * move_p >= most
    to_cap = most - precision
    along = -(by_location + pl * to_cap) / ll
    return np.where(capped, to_cap, share * move_p), np.where(capped, along, share * move_l)


def _between(low: Vector, high: Vector, precision: Vector, location: Vector) -> tuple[Vector, Vector, Vector]:
    """The logarithm of the probability between bounds, and the density at each of them over it."""
    a = np.clip(precision * low - location, -_FAR, _FAR)
    b = np.clip(precision * high - location, -_FAR, _FAR)
    # Of two tails, the lower one has the digits.
    flipped = a > 0.0
    upper = _log_normal(np.where(flipped, -a, b))
    lower = _log_normal(np.where(flipped, -b, a))
    with np.errstate(divide="ignore"):
        logs = upper + np.log(-np.expm1(np.minimum(lower - upper, -1e-300)))
    half = 0.5 * math.log(2.0 * math.pi)
    with np.errstate(over="ignore"):
        return logs, np.exp(-0.5 * a**2 - half - logs), np.exp(-0.5 * b**2 - half - logs)


def _log_normal(z: Vector) -> Vector:
    """The logarithm of the normal distribution function at ``z``."""
    far = z < -25.0
    below = 0.5 * np.asarray(_ERFC(np.where(far, 0.0, -z / math.sqrt(2.0))), dtype=np.float64)
    away = np.where(far, -z, 1.0)
    tail = 1.0 / away - 1.0 / away**3 + 3.0 / away**5
    return np.where(far, -0.5 * away**2 - 0.5 * math.log(2.0 * math.pi) + np.log(np.abs(tail)), np.log(below))


def _maximum(data: _Data, fixed: dict[int, float]) -> tuple[float, Vector, float, float]:
    """The greatest likelihood with the scaled rates of ``fixed``: itself, the rates, the log base, the deviation.

    A rate of zero has no logarithm, in which the search goes, so each set of rates is tried with zeros of its own.
    """
    free = [at for at in range(data.x.shape[1]) if at not in fixed]
    best: tuple[float, Vector, float, float] | None = None
    for zeros in range(2 ** len(free)):
        searched = [at for place, at in enumerate(free) if not zeros >> place & 1]
        rates = np.zeros(data.x.shape[1])
        for at, rate in fixed.items():
            rates[at] = rate
        found = _climb(data, rates, searched)
        # The more zeros, the later.
        if best is None or found[0] >= best[0] - _ALIKE:
            best = found
    assert best is not None
    return best


def _climb(data: _Data, rates: Vector, searched: list[int]) -> tuple[float, Vector, float, float]:
    """The greatest likelihood over positive rates at ``searched``, with the others as they are.

    From the best of a grid of logarithms, by Newton's method on the variance that the likelihood stands for, which is
    nearly a square even where the values lie exactly on the law; its derivatives are differences.
    """

    def tried(logs: NDArray[np.float64]) -> tuple[Vector, NDArray[np.float64], Vector, Vector]:
        rows = np.tile(rates, (len(logs), 1))
        rows[:, searched] = np.exp(np.clip(logs, math.log(_LEAST), math.log(_MOST)))
        likelihood, mean, deviation = _profile(data, rows)
        return likelihood, rows, mean, deviation

    count = len(searched)
    axis = np.linspace(math.log(_LEAST), math.log(_MOST), _GRID)
    logs = (
        np.stack(np.meshgrid(*[axis] * count, indexing="ij"), axis=-1).reshape(-1, count) if count else np.zeros((1, 0))
    )
    found = tried(logs)
    top = int(np.argmax(found[0]))
    best = (float(found[0][top]), found[1][top], float(found[2][top]), float(found[3][top]))
    at, reach = logs[top], float(axis[1] - axis[0])
    h = 1e-4
    corners = h * np.array([[i, j][:count] for i in (-1, 0, 1) for j in (-1, 0, 1)][:: 1 if count > 1 else 3])
    while count and reach > 1e-7:
        around = np.exp(-2.0 / data.known * (tried(at + corners)[0] - best[0]))
        steps = _bowl(around, h) if np.isfinite(around).all() else np.zeros(count)
        longest = float(np.abs(steps).max())
        steps = steps * min(1.0, 2.0 * reach / longest) if longest > 0.0 else steps
        pattern = reach * corners / h
        ways = np.vstack([at + steps * share for share in (1.0, 0.5, 0.25)] + [at + pattern, at + 0.3 * pattern])
        ways = np.clip(ways, axis[0], axis[-1])
        found = tried(ways)
        top = int(np.argmax(found[0]))
        if found[0][top] > best[0] + 1e-11:
            moved = float(np.abs(ways[top] - at).max())
            best = (float(found[0][top]), found[1][top], float(found[2][top]), float(found[3][top]))
            at = ways[top]
            reach = min(reach, 2.0 * moved)
        else:
            reach *= 0.1
    return best


def _bowl(values: Vector, h: float) -> Vector:
    """The step to the bottom of the square through ``values``, at -h, 0 and h of each of one or two variables."""
    if len(values) == 3:
        slope, bend = (values[2] - values[0]) / (2 * h), (values[2] - 2 * values[1] + values[0]) / h**2
        return np.array([-slope / bend if bend > 0.0 else 0.0])
    v = values.reshape(3, 3)
    slope_2 = np.array([v[2, 1] - v[0, 1], v[1, 2] - v[1, 0]]) / (2 * h)
    bend_2 = np.array([v[2, 1] - 2 * v[1, 1] + v[0, 1], v[1, 2] - 2 * v[1, 1] + v[1, 0]]) / h**2
    mixed = (v[2, 2] - v[2, 0] - v[0, 2] + v[0, 0]) / (4 * h**2)
    size = bend_2[0] * bend_2[1] - mixed**2
    if not (size > 0.0 and bend_2[0] > 0.0):
        return np.zeros(2)
    step: Vector = -np.array([bend_2[1] * slope_2[0] - mixed * slope_2[1], bend_2[0] * slope_2[1] - mixed * slope_2[0]])
    found: Vector = step / size
    return found


def _interval(data: _Data, at: int, best: float, most: float, drop: float, level: float) -> Interval:
    """All rates whose profile likelihood is at most ``drop`` below ``most``, in the units of the values."""

    def outside(rate: float) -> float:
        # The root is nearly a straight line in the logarithm of the rate.
        return math.sqrt(max(0.0, most - _maximum(data, {at: rate})[0])) - math.sqrt(drop)

    low, high = 0.0, math.inf
    middle = max(best, _LEAST)
    if best > 0.0 and outside(0.0) > 0.0:
        low = _edge(outside, _LEAST, middle)
    if outside(_MOST) > 0.0:
        high = _edge(outside, _MOST, middle)
    return Interval(low / float(data.scale[at]), high / float(data.scale[at]), level, _METHOD)


def _edge(outside: Callable[[float], float], out: float, within: float) -> float:
    """Where ``outside`` is zero between two rates, by the Illinois method on the logarithm (Dowell & Jarratt 1971)."""
    a, b = math.log(out), math.log(within)
    at_a, at_b = outside(out), outside(within)
    if at_a <= 0.0:
        return out
    for _ in range(40):
        middle = b - at_b * (b - a) / (at_b - at_a)
        value = outside(math.exp(middle))
        if value * at_b < 0.0:
            a, at_a = b, at_b
        else:
            at_a *= 0.5
        b, at_b = middle, value
        if abs(value) < _ROOT or abs(b - a) < _ROOT:
            break
    return math.exp(b)


def _misfit(data: _Data, law: Vector) -> float | None:
    """The p value of the test for lack of fit; ``None`` without replicates or spare points.

    The ratio of likelihoods of the ``law`` (its logarithm at each point) and of a mean of its own for each point, each
    with its own deviation, as the F statistic that it is for values without bounds. With censored values, known ones at
    the same point are its low ones, so only points without any are tested. The law was not fitted to these alone: their
    residuals vary at most as much as those from the true law, so that no degree of freedom is taken off.
    """
    same = (data.x[:, None, :] == data.hidden_x[None, :, :]).all(axis=2)
    whole = ~(same & np.isinf(data.high)).any(axis=1)
    at_point = [np.flatnonzero(same[at]) for at in np.flatnonzero(whole)]
    counts, within = data.counts[whole], data.within_at[whole]
    n = int(counts.sum() + sum(data.times[each].sum() for each in at_point))
    spare = len(counts) - (0 if data.censored else data.x.shape[1] + 1)
    pure = n - len(counts)
    between = sum(len(each) for each in at_point) > 0
    if spare < 1 or pure < 1 or (within.sum() <= 0.0 and not between):
        return None
    if not between:
        ratio = float((counts * (data.means - law)[whole] ** 2).sum() / within.sum())
    else:
        own, lawful = np.zeros(_PRECISIONS), np.zeros(_PRECISIONS)
        precisions = np.geomspace(0.01, 1.0 / data.finest if within.sum() <= 0.0 else 1e6, _PRECISIONS)
        for point, places in zip(np.flatnonzero(whole).tolist(), at_point, strict=True):
            own += _at_best(data, point, places, precisions)
            lawful += _at_mean(data, point, places, precisions, np.full(_PRECISIONS, law[point]))
        ratio = math.expm1(2.0 / n * max(0.0, float(own.max() - lawful.max())))
    return f_survival(ratio * pure / spare, spare, pure)


def _at_mean(data: _Data, point: int, places: NDArray[np.intp], precisions: Vector, means: Vector) -> Vector:
    """The log likelihood of what is known at a point, for each of ``precisions`` with its mean."""
    count, apart = data.counts[point], data.means[point] - means
    exact = count * np.log(precisions) - 0.5 * precisions**2 * (data.within_at[point] + count * apart**2)
    shares, _, _ = _between(data.low[places], data.high[places], precisions[:, None], (precisions * means)[:, None])
    found: Vector = exact + (shares * data.times[places]).sum(axis=1)
    return found


def _at_best(data: _Data, point: int, places: NDArray[np.intp], precisions: Vector) -> Vector:
    """The same with the best mean for each, by golden sections, since it is concave in the mean."""
    ends = [data.high[places], data.low[places][np.isfinite(data.low[places])]]
    ends += [data.means[[point]]] if data.counts[point] else []
    every = np.concatenate(ends)
    a = np.full(len(precisions), float(every.min()) - 1.0)
    b = np.full(len(precisions), float(every.max()) + 1.0)
    golden = 0.5 * (math.sqrt(5.0) - 1.0)
    for _ in range(40):
        left, right = b - golden * (b - a), a + golden * (b - a)
        lower = _at_mean(data, point, places, precisions, left) >= _at_mean(data, point, places, precisions, right)
        a, b = np.where(lower, a, left), np.where(lower, right, b)
    return _at_mean(data, point, places, precisions, 0.5 * (a + b))
