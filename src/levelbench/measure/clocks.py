"""Clocks: the only place that reads time, to measure it (a clock) or to date something (:func:`utc_now`).

An accelerator runs behind the host, so a host clock read without waiting for the device measures the
launch and not the work. A :class:`DeviceClock` waits first; :func:`check_synchronised` proves that a clock does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Reads a monotonic time in nanoseconds."""

    def now_ns(self) -> int:
        """Nanoseconds since an arbitrary, fixed instant."""


class Device(Protocol):
    """Something that works behind the host's back until it is waited for."""

    name: str

    def synchronise(self) -> None:
        """Return once all work launched so far is done."""


class HostClock:
    """The host's monotonic clock, ``perf_counter_ns``."""

    now_ns = staticmethod(time.perf_counter_ns)


HOST = HostClock()


class SecondClock:
    """Another clock of the host, which counts the same seconds and is read in another way.

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
"""The earliest and latest nanosecond since the kernel started that the present can be, as the kernel writes it in a
file (in hundredths of a second); ``None`` where there is no such file. A library that is loaded to fake the C library's
clocks does not change what is in that file. Time in which the machine was suspended is in it."""


def utc_now() -> datetime:
    """The date and time now, in UTC: for a date in a record and never for a duration, as this clock is set at will."""
    return datetime.now(UTC)


class DeviceClock:
    """A host clock that waits for ``device`` before each reading, so that launched work is on it."""

    def __init__(self, device: Device, host: Clock = HOST) -> None:
        self._synchronise = device.synchronise
        self._host_now = host.now_ns

    def now_ns(self) -> int:
        """Wait for the device, then read the host clock."""
        self._synchronise()
        return self._host_now()


class FakeClock:
    """A clock that moves only when told to, so that a stopping rule is tested without waiting.

    ``tick_ns`` is added at each reading: a scripted list of durations, then zero, or one constant.
    """

    def __init__(self, start_ns: int = 0, tick_ns: int | Sequence[int] = 0) -> None:
        self._now_ns = start_ns
        self._script = iter(tick_ns) if isinstance(tick_ns, Sequence) else None
        self._tick_ns = tick_ns if isinstance(tick_ns, int) else 0

    def now_ns(self) -> int:
        """The time; moves on by the next tick afterwards."""
        now = self._now_ns
        self._now_ns += self._tick_ns if self._script is None else next(self._script, 0)
        return now

    def advance(self, ns: int) -> None:
        """Let ``ns`` nanoseconds pass (never negative: the clock is monotonic)."""
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
        """Queue work of ``duration_ns`` behind what is already there."""
        self._idle_at_ns = max(self._idle_at_ns, self._clock.now_ns()) + duration_ns

    def synchronise(self) -> None:
        """Let the clock pass until the queue is empty."""
        self._clock.advance(max(0, self._idle_at_ns - self._clock.now_ns()))


def check_synchronised(clock: Clock, launch: Callable[[], None], wait: Callable[[], None], share: float = 0.1) -> bool:
    """Whether ``clock`` waits for work that ``launch`` starts and ``wait`` finishes.

    Launch, read, wait, read: if the second reading is later by more than ``share`` of the whole, work was still under
    way when the clock was read, and the clock counts launches instead of work.
    """
    wait()
    start = clock.now_ns()
    launch()
    claimed = clock.now_ns()
    wait()
    finished = clock.now_ns()
    whole = finished - start
    return whole <= 0 or (finished - claimed) <= share * whole
