"""Summarises the records of a network benchmark: latency, memory, overhead and breakdown by case and arm.

The replicate is the process: each process gives one value per figure, and everything is computed from these values.
Each arm is compared with the first; in several cases FASTER and SLOWER must survive Holm's correction.

The breakdown has a row for each operator and for each type of operator, with its share, rate and ceiling. Shares refer
to the sum of all operators, each by the median of its times in a process, so they add up to one whatever the clock
around each operator costs. The rest of the whole is the framework's overhead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any

import numpy as np

from levelbench.measure.statistics import Estimate, arithmetic_mean, estimate, estimate_signed
from levelbench.measure.statistics.intervals import quantile_estimate, values_needed
from levelbench.measure.verdict import Verdict
from levelbench.records.doubts import process_doubts
from levelbench.records.figures import (
    ABOVE,
    ArmTotal,
    CeilingShare,
    Figure,
    arm_differences,
    exceeded,
    figure_of,
    judged,
    largest_ceilings,
    measured,
    planned_effect,
    rate,
    share_of,
    starts_of,
    total_of,
    worst_status,
)
from levelbench.records.networks import PHASES, NetworkArm, NetworkCase, NetworkFacts, NetworkRecord, OperatorSamples

__all__ = ["QUANTILES", "NetworkEntry", "NetworkSummary", "OperatorRow", "ProfileRow", "Quantile", "by_node"]
__all__ += ["by_type", "latency_quantiles", "overhead", "phases", "profile_rows", "summarise_networks"]
__all__ += ["throughput"]


@dataclass(frozen=True)
class OperatorRow:
    """One operator, or all of a type: ``time`` in seconds per call of the network, over the processes.

    ``index`` is the index among the network's nodes (-1 if it is not a node, or for a type), ``output`` the name of its
    first output (empty for a type), ``calls`` the number of operators, ``share`` their share of the sum of all
    operators. ``flops`` and ``bytes`` are ``None`` if unknown for one of them.
    """

    type: str
    index: int
    output: str
    calls: int
    time: Estimate
    share: float
    flops: float | None
    bytes: float | None
    ceiling: CeilingShare | None

    @property
    def flop_s(self) -> float | None:
        """Floating-point operations per second."""
        return self.flops / self.time.value if self.flops and self.time.value > 0 else None

    @property
    def bytes_s(self) -> float | None:
        """Compulsory bytes per second."""
        return self.bytes / self.time.value if self.bytes and self.time.value > 0 else None


@dataclass(frozen=True)
class ProfileRow:
    """The share of a type of operator, by our clock and by the framework's profiler, as means over processes."""

    type: str
    ours: float
    theirs: float
    method: str


Key = tuple[str, int, str]


def by_node(
    records: Sequence[NetworkRecord], dtype: str, ceilings: Mapping[str, object], level: float = 0.95
) -> tuple[OperatorRow, ...]:
    """One row per operator, slowest first."""
    return _rows(records, lambda each: (each.title, each.index, each.output), dtype, ceilings, level)


def by_type(
    records: Sequence[NetworkRecord], dtype: str, ceilings: Mapping[str, object], level: float = 0.95
) -> tuple[OperatorRow, ...]:
    """One row per type of operator, slowest first."""
    return _rows(records, lambda each: (each.title, -1, ""), dtype, ceilings, level)


