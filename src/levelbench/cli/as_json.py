"""Benchmarks of operators, networks and inference as JSON: what the tables show, and every value behind it.

docs/reference/inference.md lists the keys of inference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from msgspec import to_builtins

if TYPE_CHECKING:
    from levelbench.records.benchmark_summary import BenchmarkSummary, Entry
    from levelbench.records.figures import Figure
    from levelbench.records.inference import InferenceRecord
    from levelbench.records.inference_summary import InferenceEntry, InferenceSummary
    from levelbench.records.network_summary import NetworkEntry, NetworkSummary

__all__ = ["inference_json", "network_json", "operator_json"]


def operator_json(summary: BenchmarkSummary) -> dict[str, object]:
    """Everything in the tables, with every error and value behind it."""
    return {
        "title": summary.title,
        "direction": summary.direction,
        "cache": summary.cache,
        "device": summary.device,
        "frameworks": list(summary.frameworks),
        "layouts": list(summary.layouts),
        "baselines": [summary.frameworks[summary.baseline(at)] for at in range(len(summary.frameworks))],
        "processes": list(summary.processes),
        "level": summary.level,
        "margin": summary.margin,
        "ceilings": summary.ceilings,
        "suspect": list(summary.suspect),
        "problems": [
            {
                "problem": problem,
                "results": {
                    name: _operator_entry(each) for name, each in zip(summary.frameworks, entries, strict=True)
                },
            }
            for problem, entries in summary.rows
        ],
        "totals": [
            {"framework": total.arm, **{name: value for name, value in asdict(total).items() if name != "arm"}}
            for total in summary.totals
        ],
    }


def _operator_entry(entry: Entry) -> dict[str, object]:
    return {
        "status": entry.status,
        "reason": entry.reason,
        "times_s": {str(seed): value for seed, value in entry.times_s.items()},
        "time": entry.time,
        "flops": entry.flops,
        "bytes": entry.bytes,
        "flop_s": entry.flop_s,
        "share": entry.share,
        "errors": dict(entry.errors),
        "checked": entry.checked,
        "verdict": entry.verdict,
        "algorithm": entry.algorithm,
        "algorithm_reason": entry.algorithm_reason,
    }


def network_json(summary: NetworkSummary) -> dict[str, object]:
    """Everything in the tables, every value behind it by process, and every operator."""
    return {
        "title": summary.title,
        "direction": summary.direction,
        "arms": [{"title": arm.title, **to_builtins(arm)} for arm in summary.arms],
        "processes": list(summary.processes),
        "level": summary.level,
        "margin": summary.margin,
        "ceilings": summary.ceilings,
        "suspect": list(summary.suspect),
        "cases": [
            {
                "case": case,
                "results": {arm.title: _network_entry(entry) for arm, entry in zip(summary.arms, entries, strict=True)},
            }
            for case, entries in summary.rows
        ],
        "totals": list(summary.totals),
    }


def _network_entry(entry: NetworkEntry) -> dict[str, object]:
    return {
        "status": entry.status,
        "reason": entry.reason,
        "facts": entry.facts,
        "samples_s": {str(seed): list(values) for seed, values in entry.samples.items()},
        "times_s": {str(seed): value for seed, value in entry.times_s.items()},
        "latency": {f"p{each.q * 100:g}": each for each in entry.latency},
        "throughput": _figure(entry.throughput),
        "peak_memory": _figure(entry.memory),
        "phases": {name: _figure(each) for name, each in entry.phases.items()},
        "overhead": _figure(entry.overhead),
        "overhead_share": _figure(entry.overhead_share),
        "operators": list(entry.operators),
        "types": list(entry.types),
        "operators_reason": entry.operators_reason,
        "profile": list(entry.profile),
        "profile_method": entry.profile_method,
        "profile_reason": entry.profile_reason,
        "errors": dict(entry.errors),
        "checked": entry.checked,
        "flop_s": entry.flop_s,
        "share": entry.share,
        "verdict": entry.verdict,
    }


def inference_json(summary: InferenceSummary, arms: Sequence[Sequence[InferenceRecord]]) -> dict[str, object]:
    """The summary; raw latencies are in the records, whose paths are given."""
    from levelbench.records.inference_summary import scored_by

    specification = summary.specification
    return {
        "title": summary.title,
        "scenario": specification.scenario,
        "model": specification.model,
        "data": specification.data,
        "preprocessing": specification.preprocessing,
        "generation": specification.generation,
        "seed": specification.seed,
        "level": summary.level,
        "margin": summary.margin,
        "verdict_of": scored_by(specification.scenario),
        "price": summary.price,
        "demand": summary.demand,
        "suspect": list(summary.suspect),
        "results": [
            {**_inference_entry(entry), "records": [str(each.path) for each in records]}
            for entry, records in zip(summary.entries, arms, strict=True)
        ],
    }


def _inference_entry(entry: InferenceEntry) -> dict[str, object]:
    return {
        "arm": {"title": entry.arm.title, **to_builtins(entry.arm)},
        "status": entry.status,
        "reason": entry.reason,
        "facts": entry.facts,
        "processes": entry.processes,
        "queries": list(entry.queries),
        "latency_s": {f"p{q * 100:g}": _figure(each) for q, each in entry.quantiles},
        "first_token_s": {f"p{q * 100:g}": _figure(each) for q, each in entry.first_token},
        "per_token_s": {f"p{q * 100:g}": _figure(each) for q, each in entry.per_token},
        "tokens_per_s": None if entry.token_rate is None else _figure(entry.token_rate),
        "mean_latency_s": _figure(entry.mean),
        "early_stopping_s": _figure(entry.estimate),
        "throughput_per_s": _figure(entry.throughput),
        "target_per_s": _figure(entry.target_rate),
        "lateness_p99_s": _figure(entry.lateness),
        "peak_memory_bytes": _figure(entry.memory),
        "phases_s": {name: _figure(each) for name, each in entry.phases},
        "usd_per_million": entry.cost,
        "valid": entry.valid,
        "not_valid_because": list(entry.reasons),
        "accuracy": entry.accuracy,
        "quality": entry.quality,
        "audits": list(entry.audits),
        "rates_tried": list(entry.peaks),
        "thinned": entry.thinned,
        "verdict": entry.verdict,
    }


def _figure(figure: Figure) -> dict[str, object]:
    return {**asdict(figure), "values": {str(seed): value for seed, value in figure.values.items()}}
