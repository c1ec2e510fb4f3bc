"""Makes entries of records of inference, and finds the ceiling that was measured of a machine.

An entry names the digest of the record that it was made from, so all figures of a measurement are those of one process:
of several, the one in the middle.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from levelbench.competition.entries import SUBMISSION_SCHEMA, Inference, Setting, Submission
from levelbench.competition.making import Terms, code_of, division_of, hardware_of, left_out, provenance_of
from levelbench.competition.rulesets import task_rules
from levelbench.errors import IncomparableError, LevelbenchError, RecordError, UsageError
from levelbench.measure.environment import machine_of
from levelbench.measure.statistics.early_stopping import nearest_rank, stream_estimate
from levelbench.records.benchmarks import FOLDER as OPERATORS
from levelbench.records.inference import InferenceRecord, InferenceSpecification, other_seeds
from levelbench.records.inference_summary import QUANTILES, score
from levelbench.records.networks import FOLDER as NETWORKS
from levelbench.records.reader import open_record, read_line
from levelbench.records.schema import DatasetFacts
from levelbench.report.numbers import plural


def make_inference(records: Sequence[InferenceRecord], terms: Terms, store: Path | None = None) -> Submission:
    """The entry of ``records``, which are of one specification on one machine.

    ``store`` is searched for the same under other seeds of the queries.

    Raises ``UsageError`` for a network that is no task's, or whose task the ruleset does not have for inference, and
    ``IncomparableError`` for records of two kinds or machines.
    """
    first = records[0]
    specification, environment, rules = first.header.specification, first.header.environment, terms.ruleset
    if len({(each.header.key, machine_of(each.header.environment)) for each in records}) > 1:
        found = "they are of two specifications or machines"
        raise IncomparableError(f"an entry of {len(records)} records of inference", found, "make an entry of each")
    task = specification.model.task
    known = task_rules(rules, task) if task else None
    if known is None or known.inference is None:
        found = f"{specification.title} is not a task that {rules.id} has for inference"
        do = "measure a task's network, or choose another --ruleset"
        raise UsageError("an entry of inference", found, do)
    code, remarks = code_of([each.header.environment for each in records], terms.code_url)
    device, measured = specification.arm.device, list[Inference]()
    for each in sorted(records, key=lambda record: (record.header.seed, record.header.started, record.header.id)):
        with suppress(RecordError):
            measured.append(submitted([each]))
    ended = [f"Of {len(records)} processes {len(measured)} came to their end."] * (len(measured) < len(records))
    measured = measured or [submitted(records)]
    # How often the same was measured with other seeds of the queries: an entry may be the best of them.
    others = other_seeds(store, specification) if store is not None else {}
    if others:
        more, seeds = plural(sum(others.values()), "more process", "more processes"), plural(len(others), "other seed")
        ended.append(f"The store has {more} of the same measurement, under {seeds} of the queries.")
    return Submission(
        schema=SUBMISSION_SCHEMA,
        ruleset=rules.id,
        task=known.task,
        mode="inference",
        author=terms.author,
        submitted=terms.submitted,
        model=terms.model or specification.model.recipe or specification.model.name,
        framework=specification.arm.framework,
        hardware=hardware_of(environment, device, terms.hardware),
        target=known.target,
        division=division_of(terms),
        code=code,
        price=terms.price,
        inference=measured,
        tuning=terms.tuning,
        settings={**_settings(specification), **terms.settings},
        provenance=provenance_of(
            environment,
            version=first.header.version,
            data=DatasetFacts(
                specification.data.name, {}, dict(first.facts.checksums), "", "", bool(first.facts.synthetic)
            ),
        ),
        notes="\n".join([*left_out(terms), *ended, *remarks, *([terms.notes] if terms.notes else [])]),
    )


def _settings(specification: InferenceSpecification) -> dict[str, Setting]:
    """The recipe's settings, and how it was measured."""
    model, arm, scenario = specification.model, specification.arm, specification.scenario
    own: dict[str, Setting | None] = {
        **model.settings,
        "recipe": model.recipe,
        "device": arm.device,
        "mode": arm.mode or None,
        "threads": arm.threads,
        "preprocessing": specification.preprocessing,
        "workers": scenario.workers,
        "model_digest": model.digest or None,
        "trained_by": model.run or None,
        "trained_record": model.run_digest or None,
    }
    return {name: value for name, value in own.items() if value is not None}


_NEWEST = 200
"""So many records are looked at, the newest: one measurement has a record for each process."""


_HALF = {"bfloat16", "float16"}


class MeasuredCeiling(Struct, frozen=True):
    """Operations a second, in which precision, and the id of the record that says so."""

    flop_s: float
    precision: str
    record: str


