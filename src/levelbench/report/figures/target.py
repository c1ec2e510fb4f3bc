"""The figure of learning curves under a proposed target, to a file of its own.

The one idea: what is drawn is what was decided upon: each run as a thin line with a dot where it confirmed the very
target that is drawn, so that a target on the flat tail shows as dots that scatter.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from levelbench.report.figures.drawing import INK, draw, plain_axes
from levelbench.report.figures.plots import draw_run, y_limits
from levelbench.report.style import SERIES
from levelbench.report.tables import clean

if TYPE_CHECKING:
    from levelbench.records.schema import Specification
    from levelbench.report.figures.bands import Curves

__all__ = ["write_target"]

_MOST_POINTS = 400
_BANDS = {"quartiles": "the middle half of the runs", "range": "the lowest to the highest run"}


def write_target(curves: Curves, specification: Specification, path: Path, whose: str) -> Path:
    """Draw ``curves`` over samples and the target of ``specification`` to an ``.svg`` or ``.png`` file.

    ``whose`` says beside it which target that is (``proposed``). Raises as ``drawing.draw``.
    """
    return draw(path, "target", (6.4, 4.2), lambda figure: _draw(figure.add_subplot(), curves, specification, whose))


def _draw(axes: Any, curves: Curves, specification: Specification, whose: str) -> None:
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
    axes.set_ylabel(clean(f"{target.split} {target.metric}"))
    axes.set_title(clean(f"{specification.task}[recipe={specification.recipe}]"), fontsize=10, loc="left")
    # Curves gather at the end of their scale: rising ones above, falling ones below.
    axes.legend(frameon=False, fontsize=8.5, loc="lower right" if target.direction == "higher" else "upper right")
    plain_axes(axes)
