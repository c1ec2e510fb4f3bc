"""A benchmark of operators as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from levelbench.records.benchmark_summary import BenchmarkSummary, Entry

__all__ = ["summary_json"]


def summary_json(summary: BenchmarkSummary) -> dict[str, Any]:
    """Everything that the tables show, and every error and value behind it."""
    return {
        "title": summary.title,
        "direction": summary.direction,
        "cache": summary.cache,
        "device": summary.device,
        "frameworks": list(summary.frameworks),
        "processes": list(summary.processes),
        "level": summary.level,
        "margin": summary.margin,
        "ceilings": summary.ceilings,
        "suspect": list(summary.suspect),
        "problems": [
            {
                "problem": problem,
                "results": {name: _entry(entry) for name, entry in zip(summary.frameworks, entries, strict=True)},
            }
            for problem, entries in summary.rows
        ],
        "totals": [
            {"framework": total.arm, **{name: value for name, value in asdict(total).items() if name != "arm"}}
            for total in summary.totals
        ],
    }


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "status": entry.status,
        "reason": entry.reason,
        "times_s": {str(seed): value for seed, value in entry.times_s.items()},
        "time": None if entry.time is None else asdict(entry.time),
        "flops": entry.flops,
        "bytes": entry.bytes,
        "flop_s": entry.flop_s,
        "share": None if entry.share is None else asdict(entry.share),
        "errors": dict(entry.errors),
        "checked": entry.checked,
        "verdict": None if entry.verdict is None else asdict(entry.verdict),
    }
