"""Inference as a table: a row a framework, with what the clock includes, which rules were broken, and what to do."""

from __future__ import annotations

from levelbench.measure.verdict import format_verdict
from levelbench.records.inference.figures import Figure, scored_by
from levelbench.records.inference.schema import InferenceSpecification, ScenarioSettings
from levelbench.records.inference.summary import InferenceEntry, InferenceSummary
from levelbench.report.cells import estimate_cell, verdict_text
from levelbench.report.numbers import TIME, estimate_text, number
from levelbench.report.tables import Absent, Cell, Column, Kind, Number, Table, Text

__all__ = ["inference_lines", "inference_table", "scenario_words"]

_LABELS = {0.5: "p50", 0.9: "p90", 0.99: "p99", 0.999: "p99.9"}


def inference_table(summary: InferenceSummary) -> Table:
    """Quantiles, LoadGen's estimate, throughput, quality, cost, memory, validity, and the verdict against the first."""
    scenario = summary.specification.scenario
    first = summary.entries[0].arm.title
    metric = next((each.accuracy.metric for each in summary.entries if each.accuracy and each.accuracy.metric), "")
    columns = (
        Column("framework", "framework"),
        *(Column(f"{name.replace('.', '_')}_s", name, Kind.TIME_S) for name in _LABELS.values()),
        Column("mean_s", "mean", Kind.TIME_S),
        Column("estimate_s", f"early stopping p{scenario.quantile * 100:g}", Kind.TIME_S),
        Column("samples_per_s", "samples/s", Kind.NUMBER),
        Column("peak_per_s", "highest rate/s", Kind.NUMBER),
        Column("quality", metric or "quality", Kind.NUMBER, digits=4),
        Column("usd_per_million", "$ a million", Kind.NUMBER),
        Column("peak_memory_bytes", "peak memory", Kind.BYTES),
        Column("valid", "valid"),
        Column("verdict", f"against {first}"),
    )
    rows = tuple(_row(each, scenario) for each in summary.entries)
    if len(summary.entries) == 1:
        columns, rows = columns[:-1], tuple(row[:-1] for row in rows)
    return Table("inference", summary.title, columns, rows, _notes(summary)).without_empty()


def _row(entry: InferenceEntry, scenario: ScenarioSettings) -> tuple[Cell, ...]:
    title = Text(entry.arm.title)
    if entry.mean.estimate is None:
        reason = f"{entry.status}: {entry.reason or entry.mean.reason}"
        return (title, Absent(reason), *[Absent()] * (len(_LABELS) + 6), Text("no"), Absent())
    offline = scenario.name == "offline"
    quantiles = [Absent() if offline else _cell(each) for _, each in entry.quantiles]
    streams = scenario.name in ("single-stream", "multi-stream")
    return (
        title,
        *quantiles,
        Absent() if offline else _cell(entry.mean),
        _cell(entry.estimate) if streams else Absent(),
        _cell(entry.throughput),
        _cell(entry.target_rate) if scenario.find_peak else Absent(),
        _quality(entry),
        estimate_cell(entry.cost) if entry.cost is not None else Absent(),
        _cell(entry.memory),
        Text("yes" if entry.valid else "no"),
        Absent() if entry.verdict is None else Text(verdict_text(entry.verdict)),
    )


def _cell(figure: Figure) -> Cell:
    return estimate_cell(figure.estimate, figure.reason)


def _quality(entry: InferenceEntry) -> Cell:
    """The value, marked where it is lower than demanded."""
    if entry.quality.value is None:
        return Absent(entry.quality.reason)
    return Number(entry.quality.value, remark="TOO LOW" if entry.quality.kept is False else "")


def scenario_words(specification: InferenceSpecification) -> str:
    """What was asked, in one line: ``one sample at a time, the next when the answer is there``."""
    scenario = specification.scenario
    match scenario.name:
        case "single-stream":
            what = "one sample at a time, the next when the answer is there"
        case "multi-stream":
            what = f"{scenario.samples_per_query} samples at a time, the next when all answers are there"
        case "server":
            rate = (
                "the highest rate that keeps it was looked for" if scenario.find_peak else f"{scenario.qps:g} a second"
            )
            bound = estimate_text(scenario.bound_s or 0.0, None, None, TIME)
            workers = f"{scenario.workers} worker{'s' * (scenario.workers > 1)}"
            what = f"Poisson arrivals, {scenario.quantile * 100:g} % within {bound}, {rate}; {workers}"
        case "offline":
            what = f"all samples at once, {scenario.batch} a batch"
        case _:
            what = "every sample once, in order, one at a time"
    return what


