"""MLPerf's logs as submissions: the system they ran on, the timeline of each run, and the doubts about them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice

import msgspec
from msgspec import Struct, field

from levelbench.competition.checks import instant_of
from levelbench.competition.entries import (
    SUBMISSION_SCHEMA,
    Author,
    Hardware,
    Origin,
    Setting,
    Submission,
    SubmittedCurve,
    SubmittedRun,
    curve_digest,
)
from levelbench.competition.exchange import text_of, unplaced
from levelbench.competition.exchange.mlperf.compliance import check_log, check_seeds
from levelbench.competition.exchange.mlperf.logs import (
    ENTRY_KEY,
    ORIGIN_KEY,
    TARGET_KEY,
    Event,
    TrainingLog,
    benchmark,
    number_of,
)
from levelbench.competition.rulesets import ruleset, ruleset_ids, task_rules
from levelbench.errors import RecordError
from levelbench.measure.crossing import RULES, find_crossing
from levelbench.measure.policies import POLICIES, policy
from levelbench.records.reader import Record
from levelbench.records.schema import Target
from levelbench.report.numbers import plural

_BYTES = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_MEMORY = re.compile(r"\s*(\d{1,7}(?:\.\d{1,3})?)\s*([KMGT]i?B)\s*", re.ASCII)


def hardware_of(system: Mapping[str, object], otherwise: str) -> Hardware:
    """The hardware in a description, or ``otherwise`` in words if there is none. Counts are for the whole system."""
    nodes = _count(system.get("number_of_nodes"))
    each = _count(system.get("accelerators_per_node"))
    sockets, cores = _count(system.get("host_processors_per_node")), _count(system.get("host_processor_core_count"))
    # Bytes per node ("1.5 TB").
    stated = _MEMORY.fullmatch(str(system.get("host_memory_capacity")))
    memory = None if stated is None else round(float(stated[1]) * _BYTES[stated[2].upper()])
    return Hardware(
        description=text_of(system.get("system_name")) or otherwise,
        nodes=nodes,
        accelerators=None if nodes is None or each is None else nodes * each,
        accelerator=text_of(system.get("accelerator_model_name")),
        processor=text_of(system.get("host_processor_model_name")),
        cores=None if nodes is None or sockets is None or cores is None else nodes * sockets * cores,
        memory_bytes=None if nodes is None or memory is None else nodes * memory,
    )


def _count(value: object) -> int | None:
    """A whole number below a million, possibly as text."""
    if isinstance(value, str) and re.fullmatch(r"\s*\d{1,6}\s*", value, re.ASCII):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**6 else None


_BATCH = ("global_batch_size", "batch")


class LoggedEvaluation(Struct, frozen=True):
    """One evaluation: seconds on the clock at its end, its duration, and how much training came before."""

    time_s: float
    quality: float
    took_s: float = 0.0
    epoch: float | None = None
    samples: int | None = None


class LoggedRun(Struct, frozen=True):
    """The content of one log. ``started_s`` is the epoch time of the beginning, 0 if unknown.

    ``stop_s`` is when the clock stops; ``init_s`` is the time before it starts. ``None`` means not stated and is
    written as ``null``. ``ours``: levelbench ran it, so its caches and initialisation are known; for a run of another
    system nothing is logged about the caches, and about initialisation only ``init_s``. ``origin`` is where such a run
    was read from.
    """

    benchmark: str
    organisation: str
    platform: str
    division: str
    target: Target
    evaluations: list[LoggedEvaluation]
    success: bool
    stop_s: float
    init_s: float = 0.0
    started_s: float = 0.0
    seed: int | None = None
    batch_size: int | None = None
    accumulation: int | None = None
    train_samples: int | None = None
    eval_samples: int | None = None
    settings: dict[str, Setting] = field(default_factory=dict)
    entry: dict[str, str] = field(default_factory=dict)
    error: str | None = None
    ours: bool = True
    origin: dict[str, str | list[str]] | None = None


def of_record(record: Record, organisation: str) -> LoggedRun:
    """The content of the log of one of our records, always on MLPerf's clock and by its crossing rule.

    Only a finished run can have reached the target. Raises ``RecordError`` for a record without an evaluation.
    """
    specification, end = record.header.specification, record.end
    if not record.evaluations:
        asked = f"writing {record.path.name} as an MLPerf log"
        raise RecordError(asked, "it has no evaluations", "export runs that were evaluated")
    clock = policy("mlperf")
    qualities = [each.quality.get(specification.target.split, math.nan) for each in record.evaluations]
    found = _first_at(qualities, specification.target, "first") if record.status == "done" else None
    kept = record.evaluations if found is None else record.evaluations[: found + 1]
    evaluations, before = [], 0
    for each, quality in zip(kept, qualities, strict=False):
        spent = each.phases_ns.get("evaluate", 0)
        time_s = clock.score(each.phases_ns).seconds
        evaluations.append(LoggedEvaluation(time_s, quality, (spent - before) / 1e9, each.epoch, each.samples))
        before = spent
    sizes: Mapping[str, int] = end.dataset.sizes if end is not None and end.dataset is not None else {}
    ranks = specification.distribution.ranks if specification.distribution is not None else 1
    weak = specification.distribution is not None and specification.distribution.scaling == "weak"
    batch = _batch(specification.settings)
    accumulation = _whole(specification.settings.get("accumulate", 1))
    return LoggedRun(
        benchmark=specification.task,
        organisation=organisation,
        platform=specification.device,
        division="open",
        target=specification.target,
        evaluations=evaluations,
        success=found is not None,
        stop_s=evaluations[-1].time_s,
        init_s=sum(clock.score(kept[-1].phases_ns).excluded_s.values()),
        started_s=_epoch_s(record.header.started),
        seed=record.header.seed,
        batch_size=None if batch is None else batch * (ranks if weak else 1) * (accumulation or 1),
        accumulation=accumulation,
        train_samples=sizes.get("train"),
        eval_samples=sizes.get(specification.target.split),
        settings=dict(specification.settings),
        entry={
            "model": specification.recipe,
            "framework": specification.framework,
            "hardware": specification.device,
            "clock": "mlperf",
            "crossing": "first",
        },
        error=end.error if end is not None else "the run was interrupted",
    )


def of_submission(submission: Submission, run: SubmittedRun) -> LoggedRun:
    """The content of the log of one run of a submission, on the submission's clock and by its crossing rule.

    The clock stops at the run's stated time if that lies between the evaluation that crossed and the next one (other
    systems stop it when they report it), else at that evaluation. A run that does not claim to have reached the target
    is written as aborted. Raises ``RecordError`` for a run without a curve.
    """
    curve = run.curve
    lengths = {len(each) for each in (curve.quality, curve.epoch, curve.samples) if each}
    if not curve.time_s or lengths != {len(curve.time_s)}:
        found = "its curve is empty" if not curve.time_s else "its curve's columns differ in length"
        raise RecordError("writing a submission as MLPerf logs", found, "correct it: `levelbench board check`")
    arrived = run.status == "done" and run.reached is not False
    at = _first_at(curve.quality, submission.target, crossing_of(submission)) if arrived else None
    count = len(curve.time_s) if at is None else at + 1
    nothing = [None] * count
    columns = (curve.time_s, curve.quality, curve.epoch or nothing, curve.samples or nothing)
    evaluations = [
        LoggedEvaluation(time_s, quality, epoch=epoch, samples=samples)
        for time_s, quality, epoch, samples in islice(zip(*columns, strict=False), count)
    ]
    stop_s, stated = evaluations[-1].time_s, run.time_to_target_s
    if at is not None and stated is not None:
        following = curve.time_s[at + 1] if at + 1 < len(curve.time_s) else math.inf
        stop_s = stated if stop_s <= stated < following else stop_s
    own, origin = submission.settings, submission.origin
    return LoggedRun(
        benchmark=submission.task,
        organisation=submission.author.organisation or submission.author.name,
        platform=submission.hardware.description,
        division=submission.division,
        target=submission.target,
        evaluations=evaluations,
        success=at is not None,
        stop_s=stop_s,
        init_s=sum(run.excluded_s.values()) if submission.clock == "mlperf" else 0.0,
        started_s=_epoch_s(run.started),
        seed=run.seed,
        batch_size=_batch(own),
        accumulation=_whole(own.get("gradient_accumulation_steps")),
        train_samples=_whole(own.get("train_samples")),
        eval_samples=_whole(own.get("eval_samples")),
        settings=dict(own),
        entry={
            "model": submission.model,
            "framework": submission.framework,
            "hardware": submission.hardware.description,
            "ruleset": submission.ruleset,
            "clock": submission.clock or "not stated",
            "crossing": submission.crossing or "not stated",
        },
        error=run.error,
        ours=origin is None,
        origin=None
        if origin is None
        else {"format": origin.format, "file": origin.file, "doubts": list(origin.doubts)},
    )


def crossing_of(submission: Submission) -> str:
    """The crossing rule for the entry's runs: its own, else MLPerf's, the first evaluation at the target."""
    stated = submission.crossing
    return stated if stated is not None and stated in RULES else "first"


def _first_at(qualities: list[float], target: Target, crossing: str) -> int | None:
    found = find_crossing(qualities, target.threshold, direction=target.direction, rule=crossing)
    return None if found is None else found.index


def _epoch_s(started: str | None) -> float:
    moment = instant_of(started or "")
    return 0.0 if moment is None else moment.timestamp()


def _batch(settings: Mapping[str, Setting]) -> int | None:
    return next((whole for name in _BATCH if (whole := _whole(settings.get(name))) is not None), None)


def _whole(value: Setting | None) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


RULESET = "mlperf-training-like-1.0"
_RULESETS = "mlperf-training-like-"
_NOT_STATED = "not stated"
_MOST_DOUBTS = 1000
_PLAUSIBLE_NS = 1_000_000_000 * 10**9
"""Nobody wrote an MLPerf log before September 2001: such a time is not an epoch time."""


def target_of(log: TrainingLog) -> tuple[Target, str]:
    """The target that the log was made for, and the name of its metric in the log.

    The log's own statement counts first (ours write one, v0.5 logs ``eval_target``), then the benchmark's. If both are
    missing, nobody can say when the run arrived but the log itself: its last quality stands in for the target. Raises
    ``RecordError`` for a statement that is not a target, and for a log that names no benchmark.
    """
    stated, asked = log.value(TARGET_KEY), f"reading {log.name}"
    if isinstance(stated, dict):
        try:
            target = msgspec.convert(stated, Target)
        except (msgspec.ValidationError, OverflowError) as error:
            found = f"its {TARGET_KEY} is not a target ({error})"
            raise RecordError(asked, found, "correct or remove the line") from error
        if not all(math.isfinite(each) for each in (target.threshold, target.low or 0.0, target.high or 0.0)):
            raise RecordError(asked, f"its {TARGET_KEY} is not finite", "correct or remove the line")
        return target, ""
    known = benchmark(log.benchmark)
    if known is None and not log.benchmark:
        found = "it names no benchmark, and states no target"
        raise RecordError(asked, found, f"log submission_benchmark, or the target under {TARGET_KEY}")
    if known is None:
        last = next((each for each in reversed(log.evaluations) if math.isfinite(each.value)), None)
        less = last is not None and last.key == "eval_error"
        low = 0.0 if last is None or last.value >= 0 else None
        return Target(
            _NOT_STATED, 0.0 if last is None else last.value, "lower" if less else "higher", low, None
        ), last.metric if last is not None else ""
    target = known.metrics[0].target()
    own = number_of(log.value("eval_target")) if log.dialect == "v0.5" else None
    if own is not None and math.isfinite(own):
        target = msgspec.structs.replace(target, threshold=own)
    return target, known.metrics[0].logged


def is_unknown(log: TrainingLog) -> bool:
    """Whether neither the log nor its benchmark says which quality was to be reached."""
    return benchmark(log.benchmark) is None and log.value(TARGET_KEY) is None


def run_of(log: TrainingLog, digest: str | None = None) -> SubmittedRun:
    """One run: its curve, whether ``run_stop`` reports success, and the time from ``run_start`` to ``run_stop``.

    An aborted run finished without reaching the target, and failed if its curve was there already; so did one without
    ``run_stop``. The evaluation that ends a run ends with it: its time is that of ``run_stop``, so that the curve
    agrees with what MLPerf would publish. Raises ``RecordError`` for a log without a target.
    """
    target, logged = target_of(log)
    curve, suspect = _curve(log, logged)
    reached, error = log.status == "success", None
    if log.status == "unfinished":
        error = "the log ends without run_stop"
    elif not reached and not is_unknown(log) and _first_at(curve.quality, target, "first") is not None:
        error = f"run_stop reports that it was aborted, although its curve reaches {target.threshold:g}"
    if reached and _first_at(curve.quality, target, "first") is None:
        suspect.append(f"run_stop reports success, but the curve never reaches {target.threshold:g}")
    elif reached and log.time_s is not None and log.time_s >= curve.time_s[-1]:
        curve = msgspec.structs.replace(curve, time_s=[*curve.time_s[:-1], log.time_s])
    # Initialisation is not on the clock: from the first init_start to run_start.
    starts = [event.time_ns for event in log.all("init_start")]
    initialised = log.run_start.time_ns - min(starts) if starts and log.run_start is not None else -1
    return SubmittedRun(
        curve=curve,
        status="failed" if error else "done",
        seed=log.seeds[0] if log.seeds else None,
        reached=reached,
        time_to_target_s=log.time_s if reached else None,
        started=None if (began := _moment(log.run_start)) is None else began.isoformat(timespec="milliseconds"),
        excluded_s={"prepare": initialised / 1e9} if initialised >= 0 else {},
        suspect=[each[:4000] for each in (*suspect, *log.notes)],
        error=error,
        record_id=log.name,
        curve_digest=curve_digest(curve),
        record_digest=digest,
    )


def _curve(log: TrainingLog, logged: str) -> tuple[SubmittedCurve, list[str]]:
    """The curve of the metric that the log calls ``logged``, other metrics as further columns, and doubts about it."""
    suspect: list[str] = []
    metrics = list(dict.fromkeys(each.metric for each in log.evaluations))
    shown = next((name for name in (logged, "") if name in metrics), metrics[0] if metrics else "")
    if logged and shown != logged:
        suspect.append(f"{logged} is not logged by that name: the curve shows {shown or 'the metric without a name'}")
    points = [each for each in log.evaluations if each.metric == shown]
    finite = [each for each in points if math.isfinite(each.value)]
    if len(finite) < len(points):
        suspect.append(f"{len(points) - len(finite)} evaluations are not finite and are not in the curve")
    epochs = [each.epoch for each in finite if each.epoch is not None and math.isfinite(each.epoch)]
    samples = [each.samples for each in finite if each.samples is not None]
    others: dict[str, list[float]] = {}
    known = benchmark(log.benchmark)
    names = {each.logged: each.name for each in known.metrics} if known is not None else {}
    for name in (each for each in metrics if each != shown):
        # Another metric is added to the curve only if it has one finite value at each of the same places.
        others_at = [each for each in log.evaluations if each.metric == name and math.isfinite(each.value)]
        places = {(each.epoch, each.samples): each.value for each in others_at}
        column = [places[at] for each in finite if (at := (each.epoch, each.samples)) in places]
        if len(column) < len(finite):
            suspect.append(f"{name} was not logged with every evaluation and is not in the curve")
        else:
            others[names.get(name, name)[:200] or "unnamed"] = column
    curve = SubmittedCurve(
        time_s=[each.time_s for each in finite],
        quality=[each.value for each in finite],
        epoch=epochs if epochs and len(epochs) == len(finite) else None,
        samples=samples if samples and len(samples) == len(finite) else None,
        others=others,
    )
    return curve, suspect


def _moment(event: Event | None) -> datetime | None:
    """The time of an event, ``None`` if it is not an epoch time."""
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
    system: Mapping[str, object] | None = None,
    digests: Mapping[str, str] | None = None,
    fields: Mapping[str, int | float | str | bool | None] | None = None,
    doubts: Sequence[str] = (),
) -> Submission:
    """The logs of one benchmark on one system as a submission; ``system`` is its description, if available.

    ``digests`` are SHA-256 by the log's name; ``fields`` go into the origin; ``doubts`` precede those found here.
    Raises ``RecordError`` for logs without a target, and if there are none.
    """
    if not logs:
        raise RecordError(f"reading {file}", "it contains no logs", "give a folder with result_*.txt")
    first, described = logs[0], dict(system or {})
    target, _ = target_of(first)
    runs = [run_of(log, (digests or {}).get(log.name)) for log in logs]
    said, origin = first.value(ENTRY_KEY), first.value(ORIGIN_KEY)
    entry = {name: text_of(value) for name, value in said.items()} if isinstance(said, dict) else {}
    # The doubts of the entry that one of our logs was written from.
    kept = origin.get("doubts") if isinstance(origin, dict) else None
    kept = [each for each in kept if isinstance(each, str)][:_MOST_DOUBTS] if isinstance(kept, list) else []
    task = first.benchmark or _NOT_STATED
    moments = [moment for log in logs if (moment := _moment(log.run_stop or log.run_start)) is not None]
    organisation = text_of(described.get("submitter")) or first.organisation or _NOT_STATED
    # The hyperparameters that all runs share.
    settings = first.hyperparameters
    agreed = {
        name: each for name, each in settings.items() if all(log.hyperparameters.get(name) == each for log in logs)
    }
    of_runs = _counted((run.suspect for run in runs), len(logs))
    found = dict.fromkeys([*doubts, *kept, *_doubts(logs, described, agreed), *of_runs])
    return Submission(
        schema=SUBMISSION_SCHEMA,
        ruleset=_known(entry.get("ruleset"), ruleset_ids(), rules_for(task)),
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
        settings=agreed,
        origin=Origin(
            format=f"mlperf-{first.dialect}",
            file=file,
            doubts=[each[:4000] for each in found],
            fields=dict(fields or {}),
        ),
    )


def rules_for(task: str) -> str:
    """The rules like MLPerf's that have the benchmark, with the number of runs that it needs."""
    like = sorted((id for id in ruleset_ids() if id.startswith(_RULESETS)), key=lambda id: id != RULESET)
    return next((id for id in like if task_rules(ruleset(id), task) is not None), RULESET)


