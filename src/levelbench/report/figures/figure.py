"""A figure as a value: its SVG, the words for those who cannot see it, and the table of what it shows.

The one idea: the drawing is optional (matplotlib is an extra), the data is not. Every figure carries its table, and
where there is no drawing the page says what to install.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from levelbench.report.figures.bands import AXES, Axis, Curves, curves_of, evaluations_table
from levelbench.report.numbers import estimate_text
from levelbench.report.runs.spread import time_estimate
from levelbench.report.runs.summaries import phase_seconds, phases_by_group, target_text
from levelbench.report.tables import Absent, Cell, Column, Kind, Number, Table, Text

if TYPE_CHECKING:
    from levelbench.records.groups import RunGroup
    from levelbench.records.reader import Record

__all__ = ["Figure", "Group", "can_draw", "figures_of"]

Group = tuple["RunGroup", Sequence["Record"]]

_BAND_ROWS = 24


@dataclass(frozen=True)
class Figure:
    """A figure: ``svg`` is empty where it could not be drawn; ``data`` has every value, ``table`` the ones to read."""

    name: str
    title: str
    alt: str
    caption: str
    svg: str
    table: Table
    data: Table


def can_draw() -> bool:
    """Whether matplotlib is here; it is not imported to find out."""
    return importlib.util.find_spec("matplotlib") is not None


def figures_of(groups: Sequence[Group], prefix: str = "") -> tuple[Figure, ...]:
    """The figures of one task's groups: curves over time and over samples, times to accuracy, phases.

    ``prefix`` makes their names unique where a page has several tasks.
    """
    return (
        *(_curves(groups, axis, prefix) for axis in AXES),
        _times(groups, f"{prefix}times"),
        _phases(groups, f"{prefix}phases"),
    )


def _curves(groups: Sequence[Group], axis: Axis, prefix: str) -> Figure:
    """The accuracy curves along ``axis``."""
    specification = groups[0][0].specification
    curves = [curves_of(group, records, axis) for group, records in groups]
    name, metric = f"{prefix}curves-{axis.key.removesuffix('_s')}", specification.target.metric
    along = f"time on the {specification.clock} clock" if axis is AXES[0] else "training samples seen"
    svg = ""
    if can_draw():
        from levelbench.report.figures.plots import draw_curves

        svg = draw_curves(name, curves, axis, specification.target, along)
    target = target_text(specification.target)
    caption = (
        f"Thin: single runs, with a dot where a run reached the target ({target}, rule {specification.crossing}). "
        f"Bold: the median over the runs. Band: {_bands(curves)}. "
        "Straight between evaluations; held after a run's last one."
    )
    ends = [
        f"{each.label} ends at a median of {each.band.median[-1]:.4g} ({len(each.runs)} runs)"
        for each in curves
        if each.band.x
    ]
    alt = f"Curves of {metric} over {along}, target {target}: {'; '.join(ends) or 'no evaluations'}."
    data = evaluations_table(groups)
    return Figure(
        name, f"{metric[:1].upper()}{metric[1:]} over {along}", alt, caption, svg, _band_table(name, curves, axis), data
    )


def _bands(curves: Sequence[Curves]) -> str:
    """What the bands are, in words."""
    kinds = {each.band.kind for each in curves if each.band.kind}
    words = {"quartiles": "the middle half of the runs", "range": "the lowest to the highest run"}
    return words[kinds.pop()] if len(kinds) == 1 else "the middle half of the runs, of fewer than five their range"


def _band_table(name: str, curves: Sequence[Curves], axis: Axis) -> Table:
    """The bands at a readable number of positions."""
    columns = (
        Column("group", "runs of"),
        Column(axis.key, axis.title, axis.kind, digits=4),
        *(Column(key, key, Kind.NUMBER, digits=4) for key in ("low", "median", "high")),
    )
    rows: list[tuple[Cell, ...]] = []
    for each in curves:
        band = each.band
        points = list(zip(band.x, band.low, band.median, band.high, strict=True))
        for x, *values in points[:: max(1, -(-len(points) // _BAND_ROWS))]:
            rows.append((Text(each.label), Number(x), *(Number(value) for value in values)))
    return Table(name, f"Median over the runs, and {_bands(curves)}", columns, tuple(rows))


def _times(groups: Sequence[Group], name: str) -> Figure:
    """Each run's time to accuracy, with the group's estimate."""
    only = [group for group, _ in groups]
    table = _times_table(only)
    svg = ""
    if can_draw():
        from levelbench.report.figures.plots import draw_times

        svg = draw_times(name, only)
    parts = []
    for group in only:
        found = time_estimate(group)
        interval = found.interval if found else None
        bounds = (interval.low, interval.high) if interval else (None, None)
        shown = estimate_text(found.value, *bounds) if found else "no estimate"
        parts.append(f"{group.label} {shown}, {group.reached} of {group.n} reached the target")
    caption = (
        "Dots: runs that reached the target. Triangles: runs that were given up, at that time; theirs is longer. "
        "Crosses: runs that could never arrive (failed, diverged, or their schedule was over), where they ended. "
        "Diamond and bar: the estimate with its interval, an arrow where that goes on."
    )
    title = f"Time to accuracy on the {only[0].specification.clock} clock"
    return Figure(name, title, f"Time to accuracy: {'; '.join(parts)}.", caption, svg, table, table)


def _times_table(groups: Sequence[RunGroup]) -> Table:
    """One row a run: its time to accuracy, or when it was given up."""
    columns = (
        Column("group", "runs of"),
        Column("run", "run"),
        Column("seed", "seed", Kind.NUMBER),
        Column("time_to_accuracy_s", "time to accuracy", Kind.TIME_S),
        Column("given_up_s", "given up after", Kind.TIME_S),
    )
    rows: list[tuple[Cell, ...]] = []
    for group in groups:
        for run in group.runs:
            time, given_up = (run.time_to_accuracy_s, None) if run.reached else (None, run.given_up_s)
            cells = (Absent() if value is None else Number(value) for value in (time, given_up))
            rows.append((Text(group.label), Text(run.id[:8]), Number(run.seed), *cells))
    return Table("times", "Time to accuracy of each run", columns, tuple(rows)).without_empty()


def _phases(groups: Sequence[Group], name: str) -> Figure:
    """Where the time went."""
    only = [group for group, _ in groups]
    table = phases_by_group(only)
    svg = ""
    if can_draw():
        from levelbench.report.figures.plots import draw_phases

        svg = draw_phases(name, only)
    parts = []
    for group in only:
        totals: dict[str, float] = {}
        for run in group.runs:
            for phase, seconds in phase_seconds(run.phases_s).items():
                totals[phase] = totals.get(phase, 0.0) + seconds
        whole = sum(totals.values()) or 1.0
        largest = sorted(totals.items(), key=lambda item: -item[1])[:3]
        parts.append(
            f"{group.label}: " + ", ".join(f"{name} {100 * seconds / whole:.0f} %" for name, seconds in largest)
        )
    caption = (
        "Mean seconds of each phase over the runs, up to the evaluation at which the target counts as reached, "
        "or to the last one of a run that missed it. A clock policy counts a choice of these phases."
    )
    return Figure(name, "Where the time went", f"Phases. {'; '.join(parts)}.", caption, svg, table, table)
