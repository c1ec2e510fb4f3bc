"""Measurements of a network as tables and lines: latencies, operators, effects of transforms.

Operators and the overhead around them are shown together, so that the rows add up to the latency. An arm that cannot
time its operators one by one has no columns, and a note says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil, fsum

from levelbench.measure.statistics.intervals import values_needed
from levelbench.measure.verdict import format_verdict
from levelbench.records.figures import Figure
from levelbench.records.network_summary import QUANTILES, NetworkEntry, NetworkSummary, OperatorRow, Quantile
from levelbench.records.networks import PHASES, NetworkArm, NetworkCase, limit_held
from levelbench.report.numbers import BYTES, ONE, choose_unit, estimate_text, number
from levelbench.report.tables import (
    Absent,
    Cell,
    Column,
    ColumnKind,
    Number,
    Table,
    Text,
    cell_of,
    error_text,
    estimate_cell,
    share_cell,
    verdict_text,
)

__all__ = ["arm_label", "breakdown_tables", "case_label", "entries_of", "facts_lines", "file_name", "latency_table"]
__all__ += ["network_lines", "operators_table", "phases_table", "profile_lines", "records_table"]
__all__ += ["summary_title", "transform_lines"]

_GIGA = 1e-9
_QUANTILES = ("p50", "p90", "p99")


def latency_table(summary: NetworkSummary) -> Table:
    """Latency, throughput, memory, the first call, overhead, rate, error, and the verdict against the first column."""
    columns = (
        Column("row", "batch and framework"),
        *(Column(f"{name}_s", name, ColumnKind.TIME_S) for name in _QUANTILES),
        Column("samples_s", "samples/s", ColumnKind.NUMBER),
        Column("peak_memory_bytes", "peak memory", ColumnKind.BYTES),
        Column("compile_s", "compile", ColumnKind.TIME_S),
        Column("cold_start_s", "cold start", ColumnKind.TIME_S),
        Column("overhead_s", "overhead", ColumnKind.TIME_S),
        Column("gflop_s", "GFLOP/s", ColumnKind.NUMBER),
        Column("ceiling_share", "of ceiling", ColumnKind.SHARE, digits=2),
        Column("error", "error"),
        Column("verdict", f"against {arm_label(summary.arms[0])}"),
    )
    if len(summary.arms) == 1:
        columns = columns[:-1]
    rows = tuple(
        (Text(f"{case_label(case)} · {arm_label(arm)}"), *_cells(entry, summary.level))[: len(columns)]
        for case, arm, entry in entries_of(summary)
    )
    return Table(file_name(summary), summary_title(summary), columns, rows, _notes(summary))


def entries_of(summary: NetworkSummary) -> Iterator[tuple[NetworkCase, NetworkArm, NetworkEntry]]:
    """Every case on every arm, grouped by case."""
    for case, entries in summary.rows:
        for arm, entry in zip(summary.arms, entries, strict=True):
            yield case, arm, entry


def _cells(entry: NetworkEntry, level: float) -> list[Cell]:
    if entry.latency[0].estimate is None:
        reason = Absent(f"{entry.status}: {entry.reason or entry.latency[0].reason}")
        return [reason, *[Absent()] * 11]
    remark = {"wrong": "WRONG", "failed": "FAILED"}.get(entry.status, "")
    unknown = "" if entry.facts.flops else "its FLOPs are not known"
    share = entry.overhead_share.estimate
    part = "" if share is None else f"({number(share.value * 100, 2)} %)"
    return [
        *_quantiles(entry.latency, remark, level),
        _figure(entry.throughput),
        _figure(entry.memory),
        _figure(entry.phases.get("compile")),
        _figure(entry.phases.get("cold_start")),
        _figure(entry.overhead, part),
        cell_of(None if entry.flop_s is None else entry.flop_s * _GIGA, unknown),
        share_cell(entry.share, unknown or _no_share(entry)),
        _error(entry),
        Absent() if entry.verdict is None else Text(verdict_text(entry.verdict)),
    ]


def _no_share(entry: NetworkEntry) -> str:
    if entry.facts.bytes is None:
        return "its bytes are not known"
    return "no ceiling was measured for it, or its data is in a cache (levelbench analyze roofline)"


def _quantiles(latency: tuple[Quantile, ...], remark: str, level: float) -> list[Cell]:
    """With too few samples, one reason for all cells; the number of samples is in the records table."""
    needed = " and ".join(f"{values_needed(q, level)} for p{q * 100:g}" for q in QUANTILES[1:])
    few = f"too few samples for an interval: each process needs {needed}; give a larger --budget-s"
    return [estimate_cell(each.estimate, few, remark if each.q == 0.5 else "") for each in latency]


def _figure(figure: Figure | None, remark: str = "") -> Cell:
    return Absent() if figure is None else estimate_cell(figure.estimate, figure.reason, remark)


def _error(entry: NetworkEntry) -> Cell:
    """The largest error; all are in the records table and in the JSON."""
    if entry.status in ("wrong", "refused", "failed"):
        return Absent(entry.reason)
    known = [value for value in entry.errors.values() if value is not None]
    return error_text(max(known)) if known else Absent(entry.checked or "nothing was compared")


def phases_table(summary: NetworkSummary) -> Table:
    """The time before the first result, by phase."""
    titles = {"compile": "compile (first − warm)", "cold_start": "cold start (all)"}
    names = (*PHASES, *titles)
    columns = (
        Column("row", "batch and framework"),
        *(Column(f"{name}_s", titles.get(name, name), ColumnKind.TIME_S) for name in names),
    )
    rows = tuple(
        (Text(f"{case_label(case)} · {arm_label(arm)}"), *(_figure(entry.phases.get(name)) for name in names))
        for case, arm, entry in entries_of(summary)
    )
    notes = (
        "open: the framework is imported and its device opened; build: the network is built or loaded; prepare: the "
        "executor is made, with its parameters; first: the first call.",
    )
    return Table(
        f"{file_name(summary)}_phases", f"{summary_title(summary)}: before the first result", columns, rows, notes
    )


def records_table(summary: NetworkSummary) -> Table:
    """A row per case and arm, with every figure in its own column, for CSV and further computation."""
    columns = [
        *(Column(each, each) for each in ("network", "framework", "mode", "device", "transforms", "status")),
        *(Column(each, each, ColumnKind.NUMBER) for each in ("batch", "processes", "samples")),
        *(Column(f"{name}_s", name, ColumnKind.TIME_S) for name in _QUANTILES),
        Column("samples_s", "samples/s", ColumnKind.NUMBER),
        Column("peak_memory_bytes", "peak memory", ColumnKind.BYTES),
        *(Column(f"{name}_s", name, ColumnKind.TIME_S) for name in (*PHASES, "compile", "cold_start", "overhead")),
        Column("overhead_share", "overhead share", ColumnKind.SHARE),
        *(Column(each, each, ColumnKind.NUMBER) for each in ("parameters", "flops", "bytes", "activation_bytes")),
        Column("ceiling_share", "of ceiling", ColumnKind.SHARE),
        *(Column(f"{each}_error", f"{each} error") for each in ("output", "loss", "gradient")),
        *(Column(each, each) for each in ("checked", "verdict", "reason")),
    ]
    rows = tuple(_record(case, arm, entry) for case, arm, entry in entries_of(summary))
    return Table(f"{file_name(summary)}_all", f"{summary_title(summary)}: every figure", tuple(columns), rows)


def _record(case: NetworkCase, arm: NetworkArm, entry: NetworkEntry) -> tuple[Cell, ...]:
    facts, errors = entry.facts, entry.errors
    words = (case.name, arm.framework, facts.mode or arm.mode, arm.device, ", ".join(arm.transforms), entry.status)
    sizes = (case.batch, len(entry.samples), sum(map(len, entry.samples.values())))
    phases = [entry.phases.get(name) for name in (*PHASES, "compile", "cold_start")]
    figures = (entry.throughput, entry.memory, *phases, entry.overhead, entry.overhead_share)
    found = [errors.get(each) for each in ("output", "loss", "gradient")]
    return (
        *map(Text, words),
        *(Number(float(each)) for each in sizes),
        *(estimate_cell(each.estimate, each.reason) for each in entry.latency),
        *map(_figure, figures),
        *(cell_of(each) for each in (facts.parameters, facts.flops, facts.bytes, facts.activation_bytes)),
        cell_of(None if entry.share is None else entry.share.value),
        *(Absent() if each is None else Text(f"{each:.3g}") for each in found),
        Text(entry.checked),
        Text("" if entry.verdict is None else verdict_text(entry.verdict)),
        Text(entry.reason),
    )


def facts_lines(summary: NetworkSummary) -> list[str]:
    """The network's parameters, arithmetic and activations at the first batch, and what is unknown."""
    case, entries = summary.rows[0]
    facts = next((entry.facts for entry in entries if entry.facts.parameters is not None), None)
    if facts is None:
        return []
    parts = [f"{facts.parameters:,} parameters"]
    if facts.parameter_bytes is not None:
        parts[0] += f" ({_in_bytes(facts.parameter_bytes)})"
    if facts.multiply_adds is not None:
        parts.append(f"{_in_thousands(facts.multiply_adds / case.batch)} multiply-adds per sample")
    if facts.activation_bytes is not None:
        parts.append(f"activations {_in_bytes(facts.activation_bytes)} at {case_label(case)}")
    lines = [f"{summary.title}: {', '.join(parts)}"]
    if facts.unknown:
        listed = ", ".join(f"{count} {name}" for name, count in sorted(facts.unknown.items()))
        lines.append(f"FLOPs leave out operators of unknown cost: {listed}")
    return lines


