"""Times to a target that some runs never reach: Kaplan-Meier, log-rank, and ratios of accelerated failure times."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np

from levelbench.measure.statistics.distributions import binomial_cdf, normal_cdf, normal_quantile
from levelbench.measure.statistics.intervals import INTERVAL_FROM, largest, log_mean_interval, mean_interval, wilson
from levelbench.measure.statistics.values import (
    RANGE,
    Estimate,
    Interval,
    Vector,
    check_share,
    finite,
    positive,
    watched,
)


@dataclass(frozen=True)
class KaplanMeier:
    """A survival curve: the share of runs that have not yet reached the target.

    One entry for each time with an event, ascending: ``survival`` is S(t) from ``times`` on, ``variance`` is
    Greenwood's, ``at_risk`` and ``events`` are the counts there. There are ``n`` runs in total, the first seen until
    ``first``, the last until ``last`` (infinite if a run could never have arrived). ``given_up`` are the finite times
    of those without an event, ascending.
    """

    times: tuple[float, ...]
    survival: tuple[float, ...]
    variance: tuple[float, ...]
    at_risk: tuple[int, ...]
    events: tuple[int, ...]
    n: int
    first: float
    last: float
    given_up: tuple[float, ...] = ()

    def at(self, time: float) -> float:
        """S(time), in 0..1; beyond ``last`` the value there."""
        step = bisect_right(self.times, time)
        return self.survival[step - 1] if step else 1.0

    def interval_at(self, time: float, level: float = 0.95) -> Interval:
        """The pointwise interval of S(time) on the log-log scale (Kalbfleisch & Prentice 1980, 1.3), inside 0..1."""
        step = bisect_right(self.times, time)
        low, high = self._bounds(step - 1, level) if step else (1.0, 1.0)
        return Interval(low, high, level, "Kaplan-Meier, log-log")

    def median(self, level: float = 0.95) -> Estimate:
        """The time by which half of the runs have reached the target: see :meth:`quantile`."""
        return self.quantile(0.5, level)

    def quantile(self, reached: float, level: float = 0.95) -> Estimate:
        """The first time by which the share ``reached`` of the runs has reached the target.

        The interval is that of order statistics if no run was given up before the last one that reached the target,
        which is exact, else Brookmeyer and Crowley's (1982) on the log-log scale. Its high end is infinite if the share
        may not be reached, and its low end 0 if even all of so few runs may lie above it. Two to five runs have their
        lowest and highest time instead of an interval of the median, as in :func:`estimate`, and a single run has none;
        where one was given up, the lowest is when it or the first ended, and the highest is infinite.
        """
        left = 1.0 - check_share("the share", reached)
        value = self._first_below(self.survival, left)
        if self.times and self.at_risk[-1] - self.events[-1] == self.n - sum(self.events):
            interval: Interval | None = self._of_order(reached, level)
        else:
            bounds = [self._bounds(step, level) for step in range(len(self.times))]
            low, high = (self._first_below([bound[side] for bound in bounds], left) for side in (0, 1))
            # Those given up before the first event say nothing.
            if not self.times or left ** self.at_risk[0] > (1.0 - level) / 2:
                low = 0.0
            interval = Interval(low, high, level, "Brookmeyer-Crowley")
        if reached == 0.5 and self.n < INTERVAL_FROM and self.times:
            ends = (
                self.first,
                math.inf if sum(self.events) < self.n else self.times[-1],
            )
            interval = Interval(*ends, 1.0 - 2.0 ** (1 - self.n), RANGE) if self.n > 1 else None
        name = "median" if reached == 0.5 else f"quantile {reached:g}"
        return Estimate(value, interval, self.n, f"Kaplan-Meier {name}")

    def _of_order(self, reached: float, level: float) -> Interval:
        """Between two of the ordered times, of which the later ones are only known to be later."""
        tail, n = (1.0 - level) / 2, self.n
        ordered = np.repeat(self.times, self.events)
        above = largest(lambda rank: binomial_cdf(rank - 1, n, reached) <= tail, n)
        below = n + 1 - largest(lambda rank: binomial_cdf(rank - 1, n, 1.0 - reached) <= tail, n)
        low = float(ordered[above - 1]) if 0 < above <= len(ordered) else (math.inf if above else 0.0)
        high = float(ordered[below - 1]) if below <= len(ordered) else math.inf
        return Interval(low, high, level, "exact order statistics")

    def _first_below(self, curve: Sequence[float], left: float) -> float:
        # Products such as 6/7 * 7/12 miss 1/2 by a rounding error.
        return next((t for t, share in zip(self.times, curve, strict=True) if share <= left + 1e-12), math.inf)

    def _bounds(self, step: int, level: float) -> tuple[float, float]:
        z = normal_quantile(0.5 + 0.5 * check_share("the level", level))
        share = self.survival[step]
        if share <= 0.0:
            # The log-log scale ends here: the last upper bound above zero still holds.
            return 0.0, self._bounds(step - 1, level)[1] if step else 1.0
        if share >= 1.0:
            return 1.0, 1.0
        reach = z * math.sqrt(self.variance[step]) / (share * abs(math.log(share)))
        return share ** math.exp(reach), share ** math.exp(-reach)


def kaplan_meier(times: Sequence[float], observed: Sequence[bool]) -> KaplanMeier:
    """The product-limit estimate (Kaplan & Meier 1958) with Greenwood's variance.

    ``times`` (n values, any unit): when a run reached its target if ``observed``, else when it was given up. A run
    given up at the instant of an event counts as at risk there. One given up at infinity (it diverged and could never
    have arrived) counts as at risk at every time, so that its early end does not raise the share of the others.

    ``ValueError`` if the lengths differ, there is no run, a time is NaN, or an observed one is infinite.
    """
    vector = np.asarray(times, dtype=np.float64).reshape(-1)
    events = np.asarray(observed, dtype=bool).reshape(-1)
    if len(events) != len(vector):
        raise ValueError(f"{len(vector)} times and {len(events)} observations")
    finite(vector[events | (vector != math.inf)], 0)
    if len(vector) == 0:
        raise ValueError("0 values, but 1 or more are needed")
    steps, counts = np.unique(vector[events], return_counts=True)
    at_risk = len(vector) - np.searchsorted(np.sort(vector), steps, side="left")
    share, spread = 1.0, 0.0
    survival, variance = [], []
    for risk, count in zip(at_risk.tolist(), counts.tolist(), strict=True):
        share *= (risk - count) / risk
        spread += count / (risk * (risk - count)) if count < risk else 0.0
        survival.append(share)
        variance.append(share * share * spread)
    return KaplanMeier(
        tuple(map(float, steps)),
        tuple(survival),
        tuple(variance),
        tuple(at_risk.tolist()),
        tuple(counts.tolist()),
        len(vector),
        float(vector.min()),
        float(vector.max()),
        tuple(sorted(vector[~events & np.isfinite(vector)].tolist())),
    )


def expected_time_with_restarts(times: Sequence[float], given_up_s: Sequence[float]) -> float:
    """The mean time until a run succeeds if failed ones are restarted, in the unit of ``times``.

    E = mean(times) + (1 - p) / p mean(given_up_s), with p the share that reached the target: a geometric number of
    failures, each at its own cost, and one success. Infinite if none reached it.
    """
    reached, failed = finite(times, 0), finite(given_up_s, 0)
    if len(reached) + len(failed) == 0:
        raise ValueError("0 values, but 1 or more are needed")
    if len(reached) == 0:
        return math.inf
    return float((math.fsum(reached) + math.fsum(failed)) / len(reached))


def restarts_interval(
    times: Sequence[float], given_up_s: Sequence[float], level: float = 0.95, *, unseen_s: float | None = None
) -> Interval | None:
    """The interval of :func:`expected_time_with_restarts`; ``None`` if fewer than six runs reached the target.

    Student's interval of the mean time and Wilson's of the odds of a miss, at the mean cost of one, are added by Zou
    and Donner's method (2008). If no run missed, some of the next ones still may, at the cost of ``unseen_s``: what a
    run takes until its budget is over. By default it is the longest run, which is too little if budgets are longer.
    A few very long runs pull Student's lower end to zero and below, where no mean time is: it is at least that of the
    geometric mean, which no mean is below.
    """
    reached, failed = positive(times, 0), finite(given_up_s, 0)
    k, n = len(reached), len(reached) + len(failed)
    if k < INTERVAL_FROM:
        return None
    share, mean = wilson(k, n, level), mean_interval(times, level)
    cost = float(failed.mean()) if n > k else max(unseen_s or 0.0, float(reached.max()))
    value, added = float(reached.mean()), (n - k) / k * cost
    low, high = ((1.0 - bound) / bound * cost for bound in (share.high, share.low))
    least = max(mean.low, log_mean_interval(times, level).low)
    below, above = math.hypot(value - least, added - low), math.hypot(mean.high - value, high - added)
    return Interval(value + added - below, value + added + above, level, "Student's t and Wilson, added")


_MOST_ARRANGEMENTS = 20_000
_MOST_CANDIDATES, _COARSE, _MOST_TIMES = 400, 60, 1000

_Indices = np.ndarray[tuple[int, int], np.dtype[np.intp]]


@dataclass(frozen=True)
class CensoredTimes:
    """One arm of runs: the times of those that reached the target, and when the others were given up (same unit).

    A run that could never have arrived is given up at infinity: it is at risk at every time and does not shorten the
    horizon.
    """

    reached: tuple[float, ...]
    given_up: tuple[float, ...] = ()

    @property
    def n(self) -> int:
        """All runs."""
        return len(self.reached) + len(self.given_up)

    @property
    def horizon(self) -> float:
        """The time until which every run of the arm was certainly observed."""
        return min(self.given_up, default=math.inf)


@dataclass(frozen=True)
class TimeRatio:
    """The ratio b / a that the ranks support best, and the interval they cannot reject (an open end is 0 or inf)."""

    ratio: float
    interval: Interval


def log_rank_p(a: CensoredTimes, b: CensoredTimes) -> float:
    """Two-sided permutation p value that both arms take equally long, by the log-rank test (Peto & Peto 1972).

    Enumerates all arrangements of the labels if there are 20,000 or fewer; else uses the permutation mean and variance
    with a normal tail.
    """
    return _permutation_p(_scores(a, b), a.n)


def log_rank_sign(a: CensoredTimes, b: CensoredTimes) -> int:
    """1 if b arrives sooner or more often than a by the log-rank scores, -1 if later or less often, 0 if neither."""
    scores = _scores(a, b)
    difference = float(scores[a.n :].mean() - scores[: a.n].mean())
    return 0 if abs(difference) < 1e-12 else int(math.copysign(1, difference))


def _scores(a: CensoredTimes, b: CensoredTimes) -> Vector:
    """The log-rank score of each run, a's first."""
    return _rank_scores(_stacked(a), _stacked(b), min(a.horizon, b.horizon))


