"""The raw values behind a figure, where the claim has them: what a rule needs to compute a summary again.

The one idea: a sample counts as a figure's only if the figure follows from it; a sample of something else would
accuse the innocent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean, median

from levelbench.claims.rules._common import sides
from levelbench.claims.view import Claim, Side, Summarised

__all__ = ["fixed_time", "matches", "sample_of", "side_qualities", "side_rates", "side_times"]

_PRINTED = 2e-3
"""A figure is that of a sample if they agree to three digits."""


def side_times(side: Side) -> list[float]:
    """The times of a side's runs in seconds, without failed ones."""
    return [run.time_s for run in side.runs if run.time_s is not None and run.time_s > 0.0 and not run.failed]


def side_rates(side: Side) -> list[float]:
    """Samples a second of each run, where the samples to the target are stated: all runs did the same work."""
    samples = side.workload.samples_to_target
    return [samples / time_s for time_s in side_times(side)] if samples else []


def side_qualities(side: Side) -> list[float]:
    """The qualities of a side's runs, without failed ones."""
    return [run.quality for run in side.runs if run.quality is not None and not run.failed]


def fixed_time(claim: Claim) -> bool:
    """Whether every side ran for a stated time, so that work differs and not time."""
    return bool(claim.sides) and all(side.clock.fixed_time_s is not None for side in claim.sides)


def matches(value: float, one: float, other: float) -> bool:
    """Whether ``value`` is ``one`` to three digits and clearly not ``other``; never where they are the same."""
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
    """The runs' values of which ``summary`` is the mean or median, and of as many runs; ``None`` if there are none."""
    for values in _samples(claim, summary):
        if len(values) < 2 or summary.value is None or summary.n not in (None, len(values)):
            continue
        usual = [fmean(values), median(values)]
        if min(values) > 0.0:
            usual.append(len(values) / math.fsum(1.0 / value for value in values))
        if any(abs(summary.value - each) <= _PRINTED * abs(each) for each in usual):
            return values
    return None
