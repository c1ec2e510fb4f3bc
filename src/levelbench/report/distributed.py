"""Tables and figures of distributed training: what ranks did, how a task scales, a communicator's messages.

Predictions always have separate rows or curves, and are labelled as predictions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, isfinite, log2
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from levelbench.analysis.scaling import BASE
from levelbench.errors import UsageError
from levelbench.measure.statistics import Estimate, Interval
from levelbench.records.ranks import teamwork
from levelbench.records.reader import Record
from levelbench.records.schema import Samples
from levelbench.report.drawing import INK, MARKERS, bars_said, check_ending, draw, plain_axes, time_unit
from levelbench.report.markup import SERIES
from levelbench.report.numbers import BYTES, number
from levelbench.report.tables import (
    Absent,
    Cell,
    CellValue,
    Column,
    ColumnKind,
    Number,
    Reached,
    Table,
    Text,
    clean,
    estimate_cell,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

    from levelbench.analysis.scaling import Efficiency, ScaledPoint, Scaling, ScalingLaws

__all__ = ["MessageCurve", "PredictedPoint", "divergence_table", "draw_efficiencies", "operations_table"]
__all__ += ["laws_table", "predictions_table", "rank_tables", "ranks_table", "scaling_table", "scaling_tables"]
__all__ += ["staleness_table", "teamwork_table", "typical", "write_communicators", "write_scaling"]

_MOST_BINS = 12
_ASIDE = 0.012
"""How far bars at one number of ranks lie apart, as a share of the axis."""
_NOTHING = "not recorded"
_IDLE = "it does not train"
_UNCOUNTED = "not counted: the framework itself sends"
_UNMEASURED = "not measured: the framework communicates within its own forward and backward passes"

_Samples = Mapping[str, Samples]


def typical(records: Sequence[Record]) -> Record | None:
    """The run with the median time among the finished runs with ranks; of two, the faster one."""
    done = [(each.end.t_ns, at, each) for at, each in enumerate(records) if each.ranks and each.end is not None]
    found = [each for *_, each in sorted(done, key=lambda each: each[:2]) if each.status == "done"]
    return found[(len(found) - 1) // 2] if found else None


def rank_tables(record: Record | None) -> list[Table]:
    """What the ranks of a run did; empty for a run of one process."""
    if record is None:
        return []
    makers = (ranks_table, operations_table, staleness_table, divergence_table)
    return [table for make in makers if (table := make(record)) is not None]


def ranks_table(record: Record) -> Table | None:
    """A row per rank; ``None`` for a run of one process."""
    if not record.ranks:
        return None
    made = max((len(each["step_time"].values) for each in record.ranks.values() if "step_time" in each), default=0)

    def times(found: _Samples, name: str) -> NDArray[np.float64]:
        return np.asarray(found[name].values, np.float64) if name in found else np.zeros(0)

    def step(found: _Samples) -> CellValue:
        steps = times(found, "step_time")
        return float(np.median(steps)) * 1e-9 if len(steps) else Absent(_IDLE)

    def communication(found: _Samples) -> CellValue:
        steps, talk = times(found, "step_time"), times(found, "communicate_time")
        if len(steps) and "counted" in found and not found["counted"].values[0]:
            return Absent(_UNMEASURED)
        return float(talk.sum() / steps.sum()) if len(steps) and len(talk) == len(steps) else Absent(_IDLE)

    def per_step(found: _Samples, name: str) -> CellValue:
        steps = len(times(found, "step_time")) or made
        values = next((found[each].values for each in (name, f"{name}_serving") if each in found), None)
        if values is None or not steps:
            return Absent(_NOTHING)
        if "counted" in found and not found["counted"].values[0]:
            return Absent(_UNCOUNTED)
        return float(np.sum(values)) / steps

    def total(found: _Samples, name: str) -> CellValue:
        return float(np.sum(found[name].values)) if name in found else Absent(_NOTHING)

    return Table.of(
        "ranks",
        "Ranks",
        record.ranks.items(),
        (Column("rank", "rank", ColumnKind.NUMBER), lambda item: item[0]),
        (Column("role", ""), lambda item: "worker" if len(times(item[1], "step_time")) else "server"),
        (Column("step_s", "median step", ColumnKind.TIME_S), lambda item: step(item[1])),
        (Column("communicate_share", "communication", ColumnKind.SHARE), lambda item: communication(item[1])),
        (Column("sent_bytes", "sent per step", ColumnKind.BYTES), lambda item: per_step(item[1], "sent")),
        (Column("messages", "messages", ColumnKind.NUMBER), lambda item: per_step(item[1], "messages")),
        (
            Column("sent_start_bytes", "sent at the start", ColumnKind.BYTES),
            lambda item: total(item[1], "sent_at_start"),
        ),
        (
            Column("sent_between_bytes", "sent around evaluations", ColumnKind.BYTES),
            lambda item: total(item[1], "sent_between"),
        ),
        notes=(
            "Time per step: median. A server sends while it serves; its figures are per step of the workers.",
            "Each rank has its own clock; times of different ranks are never subtracted.",
        ),
    )


def operations_table(record: Record) -> Table | None:
    """What all ranks together called and sent, by operation and phase; ``None`` if not recorded."""
    sums: dict[tuple[str, str], dict[str, float]] = {}
    for found in record.ranks.values():
        for name, samples in found.items():
            what, _, place = name.partition(":")
            if place:
                operation, _, phase = place.partition(":")
                of = sums.setdefault((operation, phase), {})
                of[what] = of.get(what, 0.0) + float(np.sum(samples.values))
    if not sums:
        return None
    return Table.of(
        "operations",
        "Calls of all ranks together",
        sorted(sums.items(), key=lambda each: -each[1].get("sent", 0.0)),
        (Column("operation", "operation"), lambda item: item[0][0].replace("_", "-")),
        (Column("phase", "phase"), lambda item: item[0][1]),
        (Column("calls", "calls", ColumnKind.NUMBER), lambda item: item[1].get("calls", 0.0)),
        (Column("sent_bytes", "sent", ColumnKind.BYTES), lambda item: item[1].get("sent", 0.0)),
        (Column("messages", "messages", ColumnKind.NUMBER), lambda item: item[1].get("messages", 0.0)),
        (Column("time_s", "time in it", ColumnKind.TIME_S), lambda item: item[1].get("time", 0.0) * 1e-9),
    )


def staleness_table(record: Record) -> Table | None:
    """The number of gradients by their age in updates when they were applied; ``None`` if not recorded."""
    found = teamwork(record)
    if found is None or not found.staleness:
        return None
    counts = Counter(int(each) for each in found.staleness)
    width = -(-(max(counts) + 1) // _MOST_BINS)
    binned = Counter(dict.fromkeys(range(max(counts) // width + 1), 0))
    for value, count in counts.items():
        binned[value // width] += count
    return Table.of(
        "staleness",
        "Staleness: updates between reading the weights and applying their gradient",
        sorted(binned.items()),
        (
            Column("staleness", "updates"),
            lambda item: str(item[0]) if width == 1 else f"{item[0] * width} to {(item[0] + 1) * width - 1}",
        ),
        (Column("count", "gradients", ColumnKind.NUMBER), lambda item: item[1]),
        (Column("share", "share", ColumnKind.SHARE), lambda item: item[1] / len(found.staleness)),
    )


def divergence_table(record: Record) -> Table | None:
    """The distance of replicas from their mean at each evaluation; ``None`` if they are equal, or not recorded."""
    found = teamwork(record)
    if found is None or not found.divergence:
        return None
    return Table.of(
        "divergence",
        "Divergence of the replicas from their mean",
        zip(record.evaluations, found.divergence, strict=False),
        (Column("epoch", "epoch", ColumnKind.NUMBER), lambda item: item[0].epoch),
        (Column("divergence", "largest relative distance", ColumnKind.NUMBER), lambda item: item[1]),
    )


class _Efficiency(Protocol):
    @property
    def value(self) -> float | None: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...
    @property
    def reason(self) -> str: ...


class PredictedPoint(Protocol):
    """A prediction: :class:`levelbench.distributed.simulation.predict.Prediction` is one."""

    @property
    def label(self) -> str:
        """The scheme."""

    @property
    def ranks(self) -> int:
        """Number of ranks."""

    @property
    def step_s(self) -> Estimate:
        """The time of a step, with its interval."""

    @property
    def communicate_share(self) -> float:
        """Per step."""

    @property
    def efficiency(self) -> _Efficiency:
        """In time per epoch, relative to one rank."""

    @property
    def time_to_target_s(self) -> Estimate | None:
        """Training alone, if the number of examples that it takes is known."""

    @property
    def sent_bytes(self) -> float:
        """Per step and rank."""

    @property
    def messages(self) -> float:
        """Per step and rank."""


def scaling_table(title: str, points: Sequence[ScaledPoint], notes: Sequence[str] = ()) -> Table:
    """A row per point: times, samples, and both efficiencies."""
    missed = "no run reached the target"

    def reached(point: ScaledPoint) -> Cell:
        return Reached(point.arrived, point.n, point.reached.low, point.reached.high)

    return Table.of(
        "scaling",
        title,
        points,
        (Column("point", "point"), lambda point: clean(point.label)),
        (Column("ranks", "ranks", ColumnKind.NUMBER), lambda point: point.ranks),
        (
            Column("threads", "threads each", ColumnKind.NUMBER),
            lambda point: Text(point.threads_said) if point.several_threads else point.threads,
        ),
        (Column("reached", "reached"), reached),
        (
            Column("time_to_accuracy_s", "time to accuracy", ColumnKind.TIME_S),
            lambda point: estimate_cell(point.time_to_accuracy_s, missed),
        ),
        (
            Column("efficiency_to_accuracy", "efficiency to accuracy", ColumnKind.SHARE),
            lambda point: _scaled(point.to_accuracy),
        ),
        (
            Column("epoch_s", "time per epoch", ColumnKind.TIME_S),
            lambda point: estimate_cell(point.epoch_s, "no run has finished"),
        ),
        (
            Column("efficiency_per_epoch", "efficiency per epoch", ColumnKind.SHARE),
            lambda point: _scaled(point.per_epoch),
        ),
        (
            Column("samples_to_target", "samples to target", ColumnKind.NUMBER),
            lambda point: estimate_cell(
                point.samples_to_target, "the runs do not count samples" if point.arrived else missed
            ),
        ),
        notes=notes,
    )


def _scaled(found: Efficiency) -> Cell:
    """As measured: what has no interval says so, but the base, which is 1 by definition."""
    cell = _efficiency(found)
    bare = isinstance(cell, Number) and cell.low is None and found.reason != BASE
    return replace(cell, remark="(no interval)") if isinstance(cell, Number) and bare else cell


def _efficiency(found: Efficiency | _Efficiency) -> Cell:
    return Absent(found.reason) if found.value is None else Number(found.value, found.low, found.high)


def laws_table(laws: Sequence[ScalingLaws], level: float = 0.95) -> Table:
    """A row for each law and quantity: its parameters and what they bound."""
    rows: list[tuple[Cell, ...]] = []
    for each in laws:
        over = "" if not each.scheme else f"{each.scheme}, "
        what = f"{over}{'time per epoch' if each.quantity == 'epoch' else 'time to accuracy'}"
        runs = Text(f"{each.n}{f' ({each.censored} censored)' if each.censored else ''}")
        counts = Text(", ".join(map(str, each.counts)))
        fitted: tuple[Cell, Cell, Cell] | None = None
        if each.serial is not None:
            share = _share(each.serial, each.serial_interval, each.unit)
            most: Cell = Number(each.most or 0.0, *_turned(each.serial_interval))
            if isinstance(share, Absent):
                most = Text("none: more are slower")
            fitted = Number(each.base_s or 0.0), share, most
        elif len(each.counts) > 1:
            none = Absent("no loss to fit")
            fitted = none, none, none
        if fitted is not None:
            rows.append((Text(f"{what}: Amdahl"), counts, runs, fitted[0], fitted[1], Absent(), fitted[2], Absent()))
        if each.contention is not None and each.coherency is not None:
            unbounded = Absent("coherency has no interval") if each.peak is None else Text("not bounded")
            peak = Number(each.peak) if each.peak is not None and isfinite(each.peak) else unbounded
            contention = _share(each.contention, each.contention_interval, each.unit)
            shares = contention, _with(each.coherency, each.coherency_interval)
            rows.append((Text(f"{what}: Universal"), counts, runs, Absent(), *shares, Absent(), peak))
    unit = laws[0].unit if laws else "rank"
    columns = (
        Column("law", "law of"),
        Column("counts", f"{unit}s"),
        Column("runs", "runs"),
        Column("base_s", f"on one {unit}", ColumnKind.TIME_S),
        Column("serial", "serial, contention", ColumnKind.SHARE),
        Column("coherency", "coherency", ColumnKind.SHARE),
        Column("most", "greatest speed-up", ColumnKind.NUMBER),
        Column("peak", f"fastest on {unit}s", ColumnKind.NUMBER),
    )
    notes = (
        "Amdahl: t(p) = t(1) (s + (1 - s) / p), at most 1 / s times as fast. Universal Scalability Law: "
        f"t(p) = t(1) (1 + s (p - 1) + k p (p - 1)) / p. Fitted on logarithms, {level * 100:g} % intervals of the "
        "profile likelihood.",
    )
    return Table("laws", "Laws of scaling", columns, tuple(rows), notes).without_empty()


def _share(value: float, interval: Interval | None, unit: str) -> Cell:
    """A share of the time on one rank, at most all of it, which the fit does not know."""
    found = _with(value, interval)
    if value > 1 and (found.low is None or found.low >= 1):
        return Absent(f"more {unit}s take longer than one: no share of its time explains that")
    return replace(found, value=min(1.0, value), high=None if found.high is None else min(1.0, found.high))


def _with(value: float, interval: Interval | None) -> Number:
    if interval is None or not isfinite(interval.high):
        return Number(value)
    return Number(value, interval.low, interval.high)


def _turned(interval: Interval | None) -> tuple[float | None, float | None]:
    if interval is None or interval.low <= 0 or not isfinite(interval.high):
        return None, None
    return max(1.0, 1 / interval.high), max(1.0, 1 / interval.low)


def teamwork_table(points: Sequence[ScaledPoint]) -> Table | None:
    """What ranks sent, and where their time went; ``None`` if no point has several ranks."""
    teams = [point for point in points if point.teamwork]
    if not teams:
        return None

    def figure(
        key: str, title: str, kind: ColumnKind, reason: str = _NOTHING
    ) -> tuple[Column, Callable[[ScaledPoint], Cell]]:
        return Column(key, title, kind), lambda point: estimate_cell(point.team(key), reason)

    def staleness(point: ScaledPoint) -> CellValue:
        stale = sorted(value for each in point.teamwork for value in each.staleness)
        return f"{stale[len(stale) // 2]:g}, {stale[-1]:g}" if stale else Absent(_NOTHING)

    def divergence(point: ScaledPoint) -> CellValue:
        apart = [each.divergence[-1] for each in point.teamwork if each.divergence]
        return f"{max(apart):.2g}" if apart else Absent("replicas are equal, or not recorded")

    return Table.of(
        "teamwork",
        "What the ranks did",
        teams,
        (Column("point", "point"), lambda point: clean(point.label)),
        figure("sent_bytes", "sent per step and rank", ColumnKind.BYTES, _UNCOUNTED),
        figure("predicted_bytes", "predicted", ColumnKind.BYTES),
        figure("messages", "messages", ColumnKind.NUMBER, _UNCOUNTED),
        figure("predicted_messages", "predicted", ColumnKind.NUMBER),
        figure("communicate_share", "communication", ColumnKind.SHARE, _UNMEASURED),
        figure("waiting_share", "of it waiting", ColumnKind.SHARE),
        figure("overlap", "overlapped", ColumnKind.SHARE),
        figure("imbalance", "imbalance", ColumnKind.NUMBER),
        figure("peak_memory_bytes", "peak memory", ColumnKind.BYTES),
        (Column("staleness", "staleness"), staleness),
        (Column("divergence", "divergence"), divergence),
        notes=(
            "Sent: counted at the communicator; predicted: the scheme's closed form. Shares of a step, over all ranks.",
            "Imbalance: computation of the slowest rank over the mean. Staleness in updates: median, largest.",
            "Peak memory: of the largest rank, its whole process.",
        ),
    )


def predictions_table(points: Sequence[PredictedPoint], notes: Sequence[str] = ()) -> Table:
    """A row per prediction."""
    unknown = "no run of this scheme shows how many examples its target takes"
    return Table.of(
        "predictions",
        "Predictions of the simulator: nothing here was measured",
        points,
        (Column("point", "predicted"), lambda point: clean(f"{point.label} (predicted)")),
        (Column("ranks", "ranks", ColumnKind.NUMBER), lambda point: point.ranks),
        (Column("step_s", "time per step", ColumnKind.TIME_S), lambda point: estimate_cell(point.step_s)),
        (
            Column("efficiency_per_epoch", "efficiency per epoch", ColumnKind.SHARE),
            lambda point: _efficiency(point.efficiency),
        ),
        (Column("communicate_share", "communication", ColumnKind.SHARE), lambda point: point.communicate_share),
        (Column("sent_bytes", "sent per step and rank", ColumnKind.BYTES), lambda point: point.sent_bytes),
        (Column("messages", "messages", ColumnKind.NUMBER), lambda point: point.messages),
        (
            Column("time_to_target_s", "training to target", ColumnKind.TIME_S),
            lambda point: estimate_cell(point.time_to_target_s, unknown),
        ),
        notes=notes,
    )


def scaling_tables(found: Scaling) -> list[Table]:
    """Points with both efficiencies, the laws, and what the ranks did."""
    runs = any(point.group is not None for point in found.points)
    notes = (
        "Efficiency: time of the first point over time here, over how many times the cores (ranks times threads each); "
        "time per epoch is training alone, of a program all but what it marks as preparation, compilation, evaluation "
        "or checkpoint."
        if runs
        else "Efficiency: time of the first point over time here, over how many times the accelerators; time per epoch "
        "is that of the whole run, with evaluation if the entry's clock has it in.",
        f"Brackets: of efficiencies the {found.level * 100:g} % interval"
        f"{', of what reached the target its Wilson interval' if runs else ''}; of others the lowest and highest of up "
        "to five runs, and their interval from six on.",
    )
    points = scaling_table(found.title, found.points, notes)
    if not runs:
        # An entry's ranks are accelerators, and it counts no samples.
        columns = tuple(replace(each, title="accelerators") if each.key == "ranks" else each for each in points.columns)
        points = replace(points, columns=columns)
        points = points.only(
            [at for at, each in enumerate(columns) if each.key not in ("threads", "samples_to_target")]
        )
    tables = [points, laws_table(found.laws, found.level)]
    tables += [each for each in [teamwork_table(found.points)] if each is not None]
    return [table for table in tables if table.rows]


def write_scaling(
    title: str,
    points: Sequence[ScaledPoint],
    predicted: Sequence[PredictedPoint],
    path: Path,
    laws: Sequence[ScalingLaws] = (),
) -> Path:
    """Draw both efficiencies over the number of ranks to a .png or .svg file; predictions are hollow and dashed.

    Amdahl's law is a thin line for each of ``laws``.
    """
    check_ending(path)

    def onto(figure: Canvas) -> None:
        axes = figure.add_subplot()
        figure.suptitle(title)
        draw_efficiencies(axes, points, predicted, [colour for colour, *_ in SERIES], INK)
        _draw_laws(axes, laws)
        counts = sorted({point.n for point in points})
        if counts:
            n = f"n = {counts[0]}" + f" to {counts[-1]}" * (len(counts) > 1)
            axes.set_xlabel(f"{axes.get_xlabel()} ({n} a point; {_bars(points)})")
        plain_axes(axes)

    return draw(path, title, (7.0, 4.2), onto)


def _bars(points: Sequence[ScaledPoint]) -> str:
    """What the bars are, of all efficiencies but the base's, which needs none."""
    shown = [found for point in points for found in (point.per_epoch, point.to_accuracy) if found.reason != BASE]
    level = points[0].level
    return bars_said(
        None if each.low is None or each.high is None else Interval(each.low, each.high, level, "")
        for each in shown
        if each.value is not None
    )


