"""Which queries come, and when they end: samples drawn in blocks, arrivals cut at the limits.

How long a stream goes on is known only while it runs, so its samples are drawn in blocks between queries,
where no latency sees it, and kept for the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import CheckFailedError, UsageError
from levelbench.measure.scenarios.settings import DawnBench, Scenario, Server

MOST_ARRIVALS: Final = 2_000_000
_BLOCK: Final = 4096
_STANDSTILL: Final = 20_000


class SampleStream:
    """The samples of queries, drawn in blocks and kept."""

    def __init__(self, draw: Callable[[int], NDArray[np.int64]], count: int | None = None) -> None:
        self._draw = draw
        self._endless = count is None
        self._blocks = [draw(_BLOCK if count is None else count)]

    def __iter__(self) -> Iterator[list[int]]:
        yield from self._blocks[0].tolist()
        while self._endless:
            self._blocks.append(self._draw(_BLOCK))
            yield from self._blocks[-1].tolist()

    def first(self, count: int) -> NDArray[np.int64]:
        """Those of the first ``count`` queries, shape (count, samples a query)."""
        return np.concatenate(self._blocks)[:count]


class Counts(Protocol):
    """Who knows how many queries are answered."""

    @property
    def answered(self) -> int:
        """How many so far."""


class StreamEnd:
    """When a stream ends: LoadGen's conditions in its order."""

    def __init__(self, scenario: Scenario) -> None:
        self._least_ns, self._least = round(scenario.min_duration_s * 1e9), scenario.min_queries
        self._most_ns = None if scenario.max_duration_s is None else round(scenario.max_duration_s * 1e9)
        self._most = scenario.max_queries
        self._natural = f"{scenario.min_duration_s:g} s and {scenario.min_queries} queries"
        self._once = isinstance(scenario, DawnBench)

    def ended_by(self, queries: int, spent_ns: int) -> str:
        """Why it ends after ``queries`` queries, the last issued after ``spent_ns``; empty if it goes on."""
        if spent_ns == 0 and queries >= _STANDSTILL:
            raise CheckFailedError(
                "run a scenario for a duration",
                f"the clock has not moved in {queries} queries",
                "use a clock that moves, or a system that moves it",
            )
        if queries >= self._least and spent_ns >= self._least_ns and not self._once:
            return self._natural
        if self._most is not None and queries >= self._most:
            return f"the most queries, {self._most}"
        if self._most_ns is not None and spent_ns > self._most_ns:
            return f"the longest duration, {self._most_ns * 1e-9:g} s"
        return ""


class Hope:
    """Whether a server can still keep its bound: it is lost once more queries are late than all of them allow.

    Late for certain are those that are due and not answered; of answered ones nothing is assumed, so a system that is
    overloaded is stopped when its queue is as long as that, and one that only just fails is asked to its end.
    """

    def __init__(self, counts: Counts, arrivals_ns: list[int], bound_s: float, most_late: int) -> None:
        self._counts = counts
        self._due_ns = [arrival + round(bound_s * 1e9) for arrival in arrivals_ns]
        self._most = most_late
        self._due = 0

    def is_lost(self, now_ns: int) -> bool:
        """Whether the bound cannot be kept any more, ``now_ns`` after the start."""
        due = self._due_ns
        while self._due < len(due) and due[self._due] < now_ns:
            self._due += 1
        return self._due - self._counts.answered > self._most


def refuse_flood(qps: float, duration_s: float) -> None:
    """``UsageError`` for more arrivals than fit into memory: they are all made before the run."""
    if qps * duration_s > MOST_ARRIVALS:
        raise UsageError(
            f"{qps:g} queries a second for {duration_s:g} s",
            f"that is {qps * duration_s:,.0f} queries, and {MOST_ARRIVALS:,} at most are made",
            "give a lower rate or a shorter duration",
        )


def cut_off(arrivals: NDArray[np.int64], scenario: Server) -> tuple[NDArray[np.int64], str]:
    """The arrivals within the most queries and the longest duration, and why they end."""
    ended_by = f"{scenario.min_duration_s:g} s and {scenario.min_queries} queries"
    if scenario.max_queries is not None and len(arrivals) > scenario.max_queries:
        arrivals, ended_by = arrivals[: scenario.max_queries], f"the most queries, {scenario.max_queries}"
    if scenario.max_duration_s is not None:
        within = int(np.searchsorted(arrivals, round(scenario.max_duration_s * 1e9), side="right")) + 1
        if within < len(arrivals):
            arrivals, ended_by = arrivals[:within], f"the longest duration, {scenario.max_duration_s:g} s"
    return arrivals, ended_by
