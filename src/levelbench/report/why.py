"""The table and the waterfall of ``compare --why``: factors that multiply from one time to the other."""

from __future__ import annotations

import math
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from levelbench.analysis.why import FIXED, SAMPLES
from levelbench.errors import UsageError
from levelbench.report.drawing import INK, draw, label_ratios, plain_axes
from levelbench.report.markup import SERIES
from levelbench.report.numbers import number, plural, with_interval
from levelbench.report.tables import Absent, Cell, Column, ColumnKind, Number, Table, Text, clean

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from levelbench.analysis.why import Factor, Why

__all__ = ["why_table", "write_why"]


_TITLE = 60
"""Characters of a line that fit above the figure."""


def why_table(found: Why) -> Table:
    """All factors, each below the one that it is a part of; ``UsageError`` if nothing was split."""
    if found.ratio is None:
        raise UsageError("a table of factors", "nothing could be split", "see the lines that say why")
    # Programs that count no samples have their whole time split.
    counted = any(each.name == SAMPLES for each in found.factors)
    of = ", a sample" if counted else ", whole time"
    columns = (
        Column("factor", "factor"),
        Column("effect", "factor of the time", ColumnKind.NUMBER),
        Column("share", "of the log ratio", ColumnKind.SHARE, digits=2),
        Column("ratio", "B over A", ColumnKind.NUMBER),
        Column("a_s", f"A{of}", ColumnKind.TIME_S, series="seconds"),
        Column("b_s", f"B{of}", ColumnKind.TIME_S, series="seconds"),
    )
    whole, known = math.log(found.ratio), found.interval
    largest = max(abs(each.log_ratio) for each in found.factors)
    # Shares of next to nothing are large numbers that say nothing.
    shared = abs(whole) > largest / 10 if known is None else not known.low <= 1.0 <= known.high
    rows: list[tuple[Cell, ...]] = []
    for depth, each in _ordered(found):
        inside = each.interval
        effect = Number(each.ratio, *((inside.low, inside.high) if inside else (None, None)))
        share = Number(each.log_ratio / whole) if shared else Absent("the times may be equal: no difference to share")
        of_sample = each.name != SAMPLES and FIXED not in (each.name, each.within)
        sides = (Number(each.a), Number(each.b)) if of_sample else (Absent(), Absent())
        own = Absent() if each.of_sides is None else Number(each.of_sides)
        rows.append((Text(f"{'  ' * depth}{each.name}"), effect, share, own, *sides))
    counts = "".join(
        f" Samples to target: {number(each.a)} and {number(each.b)}." for each in found.factors if each.name == SAMPLES
    )
    counts += "".join(
        f" Fixed costs do not grow with the samples: time = fixed costs + samples x time per sample. Their "
        f"arithmetic means: {number(each.a * 1e3)} and {number(each.b * 1e3)} ms."
        for each in found.factors
        if each.name == FIXED
    )
    notes = (
        f"A: {found.a}; B: {found.b} ({_counted(found)}). Factors of the time: what each makes of the whole "
        f"time, each interval at {found.level * 100:g} % by itself; those of one level multiply to the one "
        f"above (logarithmic mean, LMDI). B over A: the ratio of the samples or seconds themselves. "
        f"{'Samples and time per sample' if counted else 'Times'}: geometric means over the runs; parts have their "
        f"shares of that, runs weighted as in the factors.{counts}",
    )
    return Table(
        "why", f"Why {found.b} takes {number(found.ratio)} times as long{found.condition}", columns, tuple(rows), notes
    )


def _counted(found: Why) -> str:
    return plural(found.n[0], "pair") if found.paired else f"n = {found.n[0]} + {found.n[1]}"


def _ordered(found: Why) -> list[tuple[int, Factor]]:
    """The factors with their depth, each followed by its parts."""
    rows: list[tuple[int, Factor]] = []

    def add(within: str, depth: int) -> None:
        for each in found.within(within):
            rows.append((depth, each))
            add(each.name, depth + 1)

    add("", 0)
    return rows


def write_why(found: Why, path: Path) -> Path:
    """Draw the waterfall: the finest factors, from A's time to B's; ``UsageError`` if nothing was split."""
    if found.ratio is None:
        raise UsageError("a waterfall of factors", "nothing could be split", "see the lines that say why")
    ordered = _ordered(found)
    finest = [each for _, each in ordered if not found.within(each.name)]
    height = 1.4 + 0.32 * (len(finest) + 1)
    return draw(path, "why", (7.0, height), lambda figure: _draw_why(figure.add_subplot(), found, finest))


def _label(each: Factor) -> str:
    inner = each.within in ("forward", "backward")
    return clean(f"{each.within}: {each.name}" if inner else each.name)


def _draw_why(axes: Axes, found: Why, finest: list[Factor]) -> None:
    assert found.ratio is not None
    faster, slower = SERIES[0][0], SERIES[1][0]
    at, names, texts = 1.0, [], []
    steps, ends = [1.0, found.ratio], [1.0, found.ratio]
    for row, each in enumerate(finest):
        to = at * each.ratio
        # Hatched as well as coloured, so that both directions can be told apart in grey.
        colour, hatch = (faster, "") if each.ratio < 1 else (slower, "///")
        axes.barh(row, to - at, left=at, height=0.6, color=colour, hatch=hatch, edgecolor="white", linewidth=0.5)
        if each.interval is not None:
            low, high = at * each.interval.low, at * each.interval.high
            axes.plot([low, high], [row, row], color=INK, linewidth=1.1, marker="|", markersize=5)
            ends += [low, high]
        axes.plot([to, to], [row - 0.3, row + 1.3], color=INK, linewidth=0.6, linestyle=(0, (2, 2)))
        steps.append(to)
        names.append(_label(each))
        inside = each.interval
        texts.append(f"x{with_interval(each.ratio, *((inside.low, inside.high) if inside else (None, None)))}")
        at = to
    last = len(finest)
    axes.barh(last, found.ratio - 1.0, left=1.0, height=0.6, color="#9aa2ad", edgecolor=INK, linewidth=0.8)
    inside = found.interval
    texts.append(f"x{with_interval(found.ratio, *((inside.low, inside.high) if inside else (None, None)))}")
    if inside is not None:
        axes.plot([inside.low, inside.high], [last, last], color=INK, linewidth=1.1, marker="|", markersize=5)
        ends += [inside.low, inside.high]
    ends += steps
    axes.set_xscale("log")
    # Intervals may be far wider than the steps, which must stay readable: those are cut off at the edge.
    room = 2.0 * (max(steps) / min(steps))
    left, right = max(min(ends) / 1.04, min(steps) / room), min(max(ends) * 1.04, max(steps) * room)
    axes.set_xlim(left, right)
    axes.axvline(1.0, color=INK, linewidth=0.8)
    for row, text in enumerate(texts):
        axes.annotate(text, (1.01, row), xycoords=("axes fraction", "data"), va="center", fontsize=8)
    axes.set_yticks(range(last + 1), [*names, "whole time"])
    axes.set_ylim(last + 0.6, -0.6)
    label_ratios(axes.xaxis, number)
    known = any(each.interval is not None for each in found.factors)
    bars = f", intervals at {found.level * 100:g} %" if known else ""
    axes.set_xlabel(f"time over that of {clean(found.a)}\n{_counted(found)}{bars}", fontsize=9)
    title = textwrap.fill(clean(f"Why {found.b} takes x{number(found.ratio)}{found.condition}"), _TITLE)
    axes.set_title(title, fontsize=10, loc="left")
    plain_axes(axes, "x")
