"""The figure of a communicator: the time of a message and its bandwidth against its size, on logarithmic axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log2
from pathlib import Path
from typing import Any

from levelbench.errors import UsageError
from levelbench.measure.statistics import Estimate
from levelbench.report.figures.drawing import draw, plain_axes, time_unit
from levelbench.report.numbers import BYTES, number
from levelbench.report.style import SERIES
from levelbench.report.tables import clean

__all__ = ["Curve", "write_communicators"]

_MARKERS = "osD^vPX*"


@dataclass(frozen=True)
class Curve:
    """One operation over one library: medians by bytes, and α (s) and β (s/B) of the line where one was fitted.

    ``bus`` makes of n / t the bandwidth of the busiest link.
    """

    label: str
    points: tuple[tuple[int, Estimate], ...]
    bus: float
    line: tuple[float, float] | None = None


def write_communicators(title: str, curves: Sequence[Curve], path: Path) -> Path:
    """Draw to an ``.svg`` or ``.png`` file. ``UsageError`` where there is no point with a size, else as ``draw``."""
    sized = [each for each in curves if any(nbytes for nbytes, _ in each.points)]
    if not sized:
        raise UsageError("a figure of a communicator", "nothing with a size was measured", "measure all-reduce")
    return draw(path, title, (9.2, 3.9), lambda figure: _draw(figure, title, sized))


def _draw(figure: Any, title: str, curves: Sequence[Curve]) -> None:
    times, bandwidths = figure.subplots(1, 2)
    seconds = [estimate.value for each in curves for _, estimate in each.points]
    unit = time_unit(times.yaxis, seconds)
    for at, curve in enumerate(curves):
        _curve(times, bandwidths, curve, unit.size, SERIES[at % len(SERIES)][0], _MARKERS[at % len(_MARKERS)])
    for axes, name in ((times, f"time, {unit.symbol}"), (bandwidths, "bus bandwidth, GB/s")):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel("size")
        axes.set_ylabel(name)
        axes.set_xticks(_ticks(curves))
        axes.xaxis.set_major_formatter(lambda value, _: _size(value))
        axes.xaxis.set_minor_formatter(lambda value, _: "")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
        axes.yaxis.set_minor_formatter(lambda value, _: "")
        plain_axes(axes)
    times.legend(frameon=False, fontsize=8.5, loc="best")
    figure.suptitle(clean(title), fontsize=10)


def _ticks(curves: Sequence[Curve]) -> list[float]:
    """Powers of two over all sizes, at most seven of them."""
    sizes = [nbytes for each in curves for nbytes, _ in each.points if nbytes]
    low, high = floor(log2(min(sizes))), ceil(log2(max(sizes)))
    return [2.0**power for power in range(low, high + 1, -(-(high - low + 1) // 7))]


def _curve(times: Any, bandwidths: Any, curve: Curve, unit: float, colour: str, marker: str) -> None:
    points = [(nbytes, estimate) for nbytes, estimate in curve.points if nbytes]
    sizes = [nbytes for nbytes, _ in points]
    medians = [estimate.value / unit for _, estimate in points]
    reach = [_reach(estimate) for _, estimate in points]
    below, above = [low / unit for low, _ in reach], [high / unit for _, high in reach]
    look = {"color": colour, "markersize": 3.5, "elinewidth": 0.8}
    times.errorbar(sizes, medians, (below, above), fmt=marker, label=clean(curve.label), **look)
    rates = [curve.bus * nbytes / estimate.value * 1e-9 for nbytes, estimate in points]
    bandwidths.plot(sizes, rates, marker, color=colour, markersize=3.5)
    if curve.line is not None:
        alpha, beta = curve.line
        fitted = [alpha + nbytes * beta for nbytes in sizes]
        times.plot(sizes, [each / unit for each in fitted], color=colour, linewidth=0.9)
        shown = [curve.bus * nbytes / each * 1e-9 for nbytes, each in zip(sizes, fitted, strict=True)]
        bandwidths.plot(sizes, shown, color=colour, linewidth=0.9)


def _reach(estimate: Estimate) -> tuple[float, float]:
    """How far the interval goes below and above the median."""
    if estimate.interval is None:
        return 0.0, 0.0
    return max(0.0, estimate.value - estimate.interval.low), max(0.0, estimate.interval.high - estimate.value)


def _size(value: float) -> str:
    unit = next(each for each in reversed(BYTES) if value >= each.least)
    return f"{number(value / unit.size)} {unit.symbol}"
