"""The figures' drawings: SVG by matplotlib, without its global state, whose colours are the page's.

The one idea: matplotlib draws in placeholder colours that become CSS variables, so one drawing reads well on light and
on dark, and text stays text. The output is deterministic: no date, and identifiers salted by the figure's name.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from levelbench.report.figures.bands import Axis, Curve, Curves
from levelbench.report.numbers import number
from levelbench.report.runs.spread import time_estimate
from levelbench.report.runs.summaries import phase_seconds
from levelbench.report.style import DASHES, PHASES, SERIES
from levelbench.report.tables import Kind, clean

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

    from levelbench.records.groups import RunGroup
    from levelbench.records.schema import Target

__all__ = ["draw_curves", "draw_phases", "draw_run", "draw_times", "y_limits"]

_INK = "#010203"
_FAINT = "#010204"
_MOST_RUNS = 40
_MOST_POINTS = 4000
_WIDTH_IN = 5.4


def _series(at: int) -> str:
    """The placeholder of series ``at``."""
    return f"#0101{16 + at % len(SERIES):02x}"


def _phase(name: str) -> str:
    """The placeholder of a phase."""
    names = list(PHASES)
    return f"#0102{16 + (names.index(name) if name in PHASES else len(names) - 1):02x}"


def _variables() -> dict[str, str]:
    """The CSS value of each placeholder."""
    found = {_INK: "currentColor", _FAINT: "var(--faint)"}
    found |= {_series(at): f"var(--series-{at})" for at in range(len(SERIES))}
    return found | {_phase(name): f"var(--phase-{name})" for name in PHASES}


def draw_curves(name: str, curves: Sequence[Curves], axis: Axis, target: Target, along: str) -> str:
    """Single runs thin, medians bold, the range as a band, the target as a line. SVG text."""
    with _canvas(name, 3.5) as (canvas, axes):
        scale, unit = (
            _time_scale([x for each in curves for x in each.band.x]) if axis.kind is Kind.TIME_S else (1.0, "")
        )
        shown = max([1, *(len(each.runs) for each in curves)]) * len(curves)
        for at, each in enumerate(curves):
            colour, dash = _series(at), DASHES[at % len(DASHES)]
            band = each.band
            x = [value / scale for value in band.x]
            axes.fill_between(x, band.low, band.high, color=colour, alpha=0.16, linewidth=0)
            for run in each.runs[:_MOST_RUNS]:
                draw_run(axes, run, scale, colour, max(20, _MOST_POINTS // shown))
            axes.plot(x, band.median, color=colour, linewidth=2.2, linestyle=dash)
        axes.axhline(target.threshold, color=_INK, linewidth=1, linestyle=(0, (4, 3)))
        axes.annotate(
            f"target {target.threshold:.6g}", (0, target.threshold), (3, 3), ("axes fraction", "data"),
            "offset points", va="bottom",
        )  # fmt: skip
        axes.set_xlabel(clean(f"{along}, {unit}" if unit else along))
        axes.set_ylabel(clean(f"{target.split} {target.metric}"))
        axes.set_xlim(left=0)
        low, high = y_limits(curves, target)
        axes.set_ylim(low, high)
        if axis.kind is Kind.NUMBER:
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        return _svg(canvas, name)


def draw_run(axes: Axes, run: Curve, scale: float, colour: str, points: int) -> None:
    """One run, thin, in about ``points`` points, with a dot where it reached its target."""
    step = max(1, -(-len(run.x) // points))
    axes.plot([x / scale for x in run.x[::step]], run.quality[::step], color=colour, linewidth=0.7, alpha=0.55)
    if run.reached_at is not None:
        axes.plot([run.reached_at / scale], [run.at(run.reached_at)], "o", color=colour, markersize=3.5)


def y_limits(curves: Sequence[Curves], target: Target) -> tuple[float, float]:
    """Limits that show the approach to the target: early values far from it may lie outside."""
    values = [value for each in curves for run in each.runs for value in run.quality] or [target.threshold]
    finals = [run.quality[-1] for each in curves for run in each.runs] or [target.threshold]
    if target.direction == "lower":
        room = 6 * max(abs(target.threshold - target.low), 1e-12)
        top = min(max(values), max(target.threshold + room, *finals))
        return min(*values, target.threshold) - 0.05 * room / 6, top
    highest = max([*values, target.threshold]) if target.high is None else target.high
    room = max(highest - target.threshold, 1e-12)
    floor = max(min(values), min([target.threshold - 6 * room, *(final - 2 * room for final in finals)]))
    ceiling = max([*values, target.threshold])
    return floor, min(highest, ceiling) + 0.08 * (ceiling - floor or room)


def draw_times(name: str, groups: Sequence[RunGroup]) -> str:
    """A row a group: each run's time, the estimate and its interval. SVG text."""
    with _canvas(name, _height_in(len(groups), 0.62)) as (canvas, axes):
        runs = [run for group in groups for run in group.runs]
        seconds = [run.time_to_accuracy_s if run.reached else run.given_up_s for run in runs]
        scale, unit = _time_scale([each for each in seconds if each is not None])
        for row, group in enumerate(groups):
            colour = _series(row)
            reached = [run.time_to_accuracy_s / scale for run in group.runs if run.time_to_accuracy_s is not None]
            missed = [(run.hopeless, (run.given_up_s or 0.0) / scale) for run in group.runs if not run.reached]
            given_up = [time for _, time in missed]
            axes.plot(reached, [row + 0.16] * len(reached), "o", color=colour, markersize=5, alpha=0.6, mew=0)
            for hopeless, time in missed:
                axes.plot([time], [row + 0.16], "x" if hopeless else ">", color=colour, markersize=6, mfc="none")
            found = time_estimate(group)
            if found is not None:
                if found.interval is not None:
                    last = max([*reached, *given_up]) * 1.05
                    low, high = found.interval.low / scale, min(found.interval.high / scale, last)
                    axes.plot([low, high], [row - 0.16] * 2, color=colour, linewidth=2.5)
                    # An end beyond the runs (open, where half of them may never get there) is an arrow.
                    ends = [last] if high == last else []
                    axes.plot(ends, [row - 0.16] * len(ends), ">", color=colour, markersize=7)
                axes.plot([found.value / scale], [row - 0.16], "D", color=colour, markersize=7)
        _rows(axes, [group.label for group in groups])
        axes.set_xlabel(f"time to accuracy, {unit}")
        axes.set_xlim(left=0)
        return _svg(canvas, name)


