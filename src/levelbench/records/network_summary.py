"""What the records of a network's benchmark say: by case and arm the latency, memory, overhead, and where time goes.

The replicate is the process, so each process gives one value a figure, and everything here is computed
from those. Each arm is judged against the first; over several cases FASTER and SLOWER must survive Holm's correction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from levelbench.measure.statistics import geometric_mean
from levelbench.measure.verdict import Verdict
from levelbench.records.breakdown import OperatorRow, ProfileRow, by_node, by_type, profile_rows
from levelbench.records.judging import Share, largest_ceilings, pair, planned_effect, share_of, told_doubts, verdicts
from levelbench.records.network_figures import (
    Figure,
    Quantile,
    latency_quantiles,
    memory,
    overhead,
    phases,
    throughput,
)
from levelbench.records.networks import NetworkArm, NetworkCase, NetworkFacts, NetworkRecord

__all__ = ["NetworkEntry", "NetworkSummary", "NetworkTotal", "summarise_networks"]

_WORST = ("failed", "wrong", "unsupported", "skipped")
_FAR_SHARES = 0.10
_ABOVE = 1.1


@dataclass(frozen=True)
class NetworkEntry:
    """One case on one arm.

    ``status`` is the worst over the processes (``measured`` if all is well) and ``reason`` says why it is not that.
    ``samples`` holds the raw latencies in seconds by process, ``times_s`` the median of each, ``latency`` the
    quantiles 0.5, 0.9 and 0.99. ``memory`` is in bytes, ``phases`` and ``overhead`` in seconds, ``overhead_share`` is
    of the whole. ``operators`` has one row a node, ``types`` one a type of operator, both the slowest first; both are
    empty where the mode has no operators, and ``operators_reason`` says so. ``profile`` compares their shares with the
    framework's own profiler. ``share`` is of the ceiling that is nearer, of the whole. ``verdict`` is against the first
    arm, of the medians, after Holm's correction.
    """

    status: str
    reason: str
    facts: NetworkFacts
    samples: Mapping[int, Sequence[float]]
    times_s: Mapping[int, float]
    latency: tuple[Quantile, ...]
    throughput: Figure
    memory: Figure
    phases: Mapping[str, Figure]
    overhead: Figure
    overhead_share: Figure
    operators: tuple[OperatorRow, ...]
    types: tuple[OperatorRow, ...]
    operators_reason: str
    profile: tuple[ProfileRow, ...]
    profile_method: str
    profile_reason: str
    errors: Mapping[str, float | None]
    checked: str
    share: Share | None
    verdict: Verdict | None = None

    @property
    def flop_s(self) -> float | None:
        """Floating-point operations a second at the median latency."""
        middle = self.latency[0].estimate
        return self.facts.flops / middle.value if self.facts.flops and middle is not None else None


@dataclass(frozen=True)
class NetworkTotal:
    """An arm against the first over the ``compared`` cases that both measured: geometric means, one a process."""

    arm: NetworkArm
    counts: Mapping[str, int]
    compared: int = 0
    verdict: Verdict | None = None


@dataclass(frozen=True)
class NetworkSummary:
    """``rows`` holds for each case one entry an arm, in the order of ``arms``; ``processes`` counts them by arm."""

    title: str
    arms: tuple[NetworkArm, ...]
    rows: tuple[tuple[NetworkCase, tuple[NetworkEntry, ...]], ...]
    totals: tuple[NetworkTotal, ...]
    ceilings: Mapping[str, Any]
    processes: tuple[int, ...]
    direction: str
    level: float
    margin: float
    suspect: tuple[str, ...] = ()


def summarise_networks(
    grid: Sequence[Sequence[Sequence[NetworkRecord]]], level: float = 0.95, margin: float = 0.02
) -> NetworkSummary:
    """``grid[case][arm]`` holds whole records, one a process; the first arm is the yardstick.

    Each case has the same arms. All records of one place have one specification, and there is at least one in each.
    """
    specification = grid[0][0][0].header.specification
    arms = tuple(place[0].header.specification.arm for place in grid[0])
    cases = tuple(row[0][0].header.specification.case for row in grid)
    ceilings = largest_ceilings([record.header.ceilings for row in grid for place in row for record in place])
    rows = [[_entry(case, place, ceilings, level) for place in row] for case, row in zip(cases, grid, strict=True)]
    effect = planned_effect(record for row in grid for place in row for record in place)
    columns = _judged([list(column) for column in zip(*rows, strict=True)], level, margin, effect)
    return NetworkSummary(
        title=specification.title,
        arms=arms,
        rows=tuple((case, tuple(column[at] for column in columns)) for at, case in enumerate(cases)),
        totals=tuple(
            _total(arm, columns[0], column, level, margin, effect) for arm, column in zip(arms, columns, strict=True)
        ),
        ceilings=ceilings,
        processes=tuple(max(len(row[at]) for row in grid) for at in range(len(arms))),
        direction=specification.direction,
        level=level,
        margin=margin,
        suspect=(*_doubts(arms, grid), *_unlike(arms, grid), *_profiled(arms, columns), *_exceeded(columns)),
    )


def _entry(
    case: NetworkCase, place: Sequence[NetworkRecord], ceilings: Mapping[str, Any], level: float
) -> NetworkEntry:
    records = sorted(place, key=lambda each: each.header.seed)
    outcomes = [record.outcome for record in records if record.outcome is not None]
    taken = ((record.header.seed, record.samples.get("latency", ())) for record in records)
    samples = {seed: values for seed, values in taken if len(values)}
    status, reason = _status([each.status for each in outcomes], [each.reason for each in outcomes], len(samples))
    facts = next((record.facts for record in records if record.facts.mode), NetworkFacts())
    checked = next((each for each in outcomes if each.checked), None)
    latency = latency_quantiles(samples, level)
    whole, share = overhead(records, level)
    nodes = by_node(records, facts.dtype, ceilings, level)
    profiled = next((record.profile for record in records if record.profile is not None), None)
    middle = latency[0].estimate
    return NetworkEntry(
        status=status,
        reason=reason,
        facts=facts,
        samples=samples,
        times_s={seed: float(np.median(values)) for seed, values in samples.items()},
        latency=latency,
        throughput=throughput(samples, case.batch, level),
        memory=memory(records, level),
        phases=phases(records, level),
        overhead=whole,
        overhead_share=share,
        operators=nodes,
        types=by_type(records, facts.dtype, ceilings, level),
        operators_reason="" if nodes else whole.reason,
        profile=profile_rows(records),
        profile_method=profiled.method if profiled is not None else "",
        profile_reason=profiled.reason if profiled is not None else "the profiler was not asked",
        errors=checked.errors if checked is not None else {},
        checked=checked.checked if checked is not None else "",
        share=None if middle is None else share_of(facts.flops, facts.bytes, middle.value, facts.dtype, ceilings),
    )


def _status(statuses: Sequence[str], reasons: Sequence[str], measured: int) -> tuple[str, str]:
    """The worst; what did not fit, or crashed, in some processes and not in others is said beside what was measured."""
    for worst in _WORST:
        found = [reason for status, reason in zip(statuses, reasons, strict=True) if status == worst]
        if found and worst == "skipped" and measured:
            return "measured", f"skipped in {len(found)} of {len(statuses)} processes: {found[0]}"
        if found:
            return worst, found[0]
    return ("measured", "") if statuses else ("skipped", "no process came so far")


def _judged(
    columns: list[list[NetworkEntry]], level: float, margin: float, effect: float | None
) -> list[list[NetworkEntry]]:
    """The entries with their verdicts against the first column."""
    first, judged = columns[0], [columns[0]]
    for column in columns[1:]:
        pairs = {
            at: pair(a.times_s, b.times_s, effect)
            for at, (a, b) in enumerate(zip(first, column, strict=True))
            if a.status == b.status == "measured" and a.times_s and b.times_s
        }
        found = verdicts(pairs, level, margin, "cases")
        judged.append([replace(entry, verdict=found.get(at)) for at, entry in enumerate(column)])
    return judged


def _total(
    arm: NetworkArm,
    first: Sequence[NetworkEntry],
    column: Sequence[NetworkEntry],
    level: float,
    margin: float,
    effect: float | None,
) -> NetworkTotal:
    counts = dict(Counter(entry.status for entry in column))
    shared = [(a, b) for a, b in zip(first, column, strict=True) if a.status == b.status == "measured"]
    seeds: list[int] = max((sorted(a.times_s.keys() & b.times_s.keys()) for a, b in shared), key=len, default=[])
    both = [(a, b) for a, b in shared if set(seeds) <= a.times_s.keys() & b.times_s.keys()]
    if column is first or not seeds:
        return NetworkTotal(arm, counts)
    means_a = {seed: geometric_mean([a.times_s[seed] for a, _ in both]) for seed in seeds}
    means_b = {seed: geometric_mean([b.times_s[seed] for _, b in both]) for seed in seeds}
    return NetworkTotal(arm, counts, len(both), pair(means_a, means_b, effect).verdict(margin, level))


Grid = Sequence[Sequence[Sequence[NetworkRecord]]]


def _doubts(arms: Sequence[NetworkArm], grid: Grid) -> list[str]:
    found = []
    for at, arm in enumerate(arms):
        records = [record for row in grid for record in row[at]]
        found += told_doubts(arm.title, [record.end.suspect for record in records if record.end is not None])
    return found


def _unlike(arms: Sequence[NetworkArm], grid: Grid) -> list[str]:
    """What the arms do not share: the number of threads, and the time at which they were measured."""
    found = []
    columns = [[record for row in grid for record in row[at]] for at in range(len(arms))]
    threads = [
        next((each.facts.framework["threads"] for each in records if each.facts.framework.get("threads")), None)
        for records in columns
    ]
    if len({each for each in threads if each is not None}) > 1:
        said = ", ".join(f"{arm.title} {n}" for arm, n in zip(arms, threads, strict=True) if n is not None)
        found.append(f"the frameworks use different numbers of threads ({said}): limit the cores instead (taskset)")
    starts = [sorted(record.header.started for record in records) for records in columns]
    for arm, mine in zip(arms[1:], starts[1:], strict=True):
        if min(len(mine), len(starts[0])) > 1 and (mine[-1] < starts[0][0] or starts[0][-1] < mine[0]):
            one = f"{arm.title} and {arms[0].title}"
            found.append(f"{one} were not measured side by side but one after the other: use --fresh")
    return found


def _profiled(arms: Sequence[NetworkArm], columns: Sequence[Sequence[NetworkEntry]]) -> list[str]:
    """Shares of operators on which our clock and the framework's profiler are not within ten points."""
    found = []
    for arm, column in zip(arms, columns, strict=True):
        far = [row for entry in column for row in entry.profile if abs(row.ours - row.theirs) > _FAR_SHARES]
        if far:
            worst = max(far, key=lambda row: abs(row.ours - row.theirs))
            said = f"{worst.type} takes {worst.ours:.0%} by our clock and {worst.theirs:.0%} by {worst.method}"
            found.append(f"{arm.title}: {said}: mind it when reading the breakdown")
    return found


def _exceeded(columns: Sequence[Sequence[NetworkEntry]]) -> list[str]:
    """A ceiling of arithmetic that a whole network exceeded is none."""
    shares = [entry.share for column in columns for entry in column if entry.share is not None]
    above = [share.value for share in shares if share.bound == "compute" and share.value > _ABOVE]
    if not above:
        return []
    found = f"{len(above)} results lie above the measured ceiling, by up to {max(above):.1f} times"
    return [f"{found}: it was measured while the machine was busy; measure again with --fresh"]
