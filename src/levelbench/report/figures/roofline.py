"""The roofline: operations a second against operations a byte, under the machine's measured ceilings.

The one idea: a point below the sloping roof is held back by memory, one below the flat roof by arithmetic, and the
distance to the roof is what an implementation leaves (Williams, Waterman and Patterson, "Roofline", CACM 52, 2009).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from levelbench.errors import UsageError
from levelbench.records.benchmark_summary import BenchmarkSummary
from levelbench.report.figures.drawing import INK, check_ending, draw, plain_axes
from levelbench.report.numbers import number
from levelbench.report.style import SERIES
from levelbench.report.tables import clean

__all__ = ["Point", "roofline_points", "write_roofline"]

_MARKERS = "osD^vPX*"
_LEAST_ROOM = 2.0


@dataclass(frozen=True)
class Point:
    """A problem on a framework: FLOP a byte, FLOP a second."""

    framework: str
    problem: str
    intensity: float
    flop_s: float


def roofline_points(summary: BenchmarkSummary) -> list[Point]:
    """Every problem that was measured and whose FLOPs and bytes are known and not zero."""
    return [
        Point(name, problem.name, entry.flops / entry.bytes, entry.flop_s)
        for problem, entries in summary.rows
        for name, entry in zip(summary.frameworks, entries, strict=True)
        if entry.status == "measured" and entry.flop_s and entry.flops and entry.bytes
    ]


def write_roofline(summary: BenchmarkSummary, path: Path) -> Path:
    """Draw to an ``.svg`` or ``.png`` file, whole or not at all.

    Raises ``UsageError`` for another ending and where there is no point to draw, ``MissingError`` without matplotlib.
    """
    check_ending(path)
    points = roofline_points(summary)
    if not points:
        found = "no problem was measured whose FLOPs and bytes are known"
        raise UsageError("a roofline figure", found, "measure one, such as Gemm or Conv")
    return draw(path, summary.title, (6.4, 4.4), lambda figure: _draw(figure.add_subplot(), summary, points))


def _draw(axes: Any, summary: BenchmarkSummary, points: list[Point]) -> None:
    for at, name in enumerate(summary.frameworks):
        mine = [point for point in points if point.framework == name]
        axes.plot(
            [point.intensity for point in mine],
            [point.flop_s * 1e-9 for point in mine],
            _MARKERS[at % len(_MARKERS)],
            color=SERIES[at % len(SERIES)][0],
            markersize=4.5,
            alpha=0.75,
            label=clean(name),
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: number(value))
        axis.set_minor_formatter(lambda value, _: "")
    low, high = (pick(point.intensity for point in points) for pick in (min, max))
    _roofs(axes, summary.ceilings, low / _LEAST_ROOM, high * _LEAST_ROOM, _dtypes(summary))
    axes.set_xlabel("FLOP per compulsory byte")
    axes.set_ylabel("GFLOP/s")
    axes.set_title(clean(f"{summary.title}, {summary.direction}, {summary.cache} caches"), fontsize=10)
    plain_axes(axes)
    axes.legend(frameon=False, fontsize=8.5, loc="best")


def _dtypes(summary: BenchmarkSummary) -> list[str]:
    return list(dict.fromkeys(problem.tensors[0].dtype for problem, _ in summary.rows if problem.tensors))


def _roofs(axes: Any, ceilings: Mapping[str, Any], low: float, high: float, dtypes: list[str]) -> None:
    memory = ceilings["bandwidth_b_s"].get("triad")
    for dtype in dtypes:
        limit = ceilings["flop_s"].get(dtype)
        if limit is None:
            continue
        peak = limit["value"]
        ridge = peak / memory["value"] if memory else low
        left, right = min(low, ridge / _LEAST_ROOM), max(high, ridge * _LEAST_ROOM)
        axes.plot([max(left, ridge), right], [peak * 1e-9] * 2, color=INK, linewidth=1.2)
        axes.annotate(
            f"{dtype} {number(peak * 1e-9)} GFLOP/s", (right, peak * 1e-9), (0, 3), textcoords="offset points",
            ha="right", va="bottom", fontsize=8,
        )  # fmt: skip
        if memory and left < ridge:
            slope = memory["value"] * 1e-9
            axes.plot([left, ridge], [left * slope, ridge * slope], color=INK, linewidth=1.2)
            axes.annotate(
                f"memory {number(slope)} GB/s", (left, left * slope), (2, 6), textcoords="offset points",
                ha="left", va="bottom", fontsize=8,
            )  # fmt: skip
