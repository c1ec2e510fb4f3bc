"""Where a network's time goes, as tables: each operator's share, on each framework.

The one idea: operators and what the whole takes beside them are shown together, so that the rows add up to the latency;
an arm that cannot tell its operators apart says why and has no columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import fsum

from levelbench.records.breakdown import OperatorRow
from levelbench.records.network_summary import NetworkEntry, NetworkSummary
from levelbench.records.networks import NetworkArm, NetworkCase
from levelbench.report.cells import estimate_cell, number_cell, share_cell
from levelbench.report.levels.networks import arm_label, case_label, file_name, summary_title
from levelbench.report.tables import Absent, Cell, Column, Kind, Number, Table, Text

__all__ = ["breakdown_tables", "operators_table", "profile_lines"]

_GIGA = 1e-9
_LONGEST_HEAD = 16
_LETTERS = 26
_MOST_ARMS = 3

Arms = Sequence[tuple[NetworkArm, NetworkEntry]]
Rows = Mapping[str, OperatorRow]


def breakdown_tables(summary: NetworkSummary, by: str = "type", top: int = 10) -> list[Table]:
    """A table a case: the ``top`` operators (``by`` ``type`` or ``node``), the others, their sum, and the whole.

    There is no table of a case of which no arm has times of operators.
    """
    return [
        _table(summary, case, arms, by, top)
        for case, entries in summary.rows
        if (arms := [(arm, entry) for arm, entry in zip(summary.arms, entries, strict=True) if entry.operators])
    ]


def _table(summary: NetworkSummary, case: NetworkCase, arms: Arms, by: str, top: int) -> Table:
    by_arm = [_named(entry, by) for _, entry in arms]
    names = _ranked(by_arm)
    heads = _heads([arm_label(arm) for arm, _ in arms])
    columns = [Column("operator", "operator"), Column("calls", "calls")]
    for label in heads:
        columns += [
            Column(f"{label}_share", f"{label} share", Kind.SHARE),
            Column(f"{label}_time_s", f"{label} time", Kind.TIME_S),
            Column(f"{label}_gflop_s", f"{label} GFLOP/s", Kind.NUMBER),
            Column(f"{label}_ceiling", f"{label} of ceiling", Kind.SHARE, digits=2),
        ]
    shown, others = names[:top], names[top:]
    rows: list[tuple[Cell, ...]] = [
        (Text(name), Text(_calls(by_arm, [name])), *(cell for each in by_arm for cell in _cells(each.get(name))))
        for name in shown
    ]
    if others:
        label = f"{len(others)} other{'s' * (len(others) > 1)}"
        rest = [cell for each in by_arm for cell in _sum_cells([each[name] for name in others if name in each])]
        rows.append((Text(label), Text(_calls(by_arm, others)), *rest))
    sums = [cell for each in by_arm for cell in _sum_cells(list(each.values()))]
    rows.append((Text("sum of operators"), Text(_calls(by_arm, names)), *sums))
    rows.append((Text("overhead"), Absent(), *(cell for _, entry in arms for cell in _overhead(entry))))
    rows.append((Text("whole (p50)"), Absent(), *(cell for _, entry in arms for cell in _whole(entry))))
    title = f"{summary_title(summary)}, {case_label(case)}: time by {'type of ' * (by == 'type')}operator"
    name = f"{file_name(summary)}_operators_{case.batch}"
    named = [f"{head}: {arm_label(arm)}." for head, (arm, _) in zip(heads, arms, strict=True) if head != arm_label(arm)]
    notes = (*([" ".join(named)] if named else []), *_table_notes(summary, case))
    whole = Table(name, title, tuple(columns), tuple(rows), notes)
    return whole if len(arms) <= _MOST_ARMS else _narrow(whole)


def _heads(labels: list[str]) -> list[str]:
    """The labels, or letters for them where one is too long to stand above a column."""
    if max(map(len, labels)) <= _LONGEST_HEAD:
        return labels
    return [f"[{chr(ord('A') + at)}]" if at < _LETTERS else f"[{at + 1}]" for at in range(len(labels))]


def _narrow(table: Table) -> Table:
    """Only shares and times of each arm: rates of many of them fill screens, and are in the long table."""
    kept = [at for at, column in enumerate(table.columns) if at < 2 or column.key.endswith(("_share", "_time_s"))]
    columns = tuple(table.columns[at] for at in kept)
    return replace(table, columns=columns, rows=tuple(tuple(row[at] for at in kept) for row in table.rows))


def _named(entry: NetworkEntry, by: str) -> Rows:
    if by == "type":
        return {row.type: row for row in entry.types}
    return {f"{row.type} {row.output}".rstrip(): row for row in entry.operators}


def _ranked(by_arm: Sequence[Rows]) -> list[str]:
    """All operators, by the largest share that one has on any arm."""
    names = dict.fromkeys(name for rows in by_arm for name in rows)
    return sorted(names, key=lambda name: -max(rows[name].share for rows in by_arm if name in rows))


def _calls(by_arm: Sequence[Rows], names: Sequence[str]) -> str:
    """How many operators there are; as ``20/17`` where an arm that fuses them has fewer."""
    counts = [sum(rows[name].calls for name in names if name in rows) for rows in by_arm]
    return str(counts[0]) if len(set(counts)) == 1 else "/".join(map(str, counts))


def _cells(row: OperatorRow | None) -> list[Cell]:
    if row is None:
        return [Absent()] * 4
    rate = None if row.flop_s is None else row.flop_s * _GIGA
    return [Number(row.share), estimate_cell(row.time), number_cell(rate), share_cell(row.ceiling)]


def _sum_cells(rows: Sequence[OperatorRow]) -> list[Cell]:
    if not rows:
        return [Absent()] * 4
    # sum rounds differently from Python 3.12 on: the same records make the same table on each.
    return [Number(fsum(row.share for row in rows)), Number(_seconds(rows)), Absent(), Absent()]


def _seconds(rows: Sequence[OperatorRow]) -> float:
    return fsum(row.time.value for row in rows)


def _overhead(entry: NetworkEntry) -> list[Cell]:
    return [Absent(), estimate_cell(entry.overhead.estimate, entry.overhead.reason), Absent(), Absent()]


def _whole(entry: NetworkEntry) -> list[Cell]:
    rate = None if entry.flop_s is None else entry.flop_s * _GIGA
    return [Absent(), estimate_cell(entry.latency[0].estimate), number_cell(rate), share_cell(entry.share)]


def _table_notes(summary: NetworkSummary, case: NetworkCase) -> tuple[str, ...]:
    notes = ["share: of the sum of all operators, each timed by itself with a clock around it."]
    entries = next(entries for each, entries in summary.rows if each is case)
    for arm, entry in zip(summary.arms, entries, strict=True):
        if not entry.operators and entry.operators_reason:
            notes.append(f"{arm_label(arm)} is not shown: {entry.operators_reason}.")
    return tuple(notes)


def profile_lines(summary: NetworkSummary) -> list[str]:
    """One line an arm: how far our shares and those of the framework's own profiler lie apart at most."""
    lines = []
    for at, arm in enumerate(summary.arms):
        rows = [row for _, entries in summary.rows for row in entries[at].profile]
        if rows:
            worst = max(rows, key=lambda row: abs(row.ours - row.theirs))
            points = f"{abs(worst.ours - worst.theirs) * 100:.1f}"
            lines.append(f"{arm_label(arm)}: shares within {points} points of {worst.method}'s ({worst.type})")
    return lines


def operators_table(summary: NetworkSummary, by: str = "node") -> Table:
    """A row a case, arm and operator (or type of operator): for CSV and for whoever computes on."""
    columns = (
        *(Column(each, each) for each in ("case", "framework", "operator", "output")),
        *(Column(each, each, Kind.NUMBER) for each in ("index", "calls")),
        Column("time_s", "time", Kind.TIME_S),
        Column("share", "share", Kind.SHARE),
        *(Column(each, each, Kind.NUMBER) for each in ("flops", "bytes", "flop_s")),
        Column("ceiling_share", "of ceiling", Kind.SHARE),
    )
    rows = tuple(
        (
            *map(Text, (case_label(case), arm_label(arm), row.type, row.output)),
            *map(Number, (float(row.index), float(row.calls))),
            estimate_cell(row.time),
            Number(row.share),
            *map(number_cell, (row.flops, row.bytes, row.flop_s)),
            number_cell(None if row.ceiling is None else row.ceiling.value),
        )
        for case, entries in summary.rows
        for arm, entry in zip(summary.arms, entries, strict=True)
        for row in (entry.types if by == "type" else entry.operators)
    )
    return Table(f"{file_name(summary)}_by_{by}", f"{summary_title(summary)}: time by {by}", columns, rows)
