"""Figures of networks: time by operator, the distribution of latencies, latency against peak memory.

Each process has its own distribution, so that differences between processes show as well as differences within one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import UsageError
from levelbench.records.network_summary import NetworkEntry, NetworkSummary
from levelbench.records.networks import NetworkArm, NetworkCase
from levelbench.report.drawing import INK, MARKERS, RULE, draw, plain_axes, time_unit
from levelbench.report.markup import DASHES, SERIES
from levelbench.report.networks import arm_label, case_label, summary_title
from levelbench.report.numbers import BYTES, choose_unit, number
from levelbench.report.tables import clean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

__all__ = ["write_breakdown", "write_latency", "write_memory_curve"]

_TYPES = len(SERIES)
_CASES = 6
_WIDTH_IN = 7.2
_REST = "#b8bec6"
_LABELLED = 0.07
_OTHERS = "others"

BreakdownPanel = tuple[NetworkCase, list[tuple[NetworkArm, NetworkEntry]]]


def write_breakdown(summary: NetworkSummary, path: Path) -> Path:
    """Draw at most six cases, the first ones, to an ``.svg`` or ``.png`` file.

    Raises ``UsageError`` if no arm has times of operators, else as ``drawing.draw``.
    """
    panels = [
        (case, shown)
        for case, entries in summary.rows
        if (shown := [(arm, entry) for arm, entry in zip(summary.arms, entries, strict=True) if entry.types])
    ][:_CASES]
    if not panels:
        raise UsageError(
            "a figure of operators", "no operator was timed", "choose a mode that times them, such as torch:eager"
        )
    rows = sum(len(shown) for _, shown in panels)
    size = (_WIDTH_IN, 1.3 + 0.45 * rows + 0.75 * len(panels))
    return draw(path, f"{summary.title} breakdown", size, lambda figure: _draw_breakdown(figure, summary, panels))


def _draw_breakdown(figure: Canvas, summary: NetworkSummary, panels: Sequence[BreakdownPanel]) -> None:
    names = _types(panels)
    heights = [len(shown) + 0.6 for _, shown in panels]
    grid = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (case, shown) in zip(grid, panels, strict=True):
        _breakdown_panel(axes, case, shown, names)
    figure.suptitle(clean(f"{summary_title(summary)}: time by type of operator"), fontsize=10)
    handles: dict[str, Any] = {}
    for axes in grid:
        found, labels = axes.get_legend_handles_labels()
        handles |= dict(zip(labels, found, strict=True))
    order = [name for name in (*names, _OTHERS, "overhead", "whole (p50)") if name in handles]
    figure.legend(
        [handles[name] for name in order], [clean(name) for name in order], loc="outside lower center",
        ncols=_columns(order),
        frameon=False, fontsize=8.5,
    )  # fmt: skip


def _columns(labels: Sequence[str]) -> int:
    """As many columns as fit: a letter takes about 0.07 in, the colour before it half an inch."""
    return max(1, min(len(labels), int((_WIDTH_IN - 0.2) / (0.07 * max(map(len, labels)) + 0.55))))


def _types(panels: Sequence[BreakdownPanel]) -> list[str]:
    """The types with their own colour, by the largest share of each on any arm."""
    largest: dict[str, float] = {}
    for _, shown in panels:
        for _, entry in shown:
            for row in entry.types:
                largest[row.type] = max(largest.get(row.type, 0.0), row.share)
    return sorted(largest, key=lambda name: -largest[name])[:_TYPES]


def _breakdown_panel(
    axes: Axes, case: NetworkCase, shown: Sequence[tuple[NetworkArm, NetworkEntry]], names: list[str]
) -> None:
    wholes = [entry.latency[0].estimate for _, entry in shown]
    sums = [sum(row.time.value for row in entry.types) for _, entry in shown]
    longest = max([*sums, *(each.value for each in wholes if each is not None)])
    unit = time_unit(axes.xaxis, [longest])
    for at, (_, entry) in enumerate(shown):
        _bar(axes, at, entry, names, unit.size, longest)
        whole = wholes[at]
        if whole is None:
            continue
        if whole.value > sums[at]:
            axes.barh(
                at, (whole.value - sums[at]) / unit.size, left=sums[at] / unit.size, height=0.62, color="#ffffff",
                edgecolor=_REST, hatch="////", linewidth=0.6, label="overhead",
            )  # fmt: skip
        axes.plot([whole.value / unit.size] * 2, [at - 0.42, at + 0.42], color=INK, linewidth=2, label="whole (p50)")
    axes.set_yticks(range(len(shown)), [_folded(clean(arm_label(arm))) for arm, _ in shown])
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xlim(0, longest / unit.size * 1.03)
    axes.set_title(clean(case_label(case)), fontsize=9, loc="left")
    axes.set_xlabel(f"time per call, {unit.symbol}", fontsize=9)
    axes.tick_params(axis="y", length=0)
    plain_axes(axes, "x")


def _bar(axes: Axes, at: int, entry: NetworkEntry, names: list[str], size: float, longest: float) -> None:
    """The segments in the legend's order, with their share inside if there is room."""
    spent = {row.type: (row.time.value, row.share) for row in entry.types}
    rest = [value for name, value in spent.items() if name not in names]
    parts = [(name, *spent[name], SERIES[i][0]) for i, name in enumerate(names) if name in spent]
    if rest:
        parts.append((_OTHERS, sum(time for time, _ in rest), sum(share for _, share in rest), _REST))
    left = 0.0
    for name, time, share, colour in parts:
        axes.barh(
            at, time / size, left=left / size, height=0.62, color=colour, edgecolor="#ffffff", linewidth=0.6, label=name
        )
        if time > _LABELLED * longest:
            ink = INK if colour == _REST else "#ffffff"
            axes.annotate(
                f"{share:.0%}", ((left + time / 2) / size, at), ha="center", va="center", fontsize=8, color=ink
            )
        left += time


