"""What a scenario drives: the system under test, its queries and the ledger of their answers, and the scenarios.

Of the work, the driver sees only indices of samples going in and notifications that they are answered. A system either
answers at once (:class:`Answering`) or takes queries and completes them later (:class:`SystemUnderTest`). When an
answer is reported, the reporting thread first reads the clock; everything else (the lock, the counting) comes after and
adds to no query's latency.

A sleep alone ends a hundred microseconds late, and a spin alone takes a core from the measured system, so a wait sleeps
until shortly before the instant and spins through the rest, yielding to other threads. The caller records any remaining
lateness. On a :class:`VirtualClock`, time jumps to the next event and nothing waits.
"""

from __future__ import annotations

import heapq
import math
import queue
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from select import select
from threading import Condition, Thread
from time import sleep
from typing import ClassVar, Final, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import CheckFailedError, LevelbenchError, UsageError
from levelbench.measure.clocks import Clock, FakeClock


class Query:
    """Samples to answer together: ``indices`` of the sample set, ``number`` in order of issue from 0."""

    __slots__ = ("_ledger", "indices", "left", "number")

    def __init__(self, number: int, indices: Sequence[int], ledger: Ledger) -> None:
        self.number = number
        self.indices = indices
        self.left = len(indices)
        self._ledger = ledger

    def complete(self, count: int | None = None) -> None:
        """Report ``count`` more samples (default: all that are left) as answered, now, from any thread."""
        self._ledger.completed(self, count)

    def fail(self, error: BaseException) -> None:
        """Report that this query will not be answered because of ``error``, which ends the run."""
        self._ledger.failed(self, error)


@runtime_checkable
class SystemUnderTest(Protocol):
    """A system that takes queries and answers them later, in any order, from any thread."""

    def issue(self, query: Query) -> None:
        """Take ``query`` and return without waiting for its answer; call ``query.complete()`` when it is answered."""


@runtime_checkable
class Answering(Protocol):
    """A system that answers during the call; on an accelerator it returns only when the answer is complete.

    May have ``load(indices)`` and ``unload(indices)``, which are called before and after the run, off the clock.
    """

    def answer(self, indices: Sequence[int]) -> None:
        """Answer these samples."""


SPIN_NS: Final = 200_000
_LONGEST_SLEEP_NS: Final = 50_000_000


def wait_until(clock: Clock, at_ns: int, stop: Callable[[], bool] | None = None) -> int:
    """Return the time once ``clock`` shows ``at_ns`` or later, or once ``stop`` returns true (checked every 50 ms).

    A :class:`FakeClock` is advanced.
    """
    now = clock.now_ns()
    if isinstance(clock, FakeClock):
        clock.advance(max(0, at_ns - now))
        return clock.now_ns()
    while now < at_ns:
        left = at_ns - now
        if left > SPIN_NS:
            sleep(min(left - SPIN_NS, _LONGEST_SLEEP_NS) * 1e-9)
            if stop is not None and stop():
                return clock.now_ns()
        else:
            _yield_to_others()
        now = clock.now_ns()
    return now


def _yield_to_others() -> None:
    """Let another thread run: takes a microsecond, whereas ``sleep(0)`` takes the timer's slack of fifty."""
    select([], [], [], 0)


class VirtualClock(FakeClock):
    """A fake clock with scheduled actions: advancing it runs those that are due, each at its own time.

    A whole server scenario runs on it in milliseconds, and identically each time.
    """

    def __init__(self, start_ns: int = 0) -> None:
        super().__init__(start_ns)
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._made = 0

    def at(self, when_ns: int, action: Callable[[], None]) -> None:
        """Call ``action`` when the clock shows ``when_ns`` (now, if that has passed)."""
        self._made += 1
        heapq.heappush(self._due, (when_ns, self._made, action))

    def advance(self, ns: int) -> None:
        """Let ``ns`` pass, and run what is due meanwhile."""
        until = self.now_ns() + ns
        while self._due and self._due[0][0] <= until:
            self._run_next()
        super().advance(max(0, until - self.now_ns()))

    def step(self) -> bool:
        """Jump to the next scheduled action; ``False`` if there is none."""
        if self._due:
            self._run_next()
            return True
        return False

    def _run_next(self) -> None:
        when, _, action = heapq.heappop(self._due)
        super().advance(max(0, when - self.now_ns()))
        action()


