"""Commands measured by ``levelbench time``: a table with their verdicts, and a table with a row per process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from levelbench.measure.verdict import NOT_INTERLEAVED, format_verdict, format_verdicts
from levelbench.records.commands import CommandRecord, CommandSummary
from levelbench.report.tables import Column, ColumnKind, Table, estimate_cell

__all__ = ["answer_lines", "brief_names", "command_row", "command_rows_table", "short_forms", "summary_table"]

_NAME = 30
"""Characters that the name of a command has in the shortest answer."""


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


def short_forms(summary: CommandSummary, width: int) -> list[tuple[list[str], list[Table], dict[str, str]]]:
    """Shorter and shorter answers on several commands, each with a table of the columns that fit ``width``."""
    judged = [(at, each.verdict) for at, each in enumerate(summary.entries) if each.verdict is not None]
    if len(summary.entries) < 3 or not judged:
        return []

    def table(names: Sequence[str]) -> Table:
        entries = tuple(replace(each, name=name) for each, name in zip(summary.entries, names, strict=True))
        return summary_table(replace(summary, entries=entries)).without_absent().fitted(width, ("time_s",))

    def answer(names: Sequence[str], *, why: bool = False, terse: bool = False) -> list[str]:
        found = [
            (names[at], replace(v, reason=v.reason.replace(NOT_INTERLEAVED, f"not interleaved: {summary.in_turns}")))
            for at, v in judged
        ]
        head, sentences = format_verdicts(names[0], found, terse=terse)
        lines = [f"{head}{', times as long' * terse}:"]
        for (at, _), sentence in zip(judged, sentences, strict=True):
            cause = summary.entries[at].why if why else ""
            lines += [sentence, *[f"  why: {cause}"] * bool(cause)]
        return lines

    names = [each.name for each in summary.entries]
    brief = brief_names(names)
    return [
        (answer(names, why=True), [table(names)], {}),
        (answer(names), [table(names)], {}),
        (answer(brief, terse=True), [replace(table(brief).only([0, 1]), title="")], {}),
    ]


def brief_names(names: Sequence[str]) -> list[str]:
    """Names without the words that all have, cut in their middle where long; as they are if that confuses two.

    >>> brief_names(["python a.py --lr 0.1 -x 1", "python a.py --lr 0.2 -x 1", "python b.py --lr 0.1 -x 1"])
    ['a.py --lr 0.1', 'a.py --lr 0.2', 'b.py --lr 0.1']
    """
    words = [name.split(" ") for name in names]
    shared = set(words[0]).intersection(*words[1:])
    left = [
        " ".join(
            word
            for word, after in zip(each, [*each[1:], ""], strict=True)
            if word not in shared or (word.startswith("-") and after not in shared | {""})
        )
        for each in words
    ]
    half = _NAME // 2
    cut = [name if len(name) <= _NAME else f"{name[: half - 1]}…{name[-half:]}" for name in left]
    return next((each for each in (cut, left) if len(set(each)) == len(names) and all(each)), list(names))


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
