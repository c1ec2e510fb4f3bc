"""A benchmark of a network as tables: a row for each batch on each framework, with phases and errors beside it."""

from __future__ import annotations

from collections.abc import Iterator

from levelbench.measure.statistics.quantiles import values_needed
from levelbench.measure.verdict import format_verdict
from levelbench.records.network_figures import QUANTILES, Figure, Quantile
from levelbench.records.network_summary import NetworkEntry, NetworkSummary
from levelbench.records.networks import PHASES, NetworkArm, NetworkCase
from levelbench.report.cells import error_text, estimate_cell, number_cell, share_cell, verdict_text
from levelbench.report.numbers import BYTES, ONE, choose_unit, estimate_text, number
from levelbench.report.tables import Absent, Cell, Column, Kind, Number, Table, Text

__all__ = ["arm_label", "case_label", "entries_of", "facts_lines", "file_name", "latency_table", "network_lines"]
__all__ += ["phases_table", "records_table", "summary_title"]

_GIGA = 1e-9
_QUANTILES = ("p50", "p90", "p99")


def latency_table(summary: NetworkSummary) -> Table:
    """Latency, throughput, memory, the first call, overhead, rate, error, and the verdict against the first column."""
    columns = (
        Column("row", "batch and framework"),
        *(Column(f"{name}_s", name, Kind.TIME_S) for name in _QUANTILES),
        Column("samples_s", "samples/s", Kind.NUMBER),
        Column("peak_memory_bytes", "peak memory", Kind.BYTES),
        Column("compile_s", "compile", Kind.TIME_S),
        Column("cold_start_s", "cold start", Kind.TIME_S),
        Column("overhead_s", "overhead", Kind.TIME_S),
        Column("gflop_s", "GFLOP/s", Kind.NUMBER),
        Column("ceiling_share", "of ceiling", Kind.SHARE, digits=2),
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
    """Every case on every arm, the arms of a case together."""
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
        number_cell(None if entry.flop_s is None else entry.flop_s * _GIGA, unknown),
        share_cell(entry.share, unknown or _no_share(entry)),
        _error(entry),
        Absent() if entry.verdict is None else Text(verdict_text(entry.verdict)),
    ]


def _no_share(entry: NetworkEntry) -> str:
    return "its bytes are not known" if entry.facts.bytes is None else "no ceiling was measured for it"


def _quantiles(latency: tuple[Quantile, ...], remark: str, level: float) -> list[Cell]:
    """Where there are too few samples, one reason for all cells; how many there were is in the records table."""
    needed = " and ".join(f"p{q * 100:g} {values_needed(q, level)}" for q in QUANTILES[1:])
    few = f"too few samples for an interval: of each process {needed} are needed; give a larger --budget-s"
    return [estimate_cell(each.estimate, few, remark if each.q == 0.5 else "") for each in latency]


def _figure(figure: Figure | None, remark: str = "") -> Cell:
    return Absent() if figure is None else estimate_cell(figure.estimate, figure.reason, remark)


def _error(entry: NetworkEntry) -> Cell:
    """The largest of what was compared; each is in the records table and in the JSON."""
    if entry.status in ("wrong", "failed"):
        return Absent(entry.reason)
    known = [value for value in entry.errors.values() if value is not None]
    return error_text(max(known)) if known else Absent(entry.checked or "nothing was compared")


def phases_table(summary: NetworkSummary) -> Table:
    """What comes before the first result, by phase."""
    titles = {"compile": "compile (first − warm)", "cold_start": "cold start (all)"}
    names = (*PHASES, *titles)
    columns = (
        Column("row", "batch and framework"),
        *(Column(f"{name}_s", titles.get(name, name), Kind.TIME_S) for name in names),
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
    """A row a case and arm with every figure in a column of its own: for CSV and for whoever computes on."""
    columns = [
        *(Column(each, each) for each in ("network", "framework", "mode", "device", "transforms", "status")),
        *(Column(each, each, Kind.NUMBER) for each in ("batch", "processes", "samples")),
        *(Column(f"{name}_s", name, Kind.TIME_S) for name in _QUANTILES),
        Column("samples_s", "samples/s", Kind.NUMBER),
        Column("peak_memory_bytes", "peak memory", Kind.BYTES),
        *(Column(f"{name}_s", name, Kind.TIME_S) for name in (*PHASES, "compile", "cold_start", "overhead")),
        Column("overhead_share", "overhead share", Kind.SHARE),
        *(Column(each, each, Kind.NUMBER) for each in ("parameters", "flops", "bytes", "activation_bytes")),
        Column("ceiling_share", "of ceiling", Kind.SHARE),
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
        *(number_cell(each) for each in (facts.parameters, facts.flops, facts.bytes, facts.activation_bytes)),
        number_cell(None if entry.share is None else entry.share.value),
        *(Absent() if each is None else Text(f"{each:.3g}") for each in found),
        Text(entry.checked),
        Text("" if entry.verdict is None else verdict_text(entry.verdict)),
        Text(entry.reason),
    )


def facts_lines(summary: NetworkSummary) -> list[str]:
    """What the network is: its parameters, arithmetic and activations at the first batch; what is not known of it."""
    case, entries = summary.rows[0]
    facts = next((entry.facts for entry in entries if entry.facts.parameters is not None), None)
    if facts is None:
        return []
    parts = [f"{facts.parameters:,} parameters"]
    if facts.parameter_bytes is not None:
        parts[0] += f" ({_in_bytes(facts.parameter_bytes)})"
    if facts.multiply_adds is not None:
        parts.append(f"{_in_thousands(facts.multiply_adds / case.batch)} multiply-adds a sample")
    if facts.activation_bytes is not None:
        parts.append(f"activations {_in_bytes(facts.activation_bytes)} at {case_label(case)}")
    lines = [f"{summary.title}: {', '.join(parts)}"]
    if facts.unknown:
        listed = ", ".join(f"{count} {name}" for name, count in sorted(facts.unknown.items()))
        lines.append(f"FLOPs count nothing for what has no known cost: {listed}")
    return lines


def network_lines(summary: NetworkSummary) -> list[str]:
    """One line an arm: how many cases were measured, and the geometric mean of the ratios against the first."""
    lines = []
    for total in summary.totals:
        counts = ", ".join(f"{count} {status}" for status, count in sorted(total.counts.items()))
        line = f"{arm_label(total.arm)}: {counts}"
        if total.verdict is not None:
            over = f"geometric mean over {total.compared}: " if total.compared > 1 else ""
            line += f"; {over}{format_verdict(total.verdict, arm_label(summary.arms[0]), arm_label(total.arm))}"
        lines.append(line)
    return lines


def arm_label(arm: NetworkArm) -> str:
    """``torch:compiled on cuda + microbatch(memory=2GiB)``: the arm's title, with settings as people write."""
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
        f"{'es' * (counts[-1] > 1)} an arm, one value each; intervals at {summary.level:.0%}.",
        "compile: the first call less a warm one. cold start: from a Python that runs to the first result.",
        "overhead: the whole less the sum of its operators timed one by one; below zero, the whole does better than "
        "its parts, because it fuses or overlaps them.",
        "of ceiling: the least time that the ceilings allow by the time taken; c: bound by arithmetic, m: by memory "
        "(data that stay in a cache move faster: above 100 %).",
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
            f"verdict: of the medians against {arm_label(summary.arms[0])}; SAME within "
            f"±{number(summary.margin * 100)} %; FASTER and SLOWER after Holm's correction over the cases."
        )
    return tuple(notes)
