"""LoadGen's logs of MLPerf Inference: summary, detail and answers, read and made into submissions and rankings.

The summary is text for people, with rounded numbers; the detail log has the same figures as events. Both are read, a
disagreement is a doubt, and figures that they do not imply are not computed.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct, field

from levelbench.competition.entries import SUBMISSION_SCHEMA, Author, Count, Inference, Origin, Submission
from levelbench.competition.exchange import text_of
from levelbench.competition.exchange.mlperf import around_results, system_of
from levelbench.competition.exchange.mlperf.entries import hardware_of
from levelbench.competition.exchange.mlperf.logs import Tree, number_of, parse_log, read_tree
from levelbench.competition.rulesets import ruleset, task_rules
from levelbench.errors import LevelbenchError, RecordError
from levelbench.records.schema import Target

SUMMARY_LIMIT = 4 * 1024 * 1024
"""The largest summary that is read, in bytes."""

_NUMBER = r"([-+]?\d{1,30}(?:\.\d{1,30})?(?:e[-+]?\d{1,3})?)"
_PERCENTILE = re.compile(r"(\d{1,3}(?:\.\d{1,4})?)(?:th)? percentile latency \(ns\)")
_ESTIMATE = re.compile(rf"Early stopping (\d{{1,3}}(?:\.\d{{1,4}})?)(?:th)? percentile estimate: {_NUMBER}")
_PROCESSED = re.compile(r"rocessed (?:at least \d+ queries \((\d{1,18})\)|(\d{1,18}) queries)")
_LINE = re.compile(r"^\s*(?:\* )?([^:\n]{1,100}?)\s*: ?(.*)$")


class LoadGenSummary(Struct, frozen=True):
    """One summary. ``scenario`` and ``mode`` are LoadGen's names; latencies are in seconds, by quantile.

    ``headline_quantile`` is the scenario's own; ``estimates_s`` are early-stopping estimates by quantile. ``figures``
    and ``parameters`` hold the other numbers by their names in the summary. ``None`` was not printed.
    """

    scenario: str
    mode: str
    valid: bool | None = None
    checks: dict[str, bool] = field(default_factory=dict)
    queries: int | None = None
    headline_quantile: float | None = None
    quantiles_s: dict[str, float] = field(default_factory=dict)
    estimates_s: dict[str, float] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    parameters: dict[str, float] = field(default_factory=dict)


def parse_summary(content: bytes, asked: str) -> LoadGenSummary:
    """The summary in a file's bytes; ``RecordError`` for any other file, such as that of an accuracy run."""
    sections = _sections(content.decode("latin-1"), asked)
    head, stats = sections.get("MLPerf Results Summary", ""), sections.get("Additional Stats", "")
    words = dict(_pairs(head))
    if "Scenario" not in words or "Mode" not in words:
        do = "give the mlperf_log_summary.txt of a performance run"
        raise RecordError(asked, "it gives neither scenario nor mode", do)
    text, _, notes = head.partition("Early Stopping Result:")
    _require_once(_pairs(text), asked)
    pairs = dict(_pairs(text))
    headline = next((match for name in pairs if (match := _PERCENTILE.fullmatch(name))), None)
    processed = _PROCESSED.search(notes)
    figures = _numbers([*pairs.items(), *_pairs(stats)])
    return LoadGenSummary(
        scenario=words["Scenario"][:100],
        mode=words["Mode"][:100],
        valid={"VALID": True, "INVALID": False}.get(pairs.get("Result is", "").strip()),
        checks={
            name: raw.strip().lower() == "yes" for name, raw in pairs.items() if raw.strip().lower() in ("yes", "no")
        },
        queries=int(processed[1] or processed[2]) if processed else None,
        headline_quantile=float(headline[1]) / 100 if headline else None,
        quantiles_s={
            f"{float(match[1]) / 100:.10g}": value / 1e9
            for name, value in _numbers(_pairs(stats)).items()
            if (match := _PERCENTILE.fullmatch(name))
        },
        estimates_s={f"{float(each[1]) / 100:.10g}": float(each[2]) / 1e9 for each in _ESTIMATE.finditer(notes)},
        figures={name: value for name, value in figures.items() if not _PERCENTILE.fullmatch(name)},
        parameters=_numbers(_pairs(sections.get("Test Parameters Used", ""))),
    )


def _require_once(pairs: Iterable[tuple[str, object]], asked: str) -> None:
    """Refuse a log that says two things of one name: lines of another run were added to it."""
    first: dict[str, object] = {}
    for name, value in pairs:
        if first.setdefault(name, value) != value:
            found = f"{name!r} is {first[name]!r} and again {value!r}"
            raise RecordError(asked, found[:300], "give the log as LoadGen wrote it, one run in each")


