"""Figures of a task's runs: curves over time and over samples, times to accuracy, phases; as SVG for a page.

A figure always has its table, because the drawing is optional (matplotlib is an extra) and the data is not. A curve is
known only where it was evaluated: it is a step function that holds its last value. A run counts as worse than all
others before its first evaluation, so the median begins once half of the runs have been evaluated and does not wait for
the slowest; leaving such a run out would show the fast ones alone.

With scripts, ``figures.js`` draws the curves again, to be pointed at; the other drawings are pointed at as they are.
"""

from __future__ import annotations

import importlib.util
import json
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from levelbench.analysis.ties import time_estimate
from levelbench.report.canvas import (
    INK_PLACEHOLDER,
    mark,
    page_canvas,
    page_svg,
    phase_colour,
    series_colour,
    time_scale,
)
from levelbench.report.markup import DASHES, PHASES, SERIES
from levelbench.report.numbers import estimate_text, number, text_of
from levelbench.report.runs import phase_seconds, phases_by_group, target_text
from levelbench.report.tables import Absent, Cell, Column, ColumnKind, Number, Table, Text, clean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from levelbench.records.reader import Record
    from levelbench.records.schema import Evaluation, Specification, Target
    from levelbench.records.summary import RunGroup, RunSummary

__all__ = ["AXES", "Axis", "Band", "Curves", "Group", "Plot", "PlottedRun", "can_draw", "curves_of", "draw_curves"]
__all__ += [
    "draw_phases",
    "draw_run",
    "draw_times",
    "evaluations_table",
    "figures_of",
    "quality_of",
    "y_limits",
]

Group = tuple["RunGroup", Sequence["Record"]]

_BAND_ROWS = 24


@dataclass(frozen=True)
class Plot:
    """A figure: ``svg`` is empty if it could not be drawn; ``data`` has every value, ``table`` the ones to read.

    ``live`` is what ``figures.js`` draws it from in a browser that runs scripts, as JSON; empty for a fixed drawing.
    """

    name: str
    title: str
    alt: str
    caption: str
    svg: str
    table: Table
    data: Table
    live: str = ""


def can_draw() -> bool:
    """Whether matplotlib is installed, without importing it."""
    return importlib.util.find_spec("matplotlib") is not None


def figures_of(groups: Sequence[Group], prefix: str = "") -> tuple[Plot, ...]:
    """The figures of one task's groups: curves over time and over samples, times to accuracy, phases.

    ``prefix`` makes their names unique on a page with several tasks.
    """
    return (
        *(_curves_figure(groups, axis, prefix) for axis in AXES if axis is AXES[0] or _count_samples(groups)),
        _times_figure(groups, f"{prefix}times"),
        _phases_figure(groups, f"{prefix}phases"),
    )


def _count_samples(groups: Sequence[Group]) -> bool:
    """Whether some run counts samples: a program that tells only its steps or epochs has one for each."""
    return any(each.samples != each.step for _, records in groups for record in records for each in record.evaluations)


def _curves_figure(groups: Sequence[Group], axis: Axis, prefix: str) -> Plot:
    """The accuracy curves along ``axis``."""
    specification = groups[0][0].specification
    curves = [curves_of(group, records, axis) for group, records in groups]
    name, metric = f"{prefix}curves-{axis.key.removesuffix('_s')}", specification.target.metric
    along = f"time on the {specification.clock} clock" if axis is AXES[0] else "training samples seen"
    svg = draw_curves(name, curves, axis, specification, along) if can_draw() else ""
    target = target_text(specification.target, specification.scored_by)
    caption = (
        f"Thin: single runs, with a dot where a run reached the target ({target}, rule {specification.crossing}). "
        f"Bold: the median over the runs. Band: {_bands(curves)}. "
        "Every value is held until the next evaluation. A run counts as worse than all others until its first "
        "evaluation, so the median begins once half of the runs have one."
    )
    ends = [
        f"{each.label} ends at a median of {each.band.median[-1]:.4g} ({len(each.runs)} runs)"
        for each in curves
        if each.band.x
    ]
    alt = f"Curves of {metric} over {along}, target {target}: {'; '.join(ends) or 'no evaluations'}."
    data = evaluations_table(groups)
    title = f"{metric[:1].upper()}{metric[1:]} over {along}"
    live = _live(curves, axis, specification, along)
    return Plot(name, title, alt, caption, svg, _band_table(name, curves, axis), data, live)


def _bands(curves: Sequence[Curves]) -> str:
    """A description of the bands."""
    kinds = {each.band.kind for each in curves if each.band.kind}
    words = {"quartiles": "the middle half of the runs", "range": "the lowest to the highest run"}
    return words[kinds.pop()] if len(kinds) == 1 else "the middle half of the runs, or the range of fewer than five"


