"""Tables and a figure of inference: a row per framework, what the clock includes, broken rules, what to do.

The figure shows the distribution of each process separately, and the axis of shares counts nines, so that p99 and p99.9
are distinguishable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import UsageError
from levelbench.measure.statistics.early_stopping import nearest_rank
from levelbench.measure.verdict import format_verdict
from levelbench.records.figures import Figure
from levelbench.records.inference import InferenceRecord, InferenceSpecification, ScenarioSettings
from levelbench.records.inference_summary import InferenceEntry, InferenceSummary, scored_by
from levelbench.report.drawing import MARKERS, draw, plain_axes, time_unit
from levelbench.report.markup import DASHES, SERIES
from levelbench.report.numbers import TIME, estimate_text, number
from levelbench.report.tables import (
    Absent,
    Cell,
    Column,
    ColumnKind,
    Number,
    Table,
    Text,
    clean,
    estimate_cell,
    verdict_text,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

__all__ = ["inference_lines", "inference_row", "inference_rows_table", "inference_table", "scenario_words"]
__all__ += ["write_inference"]

_LABELS = {0.5: "p50", 0.9: "p90", 0.99: "p99", 0.999: "p99.9"}
_TOKENS = tuple(
    (f"{name}_{_LABELS[q]}_s", f"{title} {_LABELS[q]}", name, q)
    for name, title in (("first_token", "first token"), ("per_token", "token"))
    for q in (0.5, 0.9)
)
"""Of a generation: key and title of a column, and the figures of an entry that it shows."""


def inference_table(summary: InferenceSummary) -> Table:
    """Quantiles, LoadGen's estimate, throughput, quality, cost, memory, validity, verdict against the first row."""
    scenario = summary.specification.scenario
    first = summary.entries[0].arm.title
    metric = next((each.accuracy.metric for each in summary.entries if each.accuracy and each.accuracy.metric), "")
    columns = (
        Column("framework", "framework"),
        *(Column(f"{name.replace('.', '_')}_s", name, ColumnKind.TIME_S) for name in _LABELS.values()),
        *(Column(key, title, ColumnKind.TIME_S) for key, title, _, _ in _TOKENS),
        Column("tokens_per_s", "tokens/s", ColumnKind.NUMBER),
        Column("mean_s", "mean", ColumnKind.TIME_S),
        Column("estimate_s", f"early stopping p{scenario.quantile * 100:g}", ColumnKind.TIME_S),
        Column("samples_per_s", "samples/s", ColumnKind.NUMBER),
        Column("peak_per_s", "highest rate/s", ColumnKind.NUMBER),
        Column("quality", metric or "quality", ColumnKind.NUMBER, digits=4),
        Column("usd_per_million", "$ per million", ColumnKind.NUMBER),
        Column("peak_memory_bytes", "peak memory", ColumnKind.BYTES),
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
        return (title, Absent(reason), *[Absent()] * (len(_LABELS) + len(_TOKENS) + 7), Text("no"), Absent())
    offline = scenario.name == "offline"
    quantiles = [Absent() if offline else _cell(each) for _, each in entry.quantiles]
    streams = scenario.name in ("single-stream", "multi-stream")
    return (
        title,
        *quantiles,
        *(_token_cell(entry, name, q, offline) for _, _, name, q in _TOKENS),
        Absent() if entry.token_rate is None else _cell(entry.token_rate),
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


def _token_cell(entry: InferenceEntry, name: str, q: float, offline: bool) -> Cell:
    """Offline, the first token of an answer waits for all answers before it, which says nothing about the network."""
    found = dict(getattr(entry, name))
    return Absent() if q not in found or (offline and name == "first_token") else _cell(found[q])


def _cell(figure: Figure) -> Cell:
    return estimate_cell(figure.estimate, figure.reason)


def _quality(entry: InferenceEntry) -> Cell:
    """The value, marked if it is lower than required."""
    if entry.quality.value is None:
        return Absent(entry.quality.reason)
    return Number(entry.quality.value, remark="TOO LOW" if entry.quality.kept is False else "")


def scenario_words(specification: InferenceSpecification) -> str:
    """The scenario in one line: ``one sample at a time, the next after the answer``."""
    scenario = specification.scenario
    match scenario.name:
        case "single-stream":
            what = "one sample at a time, the next after the answer"
        case "multi-stream":
            what = f"{scenario.samples_per_query} samples at a time, the next after all answers"
        case "server":
            rate = (
                "the highest rate that keeps it was searched for"
                if scenario.find_peak
                else f"{scenario.qps:g} per second"
            )
            bound = estimate_text(scenario.bound_s or 0.0, None, None, TIME)
            workers = f"{scenario.workers} worker{'s' * (scenario.workers > 1)}"
            what = f"Poisson arrivals, {scenario.quantile * 100:g} % within {bound}, {rate}; {workers}"
        case "offline":
            what = f"all samples at once, {scenario.batch} per batch"
        case _:
            what = "every sample once, in order, one at a time"
    return what


def _notes(summary: InferenceSummary) -> tuple[str, ...]:
    specification, scenario = summary.specification, summary.specification.scenario
    facts = next((each.facts for each in summary.entries if each.facts.clock), summary.entries[0].facts)
    counts = sorted({each.processes for each in summary.entries})
    processes = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    over = f"over {processes} processes per arm, one value each" if counts[-1] > 1 else "of the single process alone"
    drawn = "" if facts.samples == facts.examples else f" (queries draw from the first {facts.samples:,})"
    if scenario.samples is not None and scenario.samples > facts.examples:
        drawn = f" (queries draw from all of them: {scenario.samples:,} were requested)"
    examples = f"{facts.examples:,} example{'s' * (facts.examples != 1)}"
    data = "MADE-UP INPUTS" if facts.synthetic else specification.data.name
    notes = [
        f"{scenario.name}: {scenario_words(specification)}. Data: {data}, {examples}{drawn}.",
        f"clock: {facts.clock}.",
        f"intervals at {summary.level:.0%} {over}."
        if scenario.name == "offline"
        else f"p50 to p99.9: LoadGen's percentiles of the latency of a query; intervals at {summary.level:.0%} {over}.",
    ]
    if (wanted := specification.generation) is not None:
        notes.append(
            f"an answer is {wanted.tokens} tokens, each the likeliest after a prompt of {wanted.prompt}, without a "
            f"cache: each token costs a pass over {wanted.prompt + wanted.tokens}. first token: from the query; token: "
            "each after the first, the mean of its answer."
        )
    if scenario.name in ("single-stream", "multi-stream"):
        percentile = f"{scenario.quantile * 100:g}th percentile"
        largest = "" if counts[-1] == 1 else ", the largest of the processes'"
        where = "the" if counts[-1] == 1 else "in each process the"
        own = "it" if counts[-1] == 1 else "its own"
        notes.append(f"early stopping: LoadGen's estimate{largest}; with 99 % {where} {percentile} is not above {own}.")
    if scenario.name == "server":
        notes.append("a latency counts from the scheduled arrival, so it includes waiting.")
        if counts[-1] == 1:
            notes.append(
                "queries wait for each other: the intervals assume independent latencies, so they are too narrow."
            )
    if summary.price is not None:
        source = f" ({summary.price.source})" if summary.price.source else " (no source given)"
        price = f"{number(summary.price.usd_per_hour)} $ per hour{source}"
        notes.append(f"$ per million: {price} times the time of a million answers at samples/s.")
    if len(summary.entries) > 1:
        first, margin = summary.entries[0].arm.title, number(summary.margin * 100)
        notes.append(f"verdict: on {scored_by(scenario)}, against {first}; SAME within ±{margin} %.")
    return tuple(notes)


def inference_lines(summary: InferenceSummary) -> list[str]:
    """What the table does not show: the model, the quality, broken rules, audits, verdicts, doubts."""
    lines = [_model(summary.specification)]
    for entry in summary.entries:
        name = entry.arm.title
        lines += [f"{name}: {each}" for each in (*_quality_lines(entry), *_rule_lines(entry))]
        lines += [f"{name}: audit {each.name}: {_passed(each.passed)}: {each.said}" for each in entry.audits]
        if entry.lateness.estimate is not None:
            late = estimate_text(entry.lateness.estimate.value, None, None, TIME)
            lines.append(f"{name}: queries were issued up to {late} (p99) after their schedule")
        if entry.thinned > 1:
            lines.append(f"{name}: only every {entry.thinned}th of its latencies, sorted by size, is kept")
        if entry.verdict is not None:
            lines.append(format_verdict(entry.verdict, summary.entries[0].arm.title, name))
    counts = {each.processes for each in summary.entries}
    if counts == {1}:
        lines.append("one process: its interval says nothing about other processes; use -n 5")
    return [*lines, *(f"doubt: {each}" for each in summary.suspect)]


def _model(specification: InferenceSpecification) -> str:
    model = specification.model
    if model.kind == "task":
        settings = ",".join(f"{name}={value}" for name, value in model.settings.items())
        reached = "" if model.quality is None else f"; its test quality was {model.quality:.4g} when training ended"
        return f"network: {model.name}, trained by run {model.run} ({model.recipe}: {settings}){reached}"
    return f"network: {model.name}" + (f", SHA-256 {model.digest[:16]}" if model.digest else ", random parameters")


def _quality_lines(entry: InferenceEntry) -> list[str]:
    kept = entry.quality
    if kept.value is None or entry.accuracy is None:
        return [f"quality: not known: {kept.reason}"] if kept.reason else []
    said = f"{entry.accuracy.metric} {kept.value:.6g} over {entry.accuracy.examples:,} answers by the measured path"
    if kept.least is None:
        return [f"quality: {said}; {kept.reason}"]
    word = {True: "kept", False: "NOT KEPT"}.get(kept.kept is True, "")
    sign = "at least" if entry.accuracy.direction == "higher" else "at most"
    return [f"quality: {said}; {word} ({sign} {kept.least:.6g} is required)"]


def _rule_lines(entry: InferenceEntry) -> list[str]:
    if entry.valid:
        return []
    if not entry.reasons:
        return [f"not valid: {entry.reason}" if entry.reason else "not valid: a process did not finish"]
    return [f"not valid: {each}" for each in entry.reasons]


def _passed(passed: bool | None) -> str:
    return "cannot tell" if passed is None else "passed" if passed else "FAILED"


Figures = str | float | bool | None
_QUANTILES = {"p50_s": 0.5, "p90_s": 0.9, "p99_s": 0.99}


def inference_row(record: InferenceRecord) -> dict[str, Any]:
    """A summary of one process. Percentiles are LoadGen's, in seconds; ``None`` for what was not measured."""
    specification, driven, accuracy = record.header.specification, record.driven, record.accuracy
    latencies = np.sort(record.latencies_s)
    one_query = specification.scenario.name == "offline" or not len(latencies)
    outcome = record.outcome
    bad = outcome.status if outcome is not None and outcome.status != "measured" else ""
    return {
        "id": record.header.id,
        "model": specification.title,
        "scenario": specification.scenario.name,
        "framework": specification.arm.title,
        "process": record.header.seed,
        "status": bad if bad and record.status == "done" else record.status,
        "started": record.header.started,
        "queries": None if driven is None else driven.queries,
        **{name: None if one_query else nearest_rank(latencies, q) for name, q in _QUANTILES.items()},
        "samples_per_s": None if driven is None else driven.throughput_per_s,
        "quality": None if accuracy is None else accuracy.value,
        "valid": None if driven is None else driven.valid,
        "path": str(record.path),
    }


def inference_rows_table(rows: Sequence[dict[str, Any]]) -> Table:
    """The rows of :func:`inference_row` as a table."""
    columns = (
        *(Column(each, each) for each in ("id", "model", "scenario", "framework")),
        Column("process", "process", ColumnKind.NUMBER),
        Column("status", "status"),
        Column("started", "begun"),
        Column("queries", "queries", ColumnKind.NUMBER),
        *(Column(name, name.removesuffix("_s"), ColumnKind.TIME_S) for name in _QUANTILES),
        Column("samples_per_s", "samples/s", ColumnKind.NUMBER),
        Column("quality", "quality", ColumnKind.NUMBER, digits=4),
        Column("valid", "valid"),
    )
    cells = tuple(tuple(_figure_cell(row[each.key], each.key) for each in columns) for row in rows)
    return Table("inference", "Inference", columns, cells).without_empty()


def _figure_cell(value: Figures, name: str) -> Cell:
    if value is None:
        return Absent()
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, str):
        return Text(value[:19].replace("T", " ") if name == "started" else value)
    return Number(value)


Vector = NDArray[np.float64]
_POINTS = 400
_WIDE = 8.0
_APART = 0.022
"""Share of the axis between the marks of two frameworks."""
_TICKS = (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999)


def write_inference(summary: InferenceSummary, arms: Sequence[Sequence[InferenceRecord]], path: Path) -> Path:
    """Draw to an ``.svg`` or ``.png`` file; raises ``UsageError`` if no latency was measured, else as ``draw``."""
    shown = [
        (at, {each.header.seed: np.sort(each.latencies_s) for each in records if len(each.latencies_s)})
        for at, records in enumerate(arms)
    ]
    if not any(processes for _, processes in shown):
        raise UsageError("a figure of latencies", "no latency was measured", "measure a network that runs here")
    return draw(path, summary.title, (6.4, 4.2), lambda figure: _draw_latencies(figure, summary, shown))


def _draw_latencies(
    figure: Canvas, summary: InferenceSummary, shown: Sequence[tuple[int, Mapping[int, Vector]]]
) -> None:
    axes = figure.subplots()
    taken = [values for _, processes in shown for values in processes.values()]
    low, high = min(float(each[0]) for each in taken), max(float(each[-1]) for each in taken)
    if low > 0 and high > _WIDE * low:
        axes.set_xscale("log")
    unit = time_unit(axes.xaxis, [float(np.median(each)) for each in taken])
    longest = max(map(len, taken))
    for at, processes in shown:
        colour, dash = SERIES[at % len(SERIES)][0], DASHES[at % len(DASHES)]
        for nth, values in enumerate(processes.values()):
            x, y = _steps(values)
            label = clean(summary.entries[at].arm.title) if not nth else None
            axes.plot(
                x / unit.size, _nines(y, longest), color=colour, linestyle=dash, linewidth=1.0, alpha=0.55, label=label
            )
    top = float(_nines(np.array([1.0]), longest)[0])
    for place, (at, _) in enumerate(marked := [each for each in shown if each[1]]):
        # Shifted vertically, because the intervals of several frameworks would overlap.
        shift = _APART * top * ((len(marked) - 1) / 2 - place)
        _marks(axes, summary, at, unit.size, longest, shift)
    ticks = [each for each in _TICKS if each < 1 - 1 / longest]
    axes.set_yticks([float(_nines(np.array([each]), longest)[0]) for each in ticks], [f"{each:.4g}" for each in ticks])
    # The interval of few processes may span decades; the axis shows what was measured.
    axes.set_xlim(low * 0.95 / unit.size, high * 1.05 / unit.size)
    axes.set_ylim(bottom=0)
    axes.set_title(clean(f"{summary.title}: latency of a query"), fontsize=10, loc="left")
    axes.set_xlabel(f"latency, {unit.symbol}", fontsize=9)
    axes.set_ylabel("share of queries that took at most this", fontsize=9)
    axes.legend(frameon=False, fontsize=8.5, loc="lower right")
    plain_axes(axes)


def _steps(values: Vector) -> tuple[Vector, Vector]:
    """The empirical distribution at no more than ``_POINTS`` of its steps, evenly spaced by the number of nines."""
    n = len(values)
    wanted = n * (1 - np.logspace(0, -np.log10(n), min(n, _POINTS)))
    at = np.unique(np.clip(wanted.round().astype(int), 0, n - 1))
    return values[at], (at + 1) / n


def _nines(share: Vector, longest: int) -> Vector:
    """0.9 as 1, 0.99 as 2; the last value, whose share is 1, is placed slightly above what the values resolve."""
    return -np.log10(np.maximum(1 - share, 0.5 / longest))


def _marks(axes: Axes, summary: InferenceSummary, at: int, size: float, longest: int, shift: float) -> None:
    """The percentiles of one framework with their intervals, ``shift`` above the heights of their shares."""
    colour, marker = SERIES[at % len(SERIES)][0], MARKERS[at % len(MARKERS)]
    for q, figure in summary.entries[at].quantiles:
        if figure.estimate is None:
            continue
        height = float(_nines(np.array([q]), longest)[0]) + shift
        inside = figure.estimate.interval
        if inside is not None and np.isfinite([inside.low, inside.high]).all():
            ends = [inside.low / size, inside.high / size]
            axes.plot(ends, [height] * 2, color=colour, linewidth=1.8, solid_capstyle="butt", alpha=0.8)
        axes.plot(
            [figure.estimate.value / size], [height], marker, color=colour, markersize=5.5, markeredgecolor="#ffffff",
            markeredgewidth=0.6,
        )  # fmt: skip
