"""From the runs of a group to one cell with its spread, and the sentence that says how the spread was made.

The one idea: the statistic follows from the data (``estimate`` chooses by n, Kaplan-Meier where runs are censored), so
the cell and its method travel together and the table prints both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from levelbench.measure.statistics.values import RANGE
from levelbench.report.numbers import number
from levelbench.report.tables import Absent, Cell, Number, Reached

if TYPE_CHECKING:
    from levelbench.measure.statistics import Estimate
    from levelbench.records.groups import RunGroup

__all__ = [
    "Spread",
    "mean_and_range",
    "spread_of_reached",
    "spread_of_restarts",
    "spread_of_times",
    "spread_of_values",
    "time_estimate",
]


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

    known = [float(value) for value in values if value is not None and math.isfinite(value)]
    if not known or min(known) <= 0.0:
        return mean_and_range(values)
    return _spread(estimate(known), _remark(known, values))


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

    Runs that gave up are censored at the time they gave up (Kaplan & Meier 1958), those that could never arrive at
    infinity; none is filled in or dropped.
    """
    from levelbench.measure.statistics import estimate, estimate_signed, kaplan_meier

    times, given_up = _times(group), group.given_up()
    if not times:
        return None
    if not given_up:
        return estimate(times) if min(times) > 0.0 else estimate_signed(times)
    observed = [True] * len(times) + [False] * len(given_up)
    return _finite(kaplan_meier([*times, *given_up], observed).median())


def spread_of_restarts(group: RunGroup) -> Spread:
    """The mean time until a run succeeds if those that missed are started again, each at the cost it had."""
    from levelbench.measure.statistics import expected_time_with_restarts

    times = _times(group)
    if not times:
        return Spread(Absent("no run reached the target"))
    costs = [run.given_up_s or 0.0 for run in group.runs if not run.reached]
    return Spread(
        Number(expected_time_with_restarts(times, costs)),
        "mean time until a run succeeds if those that miss are started again, no interval",
    )


def _times(group: RunGroup) -> list[float]:
    """The times of the runs that reached the target."""
    return [time for time in group.times() if time is not None]


def _finite(found: Estimate | None) -> Estimate | None:
    """``found`` if its value is a number."""
    return found if found is not None and math.isfinite(found.value) else None


def mean_and_range(values: Sequence[float | None]) -> Spread:
    """The arithmetic mean with the lowest and highest value: for qualities and for what may be zero.

    A figure that is not finite, as a diverged run may have, is none; how many there are is said if some are not.
    """
    known = [float(value) for value in values if value is not None and math.isfinite(value)]
    if not known:
        lost = any(value is not None for value in values)
        return Spread(Absent("not a finite number in any run" if lost else ""))
    # Divided first: the sum of figures that a float can just hold is beyond it.
    mean = math.fsum(value / len(known) for value in known)
    if len(known) == 1:
        return Spread(Number(mean, remark=_remark(known, values)), "one run")
    return Spread(Number(mean, min(known), max(known), _remark(known, values)), "mean [lowest, highest]")


def _remark(known: Sequence[float], values: Sequence[float | None]) -> str:
    """How many of the values are there, if some are not."""
    return "" if len(known) == len(values) else f"({len(known)} of {len(values)})"


def _spread(found: Estimate, remark: str = "") -> Spread:
    """An estimate as a cell with its method."""
    if found.interval is None:
        return Spread(Number(found.value, remark=remark), f"{found.statistic} of n = {found.n}, no interval")
    cell = Number(found.value, found.interval.low, found.interval.high, remark)
    if found.interval.method == RANGE:
        return Spread(cell, f"{found.statistic} [lowest, highest], n = {found.n}: too few for an interval")
    return Spread(cell, f"{found.statistic} with {_level(found.interval.level, found.interval.method)}, n = {found.n}")


def _level(level: float, method: str) -> str:
    """``95 % interval``."""
    return f"{number(level * 100)} % {method}"
