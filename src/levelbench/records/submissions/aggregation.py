"""From the times of several runs to one figure, by the rule of a competition.

The one idea: the three rules differ in what a run that never arrived means: to DAWNBench's it is no entry, to MLPerf's
the slowest run (once), to ours a run of which only a lower bound of its time is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from levelbench.measure.statistics import kaplan_meier, log_mean_interval, median_interval, olympic_mean, t_quantile
from levelbench.records.rulesets.schema import Aggregation
from levelbench.records.submissions.figures import Figure, absent

__all__ = ["Times", "aggregate", "median_figure"]

_LEVEL = 0.95


class Times(Struct, frozen=True):
    """The runs of an entry, in its order: seconds to the target, ``None`` for one that did not arrive.

    For those, in order, ``spent_s`` is how long each tried and ``censored_s`` until when it is known not to have
    arrived: infinite for one that never could.
    """

    seconds: tuple[float | None, ...]
    spent_s: tuple[float, ...]
    censored_s: tuple[float, ...]


def aggregate(times: Times, rules: Aggregation) -> Figure:
    """The figure of the runs under ``rules``, or none with the reason."""
    if not times.seconds:
        return absent("it has no run")
    if rules.rule == "first-run":
        first = times.seconds[0]
        return absent("the run did not reach the target") if first is None else Figure(first, how="one run")
    return _olympic(times.seconds, rules) if rules.rule == "olympic" else _median(times)


def _olympic(seconds: Sequence[float | None], rules: Aggregation) -> Figure:
    """MLPerf's score; the interval is that of a trimmed mean (Tukey & McLaughlin 1963), which MLPerf does not print.

    t with h - 1 degrees of freedom for the h runs kept, and the standard deviation of the sample in which each
    run that is left out counts as the nearest one kept.
    """
    n, drop = len(seconds), rules.drop
    if n < rules.runs or (n > rules.runs and rules.exact_runs):
        return absent(f"{n} runs, where the rules want {rules.runs}")
    missed = sum(time is None for time in seconds)
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


def _median(times: Times) -> Figure:
    arrived = [time for time in times.seconds if time is not None]
    n = len(times.seconds)
    if len(arrived) == n:
        return median_figure(arrived, "run")
    if not arrived:
        return absent("no run reached the target")
    observed = [True] * len(arrived) + [False] * len(times.censored_s)
    found = kaplan_meier([*arrived, *times.censored_s], observed).median(_LEVEL)
    if not math.isfinite(found.value):
        return absent(f"no median: {len(arrived)} of {n} runs reached the target")
    how = f"Kaplan-Meier median of {n} runs, {len(arrived)} reached the target"
    if found.interval is None:
        return Figure(found.value, how=how)
    return Figure(found.value, found.interval.low, found.interval.high, f"{how}; 95 % Brookmeyer-Crowley interval")


def median_figure(values: Sequence[float], what: str) -> Figure:
    """The median of values above zero, with the interval that their number allows; ``what`` names one of them.

    From six on the exact interval of order statistics; from two on Student's t on the logarithms, which is the
    median's where the values are log-normal and always holds it; of one value none.
    """
    n = len(values)
    if n == 1:
        return Figure(values[0], how=f"one {what}")
    value, how = float(np.median(np.asarray(values))), f"median of {n} {what}s"
    interval = median_interval(values, _LEVEL)
    if interval is not None:
        return Figure(value, interval.low, interval.high, f"{how}; exact 95 % interval")
    if min(values) <= 0.0:
        return Figure(value, how=f"{how}, not all above zero")
    interval = log_mean_interval(values, _LEVEL)
    # With equal values the bounds are the median but for a rounding of the logarithms.
    return Figure(value, min(interval.low, value), max(interval.high, value), f"{how}; 95 % t interval on logarithms")
