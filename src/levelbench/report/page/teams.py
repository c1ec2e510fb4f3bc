"""The report's section on ranks: how runs scale with them, and what each rank of a run did.

The one idea: an efficiency is a matter of several groups and is worked out elsewhere; what a rank did is a matter of
one run, so a group shows the run of the median time, and says which.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from levelbench.report.figures.figure import Figure, Group, can_draw
from levelbench.report.markup import Html, table_markup, tag
from levelbench.report.runs.ranks import rank_tables, typical
from levelbench.report.runs.scaling import ScaledPoint, draw_efficiencies, scaling_table, teamwork_table

if TYPE_CHECKING:
    from levelbench.records.reader import Record

__all__ = ["Scaled", "ranks_section", "scaling_figure"]


class Scaled(Protocol):
    """Points of one task: :class:`levelbench.analysis.scaling.Scaling` is one."""

    @property
    def title(self) -> str:
        """What is scaled."""

    @property
    def points(self) -> Sequence[ScaledPoint]:
        """The smallest number of ranks first."""

    @property
    def warnings(self) -> Sequence[str]:
        """Why some points claim nothing."""


def ranks_section(groups: Sequence[Group], scalings: Sequence[Scaled], figures: Sequence[Html]) -> Html:
    """Empty where no run has several ranks. ``figures`` are those of ``scalings``, in their order."""
    parts: list[Html] = []
    for scaled, figure in zip(scalings, figures, strict=True):
        team = teamwork_table(scaled.points)
        parts += [tag("h3", scaled.title), *(tag("p", each, class_="note") for each in scaled.warnings), figure]
        parts += [table_markup(team)] if team is not None else []
    for group, records in groups:
        record = typical(records)
        if record is not None:
            parts += _of_run(group.label, record, sum(bool(each.ranks) for each in records))
    return tag("section", tag("h2", "Ranks"), *parts) if parts else Html("")


def _of_run(label: str, record: Record, runs: int) -> list[Html]:
    which = f"Run {record.header.id[:8]}, seed {record.header.seed}"
    which += f", the one of the median time of {runs}" if runs > 1 else ""
    ranks, *more = rank_tables(record)
    parts = [tag("h3", label), tag("p", f"{which}.", class_="note")]
    parts.append(table_markup(ranks))
    if more:
        titled = (part for each in more for part in (tag("p", each.title), table_markup(each, 120)))
        parts.append(tag("details", tag("summary", "Operations, staleness, divergence"), *titled))
    return parts


def scaling_figure(scaled: Scaled, name: str) -> Figure:
    """Both efficiencies over the number of ranks, with their table."""
    table = scaling_table(scaled.title, scaled.points)
    said = [
        f"{point.ranks} rank{'s' * (point.ranks > 1)} {point.per_epoch.value:.2f}"
        for point in scaled.points
        if point.per_epoch.value is not None
    ]
    return Figure(
        name=name,
        title="Parallel efficiency",
        alt=f"Parallel efficiency per epoch: {', '.join(said) or 'none is claimed'}.",
        caption="Time of the smallest point over the time here, over how many times the cores. Solid: time per epoch, "
        "training alone. Dashed: time to accuracy. 1 is perfect.",
        svg=_drawn(scaled, name) if can_draw() else "",
        table=table,
        data=table,
    )


def _drawn(scaled: Scaled, name: str) -> str:
    from levelbench.report.figures import plots
    from levelbench.report.style import SERIES

    with plots._canvas(name, 3.5) as (canvas, axes):
        colours = [plots._series(at) for at in range(len(SERIES))]
        draw_efficiencies(axes, scaled.points, (), colours, plots._INK)
        return plots._svg(canvas, name)