def _rows(
    records: Sequence[NetworkRecord], key: Any, dtype: str, ceilings: Mapping[str, Any], level: float
) -> tuple[OperatorRow, ...]:
    times: dict[Key, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    members: dict[Key, list[OperatorSamples]] = defaultdict(list)
    for record in records:
        first = record is next((each for each in records if each.operators), None)
        for each in record.operators:
            times[key(each)][record.header.seed] += float(np.median(each.times_s))
            if first:
                members[key(each)].append(each)
    # fsum, since sum rounds differently from Python 3.12 on: shares must not depend on the version.
    sums = {record.header.seed: fsum(t.get(record.header.seed, 0.0) for t in times.values()) for record in records}
    whole = fsum(sums.values())
    rows = []
    for name, spent in times.items():
        values = list(spent.values())
        choose = estimate if all(value > 0 for value in values) else estimate_signed
        time = choose(values, level)
        flops, moved = _sum([each.flops for each in members[name]]), _sum([each.bytes for each in members[name]])
        share = fsum(values) / whole if whole > 0 else 0.0
        ceiling = share_of(flops, moved, time.value, dtype, ceilings)
        rows.append(OperatorRow(*name, len(members[name]), time, share, flops, moved, ceiling))
    return tuple(sorted(rows, key=lambda row: -row.time.value))


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def profile_rows(records: Sequence[NetworkRecord]) -> tuple[ProfileRow, ...]:
    """Shares by type, ours and the profiler's, over the processes that have both; largest first."""
    ours: dict[str, list[float]] = defaultdict(list)
    theirs: dict[str, list[float]] = defaultdict(list)
    both = [(each, each.profile) for each in records if each.operators and each.profile and each.profile.shares]
    for record, profile in both:
        spent: dict[str, float] = defaultdict(float)
        for each in record.operators:
            spent[each.title] += float(np.median(each.times_s))
        whole = sum(spent.values())
        for name in sorted({*spent, *profile.shares}):
            ours[name].append(spent.get(name, 0.0) / whole if whole > 0 else 0.0)
            theirs[name].append(profile.shares.get(name, 0.0))
    method = both[0][1].method if both else ""
    rows = [ProfileRow(name, sum(ours[name]) / len(both), sum(theirs[name]) / len(both), method) for name in ours]
    return tuple(sorted(rows, key=lambda row: -row.ours))


QUANTILES = (0.5, 0.9, 0.99)
_FAR_SHARES = 0.10
_FEWER = 4.0
"""How many times fewer operations than counted a convolution may need: Winograd's F(4x4, 3x3)."""


@dataclass(frozen=True)
class Quantile:
    """The ``q`` quantile of the latency in seconds; if ``estimate`` is ``None``, ``reason`` says why."""

    q: float
    estimate: Estimate | None
    reason: str = ""


@dataclass(frozen=True)
class NetworkEntry:
    """One case on one arm.

    ``status`` is the worst over the processes (``measured`` if all is well); ``reason`` explains any other. ``samples``
    holds the raw latencies in seconds by process, ``times_s`` their medians, ``latency`` their quantiles 0.5, 0.9 and
    0.99. ``memory`` is in bytes, ``phases`` and ``overhead`` in seconds; ``overhead_share`` is a share of the whole.
    ``operators`` has one row per node and ``types`` one per type of operator, slowest first; if the mode has no
    operators, both are empty and ``operators_reason`` says so. ``profile`` compares their shares with the framework's
    own profiler. ``share`` is that of the whole network's ceiling. ``verdict`` compares medians with the first arm's,
    after Holm's correction.
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
    share: CeilingShare | None
    verdict: Verdict | None = None

    @property
    def flop_s(self) -> float | None:
        """Floating-point operations per second at the median latency."""
        middle = self.latency[0].estimate
        return self.facts.flops / middle.value if self.facts.flops and middle is not None else None


@dataclass(frozen=True)
class NetworkSummary:
    """``rows`` holds, for each case, one entry per arm, in the order of ``arms``; ``processes`` counts them by arm."""

    title: str
    arms: tuple[NetworkArm, ...]
    rows: tuple[tuple[NetworkCase, tuple[NetworkEntry, ...]], ...]
    totals: tuple[ArmTotal, ...]
    ceilings: Mapping[str, Any]
    processes: tuple[int, ...]
    direction: str
    level: float
    margin: float
    suspect: tuple[str, ...] = ()


def summarise_networks(
    grid: Sequence[Sequence[Sequence[NetworkRecord]]], level: float = 0.95, margin: float = 0.02
) -> NetworkSummary:
    """``grid[case][arm]`` holds complete records, one per process; the first arm is the baseline.

    Every case has the same arms and, for each of them, at least one record, all of one specification.
    """
    specification = grid[0][0][0].header.specification
    arms = tuple(place[0].header.specification.arm for place in grid[0])
    cases = tuple(row[0][0].header.specification.case for row in grid)
    ceilings = largest_ceilings([record.header.ceilings for row in grid for place in row for record in place])
    rows = [[_entry(case, place, ceilings, level) for place in row] for case, row in zip(cases, grid, strict=True)]
    effect = planned_effect(record for row in grid for place in row for record in place)
    starts = [[starts_of(row[at]) for row in grid] for at in range(len(arms))]
    columns = judged([list(column) for column in zip(*rows, strict=True)], starts, level, margin, "cases", effect)
    titles = [arm.title for arm in arms]
    # When each process number first measured any of the cases.
    started = [{seed: min(s[seed] for s in arm if seed in s) for s in arm for seed in s} for arm in starts]
    measured_by = [[record for row in grid for record in row[at]] for at in range(len(arms))]
    return NetworkSummary(
        title=specification.title,
        arms=arms,
        rows=tuple((case, tuple(column[at] for column in columns)) for at, case in enumerate(cases)),
        totals=tuple(
            total_of(title, columns[0], column, (started[0], own), level, margin, effect)
            for title, column, own in zip(titles, columns, started, strict=True)
        ),
        ceilings=ceilings,
        processes=tuple(max(len(row[at]) for row in grid) for at in range(len(arms))),
        direction=specification.direction,
        level=level,
        margin=margin,
        suspect=(
            *process_doubts(titles, measured_by),
            *arm_differences(
                titles,
                [_threads(records) for records in measured_by],
                [list(each.values()) for each in started],
            ),
            *_profiled(titles, columns),
            *_unchecked(titles, cases, columns),
            *exceeded(columns),
        ),
    )


def _entry(
    case: NetworkCase, place: Sequence[NetworkRecord], ceilings: Mapping[str, object], level: float
) -> NetworkEntry:
    records = sorted(place, key=lambda each: each.header.seed)
    outcomes = [record.outcome for record in records if record.outcome is not None]
    taken = ((record.header.seed, record.samples.get("latency", ())) for record in records)
    samples = {seed: values for seed, values in taken if len(values)}
    status, reason = worst_status([(each.status, each.reason) for each in outcomes], len(samples))
    facts = next((record.facts for record in records if record.facts.mode), NetworkFacts())
    checked = next((each for each in outcomes if each.checked), None)
    latency = latency_quantiles(samples, level)
    whole, share = overhead(records, level)
    nodes = by_node(records, facts.dtype, ceilings, level)
    profiled = next((record.profile for record in records if record.profile is not None), None)
    middle = latency[0].estimate
    # Of a framework's own model only the operations are counted.
    moved = 0.0 if case.kind == "native" and facts.bytes is None else facts.bytes
    roof = None if middle is None else share_of(facts.flops, moved, middle.value, facts.dtype, ceilings)
    if case.kind == "native" and roof is not None and roof.value > ABOVE * _FEWER:
        found = f"it lies above the measured ceiling, by {roof.value:.3g} times, so its time is not that of its work"
        again = "or the machine was busy when the ceiling was measured: measure again with --fresh"
        status, reason, samples = "refused", f"{found}; {again}", {}
        roof, latency = None, latency_quantiles({}, level)
    return NetworkEntry(
        status=status,
        reason=reason,
        facts=facts,
        samples=samples,
        times_s={seed: float(np.median(values)) for seed, values in samples.items()},
        latency=latency,
        throughput=throughput(samples, case.batch, level),
        memory=_measured(records, "peak_memory", "B", level),
        phases=phases(records, level),
        overhead=whole,
        overhead_share=share,
        operators=nodes,
        types=by_type(records, facts.dtype, ceilings, level),
        operators_reason="" if nodes else whole.reason,
        profile=profile_rows(records),
        profile_method=profiled.method if profiled is not None else "",
        profile_reason=profiled.reason if profiled is not None else "the profiler was not used",
        errors=checked.errors if checked is not None else {},
        checked=checked.checked if checked is not None else "",
        share=roof,
    )


def latency_quantiles(samples: Mapping[int, Sequence[float]], level: float = 0.95) -> tuple[Quantile, ...]:
    """The ``QUANTILES`` of raw latencies, given by process."""
    return tuple(_quantile(q, samples, level) for q in QUANTILES)


def _quantile(q: float, samples: Mapping[int, Sequence[float]], level: float) -> Quantile:
    if not samples:
        return Quantile(q, None, "no latency was taken")
    if q == 0.5 and (len(samples) > 1 or len(next(iter(samples.values()))) < values_needed(q, level)):
        # The median of a process is used as one value, so it needs no interval.
        return Quantile(q, estimate([float(np.median(values)) for values in samples.values()], level))
    own = [quantile_estimate(values, q, level) for values in samples.values()]
    found = [each for each in own if each is not None]
    if len(found) < len(own):
        fewest = min(len(values) for values in samples.values())
        return Quantile(q, None, f"not enough samples: {fewest} in a process, {values_needed(q, level)} are needed")
    return Quantile(q, found[0] if len(found) == 1 else estimate([each.value for each in found], level))


def throughput(samples: Mapping[int, Sequence[float]], batch: int, level: float = 0.95) -> Figure:
    """Samples per second: the batch divided by the mean latency, so the harmonic mean of the rates of a process."""
    rates = {seed: batch / arithmetic_mean(values) for seed, values in samples.items()}
    method = "batch / mean latency, per process" if rates else ""
    return rate(rates, "samples/s", level=level, reason="no latency was taken", method=method)


def phases(records: Sequence[NetworkRecord], level: float = 0.95) -> dict[str, Figure]:
    """Seconds of each phase in ``PHASES``, then of ``compile`` and ``cold_start``.

    ``compile`` is the first call minus a warm one (the process's median), but at least zero. ``cold_start`` is the sum
    of all phases, from a running Python to the first result.
    """
    found = {name: _measured(records, f"phase/{name}", "s", level) for name in PHASES}
    compiled, cold = {}, {}
    for record in records:
        seed = record.header.seed
        spent = [found[name].values.get(seed) for name in PHASES]
        known = [each for each in spent if each is not None]
        if len(known) == len(PHASES):
            cold[seed] = sum(known)
        warm = record.samples.get("latency")
        if seed in found["first"].values and warm is not None and len(warm):
            compiled[seed] = max(0.0, found["first"].values[seed] - float(np.median(warm)))
    found["compile"] = figure_of(
        compiled,
        "s",
        level=level,
        reason="no warm call was timed",
        method="first call - median of warm ones",
        signed=True,
    )
    method = " + ".join(PHASES)
    found["cold_start"] = figure_of(cold, "s", level=level, reason="a phase is missing", method=method, signed=False)
    return found


def overhead(records: Sequence[NetworkRecord], level: float = 0.95) -> tuple[Figure, Figure]:
    """The framework's overhead in seconds and as a share of the whole, computed in each process.

    It is the median of the whole minus the sum of the operators' medians. Operators are timed one at a time, so it is
    negative if the framework runs the whole faster than its parts.
    """
    seconds, shares = {}, {}
    for record in records:
        whole = record.samples.get("latency")
        if record.operators and whole is not None and len(whole):
            median = float(np.median(whole))
            parts = sum(float(np.median(each.times_s)) for each in record.operators)
            seconds[record.header.seed] = median - parts
            shares[record.header.seed] = (median - parts) / median
    method = "median of the whole - sum of the operators' medians"
    outcomes = [record.outcome for record in records if record.outcome is not None]
    reason = next((each.operators_reason for each in outcomes if each.operators_reason), "no operator was timed")
    return (
        figure_of(seconds, "s", level=level, reason=reason, method=method, signed=True),
        figure_of(shares, "1", level=level, reason=reason, method=method, signed=True),
    )


def _measured(records: Sequence[NetworkRecord], name: str, unit: str, level: float) -> Figure:
    return measured(((each.header.seed, each.measurements) for each in records), name, unit, level)


def _threads(records: Sequence[NetworkRecord]) -> int | None:
    return next((each.facts.framework["threads"] for each in records if each.facts.framework.get("threads")), None)


def _unchecked(
    titles: Sequence[str], cases: Sequence[NetworkCase], columns: Sequence[Sequence[NetworkEntry]]
) -> list[str]:
    """Doubts about frameworks' own models whose timed results were not compared with anything."""
    found = {
        f"{title}: its timed results were {entry.checked}: they may be remembered ones"
        for title, column in zip(titles, columns, strict=True)
        for case, entry in zip(cases, column, strict=True)
        if case.kind == "native" and entry.status == "measured" and entry.checked.startswith("not checked")
    }
    return sorted(found)


def _profiled(titles: Sequence[str], columns: Sequence[Sequence[NetworkEntry]]) -> list[str]:
    """Doubts about shares that differ by more than ten points between our clock and the framework's profiler."""
    found = []
    for title, column in zip(titles, columns, strict=True):
        far = [row for entry in column for row in entry.profile if abs(row.ours - row.theirs) > _FAR_SHARES]
        if far:
            worst = max(far, key=lambda row: abs(row.ours - row.theirs))
            shares = f"{worst.type} takes {worst.ours:.0%} by our clock and {worst.theirs:.0%} by {worst.method}"
            found.append(f"{title}: {shares}: be careful with the breakdown")
    return found
