"""What a scenario drives (a system under test, and the queries that it is given), and waiting for a scheduled instant.

The driver sees nothing of the work but indices of samples going in and the news that they are answered. A system either
answers at once (:class:`Answering`) or takes queries and completes them when it likes (:class:`SystemUnderTest`); the
clock is read when the answer is reported, before anything else happens.

A sleep alone ends a hundred microseconds late and a spin alone takes a core from the system that is measured, so a wait
sleeps until shortly before and spins through the rest, giving way to other threads. What is late all the same is
recorded by the caller. On a :class:`VirtualClock` time jumps to the next event, and nobody waits.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from select import select
from time import sleep
from typing import ClassVar, Final, Protocol, runtime_checkable

from levelbench.errors import UsageError
from levelbench.measure.clocks import Clock, FakeClock


class Completion(Protocol):
    """Who is told that samples of a query are answered, or that they never will be."""

    def completed(self, query: Query, count: int | None) -> None:
        """``count`` more samples of ``query`` are answered, all that are left for ``None``."""

    def failed(self, query: Query, error: BaseException) -> None:
        """The system raised ``error`` while it worked on ``query``."""


class Query:
    """Samples to answer together: ``indices`` of the sample set, ``number`` in the order of issue from 0."""

    __slots__ = ("_news", "indices", "left", "number")

    def __init__(self, number: int, indices: Sequence[int], news: Completion) -> None:
        self.number = number
        self.indices = indices
        self.left = len(indices)
        self._news = news

    def complete(self, count: int | None = None) -> None:
        """Report ``count`` more samples (default: all that are left) as answered, now, from any thread."""
        self._news.completed(self, count)

    def fail(self, error: BaseException) -> None:
        """Report that this query will not be answered because of ``error``; the run ends with it as the cause."""
        self._news.failed(self, error)


@runtime_checkable
class SystemUnderTest(Protocol):
    """A system that takes queries and answers them later, in any order, from any thread."""

    def issue(self, query: Query) -> None:
        """Take ``query`` and return without waiting for its answer; call ``query.complete()`` once it is there."""


@runtime_checkable
class Answering(Protocol):
    """A system that answers while it is called; on an accelerator it returns only once the answer is complete.

    May have ``load(indices)`` and ``unload(indices)``, which are called before and after the run, off the clock.
    """

    def answer(self, indices: Sequence[int]) -> None:
        """Answer these samples."""


SPIN_NS: Final = 200_000
_LONGEST_SLEEP_NS: Final = 50_000_000


def wait_until(clock: Clock, at_ns: int, stop: Callable[[], bool] | None = None) -> int:
    """Return once ``clock`` shows ``at_ns`` or later, or ``stop`` says so, with what it shows then.

    ``stop`` is asked every 50 ms. A :class:`FakeClock` is moved on.
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
            _give_way()
        now = clock.now_ns()
    return now


def _give_way() -> None:
    """Let another thread have the interpreter: a microsecond, where ``sleep(0)`` takes the timer's slack of fifty."""
    select([], [], [], 0)


class VirtualClock(FakeClock):
    """A fake clock with a calendar: moving it on makes what is due happen, each thing at its own time.

    A whole server scenario runs on it in milliseconds and the same each time.
    """

    def __init__(self, start_ns: int = 0) -> None:
        super().__init__(start_ns)
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._made = 0

    def at(self, when_ns: int, action: Callable[[], None]) -> None:
        """Have ``action`` called when the clock shows ``when_ns`` (now, if that has passed)."""
        self._made += 1
        heapq.heappush(self._due, (when_ns, self._made, action))

    def advance(self, ns: int) -> None:
        """Let ``ns`` pass, and what is due in them happen."""
        until = self.now_ns() + ns
        while self._due and self._due[0][0] <= until:
            self._happen()
        super().advance(max(0, until - self.now_ns()))

    def step(self) -> bool:
        """Jump to the next thing that is due; ``False`` if there is none."""
        if self._due:
            self._happen()
            return True
        return False

    def _happen(self) -> None:
        when, _, action = heapq.heappop(self._due)
        super().advance(max(0, when - self.now_ns()))
        action()


class VirtualServers:
    """A system under test on a :class:`VirtualClock`: ``servers`` behind one queue, first come first served.

    ``service_ns`` gives the time to serve a query: one number, a list that is gone through over and over, or a
    function of the query.
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


RULES_DURATION_S: Final = 600.0
"""The least duration under MLPerf's rules; pass it as ``min_duration_s`` for a run of that length."""

Setting = int | float | str | None


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What all scenarios share; abstract.

    A run goes on until ``min_duration_s`` and ``min_queries`` are both reached, and ends before that at
    ``max_duration_s`` or ``max_queries`` (``None``: no limit). ``warmup_queries`` come first and are not on the clock.
    A system from which nothing is heard for ``timeout_s`` while answers are due has lost them.
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
        """The ``quantile`` of the latencies that the scenario reports or bounds; ``None`` where it has none."""
        return getattr(self, "quantile", None)

    @property
    def stride(self) -> int:
        """Samples a query."""
        return 1

    def settings(self) -> dict[str, Setting]:
        """All settings by name, as they go into a record."""
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
    """Poisson arrivals at ``qps`` a second, whatever is still open. Valid if ``quantile`` of latencies is in bound.

    A latency counts from the scheduled arrival, so a late issue counts as well. ``workers`` threads call a system that
    answers at once; a system with ``issue`` brings its own.
    """

    qps: float
    bound_s: float
    quantile: float = 0.99
    workers: int = 1
    name: ClassVar[str] = "server"


@dataclass(frozen=True, kw_only=True)
class Offline(Scenario):
    """All samples in one query. Result: samples a second, over the latency of the last.

    The query has ``min_samples`` at least (default: 24,576 or the set, whichever is less), and 10 % more than
    ``expected_per_s`` promises for ``min_duration_s``. Without it the rate is found first, off the clock, and once more
    from the run itself where that was too short. A system that answers at once is called with ``batch`` samples at a
    time (default: all), and the query is a multiple of them.
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