def _draw_laws(axes: Axes, laws: Sequence[ScalingLaws]) -> None:
    """Efficiency by Amdahl's law, relative to the smallest number of ranks as the points are."""
    drawn = [each for each in laws if each.serial and each.serial <= 1]
    for each in drawn:
        share, dash = each.serial or 0.0, "-." if each.quantity == "epoch" else ":"
        ranks = [each.counts[0] * (each.counts[-1] / each.counts[0]) ** (step / 50) for step in range(51)]
        base = 1 + share * (ranks[0] - 1)
        efficiencies = [base / (1 + share * (count - 1)) for count in ranks]
        what = "per epoch" if each.quantity == "epoch" else "to accuracy"
        label = clean(f"{each.scheme or 'entries'}, {what}, Amdahl")
        axes.plot(ranks, efficiencies, color=INK, linewidth=0.8, linestyle=dash, label=label)
    if drawn:
        axes.set_xlabel(f"{drawn[0].unit}s")
        _legend_above(axes)


def draw_efficiencies(
    axes: Axes, points: Sequence[ScaledPoint], predicted: Sequence[PredictedPoint], colours: Sequence[str], ink: str
) -> None:
    """Both efficiencies over ranks, with one of ``colours`` per scheme; lines other than curves in ``ink``."""
    # Solid, as dotted and dash-dotted lines are laws.
    axes.axhline(1, color=ink, linewidth=0.8)
    schemes = list(dict.fromkeys(scheme for point in points if (scheme := point.scheme)))
    top = _top([found for point in points for found in (point.per_epoch, point.to_accuracy)])
    ranks = sorted({each.ranks for each in points} | {each.ranks for each in predicted})
    span = ranks[-1] / ranks[0] if ranks else 1.0
    for at, scheme in enumerate(list(schemes)):
        # A single process has no scheme: every curve begins there.
        own = [point for point in points if point.scheme in ("", scheme)]
        for name, label, filled in (("per_epoch", "per epoch", True), ("to_accuracy", "to accuracy", False)):
            shown = [(point.ranks, found) for point in own if (found := getattr(point, name)).value is not None]
            style, colour = "o-" if filled else "s--", colours[at % len(colours)]
            # Bars at one number of ranks lie next to each other.
            aside = span ** (_ASIDE * (2 * at + filled - len(schemes) + 0.5))
            _efficiency_curve(axes, shown, colour, f"{scheme}, {label}", style, top, aside)
    schemes += [each for each in dict.fromkeys(each.label for each in predicted) if each not in schemes]
    for at, scheme in enumerate(schemes):
        found = [(each.ranks, each.efficiency) for each in predicted if each.label == scheme]
        _efficiency_curve(axes, found, colours[at % len(colours)], f"{scheme}, per epoch, predicted", "D:", top)
    axes.set_xscale("log", base=2)
    axes.set_xticks(ranks, [str(each) for each in ranks])
    axes.minorticks_off()
    axes.set_ylim(0, top)
    axes.set(xlabel="ranks", ylabel="parallel efficiency")
    crowded = sorted({point.ranks for point in points if point.crowded})
    if crowded:
        said = f"none claimed on {', '.join(map(str, crowded))} ranks: more threads than cores"
        axes.text(0.99, 0.03, said, transform=axes.transAxes, ha="right", fontsize="small")
    _legend_above(axes)


