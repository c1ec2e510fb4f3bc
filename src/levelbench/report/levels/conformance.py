"""Conformance as tables: one row an operator and one column a framework, and the totals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from levelbench.report.tables import Cell, Column, Kind, Number, Table, Text

__all__ = ["operators_table", "totals_table"]

Counts = Mapping[str, int]
_WORDS = ("wrong", "unsupported", "upstream")


def operators_table(found: Sequence[tuple[str, Mapping[str, Counts]]]) -> Table:
    """Tests passed of all, by operator (rows) and framework (columns), with what the others were.

    ``found`` holds (framework, counts by status by operator) over the same tests.
    """
    columns = (Column("operator", "Operator"), *(Column(name, name) for name, _ in found))
    rows: list[tuple[Cell, ...]] = [
        (Text(operator), *(_cell(counts[operator]) for _, counts in found)) for operator in found[0][1]
    ]
    return Table("conformance_operators", "ONNX's node tests by operator", columns, tuple(rows))


def totals_table(found: Sequence[tuple[str, Counts]]) -> Table:
    """One row a framework: tests, passed, wrong, unsupported, upstream."""
    keys = ("passed", *_WORDS)
    columns = (
        Column("framework", "Framework"),
        Column("tests", "Tests", Kind.NUMBER, digits=5),
        *(Column(key, key.capitalize(), Kind.NUMBER, digits=5) for key in keys),
    )
    rows: list[tuple[Cell, ...]] = [
        (Text(name), *(Number(float(each)) for each in (sum(counts.values()), *(counts[key] for key in keys))))
        for name, counts in found
    ]
    notes = (
        "unsupported: refused, with a reason (--verbose); upstream: wrong by a known fault of the framework's own",
    )
    return Table("conformance", "ONNX's node tests", columns, tuple(rows), notes)


def _cell(counts: Counts) -> Cell:
    rest = [f"{counts[word]} {word}" for word in _WORDS if counts[word]]
    return Text(", ".join([f"{counts['passed']}/{sum(counts.values())}", *rest]))