def network_lines(summary: NetworkSummary) -> list[str]:
    """One line per arm: how many cases were measured, and the geometric mean of the ratios to the first arm."""
    lines = []
    for arm, total in zip(summary.arms, summary.totals, strict=True):
        counts = ", ".join(f"{count} {status}" for status, count in sorted(total.counts.items()))
        line = f"{arm_label(arm)}: {counts}"
        if total.verdict is not None:
            over = f"geometric mean over {total.compared}: " if total.compared > 1 else ""
            line += f"; {over}{format_verdict(total.verdict, arm_label(summary.arms[0]), arm_label(arm))}"
        lines.append(line)
    return lines


def arm_label(arm: NetworkArm) -> str:
    """``torch:compiled on cuda + microbatch(memory=2GiB)``: the arm's title, with readable settings."""
    return " + ".join([NetworkArm(arm.framework, arm.mode, arm.device).title, *map(_transform_label, arm.transforms)])


def _transform_label(word: str) -> str:
    name, *settings = word.split(";")
    return f"{name}({', '.join(map(_setting_label, settings))})" if settings else name


def _setting_label(setting: str) -> str:
    name, _, value = setting.partition("=")
    if name != "memory" or not value.isdigit():
        return setting
    unit = choose_unit([float(value)], BYTES)
    return f"{name}={number(int(value) / unit.size)}{unit.symbol}"


