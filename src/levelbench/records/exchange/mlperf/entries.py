"""MLPerf's training logs as one submission: the runs of one benchmark on one system.

The one idea: a result is all of its runs, so what they do not agree about (batch size, hyperparameters, seeds) is a
doubt about the whole, listed beside it; nothing is repaired, and a log's own ``success`` is held against its curve.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from levelbench.errors import RecordError
from levelbench.measure.crossing import RULES, sign_of
from levelbench.measure.policies import POLICIES
from levelbench.records.exchange.mlperf.benchmarks import benchmark
from levelbench.records.exchange.mlperf.compliance import check_log
from levelbench.records.exchange.mlperf.dialects import Event, number_of
from levelbench.records.exchange.mlperf.logs import ENTRY_KEY, ORIGIN_KEY, TARGET_KEY, LogEvaluation, TrainingLog
from levelbench.records.exchange.mlperf.seeds import check_seeds
from levelbench.records.exchange.mlperf.systems import hardware_of, text_of
from levelbench.records.rulesets.registry import ruleset_ids
from levelbench.records.schema import Target
from levelbench.records.submissions.digests import curve_digest
from levelbench.records.submissions.schema import (
    SUBMISSION_SCHEMA,
    Author,
    Curve,
    Origin,
    Submission,
    SubmittedRun,
)

__all__ = ["RULESET", "run_of", "submission_of", "target_of"]

RULESET = "mlperf-training-like-1.0"
_NOT_STATED = "not stated"
_MOST_DOUBTS = 1000
_PLAUSIBLE_NS = 1_000_000_000 * 10**9
"""Before September 2001 nobody wrote an MLPerf log: such a time is not of the epoch."""


def target_of(log: TrainingLog) -> tuple[Target, str]:
    """The target that the log was made for, and what its metric is called in the log.

    Its own statement counts first (ours write one, v0.5 logs ``eval_target``), then the benchmark's. Raises
    ``RecordError`` where neither says one.
    """
    stated = log.value(TARGET_KEY)
    if isinstance(stated, dict):
        return _stated_target(stated, f"reading {log.name}"), ""
    known = benchmark(log.benchmark)
    if known is None:
        found = f"{log.benchmark or 'no benchmark'!r} is no benchmark of MLPerf's, and the log states no target"
        raise RecordError(f"reading {log.name}", found, f"log the target under {TARGET_KEY}")
    target = known.metrics[0].target()
    own = number_of(log.value("eval_target")) if log.dialect == "v0.5" else None
    if own is not None and math.isfinite(own):
        target = msgspec.structs.replace(target, threshold=own)
    return target, known.metrics[0].logged


def _stated_target(stated: dict[str, Any], asked: str) -> Target:
    try:
        target = msgspec.convert(stated, Target)
    except (msgspec.ValidationError, OverflowError) as error:
        found = f"its {TARGET_KEY} is no target ({error})"
        raise RecordError(asked, found, "correct or remove the line") from error
    if not all(math.isfinite(each) for each in (target.threshold, target.low, target.high or 0.0)):
        raise RecordError(asked, f"its {TARGET_KEY} is not finite", "correct or remove the line")
    return target


def run_of(log: TrainingLog, digest: str | None = None) -> SubmittedRun:
    """One run: its curve, whether ``run_stop`` says success, and the time from ``run_start`` to ``run_stop``.

    An aborted run came to its own end and did not arrive; one without ``run_stop`` failed. The evaluation that ended a
    run is over when the run is: its time is that of ``run_stop``, so that the curve says what MLPerf would publish.
    Raises ``RecordError`` for a log without a target.
    """
    target, logged = target_of(log)
    curve, suspect = _curve(log, logged)
    reached = log.status == "success"
    if reached and _arrived(curve, target):
        curve = _stopped(curve, log.time_s)
    elif reached:
        suspect.append(f"run_stop says success and the curve never shows {target.threshold:g}")
    return SubmittedRun(
        curve=curve,
        status="failed" if log.status == "unfinished" else "done",
        seed=log.seeds[0] if log.seeds else None,
        reached=reached,
        time_to_target_s=log.time_s if reached else None,
        started=None if (began := _moment(log.run_start)) is None else began.isoformat(timespec="milliseconds"),
        excluded_s=_excluded(log),
        suspect=[each[:4000] for each in (*suspect, *log.notes)],
        error="the log ends without run_stop" if log.status == "unfinished" else None,
        record_id=log.name,
        curve_digest=curve_digest(curve),
        record_digest=digest,
    )


def _curve(log: TrainingLog, logged: str) -> tuple[Curve, list[str]]:
    """The curve of the metric that the log calls ``logged``, other metrics beside it, and what is odd about it."""
    suspect: list[str] = []
    metrics = list(dict.fromkeys(each.metric for each in log.evaluations))
    shown = next((name for name in (logged, "") if name in metrics), metrics[0] if metrics else "")
    if logged and shown != logged:
        suspect.append(f"{logged} is not logged by that name: the curve is of {shown or 'what is logged without one'}")
    points = [each for each in log.evaluations if each.metric == shown]
    finite = [each for each in points if math.isfinite(each.value)]
    if len(finite) < len(points):
        suspect.append(f"{len(points) - len(finite)} evaluations are not numbers and are not in the curve")
    epochs = [each.epoch for each in finite if each.epoch is not None and math.isfinite(each.epoch)]
    samples = [each.samples for each in finite if each.samples is not None]
    others: dict[str, list[float]] = {}
    known = benchmark(log.benchmark)
    names = {each.logged: each.name for each in known.metrics} if known is not None else {}
    for name in (each for each in metrics if each != shown):
        column = _beside(finite, [each for each in log.evaluations if each.metric == name])
        if column is None:
            suspect.append(f"{name} was not logged with every evaluation and is not in the curve")
        else:
            others[names.get(name, name)[:200] or "unnamed"] = column
    curve = Curve(
        time_s=[each.time_s for each in finite],
        quality=[each.value for each in finite],
        epoch=epochs if epochs and len(epochs) == len(finite) else None,
        samples=samples if samples and len(samples) == len(finite) else None,
        others=others,
    )
    return curve, suspect


def _beside(curve: Sequence[LogEvaluation], other: Sequence[LogEvaluation]) -> list[float] | None:
    """The values of another metric at the places of ``curve``; ``None`` unless it has one finite value for each."""
    places = {(each.epoch, each.samples): each.value for each in other if math.isfinite(each.value)}
    found = [places.get((each.epoch, each.samples)) for each in curve]
    values = [value for value in found if value is not None]
    return values if len(values) == len(curve) else None


def _arrived(curve: Curve, target: Target) -> bool:
    sign = sign_of(target.direction)
    return any(sign * quality >= sign * target.threshold for quality in curve.quality)


def _stopped(curve: Curve, time_s: float | None) -> Curve:
    """The curve whose last evaluation is over at ``time_s``."""
    if time_s is None or time_s < curve.time_s[-1]:
        return curve
    return msgspec.structs.replace(curve, time_s=[*curve.time_s[:-1], time_s])


def _excluded(log: TrainingLog) -> dict[str, float]:
    """Initialisation, which is not on the clock: from the first ``init_start`` to ``run_start``."""
    starts = [event.time_ns for event in log.all("init_start")]
    if not starts or log.run_start is None or log.run_start.time_ns < min(starts):
        return {}
    return {"prepare": (log.run_start.time_ns - min(starts)) / 1e9}


def _moment(event: Event | None) -> datetime | None:
    """When an event was, ``None`` for a time that is not of the epoch."""
    if event is None or event.time_ns < _PLAUSIBLE_NS:
        return None
    try:
        moment = datetime.fromtimestamp(event.time_ns // 10**9, UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return moment.replace(microsecond=event.time_ns % 10**9 // 1000)


def submission_of(
    logs: Sequence[TrainingLog],
    *,
    file: str,
    system: Mapping[str, Any] | None = None,
    digests: Mapping[str, str] | None = None,
    fields: Mapping[str, int | float | str | bool | None] | None = None,
    doubts: Sequence[str] = (),
) -> Submission:
    """The logs of one benchmark on one system as one submission; ``system`` is its description, if there is one.

    ``digests`` are SHA-256 by the log's name; ``fields`` go into the origin; ``doubts`` come before those found here.
    Raises ``RecordError`` for logs without a target, and for none at all.
    """
    if not logs:
        raise RecordError(f"reading {file}", "there is no log in it", "give a folder with result_*.txt")
    first, described = logs[0], dict(system or {})
    target, _ = target_of(first)
    runs = [run_of(log, (digests or {}).get(log.name)) for log in logs]
    entry = {name: text_of(value) for name, value in (first.value(ENTRY_KEY) or {}).items()} if _is_entry(first) else {}
    task = first.benchmark or _NOT_STATED
    moments = [moment for log in logs if (moment := _moment(log.run_stop or log.run_start)) is not None]
    organisation = text_of(described.get("submitter")) or first.organisation or _NOT_STATED
    stated = fields or {}
    return Submission(
        schema=SUBMISSION_SCHEMA,
        ruleset=_known(entry.get("ruleset"), ruleset_ids(), RULESET),
        task=task,
        mode="training",
        author=Author(name=organisation, organisation=organisation),
        submitted=max(moments).date().isoformat() if moments else _NOT_STATED,
        model=entry.get("model") or task,
        framework=text_of(described.get("framework")) or entry.get("framework") or _NOT_STATED,
        hardware=hardware_of(described, entry.get("hardware") or first.platform or _NOT_STATED),
        target=target,
        division="closed" if first.division == "closed" else "open",
        clock=_known(entry.get("clock"), POLICIES, "mlperf"),
        crossing=_known(entry.get("crossing"), RULES, "first"),
        runs=runs,
        settings=_agreed(logs),
        origin=Origin(
            format=f"mlperf-{first.dialect}",
            file=file,
            doubts=[each[:4000] for each in (*doubts, *_kept_doubts(first), *_doubts(logs, described))],
            fields=dict(stated),
        ),
    )


def _known(stated: str | None, names: Collection[str], otherwise: str) -> str:
    """What a log of ours says of itself, if it is one of ``names``; any other log is MLPerf's."""
    return stated if stated is not None and stated in names else otherwise


