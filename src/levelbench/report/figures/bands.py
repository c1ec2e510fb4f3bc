"""Accuracy curves as data: each run's curve over seconds or samples, and the band over a group's runs.

The one idea: a curve is known only where it was evaluated. Between two evaluations it is drawn straight, after a run's
last evaluation its value is held, and before the first one of any run there is no band. The band is the middle half
of the runs (quartiles), or their whole range where there are fewer than five; each run is drawn besides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from levelbench.report.tables import Cell, Column, Kind, Number, Table, Text

if TYPE_CHECKING:
    from levelbench.records.groups import RunGroup
    from levelbench.records.reader import Record
    from levelbench.records.schema import Evaluation, Specification
    from levelbench.records.summary import RunSummary

__all__ = ["AXES", "Axis", "Band", "Curve", "Curves", "curves_of", "evaluations_table", "quality_of"]

_GRID = 160
_QUARTILES_FROM = 5


@dataclass(frozen=True)
class Axis:
    """What a curve runs along: ``key`` and ``title`` name it, ``kind`` gives its unit."""

    key: str
    title: str
    kind: Kind


AXES = (Axis("time_s", "time", Kind.TIME_S), Axis("samples", "samples seen", Kind.NUMBER))


@dataclass(frozen=True)
class Curve:
    """One run: ``x`` ascending (seconds on the clock, or samples), ``quality`` of the same length."""

    run: str
    seed: int
    x: tuple[float, ...]
    quality: tuple[float, ...]
    reached_at: float | None

    def at(self, x: float) -> float:
        """The quality at ``x`` on the straight line between its neighbours; held after the last evaluation."""
        return float(np.interp(x, self.x, self.quality))


@dataclass(frozen=True)
class Band:
    """Over a group's runs, at each ``x``: the median quality, and from ``low`` to ``high`` what ``kind`` says."""

    kind: str

    x: tuple[float, ...]
    low: tuple[float, ...]
    median: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class Curves:
    """A group's curves along one axis, and their band (empty where no run was evaluated)."""

    label: str
    runs: tuple[Curve, ...]
    band: Band


def quality_of(evaluation: Evaluation, specification: Specification) -> float | None:
    """The evaluation's quality on the target's split, ``None`` if it was not evaluated there."""
    return evaluation.quality.get(specification.target.split)


def curves_of(group: RunGroup, records: Sequence[Record], axis: Axis) -> Curves:
    """The curves of ``records``, the group's runs, along ``axis``; time is on the group's clock policy."""
    position = _position(group.specification.clock, axis)
    reached = {run.id: _reached_at(run, axis) for run in group.runs}
    runs = []
    for record in group.own(records):
        points = [(position(each), quality_of(each, group.specification)) for each in record.evaluations]
        # A diverged run's quality may be no number: there is nothing to draw there.
        known = [(x, quality) for x, quality in points if quality is not None and math.isfinite(quality)]
        if known:
            x, quality = zip(*known, strict=True)
            runs.append(Curve(record.header.id, record.header.seed, x, quality, reached.get(record.header.id)))
    return Curves(group.label, tuple(runs), _band(runs))


def _position(clock: str, axis: Axis) -> Callable[[Evaluation], float]:
    """Where an evaluation lies on ``axis``."""
    from levelbench.measure.policies import policy

    chosen = policy(clock)
    return {
        "time_s": lambda evaluation: chosen.score(evaluation.phases_ns).seconds,
        "samples": lambda evaluation: float(evaluation.samples),
    }[axis.key]


def _reached_at(run: RunSummary, axis: Axis) -> float | None:
    """Where a run reached its target on ``axis``, if it did."""
    return {"time_s": run.time_to_accuracy_s, "samples": run.samples_to_target}[axis.key] if run.reached else None


def _band(runs: Sequence[Curve]) -> Band:
    """The band on the evaluations' own positions, at most ``_GRID`` of them."""
    if not runs:
        return Band("", (), (), (), ())
    start = max(run.x[0] for run in runs)
    grid = np.unique(np.concatenate([np.asarray(run.x) for run in runs]))
    grid = grid[grid >= start]
    if len(grid) > _GRID:
        grid = grid[np.unique(np.linspace(0, len(grid) - 1, _GRID).round().astype(int))]
    values = np.stack([np.interp(grid, run.x, run.quality) for run in runs])
    kind, share = ("quartiles", 0.25) if len(runs) >= _QUARTILES_FROM else ("range", 0.0)
    columns = (grid, *np.quantile(values, (share, 0.5, 1.0 - share), axis=0))
    return Band(kind, *(tuple(float(value) for value in column) for column in columns))


def evaluations_table(groups: Sequence[tuple[RunGroup, Sequence[Record]]]) -> Table:
    """Every evaluation of every run, one a row: the data of the curves, in base units."""
    columns = (
        Column("group", "runs of"),
        Column("run", "run"),
        Column("seed", "seed", Kind.NUMBER),
        Column("epoch", "epoch", Kind.NUMBER, digits=4),
        Column("samples", "samples seen", Kind.NUMBER),
        Column("time_s", "time on the clock", Kind.TIME_S, digits=4),
        Column("quality", "quality", Kind.NUMBER, digits=4),
    )
    rows: list[tuple[Cell, ...]] = []
    for group, records in groups:
        time = _position(group.specification.clock, AXES[0])
        for record in group.own(records):
            for each in record.evaluations:
                quality = quality_of(each, group.specification)
                if quality is not None:
                    numbers = (record.header.seed, each.epoch, each.samples, time(each), quality)
                    rows.append((Text(group.label), Text(record.header.id), *(Number(value) for value in numbers)))
    return Table("curves", "Evaluations", columns, tuple(rows))