def _known(stated: str | None, names: Collection[str], otherwise: str) -> str:
    """What one of our logs states, if it is one of ``names``; any other log is MLPerf's."""
    return stated if stated is not None and stated in names else otherwise


def _doubts(
    logs: Sequence[TrainingLog], described: Mapping[str, object], agreed: Mapping[str, Setting]
) -> Iterator[str]:
    known = benchmark(logs[0].benchmark)
    if is_unknown(logs[0]):
        yield f"unknown benchmark {logs[0].benchmark!r}: its target is not known, and it is not ranked"
    if known is not None and len(logs) != known.runs:
        yield f"{len(logs)} runs, but the benchmark requires {known.runs}"
    for what in ("benchmark", "division", "organisation", "platform", "batch_size"):
        values = {getattr(log, what) for log in logs}
        if len(values) > 1:
            yield f"the runs disagree about {what}: {', '.join(sorted(map(str, values)))}"
    names = {name for log in logs for name in log.hyperparameters}
    differ = sorted(name for name in names - agreed.keys() if name != "global_batch_size")
    if differ:
        yield f"the runs disagree about {', '.join(differ)}"
    if not described:
        yield "there is no description of the system"
    by_log: dict[str, list[str]] = {log.name: [] for log in logs}
    for each in (*(finding for log in logs for finding in check_log(log)), *check_seeds(logs)):
        if each.severity == "error":
            by_log[each.file].append(f"{each.code}: {each.found}")
    yield from _counted(by_log.values(), len(logs))


