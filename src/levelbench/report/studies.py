"""Tables and figures of ``analyze stability`` and ``analyze threshold``.

Curves differ in colour and in dash, so that they can be told apart in grey.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from levelbench.records.caveats import shortened
from levelbench.report.drawing import INK, MARKERS, bars_said, check_ending, draw, plain_axes, time_unit
from levelbench.report.markup import DASHES, SERIES
from levelbench.report.numbers import number
from levelbench.report.runs import spread_of_times
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
    verdict_text,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

    from levelbench.analysis.stability import BestOf, SpreadPart, Stability
    from levelbench.analysis.threshold import Limit, RankFlip, TargetVerdicts, ThresholdCell, ThresholdSweep
    from levelbench.measure.statistics import Estimate, Interval
    from levelbench.records import RunGroup
    from levelbench.records.schema import Target

__all__ = ["MOST_DRAWN", "curve_points_table", "established", "quantiles_table", "shortened_table", "stability_tables"]
__all__ += ["sweep_points_table", "threshold_tables", "verdicts_table", "write_stability", "write_threshold"]

MOST_DRAWN = len(SERIES)
"""Curves that one figure can tell apart."""
_SHOWN_ROWS = 12
_OTHERS = "#9aa2ad"
"""The colour of curves that are not named."""
_NARROW = 36
_WIDE = 20.0
"""Times that differ by more have a logarithmic axis."""
_MOST_DIGITS = 12
_QUANTILES = (0.25, 0.5, 0.75, 0.9)


def stability_tables(found: Sequence[Stability], groups: Sequence[RunGroup] = ()) -> list[Table]:
    """All tables for reading; those without a row are left out. ``groups`` are those of ``found``, for their times."""
    level = f"{found[0].level * 100:g} %"
    methods = [spread_of_times(each, groups).method for each in groups]
    overview = Table.of(
        "stability",
        "Stability",
        [(each, groups[at] if groups else None) for at, each in enumerate(found)],
        (Column("group", "runs of"), lambda row: row[0].label),
        (
            Column("reached", "reached"),
            lambda row: Reached(row[0].reached, row[0].n, row[0].share.low, row[0].share.high),
        ),
        (
            Column("time_s", "time to accuracy", ColumnKind.TIME_S),
            lambda row: Absent() if row[1] is None else spread_of_times(row[1], groups).cell,
        ),
        (
            Column("variation", "variation", ColumnKind.SHARE),
            lambda row: estimate_cell(
                row[0].variation,
                "the times do not vary, or one is zero"
                if row[0].reached > 1
                else "fewer than two runs reached the target",
            ),
        ),
        (
            Column("restarts_s", "expected with restarts", ColumnKind.TIME_S),
            lambda row: estimate_cell(row[0].restarts, "no run reached the target"),
        ),
        (Column("best_s", "best run", ColumnKind.TIME_S), lambda row: row[0].best_s),
        notes=(
            f"Reached: Wilson's {level} interval. Variation: deviation over mean of the runs that reached the target, "
            "with the interval for log-normal times. Restarts: the mean time until a run succeeds if runs that miss "
            "are started again; its interval allows for misses not seen yet, at what a run takes until its budget is "
            "over.",
            *(f"Time to accuracy: {each}." for each in dict.fromkeys(filter(None, methods))),
        ),
    )
    tables = [overview, quantiles_table(found), _needed_table(found), _best_table(found), _parts_table(found)]
    return [table.without_empty() for table in tables if table.rows]


def quantiles_table(found: Sequence[Stability], *, methods: bool = False) -> Table:
    """The times by which shares of the runs arrived; with ``methods``, how each interval was made, for machines."""

    def by(share: float) -> Callable[[Stability], CellValue]:
        def read(each: Stability) -> CellValue:
            estimate = each.curve.quantile(share, each.level)
            if math.isinf(estimate.value):
                return Absent("so many runs did not reach the target")
            return estimate_cell(estimate)

        return read

    def method(share: float) -> Callable[[Stability], CellValue]:
        def read(each: Stability) -> CellValue:
            estimate = each.curve.quantile(share, each.level)
            return estimate.interval.method if estimate.interval and math.isfinite(estimate.value) else None

        return read

    items = [each for each in found if each.reached > 1]
    times = [each.curve.quantile(share, each.level) for each in items for share in _QUANTILES]
    said = _brackets([time for time in times if math.isfinite(time.value)], found[0].level, "at 50 % ")
    never = (
        "Runs that missed the target when all their epochs were done can never arrive here; for the time to accuracy, "
        "also of compare, they were given up at their last evaluation."
    )
    notes = [f"Brackets: {'; '.join(said)}."] * bool(said) + [never] * any(each.trained_out for each in found)
    return Table.of(
        "reached_by",
        "Time by which a share of the runs has reached the target (Kaplan-Meier)",
        items,
        (Column("group", "runs of"), lambda each: each.label),
        *(
            column
            for share in _QUANTILES
            for column in (
                (Column(f"by_{share:g}_s", f"{share:.0%} of runs", ColumnKind.TIME_S, series="by"), by(share)),
                *(((Column(f"by_{share:g}_method", "interval"), method(share)),) * methods),
            )
        ),
        notes=notes,
    )


def _needed_table(found: Sequence[Stability]) -> Table:
    items = [each for each in found if each.needed]
    effects = [each.effect for each in items[0].needed] if items else []

    def of(at: int) -> Callable[[Stability], CellValue]:
        return lambda each: Number(each.needed[at].runs, each.needed[at].low, each.needed[at].high)

    return Table.of(
        "runs_needed",
        "Runs of each arm that show a difference of ...",
        items,
        (Column("group", "runs of"), lambda each: each.label),
        *(
            (Column(f"runs_at_{effect:g}", f"{number(effect * 100)} %", ColumnKind.NUMBER), of(at))
            for at, effect in enumerate(effects)
        ),
        notes=("With a power of 80 %, for unpaired runs as variable as these; the interval is that of the variation.",),
    )


def _best_table(found: Sequence[Stability]) -> Table:
    items = [(each, seen) for each in found if each.best_of for seen in (False, True)]
    counts = [each.count for each in items[0][0].best_of] if items else []

    def of(at: int) -> Callable[[tuple[Stability, bool]], CellValue]:
        def read(row: tuple[Stability, bool]) -> CellValue:
            best: BestOf = row[0].best_of[at]
            if row[1]:
                return None if best.seen is None else 1 / best.seen - 1
            return Number(best.overstated, 1 / best.high - 1, 1 / best.low - 1)

        return read

    return Table.of(
        "best_of",
        "By how much the best of several runs overstates the speed",
        items,
        (Column("group", "runs of"), lambda row: f"{row[0].label}{', as seen' if row[1] else ''}"),
        *((Column(f"best_of_{n}", f"best of {n}", ColumnKind.SHARE), of(at)) for at, n in enumerate(counts)),
        notes=(
            "Typical (geometric mean) over best time, minus 1, of runs that reached the target: expected for "
            "log-normal times, and the mean over all choices among these runs (as seen).",
        ),
    )


def _parts_table(found: Sequence[Stability]) -> Table:
    items = [(each.label, part) for each in found for part in each.parts]

    def ratio(part: SpreadPart) -> CellValue:
        return None if part.ratio is None else Text(f"{number(part.ratio.low)} to {number(part.ratio.high)}")

    labels = list(dict.fromkeys(label for label, _ in items))
    named = (Column("group", "runs of"), lambda row: row[0])
    return Table.of(
        "sources",
        f"Where the spread{f' of {labels[0]}' if len(labels) == 1 else ''} comes from",
        items,
        *((named,) if len(labels) > 1 else ()),
        (Column("source", "source"), lambda row: row[1].source),
        (Column("deviation", "deviation", ColumnKind.SHARE), lambda row: _deviation(row[1])),
        (Column("share", "share", ColumnKind.SHARE), lambda row: row[1].share),
        (Column("over_rest", "over run to run"), lambda row: ratio(row[1])),
        (Column("slope", "per run", ColumnKind.SHARE), lambda row: estimate_cell(row[1].slope)),
        notes=(
            "Deviations of logarithms. Samples and time per sample multiply to the time, and their shares of its "
            "variance add up.",
        ),
    )


def _deviation(part: SpreadPart) -> Cell:
    if part.deviation is None:
        return Absent(part.reason)
    return Number(part.deviation, *((part.interval.low, part.interval.high) if part.interval else (None, None)))


def curve_points_table(found: Sequence[Stability]) -> Table:
    """Every step of each Kaplan-Meier curve, as the share of runs that have reached the target."""
    rows = []
    for each in found:
        for at, time in enumerate(each.curve.times):
            inside = each.curve.interval_at(time, each.level)
            share = Number(1 - each.curve.survival[at], 1 - inside.high, 1 - inside.low)
            rows.append((Text(each.label), Number(time), share, Number(each.curve.at_risk[at])))
    columns = (
        Column("group", "runs of"),
        Column("time_s", "time", ColumnKind.TIME_S),
        Column("share_reached", "share that has reached the target", ColumnKind.SHARE),
        Column("at_risk", "still running", ColumnKind.NUMBER),
    )
    return Table("curve", "Share of runs that have reached the target (Kaplan-Meier)", columns, tuple(rows))


def write_stability(found: Sequence[Stability], path: Path) -> Path | None:
    """Draw the Kaplan-Meier curves of at most ``MOST_DRAWN`` groups, each for as long as it was observed.

    Returns ``None``, and writes no file, if no run of any reached the target. Raises as ``drawing.draw``.
    """
    check_ending(path)
    if not any(each.reached for each in found):
        return None
    return draw(path, "stability", (6.8, 4.2), lambda figure: _draw_stability(figure.add_subplot(), found))


def _draw_stability(axes: Axes, found: Sequence[Stability]) -> None:
    last = max((each.curve.last for each in found if math.isfinite(each.curve.last)), default=1.0)
    last = max([last, *(time for each in found for time in each.curve.times)])
    unit = time_unit(axes.xaxis, [last])
    for at, each in enumerate(found):
        colour, dash, curve = SERIES[at][0], DASHES[at % len(DASHES)], each.curve
        # Nothing is known after the last run was given up, unless all have arrived or none ever could.
        seen = 1.05 * last if curve.survival[-1:] == (0.0,) else min(curve.last, 1.05 * last)
        x = [0.0, *(time / unit.size for time in curve.times), seen / unit.size]
        reached = [0.0, *(1 - share for share in curve.survival)]
        bounds = [curve.interval_at(time, each.level) for time in (-1.0, *curve.times)]
        low, high = [1 - each.high for each in bounds], [1 - each.low for each in bounds]
        most = "" if each.reached else f" (at most {number(100 * each.share.high, 2)} % would)"
        label = f"{each.label}: {each.reached} of {each.n} reached it{most}"
        axes.step(
            x, [*reached, reached[-1]], where="post", color=colour, linestyle=dash, linewidth=2, label=clean(label)
        )
        axes.fill_between(x, [*low, low[-1]], [*high, high[-1]], step="post", color=colour, alpha=0.14, linewidth=0)
        left = [(time / unit.size, 1 - curve.at(time)) for time in curve.given_up if time <= seen]
        if left:
            axes.plot(*zip(*left, strict=True), "|", color=colour, markersize=9, markeredgewidth=1.5)
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlim(0, 1.05 * last / unit.size)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value * 100:.0f} %")
    axes.set_xlabel(f"time to accuracy, {unit.symbol}")
    axes.set_ylabel("runs that have reached the target")
    marked = "; ticks: runs given up" if any(each.curve.given_up for each in found) else ""
    title = f"Kaplan-Meier curves with pointwise {found[0].level * 100:g} % intervals{marked}"
    axes.set_title(title, fontsize=10, loc="left")
    _legend_below(axes, *axes.get_legend_handles_labels())
    plain_axes(axes)


def threshold_tables(
    found: ThresholdSweep, target: Target | None = None, head: str = "runs of", scored_by: str | None = None
) -> list[Table]:
    """The rankings if there are several arms, the sweep, the rules side by side, and how far each arm gets.

    The arms are in the order of the ranking at the reference.
    """
    from levelbench.analysis.threshold import SHOWN_RULES

    order = _by_rank(found)
    names = [Column("arm", head)]
    clock = f"time to {'the quality' if target is None else target.name(scored_by)}"
    digits = _digits(found)
    swept = Table(
        "sweep",
        f"{clock[:1].upper()}{clock[1:]} of ...",
        (
            *names,
            *(Column(f"at_{each:.10g}_s", f"{each:.10g}", ColumnKind.TIME_S, series="at") for each in found.targets),
        ),
        tuple((Text(found.arms[at].label), *map(_cell, found.cells[at])) for at in order),
        _times_notes(found.cells, found.level),
    )
    rules = Table(
        "crossings",
        f"Time to {found.reference:.10g} under each crossing rule",
        (*names, *(Column(f"{rule}_s", rule, ColumnKind.TIME_S, series="rules") for rule in SHOWN_RULES)),
        tuple((Text(found.arms[at].label), *map(_cell, found.crossings[at])) for at in order),
        _times_notes(found.crossings, found.level),
    )
    single = all(limit.n == 1 for limit in found.limits)
    by_all = (Column("by_all", "all runs reach", ColumnKind.NUMBER, digits=digits), lambda each: each.all)
    limits = Table.of(
        "limits",
        "How far they get",
        [found.limits[at] for at in order],
        (names[0], lambda each: each.label),
        *(() if single else (by_all,)),
        (
            Column("by_any", "reaches" if single else "some run reaches", ColumnKind.NUMBER, digits=digits),
            lambda each: each.any,
        ),
        (Column("more", "more than that"), _more),
        (
            Column("knee", "knee", ColumnKind.NUMBER, digits=4),
            lambda each: Absent(each.reason) if each.knee is None else each.knee[0],
        ),
        (Column("knee_s", "knee at", ColumnKind.TIME_S), lambda each: None if each.knee is None else each.knee[1]),
        notes=(f"Never: no run of n, with the share that would at most ({found.level * 100:g} %).",),
    )
    ranked = [_orders_table(found)] if len(found.arms) > 1 else []
    return [*ranked, *([_flips_table(found.flips)] if found.flips else []), swept, rules, limits]


def _times_notes(rows: Sequence[Sequence[ThresholdCell]], level: float) -> tuple[str, ...]:
    """Which statistic the times of a table are, and what their brackets are."""
    shown = [(cell, cell.time_s) for row in rows for cell in row if cell.time_s is not None]
    said = _brackets([time for _, time in shown], level)
    partly = any(cell.reached < cell.n for cell, _ in shown)
    mixed = "(k/n): so many runs reached it, and the time is the Kaplan-Meier median; else the geometric mean."
    notes = [mixed] * partly
    notes += [f"{'Brackets' if partly else 'Geometric means; brackets'}: {'; '.join(said)}."] * bool(said)
    return tuple(notes)


def _brackets(times: Sequence[Estimate], level: float, where: str = "") -> list[str]:
    """What the brackets of these times are: intervals, or (``where``, if not everywhere) the ends of few runs."""
    known = [time for time in times if time.interval is not None]
    few = sorted({time.n for time in known if time.interval and time.interval.is_range})
    said = [f"{level * 100:g} % intervals"] * any(time.interval and not time.interval.is_range for time in known)
    return said + [f"{where}[lowest, highest], n = {', '.join(map(str, few))}: too few for an interval"] * bool(few)


def _digits(found: ThresholdSweep) -> int:
    """So many, at least 4, that no quality which an arm reaches is rounded across, or onto, a target of the sweep."""
    reached = [each for limit in found.limits for each in (limit.all, limit.any) if each is not None]

    def true(digits: int) -> bool:
        return all(
            (shown > at) == (value > at) and (shown < at) == (value < at)
            for value in reached
            for shown in (float(number(value, digits).replace(",", "")),)
            for at in found.targets
        )

    return next((digits for digits in range(4, _MOST_DIGITS) if true(digits)), _MOST_DIGITS)


def shortened_table(table: Table) -> Table:
    """The first rows of a long table, and a note on the others."""
    more = len(table.rows) - _SHOWN_ROWS
    if more <= 1:
        return table
    note = f"{more:,} more rows: --csv, --markdown and --json have them."
    return replace(table, rows=table.rows[:_SHOWN_ROWS], notes=(*table.notes, note))


def _by_rank(found: ThresholdSweep) -> list[int]:
    """The places of the arms, by their rank at the reference; those without one last."""
    ranking = next(each.ranking for each in found.orders if each.target == found.reference)
    rank = {label: at for at, label in enumerate(ranking)}
    return sorted(range(len(found.arms)), key=lambda at: (rank.get(found.arms[at].label, len(rank)), at))


def _cell(cell: ThresholdCell) -> Cell:
    if cell.time_s is None:
        missed = cell.n - cell.reached
        some = f"{cell.reached} of {cell.n} runs reached it: no median" if cell.reached else "no run reached it"
        if cell.stopped and cell.n == 1:
            return Absent("it stopped before that: not known")
        return Absent(f"{some} ({cell.stopped} of {missed} stopped before that: not known)" if cell.stopped else some)
    return estimate_cell(cell.time_s, remark="" if cell.reached == cell.n else f"({cell.reached}/{cell.n})")


def _more(limit: Limit) -> str:
    if limit.stopped:
        return f"unknown: {'it' if limit.n == 1 else f'{limit.stopped} of {limit.n}'} stopped there"
    return f"never: n = {limit.n}, at most {number(100 * limit.chance, 2)} %"


def _orders_table(found: ThresholdSweep) -> Table:
    return Table.of(
        "orders",
        f"The ranking at each target, against that at {found.reference:.10g}",
        found.orders,
        (Column("target", "target"), lambda each: f"{each.target:.10g}"),
        (Column("fastest", "fastest"), lambda each: each.ranking[0] if each.ranking else None),
        (Column("with_time", "with a time"), lambda each: Reached(len(each.ranking), len(found.arms))),
        (Column("turned", "pairs in another order"), lambda each: Reached(each.turned, each.pairs)),
    )


def _flips_table(flips: Sequence[RankFlip]) -> Table:
    def ratio(value: float) -> Cell:
        return Text("first only") if math.isinf(value) else Text("second only") if value == 0 else Number(value)

    return Table.of(
        "flips",
        "Pairs that change places from one target to the next",
        flips,
        (Column("first", "first"), lambda each: each.first),
        (Column("second", "second"), lambda each: each.second),
        (Column("between", "between"), lambda each: f"{each.low:.10g}, {each.high:.10g}"),
        (Column("before", "second / first", ColumnKind.NUMBER), lambda each: ratio(each.before)),
        (Column("after", "then", ColumnKind.NUMBER), lambda each: ratio(each.after)),
    )


def verdicts_table(found: Sequence[TargetVerdicts]) -> Table | None:
    """Each arm against the first at each target; ``None`` without a verdict."""
    labels = list(dict.fromkeys(each.b.label for at in found for each in at.comparisons if each.verdict is not None))
    every = [each.verdict for at in found for each in at.comparisons if each.verdict is not None]
    bounded = any(each.ratio is not None and (each.low, each.high) != (None, None) for each in every)
    if not labels:
        return None
    base = next(each.a.label for at in found for each in at.comparisons)

    def of(label: str) -> Callable[[TargetVerdicts], CellValue]:
        def read(at: TargetVerdicts) -> CellValue:
            judged = (each.verdict for each in at.comparisons if each.b.label == label and each.verdict is not None)
            return next((verdict_text(each) for each in judged), None)

        return read

    return Table.of(
        "verdicts",
        f"Time against {base}",
        found,
        (Column("target", "target"), lambda at: f"{at.target:.10g}"),
        *((Column(f"verdict_{at}", label), of(label)) for at, label in enumerate(labels, 1)),
        notes=("All intervals hold jointly over targets and arms (Bonferroni).",) if bounded else (),
    )


def established(found: Sequence[TargetVerdicts]) -> list[str]:
    """A sentence for each arm on whether its verdict turns round between targets."""
    lines: list[str] = []
    kinds: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for at in found:
        for each in at.comparisons:
            if each.verdict is not None:
                kinds.setdefault((each.a.label, each.b.label), []).append((at.target, str(each.verdict.kind)))
    for (base, label), verdicts in kinds.items():
        by = {kind: [f"{target:.10g}" for target, each in verdicts if each == kind] for kind in ("FASTER", "SLOWER")}
        if by["FASTER"] and by["SLOWER"]:
            lines.append(
                f"the ranking flips: {label} is FASTER than {base} at {', '.join(by['FASTER'])} and SLOWER at "
                f"{', '.join(by['SLOWER'])}"
            )
        else:
            lines.append(f"no flip between {label} and {base} is shown: no target has the opposite verdict of another")
    return lines


def sweep_points_table(found: ThresholdSweep) -> Table:
    """Every arm at every target, one a row."""
    points = [
        (arm, target, cell)
        for arm, row in zip(found.arms, found.cells, strict=True)
        for target, cell in zip(found.targets, row, strict=True)
    ]
    return Table.of(
        "points",
        "Every arm at every target",
        points,
        (Column("arm", "runs of"), lambda point: point[0].label),
        (Column("rule", "rule"), lambda point: point[0].rule),
        (Column("target", "target", ColumnKind.NUMBER), lambda point: point[1]),
        (Column("reached", "reached"), lambda point: Reached(point[2].reached, point[2].n)),
        (Column("time_s", "time", ColumnKind.TIME_S), lambda point: estimate_cell(point[2].time_s)),
        (
            Column("method", "interval"),
            lambda point: point[2].time_s.interval.method if point[2].time_s and point[2].time_s.interval else None,
        ),
    )


def write_threshold(found: ThresholdSweep, target: Target, path: Path, scored_by: str | None = None) -> Path:
    """Draw the time to each target; the fastest arms at the reference are named. Raises as ``drawing.draw``."""

    def onto(figure: Canvas) -> None:
        _draw_threshold(figure.add_subplot(), found, target, target.name(scored_by))

    return draw(path, "threshold", (6.8, 4.4), onto)


def _draw_threshold(axes: Axes, found: ThresholdSweep, target: Target, quality_name: str) -> None:
    order = _by_rank(found)
    times = [cell.time_s.value for row in found.cells for cell in row if cell.time_s is not None]
    wide = bool(times) and max(times) > _WIDE * min(times)
    axes.set_yscale("log" if wide else "linear")
    unit = time_unit(axes.yaxis, [statistics.median(times)] if times else [])
    named = order if len(order) <= MOST_DRAWN else order[: MOST_DRAWN - 2]
    single, open_ended = all(len(arm.curves) == 1 for arm in found.arms), dict[str, None]()
    bars: list[Interval | None] = []
    for at in reversed(order):
        points = [
            (x, cell.time_s) for x, cell in zip(found.targets, found.cells[at], strict=True) if cell.time_s is not None
        ]
        medians = any(cell.reached < cell.n for cell in found.cells[at])
        place, arm = named.index(at) if at in named else None, found.arms[at]
        colour = _OTHERS if place is None else SERIES[place][0]
        x, y = [point[0] for point in points], [point[1].value / unit.size for point in points]
        style = {"linewidth": 0.8} if place is None else {
            "linewidth": 1.8, "linestyle": DASHES[place % len(DASHES)], "marker": MARKERS[place], "markersize": 4.5,
            "label": clean(shortened(arm.label)) + ("" if single else f" (n = {len(arm.curves)})"),
        }  # fmt: skip
        axes.plot(x, y, color=colour, **style)
        if place is not None:
            for quality, time in points:
                bars.append(time.interval)
                if time.interval is None:
                    continue
                known = math.isfinite(time.interval.high)
                ends = [time.interval.low / unit.size, (time.interval.high if known else time.value) / unit.size]
                axes.plot([quality] * 2, ends, color=colour, linewidth=1)
                if not known:
                    hollow = {"marker": MARKERS[place], "markersize": 4.5, "markerfacecolor": "white"}
                    axes.plot([quality], [time.value / unit.size], color=colour, linestyle="", zorder=3, **hollow)
                    lacks = "highest time is not known" if time.interval.is_range else "interval has no upper end"
                    open_ended[f"its {lacks}" + ", a median as runs missed" * medians] = None
    if open_ended:
        hollow = {"marker": "o", "markersize": 4.5, "markerfacecolor": "white"}
        axes.plot([], [], color=INK, linestyle="", label="; ".join(open_ended), **hollow)
    if len(named) < len(order):
        axes.plot([], [], color=_OTHERS, linewidth=0.8, label=f"{len(order) - len(named)} others")
    axes.axvline(found.reference, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
    if wide:
        axes.yaxis.set_minor_formatter(lambda value, _: f"{value:,g}" if f"{value:e}"[0] in "25" else "")
    else:
        axes.set_ylim(bottom=0)
    if target.direction == "lower":
        axes.invert_xaxis()
    axes.set_xlabel(clean(f"target ({quality_name})") + (f"\n{bars_said(bars)}" if bars else ""))
    axes.set_ylabel(f"time to the target, {unit.symbol}")
    # Drawn from the slowest on, so that the fastest are on top, and named from the fastest on.
    handles, labels = axes.get_legend_handles_labels()
    count = len(named)
    _legend_below(axes, handles[:count][::-1] + handles[count:], labels[:count][::-1] + labels[count:])
    plain_axes(axes)


def _legend_below(axes: Axes, handles: Sequence[Artist], labels: Sequence[str]) -> None:
    columns = 2 if max(map(len, labels), default=0) <= _NARROW else 1
    axes.figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=8)
