"""What the records of a benchmark say: by problem and framework the time, its share of the ceiling, and the verdict.

The replicate is the process, so each process gives one value a problem, its median, and everything here
is computed from those. Over a suite, FASTER and SLOWER must survive Holm's correction for the number of problems.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from levelbench.measure.statistics import Estimate, estimate, geometric_mean
from levelbench.measure.verdict import Verdict
from levelbench.records.benchmarks import BenchmarkRecord, Case, Problem
from levelbench.records.judging import Share, largest_ceilings, pair, planned_effect, share_of, told_doubts, verdicts

__all__ = ["BenchmarkSummary", "Entry", "Share", "Total", "summarise_benchmark"]

_ABOVE = 1.1
_WORST = ("failed", "wrong", "unsupported", "skipped")


@dataclass(frozen=True)
class Entry:
    """One problem on one framework. ``times_s`` holds one median a process, by its number; empty if none was taken.

    ``status`` is the worst over the processes (``measured`` if all is well); ``reason`` says why it is not that.
    ``verdict`` is against the first framework, after Holm's correction.
    """

    status: str
    reason: str
    times_s: Mapping[int, float]
    time: Estimate | None
    flops: float | None
    bytes: float | None
    errors: Mapping[str, float | None]
    checked: str
    share: Share | None
    verdict: Verdict | None = None

    @property
    def flop_s(self) -> float | None:
        """Operations a second."""
        return self.flops / self.time.value if self.flops and self.time is not None else None


@dataclass(frozen=True)
class Total:
    """A framework against the first over the ``compared`` problems that both measured.

    ``verdict`` compares geometric means over these problems, one a process; ``kinds`` counts the problems' verdicts.
    """

    framework: str
    counts: Mapping[str, int]
    compared: int = 0
    verdict: Verdict | None = None
    kinds: Mapping[str, int] | None = None


@dataclass(frozen=True)
class BenchmarkSummary:
    """``rows`` holds for each problem one entry a framework, in the order of ``frameworks``."""

    title: str
    frameworks: tuple[str, ...]
    rows: tuple[tuple[Problem, tuple[Entry, ...]], ...]
    totals: tuple[Total, ...]
    ceilings: Mapping[str, Any]
    processes: tuple[int, ...]
    cache: str
    direction: str
    device: str
    level: float
    margin: float
    suspect: tuple[str, ...] = ()


def summarise_benchmark(
    arms: Sequence[Sequence[BenchmarkRecord]], level: float = 0.95, margin: float = 0.02
) -> BenchmarkSummary:
    """``arms`` holds for each framework its records, whole and of the same problems; the first is the yardstick."""
    specification = arms[0][0].header.specification
    ceilings = largest_ceilings([record.header.ceilings for arm in arms for record in arm])
    problems = specification.problems
    columns = [[_entry(problem, at, arm, ceilings, level) for at, problem in enumerate(problems)] for arm in arms]
    effect = planned_effect(record for arm in arms for record in arm)
    columns = [columns[0], *(_judged(columns[0], column, level, margin, effect) for column in columns[1:])]
    names = tuple(arm[0].header.specification.framework for arm in arms)
    totals = [
        _total(name, columns[0], column, level, margin, effect) for name, column in zip(names, columns, strict=True)
    ]
    return BenchmarkSummary(
        title=specification.title,
        frameworks=names,
        rows=tuple((problem, tuple(column[at] for column in columns)) for at, problem in enumerate(problems)),
        totals=tuple(totals),
        ceilings=ceilings,
        processes=tuple(len(arm) for arm in arms),
        cache=specification.cache,
        direction=specification.direction,
        device=specification.device,
        level=level,
        margin=margin,
        suspect=(
            *(doubt for name, arm in zip(names, arms, strict=True) for doubt in told_doubts(name, _suspects(arm))),
            *_unlike(names, arms),
            *_exceeded(columns),
        ),
    )


def _unlike(names: Sequence[str], arms: Sequence[Sequence[BenchmarkRecord]]) -> list[str]:
    """What the frameworks do not share: the number of threads, and the time at which they were measured."""
    found = []
    threads = [arm[0].header.environment.get("framework", {}).get("threads") for arm in arms]
    if len({each for each in threads if each is not None}) > 1:
        each = ", ".join(f"{name} {count}" for name, count in zip(names, threads, strict=True) if count is not None)
        found.append(f"the frameworks use different numbers of threads ({each}): limit the cores instead (taskset)")
    starts = [sorted(record.header.started for record in arm) for arm in arms]
    for name, mine in zip(names[1:], starts[1:], strict=True):
        if min(len(mine), len(starts[0])) > 1 and (mine[-1] < starts[0][0] or starts[0][-1] < mine[0]):
            found.append(f"{name} and {names[0]} were not measured side by side but one after the other: use --fresh")
    return found


def _suspects(arm: Sequence[BenchmarkRecord]) -> list[list[str]]:
    return [record.end.suspect if record.end is not None else [] for record in arm]


def _exceeded(columns: Sequence[Sequence[Entry]]) -> list[str]:
    """A ceiling of arithmetic that something exceeded is none."""
    shares = [
        entry.share.value for column in columns for entry in column if entry.share and entry.share.bound == "compute"
    ]
    above = [share for share in shares if share > _ABOVE]
    if not above:
        return []
    found = f"{len(above)} results lie above the measured ceiling, by up to {max(above):.1f} times"
    return [f"{found}: it was measured while the machine was busy; measure again with --fresh"]


def _entry(
    problem: Problem, at: int, arm: Sequence[BenchmarkRecord], ceilings: Mapping[str, Any], level: float
) -> Entry:
    cases = {record.header.seed: record.cases[at] for record in arm if at in record.cases}
    times = {
        record.header.seed: float(np.median(record.samples[at]))
        for record in sorted(arm, key=lambda each: each.header.seed)
        if len(record.samples.get(at, ()))
    }
    status, reason = _status(list(cases.values()), len(times))
    time = estimate(list(times.values()), level) if times else None
    last = next((case for case in cases.values() if case.flops is not None or case.bytes is not None), None)
    checked = next((case for case in cases.values() if case.checked), None)
    flops, moved = (last.flops, last.bytes) if last is not None else (None, None)
    return Entry(
        status=status,
        reason=reason,
        times_s=times,
        time=time,
        flops=flops,
        bytes=moved,
        errors=checked.errors if checked is not None else {},
        checked=checked.checked if checked is not None else "",
        share=_share(problem, flops, moved, time, ceilings),
    )


def _share(
    problem: Problem, flops: float | None, moved: float | None, time: Estimate | None, ceilings: Mapping[str, Any]
) -> Share | None:
    if time is None or not problem.tensors:
        return None
    return share_of(flops, moved, time.value, problem.tensors[0].dtype, ceilings)


def _status(cases: Sequence[Case], measured: int) -> tuple[str, str]:
    for status in _WORST:
        found = [case for case in cases if case.status == status]
        if found and (status != "skipped" or not measured):
            return status, found[0].reason
        if found:
            return "measured", f"skipped in {len(found)} of {len(cases)} processes: {found[0].reason}"
    return ("measured", "") if cases else ("skipped", "no process came so far")


def _judged(
    first: Sequence[Entry], column: Sequence[Entry], level: float, margin: float, effect: float | None
) -> list[Entry]:
    """The entries with their verdicts against ``first``, corrected for how many there are."""
    pairs = {
        at: pair(a.times_s, b.times_s, effect)
        for at, (a, b) in enumerate(zip(first, column, strict=True))
        if a.status == b.status == "measured" and a.times_s and b.times_s
    }
    found = verdicts(pairs, level, margin)
    return [replace(entry, verdict=found.get(at)) for at, entry in enumerate(column)]


def _total(
    name: str, first: Sequence[Entry], column: Sequence[Entry], level: float, margin: float, effect: float | None
) -> Total:
    counts = dict(Counter(entry.status for entry in column))
    if column is first:
        return Total(name, counts)
    kinds = dict(Counter(str(entry.verdict.kind) for entry in column if entry.verdict is not None))
    shared = [(a, b) for a, b in zip(first, column, strict=True) if a.status == b.status == "measured"]
    seeds: list[int] = max((sorted(a.times_s.keys() & b.times_s.keys()) for a, b in shared), key=len, default=[])
    both = [(a, b) for a, b in shared if set(seeds) <= a.times_s.keys() & b.times_s.keys()]
    if not seeds:
        return Total(name, counts, kinds=kinds)
    means_a = {seed: geometric_mean([a.times_s[seed] for a, _ in both]) for seed in seeds}
    means_b = {seed: geometric_mean([b.times_s[seed] for _, b in both]) for seed in seeds}
    return Total(name, counts, len(both), pair(means_a, means_b, effect).verdict(margin, level), kinds)
