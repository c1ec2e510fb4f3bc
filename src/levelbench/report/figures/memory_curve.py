"""The figure of memory against time: each arm of a case a point, with the limits that micro-batching was given.

The one idea: a transform that saves memory pays in time, and only both together tell whether it is worth it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from levelbench.errors import UsageError
from levelbench.records.network_summary import NetworkEntry, NetworkSummary
from levelbench.records.networks import NetworkArm, NetworkCase
from levelbench.report.figures.drawing import INK, RULE, draw, plain_axes, time_unit
from levelbench.report.levels.networks import arm_label, case_label, summary_title
from levelbench.report.numbers import BYTES, choose_unit, number
from levelbench.report.style import SERIES
from levelbench.report.tables import clean

__all__ = ["memory_limit", "write_memory_curve"]

_CASES = 6
_MARKERS = "osD^vPX*"
_LIMIT = re.compile(r"\bmemory=(\d+)")

Point = tuple[NetworkArm, NetworkEntry]


def memory_limit(arm: NetworkArm) -> int | None:
    """The limit in bytes that a transform of the arm was given, or ``None``."""
    found = [match for each in arm.transforms if (match := _LIMIT.search(each))]
    return int(found[0].group(1)) if found else None


def write_memory_curve(summary: NetworkSummary, path: Path) -> Path:
    """Draw to an ``.svg`` or ``.png`` file; at most six cases, the first ones.

    Raises ``UsageError`` where no case has two arms with both figures, else as ``drawing.draw``.
    """
    panels = [(case, shown) for case, entries in summary.rows if len(shown := _points(summary, entries)) > 1][:_CASES]
    if not panels:
        found = "no case has two arms whose memory and time were measured"
        raise UsageError("a figure of memory against time", found, "give a transform, or a second framework")
    size = (8.6, 3.1 * len(panels) + 0.7)
    return draw(path, f"{summary.title} memory", size, lambda figure: _draw(figure, summary, panels))


def _points(summary: NetworkSummary, entries: Sequence[NetworkEntry]) -> list[Point]:
    pairs = zip(summary.arms, entries, strict=True)
    return [(arm, entry) for arm, entry in pairs if entry.memory.estimate is not None and entry.latency[0].estimate]


def _draw(figure: Any, summary: NetworkSummary, panels: Sequence[tuple[NetworkCase, list[Point]]]) -> None:
    for axes, (case, shown) in zip(figure.subplots(len(panels), 1, squeeze=False)[:, 0], panels, strict=True):
        _panel(axes, case, shown)
    figure.suptitle(clean(f"{summary_title(summary)}: memory against time"), fontsize=10)


def _panel(axes: Any, case: NetworkCase, shown: Sequence[Point]) -> None:
    times = [entry.latency[0].estimate.value for _, entry in shown if entry.latency[0].estimate]
    sizes = [entry.memory.estimate.value for _, entry in shown if entry.memory.estimate]
    limits = [limit for arm, _ in shown if (limit := memory_limit(arm)) is not None]
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
            memory / size.size, time / unit.size, _MARKERS[at % len(_MARKERS)], color=colour, markersize=8,
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


def _lines(shown: Sequence[Point]) -> list[list[tuple[float, float]]]:
    """The points (memory, time) of each framework and mode, by memory: its curve."""
    found: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for arm, entry in shown:
        memory, time = entry.memory.estimate, entry.latency[0].estimate
        if memory is not None and time is not None:
            found.setdefault((arm.framework, arm.mode, arm.device), []).append((memory.value, time.value))
    return [sorted(points) for points in found.values() if len(points) > 1]