def _kept_doubts(log: TrainingLog) -> list[str]:
    """What was doubtful in the entry that a log of ours was written from."""
    origin = log.value(ORIGIN_KEY)
    doubts = origin.get("doubts") if isinstance(origin, dict) else None
    return [each for each in doubts if isinstance(each, str)][:_MOST_DOUBTS] if isinstance(doubts, list) else []


def _is_entry(log: TrainingLog) -> bool:
    return isinstance(log.value(ENTRY_KEY), dict)


def _agreed(logs: Sequence[TrainingLog]) -> dict[str, int | float | str | bool]:
    """The hyperparameters that all runs share."""
    first = logs[0].hyperparameters
    return {name: value for name, value in first.items() if all(log.hyperparameters.get(name) == value for log in logs)}


def _doubts(logs: Sequence[TrainingLog], described: Mapping[str, Any]) -> Iterator[str]:
    known = benchmark(logs[0].benchmark)
    if known is not None and len(logs) != known.runs:
        yield f"{len(logs)} runs, and the benchmark asks for {known.runs}"
    for what in ("benchmark", "division", "organisation", "platform", "batch_size"):
        values = {getattr(log, what) for log in logs}
        if len(values) > 1:
            yield f"the runs do not agree about {what}: {', '.join(sorted(map(str, values)))}"
    names = {name for log in logs for name in log.hyperparameters}
    differ = sorted(name for name in names - set(_agreed(logs)) if name != "global_batch_size")
    if differ:
        yield f"the runs do not agree about {', '.join(differ)}"
    if not described:
        yield "there is no description of the system"
    found = [finding for log in logs for finding in check_log(log)]
    found += check_seeds(logs)
    counts = Counter((each.code, each.found) for each in found if each.severity == "error")
    for (code, text), count in counts.items():
        yield f"{code}: {text} ({count} of {len(logs)} logs)" if count > 1 else f"{code}: {text}"