def _folded(label: str) -> str:
    """In lines, one per transform."""
    return label.replace(" + ", "\n+ ")


_POINTS = 400
_WIDE = 8.0
_APART = 0.018

LatencyPanel = tuple[NetworkCase, list[tuple[int, NetworkArm, NetworkEntry]]]


def write_latency(summary: NetworkSummary, path: Path) -> Path:
    """Draw at most six cases, the first ones, to an ``.svg`` or ``.png`` file.

    Raises ``UsageError`` if no latency was measured, else as ``drawing.draw``.
    """
    panels = [(case, shown) for case, entries in summary.rows if (shown := _measured(summary, entries))][:_CASES]
    if not panels:
        raise UsageError("a figure of latencies", "no latency was measured", "measure a network that runs here")
    columns = min(2, len(panels))
    lines = -(-len(panels) // columns)
    size = (4.6 * columns + 0.6, 2.7 * lines + 0.9)
    return draw(
        path, f"{summary.title} latency", size, lambda figure: _draw_latency(figure, summary, panels, lines, columns)
    )


def _measured(summary: NetworkSummary, entries: Sequence[NetworkEntry]) -> list[tuple[int, NetworkArm, NetworkEntry]]:
    """The arms that have latencies, with their indices, so that an arm keeps its colour."""
    pairs = zip(summary.arms, entries, strict=True)
    return [(at, arm, entry) for at, (arm, entry) in enumerate(pairs) if any(len(v) for v in entry.samples.values())]


def _draw_latency(
    figure: Canvas, summary: NetworkSummary, panels: Sequence[LatencyPanel], lines: int, columns: int
) -> None:
    grid = figure.subplots(lines, columns, squeeze=False, sharey=True).flat
    handles: dict[str, Any] = {}
    for axes, (case, shown) in zip(grid, panels, strict=False):
        _latency_panel(axes, case, shown)
        found, labels = axes.get_legend_handles_labels()
        handles |= dict(zip(labels, found, strict=True))
    for axes in list(figure.axes)[len(panels) :]:
        axes.set_visible(False)
    figure.suptitle(clean(f"{summary_title(summary)}: latency of a call"), fontsize=10)
    figure.legend(
        list(handles.values()), list(handles), loc="outside lower center", ncols=min(3, len(handles)), frameon=False,
        fontsize=8.5,
    )  # fmt: skip


def _latency_panel(axes: Axes, case: NetworkCase, shown: Sequence[tuple[int, NetworkArm, NetworkEntry]]) -> None:
    taken = [np.sort(np.asarray(v)) for _, _, entry in shown for v in entry.samples.values() if len(v)]
    low, high = min(float(v[0]) for v in taken), max(float(np.quantile(v, 0.995)) for v in taken)
    if low > 0 and high > _WIDE * low:
        axes.set_xscale("log")
    unit = time_unit(axes.xaxis, [high])
    for at, arm, entry in shown:
        colour, dash = SERIES[at % len(SERIES)][0], DASHES[at % len(DASHES)]
        for values in entry.samples.values():
            x, y = _steps(values)
            axes.plot(x / unit.size, y, color=colour, linestyle=dash, linewidth=0.9, alpha=0.55, drawstyle="steps-post")
        # Shifted vertically, because the intervals of several arms would overlap.
        shift = _APART * ((len(shown) - 1) / 2 - [place for place, _, _ in shown].index(at))
        _marks(axes, entry, colour, MARKERS[at % len(MARKERS)], unit.size, shift, clean(arm_label(arm)))
    # A single call that took ten times as long is in the records; here it would hide all others.
    axes.set_xlim(low * 0.97 / unit.size, high * 1.05 / unit.size)
    axes.set_ylim(0, 1.04)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_title(clean(case_label(case)), fontsize=9, loc="left")
    axes.set_xlabel(f"latency, {unit.symbol}", fontsize=9)
    if axes.get_subplotspec().is_first_col():
        axes.set_ylabel("calls that took at most this", fontsize=9)
    plain_axes(axes)


def _steps(values: Sequence[float]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The empirical distribution function at no more than ``_POINTS`` of its steps."""
    ordered = np.sort(np.asarray(values))
    at = np.unique(np.linspace(0, len(ordered) - 1, min(len(ordered), _POINTS)).round().astype(int))
    return ordered[at], (at + 1) / len(ordered)


def _marks(axes: Axes, entry: NetworkEntry, colour: str, marker: str, size: float, shift: float, label: str) -> None:
    found = [(each.q, each.estimate) for each in entry.latency if each.estimate is not None]
    for q, estimate in found:
        if estimate.interval is not None and np.isfinite([estimate.interval.low, estimate.interval.high]).all():
            ends = [estimate.interval.low / size, estimate.interval.high / size]
            axes.plot(ends, [q + shift] * 2, color=colour, linewidth=1.8, solid_capstyle="butt", alpha=0.8)
    x, y = [estimate.value / size for _, estimate in found], [q + shift for q, _ in found]
    axes.plot(x, y, marker, color=colour, markersize=5.5, markeredgecolor="#ffffff", markeredgewidth=0.6, label=label)


MemoryPoint = tuple[NetworkArm, NetworkEntry]


def write_memory_curve(summary: NetworkSummary, path: Path) -> Path:
    """Draw at most six cases, the first ones, to an ``.svg`` or ``.png`` file.

    Raises ``UsageError`` if no case has two arms with both figures, else as ``drawing.draw``.
    """
    panels = [(case, shown) for case, entries in summary.rows if len(shown := _points(summary, entries)) > 1][:_CASES]
    if not panels:
        found = "no case has two arms with measured memory and time"
        raise UsageError("a figure of memory against time", found, "give a transform, or a second framework")
    size = (8.6, 3.1 * len(panels) + 0.7)
    return draw(path, f"{summary.title} memory", size, lambda figure: _draw_memory(figure, summary, panels))


def _points(summary: NetworkSummary, entries: Sequence[NetworkEntry]) -> list[MemoryPoint]:
    pairs = zip(summary.arms, entries, strict=True)
    return [(arm, entry) for arm, entry in pairs if entry.memory.estimate is not None and entry.latency[0].estimate]


def _draw_memory(
    figure: Canvas, summary: NetworkSummary, panels: Sequence[tuple[NetworkCase, list[MemoryPoint]]]
) -> None:
    for axes, (case, shown) in zip(figure.subplots(len(panels), 1, squeeze=False)[:, 0], panels, strict=True):
        _memory_panel(axes, case, shown)
    figure.suptitle(clean(f"{summary_title(summary)}: memory against time"), fontsize=10)


def _memory_panel(axes: Axes, case: NetworkCase, shown: Sequence[MemoryPoint]) -> None:
    times = [entry.latency[0].estimate.value for _, entry in shown if entry.latency[0].estimate]
    sizes = [entry.memory.estimate.value for _, entry in shown if entry.memory.estimate]
    limits = [limit for arm, _ in shown if (limit := arm.memory_limit) is not None]
    unit, size = time_unit(axes.yaxis, times), choose_unit([*sizes, *limits], BYTES)
    for limit in dict.fromkeys(limits):
        axes.axvline(limit / size.size, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
        axes.annotate(
            f"limit {number(limit / size.size)} {size.symbol}", (limit / size.size, 0), (-2, 4),
            xycoords=("data", "axes fraction"), textcoords="offset points", rotation=90, ha="right", va="bottom",
            fontsize=8,
        )  # fmt: skip
    for line in _lines(shown):
        axes.plot([x / size.size for x, _ in line], [y / unit.size for _, y in line], color=RULE, linewidth=1.2)
    for at, ((arm, _), time, memory) in enumerate(zip(shown, times, sizes, strict=True)):
        colour = SERIES[at % len(SERIES)][0]
        axes.plot(
            memory / size.size, time / unit.size, MARKERS[at % len(MARKERS)], color=colour, markersize=8,
            label=clean(arm_label(arm)),
        )  # fmt: skip
    axes.set_xlim(0, max([*sizes, *limits]) / size.size * 1.12)
    axes.set_ylim(0, max(times) / unit.size * 1.15)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.set_title(clean(case_label(case)), fontsize=9, loc="left")
    axes.set_xlabel(f"peak memory, {size.symbol}")
    axes.set_ylabel(f"latency (p50), {unit.symbol}")
    axes.legend(frameon=False, fontsize=8.5, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    plain_axes(axes)


def _lines(shown: Sequence[MemoryPoint]) -> list[list[tuple[float, float]]]:
    """The curve of each framework and mode: its points (memory, time), sorted by memory."""
    found: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for arm, entry in shown:
        memory, time = entry.memory.estimate, entry.latency[0].estimate
        if memory is not None and time is not None:
            found.setdefault((arm.framework, arm.mode, arm.device), []).append((memory.value, time.value))
    return [sorted(points) for points in found.values() if len(points) > 1]
