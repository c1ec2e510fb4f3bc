"""Inference as JSON: everything that the table shows, and each process's figures; docs/inference.md has the keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from msgspec import to_builtins

from levelbench.records.figures import Figure
from levelbench.records.inference import InferenceRecord
from levelbench.records.inference_summary import InferenceEntry, InferenceSummary, scored_by

__all__ = ["inference_json"]


def inference_json(summary: InferenceSummary, arms: Sequence[Sequence[InferenceRecord]]) -> dict[str, Any]:
    """The summary; raw latencies are in the records, whose paths are given."""
    specification = summary.specification
    return {
        "title": summary.title,
        "scenario": to_builtins(specification.scenario),
        "model": to_builtins(specification.model),
        "data": to_builtins(specification.data),
        "preprocessing": specification.preprocessing,
        "seed": specification.seed,
        "level": summary.level,
        "margin": summary.margin,
        "verdict_of": scored_by(specification.scenario),
        "price": None if summary.price is None else asdict(summary.price),
        "demand": asdict(summary.demand),
        "suspect": list(summary.suspect),
        "results": [
            {**_entry(entry), "records": [str(each.path) for each in records]}
            for entry, records in zip(summary.entries, arms, strict=True)
        ],
    }


def _entry(entry: InferenceEntry) -> dict[str, Any]:
    return {
        "arm": {"title": entry.arm.title, **to_builtins(entry.arm)},
        "status": entry.status,
        "reason": entry.reason,
        "facts": to_builtins(entry.facts),
        "processes": entry.processes,
        "queries": list(entry.queries),
        "latency_s": {f"p{q * 100:g}": _figure(each) for q, each in entry.quantiles},
        "mean_latency_s": _figure(entry.mean),
        "early_stopping_s": _figure(entry.estimate),
        "throughput_per_s": _figure(entry.throughput),
        "target_per_s": _figure(entry.target_rate),
        "lateness_p99_s": _figure(entry.lateness),
        "peak_memory_bytes": _figure(entry.memory),
        "phases_s": {name: _figure(each) for name, each in entry.phases},
        "usd_per_million": None if entry.cost is None else asdict(entry.cost),
        "valid": entry.valid,
        "not_valid_because": list(entry.reasons),
        "accuracy": None if entry.accuracy is None else to_builtins(entry.accuracy),
        "quality": asdict(entry.quality),
        "audits": [to_builtins(each) for each in entry.audits],
        "rates_tried": [to_builtins(each) for each in entry.peaks],
        "thinned": entry.thinned,
        "verdict": None if entry.verdict is None else asdict(entry.verdict),
    }


def _figure(figure: Figure) -> dict[str, Any]:
    return {
        "values": {str(seed): value for seed, value in figure.values.items()},
        "estimate": None if figure.estimate is None else asdict(figure.estimate),
        "reason": "" if figure.estimate is not None else figure.reason,
    }
