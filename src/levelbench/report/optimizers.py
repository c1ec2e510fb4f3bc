"""The table of optimizers compared: a row per optimizer and framework, a column per thing that was measured."""

from __future__ import annotations

from dataclasses import replace

from levelbench.measure.verdict import format_verdict
from levelbench.records.benchmark_summary import BenchmarkSummary, Entry
from levelbench.report.numbers import number
from levelbench.report.tables import (
    Absent,
    Cell,
    Column,
    ColumnKind,
    Number,
    Table,
    Text,
    error_text,
    estimate_cell,
    share_cell,
    verdict_text,
)

__all__ = ["optimizers_lines", "optimizers_table"]

_REMARKS = {"wrong": "WRONG", "unchecked": "unchecked"}


def optimizers_table(summary: BenchmarkSummary) -> Table:
    """By optimizer and for each update, step and task: the time, and the verdict against the subject.

    Updates also have the share of the memory's ceiling and the error against the same rule on NumPy.
    """
    columns = [Column("optimizer", "optimizer")]
    for at, (problem, _) in enumerate(summary.rows):
        key = f"p{at}_{problem.operator}"
        columns.append(Column(f"{key}_time_s", problem.name, ColumnKind.TIME_S))
        if problem.operator == "update":
            columns.append(Column(f"{key}_share", "of ceiling", ColumnKind.SHARE, digits=2))
            columns.append(Column(f"{key}_error", "error", ColumnKind.TEXT))
        columns.append(Column(f"{key}_verdict", "verdict", ColumnKind.TEXT))
    rows: list[tuple[Cell, ...]] = []
    for arm, name in enumerate(summary.frameworks):
        cells = [_cells(entries[arm], problem.operator == "update") for problem, entries in summary.rows]
        rows.append((Text(name), *(cell for each in cells for cell in each)))
    title = f"{summary.title}: updates, steps and accuracy, on {summary.device}"
    name = "".join(each if each.isalnum() else "_" for each in summary.title)
    return Table(f"optimizers_{name}", title, tuple(columns), tuple(rows), _notes(summary)).without_empty()


def _cells(entry: Entry, update: bool) -> list[Cell]:
    judged: Cell = Text(verdict_text(entry.verdict)) if entry.verdict is not None else Absent()
    if entry.time is None:
        return [Absent(f"{entry.status}: {entry.reason}"), *([Absent(), Absent()] * update), judged]
    time = estimate_cell(entry.time, remark=_REMARKS.get(entry.status, ""))
    relative = entry.errors.get("relative")
    error: Cell = Absent(entry.checked) if relative is None else error_text(relative)
    share = share_cell(entry.share, "faster than memory: its data is in a cache")
    if isinstance(share, Number):
        # Of an update it is always that of memory, as the note says.
        share = replace(share, remark="")
    return [time, *([share, error] * update), judged]


def optimizers_lines(summary: BenchmarkSummary) -> list[str]:
    """The verdicts in sentences, then why there is no time or verdict, unless the check of the optimizer says so."""
    lines, absent = [], []
    for problem, entries in summary.rows:
        for at, entry in enumerate(entries):
            name = summary.frameworks[at]
            if entry.verdict is not None:
                said = format_verdict(entry.verdict, summary.frameworks[summary.baseline(at)], name)
                lines.append(f"{problem.name}: {said}")
            if entry.reason and not entry.reason.startswith("levelbench check"):
                absent.append(f"{problem.name}, {name}: {entry.status}: {entry.reason}")
    return [*lines, *absent]


def _notes(summary: BenchmarkSummary) -> tuple[str, ...]:
    counts = sorted(set(summary.processes))
    processes = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return (
        f"time: a call, over {processes} process{'es' * (counts[-1] > 1)} each, one median each; to accuracy, over the "
        f"runs that reach it. Intervals at {summary.level:.0%}.",
        "of ceiling: the minimum time to move gradients, parameters and state through memory, over the time.",
        "error: after five timed updates, to the same rule on NumPy, of the way that the parameters came.",
        f"verdict: against {summary.title} on the same framework if it runs there, else on the first; SAME within "
        f"±{number(summary.margin * 100)} %.",
    )
