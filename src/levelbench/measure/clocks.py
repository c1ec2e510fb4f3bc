"""Clocks and timed calls: the only place that reads time, to measure it (a clock) or to date something (`utc_now`).

An accelerator runs behind the host, so a host clock that is read without waiting for the device measures the launch and
not the work. A :class:`DeviceClock` waits first; :func:`check_synchronised` proves that a clock does.

Reading a clock takes tens of nanoseconds, so a fast call is repeated until reading and resolution are under 1 % of the
interval. The cost of a reading and of an empty call is measured and shown next to the values, but never subtracted.
Standard library only: fresh processes import this and nothing heavier (``worker``).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import repeat
from math import ceil
from typing import NamedTuple, Protocol, TypeVar


class Clock(Protocol):
    """Reads a monotonic time in nanoseconds."""

    def now_ns(self) -> int:
        """Nanoseconds since an arbitrary, fixed instant."""


class Device(Protocol):
    """Something that works asynchronously until the host waits for it."""

    name: str

    def synchronise(self) -> None:
        """Return once all work launched so far is done."""


class HostClock:
    """The host's monotonic clock, ``perf_counter_ns``."""

    now_ns = staticmethod(time.perf_counter_ns)


HOST = HostClock()


class SecondClock:
    """A second host clock, which counts the same seconds but is read in another way.

    Its function is looked up once, when this module is imported: code that replaces ``HOST`` or functions of ``time``
    later does not move this clock.
    """

    def __init__(self) -> None:
        source = next(
            (getattr(time, name) for name in ("CLOCK_MONOTONIC_RAW", "CLOCK_BOOTTIME") if hasattr(time, name)), None
        )
        read: Callable[[int], int] | None = getattr(time, "clock_gettime_ns", None)
        if source is None or read is None:
            self.now_ns: Callable[[], int] = time.monotonic_ns
        else:
            self.now_ns = lambda: read(source)


SECOND = SecondClock()


def _uptime_reader() -> Callable[[], tuple[int, int] | None]:
    """Keeps the file open, so that a reading is one system call."""
    descriptor, pread = -1, os.pread
    with suppress(OSError):
        descriptor = os.open("/proc/uptime", os.O_RDONLY | os.O_CLOEXEC)

    def read() -> tuple[int, int] | None:
        if descriptor < 0:
            return None
        whole, _, hundredths = pread(descriptor, 64, 0).split()[0].partition(b".")
        since_ns = int(whole) * 1_000_000_000 + int(hundredths) * 10_000_000
        return since_ns, since_ns + 10_000_000

    return read


uptime_ns = _uptime_reader()
"""The earliest and the latest possible number of nanoseconds since the kernel started, read from the kernel's file (in
hundredths of a second); ``None`` if there is no such file. A library that is preloaded to fake the C library's clocks
does not change that file. It includes time in which the machine was suspended."""


def utc_now() -> datetime:
    """The date and time now, in UTC: to date a record, never to measure a duration, since this clock can be set."""
    return datetime.now(UTC)


class DeviceClock:
    """A host clock that waits for ``device`` before each reading, so that it includes all launched work."""

    def __init__(self, device: Device, host: Clock = HOST) -> None:
        self._synchronise = device.synchronise
        self._host_now = host.now_ns

    def now_ns(self) -> int:
        """Wait for the device, then read the host clock."""
        self._synchronise()
        return self._host_now()


class FakeClock:
    """A clock that moves only on request, so that a stopping rule can be tested without waiting.

    ``tick_ns`` is added at each reading: one constant, or a list of durations that is followed by zeros.
    """

    def __init__(self, start_ns: int = 0, tick_ns: int | Sequence[int] = 0) -> None:
        self._now_ns = start_ns
        self._script = iter(tick_ns) if isinstance(tick_ns, Sequence) else None
        self._tick_ns = tick_ns if isinstance(tick_ns, int) else 0

    def now_ns(self) -> int:
        """The time; the clock then advances by the next tick."""
        now = self._now_ns
        self._now_ns += self._tick_ns if self._script is None else next(self._script, 0)
        return now

    def advance(self, ns: int) -> None:
        """Let ``ns`` nanoseconds pass; ``ValueError`` if negative, as the clock is monotonic."""
        if ns < 0:
            raise ValueError(f"a monotonic clock cannot go back by {-ns} ns")
        self._now_ns += ns


class FakeDevice:
    """An asynchronous device on a fake clock: ``launch`` returns at once, ``synchronise`` waits for the queue."""

    name = "fake"

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._idle_at_ns = clock.now_ns()

    def launch(self, duration_ns: int) -> None:
        """Queue work of ``duration_ns`` behind what is already queued."""
        self._idle_at_ns = max(self._idle_at_ns, self._clock.now_ns()) + duration_ns

    def synchronise(self) -> None:
        """Let the clock pass until the queue is empty."""
        self._clock.advance(max(0, self._idle_at_ns - self._clock.now_ns()))


