"""Imported measurements ranked as MLPerf Inference ranks them: each scenario alone, by the scenario's own metric.

The one idea: a latency of one query alone and one under load measure different things, so they never share a list; and
a run that LoadGen does not call VALID is no result, so it is left out and named.
Source: MLPerf Inference rules, section on scenarios; LoadGen prints each metric first in its summary.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from levelbench.records.submissions.schema import Inference, Submission

__all__ = ["METRICS", "LeftOut", "Metric", "Ranked", "Ranking", "rankings", "value_of"]


@dataclass(frozen=True)
class Metric:
    """What a scenario is ranked by: a latency in seconds, the lower the better, or samples a second, the higher."""

    name: str
    unit: str
    best: str


METRICS = {
    "single-stream": Metric("early-stopping estimate of the 90th percentile", "s", "lower"),
    "multi-stream": Metric("early-stopping estimate of the 99th percentile", "s", "lower"),
    "server": Metric("completed samples a second within the bound", "1/s", "higher"),
    "offline": Metric("samples a second", "1/s", "higher"),
}
_QUANTILES = {"single-stream": 0.9, "multi-stream": 0.99}


@dataclass(frozen=True)
class Ranked:
    """One line: ``value`` in the unit of the scenario's metric."""

    rank: int
    value: float
    entry: Submission


@dataclass(frozen=True)
class LeftOut:
    """A measurement that is in no ranking, and why."""

    entry: Submission
    scenario: str
    reason: str


@dataclass(frozen=True)
class Ranking:
    """The measurements of one task in one scenario, the best first, and those that are left out."""

    task: str
    scenario: str
    rows: list[Ranked]
    left_out: list[LeftOut]


def value_of(measured: Inference) -> tuple[float | None, str]:
    """The scenario's own figure; ``None`` with the reason for a run that LoadGen does not call VALID or that has none.

    No other figure stands in for a missing one: a mean is not a percentile.
    """
    if measured.valid is not True:
        return None, "LoadGen calls it INVALID" if measured.valid is False else "no verdict of LoadGen's is there"
    wanted = _QUANTILES.get(measured.scenario)
    if wanted is None:
        rate = measured.throughput_per_s
        return (rate, "") if rate is not None else (None, "its rate is not stated")
    if measured.estimate_s is None or measured.estimate_quantile != wanted:
        return None, f"there is no early-stopping estimate of its {wanted * 100:g}th percentile"
    return measured.estimate_s, ""


def rankings(entries: Iterable[Submission], top: int | None = None) -> list[Ranking]:
    """A ranking for each task and scenario that occurs, at most ``top`` rows each; equal figures share a rank."""
    groups: dict[tuple[str, str], list[tuple[Submission, Inference]]] = {}
    for entry in entries:
        for measured in entry.inference:
            if measured.scenario in METRICS:
                groups.setdefault((entry.task, measured.scenario), []).append((entry, measured))
    order = list(METRICS)
    return [
        _ranking(task, scenario, groups[task, scenario], top)
        for task, scenario in sorted(groups, key=lambda key: (key[0], order.index(key[1])))
    ]


def _ranking(task: str, scenario: str, members: list[tuple[Submission, Inference]], top: int | None) -> Ranking:
    sign = 1 if METRICS[scenario].best == "lower" else -1
    valued, left_out = [], []
    for entry, measured in members:
        value, reason = value_of(measured)
        if value is None:
            left_out.append(LeftOut(entry, scenario, reason))
        else:
            valued.append((value, entry))
    valued.sort(key=lambda pair: (sign * pair[0], pair[1].origin.file if pair[1].origin else ""))
    values = [value for value, _ in valued]
    rows = [Ranked(values.index(value) + 1, value, entry) for value, entry in valued[:top]]
    return Ranking(task, scenario, rows, left_out)
