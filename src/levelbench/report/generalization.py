"""Tables and the figure of ``analyze generalization``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from levelbench.report.drawing import MARKERS, draw, plain_axes
from levelbench.report.markup import SERIES
from levelbench.report.tables import Absent, CellValue, Column, ColumnKind, Table, clean, estimate_cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from levelbench.analysis.generalization import Generalization, QualityDifference

__all__ = ["MOST_ARMS", "generalization_lines", "generalization_tables", "scores_table"]
__all__ += ["write_generalization"]

MOST_ARMS = len(SERIES)
"""Arms that one figure can tell apart."""


def generalization_tables(found: Generalization) -> list[Table]:
    """A table for each arm against the first; mean corruption errors, if there are corruptions; the sets."""
    compared = [_against_table(found, at) for at in range(1, len(found.arms))] or [_alone_table(found)]
    errors = Table.of(
        "corruption_errors",
        f"Mean corruption error against {found.arms[0].label}",
        found.corruption_errors,
        (Column("runs", "models of"), lambda each: each.label),
        (Column("kinds", "kinds", ColumnKind.NUMBER), lambda each: each.kinds),
        (Column("relative", "errors, 1 is as many", ColumnKind.NUMBER), lambda each: estimate_cell(each.relative)),
        notes=(
            "Errors summed over severities over the baseline's, then the mean over kinds (Hendrycks & Dietterich).",
        ),
    )
    sets = Table.of(
        "sets",
        "What the models were scored on",
        found.sets,
        (Column("set", "set"), lambda each: each.name),
        (Column("kind", "kind"), lambda each: each.kind),
        (Column("examples", "examples", ColumnKind.NUMBER, digits=6), lambda each: each.examples),
        (Column("what", "what it is"), lambda each: each.what),
    )
    return [*compared, *([errors] if errors.rows else []), sets]


def scores_table(found: Generalization) -> Table:
    """Every arm on every set, one a row."""
    kinds = {each.name: each.kind for each in found.sets}
    return Table.of(
        "scores",
        f"{found.metric} of every group of models on every set; differences in points",
        found.scores,
        (Column("set", "set"), lambda row: row.set),
        (Column("kind", "kind"), lambda row: kinds[row.set]),
        (Column("runs", "models of"), lambda row: row.label),
        (Column("n", "n", ColumnKind.NUMBER), lambda row: row.quality.n),
        (Column("quality", "quality", ColumnKind.SHARE), lambda row: estimate_cell(row.quality)),
        (Column("fall_points", "below the test split", ColumnKind.NUMBER), lambda row: estimate_cell(row.fall)),
        (Column("difference_points", "against the first", ColumnKind.NUMBER), lambda row: _difference(row.against)),
        (Column("verdict", "verdict"), lambda row: _verdict(row.against)),
        (Column("falls_more_points", "falls further by", ColumnKind.NUMBER), lambda row: estimate_cell(row.falls_more)),
    )


def _against_table(found: Generalization, at: int) -> Table:
    base, arm = found.arms[0], found.arms[at]
    pairs = [(found.of(each.name)[0], found.of(each.name)[at]) for each in found.sets]
    level = f"{found.level * 100:g} %"
    return Table.of(
        "generalization" if at == 1 else f"generalization_{at}",
        f"{found.metric} of {arm.label} (n = {len(arm.seeds)}) against {base.label} (n = {len(base.seeds)})",
        pairs,
        (Column("set", "set"), lambda row: row[0].set),
        (Column("first", "first", ColumnKind.SHARE, series="quality"), lambda row: estimate_cell(row[0].quality)),
        (Column("second", "second", ColumnKind.SHARE, series="quality"), lambda row: estimate_cell(row[1].quality)),
        (Column("difference_points", "difference, points", ColumnKind.NUMBER), lambda row: _difference(row[1].against)),
        (Column("verdict", "verdict"), lambda row: _verdict(row[1].against)),
        (
            Column("falls_more_points", "falls further by", ColumnKind.NUMBER),
            lambda row: estimate_cell(row[1].falls_more),
        ),
        notes=(
            f"First is {base.label}, second {arm.label}: means over models, {level} t intervals (another seed, these "
            f"examples). Difference: {_method(found)}, all hold jointly at {level} (Bonferroni); SAME within "
            f"{found.margin:g} points. Falls further: from the test split to this set, than the first.",
        ),
    ).without_empty()


def _alone_table(found: Generalization) -> Table:
    (arm,) = found.arms
    return Table.of(
        "generalization",
        f"{found.metric} of {arm.label} (n = {len(arm.seeds)})",
        found.scores,
        (Column("set", "set"), lambda row: row.set),
        (Column("quality", "quality", ColumnKind.SHARE), lambda row: estimate_cell(row.quality)),
        (Column("fall_points", "below the test split, points", ColumnKind.NUMBER), lambda row: estimate_cell(row.fall)),
        notes=(f"Means over models with {found.level * 100:g} % t intervals: another seed, these examples.",),
    ).without_empty()


def _quality_title(found: Generalization) -> str:
    return "quality" if any(each.kind == "transfer" for each in found.sets) else found.metric


def _method(found: Generalization) -> str:
    paired = {each.against.paired for each in found.scores if each.against is not None and each.against.points}
    names = {True: "paired by seed", False: "Welch's t"}
    return " or ".join(names[each] for each in sorted(paired, reverse=True)) or "none"


def _difference(against: QualityDifference | None) -> CellValue:
    if against is None:
        return None
    return Absent(against.reason) if against.points is None else estimate_cell(against.points)


def _verdict(against: QualityDifference | None) -> CellValue:
    if against is None:
        return None
    if against.kind is None:
        return Absent(against.reason)
    more = f", {against.runs_to_settle} more models each" if against.runs_to_settle else ""
    return f"{against.kind}{more}"


def generalization_lines(found: Generalization) -> list[str]:
    """One sentence for each arm: on which sets it is better, worse, the same or unclear; then what is missing."""
    lines = []
    for arm in found.arms[1:]:
        by: dict[str, list[str]] = {}
        for each in found.scores:
            if each.label == arm.label and each.against is not None:
                by.setdefault(str(each.against.kind or "without a verdict"), []).append(each.set)
        order = ("BETTER", "WORSE", "SAME", "UNCLEAR", "without a verdict")
        said = "; ".join(f"{kind} on {_listed(by[kind])}" for kind in order if kind in by)
        lines.append(f"{arm.label} against {found.arms[0].label}: {said}")
    return [*lines, *found.lacks]


def _listed(names: Sequence[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def write_generalization(found: Generalization, path: Path) -> Path:
    """Draw the mean quality of each arm on each set, with its interval. Raises as ``drawing.draw``."""
    height = 1.6 + len(found.sets) * (0.14 + 0.12 * len(found.arms))
    return draw(path, "generalization", (6.8, height), lambda figure: _draw(figure.add_subplot(), found))


def _draw(axes: Axes, found: Generalization) -> None:
    names, count = [each.name for each in found.sets], len(found.arms)
    for at, arm in enumerate(found.arms):
        own = [each for each in found.scores if each.label == arm.label]
        offset = (at - (count - 1) / 2) * 0.6 / max(1, count)
        places = [names.index(each.set) + offset for each in own]
        colour = SERIES[at][0]
        for place, each in zip(places, own, strict=True):
            if each.quality.interval is not None:
                ends = [100 * each.quality.interval.low, 100 * each.quality.interval.high]
                axes.plot(ends, [place, place], color=colour, linewidth=1.4, zorder=2)
        values = [100 * each.quality.value for each in own]
        label = clean(f"{arm.label} (n = {len(arm.seeds)})")
        axes.plot(values, places, MARKERS[at], color=colour, markersize=5, label=label, zorder=3, markerfacecolor="w")
    axes.set_yticks(range(len(names)), [clean(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel(f"{_quality_title(found)}, % (mean over models, {found.level * 100:g} % t interval)")
    handles, labels = axes.get_legend_handles_labels()
    axes.figure.legend(handles, labels, loc="outside lower center", ncols=1, frameon=False, fontsize=8)
    plain_axes(axes)