def check_synchronised(clock: Clock, launch: Callable[[], None], wait: Callable[[], None], share: float = 0.1) -> bool:
    """Whether ``clock`` waits for work that ``launch`` starts and ``wait`` finishes.

    Launch, read, wait, read: if the second reading is later by more than ``share`` of the whole, work was still running
    at the first reading, so the clock counts launches instead of work.
    """
    wait()
    start = clock.now_ns()
    launch()
    claimed = clock.now_ns()
    wait()
    finished = clock.now_ns()
    whole = finished - start
    return whole <= 0 or (finished - claimed) <= share * whole


Work = Callable[[], object]
T = TypeVar("T")

TIMER_SHARE = 0.01
LEAST_VALUE_NS = 50_000
MOST_INNER = 10**8
_READINGS = 101
_EMPTY_CALLS = 500


class Timer(NamedTuple):
    """What measuring costs on a clock, in nanoseconds.

    ``overhead_ns`` is the median of back-to-back readings, ``resolution_ns`` the smallest step seen (0 if the clock
    never moved), ``call_ns`` one iteration of the loop around an empty function: part of every value, not subtracted.
    """

    overhead_ns: float
    resolution_ns: int
    call_ns: float


class Calibration(NamedTuple):
    """How to time one workload: ``inner`` calls a value.

    ``first_ns`` are the attempts with fewer calls, in nanoseconds a call, including the very first call; ``values_ns``
    are those already made with ``inner`` calls, so that slow work pays for no call twice.
    """

    inner: int
    timer: Timer
    first_ns: list[float]
    values_ns: list[float]

    def without_values(self) -> Calibration:
        """The same with every call counted as a first attempt, because none was made the way a value must be."""
        return self._replace(first_ns=self.first_ns + self.values_ns, values_ns=[])


def time_ns(work: Work, clock: Clock, inner: int = 1) -> int:
    """Nanoseconds on ``clock`` of ``inner`` calls of ``work`` in a row."""
    turns = repeat(None, inner)
    now_ns = clock.now_ns
    start = now_ns()
    for _ in turns:
        work()
    return now_ns() - start


def timed(work: Callable[[], T], clock: Clock, inner: int) -> tuple[int, int, T]:
    """The same, also on the second clock (a little longer), and what the last call returned."""
    turns = repeat(None, inner - 1)
    now_ns, second_ns = clock.now_ns, SECOND.now_ns
    # A device clock waits when it is read, which is not the work's time on either clock.
    now_ns()
    began = second_ns()
    start = now_ns()
    for _ in turns:
        work()
    found = work()
    taken = now_ns() - start
    return taken, second_ns() - began, found


def measure_timer(clock: Clock) -> Timer:
    """What a reading of ``clock`` and an empty call cost, from about a thousand of each."""
    steps = sorted(_step_ns(clock) for _ in range(_READINGS))
    moved = [step for step in steps if step > 0]
    empty = sorted(time_ns(_nothing, clock, _EMPTY_CALLS) for _ in range(3))[1]
    return Timer(float(steps[_READINGS // 2]), moved[0] if moved else 0, empty / _EMPTY_CALLS)


def calibrate(work: Work, clock: Clock, least_ns: int = LEAST_VALUE_NS, most_inner: int = MOST_INNER) -> Calibration:
    """Find ``inner`` such that a value lasts ``least_ns`` and a reading and the resolution are under 1 % of it.

    Two attempts in a row must agree, so that one slow first call (an import, a compilation) is not taken for slow work.
    On a clock that only moves by hand, ``least_ns`` is ignored.
    """
    timer = measure_timer(clock)
    visible_ns = max(timer.overhead_ns, timer.resolution_ns) / TIMER_SHARE
    goal_ns = max(visible_ns, least_ns) if visible_ns else 0.0
    first_ns: list[float] = []
    inner = 1
    while True:
        attempts = [time_ns(work, clock, inner)]
        if attempts[0] >= goal_ns or inner >= most_inner:
            attempts.append(time_ns(work, clock, inner))
        a_call_ns = [attempt / inner for attempt in attempts]
        shortest = min(attempts)
        if inner >= most_inner or shortest >= goal_ns:
            return Calibration(inner, timer, first_ns, a_call_ns)
        first_ns += a_call_ns
        growth = min(max(1.2 * goal_ns / max(shortest, 1), 2.0), 100.0)
        inner = min(ceil(inner * growth), most_inner)


def _step_ns(clock: Clock) -> int:
    start = clock.now_ns()
    return clock.now_ns() - start


def _nothing() -> None:
    """Do nothing: the yardstick for what a call costs."""