def case_label(case: NetworkCase) -> str:
    """``batch 8 length=128``."""
    return f"batch {case.batch}" + "".join(f" {name}={size}" for name, size in case.sizes.items())


def summary_title(summary: NetworkSummary) -> str:
    """``resnet18, forward, on cpu``."""
    devices = list(dict.fromkeys(arm.device for arm in summary.arms))
    what = {"forward": "inference", "backward": "training step"}.get(summary.direction, summary.direction)
    return f"{summary.title}, {what}, on {', '.join(devices)}"


def file_name(summary: NetworkSummary) -> str:
    """The title as part of a file's name."""
    return "".join(each if each.isascii() and each.isalnum() else "_" for each in summary.title)[:60]


def _in_bytes(count: float) -> str:
    return estimate_text(count, None, None, BYTES)


def _in_thousands(count: float) -> str:
    """``1.81 G``."""
    for size, symbol in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.3g} {symbol}"
    return estimate_text(count, None, None, ONE)


def _notes(summary: NetworkSummary) -> tuple[str, ...]:
    counts = sorted(set(summary.processes))
    processes = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    call = "an inference" if summary.direction == "forward" else "loss and gradients, without an update"
    notes = [
        f"p50, p90, p99: quantiles of the latency of a call ({call}), over {processes} process"
        f"{'es' * (counts[-1] > 1)} per arm, one value each; intervals at {summary.level:.0%}.",
        "compile: the first call minus a warm one. cold start: from a running Python to the first result.",
        "overhead: the whole minus the sum of its operators timed one by one; below zero, the whole is faster than its "
        "parts, because it fuses or overlaps them.",
        "of ceiling: the minimum time that the ceilings allow over the measured time; c: bound by arithmetic, m: by "
        "memory (above 100 % if data stays in a cache).",
    ]
    checked = dict.fromkeys(entry.checked for _, _, entry in entries_of(summary) if entry.checked)
    notes += [f"error: {each}." for each in checked]
    methods = dict.fromkeys(entry.memory.method for _, _, entry in entries_of(summary) if entry.memory.method)
    notes += [f"peak memory: {each}." for each in methods]
    known = [(arm, entry.facts.mode) for _, arm, entry in entries_of(summary) if entry.facts.mode and not arm.mode]
    modes = dict.fromkeys(f"{arm.framework} {mode}" for arm, mode in known)
    if modes:
        notes.append(f"mode, where none is named: {', '.join(modes)}.")
    if len(summary.arms) > 1:
        notes.append(
            f"verdict: on the medians, against {arm_label(summary.arms[0])}; SAME within "
            f"±{number(summary.margin * 100)} %; FASTER and SLOWER after Holm's correction over the cases."
        )
    return tuple(notes)


