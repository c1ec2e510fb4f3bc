"""The figure of latencies under a scenario: the distribution of each process, and the percentiles with intervals.

The one idea: a distribution is drawn for each process, never pooled, and its tail is given room: the axis of shares is
that of the number of nines, so p99 and p99.9 stand apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from levelbench.errors import UsageError
from levelbench.records.inference.files import InferenceRecord
from levelbench.records.inference.summary import InferenceSummary
from levelbench.report.figures.drawing import draw, plain_axes, time_unit
from levelbench.report.style import DASHES, SERIES
from levelbench.report.tables import clean

__all__ = ["write_inference"]

_POINTS = 400
_WIDE = 8.0
_APART = 0.022
"""Of the axis, between the marks of two frameworks."""
_MARKERS = "osD^vPX*"
_TICKS = (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999)


def write_inference(summary: InferenceSummary, arms: Sequence[Sequence[InferenceRecord]], path: Path) -> Path:
    """Draw to an ``.svg`` or ``.png`` file; raises ``UsageError`` where no latency was taken, else as ``draw``."""
    shown = [
        (at, {each.header.seed: np.sort(each.latencies_s) for each in records if len(each.latencies_s)})
        for at, records in enumerate(arms)
    ]
    if not any(processes for _, processes in shown):
        raise UsageError("a figure of latencies", "no latency was taken", "measure a network that runs here")
    return draw(path, summary.title, (6.4, 4.2), lambda figure: _draw(figure, summary, shown))


def _draw(figure: Any, summary: InferenceSummary, shown: Sequence[tuple[int, Mapping[int, Any]]]) -> None:
    axes = figure.subplots()
    taken = [values for _, processes in shown for values in processes.values()]
    low, high = min(float(each[0]) for each in taken), max(float(each[-1]) for each in taken)
    if low > 0 and high > _WIDE * low:
        axes.set_xscale("log")
    unit = time_unit(axes.xaxis, [float(np.median(each)) for each in taken])
    longest = max(map(len, taken))
    for at, processes in shown:
        colour, dash = SERIES[at % len(SERIES)][0], DASHES[at % len(DASHES)]
        for number, values in enumerate(processes.values()):
            x, y = _steps(values)
            label = clean(summary.entries[at].arm.title) if not number else None
            axes.plot(
                x / unit.size, _nines(y, longest), color=colour, linestyle=dash, linewidth=1.0, alpha=0.55, label=label
            )
    top = float(_nines(np.array([1.0]), longest)[0])
    for place, (at, _) in enumerate(marked := [each for each in shown if each[1]]):
        # A little above or below each other, for intervals of several frameworks would lie on one line.
        shift = _APART * top * ((len(marked) - 1) / 2 - place)
        _marks(axes, summary, at, unit.size, longest, shift)
    ticks = [each for each in _TICKS if each < 1 - 1 / longest]
    axes.set_yticks([float(_nines(np.array([each]), longest)[0]) for each in ticks], [f"{each:.4g}" for each in ticks])
    # The interval of few processes may go on for decades; what was measured is what is to be seen.
    axes.set_xlim(low * 0.95 / unit.size, high * 1.05 / unit.size)
    axes.set_ylim(bottom=0)
    axes.set_title(clean(f"{summary.title}: latency of a query"), fontsize=10, loc="left")
    axes.set_xlabel(f"latency, {unit.symbol}", fontsize=9)
    axes.set_ylabel("share of queries that took at most this", fontsize=9)
    axes.legend(frameon=False, fontsize=8.5, loc="lower right")
    plain_axes(axes)


def _steps(values: Any) -> tuple[Any, Any]:
    """The empirical distribution at not more than ``_POINTS`` of its steps, evenly by the number of nines."""
    n = len(values)
    wanted = n * (1 - np.logspace(0, -np.log10(n), min(n, _POINTS)))
    at = np.unique(np.clip(wanted.round().astype(int), 0, n - 1))
    return values[at], (at + 1) / n


def _nines(share: Any, longest: int) -> Any:
    """0.9 as 1, 0.99 as 2; the last of all values, whose share is 1, a little above what they can tell."""
    return -np.log10(np.maximum(1 - share, 0.5 / longest))


def _marks(axes: Any, summary: InferenceSummary, at: int, size: float, longest: int, shift: float) -> None:
    """The percentiles of one framework with their intervals, ``shift`` above the heights of their shares."""
    colour, marker = SERIES[at % len(SERIES)][0], _MARKERS[at % len(_MARKERS)]
    for q, figure in summary.entries[at].quantiles:
        if figure.estimate is None:
            continue
        height = float(_nines(np.array([q]), longest)[0]) + shift
        inside = figure.estimate.interval
        if inside is not None and np.isfinite([inside.low, inside.high]).all():
            ends = [inside.low / size, inside.high / size]
            axes.plot(ends, [height] * 2, color=colour, linewidth=1.8, solid_capstyle="butt", alpha=0.8)
        axes.plot(
            [figure.estimate.value / size], [height], marker, color=colour, markersize=5.5, markeredgecolor="#ffffff",
            markeredgewidth=0.6,
        )  # fmt: skip