def _notes(summary: InferenceSummary) -> tuple[str, ...]:
    specification, scenario = summary.specification, summary.specification.scenario
    facts = next((each.facts for each in summary.entries if each.facts.clock), summary.entries[0].facts)
    counts = sorted({each.processes for each in summary.entries})
    processes = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    over = f"over {processes} processes an arm, one value each" if counts[-1] > 1 else "of the one process alone"
    drawn = "" if facts.samples == facts.examples else f" (queries draw from the first {facts.samples:,})"
    if scenario.samples is not None and scenario.samples > facts.examples:
        drawn = f" (queries draw from all of them: {scenario.samples:,} were asked for)"
    examples = f"{facts.examples:,} example{'s' * (facts.examples != 1)}"
    data = "MADE-UP INPUTS" if facts.synthetic else specification.data.name
    notes = [
        f"{scenario.name}: {scenario_words(specification)}. Data: {data}, {examples}{drawn}.",
        f"clock: {facts.clock}.",
        f"intervals at {summary.level:.0%} {over}."
        if scenario.name == "offline"
        else f"p50 to p99.9: LoadGen's percentiles of the latency of a query; intervals at {summary.level:.0%} {over}.",
    ]
    if scenario.name in ("single-stream", "multi-stream"):
        percentile = f"{scenario.quantile * 100:g}th percentile"
        largest = "" if counts[-1] == 1 else ", the largest of the processes'"
        where = "the" if counts[-1] == 1 else "in each process the"
        own = "it" if counts[-1] == 1 else "its own"
        notes.append(f"early stopping: LoadGen's estimate{largest}; with 99 % {where} {percentile} is not above {own}.")
    if scenario.name == "server":
        notes.append("a latency counts from the scheduled arrival, so waiting is in it.")
        if counts[-1] == 1:
            notes.append("queries wait for each other: intervals take latencies for independent, and are too narrow.")
    if summary.price is not None:
        source = f" ({summary.price.source})" if summary.price.source else " (no source given)"
        price = f"{number(summary.price.usd_per_hour)} $ an hour{source}"
        notes.append(f"$ a million: {price} for as long as a million answers take at samples/s.")
    if len(summary.entries) > 1:
        first, margin = summary.entries[0].arm.title, number(summary.margin * 100)
        notes.append(f"verdict: of {scored_by(scenario)}, against {first}; SAME within ±{margin} %.")
    return tuple(notes)


def inference_lines(summary: InferenceSummary) -> list[str]:
    """What is to be known beside the table: the model, the answers' quality, broken rules, audits, verdicts, doubts."""
    lines = [_model(summary.specification)]
    for entry in summary.entries:
        name = entry.arm.title
        lines += [f"{name}: {each}" for each in (*_quality_lines(entry), *_rule_lines(entry))]
        lines += [f"{name}: audit {each.name}: {_passed(each.passed)}: {each.said}" for each in entry.audits]
        if entry.lateness.estimate is not None:
            late = estimate_text(entry.lateness.estimate.value, None, None, TIME)
            lines.append(f"{name}: queries were issued up to {late} (p99) after their schedule")
        if entry.thinned > 1:
            lines.append(f"{name}: of its latencies every {entry.thinned}th in order of size is kept")
        if entry.verdict is not None:
            lines.append(format_verdict(entry.verdict, summary.entries[0].arm.title, name))
    counts = {each.processes for each in summary.entries}
    if counts == {1}:
        lines.append("one process: its interval says nothing of the next one; -n 5 does")
    return [*lines, *(f"doubt: {each}" for each in summary.suspect)]


def _model(specification: InferenceSpecification) -> str:
    model = specification.model
    if model.kind == "task":
        settings = ",".join(f"{name}={value}" for name, value in model.settings.items())
        reached = "" if model.quality is None else f"; its test quality was {model.quality:.4g} when training ended"
        return f"network: {model.name}, trained by run {model.run} ({model.recipe}: {settings}){reached}"
    return f"network: {model.name}" + (f", SHA-256 {model.digest[:16]}" if model.digest else ", parameters drawn anew")


def _quality_lines(entry: InferenceEntry) -> list[str]:
    kept = entry.quality
    if kept.value is None or entry.accuracy is None:
        return [f"quality: not told: {kept.reason}"] if kept.reason else []
    said = f"{entry.accuracy.metric} {kept.value:.6g} over {entry.accuracy.examples:,} answers by the measured path"
    if kept.least is None:
        return [f"quality: {said}; {kept.reason}"]
    word = {True: "kept", False: "NOT KEPT"}.get(kept.kept is True, "")
    sign = "at least" if entry.accuracy.direction == "higher" else "at most"
    return [f"quality: {said}; {word} ({sign} {kept.least:.6g} is asked for)"]


def _rule_lines(entry: InferenceEntry) -> list[str]:
    if entry.valid:
        return []
    if not entry.reasons:
        return [f"not valid: {entry.reason}" if entry.reason else "not valid: a process came to no end"]
    return [f"not valid: {each}" for each in entry.reasons]


def _passed(passed: bool | None) -> str:
    return "cannot tell" if passed is None else "passed" if passed else "FAILED"
