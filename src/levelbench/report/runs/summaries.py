"""The tables of a report: groups of runs, single runs, phases and curves.

The one idea: a row of the main table is a group, its replicate is the run, and a run that never reached the target is
neither filled in nor dropped: it shows in ``reached`` and, as censored, in the time to accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from levelbench.report.page.beside import Linted, lint_words
from levelbench.report.runs.spread import (
    Spread,
    mean_and_range,
    spread_of_reached,
    spread_of_restarts,
    spread_of_times,
    spread_of_values,
)
from levelbench.report.style import PHASES
from levelbench.report.tables import Absent, Cell, Column, Kind, Number, Table, Text

if TYPE_CHECKING:
    from levelbench.records.groups import RunGroup
    from levelbench.records.schema import Target
    from levelbench.records.summary import RunSummary

__all__ = ["groups_table", "listing", "phase_seconds", "phases_by_group", "runs_table", "target_text"]


def target_text(target: Target) -> str:
    """The target in words: ``validation accuracy at least 0.97``."""
    bound = "at least" if target.direction == "higher" else "at most"
    return f"{target.split} {target.metric} {bound} {target.threshold:.6g}"


def groups_table(groups: Sequence[RunGroup], linted: Sequence[Linted] = ()) -> Table:
    """The main table: one row a group, every figure with its interval over the group's runs.

    Columns: reached k/n, time to accuracy on the groups' clock, the expected time with restarts where some runs missed,
    seconds that the clock leaves out, epochs and samples to the target, time per step, final test quality, peak memory
    and energy (or why there is none); with ``linted`` what the linter says of the row.
    """
    clock = _common({group.specification.clock for group in groups})
    metric = _common({group.specification.target.metric for group in groups}) or "quality"
    missed = any(group.reached < group.n for group in groups)
    columns: tuple[tuple[Column, Callable[[RunGroup], Spread]], ...] = (
        (Column("reached", "reached"), spread_of_reached),
        (Column("time_to_accuracy_s", f"time to accuracy{clock and f' ({clock})'}", Kind.TIME_S), spread_of_times),
        *(((Column("restarts_s", "expected with restarts", Kind.TIME_S), spread_of_restarts),) if missed else ()),
        (Column("left_out_s", "left out by the clock", Kind.TIME_S), _left_out),
        (Column("epochs_to_target", "epochs to target", Kind.NUMBER), _of_reached("epochs_to_target")),
        (Column("samples_to_target", "samples to target", Kind.NUMBER), _of_reached("samples_to_target")),
        (Column("time_per_step_s", "time per step", Kind.TIME_S), _of_all("time_per_step_s")),
        (Column("test_quality", f"test {metric}", Kind.NUMBER, digits=4), _test_quality),
        (Column("peak_memory_bytes", "peak memory", Kind.BYTES), _of_all("peak_memory_bytes")),
        (Column("energy_j", "energy", Kind.ENERGY_J), _energy),
    )
    head = [Column("group", "runs of"), *([] if clock else [Column("clock", "clock")])]
    rows: list[tuple[Cell, ...]] = []
    methods: dict[str, dict[str, None]] = {}
    for group in groups:
        spreads = [make(group) for _, make in columns]
        lint = [Text(lint_words(linted, group.label, group.specification.task))] if linted else []
        rows.append((*_names(group, clock), *(spread.cell for spread in spreads), *lint))
        for (column, _), spread in zip(columns, spreads, strict=True):
            if spread.method:
                methods.setdefault(spread.method, {})[column.title] = None
    notes = [*_conditions(groups), *(f"{', '.join(titles)}: {method}." for method, titles in methods.items())]
    names = (*head, *(column for column, _ in columns), *([Column("lint", "lint")] if linted else []))
    return Table("groups", "Time to accuracy", names, tuple(rows), tuple(notes)).without_empty()


def _common(names: set[str]) -> str:
    """The one name in ``names``, or nothing."""
    return next(iter(names)) if len(names) == 1 else ""


def _names(group: RunGroup, clock: str) -> list[Cell]:
    """The first cells of a group's row."""
    label: list[Cell] = [Text(group.label)]
    return label if clock else [*label, Text(group.specification.clock)]


def _conditions(groups: Sequence[RunGroup]) -> list[str]:
    """What a reader must know to read the times: target, crossing rule, and whether the data is synthetic."""
    notes = [
        f"{group.specification.task}: target {target_text(group.specification.target)}, "
        f"crossing rule {group.specification.crossing}, evaluated every {group.specification.evaluate_every}."
        for group in groups
    ]
    notes += [
        f"{group.label}: synthetic data, so the time says nothing about a real task."
        for group in groups
        if any(run.synthetic for run in group.runs)
    ]
    return list(dict.fromkeys(notes))