def _sections(text: str, asked: str) -> dict[str, str]:
    """The parts between lines of equals signs, by title; ``RecordError`` for two different ones of one title."""
    parts = re.split(r"^=+\s*$", text, flags=re.MULTILINE)
    titled = [(title.strip(), body) for title, body in zip(parts[1::2], parts[2::2], strict=False)]
    _require_once(((title, body.strip()) for title, body in titled if title), asked)
    return dict(reversed(titled))


def _pairs(text: str) -> list[tuple[str, str]]:
    return [(match[1].strip(), match[2].strip()) for line in text.splitlines() if (match := _LINE.match(line))]


def _numbers(pairs: Iterable[tuple[str, str]]) -> dict[str, float]:
    """The pairs whose values are finite numbers."""
    numbers = {name: float(raw) for name, raw in pairs if re.fullmatch(_NUMBER, raw, re.ASCII)}
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


_TIMES = "%m-%d-%Y %H:%M:%S.%f"


class Detail(Struct, frozen=True):
    """One detail log: the last number of every key, and the distinct errors that LoadGen logged, at most ten.

    ``duration_s`` is from ``power_begin`` to ``power_end``, to the millisecond; ``day`` is the ISO day of the test.
    ``valid`` is LoadGen's own verdict.
    """

    version: str | None = None
    day: str | None = None
    duration_s: float | None = None
    figures: dict[str, float] = field(default_factory=dict)
    valid: bool | None = None
    errors: list[str] = field(default_factory=list)


def parse_detail(content: bytes, asked: str) -> Detail:
    """The log in a file's bytes; ``RecordError`` for a broken line, with its number, or a file without events."""
    events = parse_log(io.BytesIO(content), "", asked).events
    results = [(event.key, event.value) for event in events if event.key.startswith(("result_", "power_"))]
    _require_once(results, asked)
    last = {event.key: event.value for event in events}
    numbers = {key: number for key, value in last.items() if (number := number_of(value)) is not None}
    day = None
    with suppress(ValueError):
        day = datetime.fromisoformat(str(last.get("test_datetime"))).date().isoformat()
    errors = [" ".join(str(each.value).split())[:300] for each in events if each.metadata.get("is_error") is True]
    return Detail(
        version=text_of(last.get("loadgen_version")),
        day=day,
        duration_s=_between(last.get("power_begin"), last.get("power_end")),
        figures=numbers,
        valid={"VALID": True, "INVALID": False}.get(str(last.get("result_validity"))),
        errors=list(dict.fromkeys(errors))[:10],
    )


def _between(begin: object, end: object) -> float | None:
    """Seconds between two of LoadGen's wall-clock texts; ``None`` unless both exist and are in order."""
    try:
        seconds = (datetime.strptime(str(end), _TIMES) - datetime.strptime(str(begin), _TIMES)).total_seconds()
    except ValueError:
        return None
    return seconds if seconds >= 0 else None


_ACCURACY = re.compile(rb"accuracy=\s*(\d{1,3}(?:\.\d{1,15})?)\s*%,\s*good=\s*(\d{1,12}),\s*total=\s*(\d{1,12})")


class LoggedAnswer(Struct, frozen=True):
    """One answer: the query's number, the sample, and the answer's bytes in hexadecimal."""

    seq_id: Count
    qsl_idx: Count
    data: str


_DECODER = msgspec.json.Decoder(list[LoggedAnswer])


def parse_answers(content: bytes, asked: str) -> list[LoggedAnswer]:
    """The answers in a file's bytes, empty for a run that logged none; ``RecordError`` for any other file."""
    if not content.strip():
        return []
    try:
        return _DECODER.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        do = "give a complete mlperf_log_accuracy.json: an interrupted run leaves half of one"
        raise RecordError(asked, f"it is not a list of answers ({error})", do) from error


def parse_accuracy(content: bytes) -> tuple[float, int] | None:
    """The share of right answers and the number of samples in an ``accuracy.txt`` of the classification scripts.

    ``None`` for the output of other scripts, which differs with every benchmark.
    """
    match = _ACCURACY.search(content[: 1 << 20])
    if match is None or int(match[3]) == 0 or int(match[2]) > int(match[3]):
        return None
    return int(match[2]) / int(match[3]), int(match[3])


