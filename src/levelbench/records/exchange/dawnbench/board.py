"""DAWNBench's leaderboard, reproduced: four columns, each ordered, and its figures as its site printed them.

The one idea: its time counts to the first evaluation at the target and is shown with seconds rounded up; its cost of
inference is that of ten thousand answers. Source: the rules in the repository of its entries, and its published pages.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from levelbench.errors import UnknownNameError
from levelbench.measure.crossing import find_crossing
from levelbench.records.submissions.schema import Submission

__all__ = ["COLUMNS", "PRINTED_ANSWERS", "Row", "hours_minutes_seconds", "leaderboard", "shown", "value_of"]

COLUMNS = {
    "time": "training time",
    "cost": "training cost",
    "latency": "inference latency",
    "inference-cost": "inference cost",
}
PRINTED_ANSWERS = 10_000
"""The answers whose cost its site printed."""


@dataclass(frozen=True)
class Row:
    """One line: ``value`` in seconds or dollars (of one answer, for inference), ``text`` as the site printed it."""

    rank: int
    value: float
    text: str
    entry: Submission


def value_of(entry: Submission, column: str) -> float | None:
    """The entry's figure in ``column``: seconds, or US dollars; ``None`` where it has none or never arrived.

    Time is that of the first run, to its first evaluation at the target; cost is that time at the price.
    """
    if column not in COLUMNS:
        raise UnknownNameError("column of the leaderboard", column, COLUMNS)
    if column == "latency":
        return entry.inference[0].mean_latency_s if entry.inference else None
    if column == "inference-cost":
        return entry.inference[0].cost_usd if entry.inference else None
    time_s = _time(entry)
    if column == "time" or time_s is None:
        return time_s
    return None if entry.price is None else time_s / 3600 * entry.price.usd_per_hour


def _time(entry: Submission) -> float | None:
    if not entry.runs:
        return None
    curve, target = entry.runs[0].curve, entry.target
    found = find_crossing(curve.quality, target.threshold, direction=target.direction, rule="first", x=curve.time_s)
    return None if found is None else found.position


def leaderboard(entries: Iterable[Submission], column: str, top: int | None = None) -> list[Row]:
    """The entries of one task that have a figure in ``column``, the best first; its site showed the ``top`` five."""
    valued = [(value, each) for each in entries if (value := value_of(each, column)) is not None]
    valued.sort(key=lambda pair: (pair[0], pair[1].origin.file if pair[1].origin else "", pair[1].model))
    return [Row(at, value, shown(value, column), each) for at, (value, each) in enumerate(valued[:top], 1)]


def shown(value: float, column: str) -> str:
    """The figure as its site printed it: ``0:30:43``, ``$49.30``, ``9.784 ms``, and the cost of 10,000 answers.

    Sites printed a latency to three or four digits; four are given here. What would round to $0.00 has two digits.
    """
    if column == "time":
        return hours_minutes_seconds(value)
    if column == "latency":
        return f"{value * 1000:.4g} ms"
    usd = value * (PRINTED_ANSWERS if column == "inference-cost" else 1)
    return f"${usd:.2f}" if usd == 0 or abs(usd) >= 0.005 else f"${usd:.2g}"


def hours_minutes_seconds(seconds: float) -> str:
    """``H:MM:SS`` with seconds rounded up.

    >>> hours_minutes_seconds(1842.9984), hours_minutes_seconds(370087.79)
    ('0:30:43', '102:48:08')
    """
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