def _of_all(name: str) -> Callable[[RunGroup], Spread]:
    """The spread of a figure over all runs that have it."""
    return lambda group: spread_of_values([getattr(run, name) for run in group.runs])


def _of_reached(name: str) -> Callable[[RunGroup], Spread]:
    """The spread of a figure over the runs that reached the target; says so where some did not."""

    def make(group: RunGroup) -> Spread:
        spread = spread_of_values([getattr(run, name) for run in group.runs if run.reached])
        if group.reached == group.n or not spread.method:
            return spread
        return Spread(spread.cell, f"{spread.method}, of the runs that reached the target")

    return make


def _left_out(group: RunGroup) -> Spread:
    """Seconds that the clock policy left out, where it left any."""
    seconds = [sum(run.excluded_s.values()) for run in group.runs]
    if not any(seconds):
        return Spread(Absent())
    return mean_and_range(seconds)


def _test_quality(group: RunGroup) -> Spread:
    """Final quality on the test split: mean and range over the runs that have one."""
    return mean_and_range([run.quality["test"] for run in group.runs if "test" in run.quality])


def _energy(group: RunGroup) -> Spread:
    """Energy with its method, or the reason why there is none."""
    methods = sorted({run.energy_method for run in group.runs if run.energy_j is not None and run.energy_method})
    if not methods:
        reasons = [run.energy_reason for run in group.runs if run.energy_reason]
        return Spread(Absent(f"energy: {reasons[0]}" if reasons else ""))
    spread = spread_of_values([run.energy_j for run in group.runs])
    return Spread(spread.cell, f"{spread.method}; read by {', '.join(methods)}")


def runs_table(runs: Sequence[RunSummary]) -> Table:
    """One row a run, as ``list`` and a report's run list show them."""
    columns = (
        Column("id", "run"),
        Column("recipe", "recipe"),
        Column("framework", "framework"),
        Column("seed", "seed", Kind.NUMBER),
        Column("status", "status"),
        Column("reached", "reached"),
        Column("time_to_accuracy_s", "time to accuracy", Kind.TIME_S),
        Column("given_up_s", "given up after", Kind.TIME_S),
        Column("epochs_to_target", "epochs", Kind.NUMBER),
        Column("test_quality", "test quality", Kind.NUMBER, digits=4),
        Column("doubts", "doubts", Kind.NUMBER),
        Column("started", "started"),
    )
    rows = tuple(_run_row(run) for run in runs)
    return Table("runs", "Runs", columns, rows).without_empty()


def _run_row(run: RunSummary) -> tuple[Cell, ...]:
    """The cells of one run."""
    return (
        Text(run.id[:8]),
        Text(f"{run.task}/{run.recipe}"),
        Text(run.framework),
        Number(run.seed),
        Text(run.status),
        Text("yes" if run.reached else "no"),
        optional(run.time_to_accuracy_s),
        Absent() if run.reached else optional(run.given_up_s),
        optional(run.epochs_to_target),
        optional(run.quality.get("test")),
        Number(len(run.suspect)) if run.suspect else Absent(),
        Text(run.started[:19].replace("T", " ")),
    )


def optional(value: float | None) -> Cell:
    """A number, or an empty cell."""
    return Absent() if value is None else Number(value)


def phases_by_group(groups: Sequence[RunGroup]) -> Table:
    """Seconds a phase for each group, the mean over its runs, and the sum."""
    phases = [[phase_seconds(run.phases_s) for run in group.runs] for group in groups]
    names = list(dict.fromkeys(name for runs in phases for run in runs for name in run))
    columns = (Column("group", "runs of"), *(Column(f"{name}_s", name, Kind.TIME_S) for name in [*names, "all"]))
    rows: list[tuple[Cell, ...]] = []
    for group, runs in zip(groups, phases, strict=True):
        means = [sum(run.get(name, 0.0) for run in runs) / group.n for name in names]
        rows.append((Text(group.label), *(Number(mean) for mean in [*means, sum(means)])))
    note = "Mean over the runs, up to the evaluation at which the target counts as reached, or to the last one."
    return Table("phases", "Seconds by phase", columns, tuple(rows), (note,))


def phase_seconds(phases_s: Mapping[str, float]) -> dict[str, float]:
    """Seconds by phase; names that are no phase count as ``other``."""
    found: dict[str, float] = {}
    for name, seconds in phases_s.items():
        phase = name if name in PHASES else "other"
        found[phase] = found.get(phase, 0.0) + seconds
    return found


def listing(name: str, title: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table of words: what can run here and what each item lacks, settings, differences."""
    columns = tuple(Column(header.replace(" ", "_"), header) for header in headers)
    return Table(name, title, columns, tuple(tuple(Text(cell) for cell in row) for row in rows))
