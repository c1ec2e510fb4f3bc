"""A benchmark of a network as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from msgspec import to_builtins

from levelbench.records.figures import Figure
from levelbench.records.network_summary import NetworkEntry, NetworkSummary

__all__ = ["network_json"]


def network_json(summary: NetworkSummary) -> dict[str, Any]:
    """Everything that the tables show, every value behind it by process, and every operator."""
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
                "case": to_builtins(case),
                "results": {arm.title: _entry(entry) for arm, entry in zip(summary.arms, entries, strict=True)},
            }
            for case, entries in summary.rows
        ],
        "totals": [asdict(total) for total in summary.totals],
    }


def _entry(entry: NetworkEntry) -> dict[str, Any]:
    return {
        "status": entry.status,
        "reason": entry.reason,
        "facts": to_builtins(entry.facts),
        "samples_s": {str(seed): list(values) for seed, values in entry.samples.items()},
        "times_s": {str(seed): value for seed, value in entry.times_s.items()},
        "latency": {f"p{each.q * 100:g}": asdict(each) for each in entry.latency},
        "throughput": _figure(entry.throughput),
        "peak_memory": _figure(entry.memory),
        "phases": {name: _figure(each) for name, each in entry.phases.items()},
        "overhead": _figure(entry.overhead),
        "overhead_share": _figure(entry.overhead_share),
        "operators": [asdict(row) for row in entry.operators],
        "types": [asdict(row) for row in entry.types],
        "operators_reason": entry.operators_reason,
        "profile": [asdict(row) for row in entry.profile],
        "profile_method": entry.profile_method,
        "profile_reason": entry.profile_reason,
        "errors": dict(entry.errors),
        "checked": entry.checked,
        "flop_s": entry.flop_s,
        "share": None if entry.share is None else asdict(entry.share),
        "verdict": None if entry.verdict is None else asdict(entry.verdict),
    }


def _figure(figure: Figure) -> dict[str, Any]:
    return {**asdict(figure), "values": {str(seed): value for seed, value in figure.values.items()}}
