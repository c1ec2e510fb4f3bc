"""Summarises the records of an operator benchmark: time, share of the ceiling and verdict by problem and framework.

The replicate is the process: each process gives one value a problem, its median, and everything is computed from these
values. Over a suite, FASTER and SLOWER must survive Holm's correction for the number of problems.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from levelbench.measure.statistics import Estimate, estimate
from levelbench.measure.verdict import Verdict
from levelbench.records.benchmarks import BenchmarkRecord, Problem
from levelbench.records.doubts import process_doubts
from levelbench.records.figures import (
    ABOVE,
    ArmTotal,
    CeilingShare,
    Starts,
    arm_differences,
    exceeded,
    judged,
    largest_ceilings,
    planned_effect,
    share_of,
    starts_of,
    total_of,
    worst_status,
)

_FEWER = {"Conv": 4.0}
"""How many times fewer operations than the definition's an algorithm may need: Winograd's F(4x4, 3x3)."""

__all__ = ["BenchmarkSummary", "Entry", "is_above_ceiling", "summarise_benchmark"]


@dataclass(frozen=True)
class Entry:
    """One problem on one framework. ``times_s`` maps the number of each process to its median; empty if there is none.

    ``status`` is the worst over the processes (``measured`` if all is well), and ``reason`` explains any other. What
    lies above a measured ceiling is ``refused`` and has no time. ``verdict`` compares with the first framework, after
    Holm's correction. ``algorithm`` is what the processes' frameworks say that they chose (several: with "or").
    """

    status: str
    reason: str
    times_s: Mapping[int, float]
    time: Estimate | None
    flops: float | None
    bytes: float | None
    errors: Mapping[str, float | None]
    checked: str
    share: CeilingShare | None
    verdict: Verdict | None = None
    algorithm: str | None = None
    algorithm_reason: str = ""

    @property
    def flop_s(self) -> float | None:
        """Operations a second."""
        return self.flops / self.time.value if self.flops and self.time is not None else None


@dataclass(frozen=True)
class BenchmarkSummary:
    """``rows`` holds, for each problem, one entry per arm, in the order of ``frameworks``, which names them.

    ``baselines`` says with which arm each is compared, ``own`` which are the user's own operators,
    ``layouts`` in which layout their inputs are (``None``: ONNX's).
    """

    title: str
    frameworks: tuple[str, ...]
    rows: tuple[tuple[Problem, tuple[Entry, ...]], ...]
    totals: tuple[ArmTotal, ...]
    ceilings: Mapping[str, Any]
    processes: tuple[int, ...]
    cache: str
    direction: str
    device: str
    level: float
    margin: float
    suspect: tuple[str, ...] = ()
    baselines: tuple[int, ...] = ()
    own: tuple[bool, ...] = ()
    layouts: tuple[str | None, ...] = ()

    def baseline(self, at: int) -> int:
        """The arm that the one at ``at`` is compared with: by default the first."""
        return self.baselines[at] if self.baselines else 0


def summarise_benchmark(
    arms: Sequence[Sequence[BenchmarkRecord]],
    level: float = 0.95,
    margin: float = 0.02,
    *,
    baselines: Sequence[int] = (),
    faults: Mapping[int, tuple[str, str]] = MappingProxyType({}),
) -> BenchmarkSummary:
    """``arms`` holds the complete records of each arm, all of the same problems.

    Each is compared with the arm that ``baselines`` says; by default with the first, and the user's own operators with
    the same framework's own, if that is an arm. ``faults`` are status and reason of arms that are known to be wrong or
    unchecked, whatever their records say: they get no verdict.
    """
    specification = arms[0][0].header.specification
    ceilings = largest_ceilings([record.header.ceilings for arm in arms for record in arm])
    problems = specification.problems
    columns = [[_entry(problem, at, arm, ceilings, level) for at, problem in enumerate(problems)] for arm in arms]
    for at, (status, reason) in faults.items():
        columns[at] = [replace(each, status=status, reason=reason) if each.times_s else each for each in columns[at]]
    effect = planned_effect(record for arm in arms for record in arm)
    starts = [starts_of(arm) for arm in arms]
    wanted = [arm[0].header.specification for arm in arms]
    natives = {(each.framework, each.layout): at for at, each in enumerate(wanted) if not each.own}
    baselines = tuple(baselines) or tuple(
        natives.get((each.framework, each.layout), 0) if each.own else 0 for each in wanted
    )
    alone = columns
    columns = [
        alone[at]
        if first == at
        else judged([alone[first], alone[at]], _times(starts, (first, at), problems), level, margin, effect=effect)[1]
        for at, first in enumerate(baselines)
    ]
    names = tuple(each.arm for each in wanted)
    totals = [
        total_of(name, columns[first], column, (starts[first], own), level, margin, effect)
        for name, column, own, first in zip(names, columns, starts, baselines, strict=True)
    ]
    threads = [arm[0].header.environment.get("framework", {}).get("threads") for arm in arms]
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
            *process_doubts(names, arms),
            *arm_differences(names, threads, [list(each.values()) for each in starts]),
            *exceeded(columns),
        ),
        baselines=baselines,
        own=tuple(bool(each.own) for each in wanted),
        layouts=tuple(each.layout for each in wanted),
    )


def _times(starts: Sequence[Starts], arms: Sequence[int], problems: Sequence[Problem]) -> list[list[Starts]]:
    """When the processes of ``arms`` started, by problem."""
    return [[starts[at]] * len(problems) for at in arms]


def _entry(
    problem: Problem, at: int, arm: Sequence[BenchmarkRecord], ceilings: Mapping[str, object], level: float
) -> Entry:
    cold = arm[0].header.specification.cache == "cold"
    cases = {record.header.seed: record.cases[at] for record in arm if at in record.cases}
    times = {
        record.header.seed: float(np.median(record.samples[at]))
        for record in sorted(arm, key=lambda each: each.header.seed)
        if len(record.samples.get(at, ()))
    }
    status, reason = worst_status([(case.outcome, case.reason) for case in cases.values()], len(times))
    time = estimate(list(times.values()), level) if times else None
    last = next((case for case in cases.values() if case.flops is not None or case.bytes is not None), None)
    checked = next((case for case in cases.values() if case.checked), None)
    algorithms = dict.fromkeys(case.algorithm for case in cases.values() if case.algorithm)
    untold = next((case.algorithm_reason for case in cases.values() if case.algorithm_reason), "")
    flops, moved = (last.flops, last.bytes) if last is not None else (None, None)
    # With cold caches a call is mostly waiting, and no roof is of that.
    share = None if cold else _share(problem, flops, moved, time, ceilings)
    if share is not None and _is_impossible(share, problem):
        found = f"it lies above the measured ceiling, by {share.value:.3g} times, so its time is not that of its work"
        reason = f"{found}; or the machine was busy whenever the ceiling was measured: measure again with --fresh"
        status, times, time, share = "refused", {}, None, None
    return Entry(
        status=status,
        reason=reason,
        times_s=times,
        time=time,
        flops=flops,
        bytes=moved,
        errors=checked.errors if checked is not None else {},
        checked=checked.checked if checked is not None else "",
        share=share,
        algorithm=" or ".join(algorithms) or None,
        algorithm_reason="" if algorithms else untold,
    )


def is_above_ceiling(record: BenchmarkRecord, at: int, ceilings: Mapping[str, object]) -> bool:
    """Whether the problem at ``at`` took less time than ``ceilings`` allow for its work, so that it will be refused."""
    specification, case = record.header.specification, record.cases[at]
    taken = record.samples.get(at, ())
    if case.outcome != "measured" or not len(taken) or specification.cache == "cold":
        return False
    time = estimate([float(np.median(taken))])
    share = _share(specification.problems[at], case.flops, case.bytes, time, ceilings)
    return share is not None and _is_impossible(share, specification.problems[at])


def _is_impossible(share: CeilingShare, problem: Problem) -> bool:
    return share.value > ABOVE * _FEWER.get(problem.operator, 1.0)


def _share(
    problem: Problem, flops: float | None, moved: float | None, time: Estimate | None, ceilings: Mapping[str, object]
) -> CeilingShare | None:
    if time is None or not problem.tensors:
        return None
    return share_of(flops, moved, time.value, problem.tensors[0].dtype, ceilings)
