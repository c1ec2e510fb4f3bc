"""Entries of a leaderboard as claims: our own, DAWNBench's, and those made from MLPerf's logs.

An entry's figure is computed from its curves under its own rules, as the leaderboard does. Whatever else its author
states is taken as stated; what the format has no place for counts as not stated. Each inference scenario becomes a
side.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

import msgspec

from levelbench.claims.reading.run_sides import batch_of, clock_of, mean_of, rate_of, split_of
from levelbench.claims.remarks import remarks_on_claim
from levelbench.claims.view import (
    Claim,
    ClockView,
    CurveView,
    DataView,
    HardwareView,
    QualityView,
    RunView,
    Setup,
    Side,
    Summarised,
    TimingView,
    TuningView,
    WorkloadView,
)
from levelbench.competition.entries import Inference, Submission, read_bytes, read_submission
from levelbench.competition.exchange.dawnbench import read_entry
from levelbench.competition.exchange.mlperf import read_log, read_results
from levelbench.competition.exchange.mlperf.entries import submission_of
from levelbench.competition.figures import QUANTILES, EntryScore
from levelbench.competition.rulesets import Ruleset, folder_rulesets, rulesets
from levelbench.competition.scoring import score
from levelbench.errors import LevelbenchError, RecordError
from levelbench.report.remarks import Remarks

__all__ = ["entry_kind", "folder_rulesets", "read_mlperf", "read_submission_file", "remarks_on_entry"]
__all__ += ["submission_claim"]
"""What ``levelbench.claims.reading`` uses through the entry point, and what the command line uses."""

_JSON = ":json"
_LONGEST = 1 << 16


def is_ours(entry: Submission) -> bool:
    """Whether the entry was made from records: every run (or measurement) names one."""
    digests = [run.record_digest for run in entry.runs] + [each.record_digest for each in entry.inference]
    return entry.origin is None and bool(digests) and all(digests)


def options_of(entry: Submission) -> dict[str, object]:
    """Settings by name, including those in an object that another format nests."""
    found: dict[str, Any] = {}
    for name, value in (entry.origin.fields if entry.origin else {}).items():
        if name.endswith(_JSON) and isinstance(value, str) and len(value) <= _LONGEST:
            nested = None
            with suppress(ValueError, RecursionError):
                nested = json.loads(value)
            if isinstance(nested, dict):
                found |= {key: each for key, each in nested.items() if isinstance(each, int | float | str)}
    return {**found, **entry.settings}


def hardware_of(entry: Submission) -> HardwareView:
    """The stated hardware with its price; the words "not stated" count as not stated."""
    stated, price = entry.hardware, entry.price
    return HardwareView(
        description=stated.description if stated.description != "not stated" else None,
        nodes=stated.nodes,
        accelerators=stated.accelerators,
        accelerator=stated.accelerator,
        processor=stated.processor,
        cores=stated.cores,
        price_per_hour=price.usd_per_hour if price else None,
        price_source=price.source if price else None,
    )


def data_of(entry: Submission) -> DataView:
    """The data, and the share of the time spent waiting for it if phases are stated."""
    provenance = entry.provenance
    waits = [
        run.phases_s.get("data", 0.0) / total for run in entry.runs if (total := math.fsum(run.phases_s.values())) > 0
    ]
    read_on_clock = bool(waits) and all(not run.excluded_s.get("prepare") for run in entry.runs)
    return DataView(
        name=provenance.dataset,
        synthetic=provenance.synthetic,
        in_memory=False if read_on_clock else None,
        stall_share=math.fsum(waits) / len(waits) if waits else None,
        checksums=True if provenance.checksums else None,
    )


def workload_of(entry: Submission) -> WorkloadView:
    """Batch, learning rate, and the samples that the runs took to the end of their curves."""
    options = options_of(entry)
    samples = [run.curve.samples[-1] for run in entry.runs if run.curve.samples]
    ranks = options.get("ranks")
    return WorkloadView(
        global_batch=batch_of(options),
        ranks=ranks if isinstance(ranks, int) and not isinstance(ranks, bool) else None,
        samples_to_target=math.fsum(samples) / len(samples) if samples else None,
        learning_rate=rate_of(options),
    )


def _common(entry: Submission, where: str) -> dict[str, Any]:
    """The fields of a side that do not depend on its mode; speed and quality come from the same runs."""
    provenance, year = entry.provenance, entry.submitted[:4]
    parts = [provenance.software, provenance.environment]
    digest = hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:16]
    setup = Setup(
        commit=entry.code.commit,
        dirty=entry.code.dirty,
        environment=digest if provenance.software or provenance.environment else None,
        seeds=[run.seed for run in entry.runs if run.seed is not None] or None,
        options=dict(entry.settings),
    )
    return {
        "year": int(year) if year.isascii() and year.isdigit() else None,
        "source": entry.code.url,
        "data": data_of(entry),
        "hardware": hardware_of(entry),
        "tuning": TuningView(entry.tuning.trials, entry.tuning.hours, entry.tuning.usd),
        "performance": setup,
        "accuracy": setup,
        "where": where,
    }


def runs_of(entry: Submission, times_s: Sequence[float | None], where: str) -> list[RunView]:
    """Every run with its curve; ``times_s`` are the crossing times under the entry's rules, if it was scored.

    If the entry was read from a folder of logs, each run's place is its own log.
    """
    logs, found = Path(where).is_dir(), []
    for run, time_s in zip_longest(entry.runs, times_s):
        curve = run.curve
        sound = 0 < len(curve.time_s) == len(curve.quality)
        view = RunView(
            time_s=time_s,
            reached=time_s is not None if times_s else run.reached,
            quality=curve.quality[-1] if sound else None,
            seed=run.seed,
            failed=run.status == "failed",
            curve=CurveView(curve.time_s, curve.quality, curve.epoch, curve.samples) if sound else None,
            where=str(Path(where, run.record_id)) if logs and run.record_id else "",
        )
        found.append(view)
    return found


def inference_claim(entry: Submission, title: str, where: str, read_from: str) -> Claim:
    """The claim of an inference entry, with one side per measurement."""
    sides = [_inference_side(entry, each, at, where) for at, each in enumerate(entry.inference)]
    summaries = [
        Summarised(
            what=f"latency of {side.name}",
            of="times",
            by="arithmetic",
            n=found.queries or None,
            value=side.time_s,
            where=side.where,
        )
        for side, found in zip(sides, entry.inference, strict=True)
        if side.time_s is not None and found.scenario == "dawnbench"
    ]
    return Claim(title=title, sides=sides, task=entry.task, read_from=read_from, summaries=summaries, where=where)


def _inference_side(entry: Submission, found: Inference, at: int, where: str) -> Side:
    several = len(entry.inference) > 1
    # Seconds: the mean in scenarios that are ranked by it, otherwise the scenario's quantile.
    latency_s = found.mean_latency_s
    if found.scenario not in ("dawnbench", "offline"):
        stated = found.quantiles_s.get(str(QUANTILES[found.scenario]))
        latency_s = stated if found.estimate_s is None else found.estimate_s
    return Side(
        name=f"{entry.model} ({found.scenario}{f', {at + 1}' if several else ''})",
        time_s=latency_s,
        time_of="call",
        framework=entry.framework,
        cost_usd=found.cost_usd,
        quality=QualityView(
            metric=entry.target.metric,
            value=found.quality,
            target=entry.target.threshold,
            direction=entry.target.direction,
            split=None,
        ),
        clock=ClockView(data="preprocessing" in found.includes if found.includes else None),
        workload=WorkloadView(global_batch=found.batch),
        **_common(entry, where),
    )


_OURS = "one monotonic clock; phases that sum to it within 1 %"
_LOG = "time stamps of a log, from run_start to run_stop"
_REPORTED: dict[str, Literal["olympic", "median", "mean", "single"]] = {
    "mean-test": "mean",
    "olympic": "olympic",
    "median": "median",
    "first-run": "single",
}


def read_submission_file(path: str | Path, rules: Mapping[str, Ruleset] | None = None) -> list[Claim]:
    """The claim in one file: a submission, or a DAWNBench entry with the curve next to it.

    ``rules`` are the rulesets that entries may name, by id; by default the shipped ones. Raises ``RecordError`` for
    anything else.
    """
    path = Path(path)
    entry = read_entry(path) if entry_kind(path) == "dawnbench" else read_submission(path)
    return [submission_claim(entry, str(path), rules)]


def entry_kind(path: Path) -> Literal["dawnbench", "submission"] | None:
    """The kind of entry whose keys the JSON file at ``path`` has; ``None`` for any other object.

    A file that is not JSON counts as a submission, whose reader says what is wrong with it.
    """
    try:
        found = msgspec.json.decode(read_bytes(path).removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, RecordError):
        return "submission"
    if not isinstance(found, dict):
        return None
    if {"author", "hardware", "timestamp"} <= found.keys() and "schema" not in found:
        return "dawnbench"
    return "submission" if {"ruleset", "task"} & found.keys() and "hardware" in found else None


def submission_claim(
    entry: Submission, where: str, rulesets_by_id: Mapping[str, Ruleset] | None = None, read_from: str = ""
) -> Claim:
    """The claim that ``entry`` makes; ``where`` is the place that findings name."""
    origin = entry.origin.format if entry.origin else ""
    read_from = read_from or ("dawnbench" if origin == "dawnbench" else "submission")
    title = f"{entry.task}: {entry.model} on {entry.hardware.description}, {entry.author.name}"
    if entry.mode == "inference":
        return inference_claim(entry, title, where, read_from)
    # With an unknown ruleset the entry is read but has no figure.
    rules = ({each.id: each for each in rulesets()} if rulesets_by_id is None else rulesets_by_id).get(entry.ruleset)
    scored = score(entry, rules) if rules else None
    side = _training_side(entry, rules, scored, where)
    return Claim(
        title=title,
        sides=[side],
        task=entry.task,
        read_from=read_from,
        summaries=_summaries(scored, rules, side),
        where=where,
    )


def _training_side(entry: Submission, rules: Ruleset | None, scored: EntryScore | None, where: str) -> Side:
    interval = None
    if scored and scored.time.low is not None and scored.time.high is not None and math.isfinite(scored.time.high):
        interval = scored.time.low, scored.time.high
    origin = entry.origin.format if entry.origin else ""
    prepared = 0.0 if origin else max((run.excluded_s.get("prepare", 0.0) for run in entry.runs), default=0.0)
    several = len(entry.runs) > 1
    return Side(
        name=entry.model,
        time_s=scored.time.value if scored else None,
        time_of="target",
        reported=_REPORTED.get(rules.aggregation.rule) if rules else None,
        runs_made=len(entry.runs) if is_ours(entry) else None,
        runs_reached=scored.reached if scored and (several or is_ours(entry)) else None,
        interval=interval,
        runs=runs_of(entry, scored.times_s if scored else (), where),
        framework=entry.framework if entry.framework != "not stated" else None,
        cost_usd=scored.cost.value if scored else None,
        quality=_training_quality(entry),
        clock=clock_of(
            entry.clock or (rules.clock if rules else None),
            entry.crossing or (rules.crossing if rules else None),
            initialised_s=prepared,
        ),
        timing=TimingView(method=_LOG if origin.startswith("mlperf") else _OURS if is_ours(entry) else None),
        workload=workload_of(entry),
        **_common(entry, where),
    )


def _training_quality(entry: Submission) -> QualityView:
    """The final quality of the curves, on the target's split, which is the one that stopped the runs."""
    ends = [run.curve.quality[-1] for run in entry.runs if run.curve.quality and run.status == "done"]
    found = mean_of(ends)
    inside = found.interval if found else None
    split = split_of(entry.target.split)
    tested = any("test" in run.test_quality for run in entry.runs)
    signature = options_of(entry).get("signature")
    return QualityView(
        metric=entry.target.metric,
        value=found.value if found else None,
        low=inside.low if inside else None,
        high=inside.high if inside else None,
        target=entry.target.threshold,
        direction=entry.target.direction,
        split=split,
        stopping_split=split,
        test_looks=1 if tested and split != "test" else None,
        signature=signature if isinstance(signature, str) else None,
    )


