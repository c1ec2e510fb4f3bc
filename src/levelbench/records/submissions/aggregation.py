"""From the times of several runs to one figure, by the rule of a competition.

The one idea: the three rules differ in what a run that never arrived means: to DAWNBench's it is no entry, to MLPerf's
the slowest run (once), to ours a run that took for ever. How long it tried decides nothing, so nobody gains by ending
a run early that looks bad.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

import msgspec
import numpy as np
from msgspec import Struct

from levelbench.measure.statistics import median_interval, olympic_mean, t_quantile
from levelbench.measure.statistics.intervals import median_interval_ranks
from levelbench.records.rulesets.olympic import window_median
from levelbench.records.rulesets.schema import Aggregation
from levelbench.records.submissions.figures import Figure, absent

__all__ = ["Times", "aggregate", "median_figure"]

_LEVEL = 0.95


class Times(Struct, frozen=True):
    """The runs of an entry, in its order: seconds to the target, ``None`` for one that did not arrive.

    For those, in order, ``spent_s`` is how long each tried.
    """

    seconds: tuple[float | None, ...]
    spent_s: tuple[float, ...]


def aggregate(times: Times, rules: Aggregation) -> Figure:
    """The figure of the runs under ``rules``, or none with the reason."""
    if not times.seconds:
        return absent("it has no run")
    if rules.rule == "first-run":
        first = times.seconds[0]
        return absent("the run did not reach the target") if first is None else Figure(first, how="one run")
    return _olympic(times.seconds, rules) if rules.rule == "olympic" else _median(times.seconds, rules.best_of)


def _olympic(seconds: Sequence[float | None], rules: Aggregation) -> Figure:
    """MLPerf's score; of more runs than are asked for that of the window in the middle, where rules have windows."""
    n = len(seconds)
    if n < rules.runs or (n > rules.runs and rules.exact_runs):
        return absent(f"{n} runs, where the rules want {rules.runs}")
    if n == rules.runs or rules.windows is None:
        return _trimmed(seconds, rules.drop)
    found = window_median(seconds, rules.runs, drop=rules.drop, even=rules.windows)
    count = len(found.scores_s)
    of = f"median ({rules.windows}) of the {count} windows of {rules.runs} among {n} runs"
    if found.score_s is None:
        return absent(f"{of}: in that window more than {rules.drop} did not reach the target")
    if found.window is None:
        return _between(found.score_s, [_trimmed(seconds[at : at + rules.runs], rules.drop) for at in found.middle], of)
    inside = _trimmed(seconds[found.window : found.window + rules.runs], rules.drop)
    return msgspec.structs.replace(inside, how=f"{of}: {inside.how}")


def _between(value: float, windows: Sequence[Figure], of: str) -> Figure:
    """The mean of two windows, with the interval that holds both of theirs."""
    how = f"{of}, which lies between two"
    lows = [each.low for each in windows if each.low is not None]
    highs = [each.high for each in windows if each.high is not None]
    if not (lows and highs):
        return Figure(value, how=how)
    return Figure(value, min(lows), max(highs), f"{how}; from the lowest to the highest end of their 95 % intervals")


def _trimmed(seconds: Sequence[float | None], drop: int) -> Figure:
    """The Olympic mean; the interval is that of a trimmed mean (Tukey & McLaughlin 1963), which MLPerf does not print.

    t with h - 1 degrees of freedom for the h runs kept, and the standard deviation of the sample in which each
    run that is left out counts as the nearest one kept.
    """
    n, missed = len(seconds), sum(time is None for time in seconds)
    mean = olympic_mean(seconds, drop)
    if mean is None:
        return absent(f"{missed} of {n} runs did not reach the target, and {drop} may")
    how = f"Olympic mean of {n} runs, {drop} left out at each end"
    kept = sorted(math.inf if time is None else time for time in seconds)[drop : n - drop]
    if len(kept) < 2:
        return Figure(mean, how=how)
    winsorised = [kept[0]] * drop + kept + [kept[-1]] * drop
    spread = float(np.std(winsorised, ddof=1)) / ((1.0 - 2.0 * drop / n) * math.sqrt(n))
    reach = t_quantile(0.5 + 0.5 * _LEVEL, len(kept) - 1) * spread
    return Figure(mean, max(0.0, mean - reach), mean + reach, f"{how}; 95 % interval of a trimmed mean")


def _median(seconds: Sequence[float | None], best_of: int) -> Figure:
    """The median of all, or of the fastest of each so many (one that never arrived counts as never)."""
    if len(seconds) % best_of:
        return absent(f"{len(seconds)} runs, where the rules want studies of {best_of}")
    studies = [seconds[first : first + best_of] for first in range(0, len(seconds), best_of)]
    bests = [min((time for time in study if time is not None), default=None) for study in studies]
    what = "run" if best_of == 1 else f"best-of-{best_of} run"
    arrived = [time for time in bests if time is not None]
    n = len(bests)
    if len(arrived) == n:
        return median_figure(arrived, what)
    if not arrived:
        return absent("no run reached the target")
    if 2 * len(arrived) <= n:
        return absent(f"no median: {len(arrived)} of {n} {what}s reached the target")
    ordered = sorted(math.inf if time is None else time for time in bests)
    value, how = float(median(ordered)), f"median of {n} {what}s, {len(arrived)} reached the target, the others never"
    ranks = median_interval_ranks(n, _LEVEL)
    if ranks is not None:
        return Figure(value, ordered[ranks[0] - 1], ordered[ranks[1] - 1], f"{how}; exact 95 % interval")
    # The median lies above the smallest of n values with probability 1 - 2^-n; above it nothing is known.
    return Figure(value, ordered[0], math.inf, f"{how}; from the smallest on, {100.0 * (1.0 - 0.5**n):.4g} % interval")


def median_figure(values: Sequence[float], what: str) -> Figure:
    """The median of values above zero, with the interval that their number allows; ``what`` names one of them.

    From six on the exact 95 % interval of order statistics; below, the smallest and the largest value, with the level
    that their number allows: 1 - 2^(1-n), which is 93.75 % of five. It is the median's own interval, whatever the
    distribution; a mean beside the median of runs that partly missed would reward ending a slow run. Of one value none.
    """
    n = len(values)
    if n == 1:
        return Figure(values[0], how=f"one {what}")
    value, how = float(median(values)), f"median of {n} {what}s"
    interval = median_interval(values, _LEVEL)
    if interval is not None:
        return Figure(value, interval.low, interval.high, f"{how}; exact 95 % interval")
    level = 100.0 * (1.0 - 0.5 ** (n - 1))
    return Figure(value, min(values), max(values), f"{how}; from the smallest to the largest, {level:.4g} % interval")