class VirtualServers:
    """A system under test on a :class:`VirtualClock`: ``servers`` behind one queue, first come, first served.

    ``service_ns`` is the time to serve a query: one number, a list that is repeated, or a function of the query.
    """

    def __init__(
        self, clock: VirtualClock, service_ns: int | Sequence[int] | Callable[[Query], int], servers: int = 1
    ) -> None:
        self._clock = clock
        self._service_ns = service_ns
        self._free_at = [clock.now_ns()] * servers
        self._issued = 0

    def issue(self, query: Query) -> None:
        """Queue ``query``; it is completed when a server has served it."""
        begin = max(self._clock.now_ns(), heapq.heappop(self._free_at))
        end = begin + self._service(query)
        heapq.heappush(self._free_at, end)
        self._issued += 1
        self._clock.at(end, query.complete)

    def _service(self, query: Query) -> int:
        if isinstance(self._service_ns, int):
            return self._service_ns
        if isinstance(self._service_ns, Sequence):
            return int(self._service_ns[self._issued % len(self._service_ns)])
        return self._service_ns(query)


_LISTEN_S: Final = 0.25


class Ledger:
    """Opens queries and records when they are completed, lost, answered twice or failed; from any thread.

    ``by_sample`` also keeps the time of each sample's answer.
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
        """A query that is not issued yet and may never be."""
        return Query(number, indices, self)

    def open(self, query: Query) -> None:
        """``query``, from :meth:`made`, is about to be issued."""
        with self._news:
            self._open += 1

    @property
    def answered(self) -> int:
        """How many queries are answered so far."""
        return len(self._done_ns)

    def issue(self, sut: SystemUnderTest, query: Query) -> int:
        """Issue ``query`` and return when; an error of the system is raised with the query that caused it."""
        begin = self._now_ns()
        try:
            sut.issue(query)
        except Exception as error:
            raise blame(self._scenario, query.number, query.indices, error) from error
        self.check()
        return begin

    def completed(self, query: Query, count: int | None) -> None:
        """``count`` samples of ``query`` are answered (``None``: all that are left): read the clock, then record it."""
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
        """Raise the first failure, if there is one."""
        if self.failure is not None:
            raise self.failure

    def settle(self) -> None:
        """Wait until every open query is answered; raise if one fails or no answer comes within the timeout."""
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
        """Wait for answers, in short intervals, so that Ctrl-C works."""
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
        waited = "" if isinstance(self._clock, VirtualClock) else f"; no answer came for {self._timeout_s:g} s"
        return CheckFailedError(
            f"run the {self._scenario} scenario",
            missing + waited,
            "make the system complete every query that is issued to it, or give a longer timeout_s",
        )

    def _wrong(self, query: Query, found: str, do: str) -> CheckFailedError:
        return CheckFailedError(f"{self._scenario} query {query.number} of {len(query.indices)} samples", found, do)


class Direct:
    """Adapts a system that answers at once to issued queries: it answers in the issuing thread."""

    def __init__(self, sut: Answering, batch: int | None = None) -> None:
        self._sut = sut
        self._batch = batch

    def issue(self, query: Query) -> None:
        """Answer ``query`` before returning."""
        answer_in_batches(self._sut, query, self._batch)


class Workers:
    """Adapts a system that answers at once to issued queries: threads take them from a queue."""

    def __init__(self, sut: Answering, workers: int) -> None:
        self._sut = sut
        self._queue: queue.SimpleQueue[Query | None] = queue.SimpleQueue()
        # Daemons, so that a system that hangs does not keep the process from ending.
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
            except BaseException as error:  # noqa: BLE001  whatever the system under test raises ends the run
                query.fail(error)


def answer_in_batches(sut: Answering, query: Query, batch: int | None) -> None:
    """Answer ``query`` with calls of ``sut`` on at most ``batch`` samples each, reporting after each call."""
    size = batch or len(query.indices)
    for start in range(0, len(query.indices), size):
        part = query.indices[start : start + size]
        sut.answer(part)
        query.complete(len(part))


def blame(scenario: str, number: int, indices: Sequence[int], error: BaseException) -> BaseException:
    """The error that ends a run when the system raises ``error``: one that says where, or ``error`` if it is ours."""
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


RULES_DURATION_S: Final = 600.0
"""The minimum duration under MLPerf's rules; pass it as ``min_duration_s`` for a run of that length."""

