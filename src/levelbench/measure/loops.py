"""Times a call that may be shorter than the clock can see: how many calls to put between two readings.

A reading costs tens of nanoseconds, so a fast call is repeated until reading and resolution are under 1 %
of the interval. What a reading and an empty call cost is measured and shown beside the values, never subtracted.
Standard library only: fresh processes import this and nothing heavier (``worker``).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from math import ceil
from typing import NamedTuple

from levelbench.measure.clocks import Clock

Work = Callable[[], object]

TIMER_SHARE = 0.01
LEAST_VALUE_NS = 50_000
MOST_INNER = 10**8
_READINGS = 101
_EMPTY_CALLS = 500


class Timer(NamedTuple):
    """What measuring costs on a clock, in nanoseconds.

    ``overhead_ns`` is the median of back-to-back readings, ``resolution_ns`` the smallest step seen (0 if the clock
    never moved), ``call_ns`` one turn of the loop around an empty function: part of every value, and not subtracted.
    """

    overhead_ns: float
    resolution_ns: int
    call_ns: float


class Calibration(NamedTuple):
    """How to time one work: ``inner`` calls a value.

    ``first_ns`` are the attempts with fewer calls, in nanoseconds a call, the first call among them; ``values_ns`` are
    those already made with ``inner`` calls, so that slow work pays for no call twice.
    """

    inner: int
    timer: Timer
    first_ns: list[float]
    values_ns: list[float]

    def without_values(self) -> Calibration:
        """The same with every call a first attempt: none was made as a value has to be."""
        return self._replace(first_ns=self.first_ns + self.values_ns, values_ns=[])


def time_ns(work: Work, clock: Clock, inner: int = 1) -> int:
    """Nanoseconds on ``clock`` of ``inner`` calls of ``work`` in a row."""
    turns = repeat(None, inner)
    now_ns = clock.now_ns
    start = now_ns()
    for _ in turns:
        work()
    return now_ns() - start


def measure_timer(clock: Clock) -> Timer:
    """What a reading of ``clock`` and an empty call cost, from about a thousand of each."""
    steps = sorted(_step_ns(clock) for _ in range(_READINGS))
    moved = [step for step in steps if step > 0]
    empty = sorted(time_ns(_nothing, clock, _EMPTY_CALLS) for _ in range(3))[1]
    return Timer(float(steps[_READINGS // 2]), moved[0] if moved else 0, empty / _EMPTY_CALLS)


def calibrate(work: Work, clock: Clock, least_ns: int = LEAST_VALUE_NS, most_inner: int = MOST_INNER) -> Calibration:
    """Find ``inner`` such that a value lasts ``least_ns`` and a reading and the resolution are under 1 % of it.

    Two attempts in a row must agree, so that one slow first call (an import, a compilation) does not pass for slow
    work. ``least_ns`` shortens itself to nothing on a clock that only moves by hand.
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
    """Do nothing, as the yardstick for what a call costs."""
