"""Tables and the figure of ``levelbench tune``: the two sides, every trial, and how the best improved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from levelbench.report.drawing import MARKERS, draw, plain_axes, time_unit
from levelbench.report.markup import DASHES, SERIES
from levelbench.report.runs import spread_of_times
from levelbench.report.tables import Absent, Cell, Column, ColumnKind, Number, Reached, Table, Text, clean

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from levelbench.analysis.tuning import TunedSide, TuningStudy, TuningTrial

__all__ = ["sides_table", "trials_table", "write_tuning"]


def sides_table(study: TuningStudy) -> Table:
    """A row per side: its budget, what it chose, and how that does on fresh seeds."""
    times = {side.label: spread_of_times(side.fresh, study.fresh) for side in study.sides if side.fresh is not None}
    methods = dict.fromkeys(each.method for each in times.values() if each.method)

    def fresh(side: TunedSide) -> Cell:
        return times[side.label].cell if side.label in times else Absent("the winner has no runs yet")

    def reached(side: TunedSide) -> Cell:
        if side.fresh is None:
            return Absent("the winner has no runs yet")
        return Reached(sum(run.reached for run in side.fresh.runs), side.fresh.n)

    return Table.of(
        "tuning",
        f"Tuning of {study.task}",
        study.sides,
        (Column("side", "side"), lambda side: side.label),
        (Column("space", "space"), lambda side: ", ".join(side.space)),
        (Column("trials", "trials", ColumnKind.NUMBER), lambda side: len(side.trials)),
        (Column("spent_s", "tuning took", ColumnKind.TIME_S), lambda side: side.spent_s),
        (Column("trials_reached", "trials at the target"), lambda side: Reached(side.reached, len(side.trials))),
        (Column("settings", "best settings"), lambda side: settings_text(side.best)),
        (Column("best_s", "best trial", ColumnKind.TIME_S), lambda side: side.best.time_s),
        (Column("fresh_reached", "fresh runs at the target"), reached),
        (Column("time_s", "time on fresh seeds", ColumnKind.TIME_S), fresh),
        notes=(
            f"Settings proposed by {study.sampler}, seed {study.seed} for every trial; the winners run on seeds "
            f"{study.fresh_seeds[0]} to {study.fresh_seeds[-1]}, which no trial used.",
            *(f"Time on fresh seeds: {each}." for each in methods),
        ),
    )


def trials_table(study: TuningStudy) -> Table:
    """Every trial, in order."""
    rows = [(side, trial) for side in study.sides for trial in side.trials]

    def time(row: tuple[TunedSide, TuningTrial]) -> Cell:
        trial = row[1]
        if trial.time_s is None:
            return Absent("it failed" if trial.failed else "it did not reach the target")
        return Number(trial.time_s, remark="best" if trial is row[0].best else "")

    return Table.of(
        "trials",
        "Trials",
        rows,
        (Column("side", "side"), lambda row: row[0].label),
        (Column("number", "trial", ColumnKind.NUMBER), lambda row: row[1].number),
        (Column("settings", "settings"), lambda row: settings_text(row[1])),
        (Column("time_s", "time to accuracy", ColumnKind.TIME_S), time),
        (Column("quality", "final quality", ColumnKind.NUMBER, digits=4), lambda row: _quality(row[1])),
        (Column("spent_s", "took", ColumnKind.TIME_S), lambda row: row[1].spent_s),
        (Column("record", "record"), lambda row: Text(Path(row[1].path).name)),
    )


def _quality(trial: TuningTrial) -> Cell:
    known = trial.quality is not None and math.isfinite(trial.quality)
    return Number(trial.quality or 0.0) if known else Absent("it is not a number")


def settings_text(trial: TuningTrial) -> str:
    """Its settings as they are written in brackets."""
    return ", ".join(
        f"{name}={f'{value:.4g}' if isinstance(value, float) else value}" for name, value in trial.settings.items()
    )


def write_tuning(study: TuningStudy, path: Path) -> Path:
    """Draw each trial's time to the target and the best so far, by trial; raises as ``drawing.draw``."""
    return draw(path, "tuning", (6.8, 4.2), lambda figure: _draw(figure.add_subplot(), study.sides))


def _draw(axes: Axes, sides: Sequence[TunedSide]) -> None:
    times = [trial.spent_s if trial.time_s is None else trial.time_s for side in sides for trial in side.trials]
    unit = time_unit(axes.yaxis, times or [1.0])
    for at, side in enumerate(sides):
        colour, dash = SERIES[at][0], DASHES[at % len(DASHES)]
        known = [(each.number, each.time_s / unit.size) for each in side.trials if each.time_s is not None]
        missed = [(each.number, each.spent_s / unit.size) for each in side.trials if each.time_s is None]
        label = f"{side.label}: {side.reached} of {len(side.trials)} trials reached it"
        numbers, seconds = [number for number, _ in known], [time for _, time in known]
        axes.plot(numbers, seconds, MARKERS[at], color=colour, markersize=5, alpha=0.8)
        axes.plot(
            [number for number, _ in missed],
            [time for _, time in missed],
            MARKERS[at],
            color=colour,
            markersize=5,
            fillstyle="none",
        )
        # The best stays the best until the last trial, though no later one may reach the target.
        from_first = [each.number for each in side.trials if numbers and each.number >= numbers[0]]
        best = [min(time for n, time in known if n <= number) for number in from_first]
        axes.step(from_first, best, where="post", color=colour, linestyle=dash, label=clean(label))
    axes.set_xlabel("trial")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_ylabel(f"time to accuracy, {unit.symbol}")
    axes.set_title(
        "Trials (points; open: missed the target after so long) and the best so far (lines)", fontsize=10, loc="left"
    )
    axes.legend(frameon=False, fontsize=8.5)
    plain_axes(axes)
