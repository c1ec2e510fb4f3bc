"""Commands measured by ``levelbench time``: a table with their verdicts, and a table with a row per process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from levelbench.measure.verdict import NOT_INTERLEAVED, format_verdict
from levelbench.records.commands import CommandRecord, CommandSummary
from levelbench.report.tables import Column, ColumnKind, Table, estimate_cell

__all__ = ["answer_lines", "command_row", "command_rows_table", "summary_table"]


def summary_table(summary: CommandSummary) -> Table:
    """A row per command, with geometric means and their intervals."""
    notes = []
    for count in sorted({len(each.times_s) for each in summary.entries}):
        shown = f"{summary.level * 100:.3g} % interval" if count > 5 else "lowest to highest: too few for an interval"
        notes.append(f"geometric mean [{shown}], n = {count}.")
    return Table.of(
        "commands",
        "Commands",
        summary.entries,
        (Column("command", "command"), lambda each: each.name),
        (Column("time_s", "time", ColumnKind.TIME_S), lambda each: estimate_cell(each.wall.estimate)),
        (Column("user_s", "user", ColumnKind.TIME_S), lambda each: estimate_cell(each.user.estimate)),
        (Column("system_s", "system", ColumnKind.TIME_S), lambda each: estimate_cell(each.system.estimate)),
        (
            Column("peak_memory_b", "peak memory", ColumnKind.BYTES),
            lambda each: estimate_cell(each.memory.estimate, each.memory.reason),
        ),
        (Column("failed", "failed", ColumnKind.NUMBER), lambda each: each.failed or None),
        notes=notes,
    ).without_empty()


def answer_lines(summary: CommandSummary) -> list[str]:
    """Each verdict, and why."""
    first, *others = summary.entries
    lines = []
    for each in others:
        if each.verdict is not None:
            line = format_verdict(each.verdict, first.name, each.name)
            lines.append(line.replace(NOT_INTERLEAVED, f"not interleaved: {summary.in_turns}"))
            lines += [f"  why: {each.why}"] * bool(each.why)
    return lines


def command_row(record: CommandRecord) -> dict[str, Any]:
    """A summary of one process: times in s, memory in B; ``None`` for what was not measured."""
    specification, outcome = record.header.specification, record.outcome
    found = {name: each.value for name, each in record.measurements.items()}
    return {
        "id": record.header.id,
        "command": specification.command,
        "revision": specification.label,
        "process": record.header.seed,
        "status": "failed" if outcome is not None and outcome.reason else record.status,
        "started": record.header.started,
        "wall_s": found.get("wall"),
        "user_s": found.get("user"),
        "system_s": found.get("system"),
        "peak_memory_b": found.get("peak_memory"),
        "path": str(record.path),
    }


def command_rows_table(rows: Iterable[dict[str, Any]]) -> Table:
    """The rows of :func:`command_row` as a table."""
    columns = (
        Column("id", "id"),
        Column("command", "command"),
        Column("revision", "revision"),
        Column("process", "process", ColumnKind.NUMBER),
        Column("status", "status"),
        Column("started", "begun"),
        Column("wall_s", "time", ColumnKind.TIME_S),
        Column("user_s", "user", ColumnKind.TIME_S),
        Column("system_s", "system", ColumnKind.TIME_S),
        Column("peak_memory_b", "peak memory", ColumnKind.BYTES),
    )
    shown = [{**row, "started": row["started"][:19].replace("T", " ")} for row in rows]
    read = [(column, lambda row, key=column.key: row[key]) for column in columns]
    return Table.of("commands", "Commands", shown, *read).without_empty()