Setting = int | float | str | None


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What all scenarios share; abstract.

    A run continues until both ``min_duration_s`` and ``min_queries`` are reached, and ends earlier at
    ``max_duration_s`` or ``max_queries`` (``None``: no limit). ``warmup_queries`` come first and are not on the clock.
    If no answer comes for ``timeout_s`` while some are due, these are lost.
    """

    min_duration_s: float = 10.0
    min_queries: int = 100
    max_duration_s: float | None = None
    max_queries: int | None = None
    warmup_queries: int = 10
    timeout_s: float = 120.0

    name: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for field in fields(self):
            self._check(field.name, getattr(self, field.name))
        share = self.percentile
        if share is not None and not 0.0 < share < 1.0:
            found = f"{share} is not between 0 and 1"
            raise UsageError(f"{self.name}(quantile={share})", found, "give a share such as 0.99")

    @property
    def percentile(self) -> float | None:
        """The ``quantile`` of the latencies that the scenario reports or bounds; ``None`` if it has none."""
        return getattr(self, "quantile", None)

    @property
    def stride(self) -> int:
        """Samples a query."""
        return 1

    def settings(self) -> dict[str, Setting]:
        """All settings by name, as they are recorded."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def _check(self, name: str, value: Setting) -> None:
        if value is None or isinstance(value, str):
            return
        low = 0 if name in {"min_duration_s", "warmup_queries"} else math.ulp(0.0)
        if not (math.isfinite(value) and value >= low):
            what = "zero or more" if low == 0 else "above zero"
            raise UsageError(f"{self.name}({name}={value})", f"{name} must be finite and {what}", f"change {name}")


@dataclass(frozen=True, kw_only=True)
class SingleStream(Scenario):
    """One sample at a time, the next when the last is answered. Result: the ``quantile`` of the latency."""

    quantile: float = 0.9
    name: ClassVar[str] = "single-stream"


@dataclass(frozen=True, kw_only=True)
class MultiStream(Scenario):
    """``samples_per_query`` samples at a time; a query's latency is that of its last sample. Result: its ``quantile``.

    ``min_queries`` is what early stopping needs for the 99th percentile.
    """

    samples_per_query: int = 8
    quantile: float = 0.99
    min_queries: int = 662
    name: ClassVar[str] = "multi-stream"

    @property
    def stride(self) -> int:
        """``samples_per_query``."""
        return self.samples_per_query


@dataclass(frozen=True, kw_only=True)
class Server(Scenario):
    """Poisson arrivals at ``qps`` a second, whatever is still open. Valid if the ``quantile`` is within ``bound_s``.

    A latency counts from the scheduled arrival, so a late issue counts as well. ``workers`` threads call a system that
    answers at once; a system with ``issue`` uses its own.
    """

    qps: float
    bound_s: float
    quantile: float = 0.99
    workers: int = 1
    name: ClassVar[str] = "server"


@dataclass(frozen=True, kw_only=True)
class Offline(Scenario):
    """All samples in one query. Result: samples a second, over the latency of the last.

    The query has at least ``min_samples`` (default: 24,576 or the set, whichever is smaller), and 10 % more than
    ``expected_per_s`` implies for ``min_duration_s``. Without ``expected_per_s``, the rate is measured first, off the
    clock, and again from the run itself if that was too short. A system that answers at once is called with ``batch``
    samples at a time (default: all), and the query is a multiple of them.
    """

    expected_per_s: float | None = None
    min_samples: int | None = None
    batch: int | None = None
    min_queries: int = 1
    warmup_queries: int = 1
    name: ClassVar[str] = "offline"


@dataclass(frozen=True, kw_only=True)
class DawnBench(Scenario):
    """Every sample of the set once, in order, one at a time. Result: the mean latency (DAWNBench, inference)."""

    min_duration_s: float = 0.0
    min_queries: int = 1
    name: ClassVar[str] = "dawnbench"
