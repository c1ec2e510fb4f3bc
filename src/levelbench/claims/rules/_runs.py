"""What the runs of a side show: their times, whether these may be normal, what their curves say about the target.

Normality is rejected only at the 1 % level and only with at least eight values: with fewer, no test can. A stated
crossing is never believed, but recomputed from the evaluations, as in ``measure.crossing``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from operator import ge, le
from statistics import fmean, median
from typing import NamedTuple

from levelbench.claims.rules._common import direction_of, sides
from levelbench.claims.view import Claim, Side, Summarised

__all__ = ["FEWEST", "Normality", "Seen", "curves_of", "fixed_time", "kurtosis_z", "matches", "normality"]
__all__ += ["sample_of", "side_qualities", "side_rates", "side_times", "skewness_z"]

_PRINTED = 2e-3
"""A figure is that of a sample if they agree to three digits."""


def side_times(side: Side) -> list[float]:
    """The times of a side's runs in seconds, without failed ones."""
    return [run.time_s for run in side.runs if run.time_s is not None and run.time_s > 0.0 and not run.failed]


def side_rates(side: Side) -> list[float]:
    """Samples per second of each run, if the samples to the target are stated: all runs did the same work."""
    samples = side.workload.samples_to_target
    return [samples / time_s for time_s in side_times(side)] if samples else []


def side_qualities(side: Side) -> list[float]:
    """The qualities of a side's runs, without failed ones."""
    return [run.quality for run in side.runs if run.quality is not None and not run.failed]


def fixed_time(claim: Claim) -> bool:
    """Whether every side ran for a stated time, so that the work differs, not the time."""
    return bool(claim.sides) and all(side.clock.fixed_time_s is not None for side in claim.sides)


def matches(value: float, one: float, other: float) -> bool:
    """Whether ``value`` is ``one`` to three digits and clearly not ``other``; never if these are the same."""
    away, apart = abs(value - one), abs(one - other)
    return 1e-9 * abs(one) < apart < math.inf and away <= min(_PRINTED * abs(one), 0.1 * apart)


def _samples(claim: Claim, summary: Summarised) -> Iterator[list[float]]:
    kinds: dict[str, Callable[[Side], list[float]]] = {
        "times": side_times,
        "rates": side_rates,
        "qualities": side_qualities,
    }
    if summary.of in kinds:
        for _, side in sides(claim):
            yield kinds[summary.of](side)


def sample_of(claim: Claim, summary: Summarised) -> Sequence[float] | None:
    """The runs' values whose mean or median is ``summary``, and of the same number; ``None`` if there are none."""
    for values in _samples(claim, summary):
        if len(values) < 2 or summary.value is None or summary.n not in (None, len(values)):
            continue
        usual = [fmean(values), median(values)]
        if min(values) > 0.0:
            usual.append(len(values) / math.fsum(1.0 / value for value in values))
        if any(abs(summary.value - each) <= _PRINTED * abs(each) for each in usual):
            return values
    return None


FEWEST = 8
"""Smallest n for the approximate distribution of the skewness (D'Agostino 1970)."""
_FEWEST_FOR_TAILS = 20
"""Smallest n for the approximate distribution of the kurtosis (Anscombe & Glynn 1983)."""
_Z = 2.5758293
_CHI_SQUARED = 9.2103404
"""1 % points: two-sided of the standard normal, and of chi-squared with two degrees of freedom."""


class Normality(NamedTuple):
    """``rejected`` at 1 %; ``skewness`` and ``kurtosis`` (3 for a normal sample) are those of the sample."""

    rejected: bool
    skewness: float
    kurtosis: float
    n: int


def normality(values: Sequence[float]) -> Normality | None:
    """D'Agostino and Pearson's K-squared (1973) from 20 values on, the test of skewness alone from 8 on; else ``None``.

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


class Seen(NamedTuple):
    """One run's curve and the target; indices are those of evaluations, ``at`` is that of the run.

    ``first`` is the first evaluation at the target, ``confirmed`` the second in a row, ``kept`` the first of those that
    stay there to the end; each is ``None`` if there is none. ``claimed`` is what the run itself states.
    """

    at: int
    evaluations: int
    first: int | None
    confirmed: int | None
    kept: int | None
    claimed: bool | None

    @property
    def ends_at_its_first_touch(self) -> bool:
        """Whether the first evaluation at the target is the last one of all."""
        return self.first is not None and self.first == self.evaluations - 1


_MOST = 12
_known: dict[int, tuple[Side, list[Seen]]] = {}
"""A cache of the last sides that rules asked about; it holds each side, so that no other can get its identity."""


def curves_of(side: Side) -> list[Seen]:
    """Every curve of a run that did not fail and whose columns have equal lengths.

    There is none if the target, or whether higher is better, is unknown.
    """
    held = _known.get(id(side))
    if held is None or held[0] is not side:
        while len(_known) >= _MOST:
            _known.pop(next(iter(_known)), None)
        held = _known[id(side)] = side, _seen(side)
    return held[1]


def _seen(side: Side) -> list[Seen]:
    sign, target = direction_of(side.quality), side.quality.target
    if sign is None or target is None or math.isnan(target):
        return []
    at_target = ge if sign > 0 else le
    found = []
    for at, run in enumerate(side.runs):
        if run.curve is None or run.failed or not run.curve.quality:
            continue
        if len(run.curve.time_s) != len(run.curve.quality):
            continue
        # One byte per evaluation; a quality that is not a number, or infinitely good, does not reach the target.
        qualities = run.curve.quality
        if sign * math.inf in qualities:
            qualities = [math.nan if math.isinf(each) else each for each in qualities]
        reached = bytes(map(at_target, qualities, repeat(target)))
        evaluations = len(reached)
        first, pair, kept = reached.find(1), reached.find(b"\1\1"), reached.rfind(0) + 1
        found.append(
            Seen(
                at,
                evaluations,
                first=first if first >= 0 else None,
                confirmed=pair + 1 if pair >= 0 else None,
                kept=kept if kept < evaluations else None,
                claimed=run.reached,
            )
        )
    return found
