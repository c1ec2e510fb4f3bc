"""A named figure over the processes that measured it: one value a process, and what they say together.

The process is the replicate. Values within one process agree with each other and not with those of the next, so they
are never pooled: each process gives one value, and the interval is over the processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from levelbench.measure.statistics import Estimate, Interval, estimate, estimate_signed
from levelbench.records.schema import Measurement

__all__ = ["Figure", "figure_of", "measured", "rate"]


@dataclass(frozen=True)
class Figure:
    """A figure in ``unit`` over the processes; ``values`` holds one a process, by its number.

    ``estimate`` is ``None`` where there is none, and ``reason`` says why. ``method`` says how each value was measured.
    """

    values: Mapping[int, float]
    estimate: Estimate | None
    reason: str = ""
    unit: str = ""
    method: str = ""


def figure_of(
    values: Mapping[int, float],
    unit: str,
    *,
    level: float = 0.95,
    reason: str = "it was not measured",
    method: str = "",
    signed: bool | None = None,
) -> Figure:
    """The figure of ``values``; without any, one that gives ``reason``.

    A difference (``signed``) has a mean; a cost, which is positive, a median or geometric mean. By default the values
    decide which it is.
    """
    if not values:
        return Figure({}, None, reason, unit, method)
    if signed is None:
        signed = any(value <= 0 for value in values.values())
    choose = estimate_signed if signed else estimate
    return Figure(values, choose(list(values.values()), level), "", unit, method)


def rate(
    values: Mapping[int, float],
    unit: str,
    *,
    level: float = 0.95,
    reason: str = "it was not measured",
    method: str = "",
) -> Figure:
    """A rate: its typical value is the inverse of that of the times, as all of its rules are those of times."""
    if not values:
        return Figure({}, None, reason, unit, method)
    times = estimate([1.0 / value for value in values.values()], level)
    inside = times.interval
    # Inverted, the ends change places; the median and the geometric mean invert with their values.
    interval = None if inside is None else Interval(1.0 / inside.high, 1.0 / inside.low, level, inside.method)
    found = Estimate(1.0 / times.value, interval, times.n, times.statistic)
    return Figure(values, found, "", unit, method)


def measured(found: Iterable[tuple[int, Mapping[str, Measurement]]], name: str, unit: str, level: float) -> Figure:
    """The measurement of that name, such as ``peak_memory``; ``found`` holds each process's by its number."""
    own = [(seed, measurements[name]) for seed, measurements in found if name in measurements]
    values = {seed: each.value for seed, each in own if each.value is not None}
    methods = dict.fromkeys(each.method for _, each in own if each.method)
    reason = next((each.reason for _, each in own if each.reason), "it was not measured")
    return figure_of(values, unit, level=level, reason=reason, method=", ".join(methods))