def _summaries(scored: EntryScore | None, rules: Ruleset | None, side: Side) -> list[Summarised]:
    if scored is None or rules is None or scored.n < 2 or scored.time.value is None:
        return []
    rule = rules.aggregation.rule
    return [
        Summarised(
            what=f"time to accuracy of {side.name}",
            of="times",
            by={"first-run": None, "mean-test": "arithmetic", "median": "median", "olympic": "olympic"}[rule],
            n=scored.n,
            value=scored.time.value,
            interval=side.interval,
            interval_by=scored.time.how.rpartition("; ")[2] if side.interval else None,
            deterministic=False,
            raw_available=True,
            where=side.where,
        )
    ]


_ARCHIVES = (".tar", ".tar.gz", ".tgz")


def read_mlperf(path: str | Path, problems: list[LevelbenchError] | None = None) -> list[Claim]:
    """The claims in one log, in a folder of results including its subfolders, or in a tar archive of one.

    ``problems`` collects what cannot be read; without it the first problem is raised.
    """
    path = Path(path)
    if path.is_file() and not path.name.endswith(_ARCHIVES):
        entry = submission_of([read_log(path)], file=path.name)
        return [submission_claim(entry, str(path), read_from="mlperf")]
    entries, unread = read_results(path)
    do = "correct or remove the file"
    faults: list[LevelbenchError] = [RecordError(f"reading {path}", text, do) for text in unread]
    if problems is not None:
        problems += faults
    elif faults:
        raise faults[0]
    found = []
    for entry in entries:
        place = path / entry.origin.file if entry.origin and path.is_dir() else path
        found.append(submission_claim(entry, str(place), read_from="mlperf"))
    return found


def remarks_on_entry(entry: Submission, where: str, known: Mapping[str, Ruleset] | None = None) -> Remarks:
    """The linter's remarks on an entry whose rules are among ``known`` (default: the shipped ones)."""
    return remarks_on_claim(submission_claim(entry, where, known))
