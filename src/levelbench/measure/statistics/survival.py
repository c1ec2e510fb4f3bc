"""Runs that never reach the target: Kaplan-Meier curves and the expected time with restarts.

A run that was given up is not missing and not slow by some filler, it is *censored*: all that is known is
that its time is longer than what it was given. The product-limit estimate uses exactly that.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from levelbench.measure.statistics.distributions import normal_quantile
from levelbench.measure.statistics.values import Estimate, Interval, check_share, finite


@dataclass(frozen=True)
class KaplanMeier:
    """A survival curve: the share of runs that have not yet reached the target.

    One entry for each time with an event, ascending: ``survival`` is S(t) from ``times`` on, ``variance`` Greenwood's,
    ``at_risk`` and ``events`` the counts there. ``n`` runs in all, the last of them observed until ``last`` (infinite
    with a run that could never have arrived).
    """

    times: tuple[float, ...]
    survival: tuple[float, ...]
    variance: tuple[float, ...]
    at_risk: tuple[int, ...]
    events: tuple[int, ...]
    n: int
    last: float

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
        """The first time at which S is 1/2 or less, with Brookmeyer and Crowley's interval (1982) on the log-log scale.

        Infinite where the curve, or a bound of it, stays above 1/2: half of the runs never got there.
        """
        bounds = [self._bounds(step, level) for step in range(len(self.times))]
        value = self._first_below(self.survival)
        low, high = (self._first_below([bound[side] for bound in bounds]) for side in (0, 1))
        return Estimate(value, Interval(low, high, level, "Brookmeyer-Crowley"), self.n, "Kaplan-Meier median")

    def _first_below(self, curve: Sequence[float]) -> float:
        # Products such as 6/7 * 7/12 miss 1/2 by a rounding.
        return next((t for t, share in zip(self.times, curve, strict=True) if share <= 0.5 + 1e-12), math.inf)

    def _bounds(self, step: int, level: float) -> tuple[float, float]:
        z = normal_quantile(0.5 + 0.5 * check_share("the level", level))
        share = self.survival[step]
        if share <= 0.0:
            # The log-log scale ends here: the last bound above zero still holds from above.
            return 0.0, self._bounds(step - 1, level)[1] if step else 1.0
        if share >= 1.0:
            return 1.0, 1.0
        reach = z * math.sqrt(self.variance[step]) / (share * abs(math.log(share)))
        return share ** math.exp(reach), share ** math.exp(-reach)


def kaplan_meier(times: Sequence[float], observed: Sequence[bool]) -> KaplanMeier:
    """The product-limit estimate (Kaplan & Meier 1958) with Greenwood's variance.

    ``times`` (n values, any unit): when a run reached its target where ``observed``, else when it was given up; a run
    given up at the instant of an event counts as at risk there, and one given up at infinity (it could never have
    arrived: it diverged) at every time, so that its early end does not raise the share of the others.

    ``ValueError`` for lengths that differ, no run, a time that is not a number, or an infinite one that was observed.
    """
    vector = np.asarray(times, dtype=np.float64).reshape(-1)
    events = np.asarray(observed, dtype=bool).reshape(-1)
    if len(events) != len(vector):
        raise ValueError(f"{len(vector)} times and {len(events)} observations")
    finite(vector[events | (vector != math.inf)], 0)
    if len(vector) == 0:
        raise ValueError("0 values, 1 or more are needed")
    steps = np.unique(vector[events])
    at_risk = [int((vector >= t).sum()) for t in steps]
    counts = [int((vector[events] == t).sum()) for t in steps]
    share, spread = 1.0, 0.0
    survival, variance = [], []
    for risk, count in zip(at_risk, counts, strict=True):
        share *= (risk - count) / risk
        spread += count / (risk * (risk - count)) if count < risk else 0.0
        survival.append(share)
        variance.append(share * share * spread)
    return KaplanMeier(
        tuple(map(float, steps)),
        tuple(survival),
        tuple(variance),
        tuple(at_risk),
        tuple(counts),
        len(vector),
        float(vector.max()),
    )


def expected_time_with_restarts(times: Sequence[float], given_up_s: Sequence[float]) -> float:
    """The mean time until a run succeeds if failed ones are started again, in the unit of ``times``.

    E = mean(times) + (1 - p) / p mean(given_up_s), with p the share that reached the target: a geometric number of
    failures, each at its own cost, and one success. Infinite if none reached it.
    """
    reached, failed = finite(times, 0), finite(given_up_s, 0)
    if len(reached) + len(failed) == 0:
        raise ValueError("0 values, 1 or more are needed")
    if len(reached) == 0:
        return math.inf
    return float((math.fsum(reached) + math.fsum(failed)) / len(reached))
