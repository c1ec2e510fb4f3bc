"""Where a network's time goes: a row for each operator and for each type, with its share, its rate and its ceiling.

A share is of the sum of all operators, each by the median of its own times in a process, so shares add up
to one whatever the clock around each operator costs; what the whole takes beside that sum is the framework's overhead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any

import numpy as np

from levelbench.measure.statistics import Estimate, estimate, estimate_signed
from levelbench.records.judging import CeilingShare, share_of
from levelbench.records.networks import NetworkRecord, OperatorSamples

__all__ = ["OperatorRow", "ProfileRow", "by_node", "by_type", "profile_rows"]


@dataclass(frozen=True)
class OperatorRow:
    """An operator, or all of a type: ``time`` in seconds a call of the network, over the processes.

    ``index`` is the place among the network's nodes (-1: none of them, or a whole type), ``output`` its first output's
    name (empty for a type), ``calls`` how many operators are in it, ``share`` that of the sum of all operators.
    ``flops`` and ``bytes`` are ``None`` where that of one of them is unknown; ``ceiling`` the share of the nearer one.
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
        """Floating-point operations a second."""
        return self.flops / self.time.value if self.flops and self.time.value > 0 else None

    @property
    def bytes_s(self) -> float | None:
        """Compulsory bytes a second."""
        return self.bytes / self.time.value if self.bytes and self.time.value > 0 else None


@dataclass(frozen=True)
class ProfileRow:
    """A type's share of all operators by our clock and by the framework's profiler, both means over processes."""

    type: str
    ours: float
    theirs: float
    method: str


Key = tuple[str, int, str]


def by_node(
    records: Sequence[NetworkRecord], dtype: str, ceilings: Mapping[str, Any], level: float = 0.95
) -> tuple[OperatorRow, ...]:
    """One row an operator, the slowest first."""
    return _rows(records, lambda each: (each.title, each.index, each.output), dtype, ceilings, level)


def by_type(
    records: Sequence[NetworkRecord], dtype: str, ceilings: Mapping[str, Any], level: float = 0.95
) -> tuple[OperatorRow, ...]:
    """One row a type of operator, the slowest first."""
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
    # sum rounds differently from Python 3.12 on: the same records have the same shares on each.
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
    """Shares by type, ours and the profiler's, of the processes that have both; the largest first."""
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