def _counted(doubts: Iterable[Sequence[str]], logs: int) -> Iterator[str]:
    """Each doubt once, with how many of several logs have it; ``doubts`` are those of each log."""
    for text, count in Counter(text for each in doubts for text in dict.fromkeys(each)).items():
        yield f"{text} ({count} of {logs} logs)" if count > 1 else text


_PLACED: dict[str, tuple[str, ...]] = {
    "author": ("name", "organisation"),
    "hardware": ("description", "nodes", "accelerators", "accelerator", "processor"),
    "code": (),
    "tuning": (),
}
"""The fields of each part of an entry that a log and the description of its system express."""
_OF_RUNS = ("phases_s", "energy_j", "peak_memory_bytes", "test_quality", "suspect", "record_digest")


def losses_of(submission: Submission) -> list[str]:
    """What a log cannot express of an entry, by field; losses that change the meaning of the time come first."""
    return list(_losses(submission))


def _losses(submission: Submission) -> Iterator[str]:
    crossing = crossing_of(submission)
    if not submission.ruleset.startswith(_RULESETS):
        yield f"ruleset: {submission.ruleset}, which only levelbench reads back"
    if submission.clock != "mlperf":
        stated = submission.clock or "not stated"
        yield f"clock: {stated}; run_stop minus run_start is the time on it, but MLPerf's clock excludes initialisation"
    if submission.crossing != "first":
        stated = submission.crossing or "not stated"
        stops = "at the first evaluation at the target" if crossing == "first" else f"where the rule {crossing!r} does"
        yield f"crossing: {stated}; run_stop is {stops}, but MLPerf's at the first evaluation at the target"
    for name, placed in _PLACED.items():
        yield from unplaced(getattr(submission, name), name, placed)
    provenance = submission.provenance
    further = {
        "price": submission.price,
        "provenance": any(getattr(provenance, each) for each in provenance.__struct_fields__),
        "notes": submission.notes,
    }
    yield from (name for name, value in further.items() if value)
    if submission.origin is not None:
        system = submission.origin.format
        yield f"cache_clear, init_start, init_stop: {system} does not state them, so MLPerf's checker refuses it"
    for each in _OF_RUNS:
        if any(getattr(run, each) not in (None, [], {}) for run in submission.runs):
            yield f"runs.{each}"
    if submission.clock != "mlperf" and any(run.excluded_s for run in submission.runs):
        yield "runs.excluded_s"
    if any(run.curve.others for run in submission.runs):
        yield "runs.curve.others"
    after = 0
    for run in submission.runs:
        arrived = run.status == "done" and run.reached is not False
        at = _first_at(run.curve.quality, submission.target, crossing) if arrived else None
        after += 0 if at is None else len(run.curve.quality) - 1 - at
    if after:
        yield f"runs.curve: {plural(after, 'evaluation')} after the clock stopped"
