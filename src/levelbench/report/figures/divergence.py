"""The figure of how far an optimizer parts from its reference: L2 and L∞ against the step, one line a problem.

The one idea: an error of rounding grows slowly from 1e-16; an update that is another one is there at once, or at the
step at which it begins to differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import UsageError
from levelbench.report.figures.drawing import INK, draw, plain_axes
from levelbench.report.style import DASHES, SERIES
from levelbench.report.tables import clean

__all__ = ["Way", "write_divergence"]

_LEAST, _MOST = 1e-17, 1e30


@dataclass(frozen=True, eq=False)
class Way:
    """One problem: L2 and L∞ by step, and the L∞ that is allowed."""

    problem: str
    l2: NDArray[np.float64]
    linf: NDArray[np.float64]
    tolerance: float


def write_divergence(ways: Sequence[Way], path: Path, title: str) -> Path:
    """Draw to an ``.svg`` or ``.png`` file; raises as ``drawing.draw``."""
    if not ways:
        raise UsageError("a figure of divergence", "there is nothing to compare with", "name a reference: --reference")
    return draw(path, f"divergence {title}", (9.6, 4.2), lambda figure: _draw(figure, ways, title))


def _draw(figure: Any, ways: Sequence[Way], title: str) -> None:
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, name, values in ((left, "L2", [each.l2 for each in ways]), (right, "L∞", [each.linf for each in ways])):
        for at, (way, found) in enumerate(zip(ways, values, strict=True)):
            _line(axes, at, len(ways), way.problem, found)
        # Probes are of 100 steps and of 1,000, and what is wrong is often wrong in the first few.
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set_yscale("log")
        axes.set_xlabel("step")
        axes.set_title(f"{name} of the difference, relative")
        axes.minorticks_off()
        plain_axes(axes)
    for tolerance, whose in _tolerances(ways).items():
        right.axhline(tolerance, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
        # Beside the axes, where no line is.
        right.annotate(
            clean(f"{tolerance:.1e} allowed: {whose}"), (1, tolerance), (4, 0), ("axes fraction", "data"),
            "offset points", va="center", fontsize=8,
        )  # fmt: skip
    _ticks(left)
    handles, labels = right.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8, handlelength=3)
    figure.suptitle(clean(title), fontsize=10)


def _line(axes: Any, at: int, count: int, problem: str, found: NDArray[np.float64]) -> None:
    """The way of one problem, wide below and narrow above, so that those that lie over each other are all seen."""
    # Zero has no place on a logarithmic axis; infinity, and what is on its way there, is the gap that it leaves.
    shown = np.where(found < _MOST, np.maximum(found, _LEAST), np.nan)
    colour, dash = SERIES[at % len(SERIES)][0], DASHES[at % len(DASHES)]
    width = 1.1 + 1.9 * (count - 1 - at) / count
    axes.plot(
        np.arange(1, len(found) + 1), shown, color=colour, linestyle=dash, linewidth=width, label=clean(problem)
    )  # fmt: skip


def _tolerances(ways: Sequence[Way]) -> dict[float, str]:
    """Each tolerance with the problems that it is for, that of the most in two words."""
    problems: dict[float, list[str]] = {}
    for each in ways:
        problems.setdefault(each.tolerance, []).append(each.problem)
    most = max(problems, key=lambda tolerance: len(problems[tolerance]))
    others = "all problems" if len(problems) == 1 else "the others"
    return {
        tolerance: others if tolerance == most else ", ".join(named) for tolerance, named in sorted(problems.items())
    }


def _ticks(axes: Any) -> None:
    """Powers of ten, the lowest of which stands for all that is less."""
    lowest = round(math.log10(_LEAST))
    top = math.ceil(math.log10(axes.get_ylim()[1]))
    powers = range(lowest, top + 1, max(1, -(-(top - lowest) // 8)))
    axes.set_yticks([10.0**each for each in powers], [f"{'≤' * (each == lowest)}1e{each:+03d}" for each in powers])
