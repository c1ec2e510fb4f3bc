"""The parts of a claim that an entry of a leaderboard states: hardware, data, size of a step, setup, runs.

The one idea: an entry that was made of our records states what they hold; another's states what its format had a place
for, and its free text is not read for more.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from levelbench.claims.reading.run_sides import batch_of, rate_of
from levelbench.claims.view import CurveView, DataView, HardwareView, RunView, Setup, WorkloadView
from levelbench.competition.entries import Submission, SubmittedRun

__all__ = ["data_of", "hardware_of", "is_ours", "options_of", "runs_of", "setup_of", "workload_of"]

_JSON = ":json"
_LONGEST = 1 << 16


def is_ours(entry: Submission) -> bool:
    """Whether it was made of records: every run (or measurement) names one."""
    digests = [run.record_digest for run in entry.runs] + [each.record_digest for each in entry.inference]
    return entry.origin is None and bool(digests) and all(digests)


def options_of(entry: Submission) -> dict[str, Any]:
    """Settings by name; those inside of an object that another format nests, too."""
    found: dict[str, Any] = {}
    for name, value in (entry.origin.fields if entry.origin else {}).items():
        if name.endswith(_JSON) and isinstance(value, str) and len(value) <= _LONGEST:
            nested = _parsed(value)
            if isinstance(nested, dict):
                found |= {key: each for key, each in nested.items() if isinstance(each, int | float | str)}
    return {**found, **entry.settings}


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def hardware_of(entry: Submission) -> HardwareView:
    """As stated, with the price; "not stated" in words is not stated."""
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
    """Which data it was, and which share of the time waited for it, where phases are there."""
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
    """Batch, learning rate, and how many samples the runs took to the end of their curves."""
    options = options_of(entry)
    batch = batch_of(options)
    samples = [run.curve.samples[-1] for run in entry.runs if run.curve.samples]
    typical = math.fsum(samples) / len(samples) if samples else None
    ranks = options.get("ranks")
    return WorkloadView(
        global_batch=batch,
        ranks=ranks if isinstance(ranks, int) and not isinstance(ranks, bool) else None,
        samples_to_target=typical,
        learning_rate=rate_of(options),
    )


def setup_of(entry: Submission) -> Setup:
    """What speed and quality were both measured with: they are of the same runs."""
    provenance = entry.provenance
    parts = [provenance.software, provenance.environment]
    digest = hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:16]
    return Setup(
        commit=entry.code.commit,
        dirty=entry.code.dirty,
        environment=digest if provenance.software or provenance.environment else None,
        seeds=[run.seed for run in entry.runs if run.seed is not None] or None,
        options=dict(entry.settings),
    )


def runs_of(entry: Submission, times_s: Sequence[float | None], where: str) -> list[RunView]:
    """Every run with its curve; ``times_s`` are the times of their crossings under the entry's rules.

    Where the entry was read from a folder of logs, a run's place is its own log.
    """
    padded = [*times_s, *[None] * (len(entry.runs) - len(times_s))]
    logs = any(run.record_id for run in entry.runs) and Path(where).is_dir()
    return [
        _run(run, time_s, bool(times_s), where if logs else "") for run, time_s in zip(entry.runs, padded, strict=False)
    ]


def _run(run: SubmittedRun, time_s: float | None, scored: bool, folder: str) -> RunView:
    curve = run.curve
    sound = 0 < len(curve.time_s) == len(curve.quality)
    return RunView(
        time_s=time_s,
        reached=time_s is not None if scored else run.reached,
        quality=curve.quality[-1] if sound else None,
        seed=run.seed,
        failed=run.status == "failed",
        curve=CurveView(curve.time_s, curve.quality, curve.epoch, curve.samples) if sound else None,
        where=str(Path(folder, run.record_id)) if folder and run.record_id else "",
    )
