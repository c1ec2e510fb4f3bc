"""A benchmark of operators as tables: a row a problem, and a line a framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from levelbench.measure.verdict import format_verdict
from levelbench.records.benchmark_summary import BenchmarkSummary, Entry
from levelbench.report.cells import error_text, share_cell, verdict_text
from levelbench.report.numbers import number
from levelbench.report.tables import Absent, Cell, Column, Kind, Number, Table, Text

__all__ = ["ceilings_line", "details_table", "is_validated", "problems_table", "summary_lines"]

_GIGA = 1e-9


def problems_table(summary: BenchmarkSummary) -> Table:
    """A row a problem; by framework time, GFLOP/s, share of the ceiling, error and verdict against the first."""
    columns = [Column("problem", "problem")]
    for at, name in enumerate(summary.frameworks):
        columns += [
            Column(f"{name}_time_s", f"{name} time", Kind.TIME_S),
            Column(f"{name}_gflop_s", f"{name} GFLOP/s", Kind.NUMBER),
            Column(f"{name}_share", f"{name} of ceiling", Kind.SHARE, digits=2),
            Column(f"{name}_error", f"{name} error", Kind.TEXT),
        ]
        columns += [Column(f"{name}_verdict", f"{name}/{summary.frameworks[0]}")] * (at > 0)
    rows = tuple(
        (Text(problem.name), *(cell for at, entry in enumerate(entries) for cell in _cells(entry, at > 0)))
        for problem, entries in summary.rows
    )
    return Table(_name(summary), _title(summary), tuple(columns), rows, _notes(summary))


def _cells(entry: Entry, judged: bool) -> list[Cell]:
    if entry.time is None:
        reason = Absent(f"{entry.status}: {entry.reason}")
        return [reason, Absent(), Absent(), Absent(), *([Absent()] * judged)]
    remark = {"wrong": "WRONG", "failed": "FAILED"}.get(entry.status, "")
    low, high = (entry.time.interval.low, entry.time.interval.high) if entry.time.interval else (None, None)
    rate: Cell = Absent("its FLOPs are not known") if entry.flops is None else Absent()
    if entry.flop_s is not None:
        rate = Number(entry.flop_s * _GIGA)
    share = share_cell(entry.share, "no ceiling was measured for it" if entry.flops is not None else "")
    return [Number(entry.time.value, low, high, remark), rate, share, _error(entry), *([_verdict(entry)] * judged)]


def _error(entry: Entry) -> Cell:
    """The relative L2 error; the other errors are in the records and in the JSON."""
    relative = entry.errors.get("relative")
    if entry.status == "wrong":
        return Absent(entry.reason)
    if relative is None:
        return Absent(entry.checked)
    return error_text(relative)


def _verdict(entry: Entry) -> Cell:
    if entry.verdict is None:
        return Absent()
    return Text(verdict_text(entry.verdict))


def details_table(summary: BenchmarkSummary) -> Table:
    """A row a problem and framework: FLOPs, bytes and intensity, every error, and what was compared."""
    errors = ("l1", "l2", "linf", "relative", "ulp", "cosine")
    columns = (
        Column("problem", "problem"),
        Column("framework", "framework"),
        Column("status", "status"),
        Column("flops", "FLOPs", Kind.NUMBER),
        Column("bytes", "compulsory bytes", Kind.BYTES),
        *(Column(name, name) for name in errors),
        Column("checked", "compared"),
        Column("reason", "reason"),
    )
    rows: list[tuple[Cell, ...]] = []
    for problem, entries in summary.rows:
        for name, entry in zip(summary.frameworks, entries, strict=True):
            known: list[Cell] = [
                Text(problem.name),
                Text(name),
                Text(entry.status),
                *map(_number, (entry.flops, entry.bytes)),
            ]
            found = [_figure(entry.errors.get(each)) for each in errors]
            rows.append((*known, *found, Text(entry.checked), Text(entry.reason)))
    return Table(f"{_name(summary)}_details", f"{_title(summary)}: details", columns, tuple(rows))


def _number(value: float | None) -> Cell:
    return Absent() if value is None else Number(value)


def _figure(value: float | None) -> Cell:
    """An error in three digits: they span twenty orders of magnitude."""
    return Absent() if value is None else Text(f"{value:.3g}")


def is_validated(entry: Entry) -> bool:
    """Whether it was measured, and its result compared with the reference's."""
    return entry.status == "measured" and not entry.checked.startswith("not checked")


def summary_lines(summary: BenchmarkSummary) -> list[str]:
    """One line a framework: how many were measured, how many unvalidated, and the mean of ratios against the first."""
    lines = []
    for at, total in enumerate(summary.totals):
        counts = ", ".join(f"{count} {status}" for status, count in sorted(total.counts.items()))
        line = f"{total.framework}: {counts}"
        entries = [of_problem[at] for _, of_problem in summary.rows]
        if unchecked := sum(each.status == "measured" and not is_validated(each) for each in entries):
            line += f" ({unchecked} not validated)"
        if total.verdict is not None:
            kinds = ", ".join(f"{count} {kind}" for kind, count in sorted((total.kinds or {}).items()))
            mean = format_verdict(total.verdict, summary.frameworks[0], total.framework)
            line += f"; {kinds}; geometric mean over {total.compared}: {mean}"
        lines.append(line)
    return lines


def ceilings_line(ceilings: Mapping[str, Any]) -> str:
    """The ceilings in one line."""
    parts = [f"{name} {number(limit['value'] * _GIGA)} GFLOP/s" for name, limit in ceilings["flop_s"].items()]
    parts += [f"memory ({name}) {number(limit['value'] * _GIGA)} GB/s" for name, limit in _memory(ceilings)]
    return f"ceilings: {', '.join(parts) or 'none measured'}"


def _memory(ceilings: Mapping[str, Any]) -> Sequence[tuple[str, Any]]:
    return [each for each in ceilings["bandwidth_b_s"].items() if each[0] == "triad"]


def _name(summary: BenchmarkSummary) -> str:
    return "".join(each if each.isalnum() else "_" for each in summary.title)


def _title(summary: BenchmarkSummary) -> str:
    return f"{summary.title}, {summary.direction}, {summary.cache} caches, on {summary.device}"


def _notes(summary: BenchmarkSummary) -> tuple[str, ...]:
    counts = sorted(set(summary.processes))
    processes = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    notes = [
        f"time: a call, over {processes} process{'es' * (counts[-1] > 1)} a framework, one median each; intervals at "
        f"{summary.level:.0%}.",
        "of ceiling: the least time that the ceilings allow by the time taken; c: bound by arithmetic, m: by memory.",
        "error: relative L2 against NumPy in float64 on the same inputs.",
    ]
    if summary.cache == "hot":
        notes.append(
            "With hot caches, data that fit in them move faster than memory does: more than 100 % m means that."
        )
    if len(summary.frameworks) > 1:
        notes.append(
            f"verdict: against {summary.frameworks[0]}; SAME within ±{number(summary.margin * 100)} %; FASTER and "
            "SLOWER after Holm's correction over the problems."
        )
    return (*notes, *dict.fromkeys(problem.note for problem, _ in summary.rows if problem.note))