def _band_table(name: str, curves: Sequence[Curves], axis: Axis) -> Table:
    """The bands at a readable number of positions."""
    columns = (
        Column("group", "runs of"),
        Column(axis.key, axis.title, axis.kind, digits=4),
        *(Column(key, key, ColumnKind.NUMBER, digits=4) for key in ("low", "median", "high")),
    )
    rows: list[tuple[Cell, ...]] = []
    for each in curves:
        band = each.band
        points = list(zip(band.x, band.low, band.median, band.high, strict=True))
        for x, *values in points[:: max(1, -(-len(points) // _BAND_ROWS))]:
            known = (Absent() if math.isnan(value) else Number(value) for value in values)
            rows.append((Text(each.label), Number(x), *known))
    return Table(name, f"Median over the runs by {axis.title}, and {_bands(curves)}", columns, tuple(rows))


def _times_figure(groups: Sequence[Group], name: str) -> Plot:
    """Each run's time to accuracy, with the group's estimate."""
    only = [group for group, _ in groups]
    table = _times_table(only)
    svg = draw_times(name, only) if can_draw() else ""
    parts = []
    for group in only:
        found = time_estimate(group, only)
        shown = text_of(found) if found else "no estimate"
        parts.append(f"{group.label} {shown}, {group.reached} of {group.n} reached the target")
    caption = (
        "Dots: runs that reached the target. Triangles: runs at the time when they were given up; they would have "
        "taken longer. Crosses: runs that could never arrive (failed, diverged, or their schedule was over), where "
        "they ended. Diamond and bar: the estimate with its interval (of fewer than six runs, "
        "from the lowest to the highest); an arrow marks an open end."
    )
    title = f"Time to accuracy on the {only[0].specification.clock} clock"
    return Plot(name, title, f"Time to accuracy: {'; '.join(parts)}.", caption, svg, table, table)


def _times_table(groups: Sequence[RunGroup]) -> Table:
    """One row per run: its time to accuracy, or when it was given up."""
    return Table.of(
        "times",
        "Time to accuracy of each run",
        [(group, run) for group in groups for run in group.runs],
        (Column("group", "runs of"), lambda row: row[0].label),
        (Column("run", "run"), lambda row: row[1].id[:8]),
        (Column("seed", "seed", ColumnKind.NUMBER), lambda row: row[1].seed),
        (
            Column("time_to_accuracy_s", "time to accuracy", ColumnKind.TIME_S),
            lambda row: row[1].time_to_accuracy_s if row[1].reached else None,
        ),
        (
            Column("given_up_s", "given up after", ColumnKind.TIME_S),
            lambda row: None if row[1].reached else row[1].given_up_s,
        ),
    ).without_empty()


def _phases_figure(groups: Sequence[Group], name: str) -> Plot:
    """Where the time went."""
    only = [group for group, _ in groups]
    table = phases_by_group(only)
    svg = draw_phases(name, only) if can_draw() else ""
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
        "Mean seconds of each phase over the runs, up to the evaluation at which the target counts as reached, or the "
        "last one of a run that missed it. A clock policy counts some of these phases."
    )
    return Plot(name, "Where the time went", f"Phases. {'; '.join(parts)}.", caption, svg, table, table)


_GRID = 160
_QUARTILES_FROM = 5


@dataclass(frozen=True)
class Axis:
    """The axis of a curve: ``key`` and ``title`` name it, ``kind`` gives its unit."""

    key: str
    title: str
    kind: ColumnKind


AXES = (Axis("time_s", "time", ColumnKind.TIME_S), Axis("samples", "samples seen", ColumnKind.NUMBER))


@dataclass(frozen=True)
class PlottedRun:
    """One run: ``x`` ascending (seconds on the clock, or samples), ``quality`` of the same length."""

    run: str
    seed: int
    x: tuple[float, ...]
    quality: tuple[float, ...]
    reached_at: float | None

    def at(self, x: float) -> float:
        """The quality at the last evaluation up to ``x``; not a number before the first."""
        place = bisect_right(self.x, x)
        return self.quality[place - 1] if place else math.nan

    def height(self) -> float:
        """The quality where it reached its target, which a crossing rule may place between two evaluations."""
        return float(np.interp(self.reached_at or 0.0, self.x, self.quality))


@dataclass(frozen=True)
class Band:
    """At each ``x``, over a group's runs: the median quality, and a band from ``low`` to ``high`` of this ``kind``.

    ``low`` and ``high`` are not a number while they depend on runs without an evaluation.
    """

    kind: str

    x: tuple[float, ...]
    low: tuple[float, ...]
    median: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class Curves:
    """A group's curves along one axis, and their band (empty if no run was evaluated)."""

    label: str
    runs: tuple[PlottedRun, ...]
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
        # The quality of a diverged run may be not-a-number: there is nothing to draw.
        known = [(x, quality) for x, quality in points if quality is not None and math.isfinite(quality)]
        if known:
            x, quality = zip(*known, strict=True)
            runs.append(PlottedRun(record.header.id, record.header.seed, x, quality, reached.get(record.header.id)))
    return Curves(group.label, tuple(runs), _band(runs, group.specification.target.direction))


def _position(clock: str, axis: Axis) -> Callable[[Evaluation], float]:
    """The position of an evaluation on ``axis``."""
    from levelbench.measure.policies import policy

    chosen = policy(clock)
    return {
        "time_s": lambda evaluation: chosen.score(evaluation.phases_ns).seconds,
        "samples": lambda evaluation: float(evaluation.samples),
    }[axis.key]


def _reached_at(run: RunSummary, axis: Axis) -> float | None:
    """The position on ``axis`` at which a run reached its target, if it did."""
    return {"time_s": run.time_to_accuracy_s, "samples": run.samples_to_target}[axis.key] if run.reached else None


def _band(runs: Sequence[PlottedRun], direction: str) -> Band:
    """The band at the positions of the evaluations, at most ``_GRID`` of them, from where the median is known."""
    if not runs:
        return Band("", (), (), (), ())
    grid = np.unique(np.concatenate([np.asarray(run.x) for run in runs]))
    worst = math.inf if direction == "lower" else -math.inf
    held = np.array([[run.at(x) for x in grid] for run in runs])
    values = np.sort(np.where(np.isnan(held), worst, held), axis=0)
    kind, share = ("quartiles", 0.25) if len(runs) >= _QUARTILES_FROM else ("range", 0.0)
    low, median, high = (_quantile(values, each) for each in (share, 0.5, 1.0 - share))
    shown = np.flatnonzero(~np.isnan(median))
    if len(shown) > _GRID:
        shown = shown[np.unique(np.linspace(0, len(shown) - 1, _GRID).round().astype(int))]
    return Band(kind, *(tuple(float(value) for value in column[shown]) for column in (grid, low, median, high)))


def _quantile(ordered: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """Linear between the neighbours in each sorted column; not a number where that needs an infinite one."""
    below, part = divmod(share * (len(ordered) - 1), 1.0)
    found = ordered[int(below)]
    if part:
        with np.errstate(invalid="ignore"):
            found = found + part * (ordered[int(below) + 1] - found)
    return np.where(np.isfinite(found), found, np.nan)


def _live(curves: Sequence[Curves], axis: Axis, specification: Specification, along: str) -> str:
    """The curves as JSON: positions in the axis's unit, five significant digits, ``null`` for what is not known."""
    target = specification.target
    times = [x for each in curves for run in each.runs for x in run.x]
    if not times:
        return ""
    scale, unit = time_scale(times) if axis.kind is ColumnKind.TIME_S else (1.0, "")

    def places(values: Sequence[float]) -> list[float]:
        return [float(f"{value / scale:.5g}") for value in values]

    def qualities(values: Sequence[float]) -> list[float | None]:
        return [None if math.isnan(value) else float(f"{value:.5g}") for value in values]

    points = _points_of_a_run(curves)
    groups = [
        {
            "label": clean(each.label),
            "dash": DASHES[at % len(DASHES)][1],
            "colour": f"--series-{at % len(SERIES)}",
            "band": [places(each.band.x), *map(qualities, (each.band.low, each.band.median, each.band.high))],
            "runs": [
                [
                    f"seed {run.seed}, run {clean(run.run[:8])}",
                    places(run.x[::step]),
                    qualities(run.quality[::step]),
                    None if run.reached_at is None else [*places([run.reached_at]), *qualities([run.height()])],
                ]
                for run in each.runs[:_MOST_RUNS]
                for step in [max(1, -(-len(run.x) // points))]
            ],
        }
        for at, each in enumerate(curves)
    ]
    found = {"along": clean(along), "unit": unit, "metric": clean(target.name(specification.scored_by))}
    drawn = {"target": target.threshold, "limits": y_limits(curves, target), "groups": groups}
    return json.dumps({**found, **drawn}, separators=(",", ":"))


def evaluations_table(groups: Sequence[tuple[RunGroup, Sequence[Record]]]) -> Table:
    """Every evaluation of every run, one per row: the data of the curves, in base units."""
    columns = (
        Column("group", "runs of"),
        Column("run", "run"),
        Column("seed", "seed", ColumnKind.NUMBER),
        Column("epoch", "epoch", ColumnKind.NUMBER, digits=4),
        Column("samples", "samples seen", ColumnKind.NUMBER),
        Column("time_s", "time on the clock", ColumnKind.TIME_S, digits=4),
        Column("quality", "quality", ColumnKind.NUMBER, digits=4),
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


_MOST_RUNS = 40
_MOST_POINTS = 4000


def _points_of_a_run(curves: Sequence[Curves]) -> int:
    """About how many points a run may have, so that many long runs make no large page."""
    return max(20, _MOST_POINTS // (max([1, *(len(each.runs) for each in curves)]) * len(curves)))


def draw_curves(name: str, curves: Sequence[Curves], axis: Axis, specification: Specification, along: str) -> str:
    """Single runs thin, medians bold, the range as a band, the target as a line. SVG text."""
    target = specification.target
    with page_canvas(name, 3.5) as (canvas, axes):
        scale, unit = (
            time_scale([x for each in curves for x in each.band.x]) if axis.kind is ColumnKind.TIME_S else (1.0, "")
        )
        points = _points_of_a_run(curves)
        for at, each in enumerate(curves):
            colour, dash = series_colour(at), DASHES[at % len(DASHES)]
            band = each.band
            x = [value / scale for value in band.x]
            axes.fill_between(x, band.low, band.high, color=colour, alpha=0.16, linewidth=0, step="post")
            for run in each.runs[:_MOST_RUNS]:
                draw_run(axes, run, scale, colour, points)
            axes.plot(x, band.median, color=colour, linewidth=2.2, linestyle=dash, drawstyle="steps-post")
        axes.axhline(target.threshold, color=INK_PLACEHOLDER, linewidth=1, linestyle=(0, (4, 3)))
        axes.annotate(
            f"target {target.threshold:.6g}", (0, target.threshold), (3, 3), ("axes fraction", "data"),
            "offset points", va="bottom",
        )  # fmt: skip
        axes.set_xlabel(clean(f"{along}, {unit}" if unit else along))
        axes.set_ylabel(clean(target.name(specification.scored_by)))
        axes.set_xlim(left=0)
        low, high = y_limits(curves, target)
        axes.set_ylim(low, high)
        if axis.kind is ColumnKind.NUMBER:
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        return page_svg(canvas, name)


def draw_run(axes: Axes, run: PlottedRun, scale: float, colour: str, points: int) -> None:
    """One run, thin, in about ``points`` points, with a dot where it reached its target."""
    step = max(1, -(-len(run.x) // points))
    x, quality = [x / scale for x in run.x[::step]], run.quality[::step]
    axes.plot(x, quality, color=colour, linewidth=0.7, alpha=0.55, drawstyle="steps-post")
    if run.reached_at is not None:
        axes.plot([run.reached_at / scale], [run.height()], "o", color=colour, markersize=3.5)


def y_limits(curves: Sequence[Curves], target: Target) -> tuple[float, float]:
    """Limits that show the approach to the target; early values far from it may be outside."""
    values = [value for each in curves for run in each.runs for value in run.quality] or [target.threshold]
    finals = [run.quality[-1] for each in curves for run in each.runs] or [target.threshold]
    if target.direction == "lower":
        best = min([*values, target.threshold]) if target.best is None else target.best
        room = 6 * max(abs(target.threshold - best), 1e-12)
        top = min(max(values), max(target.threshold + room, *finals))
        return min(*values, target.threshold) - 0.05 * room / 6, top
    highest = max([*values, target.threshold]) if target.high is None else target.high
    room = max(highest - target.threshold, 1e-12)
    floor = max(min(values), min([target.threshold - 6 * room, *(final - 2 * room for final in finals)]))
    ceiling = max([*values, target.threshold])
    return floor, min(highest, ceiling) + 0.08 * (ceiling - floor or room)


def draw_times(name: str, groups: Sequence[RunGroup]) -> str:
    """A row per group: each run's time, the estimate and its interval. SVG text."""
    with page_canvas(name, _height_in(len(groups), 0.62)) as (canvas, axes):
        runs = [run for group in groups for run in group.runs]
        seconds = [run.time_to_accuracy_s if run.reached else run.given_up_s for run in runs]
        scale, unit = time_scale([each for each in seconds if each is not None])
        for row, group in enumerate(groups):
            colour = series_colour(row)
            times = [(run, run.time_to_accuracy_s) for run in group.runs if run.time_to_accuracy_s is not None]
            reached = [time / scale for _, time in times]
            (dots,) = axes.plot(reached, [row + 0.16] * len(reached), "o", color=colour, markersize=5, alpha=0.6, mew=0)
            mark(dots, *(_told(group, run, estimate_text(time, None, None)) for run, time in times))
            missed = [(run, (run.given_up_s or 0.0) / scale) for run in group.runs if not run.reached]
            given_up = [time for _, time in missed]
            for run, time in missed:
                shape, how = ("x", "could never arrive, ended after") if run.hopeless else (">", "given up after")
                (one,) = axes.plot([time], [row + 0.16], shape, color=colour, markersize=6, mfc="none")
                mark(one, _told(group, run, f"{how} {estimate_text(time * scale, None, None)}"))
            found = time_estimate(group, groups)
            if found is not None:
                told = (group.label, "estimate", f"{group.label}, estimate: {text_of(found)}")
                if found.interval is not None:
                    last = max([*reached, *given_up]) * 1.05
                    low, high = found.interval.low / scale, min(found.interval.high / scale, last)
                    mark(axes.plot([low, high], [row - 0.16] * 2, color=colour, linewidth=2.5)[0], told)
                    # An end beyond the runs (open if half of them may never arrive) is an arrow.
                    if high == last:
                        mark(axes.plot([last], [row - 0.16], ">", color=colour, markersize=7)[0], told)
                mark(axes.plot([found.value / scale], [row - 0.16], "D", color=colour, markersize=7)[0], told)
        _rows(axes, [group.label for group in groups])
        axes.set_xlabel(f"time to accuracy, {unit}")
        axes.set_xlim(left=0)
        return page_svg(canvas, name)


def _told(group: RunGroup, run: RunSummary, what: str) -> tuple[str, str, str]:
    """What the mark of a run says."""
    which = f"seed {run.seed}, run {run.id[:8]}"
    return group.label, which, f"{group.label}, {which}: {what}"


def draw_phases(name: str, groups: Sequence[RunGroup]) -> str:
    """A stacked bar per group: mean seconds of each phase. SVG text; the legend is part of the page."""
    with page_canvas(name, _height_in(len(groups), 0.5)) as (canvas, axes):
        whole = [sum(sum(run.phases_s.values()) for run in group.runs) / group.n for group in groups]
        scale, unit = time_scale(whole)
        for row, group in enumerate(groups):
            left = 0.0
            for phase in PHASES:
                mean = sum(phase_seconds(run.phases_s).get(phase, 0.0) for run in group.runs) / group.n / scale
                if mean > 0:
                    (bar,) = axes.barh(row, mean, 0.56, left, color=phase_colour(phase), linewidth=0)
                    said = f"{estimate_text(mean * scale, None, None)}, {number(100 * mean * scale / whole[row], 2)} %"
                    mark(bar, (group.label, "mean of its runs", f"{group.label}, {phase}: {said}"))
                    left += mean
            sum_text = axes.annotate(
                number(whole[row] / scale), (left, row), (4, 0), textcoords="offset points", va="center"
            )
            # It is in the margin below; as part of the layout it would squeeze the axes, at worst to nothing.
            sum_text.set_in_layout(False)
            all_of_it = f"{group.label}, all phases: {estimate_text(whole[row], None, None)}"
            mark(sum_text, (group.label, "mean of its runs", all_of_it))
        _rows(axes, [group.label for group in groups])
        axes.set_xlabel(f"mean time of a run, {unit}")
        axes.set_xlim(0, max([*whole, 1e-9 * scale]) / scale * 1.14)
        return page_svg(canvas, name)


def _height_in(rows: int, each_in: float) -> float:
    """The height of a figure with ``rows`` rows; the axis below needs room even for a single row."""
    return max(2.0, 1.0 + each_in * rows)


def _rows(axes: Axes, labels: Sequence[str]) -> None:
    """Label the rows, first on top; long labels are wrapped, very long ones cut (the table has them in full)."""
    axes.set_yticks(range(len(labels)), [_short(label) for label in labels])
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0)


def _short(label: str) -> str:
    """At most three lines of about 22 characters, broken after ``[`` and commas."""
    lines = [""]
    for part in re.findall(r"[^\[,]*[\[,]?", clean(label)):
        if lines[-1] and len(lines[-1]) + len(part) > 22:
            lines.append("")
        lines[-1] += part
    shown = [line if len(line) <= 26 else f"{line[:25]}…" for line in lines]
    return "\n".join(shown if len(shown) <= 3 else [*shown[:2], "…"])