def _top(found: Sequence[Efficiency]) -> float:
    """Of the axis: above all values, and all intervals that are not many times as long as these are high."""
    highest = max([1.0, *(each.value for each in found if each.value is not None)])
    return 1.08 * min(2 * highest, max([highest, *(each.high for each in found if each.high is not None)]))


def _legend_above(axes: Axes) -> None:
    """Above the axes, where no bar runs into it."""
    axes.legend(frameon=False, fontsize="small", ncols=2, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2)


def _efficiency_curve(
    axes: Axes, shown: Sequence[tuple[int, Any]], colour: str, label: str, style: str, top: float, aside: float = 1.0
) -> None:
    """Points with the bars of those that have an interval; one beyond ``top`` ends there in an arrow."""
    if not shown:
        return
    xs, ys = [ranks * aside for ranks, _ in shown], [found.value for _, found in shown]
    face = colour if style[0] == "o" else "none"
    axes.plot(xs, ys, style, color=colour, markerfacecolor=face, label=label)
    for x, (_, found) in zip(xs, shown, strict=True):
        if found.low is None or found.high is None:
            continue
        cut = found.high > top
        ends = [[found.value - found.low], [(0.985 * top if cut else found.high) - found.value]]
        axes.errorbar([x], [found.value], yerr=ends, fmt="none", color=colour, capsize=0 if cut else 3)
        if cut:
            axes.plot([x], [0.985 * top], "^", color=colour, markersize=5)


