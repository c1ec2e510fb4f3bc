"""What transforms did, in lines: the proof that results are the same, the memory they saved and the time they cost."""

from __future__ import annotations

from levelbench.records.network_summary import NetworkEntry, NetworkSummary
from levelbench.records.networks import NetworkArm
from levelbench.report.cells import error_text
from levelbench.report.figures.memory_curve import memory_limit
from levelbench.report.levels.networks import arm_label, case_label
from levelbench.report.numbers import BYTES, estimate_text, number

__all__ = ["transform_lines"]


def transform_lines(summary: NetworkSummary) -> list[str]:
    """A line for each transformed arm and case, against the same framework without the transforms."""
    lines = []
    for at, arm in enumerate(summary.arms):
        base = _base(summary.arms, arm)
        if base is None:
            continue
        for case, entries in summary.rows:
            said = _said(arm, entries[at], entries[base])
            if said:
                lines.append(f"{arm_label(arm)}, {case_label(case)}: {'; '.join(said)}")
    return lines


def _base(arms: tuple[NetworkArm, ...], arm: NetworkArm) -> int | None:
    """The place of the arm without transforms that ``arm`` is measured beside."""
    plain = NetworkArm(arm.framework, arm.mode, arm.device)
    return arms.index(plain) if arm.transforms and plain in arms else None


def _said(arm: NetworkArm, entry: NetworkEntry, base: NetworkEntry) -> list[str]:
    if entry.latency[0].estimate is None:
        return []
    said = [_proof(entry)]
    before, after = base.memory.estimate, entry.memory.estimate
    if before is not None and after is not None:
        change = (after.value - before.value) / before.value
        said.append(f"peak memory {_bytes(before.value)} → {_bytes(after.value)} ({change:+.0%})")
        limit = memory_limit(arm)
        if limit is not None:
            inside = "inside" if after.value <= limit else "BEYOND"
            said.append(f"{inside} its limit of {_bytes(limit)}")
    first, second = base.latency[0].estimate, entry.latency[0].estimate
    if first is not None and second is not None:
        said.append(f"time × {number(second.value / first.value)}")
    return said


def _proof(entry: NetworkEntry) -> str:
    """What was compared is the reference's result of the network without the transforms."""
    if entry.status == "wrong":
        return f"WRONG against the network as it was: {entry.reason}"
    known = [f"{kind} off by {error_text(value).text}" for kind, value in entry.errors.items() if value is not None]
    if not known:
        return "not compared with the network as it was"
    return f"against the reference of the network as it was: {', '.join(known)}"


def _bytes(count: float) -> str:
    return estimate_text(count, None, None, BYTES)