_Stacked = tuple[Vector, np.ndarray[tuple[int], np.dtype[np.bool_]]]
"""The times of an arm, of those that reached the target first, and which these are."""


def _stacked(arm: CensoredTimes) -> _Stacked:
    times = np.array([*arm.reached, *arm.given_up], dtype=np.float64)
    return times, np.arange(len(times)) < len(arm.reached)


def _rank_scores(a: _Stacked, b: _Stacked, horizon: float) -> Vector:
    """The score of each run: event (0 or 1) minus the cumulative hazard at its time; both arms end at ``horizon``."""
    times, event = np.concatenate([a[0], b[0]]), np.concatenate([a[1], b[1]])
    event &= times <= horizon
    times = np.minimum(times, horizon)
    steps, events_at = np.unique(times[event], return_counts=True)
    at_risk = len(times) - np.searchsorted(np.sort(times), steps, side="left")
    hazard = np.concatenate([[0.0], np.cumsum(events_at / at_risk)])
    scores: Vector = event - hazard[np.searchsorted(steps, times, side="right")]
    return scores


def _permutation_p(scores: Vector, n_a: int) -> float:
    n = len(scores)
    centred = scores - scores.mean()
    seen = abs(float(centred[:n_a].sum()))
    tolerance = 1e-9 * (1.0 + seen)
    # Of many runs the number of arrangements has thousands of digits; ten of each arm are too many already.
    if math.comb(n, min(n_a, n - n_a, 10)) <= _MOST_ARRANGEMENTS:
        sums = np.abs(centred[_arrangements(n, n_a)].sum(axis=1))
        return float((sums >= seen - tolerance).mean())
    variance = n_a * (n - n_a) / (n * (n - 1)) * float((centred**2).sum())
    return 1.0 if variance <= 0.0 else 2.0 * normal_cdf(-seen / math.sqrt(variance))