_LONGEST_HEAD = 16
_LETTERS = 26
_MOST_ARMS = 3

Arms = Sequence[tuple[NetworkArm, NetworkEntry]]
Rows = Mapping[str, OperatorRow]


def breakdown_tables(summary: NetworkSummary, by: str = "type", top: int = 10) -> list[Table]:
    """A table a case: the ``top`` operators (``by`` ``type`` or ``node``), the others, their sum, and the whole.

    A case has no table if no arm has times of operators.
    """
    return [
        _breakdown_table(summary, case, arms, by, top)
        for case, entries in summary.rows
        if (arms := [(arm, entry) for arm, entry in zip(summary.arms, entries, strict=True) if entry.operators])
    ]


def _breakdown_table(summary: NetworkSummary, case: NetworkCase, arms: Arms, by: str, top: int) -> Table:
    by_arm = [_named(entry, by) for _, entry in arms]
    names = _ranked(by_arm)
    heads = _heads([arm_label(arm) for arm, _ in arms])
    columns = [Column("operator", "operator"), Column("calls", "calls")]
    for label in heads:
        columns += [
            Column(f"{label}_share", f"{label} share", ColumnKind.SHARE),
            Column(f"{label}_time_s", f"{label} time", ColumnKind.TIME_S),
            Column(f"{label}_gflop_s", f"{label} GFLOP/s", ColumnKind.NUMBER),
            Column(f"{label}_ceiling", f"{label} of ceiling", ColumnKind.SHARE, digits=2),
        ]
    shown, others = names[:top], names[top:]
    rows: list[tuple[Cell, ...]] = [
        (
            Text(name),
            Text(_calls(by_arm, [name])),
            *(cell for each in by_arm for cell in _operator_cells(each.get(name))),
        )
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
    """The labels, or letters if one is too long for a column header."""
    if max(map(len, labels)) <= _LONGEST_HEAD:
        return labels
    return [f"[{chr(ord('A') + at)}]" if at < _LETTERS else f"[{at + 1}]" for at in range(len(labels))]


def _narrow(table: Table) -> Table:
    """Only shares and times of each arm: the rates of many arms would fill screens, and are in the long table."""
    kept = [at for at, column in enumerate(table.columns) if at < 2 or column.key.endswith(("_share", "_time_s"))]
    columns = tuple(table.columns[at] for at in kept)
    return replace(table, columns=columns, rows=tuple(tuple(row[at] for at in kept) for row in table.rows))


def _named(entry: NetworkEntry, by: str) -> Rows:
    if by == "type":
        return {row.type: row for row in entry.types}
    return {f"{row.type} {row.output}".rstrip(): row for row in entry.operators}


def _ranked(by_arm: Sequence[Rows]) -> list[str]:
    """All operators, sorted by the largest share on any arm."""
    names = dict.fromkeys(name for rows in by_arm for name in rows)
    return sorted(names, key=lambda name: -max(rows[name].share for rows in by_arm if name in rows))


def _calls(by_arm: Sequence[Rows], names: Sequence[str]) -> str:
    """The number of operators; ``20/17`` if an arm that fuses them has fewer."""
    counts = [sum(rows[name].calls for name in names if name in rows) for rows in by_arm]
    return str(counts[0]) if len(set(counts)) == 1 else "/".join(map(str, counts))


def _operator_cells(row: OperatorRow | None) -> list[Cell]:
    if row is None:
        return [Absent()] * 4
    rate = None if row.flop_s is None else row.flop_s * _GIGA
    return [Number(row.share), estimate_cell(row.time), cell_of(rate), share_cell(row.ceiling)]


def _sum_cells(rows: Sequence[OperatorRow]) -> list[Cell]:
    if not rows:
        return [Absent()] * 4
    # sum rounds differently from Python 3.12 on; the same records give the same table on all versions.
    return [Number(fsum(row.share for row in rows)), Number(_seconds(rows)), Absent(), Absent()]


def _seconds(rows: Sequence[OperatorRow]) -> float:
    return fsum(row.time.value for row in rows)


def _overhead(entry: NetworkEntry) -> list[Cell]:
    return [Absent(), estimate_cell(entry.overhead.estimate, entry.overhead.reason), Absent(), Absent()]


def _whole(entry: NetworkEntry) -> list[Cell]:
    rate = None if entry.flop_s is None else entry.flop_s * _GIGA
    return [Absent(), estimate_cell(entry.latency[0].estimate), cell_of(rate), share_cell(entry.share)]


def _table_notes(summary: NetworkSummary, case: NetworkCase) -> tuple[str, ...]:
    notes = ["share: of the sum of all operators, each timed separately."]
    entries = next(entries for each, entries in summary.rows if each is case)
    for arm, entry in zip(summary.arms, entries, strict=True):
        if not entry.operators and entry.operators_reason:
            notes.append(f"{arm_label(arm)} is not shown: {entry.operators_reason}.")
        elif entry.operators and (by := entry.facts.framework.get("operator_clock")):
            notes.append(f"{arm_label(arm)}: operators by {by}; the whole by the host's.")
    return tuple(notes)


def profile_lines(summary: NetworkSummary) -> list[str]:
    """One line per arm: the largest difference between our shares and those of the framework's own profiler."""
    lines = []
    for at, arm in enumerate(summary.arms):
        rows = [row for _, entries in summary.rows for row in entries[at].profile]
        if rows:
            worst = max(rows, key=lambda row: abs(row.ours - row.theirs))
            points = f"{abs(worst.ours - worst.theirs) * 100:.1f}"
            lines.append(f"{arm_label(arm)}: shares within {points} points of {worst.method}'s ({worst.type})")
    return lines


def operators_table(summary: NetworkSummary, by: str = "node") -> Table:
    """A row per case, arm and operator (or type of operator), for CSV and further computation."""
    columns = (
        *(Column(each, each) for each in ("case", "framework", "operator", "output")),
        *(Column(each, each, ColumnKind.NUMBER) for each in ("index", "calls")),
        Column("time_s", "time", ColumnKind.TIME_S),
        Column("share", "share", ColumnKind.SHARE),
        *(Column(each, each, ColumnKind.NUMBER) for each in ("flops", "bytes", "flop_s")),
        Column("ceiling_share", "of ceiling", ColumnKind.SHARE),
    )
    rows = tuple(
        (
            *map(Text, (case_label(case), arm_label(arm), row.type, row.output)),
            *map(Number, (float(row.index), float(row.calls))),
            estimate_cell(row.time),
            Number(row.share),
            *map(cell_of, (row.flops, row.bytes, row.flop_s)),
            share_cell(row.ceiling),
        )
        for case, entries in summary.rows
        for arm, entry in zip(summary.arms, entries, strict=True)
        for row in (entry.types if by == "type" else entry.operators)
    )
    return Table(f"{file_name(summary)}_by_{by}", f"{summary_title(summary)}: time by {by}", columns, rows)


def transform_lines(summary: NetworkSummary) -> list[str]:
    """A line for each transformed arm and case, compared with the same framework without the transforms."""
    lines = []
    for at, arm in enumerate(summary.arms):
        base = _base(summary.arms, arm)
        if base is None:
            continue
        for case, entries in summary.rows:
            said = _said(arm, entries[at], entries[base])
            if said:
                lines.append(f"{arm_label(arm)}, {case_label(case)}: {'; '.join(said)}")
    return lines


def _base(arms: tuple[NetworkArm, ...], arm: NetworkArm) -> int | None:
    """The index of the arm without transforms that ``arm`` is compared with."""
    plain = NetworkArm(arm.framework, arm.mode, arm.device)
    return arms.index(plain) if arm.transforms and plain in arms else None


def _said(arm: NetworkArm, entry: NetworkEntry, base: NetworkEntry) -> list[str]:
    if entry.latency[0].estimate is None:
        return []
    said = [_proof(entry)]
    before, after = base.memory.estimate, entry.memory.estimate
    if before is not None and after is not None:
        change = (after.value - before.value) / before.value
        said.append(f"peak memory {_bytes(before.value)} → {_bytes(after.value)} ({change:+.0%})")
        if (planned := entry.facts.planned_bytes) is not None:
            said.append(f"planned {_bytes(planned)}")
        limit = arm.memory_limit
        if limit is not None:
            if after.value <= limit:
                said.append(f"inside its limit of {_bytes(limit)}")
            else:
                held = f"{ceil(limit_held(after.value) / 2**18) / 4:g} MiB"
                said.append(f"BEYOND its limit of {_bytes(limit)} ({held} is the smallest that is known to hold)")
    first, second = base.latency[0].estimate, entry.latency[0].estimate
    if first is not None and second is not None:
        said.append(f"time × {number(second.value / first.value)}")
    return said


def _proof(entry: NetworkEntry) -> str:
    """Results are compared with the reference's result for the network without the transforms."""
    if entry.status == "wrong":
        return f"WRONG compared with the original network: {entry.reason}"
    known = [f"{kind} off by {error_text(value).text}" for kind, value in entry.errors.items() if value is not None]
    if not known:
        return "not compared with the original network"
    return f"compared with the reference of the original network: {', '.join(known)}"


def _bytes(count: float) -> str:
    return estimate_text(count, None, None, BYTES)
