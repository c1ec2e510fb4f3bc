"""The figure of how far an optimizer parts from its reference: L2 and L∞ against the step, one line a problem.

The one idea: an error of rounding grows slowly from 1e-16; an update that is another one is there at once, or at the
step at which it begins to differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import UsageError
from levelbench.report.drawing import INK, draw, plain_axes
from levelbench.report.style import SERIES
from levelbench.report.tables import clean

__all__ = ["Way", "write_divergence"]

_LEAST = 1e-17


@dataclass(frozen=True, eq=False)
class Way:
    """One problem: L2 and L∞ by step, and the L∞ that is allowed."""

    problem: str
    l2: NDArray[np.float64]
    linf: NDArray[np.float64]
    tolerance: float


def write_divergence(ways: Sequence[Way], path: Path, title: str) -> Path:
    """Draw to an ``.svg`` or ``.png`` file; raises as :func:`levelbench.report.drawing.draw`."""
    if not ways:
        raise UsageError("a figure of divergence", "there is nothing to compare with", "name a reference: --reference")
    return draw(path, f"divergence {title}", (8.6, 4.2), lambda figure: _draw(figure, ways, title))


def _draw(figure: Any, ways: Sequence[Way], title: str) -> None:
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, name, values in ((left, "L2", [each.l2 for each in ways]), (right, "L∞", [each.linf for each in ways])):
        for at, (way, found) in enumerate(zip(ways, values, strict=True)):
            steps = np.arange(1, len(found) + 1)
            # Zero has no place on a logarithmic axis, and infinity is drawn by the gap that it leaves.
            shown = np.where(np.isfinite(found), np.maximum(found, _LEAST), np.nan)
            axes.plot(steps, shown, color=SERIES[at % len(SERIES)][0], linewidth=1.2, label=clean(way.problem))
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0e}")
        axes.set_xlabel("step")
        axes.set_title(f"{name} of the difference, relative")
        plain_axes(axes)
    for tolerance in sorted({each.tolerance for each in ways}):
        right.axhline(tolerance, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
    handles, labels = right.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    figure.suptitle(clean(title), fontsize=10)
