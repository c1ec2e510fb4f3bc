"""The ratio of two arms' times when some runs were given up: an interval from a rank test.

Under an accelerated-time model arm b's times are ``ratio`` times those of arm a, so the ratios that a
log-rank test cannot reject, after b's times are divided by them, are the interval (Louis 1981, Biometrika 68:381; Wei &
Gail 1983, JASA 78:382). Nothing is filled in: a run that was given up only says "longer than this", and one that could
never have arrived (it diverged) says so of every time: it is given up at infinity, under any ratio.

The test is a permutation test, so that it holds for five runs an arm. Arms are first cut at a common horizon (the
earliest time that either arm was given up, on the scaled clock), because exchanging labels is only fair between arms
that were watched equally long.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np

from levelbench.measure.statistics.distributions import normal_cdf
from levelbench.measure.statistics.values import Interval, Vector, check_share, positive, watched

_MOST_ARRANGEMENTS = 20_000
_MOST_CANDIDATES = 400

_Indices = np.ndarray[tuple[int, int], np.dtype[np.intp]]


@dataclass(frozen=True)
class CensoredTimes:
    """One arm of runs: the times of those that reached the target, and when the others were given up (one unit).

    A run that could never have arrived is given up at infinity: it is at risk at every time, and shortens no horizon.
    """

    reached: tuple[float, ...]
    given_up: tuple[float, ...] = ()

    @property
    def n(self) -> int:
        """All runs."""
        return len(self.reached) + len(self.given_up)

    @property
    def horizon(self) -> float:
        """The time until which every run of the arm was surely watched."""
        return min(self.given_up, default=math.inf)


@dataclass(frozen=True)
class TimeRatio:
    """The ratio b / a that the ranks support best, and the ratios that they cannot reject (an open end is 0 or inf)."""

    ratio: float
    interval: Interval


def log_rank_p(a: CensoredTimes, b: CensoredTimes) -> float:
    """Two-sided permutation p value that both arms take equally long, by the log-rank test (Peto & Peto 1972).

    All arrangements of the labels if there are 20,000 or fewer, else the permutation mean and variance with a normal
    tail.
    """
    return _permutation_p(_scores(a, b), a.n)


def log_rank_sign(a: CensoredTimes, b: CensoredTimes) -> int:
    """1 if b arrives sooner or more often than a by the log-rank scores, -1 if later or less often, 0 if neither."""
    scores = _scores(a, b)
    difference = float(scores[a.n :].mean() - scores[: a.n].mean())
    return 0 if abs(difference) < 1e-12 else int(math.copysign(1, difference))


def _scores(a: CensoredTimes, b: CensoredTimes) -> Vector:
    """The log-rank score of each run, a's first: event (0 or 1) minus the cumulative hazard at its time.

    Both arms are cut at the earlier of their horizons.
    """
    times = np.array([*a.reached, *a.given_up, *b.reached, *b.given_up], dtype=np.float64)
    counts = [len(a.reached), len(a.given_up), len(b.reached), len(b.given_up)]
    event = np.repeat([True, False, True, False], counts)
    horizon = min(a.horizon, b.horizon)
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
    if math.comb(n, n_a) <= _MOST_ARRANGEMENTS:
        sums = np.abs(centred[_arrangements(n, n_a)].sum(axis=1))
        return float((sums >= seen - tolerance).mean())
    variance = n_a * (n - n_a) / (n * (n - 1)) * float((centred**2).sum())
    return 1.0 if variance <= 0.0 else 2.0 * normal_cdf(-seen / math.sqrt(variance))


@lru_cache(maxsize=32)
def _arrangements(n: int, k: int) -> _Indices:
    return np.array(list(combinations(range(n), k)), dtype=np.intp)


def time_ratio(a: CensoredTimes, b: CensoredTimes, level: float = 0.95) -> TimeRatio | None:
    """The ratio of times b / a and the interval that inverts :func:`log_rank_p`.

    ``None`` if no run reached the target, or if no run of one arm could have: there is no time to set against another.

    The p value changes only where a scaled time of b passes a time of a, so those ratios and the gaps between them are
    all there is to try (at most 400, evenly chosen in rank). The interval is the hull of what is not rejected.
    ``ValueError`` if a time is not positive, or one of a run that arrived not finite.
    """
    alpha = 1.0 - check_share("the level", level)
    times_a, times_b = _times(a), _times(b)
    if not (a.reached or b.reached) or not len(times_a) or not len(times_b):
        return None
    breaks = np.unique(np.outer(times_b, 1.0 / times_a))
    if len(breaks) > _MOST_CANDIDATES:
        breaks = breaks[np.linspace(0, len(breaks) - 1, _MOST_CANDIDATES).astype(np.intp)]
    gaps = np.concatenate([[breaks[0] / 2.0], np.sqrt(breaks[1:] * breaks[:-1]), [breaks[-1] * 2.0]])
    p = np.array([log_rank_p(a, _scaled(b, float(ratio))) for ratio in gaps])
    kept = np.flatnonzero(p > alpha)
    if len(kept) == 0:
        kept = np.flatnonzero(p == p.max())
    low = 0.0 if kept[0] == 0 else float(breaks[kept[0] - 1])
    high = math.inf if kept[-1] == len(breaks) else float(breaks[kept[-1]])
    best = np.log(gaps[p >= p.max() - 1e-12])
    ratio = min(max(math.exp(float(best.mean())), low), high)
    return TimeRatio(ratio, Interval(low, high, level, "inverted log-rank permutation test"))


def _times(arm: CensoredTimes) -> Vector:
    """The finite times of an arm: those that a ratio can move."""
    given_up = watched(arm.given_up)
    return np.concatenate([positive(arm.reached, 0), given_up[np.isfinite(given_up)]])


def _scaled(arm: CensoredTimes, ratio: float) -> CensoredTimes:
    return CensoredTimes(tuple(t / ratio for t in arm.reached), tuple(t / ratio for t in arm.given_up))
