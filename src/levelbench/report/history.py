"""Histories over revisions: a sentence for each change, tables, a figure, and a page with all of them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from levelbench.report.canvas import INK_PLACEHOLDER, mark, page_canvas, page_svg, series_colour, time_scale
from levelbench.report.markup import Html, breakable, tag
from levelbench.report.numbers import plural, text_of, with_interval
from levelbench.report.page import figure_html, html_page
from levelbench.report.run_figures import Plot, can_draw
from levelbench.report.tables import Column, ColumnKind, Table, cell_of, estimate_cell

if TYPE_CHECKING:
    from levelbench.analysis.history import Change, History

__all__ = ["change_lines", "history_page", "history_table"]

_MOST_LABELS = 24
_MOST_NAMES = 6


def change_lines(history: History, shallow: bool = False) -> list[str]:
    """A sentence for each change, with the command that tests it again, or one that says that none was found.

    The last one says which revisions are in the order of measurement, if any are. ``shallow`` says whether the
    repository here is a shallow clone.
    """
    lines = _found_lines(history)
    do = "get the others with git fetch --unshallow" if shallow else "call this in their repository"
    if history.by_measurement:
        lines.append(f"  revisions are in the order of measurement, as git knows none of them here: {do}")
    elif history.placed:
        count = len(history.placed)
        more = f" and {count - _MOST_NAMES} more" if count > _MOST_NAMES else ""
        names = f"{', '.join(history.placed[:_MOST_NAMES])}{more}"
        them = "it lies after the one" if count == 1 else "each lies after the one"
        do = do if shallow else "measure again what was amended or rebased"
        lines.append(f"  git does not know {names} here: {them} that was measured before it; {do}")
    return lines


def _found_lines(history: History) -> list[str]:
    name = f"{history.name} ({history.measure})"
    if history.why_none:
        return [f"{name}: {plural(len(history.points), 'revision')}; {history.why_none}"]
    if not history.changes:
        return [f"{name}: no change in {plural(len(history.points), 'revision')}"]
    lines = []
    for change in history.changes:
        before, first = history.points[change.at - 1], history.points[change.at]
        lines.append(f"{name}: x{_ratio(change)} from {first.name} on ({first.started[:10]})")
        if change.seeds is not None and (change.seeds == 1 or 1.0 in change.interval):
            seeds = "the same seed" if change.seeds == 1 else f"the same {change.seeds} seeds"
            lines.append(f"  revisions repeat {seeds}, and others may not show it: make more runs of each (-n)")
        if history.measure == "wall time" and not (before.edit or first.edit):
            command = f"levelbench time {shlex.quote(history.name)} --revisions {before.name},{first.name}"
            lines.append(f"  to be sure: {command} --until-clear")
    return lines


def _ratio(change: Change) -> str:
    return with_interval(change.ratio, change.interval.low, change.interval.high)


def history_table(history: History, level: float) -> Table:
    """A row per revision, in their order."""
    changes = {change.at: f"x{_ratio(change)}" for change in history.changes}
    known = [each for point in history.points if (each := point.estimate(level)) is not None]
    ranges = [each.interval.is_range for each in known if each.interval is not None]
    shown = [f"{level * 100:.3g} % interval"] * (not all(ranges)) + ["lowest to highest where n < 6"] * any(ranges)
    return Table.of(
        "history",
        f"{history.name}: {history.measure} by revision",
        list(enumerate(history.points)),
        (Column("revision", "revision"), lambda row: row[1].name),
        (Column("label", "called"), lambda row: row[1].label),
        (Column("measured", "measured"), lambda row: row[1].started[:16].replace("T", " ")),
        (Column("n", "n", ColumnKind.NUMBER), lambda row: len(row[1].times_s) + row[1].missed),
        (
            Column("time_s", history.measure, ColumnKind.TIME_S),
            lambda row: estimate_cell(row[1].estimate(level), f"{row[1].missed} of them have no time"),
        ),
        (Column("change", "change from here on"), lambda row: cell_of(changes.get(row[0], ""))),
        notes=[f"geometric mean [{', '.join(shown)}]."] if shown else [],
    ).without_empty()


def history_page(histories: Sequence[History], level: float, shallow: bool = False) -> str:
    """The text of an HTML document with all histories; ``shallow`` as for ``change_lines``."""
    sections = [_section(history, f"history-{at}", level, shallow) for at, history in enumerate(histories)]
    points = sum(len(each.points) for each in histories)
    guide = tag(
        "section",
        tag("h2", "How to read this"),
        tag(
            "ul",
            tag("li", "A point is a revision: the geometric mean over its processes or runs, with their interval."),
            tag("li", "A change is where the mean of the revisions shifts for good, more than revisions differ among "
                f"themselves: one change too many is found in at most {(1 - level) * 100:.3g} % of histories."),
            tag("li", "A change of the machine (a new kernel, another neighbour) looks the same. To tell them apart, "
                "let revisions take turns on one machine: levelbench time --revisions."),
        ),
    )  # fmt: skip
    lead = f"{plural(len(histories), 'history', 'histories')}, {plural(points, 'point')}"
    return html_page("Times by revision", lead, tag("main", *sections, guide))


def _section(history: History, name: str, level: float, shallow: bool) -> Html:
    said = tag("ul", *(tag("li", line.strip()) for line in change_lines(history, shallow)))
    figure = tag("div", figure_html(_plot(history, name, level)), class_="figures")
    machine = tag("p", f"Machine {history.machine}", class_="note")
    return tag("section", tag("h2", breakable(history.name)), said, machine, figure)


def _plot(history: History, name: str, level: float) -> Plot:
    table = history_table(history, level)
    return Plot(
        name=name,
        title=f"{history.measure.capitalize()} by revision",
        alt=f"{history.measure} of {history.name} over {plural(len(history.points), 'revision')}: "
        + "; ".join(change_lines(history)),
        caption="Dots: revisions, with the interval of their mean. Lines: the mean between two changes.",
        svg=_drawn(history, name, level) if can_draw() else "",
        table=table,
        data=table,
    )


def _drawn(history: History, name: str, level: float) -> str:
    from levelbench.measure.statistics import geometric_mean

    found = {at: each for at, point in enumerate(history.points) if (each := point.estimate(level))}
    scale, unit = time_scale([each.value for each in found.values()])
    with page_canvas(name, 3.4) as (canvas, axes):
        for at, each in found.items():
            if each.interval is not None:
                ends = [each.interval.low / scale, each.interval.high / scale]
                axes.plot([at, at], ends, color=series_colour(0), linewidth=1.6, alpha=0.6)
        means = [each.value / scale for each in found.values()]
        (dots,) = axes.plot(list(found), means, "o", color=series_colour(0), markersize=5)
        told = []
        for at, each in found.items():
            point = history.points[at]
            said = f"{point.name}: {text_of(each)}, n = {len(point.times_s)}"
            told.append((history.name, point.name, said))
        mark(dots, *told)
        edges = [0, *(change.at for change in history.changes), len(history.points)]
        for first, after in pairwise(edges) if not history.why_none else ():
            mean = geometric_mean([found[at].value for at in range(first, after)]) / scale
            axes.plot([first - 0.4, after - 0.6], [mean, mean], color=INK_PLACEHOLDER, linewidth=1.4)
        step = -(-len(history.points) // _MOST_LABELS)
        names = [point.commit[:7] + ("+" if point.edit else "") for point in history.points[::step]]
        axes.set_xticks(range(0, len(history.points), step), names, rotation=60, ha="right", fontsize=8)
        axes.set_xlim(-0.7, len(history.points) - 0.3)
        axes.grid(False, axis="x")
        axes.set_ylabel(f"{history.measure}, {unit}")
        return page_svg(canvas, name)