@lru_cache(maxsize=32)
def _arrangements(n: int, k: int) -> _Indices:
    return np.array(list(combinations(range(n), k)), dtype=np.intp)


def time_ratio(a: CensoredTimes, b: CensoredTimes, level: float = 0.95) -> TimeRatio | None:
    """The ratio of times b / a and the interval that inverts :func:`log_rank_p`.

    ``None`` if no run reached the target, or if no run of one arm could have: then there are no times to compare.

    The p value changes only where a scaled time of b passes a time of a, so only those ratios and the gaps between them
    need to be tried. Of more than 400 some are, evenly chosen in rank, and then more around the ratio and the ends that
    were found. The interval is the hull of what is not rejected.

    ``ValueError`` if a time is not positive, or not finite for a run that arrived.
    """
    alpha = 1.0 - check_share("the level", level)
    times_a, times_b = (np.sort(_times(arm)) for arm in (a, b))
    if not (a.reached or b.reached) or not len(times_a) or not len(times_b):
        return None
    stacked, (times, reached) = _stacked(a), _stacked(b)

    def p_values(ratios: Vector) -> Vector:
        horizons = [min(a.horizon, b.horizon / ratio) for ratio in ratios.tolist()]
        return np.array(
            [
                _permutation_p(_rank_scores(stacked, (times / ratio, reached), horizon), a.n)
                for ratio, horizon in zip(ratios.tolist(), horizons, strict=True)
            ]
        )

    breaks = np.unique(np.outer(_some(times_b, _MOST_TIMES), 1.0 / _some(times_a, _MOST_TIMES)))
    few = len(breaks) <= _MOST_CANDIDATES
    tried = breaks if few else _some(breaks, _COARSE)
    for done in (few, True):
        gaps = np.concatenate([[tried[0] / 2.0], np.sqrt(tried[1:] * tried[:-1]), [tried[-1] * 2.0]])
        p = p_values(gaps)
        kept = np.flatnonzero(p > alpha)
        if len(kept) == 0:
            kept = np.flatnonzero(p == p.max())
        low = 0.0 if kept[0] == 0 else float(tried[kept[0] - 1])
        high = math.inf if kept[-1] == len(tried) else float(tried[kept[-1]])
        if done:
            break
        first, last = (np.clip(np.array([kept[0], p.argmax(), kept[-1]]) + step, 0, _COARSE - 1) for step in (-2, 1))
        near = [breaks[(breaks >= x) & (breaks <= y)] for x, y in zip(tried[first], tried[last], strict=True)]
        tried = np.unique(np.concatenate([tried, *(_some(each, _COARSE) for each in near)]))
    best = np.log(gaps[p >= p.max() - 1e-12])
    ratio = min(max(math.exp(float(best.mean())), low), high)
    return TimeRatio(ratio, Interval(low, high, level, "inverted log-rank permutation test"))


def _some(ordered: Vector, most: int) -> Vector:
    """At most so many of the values, evenly chosen in rank."""
    if len(ordered) <= most:
        return ordered
    chosen: Vector = ordered[np.linspace(0, len(ordered) - 1, most).astype(np.intp)]
    return chosen


def _times(arm: CensoredTimes) -> Vector:
    """The finite times of an arm: those that a ratio can scale."""
    given_up = watched(arm.given_up)
    return np.concatenate([positive(arm.reached, 0), given_up[np.isfinite(given_up)]])
