"""Tables and figures of analyses: a factorial experiment, a proposed target, an optimizer compared with its reference.

Speed-ups are drawn on a logarithmic axis, where those that compose add up to the combination. The rounding error of an
optimizer grows slowly from 1e-16; a wrong update shows at once, or at the step where it begins to differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from levelbench.analysis.composition import Lesion
from levelbench.analysis.contrasts import Contrast
from levelbench.errors import UsageError
from levelbench.records.selection import format_value
from levelbench.report.drawing import INK, check_ending, draw, label_ratios, plain_axes
from levelbench.report.markup import DASHES, SERIES
from levelbench.report.numbers import number
from levelbench.report.run_figures import draw_run, y_limits
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
    verdict_text,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

    from levelbench.analysis.composition import Composition, Effect, Efficiencies, SingleFactor
    from levelbench.analysis.contrasts import FactorArm
    from levelbench.measure.verdict import Verdict
    from levelbench.records.schema import Specification
    from levelbench.report.run_figures import Curves

__all__ = ["Way", "arms_table", "effects_table", "singles_table", "write_composition", "write_divergence"]
__all__ += ["write_target"]


def arms_table(found: Composition | Lesion) -> Table:
    """A row per arm: its factors, times and speed-up; of a lesion, that of all factors over the arm."""
    if isinstance(found, Lesion):
        against: Sequence[Verdict | None] = (None, *(each.verdict for each in found.against))
        faster, verdict_title = "speed-up of all over it", "time of all against it"
    else:
        against, faster, verdict_title = found.against, "speed-up over none", "time against none"

    def time(cell: FactorArm) -> CellValue:
        known = [each for each in cell.times if each is not None]
        if not known or len(known) < len(cell.times):
            return Absent("not every run reached the target")
        return math.exp(math.fsum(map(math.log, known)) / len(known))

    def on(cell: FactorArm) -> str:
        return ", ".join(name for name in found.factors if name in cell.on) or "none"

    return Table.of(
        "composition",
        f"Composition of {', '.join(found.factors)}",
        zip(found.cells, against, strict=True),
        (Column("on", "factors on"), lambda arm: on(arm[0])),
        (Column("reached", "reached"), lambda arm: Reached(arm[0].reached, len(arm[0].times))),
        (Column("time_s", "time to accuracy", ColumnKind.TIME_S), lambda arm: time(arm[0])),
        (Column("speed_up", faster, ColumnKind.NUMBER), lambda arm: _speed_up(arm[1])),
        (Column("verdict", verdict_title), lambda arm: None if arm[1] is None else _verdict_text(arm[1])),
        notes=(
            "Runs that share a seed are compared in pairs; the level of each interval is "
            f"{next(each for each in against if each is not None).level * 100:.4g} %.",
            "Time to accuracy: geometric mean, given only if every run reached the target.",
            f"Factors, off -> on: {'; '.join(_switched(*each) for each in found.values.items())}.",
        ),
    )


def _switched(factor: str, values: Sequence[int | float | str | bool]) -> str:
    off, *on = map(format_value, values)
    return f"{factor} {off} -> {' or '.join(on)}"


def _verdict_text(verdict: Verdict) -> str:
    """The verdict with the ratio, or with the known bound."""
    bound = _bound(verdict.low, verdict.high) if verdict.ratio is None else ""
    return f"{verdict.kind} {bound}" if bound else verdict_text(verdict)


def _bound(low: float | None, high: float | None) -> str:
    if low is not None:
        return f"above {number(low)}"
    return "" if high is None else f"below {number(high)}"


def _speed_up(verdict: Verdict | None) -> Cell:
    """Base over arm, so that above 1 is faster, with the interval inverted."""
    if verdict is None or verdict.ratio is None:
        return Absent()
    low, high = (None if each is None else 1 / each for each in (verdict.high, verdict.low))
    return Number(1 / verdict.ratio, low, high)


def effects_table(found: Composition) -> Table | None:
    """Main effects and interactions of a full factorial; ``None`` for another design."""
    if not found.effects:
        return None
    return Table.of(
        "effects",
        "Effects and interactions",
        found.effects,
        (Column("effect", "effect"), lambda each: " x ".join(each.factors)),
        *_ratio_columns(lambda each: each.found, lambda each: each.split),
        (Column("meaning", "meaning"), _meaning),
        (Column("aliases", "the same as"), lambda each: ", ".join(" x ".join(names) for names in each.aliases)),
        notes=(
            f"Averaged over the other factors. All {len(found.effects)} intervals of a column hold jointly at "
            f"{found.level * 100:g} % (Bonferroni). {_efficiencies(found)}",
            *([f"Design: {found.design}."] if found.design not in ("full", "one") else []),
        ),
    ).without_empty()


def _efficiencies(found: Composition | Lesion) -> str:
    """What the columns of samples and of time per sample are, and when the former cannot show anything."""
    text = "Samples: statistical efficiency; time per sample: hardware efficiency; both multiply to the time."
    crossings = {run.crossing for cell in found.cells for run in cell.runs}
    if crossings == {"final"}:
        text += " All runs end with their schedules, so their samples do not show how few would do."
    return text


def _ratio_columns(
    time: Callable[[Any], Contrast], split: Callable[[Any], Efficiencies | None]
) -> list[tuple[Column, Callable[[Any], CellValue]]]:
    """The ratio of the times, and its two parts."""

    def part(name: str) -> Callable[[Any], CellValue]:
        def read(each: Any) -> CellValue:
            both = split(each)
            return None if both is None else _contrast_cell(getattr(both, name))

        return read

    return [
        (Column("ratio", "ratio of times", ColumnKind.NUMBER), lambda each: _contrast_cell(time(each))),
        (Column("samples", "of samples to target", ColumnKind.NUMBER), part("samples")),
        (Column("per_sample", "of time per sample", ColumnKind.NUMBER), part("per_sample")),
    ]


def singles_table(found: Composition | Lesion) -> Table:
    """A row per factor: alone against none or, for a lesion, all against all but it."""
    lesion = isinstance(found, Lesion)
    singles = found.against if isinstance(found, Lesion) else found.alone

    def time(each: SingleFactor) -> Contrast:
        verdict = each.verdict
        return Contrast(verdict.ratio, verdict.low, verdict.high, verdict.n_a, verdict.level, reason=verdict.reason)

    level = _level_alone(found)
    return Table.of(
        "lesion" if lesion else "singles",
        "All factors against all but one" if lesion else "Each factor alone against none",
        singles,
        (Column("factor", "factor"), lambda each: each.factor),
        *_ratio_columns(time, lambda each: each.split),
        (Column("verdict", "verdict"), lambda each: str(each.verdict.kind)),
        notes=(
            f"The level of each interval is {level * 100:.4g} %"
            + (f", so that all hold jointly at {found.level * 100:g} % (Bonferroni). " if lesion else ". ")
            + _efficiencies(found),
        ),
    )


def _contrast_cell(found: Contrast) -> Cell:
    if found.ratio is None:
        bound = _bound(found.low, found.high)
        return Text(bound) if bound else Absent(found.reason)
    return Number(found.ratio, found.low, found.high)


def _meaning(effect: Effect) -> str:
    """What the interval of the times shows; where it shows nothing, what those of their two parts do."""
    one = len(effect.factors) == 1
    if shown := _side(effect.found, *_ON_TIMES[one]):
        return shown
    together = "" if one else " together"
    parts = effect.split and (
        _side(effect.split.samples, f"fewer samples{together}", f"more samples{together}"),
        _side(effect.split.per_sample, f"less time per sample{together}", f"more time per sample{together}"),
    )
    if said := ", ".join(filter(None, parts or ())):
        return f"{said}; {'no effect on' if one else 'no interaction of'} the time shown"
    return "no effect shown" if one else "no interaction shown"


_ON_TIMES = {
    True: ("shortens training", "lengthens training"),
    False: ("gain more together", "gain less together"),
}


def _side(found: Contrast, below: str, above: str) -> str:
    """The text for an interval below 1, or above; empty for one that has 1 in it."""
    if found.high is not None and found.high < 1:
        return below
    return above if found.low is not None and found.low > 1 else ""


def write_composition(found: Composition | Lesion, path: Path) -> Path | None:
    """Draw the single, predicted and measured speed-ups, or those of a lesion, to an ``.svg`` or ``.png`` file.

    Returns ``None``, and writes no file, if no speed-up has a number; the tables still have the runs. Raises as
    :func:`levelbench.report.drawing.draw`.
    """
    check_ending(path)
    bars = _bars(found)
    if all(bar.ratio is None for bar in bars):
        return None
    height = 1.5 + 0.42 * (len(bars))
    return draw(path, "composition", (6.4, height), lambda figure: _draw_speed_ups(figure.add_subplot(), found, bars))


@dataclass(frozen=True)
class _Bar:
    """A ratio of times over none of the factors, with its interval; ``None`` if too many runs missed for one."""

    label: str
    colour: str
    ratio: float | None
    low: float | None = None
    high: float | None = None


def _bars(found: Composition | Lesion) -> list[_Bar]:
    """Each factor alone, their product if known, all together; of a lesion, what each factor gains."""
    alone, product, measured = (SERIES[at][0] for at in range(3))
    if isinstance(found, Lesion):
        removed = [(f"{each.factor}, with all others", each.verdict) for each in found.against]
        return [_Bar(label, alone, v.ratio, v.low, v.high) for label, v in removed]
    named = [*((each.factor, alone, each.verdict) for each in found.alone), ("all, measured", measured, found.together)]
    bars = [_Bar(label, colour, v.ratio, v.low, v.high) for label, colour, v in named]
    if found.predicted is not None:
        bars.insert(len(found.alone), _Bar("product of these", product, found.predicted))
    return bars


def _draw_speed_ups(axes: Axes, found: Composition | Lesion, bars: Sequence[_Bar]) -> None:
    for at, bar in enumerate(bars):
        ratio, low, high = bar.ratio, bar.low, bar.high
        place = len(bars) - 1 - at
        if ratio is None:
            said = f"{clean(bar.label)}: not known, see the table"
            axes.annotate(said, (1.0, place), (6, 0), textcoords="offset points", va="center", fontsize=8.5)
            continue
        axes.barh(place, 1 / ratio - 1, left=1, height=0.6, color=bar.colour, alpha=0.8)
        if low and high:
            axes.plot([1 / high, 1 / low], [place, place], color=INK, linewidth=1.4)
        axes.annotate(
            f"{clean(bar.label)}  {number(1 / ratio)}", (max(1.0, 1 / ratio, 1 / low if low else 1.0), place), (6, 0),
            textcoords="offset points", va="center", fontsize=8.5,
        )  # fmt: skip
    axes.set_xscale("log")
    label_ratios(axes.xaxis, lambda value: f"{value:,g}")
    low, high = axes.get_xlim()
    # Room for the text next to the longest bar.
    axes.set_xlim(low, high * (high / low) ** 0.8)
    axes.axvline(1, color=INK, linewidth=1)
    axes.set_ylim(-0.6, len(bars) - 0.4)
    axes.set_yticks([])
    base, title = ("all but it", "lesion") if isinstance(found, Lesion) else ("none of them", str(found.kind))
    axes.set_xlabel(f"speed-up over {base} (time to accuracy)")
    n = min(len(cell.times) for cell in found.cells)
    some = any(bar.low is not None for bar in bars)
    known = f"; intervals at {_level_alone(found) * 100:.4g} %" if some else "; no intervals"
    below = f"n = {n} per arm{known}"
    axes.set_title(f"{clean(title + ': ' + ' x '.join(found.factors))}\n{below}", fontsize=10)
    plain_axes(axes, "x")


def _level_alone(found: Composition | Lesion) -> float:
    """The level of each interval by itself."""
    return (found.against if isinstance(found, Lesion) else found.alone)[0].verdict.level


_MOST_POINTS = 400
_BANDS = {"quartiles": "the middle half of the runs", "range": "the lowest to the highest run"}


def write_target(curves: Curves, specification: Specification, path: Path, whose: str) -> Path:
    """Draw ``curves`` over samples and the target of ``specification`` to an ``.svg`` or ``.png`` file.

    ``whose`` names the target in the legend (``proposed``). Raises as ``drawing.draw``.
    """
    return draw(
        path, "target", (6.4, 4.2), lambda figure: _draw_target(figure.add_subplot(), curves, specification, whose)
    )


def _draw_target(axes: Axes, curves: Curves, specification: Specification, whose: str) -> None:
    target, band, colour = specification.target, curves.band, SERIES[0][0]
    for run in curves.runs:
        draw_run(axes, run, 1.0, colour, _MOST_POINTS)
    axes.fill_between(band.x, band.low, band.high, color=colour, alpha=0.16, linewidth=0, label=_BANDS.get(band.kind))
    axes.plot(band.x, band.median, color=colour, linewidth=2.2, label=f"median of {len(curves.runs)} runs")
    reached = sum(run.reached_at is not None for run in curves.runs)
    dots = f"target confirmed ({reached} of {len(curves.runs)} runs)"
    axes.plot([], [], "o", color=colour, markersize=3.5, label=dots)
    line = f"{whose} target: {target.threshold:.6g}"
    axes.axhline(target.threshold, color=INK, linewidth=1, linestyle=(0, (4, 3)), label=line)
    axes.set_xlim(left=0)
    axes.set_ylim(*y_limits([curves], target))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlabel("training samples seen")
    axes.set_ylabel(clean(target.name(specification.scored_by)))
    axes.set_title(clean(f"{specification.task}[recipe={specification.recipe}]"), fontsize=10, loc="left")
    # Curves gather at the end of their scale: rising ones at the top, falling ones at the bottom.
    axes.legend(frameon=False, fontsize=8.5, loc="lower right" if target.direction == "higher" else "upper right")
    plain_axes(axes)


_LEAST, _MOST = 1e-17, 1e30


@dataclass(frozen=True, eq=False)
class Way:
    """One problem: L2 and L∞ by step, and the tolerance of L∞."""

    problem: str
    l2: NDArray[np.float64]
    linf: NDArray[np.float64]
    tolerance: float


def write_divergence(ways: Sequence[Way], path: Path, title: str) -> Path:
    """Draw to an ``.svg`` or ``.png`` file; raises as ``drawing.draw``."""
    if not ways:
        raise UsageError("a figure of divergence", "there is nothing to compare with", "give a reference: --reference")
    return draw(path, f"divergence {title}", (9.6, 4.2), lambda figure: _draw_divergence(figure, ways, title))


def _draw_divergence(figure: Canvas, ways: Sequence[Way], title: str) -> None:
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, name, values in ((left, "L2", [each.l2 for each in ways]), (right, "L∞", [each.linf for each in ways])):
        for at, (way, found) in enumerate(zip(ways, values, strict=True)):
            _line(axes, at, len(ways), way.problem, found)
        # Probes have 100 or 1,000 steps, and errors often show in the first few.
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set_yscale("log")
        axes.set_xlabel("step")
        axes.set_title(f"{name} of the difference, relative")
        axes.minorticks_off()
        plain_axes(axes)
    for tolerance, whose in _tolerances(ways).items():
        right.axhline(tolerance, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
        # Outside the axes, where there are no lines.
        right.annotate(
            clean(f"{tolerance:.1e} allowed: {whose}"), (1, tolerance), (4, 0), ("axes fraction", "data"),
            "offset points", va="center", fontsize=8,
        )  # fmt: skip
    _ticks(left)
    handles, labels = right.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8, handlelength=3)
    figure.suptitle(clean(title), fontsize=10)


def _line(axes: Axes, at: int, count: int, problem: str, found: NDArray[np.float64]) -> None:
    """The curve of one problem, wide ones below narrow ones, so that overlapping curves are all visible."""
    # A logarithmic axis has no zero; infinite or nearly infinite values leave a gap.
    shown = np.where(found < _MOST, np.maximum(found, _LEAST), np.nan)
    colour, dash = SERIES[at % len(SERIES)][0], DASHES[at % len(DASHES)]
    width = 1.1 + 1.9 * (count - 1 - at) / count
    axes.plot(
        np.arange(1, len(found) + 1), shown, color=colour, linestyle=dash, linewidth=width, label=clean(problem)
    )  # fmt: skip


def _tolerances(ways: Sequence[Way]) -> dict[float, str]:
    """Each tolerance with the names of its problems; two words stand for the most common one."""
    problems: dict[float, list[str]] = {}
    for each in ways:
        problems.setdefault(each.tolerance, []).append(each.problem)
    most = max(problems, key=lambda tolerance: len(problems[tolerance]))
    others = "all problems" if len(problems) == 1 else "the others"
    return {
        tolerance: others if tolerance == most else ", ".join(named) for tolerance, named in sorted(problems.items())
    }


def _ticks(axes: Axes) -> None:
    """Powers of ten, of which the lowest stands for everything below it."""
    lowest = round(math.log10(_LEAST))
    top = math.ceil(math.log10(axes.get_ylim()[1]))
    powers = range(lowest, top + 1, max(1, -(-(top - lowest) // 8)))
    axes.set_yticks([10.0**each for each in powers], [f"{'≤' * (each == lowest)}1e{each:+03d}" for each in powers])
