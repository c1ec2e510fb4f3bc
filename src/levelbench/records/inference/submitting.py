"""From records of inference to what an entry of a leaderboard states.

The one idea: an entry names the digest of the record that it was made from, so all of its figures are those of one
process: of several, the one in the middle.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from levelbench.errors import RecordError
from levelbench.measure.statistics.early_stopping import nearest_rank, stream_estimate
from levelbench.records.inference.figures import QUANTILES, score
from levelbench.records.inference.files import InferenceRecord
from levelbench.records.submissions.schema import Inference

__all__ = ["submitted"]


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
