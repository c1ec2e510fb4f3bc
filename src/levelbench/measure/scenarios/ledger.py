"""Keeps the books of queries in flight: when each was answered, whether one was lost, doubled or failed.

The first thing that happens to an answer is a reading of the clock, in the thread that brings it; all
else (the lock, the counting) comes after and is on no query's latency.
"""

from __future__ import annotations

import queue
from collections.abc import Sequence
from threading import Condition, Thread
from typing import Self

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import CheckFailedError, LevelbenchError
from levelbench.measure.clocks import Clock
from levelbench.measure.scenarios.contract import Answering, Query, SystemUnderTest, VirtualClock

_LISTEN_S = 0.25


class Ledger:
    """Opens queries and hears of their completions, from any thread (:class:`contract.Completion`).

    ``by_sample`` keeps the time of each sample's answer beside that of each query.
    """

    def __init__(self, clock: Clock, timeout_s: float, scenario: str, by_sample: bool = False) -> None:
        self._clock = clock
        self._now_ns = clock.now_ns
        self._timeout_s = timeout_s
        self._scenario = scenario
        self._by_sample = by_sample
        self._news = Condition()
        self._done_ns: dict[int, int] = {}
        self._samples_ns: list[tuple[int, int]] = []
        self._open = 0
        self._heard = 0
        self.failure: LevelbenchError | BaseException | None = None

    def opened(self, number: int, indices: Sequence[int]) -> Query:
        """A query that is about to be issued."""
        query = self.made(number, indices)
        self.open(query)
        return query

    def made(self, number: int, indices: Sequence[int]) -> Query:
        """A query that is not issued yet, and may never be."""
        return Query(number, indices, self)

    def open(self, query: Query) -> None:
        """``query`` of :meth:`made` is about to be issued."""
        with self._news:
            self._open += 1

    @property
    def answered(self) -> int:
        """How many queries are answered so far."""
        return len(self._done_ns)

    def issue(self, sut: SystemUnderTest, query: Query) -> int:
        """Issue ``query``; when that was. What the system raises is raised with the query that it was raised for."""
        begin = self._now_ns()
        try:
            sut.issue(query)
        except Exception as error:
            raise blame(self._scenario, query.number, query.indices, error) from error
        self.check()
        return begin

    def completed(self, query: Query, count: int | None) -> None:
        """``count`` samples of ``query`` are answered: read the clock, then write it down."""
        now = self._now_ns()
        with self._news:
            count = max(query.left, 1) if count is None else count
            query.left -= count
            self._heard += 1
            if self._by_sample:
                self._samples_ns.append((now, count))
            if query.left < 0 or count < 1:
                self._fail(self._wrong(query, f"{-query.left} answers more than it has samples", "answer each once"))
            elif query.left == 0:
                self._done_ns[query.number] = now
                self._open -= 1
                if self._open == 0:
                    self._news.notify_all()

    def failed(self, query: Query, error: BaseException) -> None:
        """The system raised ``error``."""
        with self._news:
            self._fail(blame(self._scenario, query.number, query.indices, error))

    def check(self) -> None:
        """Raise what has gone wrong, if something has."""
        if self.failure is not None:
            raise self.failure

    def settle(self) -> None:
        """Wait until every open query is answered; raise if one fails, or nothing is heard for the timeout."""
        if isinstance(self._clock, VirtualClock):
            while self._open and self.failure is None and self._clock.step():
                pass
        else:
            self._listen()
        self.check()
        if self._open:
            raise self._lost()

    def done_ns(self, queries: int) -> NDArray[np.int64]:
        """When each of the first ``queries`` queries was answered completely, shape (queries,)."""
        return np.fromiter((self._done_ns[number] for number in range(queries)), dtype=np.int64, count=queries)

    def samples_ns(self) -> NDArray[np.int64]:
        """When each sample was answered, in order of the answers."""
        times = np.asarray(self._samples_ns, dtype=np.int64).reshape(-1, 2)
        return np.repeat(times[:, 0], times[:, 1])

    def _listen(self) -> None:
        """Wait for the news; in short pieces, so that Ctrl-C is heard."""
        patience = self._timeout_s
        with self._news:
            heard = self._heard
            while self._open and self.failure is None and patience > 0:
                self._news.wait(min(_LISTEN_S, patience))
                patience = self._timeout_s if self._heard != heard else patience - _LISTEN_S
                heard = self._heard

    def _fail(self, error: BaseException) -> None:
        self.failure = self.failure or error
        self._news.notify_all()

    def _lost(self) -> CheckFailedError:
        missing = f"{self._open} queries were never answered ({self._heard} answers came)"
        waited = "" if isinstance(self._clock, VirtualClock) else f"; nothing was heard for {self._timeout_s:g} s"
        return CheckFailedError(
            f"run the {self._scenario} scenario",
            missing + waited,
            "make the system complete every query that it is issued, or give it a longer timeout_s",
        )

    def _wrong(self, query: Query, found: str, do: str) -> CheckFailedError:
        return CheckFailedError(f"{self._scenario} query {query.number} of {len(query.indices)} samples", found, do)


class Direct:
    """Makes a system that answers at once into one that is issued queries: it answers in the issuing thread."""

    def __init__(self, sut: Answering, batch: int | None = None) -> None:
        self._sut = sut
        self._batch = batch

    def issue(self, query: Query) -> None:
        """Answer ``query`` before returning."""
        answer_in_batches(self._sut, query, self._batch)


class Workers:
    """Makes a system that answers at once into one that is issued queries: threads that take them from a queue."""

    def __init__(self, sut: Answering, workers: int) -> None:
        self._sut = sut
        self._queue: queue.SimpleQueue[Query | None] = queue.SimpleQueue()
        # Daemons: a system that hangs must not keep the process from ending.
        self._threads = [Thread(target=self._work, daemon=True, name=f"scenario-{i}") for i in range(workers)]

    def issue(self, query: Query) -> None:
        """Queue ``query`` for the next free thread."""
        self._queue.put(query)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        while error is not None and not self._queue.empty():
            try:
                self._queue.get_nowait()
            except queue.Empty:
                break
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join(timeout=5.0 if error is None else 0.5)

    def _work(self) -> None:
        while (query := self._queue.get()) is not None:
            try:
                answer_in_batches(self._sut, query, None)
            except BaseException as error:  # noqa: BLE001  the system is not ours: whatever it raises ends the run
                query.fail(error)


def answer_in_batches(sut: Answering, query: Query, batch: int | None) -> None:
    """Answer ``query`` by calls of ``sut`` with at most ``batch`` samples each, reporting after each call."""
    size = batch or len(query.indices)
    for start in range(0, len(query.indices), size):
        part = query.indices[start : start + size]
        sut.answer(part)
        query.complete(len(part))


def blame(scenario: str, number: int, indices: Sequence[int], error: BaseException) -> BaseException:
    """What ends a run when the system raises ``error``: an error that says where, or ``error`` if it says so itself."""
    if isinstance(error, LevelbenchError) or not isinstance(error, Exception):
        return error
    shown = ", ".join(str(index) for index in indices[:4]) + (", ..." if len(indices) > 4 else "")
    blamed = CheckFailedError(
        f"{scenario} query {number} (samples {shown})",
        f"the system under test raised {type(error).__name__}: {error}",
        "correct the system under test; --debug shows where it was raised",
    )
    blamed.__cause__ = error
    return blamed
