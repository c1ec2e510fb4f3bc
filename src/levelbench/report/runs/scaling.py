"""How a task scales with ranks: two tables, and a figure of both efficiencies.

The one idea: what was predicted stands in a row or a curve of its own kind and says so, wherever it is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from levelbench.report.cells import estimate_cell
from levelbench.report.figures.drawing import INK, check_ending, draw, plain_axes
from levelbench.report.style import SERIES
from levelbench.report.tables import Absent, Cell, Column, Kind, Number, Reached, Table, Text, clean

if TYPE_CHECKING:
    from levelbench.measure.statistics import Estimate, Interval
    from levelbench.records import RunGroup
    from levelbench.records.teamwork import Teamwork

__all__ = [
    "PredictedPoint",
    "ScaledPoint",
    "draw_efficiencies",
    "predictions_table",
    "scaling_table",
    "teamwork_table",
    "write_scaling",
]


class _Efficiency(Protocol):
    @property
    def value(self) -> float | None: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...
    @property
    def reason(self) -> str: ...


class ScaledPoint(Protocol):
    """What is shown: :class:`levelbench.analysis.scaling.Point` is one."""

    @property
    def label(self) -> str:
        """What tells it from the others."""

    @property
    def ranks(self) -> int:
        """How many."""

    @property
    def threads(self) -> int:
        """Of each rank."""

    @property
    def crowded(self) -> bool:
        """Whether threads outnumbered cores."""

    @property
    def group(self) -> RunGroup:
        """Its runs."""

    @property
    def reached(self) -> Interval:
        """The interval of the share of runs that reached the target."""

    @property
    def time_to_accuracy_s(self) -> Estimate | None:
        """Over its runs."""

    @property
    def epoch_s(self) -> Estimate | None:
        """Training alone."""

    @property
    def samples_to_target(self) -> Estimate | None:
        """Over its runs."""

    @property
    def teamwork(self) -> tuple[Teamwork, ...]:
        """Of each run."""

    @property
    def per_epoch(self) -> _Efficiency:
        """In time per epoch."""

    @property
    def to_accuracy(self) -> _Efficiency:
        """In time to accuracy."""

    def team(self, name: str) -> Estimate | None:
        """A figure of its teamwork over the runs."""


class PredictedPoint(Protocol):
    """A prediction: :class:`levelbench.distributed.simulation.predict.Prediction` is one."""

    @property
    def label(self) -> str:
        """The scheme."""

    @property
    def ranks(self) -> int:
        """How many."""

    @property
    def step_s(self) -> Estimate:
        """The time of a step, with its interval."""

    @property
    def communicate_share(self) -> float:
        """Of a step."""

    @property
    def efficiency(self) -> _Efficiency:
        """In time per epoch, against one rank."""

    @property
    def time_to_target_s(self) -> Estimate | None:
        """Training alone, where the examples that it takes are known."""

    @property
    def sent_bytes(self) -> float:
        """Of a step and rank."""

    @property
    def messages(self) -> float:
        """Of a step and rank."""


def scaling_table(title: str, points: Sequence[ScaledPoint], notes: Sequence[str] = ()) -> Table:
    """A row a point: times, samples, and efficiencies in both senses."""
    columns = (
        Column("point", "point"),
        Column("ranks", "ranks", Kind.NUMBER),
        Column("threads", "threads each", Kind.NUMBER),
        Column("reached", "reached"),
        Column("time_to_accuracy_s", "time to accuracy", Kind.TIME_S),
        Column("efficiency_to_accuracy", "efficiency to accuracy", Kind.SHARE),
        Column("epoch_s", "time per epoch", Kind.TIME_S),
        Column("efficiency_per_epoch", "efficiency per epoch", Kind.SHARE),
        Column("samples_to_target", "samples to target", Kind.NUMBER),
    )
    return Table("scaling", title, columns, tuple(map(_row, points)), tuple(notes))


def _row(point: ScaledPoint) -> tuple[Cell, ...]:
    group, inside = point.group, point.reached
    missed = "no run reached the target"
    return (
        Text(clean(point.label)),
        Number(point.ranks),
        Number(point.threads),
        Reached(group.reached, group.n, inside.low, inside.high),
        estimate_cell(point.time_to_accuracy_s, missed),
        _efficiency(point.to_accuracy),
        estimate_cell(point.epoch_s, "no run came to an end"),
        _efficiency(point.per_epoch),
        estimate_cell(point.samples_to_target, missed),
    )


def _efficiency(found: _Efficiency) -> Cell:
    return Absent(found.reason) if found.value is None else Number(found.value, found.low, found.high)


def teamwork_table(points: Sequence[ScaledPoint]) -> Table | None:
    """What ranks sent, and where their time went; ``None`` where no point has several."""
    rows = [_team_row(point) for point in points if point.teamwork]
    if not rows:
        return None
    columns = (
        Column("point", "point"),
        Column("sent_bytes", "sent a step and rank", Kind.BYTES),
        Column("predicted_bytes", "predicted", Kind.BYTES),
        Column("messages", "messages", Kind.NUMBER),
        Column("predicted_messages", "predicted", Kind.NUMBER),
        Column("communicate_share", "communication", Kind.SHARE),
        Column("waiting_share", "of it waiting", Kind.SHARE),
        Column("overlap", "overlapped", Kind.SHARE),
        Column("imbalance", "imbalance", Kind.NUMBER),
        Column("staleness", "staleness"),
        Column("divergence", "divergence"),
    )
    notes = (
        "Sent: counted at the communicator; predicted: the scheme's closed form. Shares are of a step, over all ranks.",
        "Imbalance: computation of the slowest rank over the mean one's. Staleness in updates: median, largest.",
    )
    return Table("teamwork", "What the ranks did", columns, tuple(rows), notes)


_COUNTED = ("sent_bytes", "messages")
_UNCOUNTED = "not counted: the framework sends by itself"


def _team_row(point: ScaledPoint) -> tuple[Cell, ...]:
    nothing = "nobody noted it"
    figures = (
        *("sent_bytes", "predicted_bytes", "messages", "predicted_messages"),
        *("communicate_share", "waiting_share", "overlap", "imbalance"),
    )
    stale = sorted(value for each in point.teamwork for value in each.staleness)
    apart = [each.divergence[-1] for each in point.teamwork if each.divergence]
    return (
        Text(clean(point.label)),
        *(estimate_cell(point.team(name), _UNCOUNTED if name in _COUNTED else nothing) for name in figures),
        Text(f"{stale[len(stale) // 2]:g}, {stale[-1]:g}") if stale else Absent(nothing),
        Text(f"{max(apart):.2g}") if apart else Absent("replicas are equal, or nobody noted it"),
    )


def predictions_table(points: Sequence[PredictedPoint], notes: Sequence[str] = ()) -> Table:
    """A row a prediction."""
    columns = (
        Column("point", "predicted"),
        Column("ranks", "ranks", Kind.NUMBER),
        Column("step_s", "time per step", Kind.TIME_S),
        Column("efficiency_per_epoch", "efficiency per epoch", Kind.SHARE),
        Column("communicate_share", "communication", Kind.SHARE),
        Column("sent_bytes", "sent a step and rank", Kind.BYTES),
        Column("messages", "messages", Kind.NUMBER),
        Column("time_to_target_s", "training to target", Kind.TIME_S),
    )
    rows = tuple(
        (
            Text(clean(f"{point.label} (predicted)")),
            Number(point.ranks),
            estimate_cell(point.step_s),
            _efficiency(point.efficiency),
            Number(point.communicate_share),
            Number(point.sent_bytes),
            Number(point.messages),
            estimate_cell(point.time_to_target_s, "no run of this scheme says how many examples its target takes"),
        )
        for point in points
    )
    return Table("predictions", "Predictions of the simulator: nothing here was measured", columns, rows, tuple(notes))


def write_scaling(title: str, points: Sequence[ScaledPoint], predicted: Sequence[PredictedPoint], path: Path) -> Path:
    """Draw both efficiencies over the number of ranks to a .png or .svg file; predictions are hollow and dashed."""
    check_ending(path)

    def onto(figure: Any) -> None:
        axes = figure.add_subplot(title=title)
        draw_efficiencies(axes, points, predicted, [colour for colour, *_ in SERIES], INK)
        plain_axes(axes)

    return draw(path, title, (7.0, 4.2), onto)


def draw_efficiencies(
    axes: Any, points: Sequence[ScaledPoint], predicted: Sequence[PredictedPoint], colours: Sequence[str], ink: str
) -> None:
    """Both efficiencies over ranks, a colour of ``colours`` a scheme; lines that are no curve in ``ink``."""
    axes.axhline(1, color=ink, linewidth=0.8, linestyle=":")
    schemes = list(dict.fromkeys(scheme for point in points if (scheme := _scheme(point))))
    highest = 1.0
    for at, scheme in enumerate(list(schemes)):
        # A single process has no scheme: it is where every curve begins.
        own = [point for point in points if _scheme(point) in ("", scheme)]
        for name, label, filled in (("per_epoch", "per epoch", True), ("to_accuracy", "to accuracy", False)):
            shown = [(point.ranks, found) for point in own if (found := getattr(point, name)).value is not None]
            highest = max([highest, *(found.value for _, found in shown)])
            style = "o-" if filled else "s--"
            _curve(axes, shown, colours[at % len(colours)], f"{scheme}, {label}", style, filled=filled)
    schemes += [each for each in dict.fromkeys(each.label for each in predicted) if each not in schemes]
    for at, scheme in enumerate(schemes):
        found = [(each.ranks, each.efficiency) for each in predicted if each.label == scheme]
        _curve(axes, found, colours[at % len(colours)], f"{scheme}, per epoch, predicted", "D:", filled=False)
    ranks = sorted({each.ranks for each in points} | {each.ranks for each in predicted})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ranks, [str(each) for each in ranks])
    axes.minorticks_off()
    axes.set_ylim(0, 1.3 * highest)
    axes.set(xlabel="ranks", ylabel="parallel efficiency")
    crowded = sorted({point.ranks for point in points if point.crowded})
    if crowded:
        said = f"none claimed on {', '.join(map(str, crowded))} ranks: more threads than cores"
        axes.text(0.99, 0.03, said, transform=axes.transAxes, ha="right", fontsize="small")
    axes.legend(frameon=False, fontsize="small", ncols=2)


def _scheme(point: ScaledPoint) -> str:
    distribution = point.group.specification.distribution
    return distribution.scheme if distribution else ""


def _curve(axes: Any, shown: Sequence[tuple[int, Any]], colour: str, label: str, style: str, *, filled: bool) -> None:
    if not shown:
        return
    xs, ys = [ranks for ranks, _ in shown], [found.value for _, found in shown]
    below = [found.value - (found.value if found.low is None else found.low) for _, found in shown]
    above = [(found.value if found.high is None else found.high) - found.value for _, found in shown]
    face = colour if filled else "none"
    axes.errorbar(xs, ys, yerr=[below, above], fmt=style, color=colour, markerfacecolor=face, capsize=3, label=label)