class _Arm(Struct, frozen=True):
    device: str = ""


class _Specification(Struct, frozen=True):
    device: str = ""
    arm: _Arm = _Arm()


class _Rate(Struct, frozen=True):
    value: float


class _Ceilings(Struct, frozen=True):
    flop_s: dict[str, _Rate] = {}


class _Head(Struct, frozen=True):
    id: str
    specification: _Specification
    environment: dict[str, Any]
    ceilings: _Ceilings = _Ceilings()


_DECODER = msgspec.json.Decoder(_Head)


def measured_ceiling(
    store: Path, environment: Mapping[str, object], device: str, precision: str = "float32"
) -> MeasuredCeiling | None:
    """The highest that records in ``store`` have of this machine and device, in any precision.

    ``None`` unless the fastest that may have run is among them: ``precision`` on a processor, elsewhere one of 16 bits,
    since an accelerator may take it without being asked. What cannot be read is passed over.
    """
    wanted, dated, heads = _place(environment), [], []
    for path in (path for folder in (NETWORKS, OPERATORS) for path in (store / folder).glob("*/*/*.jsonlines")):
        with suppress(OSError):
            dated.append((os.lstat(path).st_mtime_ns, path))
    for _, path in sorted(dated, reverse=True)[:_NEWEST]:
        with suppress(LevelbenchError, msgspec.MsgspecError, UnicodeDecodeError), open_record(path, str(path)) as file:
            heads.append(_DECODER.decode(read_line(file, 1, str(path))))
    found = [
        MeasuredCeiling(rate.value, precision, head.id)
        for head in heads
        if (head.specification.device or head.specification.arm.device) == device and _place(head.environment) == wanted
        for precision, rate in head.ceilings.flop_s.items()
        if math.isfinite(rate.value) and rate.value > 0
    ]
    fastest = {precision} if device == "cpu" else _HALF
    if fastest.isdisjoint(each.precision for each in found):
        return None
    return max(found, key=lambda each: each.flop_s)


def _place(environment: Mapping[str, object]) -> tuple[str, object, object]:
    """The machine, how many of its cores may be used (a container or ``taskset`` says), and the settings of threads.

    Of threads what was set, not what was loaded: that differs with the framework.
    """
    machine, threads = environment.get("machine"), environment.get("threads")
    cores = machine.get("cores_allowed") if isinstance(machine, Mapping) else None
    settings = threads.get("settings") if isinstance(threads, Mapping) else None
    return machine_of(environment), cores, settings or {}


def submitted(records: Sequence[InferenceRecord]) -> Inference:
    """The measurement whose score (the one that the verdict compares) is the lower median of the processes'.

    Give one record to submit that one. Raises ``RecordError`` where none came to its end with latencies.
    """
    scored = []
    for each in records:
        found = score(each, each.header.specification.scenario)
        measured = each.outcome is not None and each.outcome.status == "measured"
        if each.status == "done" and measured and found is not None:
            scored.append((found, each.header.seed, each))
    if not scored:
        found_words = f"none of {len(records)} records of inference came to its end with latencies"
        raise RecordError("an entry of inference", found_words, "measure again: the same command finishes them")
    ordered = sorted(scored, key=lambda one: one[:2])
    return _of(ordered[(len(ordered) - 1) // 2][2])


def _of(record: InferenceRecord) -> Inference:
    driven, accuracy = record.driven, record.accuracy
    assert driven is not None
    specification = record.header.specification
    scenario, latencies = specification.scenario, np.sort(record.latencies_s)
    streams = scenario.name in ("single-stream", "multi-stream")
    return Inference(
        scenario=scenario.name,
        queries=driven.queries,
        samples=driven.samples,
        duration_s=driven.duration_s,
        mean_latency_s=float(latencies.mean()),
        quantiles_s={f"{q:g}": nearest_rank(latencies, q) for q in QUANTILES},
        estimate_s=stream_estimate(latencies, scenario.quantile).value if streams else None,
        estimate_quantile=scenario.quantile if streams else None,
        throughput_per_s=driven.throughput_per_s,
        target_per_s=driven.target_per_s,
        latency_bound_s=scenario.bound_s,
        valid=driven.valid,
        quality=accuracy.value if accuracy is not None else None,
        quality_samples=accuracy.examples if accuracy is not None and accuracy.value is not None else None,
        batch=scenario.batch,
        includes=list(record.facts.includes),
        audits={each.name: each.passed for each in record.audits},
        record_id=record.header.id,
        record_digest=hashlib.sha256(record.path.read_bytes()).hexdigest(),
    )
