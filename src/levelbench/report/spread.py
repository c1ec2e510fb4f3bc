"""From the runs of a group to one cell with its spread, and the sentence that says how the spread was made.

The one idea: the statistic follows from the data (``estimate`` chooses by n, Kaplan-Meier where runs are censored), so
the cell and its method travel together and the table prints both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from levelbench.report.numbers import number
from levelbench.report.tables import Absent, Cell, Number, Reached

if TYPE_CHECKING:
    from levelbench.measure.statistics import Estimate
    from levelbench.records.groups import RunGroup

__all__ = ["Spread", "mean_and_range", "spread_of_reached", "spread_of_times", "spread_of_values", "time_estimate"]


@dataclass(frozen=True)
class Spread:
    """A cell and the sentence on its statistic and interval (empty where there is none)."""

    cell: Cell
    method: str = ""


def spread_of_reached(group: RunGroup) -> Spread:
    """``k/n``; with Wilson's interval of the share where k < n."""
    from levelbench.measure.statistics import wilson

    if group.reached == group.n:
        return Spread(Reached(group.reached, group.n))
    interval = wilson(group.reached, group.n)
    return Spread(
        Reached(group.reached, group.n, interval.low, interval.high), _level(interval.level, "Wilson interval")
    )


def spread_of_values(values: Sequence[float | None]) -> Spread:
    """The estimate over the values that are there; how many, if some are not."""
    from levelbench.measure.statistics import estimate

    known = [float(value) for value in values if value is not None]
    if not known:
        return Spread(Absent())
    if min(known) <= 0.0:
        return mean_and_range(known)
    remark = "" if len(known) == len(values) else f"({len(known)} of {len(values)})"
    return _spread(estimate(known), remark)


def spread_of_times(group: RunGroup) -> Spread:
    """Time to accuracy: ``estimate`` if every run reached the target, else the Kaplan-Meier median, else why not."""
    found = time_estimate(group)
    if found is None:
        return Spread(
            Absent("no median: too few runs reached the target" if group.reached else "no run reached the target")
        )
    return _spread(found)


def time_estimate(group: RunGroup) -> Estimate | None:
    """The group's time to accuracy in seconds; ``None`` where fewer than half of the runs support a median.

    Runs that gave up are censored at the time they gave up (Kaplan & Meier 1958), never filled in and never dropped.
    """
    from levelbench.measure.statistics import estimate, estimate_signed, kaplan_meier

    pairs = [(run.time_to_accuracy_s if run.reached else run.given_up_s, run.reached) for run in group.runs]
    times = [time for time, _ in pairs if time is not None]
    if group.reached == group.n:
        return estimate(times) if min(times) > 0.0 else estimate_signed(times)
    if not group.reached or len(times) < group.n:
        return None
    return _finite(kaplan_meier(times, [reached for _, reached in pairs]).median())


def _finite(found: Estimate | None) -> Estimate | None:
    """``found`` if its value is a number."""
    return found if found is not None and math.isfinite(found.value) else None


def mean_and_range(values: Sequence[float]) -> Spread:
    """The arithmetic mean with the lowest and highest value: for qualities and for what may be zero."""
    if not values:
        return Spread(Absent())
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return Spread(Number(mean), "one run")
    return Spread(Number(mean, min(values), max(values)), "mean [lowest, highest]")


def _spread(found: Estimate, remark: str = "") -> Spread:
    """An estimate as a cell with its method."""
    if found.interval is None:
        return Spread(Number(found.value, remark=remark), f"{found.statistic} of n = {found.n}, no interval")
    cell = Number(found.value, found.interval.low, found.interval.high, remark)
    return Spread(cell, f"{found.statistic} with {_level(found.interval.level, found.interval.method)}, n = {found.n}")


def _level(level: float, method: str) -> str:
    """``95 % interval``."""
    return f"{number(level * 100)} % {method}"