Scenario = Literal["single-stream", "multi-stream", "server", "offline"]
_SCENARIOS: dict[str, Scenario] = {
    "SingleStream": "single-stream",
    "MultiStream": "multi-stream",
    "Server": "server",
    "Interactive": "server",
    "Offline": "offline",
}
_AGREE = 0.01
"""The summary rounds rates; rounding does not explain a larger relative difference."""


def inference_of(summary: LoadGenSummary, detail: Detail | None, asked: str) -> tuple[Inference, list[str]]:
    """The measurement in a summary and, if available, the detail log of the same run, and the doubts about it.

    Raises ``RecordError`` (about ``asked``) for an unknown scenario, for a run that was not a performance run, and if
    neither log has the number of queries.
    """
    scenario = _SCENARIOS.get(summary.scenario)
    do = "give the logs of a performance run"
    if scenario is None:
        raise RecordError(asked, f"unknown scenario {summary.scenario!r}", "use " + ", ".join(_SCENARIOS))
    if summary.mode not in ("PerformanceOnly", "SubmissionRun", "FindPeakPerformance"):
        raise RecordError(asked, f"it is a run of mode {summary.mode!r}", do)
    logged = detail.figures if detail is not None else {}
    per_query = int(summary.parameters.get("samples_per_query", 1)) or 1
    queries = int(logged.get("result_query_count", summary.queries or 0))
    if scenario == "offline":
        queries, per_query = 1, int(summary.parameters.get("samples_per_query", 0))
    if queries < 1 or per_query < 1:
        raise RecordError(asked, "neither log gives the number of queries", do)
    quantile = summary.headline_quantile
    rate = _rate(summary, scenario)
    duration_s, doubt = _duration(summary, detail, scenario, queries, per_query, rate)
    mean_ns = summary.figures.get("Mean latency (ns)")
    bound_ns = summary.parameters.get("target_latency (ns)", 0.0)
    found = Inference(
        scenario=scenario,
        queries=queries,
        samples=queries * per_query,
        duration_s=duration_s,
        mean_latency_s=None if mean_ns is None else mean_ns / 1e9,
        quantiles_s=summary.quantiles_s,
        estimate_s=None if quantile is None else summary.estimates_s.get(f"{quantile:.10g}"),
        estimate_quantile=quantile,
        throughput_per_s=rate,
        target_per_s=summary.parameters.get("target_qps") if scenario == "server" else None,
        latency_bound_s=bound_ns / 1e9 if scenario == "server" and bound_ns > 0 else None,
        valid=summary.valid,
        batch=per_query,
        includes=["queueing"] if scenario == "server" else [],
    )
    return found, [*([doubt] if doubt else []), *_doubts(summary, detail)]


def _rate(summary: LoadGenSummary, scenario: Scenario) -> float | None:
    """Samples per second as LoadGen counts them, ``None`` if it prints none (MultiStream)."""
    names = {
        "single-stream": ("QPS w/ loadgen overhead",),
        "multi-stream": (),
        "server": ("Completed samples per second", "Scheduled samples per second"),
        "offline": ("Samples per second",),
    }[scenario]
    return next((summary.figures[name] for name in names if summary.figures.get(name, 0.0) > 0), None)


def _duration(
    summary: LoadGenSummary, detail: Detail | None, scenario: Scenario, queries: int, per_query: int, rate: float | None
) -> tuple[float, str | None]:
    """The duration of the run in seconds, and a doubt about it, if any."""
    if scenario == "offline" and rate is not None:
        return queries * per_query / rate, None
    if rate is not None and queries > 1:
        return (queries - 1) / rate, None
    if detail is not None and detail.duration_s is not None:
        return detail.duration_s, None
    mean_s = summary.figures.get("Mean latency (ns)", 0.0) / 1e9
    return queries * mean_s, "the duration is not logged: queries times mean latency, a lower bound, replaces it"


def _doubts(summary: LoadGenSummary, detail: Detail | None) -> list[str]:
    found = (
        [] if summary.valid else ["LoadGen calls the run INVALID" if summary.valid is False else "there is no verdict"]
    )
    found += [
        f"not satisfied: {name.removesuffix(' satisfied')}" for name, holds in summary.checks.items() if not holds
    ]
    if summary.scenario == "Interactive":
        found.append("the Interactive scenario is read as server, without its token bounds")
    if detail is None:
        return [*found, "there is no detail log: the summary's figures cannot be checked against it"]
    mean_ns, logged = summary.figures.get("Mean latency (ns)"), detail.figures.get("result_mean_latency_ns")
    if mean_ns is not None and logged is not None and abs(mean_ns - logged) > _AGREE * max(abs(logged), 1.0):
        found.append(f"the summary says a mean latency of {mean_ns:g} ns, the detail log {logged:g} ns")
    if detail.valid != summary.valid:
        found.append("summary and detail log disagree about whether the run is valid")
    return found + [f"LoadGen logged an error: {text}" for text in detail.errors]


