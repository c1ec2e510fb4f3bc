"""One query after the other: the loop of the single-stream, multi-stream and DAWNBench scenarios, and of the audits.

Between an answer and the next query the loop appends two numbers and asks whether it is time to end, so
that what a driver adds to a rate is about a microsecond a query; none of it is in a latency.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from levelbench.measure.clocks import Clock
from levelbench.measure.scenarios.contract import Answering, SystemUnderTest
from levelbench.measure.scenarios.ledger import Ledger, blame

ProgressCallback = Callable[[int, float], None]
"""Told the queries so far and the seconds since the start, about five times a second."""

_REPORT_NS: Final = 200_000_000


class Ending(Protocol):
    """Decides when a stream ends."""

    def ended_by(self, queries: int, spent_ns: int) -> str:
        """Why it ends after ``queries`` queries, the last issued after ``spent_ns``; empty if it goes on."""


@dataclass(frozen=True, eq=False)
class Taken:
    """What was taken: issue and answer of each query, nanoseconds from the start, and why it ended (empty: ran out)."""

    issued_ns: NDArray[np.int64]
    done_ns: NDArray[np.int64]
    ended_by: str


class Reporter:
    """Calls a progress callback at most five times a second."""

    def __init__(self, progress: ProgressCallback, start_ns: int) -> None:
        self._progress = progress
        self._start_ns = start_ns
        self._next_ns = start_ns

    def __call__(self, queries: int, now_ns: int) -> None:
        """Tell if it is time to."""
        if now_ns >= self._next_ns:
            self._progress(queries, (now_ns - self._start_ns) * 1e-9)
            self._next_ns = now_ns + _REPORT_NS


@dataclass(frozen=True)
class Turns:
    """Takes queries in turn on ``clock``; ``name`` is the scenario's, for messages."""

    clock: Clock
    name: str
    timeout_s: float
    progress: ProgressCallback | None = None

    def answer(self, sut: Answering, queries: Iterable[list[int]], ending: Ending | None = None) -> Taken:
        """The tight loop for a system that answers at once."""
        now_ns, answer = self.clock.now_ns, sut.answer
        issued: list[int] = []
        done: list[int] = []
        ended_by = ""
        start = now_ns()
        report = Reporter(self.progress, start) if self.progress is not None else None
        for indices in queries:
            begin = now_ns()
            try:
                answer(indices)
            except Exception as error:
                raise blame(self.name, len(issued), indices, error) from error
            end = now_ns()
            issued.append(begin)
            done.append(end)
            if report is not None:
                report(len(done), end)
            if ending is not None and (ended_by := ending.ended_by(len(done), begin - start)):
                break
        return Taken(_from(issued, start), _from(done, start), ended_by)

    def issue(self, sut: SystemUnderTest, queries: Iterable[list[int]], ending: Ending | None = None) -> Taken:
        """The same for a system that completes its queries when it likes: the next once the last is complete."""
        ledger = Ledger(self.clock, self.timeout_s, self.name)
        issued: list[int] = []
        ended_by = ""
        start = self.clock.now_ns()
        report = Reporter(self.progress, start) if self.progress is not None else None
        for indices in queries:
            begin = ledger.issue(sut, ledger.opened(len(issued), indices))
            ledger.settle()
            issued.append(begin)
            if report is not None:
                report(len(issued), self.clock.now_ns())
            if ending is not None and (ended_by := ending.ended_by(len(issued), begin - start)):
                break
        return Taken(_from(issued, start), ledger.done_ns(len(issued)) - start, ended_by)


def _from(times_ns: list[int], start_ns: int) -> NDArray[np.int64]:
    return np.asarray(times_ns, dtype=np.int64) - start_ns
