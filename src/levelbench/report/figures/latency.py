"""The figure of how latencies are spread: the empirical distribution of each process, and the quantiles.

The one idea: a distribution is drawn for each process, never pooled, so that what differs between processes is seen
beside what differs within one; the marks are the estimates of the table, with their intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from levelbench.errors import UsageError
from levelbench.records.network_summary import NetworkEntry, NetworkSummary
from levelbench.records.networks import NetworkArm, NetworkCase
from levelbench.report.figures.drawing import draw, plain_axes, time_unit
from levelbench.report.levels.networks import arm_label, case_label, summary_title
from levelbench.report.style import DASHES, SERIES
from levelbench.report.tables import clean

__all__ = ["write_latency"]

_CASES = 6
_POINTS = 400
_WIDE = 8.0
_APART = 0.018
_MARKERS = "osD^vPX*"

Panel = tuple[NetworkCase, list[tuple[int, NetworkArm, NetworkEntry]]]


def write_latency(summary: NetworkSummary, path: Path) -> Path:
    """Draw to an ``.svg`` or ``.png`` file; at most six cases, the first ones.

    Raises ``UsageError`` where no latency was taken, else as ``drawing.draw``.
    """
    panels = [(case, shown) for case, entries in summary.rows if (shown := _measured(summary, entries))][:_CASES]
    if not panels:
        raise UsageError("a figure of latencies", "no latency was taken", "measure a network that runs here")
    columns = min(2, len(panels))
    lines = -(-len(panels) // columns)
    size = (4.6 * columns + 0.6, 2.7 * lines + 0.9)
    return draw(path, f"{summary.title} latency", size, lambda figure: _draw(figure, summary, panels, lines, columns))


def _measured(summary: NetworkSummary, entries: Sequence[NetworkEntry]) -> list[tuple[int, NetworkArm, NetworkEntry]]:
    """The arms that have latencies, with their places: a colour stays with its arm."""
    pairs = zip(summary.arms, entries, strict=True)
    return [(at, arm, entry) for at, (arm, entry) in enumerate(pairs) if any(len(v) for v in entry.samples.values())]


def _draw(figure: Any, summary: NetworkSummary, panels: Sequence[Panel], lines: int, columns: int) -> None:
    grid = figure.subplots(lines, columns, squeeze=False, sharey=True).flat
    handles: dict[str, Any] = {}
    for axes, (case, shown) in zip(grid, panels, strict=False):
        _panel(axes, case, shown)
        found, labels = axes.get_legend_handles_labels()
        handles |= dict(zip(labels, found, strict=True))
    for axes in list(figure.axes)[len(panels) :]:
        axes.set_visible(False)
    figure.suptitle(clean(f"{summary_title(summary)}: latency of a call"), fontsize=10)
    figure.legend(
        list(handles.values()), list(handles), loc="outside lower center", ncols=min(3, len(handles)), frameon=False,
        fontsize=8.5,
    )  # fmt: skip


def _panel(axes: Any, case: NetworkCase, shown: Sequence[tuple[int, NetworkArm, NetworkEntry]]) -> None:
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
        # A little above or below each other, for intervals of several arms would lie on one line.
        shift = _APART * ((len(shown) - 1) / 2 - [place for place, _, _ in shown].index(at))
        _marks(axes, entry, colour, _MARKERS[at % len(_MARKERS)], unit.size, shift, clean(arm_label(arm)))
    # A single call that took ten times as long is in the records; here it would hide all others.
    axes.set_xlim(low * 0.97 / unit.size, high * 1.05 / unit.size)
    axes.set_ylim(0, 1.04)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_title(clean(case_label(case)), fontsize=9, loc="left")
    axes.set_xlabel(f"latency, {unit.symbol}", fontsize=9)
    if axes.get_subplotspec().is_first_col():
        axes.set_ylabel("calls that took at most this", fontsize=9)
    plain_axes(axes)


def _steps(values: Sequence[float]) -> tuple[Any, Any]:
    """The empirical distribution function at not more than ``_POINTS`` of its steps."""
    ordered = np.sort(np.asarray(values))
    at = np.unique(np.linspace(0, len(ordered) - 1, min(len(ordered), _POINTS)).round().astype(int))
    return ordered[at], (at + 1) / len(ordered)


def _marks(axes: Any, entry: NetworkEntry, colour: str, marker: str, size: float, shift: float, label: str) -> None:
    found = [(each.q, each.estimate) for each in entry.latency if each.estimate is not None]
    for q, estimate in found:
        if estimate.interval is not None and np.isfinite([estimate.interval.low, estimate.interval.high]).all():
            ends = [estimate.interval.low / size, estimate.interval.high / size]
            axes.plot(ends, [q + shift] * 2, color=colour, linewidth=1.8, solid_capstyle="butt", alpha=0.8)
    x, y = [estimate.value / size for _, estimate in found], [q + shift for q, _ in found]
    axes.plot(x, y, marker, color=colour, markersize=5.5, markeredgecolor="#ffffff", markeredgewidth=0.6, label=label)
