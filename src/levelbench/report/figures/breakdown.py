"""The figure of where a network's time goes: a bar an arm, stacked by type of operator, a panel a case.

The one idea: the length is time and the number inside a segment its share of all operators, so one figure compares both
the frameworks and their operators; a tick marks what the whole takes, and a hatched part what lies between.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from levelbench.errors import UsageError
from levelbench.records.network_summary import NetworkEntry, NetworkSummary
from levelbench.records.networks import NetworkArm, NetworkCase
from levelbench.report.figures.drawing import INK, draw, plain_axes, time_unit
from levelbench.report.levels.networks import arm_label, case_label, summary_title
from levelbench.report.style import SERIES
from levelbench.report.tables import clean

__all__ = ["write_breakdown"]

_TYPES = len(SERIES)
_CASES = 6
_WIDTH_IN = 7.2
_REST = "#b8bec6"
_LABELLED = 0.07
_OTHERS = "others"

Panel = tuple[NetworkCase, list[tuple[NetworkArm, NetworkEntry]]]


def write_breakdown(summary: NetworkSummary, path: Path) -> Path:
    """Draw to an ``.svg`` or ``.png`` file; at most six cases, the first ones.

    Raises ``UsageError`` where no arm has times of operators, else as ``drawing.draw``.
    """
    panels = [
        (case, shown)
        for case, entries in summary.rows
        if (shown := [(arm, entry) for arm, entry in zip(summary.arms, entries, strict=True) if entry.types])
    ][:_CASES]
    if not panels:
        raise UsageError(
            "a figure of operators", "no operator was timed", "choose a mode that can, such as torch:eager"
        )
    rows = sum(len(shown) for _, shown in panels)
    size = (_WIDTH_IN, 1.3 + 0.45 * rows + 0.75 * len(panels))
    return draw(path, f"{summary.title} breakdown", size, lambda figure: _draw(figure, summary, panels))


def _draw(figure: Any, summary: NetworkSummary, panels: Sequence[Panel]) -> None:
    names = _types(panels)
    heights = [len(shown) + 0.6 for _, shown in panels]
    grid = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (case, shown) in zip(grid, panels, strict=True):
        _panel(axes, case, shown, names)
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
    """As many as fit: a letter takes some 0.07 in, the colour before it half an inch."""
    return max(1, min(len(labels), int((_WIDTH_IN - 0.2) / (0.07 * max(map(len, labels)) + 0.55))))


def _types(panels: Sequence[Panel]) -> list[str]:
    """The types with a colour of their own, by the largest share that each has on any arm."""
    largest: dict[str, float] = {}
    for _, shown in panels:
        for _, entry in shown:
            for row in entry.types:
                largest[row.type] = max(largest.get(row.type, 0.0), row.share)
    return sorted(largest, key=lambda name: -largest[name])[:_TYPES]


def _panel(axes: Any, case: NetworkCase, shown: Sequence[tuple[NetworkArm, NetworkEntry]], names: list[str]) -> None:
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
    axes.set_xlabel(f"time a call, {unit.symbol}", fontsize=9)
    axes.tick_params(axis="y", length=0)
    plain_axes(axes, "x")


def _bar(axes: Any, at: int, entry: NetworkEntry, names: list[str], size: float, longest: float) -> None:
    """The segments in the legend's order, with their share inside where there is room."""
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
    """In lines, one a transform."""
    return label.replace(" + ", "\n+ ")