_SUMMARY, _DETAIL, _ANSWERS = "mlperf_log_summary.txt", "mlperf_log_detail.txt", "mlperf_log_accuracy.json"
_FILES = re.compile(r"mlperf_log_(summary|detail)\.txt|mlperf_log_accuracy\.json|accuracy\.txt")
_NOT_STATED = "not stated"
_RULESET = "levelbench-1.0"


class Stated(NamedTuple):
    """Facts that logs outside of a results tree lack; ``None``: as in the tree."""

    task: str | None = None
    author: str | None = None
    model: str | None = None
    hardware: str | None = None
    framework: str | None = None


def read_results(path: str | Path, **stated: str | None) -> tuple[list[Submission], list[str]]:
    """The submissions below ``path`` (a folder, or a tar archive of one), and the problems: what could not be read.

    ``stated`` are the fields of :class:`Stated`, for logs outside of a results tree, which lack them. The target is
    that of levelbench-1.0 for the task; a missing target is a doubt. Audit runs (``TEST01``, ...) are not read. Raises
    ``RecordError`` if the path does not exist, or has no summary of a performance run below it.
    """
    path = Path(path)
    asked = f"reading the LoadGen results in {path}"
    tree = read_tree(path if path.is_dir() or path.suffix != ".txt" else path.parent, _FILES, asked)
    # Audits and accuracy runs have summaries too.
    folders = [
        name.parent
        for name in tree
        if name.name == _SUMMARY
        and name.parent.name != "accuracy"
        and not any(re.fullmatch(r"TEST\d\d", part) for part in name.parts)
    ]
    if not folders:
        raise RecordError(asked, f"there is no {_SUMMARY} in it", "give a folder that LoadGen wrote to")
    problems: list[str] = []
    groups: dict[PurePosixPath, list[tuple[Inference, list[str], Detail | None]]] = {}
    for folder in folders:
        try:
            # In a results tree the folder of the benchmark, otherwise the folder itself.
            above, below = around_results(folder)
            entry = PurePosixPath(*above, "results", *below[:2]) if len(below) > 2 else folder
            groups.setdefault(entry, []).append(_read_run(tree, folder))
        except LevelbenchError as error:
            problems.append(str(error))
    said, named = Stated(**stated), path.resolve().name
    return [_submission(tree, at, runs, said, named) for at, runs in groups.items() if runs], problems


def _read_run(tree: Tree, folder: PurePosixPath) -> tuple[Inference, list[str], Detail | None]:
    content = tree[folder / _SUMMARY]
    asked = f"reading {folder / _SUMMARY}"
    if len(content) > SUMMARY_LIMIT:
        raise RecordError(asked, f"it is larger than {SUMMARY_LIMIT} bytes", "give a summary of LoadGen's")
    detail = tree.get(folder / _DETAIL)
    read = None if detail is None else parse_detail(detail, f"reading {folder / _DETAIL}")
    found, doubts = inference_of(parse_summary(content, asked), read, asked)
    scenario = folder.parent.parent if folder.parent.name == "performance" else folder
    quality, samples, said = _quality(tree, scenario / "accuracy")
    if quality is not None:
        found = msgspec.structs.replace(found, quality=quality, quality_samples=samples)
    return found, [f"{found.scenario}: {each}" for each in (*doubts, *said)], read


def _quality(tree: Tree, folder: PurePosixPath) -> tuple[float | None, int | None, list[str]]:
    """The share of right answers printed by the submitter's script, the number of samples, and doubts about them."""
    said = parse_accuracy(tree[folder / "accuracy.txt"]) if folder / "accuracy.txt" in tree else None
    if said is None:
        return None, None, ["there is no readable accuracy"]
    doubts = []
    if folder / _ANSWERS in tree:
        answers = parse_answers(tree[folder / _ANSWERS], f"reading {folder / _ANSWERS}")
        distinct = len({answer.qsl_idx for answer in answers})
        if distinct != len(answers) or distinct != said[1]:
            doubts.append(f"{len(answers)} answers of {distinct} samples are logged, and accuracy.txt counts {said[1]}")
    return said[0], said[1], [*doubts, "the accuracy is from a different run than the timing"]


