"""Tables and the figure of ``analyze batch-size``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from levelbench.report.drawing import INK, bars_said, draw, plain_axes, time_unit
from levelbench.report.markup import SERIES
from levelbench.report.numbers import number
from levelbench.report.tables import (
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

    from levelbench.analysis.batch_size import BatchSizes, BatchSizeStudy
    from levelbench.measure.statistics import Estimate, Interval

__all__ = ["batch_size_tables", "write_batch_size"]

_MISSED = "too few runs reached the target"
_UNCOUNTED = "the runs do not say how many samples they have seen"
_RANGES = "Brackets of fewer than six runs are the lowest and the highest."
_CURVE = 200
_SIZE_IN = (9.6, 3.6)
_LEAST_TICKS, _MOST_TICKS = 3, 8
_CHARACTERS = 28
"""Of the names of ticks, that fit below one of the three plots."""


def batch_size_tables(found: BatchSizeStudy) -> list[Table]:
    """A row for each size; the critical size beside the noise scale; the trials of tuning, if there were some."""
    tables = [_sizes_table(found), _critical_table(found), _trials_table(found)]
    return [table.without_empty() for table in tables if table.rows]


def _sizes_table(found: BatchSizeStudy) -> Table:
    cut = any(round(point.mean_size) != point.size for point in found.points)

    def of(name: str) -> Callable[[BatchSizes], Cell]:
        def read(point: BatchSizes) -> Cell:
            partial = name != "samples_per_s" and point.group.reached < point.group.n
            remark = f"({point.group.reached}/{point.group.n})" if partial else ""
            counted = not point.group.reached or any(run.samples_to_target for run in point.group.runs)
            return estimate_cell(getattr(point, name), _MISSED if counted else _UNCOUNTED, remark)

        return read

    def mean_size(point: BatchSizes) -> CellValue:
        return point.mean_size if cut else None

    some = any(point.group.reached < point.group.n for point in found.points)
    notes = [
        "Samples to the target over samples a second is the time to accuracy: all three are of whole runs, with "
        "evaluation where the clock has it in."
    ]
    if any(_is_range(value) for point in found.points for value in (point.samples, point.samples_per_s, point.time_s)):
        notes.append(_RANGES)
    if some:
        notes.append("(k/n): so many runs reached it, and the figure is the Kaplan-Meier median; else geometric means.")
    return Table.of(
        "batch_sizes",
        found.title,
        found.points,
        (Column("batch", "batch size", ColumnKind.NUMBER, digits=6), lambda point: point.size),
        (Column("mean_batch", "mean step", ColumnKind.NUMBER, digits=4), mean_size),
        (Column("rate", "learning rate", ColumnKind.NUMBER), lambda point: point.rate),
        (
            Column("reached", "reached"),
            lambda point: Reached(point.group.reached, point.group.n, point.share.low, point.share.high),
        ),
        (Column("samples", "samples to target", ColumnKind.NUMBER), of("samples")),
        (Column("steps", "steps to target", ColumnKind.NUMBER), of("steps")),
        (Column("samples_per_s", "samples a second", ColumnKind.NUMBER), of("samples_per_s")),
        (Column("time_s", "time to accuracy", ColumnKind.TIME_S), of("time_s")),
        notes=notes,
    )


def _critical_table(found: BatchSizeStudy) -> Table:
    rows: list[tuple[Cell, ...]] = []
    if (at := found.critical) is not None:
        rows.append((Text("critical batch size, examples"), _number(at.size, at.interval), Number(at.fit.n)))
        rows.append((Text("samples at small sizes (E_min)"), Number(at.samples), Number(at.fit.n)))
        rows.append((Text("steps at large sizes (S_min)"), Number(at.steps), Number(at.fit.n)))
    if found.noise is not None and (value := found.noise.value) is not None:
        rows.append((Text("gradient noise scale, examples"), estimate_cell(value), Number(value.n)))
    columns = (
        Column("quantity", "quantity"),
        Column("value", "value", ColumnKind.NUMBER),
        Column("runs", "runs", ColumnKind.NUMBER),
    )
    noise = found.noise.value if found.noise is not None else None
    notes = [
        f"Samples(B) = E_min (1 + B / B_crit), steps(B) = S_min (1 + B_crit / B), fitted on logarithms; the "
        f"{found.level * 100:g} % interval is that of the profile likelihood."
    ] * (at is not None)
    if at is not None and at.fit.bracketed:
        notes.append(
            "Each run counts as between its last evaluation below the target and the next one: E_min and S_min are "
            "without the evaluation that confirms it, which the samples to the target above may include."
        )
    if at is not None and at.misfits:
        notes.append(
            f"The samples do not follow this law (lack of fit p = {at.fit.misfit:.2g}): the interval is too narrow."
        )
    notes += [f"Noise scale: {_RANGES[0].lower()}{_RANGES[1:]}"] * _is_range(noise)
    return Table("critical", "How far a larger batch pays", columns, tuple(rows), tuple(notes))


def _is_range(value: Estimate | None) -> bool:
    """Whether the ends are the lowest and the highest value, of too few for an interval."""
    return value is not None and value.interval is not None and value.interval.is_range


def _number(value: float, interval: Interval | None) -> Number:
    return Number(value) if interval is None else Number(value, interval.low, interval.high)


def _trials_table(found: BatchSizeStudy) -> Table:
    trials = [(tuned, trial) for tuned in found.tuned for trial in tuned.trials]
    return Table.of(
        "trials",
        "Learning rates that were tried, one run each, on a seed of their own",
        trials,
        (Column("batch", "batch size", ColumnKind.NUMBER, digits=6), lambda row: row[1].size),
        (Column("rate", "learning rate", ColumnKind.NUMBER), lambda row: row[1].rate),
        (
            Column("samples", "samples to target", ColumnKind.NUMBER),
            lambda row: None if math.isinf(row[1].samples) else row[1].samples,
        ),
        (Column("quality", "last quality", ColumnKind.NUMBER, digits=4), lambda row: row[1].quality),
        (Column("chosen", "chosen"), lambda row: "yes" if row[1].rate == row[0].rate else ""),
    )


def write_batch_size(found: BatchSizeStudy, path: Path) -> Path:
    """Draw samples to the target, samples a second and time over the batch size. Raises as ``drawing.draw``."""
    return draw(path, "batch-size", _SIZE_IN, lambda figure: _draw(figure, found))


def _draw(figure: Canvas, found: BatchSizeStudy) -> None:
    left, middle, right = figure.subplots(1, 3)
    _draw_points(left, found.points, "samples", "samples to the target")
    _draw_law(left, found)
    _draw_points(middle, found.points, "samples_per_s", "samples a second")
    _draw_points(right, found.points, "time_s", "time to accuracy")
    counts = sorted({point.group.n for point in found.points})
    runs = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    values = (getattr(point, name) for point in found.points for name in ("samples", "samples_per_s", "time_s"))
    bars = bars_said(value.interval for value in values if value is not None)
    said = f"n = {runs} runs a size; {bars}; hollow: some or all missed the target"
    figure.suptitle(clean(f"{found.title}: {said}"), fontsize=9.5, x=0.01, ha="left")


def _draw_points(axes: Axes, points: Sequence[BatchSizes], name: str, label: str) -> None:
    colour = SERIES[0][0]
    shown: list[tuple[BatchSizes, Estimate]] = [
        (point, value) for point in points if (value := getattr(point, name)) is not None
    ]
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_autoscale_on(not shown)
    unit = 1.0
    if name == "time_s":
        chosen = time_unit(axes.yaxis, [value.value for _, value in shown])
        unit, label = chosen.size, f"{label}, {chosen.symbol}"
    axes.plot(
        [point.mean_size for point, _ in shown], [value.value / unit for _, value in shown], color=colour, linewidth=1
    )
    for point, value in shown:
        whole = point.group.reached == point.group.n
        axes.plot(
            point.mean_size, value.value / unit, "o", color=colour, markersize=5, mfc=colour if whole else "white"
        )
        if bar := _ends(value)[1:]:
            axes.plot([point.mean_size] * 2, [each / unit for each in bar], color=colour, linewidth=1)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    if shown:
        ends = [each / unit for _, value in shown for each in _ends(value)]
        room = max(1.02, (max(ends) / min(ends)) ** 0.06)
        low, high = min(ends) / room, max(ends) * room
        axes.set_ylim(low, high)
        axes.set_yticks(_round_values(low, high))
    sizes = [point.size for point in points]
    left, right = min(point.mean_size for point in points) / 1.3, 1.3 * max(sizes)
    axes.set_xlim(left, right)
    kept = _apart(sizes, left, right)
    axes.set_xticks(kept, [str(each) for each in kept])
    axes.minorticks_off()
    axes.set_xlabel("examples of a step")
    axes.set_title(label, fontsize=9.5, loc="left")
    plain_axes(axes)


def _ends(value: Estimate) -> tuple[float, ...]:
    """The value, with the ends of its bar if it has one."""
    inside = value.interval
    known = inside is not None and math.isfinite(inside.high) and inside.low > 0
    return (value.value, inside.low, inside.high) if inside is not None and known else (value.value,)


def _apart(sizes: Sequence[int], left: float, right: float) -> list[int]:
    """Those of ``sizes``, ascending, whose names do not overlap on a logarithmic axis from ``left`` to ``right``."""
    middles = {size: _CHARACTERS * math.log(size / left) / math.log(right / left) for size in sizes}
    every = (list(sizes[-1::-step])[::-1] for step in range(1, len(sizes) + 1))
    return next(
        kept
        for kept in every
        if all(middles[b] - middles[a] >= (len(f"{a}{b}") + 2) / 2 for a, b in itertools.pairwise(kept))
    )


def _round_values(low: float, high: float) -> list[float]:
    """Ticks of a logarithmic axis, which has too few of its own below a decade: 1, 2, 5 or, on a short one, evenly."""
    from matplotlib.ticker import MaxNLocator

    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [float(f"{base}e{power}") for power in decades for base in (1, 2, 5)]
    ticks = [each for each in ticks if low <= each <= high]
    for bins in (5, 8, 12):
        if len(ticks) < _LEAST_TICKS:
            evenly = MaxNLocator(nbins=bins, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
            ticks = [float(f"{each:.10g}") for each in evenly.tolist() if low <= each <= high]
    return ticks[:: 1 + len(ticks) // _MOST_TICKS]


def _draw_law(axes: Axes, found: BatchSizeStudy) -> None:
    if (at := found.critical) is None:
        return
    sizes = [point.mean_size for point in found.points]
    ratio = (sizes[-1] / sizes[0]) ** (1 / _CURVE)
    label = "fit, when first reached" if at.fit.bracketed else "fit"
    curve = [sizes[0] * ratio**step for step in range(_CURVE + 1)]
    axes.plot(curve, [at.samples_at(size) for size in curve], color=INK, linewidth=1, linestyle="--", label=label)
    left, right = axes.get_xlim()
    if at.interval is not None:
        ends = max(left, at.interval.low), min(right, at.interval.high)
        axes.axvspan(
            *ends, color=INK, alpha=0.1, linewidth=0, label=f"interval of the critical size, {number(at.size)}"
        )
    if left < at.size < right:
        axes.axvline(at.size, color=INK, linewidth=0.9, linestyle=":", label="critical size")
    if found.noise is not None and found.noise.value is not None and left < found.noise.value.value < right:
        axes.axvline(found.noise.value.value, color=INK, linewidth=0.9, linestyle="-.", label="noise scale")
    axes.set_xlim(left, right)
    # Room for the words, which neither a point nor a line that stands for a size runs through.
    bottom, top = axes.get_ylim()
    bottom = min(bottom, at.samples_at(sizes[0]) / 1.1)
    top = max(top, at.samples_at(sizes[-1]) * 1.1)
    axes.set_ylim(bottom, top * (top / bottom) ** 0.4)
    axes.legend(framealpha=0.85, edgecolor="none", fontsize="small", loc="upper left")