@dataclass(frozen=True)
class MessageCurve:
    """One operation of one library: medians by bytes, and α (s) and β (s/B) of the fitted line, if any.

    ``bus`` converts n / t into the bandwidth of the busiest link.
    """

    label: str
    points: tuple[tuple[int, Estimate], ...]
    bus: float
    line: tuple[float, float] | None = None


def write_communicators(title: str, curves: Sequence[MessageCurve], path: Path) -> Path:
    """Draw to an ``.svg`` or ``.png`` file. ``UsageError`` if no point has a size, else as ``draw``."""
    sized = [each for each in curves if any(nbytes for nbytes, _ in each.points)]
    if not sized:
        raise UsageError("a figure of a communicator", "nothing with a size was measured", "measure all-reduce")
    return draw(path, title, (9.2, 3.9), lambda figure: _draw_messages(figure, title, sized))


def _draw_messages(figure: Canvas, title: str, curves: Sequence[MessageCurve]) -> None:
    times, bandwidths = figure.subplots(1, 2)
    seconds = [estimate.value for each in curves for _, estimate in each.points]
    unit = time_unit(times.yaxis, seconds)
    for at, curve in enumerate(curves):
        _message_curve(times, bandwidths, curve, unit.size, SERIES[at % len(SERIES)][0], MARKERS[at % len(MARKERS)])
    for axes, name in ((times, f"time, {unit.symbol}"), (bandwidths, "bus bandwidth, GB/s")):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel("size")
        axes.set_ylabel(name)
        axes.set_xticks(_size_ticks(curves))
        axes.xaxis.set_major_formatter(lambda value, _: _size(value))
        axes.xaxis.set_minor_formatter(lambda value, _: "")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
        axes.yaxis.set_minor_formatter(lambda value, _: "")
        plain_axes(axes)
    times.legend(frameon=False, fontsize=8.5, loc="best")
    figure.suptitle(clean(title), fontsize=10)


def _size_ticks(curves: Sequence[MessageCurve]) -> list[float]:
    """At most seven powers of two that span all sizes."""
    sizes = [nbytes for each in curves for nbytes, _ in each.points if nbytes]
    low, high = floor(log2(min(sizes))), ceil(log2(max(sizes)))
    return [2.0**power for power in range(low, high + 1, -(-(high - low + 1) // 7))]


def _message_curve(times: Axes, bandwidths: Axes, curve: MessageCurve, unit: float, colour: str, marker: str) -> None:
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
    """The distances of the interval's ends from the median."""
    if estimate.interval is None:
        return 0.0, 0.0
    return max(0.0, estimate.value - estimate.interval.low), max(0.0, estimate.interval.high - estimate.value)


def _size(value: float) -> str:
    unit = next(each for each in reversed(BYTES) if value >= each.least)
    return f"{number(value / unit.size)} {unit.symbol}"