def _submission(
    tree: Tree,
    at: PurePosixPath,
    runs: Sequence[tuple[Inference, list[str], Detail | None]],
    stated: Stated,
    named: str,
) -> Submission:
    inside = at.parts[-2:-1] != () and "results" in at.parts[:-2]
    system, doubt = system_of(tree, at)
    name = stated.task or (at.name if inside else None) or _NOT_STATED
    above, _ = around_results(at)
    organisation = stated.author or text_of(system.get("submitter")) or (above[-1] if above else _NOT_STATED)
    hardware = hardware_of(system, at.parent.name if inside else _NOT_STATED)
    if stated.hardware is not None:
        hardware = msgspec.structs.replace(hardware, description=stated.hardware)
    rules = task_rules(ruleset(_RULESET), name)
    doubts = [each for _, said, _ in runs for each in said] + ([doubt] if doubt else [])
    if rules is None:
        doubts.append(f"{_RULESET} has no task {name!r}: its target is unknown, and 0 replaces it")
    details = [each for _, _, each in runs if each is not None]
    days = sorted(each.day for each in details if each.day is not None)
    versions = {each.version for each in details if each.version is not None}
    return Submission(
        schema=SUBMISSION_SCHEMA,
        ruleset=_RULESET,
        task=name,
        mode="inference",
        author=Author(name=organisation, organisation=organisation),
        submitted=days[-1] if days else _NOT_STATED,
        model=stated.model or (at.name if inside else name),
        framework=stated.framework or text_of(system.get("framework")) or _NOT_STATED,
        hardware=hardware,
        target=rules.target if rules is not None else Target("accuracy", 0.0),
        division="closed" if system.get("division") == "closed" else "open",
        inference=[found for found, _, _ in runs],
        origin=Origin(
            format="loadgen",
            file=str(at) if str(at) != "." else named,
            doubts=[each[:4000] for each in doubts],
            fields={"loadgen_version": ", ".join(sorted(versions)) or None},
        ),
    )


class ScenarioMetric(NamedTuple):
    """The figure that ranks a scenario: a latency in seconds (lower is better), or samples per second (higher is)."""

    name: str
    unit: str
    best: str
    quantile: float | None = None


METRICS = {
    "single-stream": ScenarioMetric("early-stopping estimate of the 90th percentile", "s", "lower", 0.9),
    "multi-stream": ScenarioMetric("early-stopping estimate of the 99th percentile", "s", "lower", 0.99),
    "server": ScenarioMetric("completed samples a second within the bound", "1/s", "higher"),
    "offline": ScenarioMetric("samples a second", "1/s", "higher"),
}


class Ranking(NamedTuple):
    """The measurements of one task in one scenario, best first, and those that are left out.

    ``rows`` are rank, value in the unit of the scenario's metric, and entry; ``left_out`` are entries with the reason.
    """

    task: str
    scenario: str
    rows: list[tuple[int, float, Submission]]
    left_out: list[tuple[Submission, str]]


def _value_of(measured: Inference) -> float | str:
    """The scenario's own figure, or why the run is not ranked: not VALID for LoadGen, or without that figure.

    No other figure replaces a missing one: a mean is not a percentile.
    """
    if measured.valid is not True:
        return "LoadGen calls it INVALID" if measured.valid is False else "LoadGen's verdict is missing"
    wanted = METRICS[measured.scenario].quantile
    if wanted is None:
        return "its rate is not stated" if measured.throughput_per_s is None else measured.throughput_per_s
    if measured.estimate_s is None or measured.estimate_quantile != wanted:
        return f"there is no early-stopping estimate of its {wanted * 100:g}th percentile"
    return measured.estimate_s


def rankings(entries: Iterable[Submission], top: int | None = None) -> list[Ranking]:
    """A ranking for each task and scenario that occurs, with at most ``top`` rows; equal figures share a rank."""
    groups: dict[tuple[str, int], list[tuple[float | str, Submission]]] = {}
    order = list(METRICS)
    for entry in entries:
        for measured in entry.inference:
            if measured.scenario in METRICS:
                group = groups.setdefault((entry.task, order.index(measured.scenario)), [])
                group.append((_value_of(measured), entry))
    found = []
    for (task, at), members in sorted(groups.items(), key=itemgetter(0)):
        sign = 1 if METRICS[order[at]].best == "lower" else -1
        valued = [(value, entry) for value, entry in members if not isinstance(value, str)]
        valued.sort(key=lambda pair: (sign * pair[0], pair[1].origin.file if pair[1].origin else ""))
        values = [value for value, _ in valued]
        rows = [(values.index(value) + 1, value, entry) for value, entry in valued[:top]]
        left_out = [(entry, reason) for reason, entry in members if isinstance(reason, str)]
        found.append(Ranking(task, order[at], rows, left_out))
    return found