def draw_phases(name: str, groups: Sequence[RunGroup]) -> str:
    """A stacked bar a group: mean seconds of each phase. SVG text; its legend is the page's."""
    with _canvas(name, _height_in(len(groups), 0.5)) as (canvas, axes):
        whole = [sum(sum(run.phases_s.values()) for run in group.runs) / group.n for group in groups]
        scale, unit = _time_scale(whole)
        for row, group in enumerate(groups):
            left = 0.0
            for phase in PHASES:
                mean = sum(phase_seconds(run.phases_s).get(phase, 0.0) for run in group.runs) / group.n / scale
                if mean > 0:
                    axes.barh(row, mean, 0.56, left, color=_phase(phase), linewidth=0)
                    left += mean
            sum_text = axes.annotate(
                number(whole[row] / scale), (left, row), (4, 0), textcoords="offset points", va="center"
            )
            # The margin below holds it; as part of the layout it would squeeze the axes, at worst to nothing.
            sum_text.set_in_layout(False)
        _rows(axes, [group.label for group in groups])
        axes.set_xlabel(f"mean time of a run, {unit}")
        axes.set_xlim(0, max([*whole, 1e-9 * scale]) / scale * 1.14)
        return _svg(canvas, name)


def _height_in(rows: int, each_in: float) -> float:
    """The height of a figure of ``rows``; the axis below needs its room also where there is one row."""
    return max(2.0, 1.0 + each_in * rows)


def _rows(axes: Axes, labels: Sequence[str]) -> None:
    """Label the rows, first on top; long labels in lines, very long ones cut (the table has them whole)."""
    axes.set_yticks(range(len(labels)), [_short(label) for label in labels])
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0)


def _short(label: str) -> str:
    """At most three lines of some 22 characters, broken after ``[`` and commas."""
    lines = [""]
    for part in re.findall(r"[^\[,]*[\[,]?", clean(label)):
        if lines[-1] and len(lines[-1]) + len(part) > 22:
            lines.append("")
        lines[-1] += part
    shown = [line if len(line) <= 26 else f"{line[:25]}…" for line in lines]
    return "\n".join(shown if len(shown) <= 3 else [*shown[:2], "…"])


def _time_scale(seconds: Sequence[float]) -> tuple[float, str]:
    """The unit of a time axis: its size in seconds and its symbol."""
    from levelbench.report.numbers import TIME, choose_unit

    unit = choose_unit(seconds, TIME)
    return unit.size, unit.symbol


@contextmanager
def _canvas(name: str, height_in: float) -> Iterator[tuple[Canvas, Axes]]:
    """A figure with one pair of axes in the page's style; global settings are put back afterwards."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure as Canvas

    settings = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "text.parse_math": False,
        "font.family": ["sans-serif"],
        "font.size": 9.5,
        "axes.unicode_minus": True,
        **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), _INK),
        **dict.fromkeys(("axes.edgecolor", "grid.color", "xtick.color", "ytick.color"), _FAINT),
        **dict.fromkeys(("axes.spines.top", "axes.spines.right", "axes.spines.left"), False),
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.linewidth": 0.6,
        "ytick.major.size": 0,
    }
    # rcParams that someone's matplotlibrc sets would change the drawing: start from the defaults.
    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()
        mpl.rcParams.update(settings)
        # A missing glyph or a tight layout makes a drawing less pretty: no reason for a run to have no report.
        warnings.simplefilter("ignore")
        canvas = Canvas(figsize=(_WIDTH_IN, height_in), layout="constrained")
        FigureCanvasSVG(canvas)
        canvas.patch.set_visible(False)
        axes = canvas.add_subplot()
        axes.patch.set_visible(False)
        yield canvas, axes


def _svg(canvas: Canvas, name: str) -> str:
    """The drawing as an ``<svg>`` element that scales to its box, with CSS variables for colours."""
    out = io.StringIO()
    canvas.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    variables = _variables()
    text = re.sub(
        r"((?:fill|stroke): )(#[0-9a-f]{6})", lambda found: found[1] + variables.get(found[2], found[2]), text
    )
    # Identifiers such as figure_1 would be the same in every drawing of one page.
    text = re.sub(r'(<g) id="[a-z_0-9A-Z.]+"', r"\1", text)
    # The page's own font; "<" in a label is escaped, so only elements match.
    text = re.sub(r'(<text style="font-size: [\d.]+px;) font-family: [^;"]*;', r"\1", text)
    head = re.sub(r' (width|height)="[\d.]+pt"', "", text[: text.index(">")])
    return head + ' aria-hidden="true" focusable="false"' + text[text.index(">") :].rstrip() + "\n"
