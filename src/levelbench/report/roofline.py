"""Rooflines: of a benchmark of operators under its ceilings, and of any work under roofs that were measured beside it.

A point below a sloping roof is limited by memory, one below a flat roof by arithmetic (Williams, Waterman and
Patterson, "Roofline", CACM 52, 2009). With the bandwidth of each cache there is a slope for each level.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from levelbench.errors import UsageError
from levelbench.measure.statistics import Estimate
from levelbench.records.benchmark_summary import BenchmarkSummary
from levelbench.report.drawing import (
    INK,
    MARKERS,
    Spot,
    check_ending,
    draw,
    place_label,
    plain_axes,
    spots_around,
    wrap_titles,
)
from levelbench.report.markup import SERIES
from levelbench.report.numbers import number
from levelbench.report.tables import (
    Cell,
    CellValue,
    Column,
    ColumnKind,
    Number,
    Table,
    Text,
    clean,
    estimate_cell,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

    from levelbench.analysis.roofline import Roof, Roofline, RoofPlace

__all__ = ["RooflinePoint", "places_table", "roofline_points", "roofs_table", "write_roofline", "write_under_roofs"]

_GIGA = 1e-9
_LEAST_ROOM = 2.0
_SHOWN = 16


@dataclass(frozen=True)
class RooflinePoint:
    """A place in the figure, of one series (a framework, a kind): FLOP per byte, FLOP per second, and its interval.

    ``hollow``: it has no share of a roof, so that one of both is wrong.
    """

    series: str
    name: str
    intensity: float
    flop_s: float
    low: float | None = None
    high: float | None = None
    hollow: bool = False


def roofline_points(summary: BenchmarkSummary) -> list[RooflinePoint]:
    """Every measured problem whose FLOPs and bytes are known and not zero."""
    return [
        RooflinePoint(name, problem.name, entry.flops / entry.bytes, entry.flop_s)
        for problem, entries in summary.rows
        for name, entry in zip(summary.frameworks, entries, strict=True)
        if entry.status == "measured" and entry.flop_s and entry.flops and entry.bytes
    ]


def write_roofline(summary: BenchmarkSummary, path: Path) -> Path:
    """Draw to an ``.svg`` or ``.png`` file, completely or not at all.

    Raises ``UsageError`` for another ending or if there is no point to draw, ``MissingError`` without matplotlib.
    """
    check_ending(path)
    points = roofline_points(summary)
    if not points:
        found = "no problem with known FLOPs and bytes was measured"
        raise UsageError("a roofline figure", found, "measure one, such as Gemm or Conv")
    dtypes = dict.fromkeys(problem.tensors[0].dtype for problem, _ in summary.rows if problem.tensors)
    flat = {name: summary.ceilings["flop_s"][name]["value"] for name in dtypes if name in summary.ceilings["flop_s"]}
    triad = summary.ceilings["bandwidth_b_s"].get("triad")
    slopes = {} if triad is None else {"memory": triad["value"]}
    title = f"{summary.title}, {summary.direction}, {summary.cache} caches"

    def onto(figure: Canvas) -> None:
        axes = figure.add_subplot()
        draw_roofline(axes, title, points, flat, slopes, list(summary.frameworks))
        _write_labels(figure, axes, points, flat, slopes, [])

    return draw(path, summary.title, (6.4, 4.4), onto)


def draw_roofline(
    axes: Axes,
    title: str,
    points: Sequence[RooflinePoint],
    flat: Mapping[str, float],
    slopes: Mapping[str, float],
    series: Sequence[str],
) -> None:
    """Points by series under ``flat`` roofs (FLOP/s by precision) and ``slopes`` (bytes/s by level)."""
    for at, name in enumerate(series):
        mine = [point for point in points if point.series == name]
        if not mine:
            continue
        colour = SERIES[at % len(SERIES)][0]
        for hollow in sorted({point.hollow for point in mine}):
            some = [point for point in mine if point.hollow == hollow]
            axes.plot(
                [point.intensity for point in some],
                [point.flop_s * _GIGA for point in some],
                MARKERS[at % len(MARKERS)],
                color=colour,
                markerfacecolor="none" if hollow else colour,
                markersize=4.5,
                alpha=0.75,
                zorder=5,
                label=clean(f"{name}, no share" if hollow else name),
            )
        for point in mine:
            if point.low is not None and point.high is not None:
                axes.plot(
                    [point.intensity] * 2, [point.low * _GIGA, point.high * _GIGA], color=colour, linewidth=1, zorder=4
                )
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,g}")
        axis.set_minor_formatter(lambda value, _: "")
    low, high = (pick(point.intensity for point in points) for pick in (min, max))
    _roofs(axes, flat, slopes, low / _LEAST_ROOM, high * _LEAST_ROOM)
    axes.set_xlabel("FLOP per compulsory byte")
    axes.set_ylabel("GFLOP/s")
    axes.set_title(clean(title), fontsize=10)
    plain_axes(axes)
    axes.legend(frameon=False, fontsize=8.5, loc="best")


_PLATE = {"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.8}
"""What names of roofs stand on, as the next roof may run through them."""


def _roofs(axes: Axes, flat: Mapping[str, float], slopes: Mapping[str, float], low: float, high: float) -> None:
    if not flat:
        return
    ridges = [peak / slope for peak in flat.values() for slope in slopes.values()]
    left, right = (
        min([low, *(each / _LEAST_ROOM for each in ridges)]),
        max([high, *(each * _LEAST_ROOM for each in ridges)]),
    )
    best = max(slopes.values(), default=0.0)
    for peak in flat.values():
        axes.plot([max(left, peak / best) if best else left, right], [peak * _GIGA] * 2, color=INK, linewidth=1.2)
    top = max(flat.values())
    for slope in slopes.values():
        rate = slope * _GIGA
        end = top / slope
        axes.plot([left, end], [left * rate, end * rate], color=INK, linewidth=1.2)


def _write_labels(
    figure: Canvas,
    axes: Axes,
    points: Sequence[RooflinePoint],
    flat: Mapping[str, float],
    slopes: Mapping[str, float],
    named: Sequence[RooflinePoint],
) -> None:
    """Names of the roofs and of the ``named`` points, where they cover neither each other nor points and bars."""
    from matplotlib.transforms import Bbox

    wrap_titles(figure)
    figure.draw_without_rendering()
    taken = [] if axes.get_legend() is None else [axes.get_legend().get_window_extent()]
    for point in points:
        value = point.flop_s
        low, high = (value if each is None else each for each in (point.low, point.high))
        ends = axes.transData.transform([(point.intensity, each * _GIGA) for each in (low, value, high)])
        (x, y), room = ends[1], 5
        taken += [Bbox.from_extents(x - room, y - room, x + room, y + room)]
        taken += [Bbox.from_extents(x - 2, ends[0][1], x + 2, ends[2][1])]
    plate = {"fontsize": 8, "bbox": _PLATE}
    roofs = [line.get_path().vertices for line in axes.lines if line.get_color() == INK]
    for line in roofs:
        ends = axes.transData.transform(line)
        steps = [ends[0] + (ends[1] - ends[0]) * step / 100 for step in range(101)]
        taken += [Bbox.from_extents(x - 2, y - 1, x + 2, y + 1) for x, y in steps]
    left, right = (pick((x for line in roofs for x in line[:, 0]), default=1.0) for pick in (min, max))
    for name, peak in flat.items():
        places = [(right * (left / right) ** (step / 20), peak * _GIGA) for step in range(15)]
        spots = [Spot(place, (-0.1, 3)) for place in places]
        place_label(axes, f"{name}, {number(peak * _GIGA)} GFLOP/s", spots, taken, **plate)
    top = max(flat.values(), default=0.0)
    for name, slope in slopes.items() if flat else ():
        xs = [left * (top / slope / left) ** (step / 20) for step in range(1, 20)]
        # To the left of a rising line, if need be beyond the next one, with a line that leads there.
        ways = [(-far, 0.6 * far) for far in (3, 16, 30, 44, 60)]
        spots = [Spot((x, x * slope * _GIGA), by) for by in ways for x in xs]
        place_label(axes, f"{name}, {number(slope * _GIGA)} GB/s", spots, taken, **plate)
    for point in named:
        spots = spots_around((point.intensity, point.flop_s * _GIGA))
        place_label(axes, clean(point.name), spots, taken, fontsize=7)


def roofs_table(found: Roofline) -> Table:
    """Each roof with its interval, and how much it varied."""
    rows: list[tuple[Cell, ...]] = []
    for each in found.roofs:
        size = "" if each.capacity_bytes is None else f", up to {number(each.capacity_bytes / 1024)} KiB"
        what = f"matrix product, {each.name}" if each.kind == "compute" else f"reading, {each.name}{size}"
        unit = "GFLOP/s" if each.kind == "compute" else "GB/s"
        rows.append((Text(what), _giga(each.rate), Text(unit), Number(each.spread)))
    columns = (
        Column("roof", "roof of this machine"),
        Column("rate", "measured", ColumnKind.NUMBER),
        Column("unit", ""),
        Column("spread", "varied by", ColumnKind.SHARE, digits=2),
    )
    note = (
        f"Over {found.processes} processes, beside the work: the best round of each, with {_interval_words(found)}. "
        "Varied by: interquartile range over median of the rounds."
    )
    return Table("roofs", "Roofs", columns, tuple(rows), (note,))


def places_table(found: Roofline) -> Table:
    """Every place: time, rates, and share of the roof that bounds it, or why there is none."""

    def share(each: RoofPlace) -> CellValue:
        remark = f"{each.roof}{', ' + each.reason if each.reason else ''}"
        return estimate_cell(each.share, each.reason, remark)

    counts = any(each.count > 1 for each in found.places)
    return Table.of(
        "roofline",
        f"Roofline of {found.title}",
        found.places,
        (Column("name", "what"), _named),
        *(((Column("count", "nodes", ColumnKind.NUMBER), lambda each: each.count),) if counts else ()),
        (Column("time_s", "time", ColumnKind.TIME_S), lambda each: estimate_cell(each.time_s)),
        (Column("flop_s", "GFLOP/s", ColumnKind.NUMBER), lambda each: _giga(each.flop_s)),
        (Column("bytes_s", "GB/s", ColumnKind.NUMBER), lambda each: _giga(each.bytes_s)),
        (Column("intensity", "FLOP a byte", ColumnKind.NUMBER), lambda each: each.intensity),
        (Column("share", "of the roof", ColumnKind.SHARE, digits=2), share),
        notes=(
            "of the roof: the least time that the roofs allow, over the time, with the roof that binds. A whole is "
            "bounded by the sum over its operators; bytes are the compulsory ones, and an update's are not counted.",
        ),
    )


def _named(each: RoofPlace) -> str:
    return f"  {each.label}" if each.kind == "operator" else each.name


def _interval_words(found: Roofline) -> str:
    return f"{found.level * 100:g} % intervals" if found.processes > 5 else "lowest and highest"


def _giga(rate: Estimate | None) -> Cell:
    return estimate_cell(rate, scale=_GIGA)


def _bands(axes: Axes, roofs: Sequence[Roof]) -> None:
    """How far each roof is known: a place above its line may lie below the roof all the same."""
    left, right = axes.get_xlim()
    top = max((each.rate.value for each in roofs if each.kind == "compute"), default=math.inf)
    for each in roofs:
        if (inside := each.rate.interval) is None:
            continue
        flat = each.kind == "compute"
        ends = (left, right) if flat else (left, min(right, top / each.rate.value))
        low, high = ([bound * _GIGA * (1.0 if flat else x) for x in ends] for bound in (inside.low, inside.high))
        axes.fill_between(ends, low, high, color=INK, alpha=0.07, linewidth=0)
    axes.set_xlim(left, right)


def write_under_roofs(found: Roofline, path: Path) -> Path:
    """Draw the places under their roofs; errors as of ``write_roofline``. Those without a share are hollow."""
    check_ending(path)
    points = []
    for each in found.places:
        if each.flop_s is None or each.intensity is None:
            continue
        inside = each.flop_s.interval
        low, high = (inside.low, inside.high) if inside else (None, None)
        series = each.kind if each.kind != "operator" else f"operator, {each.direction}"
        points.append(
            RooflinePoint(series, each.label, each.intensity, each.flop_s.value, low, high, each.share is None)
        )
    if not points:
        raise UsageError("a roofline figure", "no place has known FLOPs and bytes", "give a network of ONNX operators")
    dtypes = {each.dtype for each in found.places}
    flat = {each.name: each.rate.value for each in found.roofs if each.kind == "compute" and each.name in dtypes}
    slopes = {each.name: each.rate.value for each in found.roofs if each.kind == "memory"}
    kinds = list(dict.fromkeys(point.series for point in points))

    def onto(figure: Canvas) -> None:
        axes = figure.add_subplot()
        known = f"; bars and bands: {_interval_words(found)}" * (found.processes > 1)
        draw_roofline(axes, f"{found.title}, n = {found.processes} processes{known}", points, flat, slopes, kinds)
        _bands(axes, [each for each in found.roofs if each.name in flat or each.name in slopes])
        _write_labels(figure, axes, points, flat, slopes, sorted(points, key=lambda point: point.flop_s)[-_SHOWN:])

    return draw(path, "roofline", (6.8, 4.8), onto)
