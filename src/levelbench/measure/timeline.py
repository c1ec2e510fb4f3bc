"""The timeline: which phase a run is in, and how long each has taken.

A run is always in exactly one phase, so the phases sum to the wall time by construction, and a clock policy
(``policies``) is a choice of phases over the same totals. A switch is one clock reading and two list writes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Protocol

from levelbench.measure.clocks import HOST, Clock


class Phase(IntEnum):
    """A named stretch of a run."""

    PREPARE = 0
    COMPILE = 1
    DATA = 2
    FORWARD = 3
    BACKWARD = 4
    COMMUNICATE = 5
    UPDATE = 6
    EVALUATE = 7
    CHECKPOINT = 8
    OTHER = 9
    TRAIN = 10
    """Forward, backward and update of a program in which they cannot be separated, or the whole program."""
    ENVIRONMENT = 11
    """Steps of the environments in which a network makes its own training examples."""

    @property
    def label(self) -> str:
        """The name that records and reports use."""
        return self.name.lower()


_MOST_POINTS = 8192
"""After this many switches, a timeline that follows a device waits for it."""


class DeviceMarks(Protocol):
    """Points in the work of a device that runs asynchronously, such as CUDA events."""

    def mark(self) -> Any:
        """The point between the work launched so far and later work."""

    def finish(self) -> None:
        """Wait until all points have been passed."""

    def seconds(self, start: Any, end: Any) -> float:
        """Seconds from one point to a later one; both have been passed."""


class CudaEvents:
    """Points in the work of a CUDA device, on its current stream, for a timeline that follows it.

    ``cuda`` is the module ``torch.cuda``; without ``device`` it is PyTorch's current one.
    """

    def __init__(self, cuda: Any, device: Any = None) -> None:
        self._cuda, self._device = cuda, device
        self._last: Any = None

    def mark(self) -> Any:
        """An event after the launched work, without waiting; the last one while a graph is captured."""
        if self._last is None or not self._cuda.is_current_stream_capturing():
            self._last = self._cuda.Event(enable_timing=True)
            self._last.record(self._cuda.current_stream(self._device))
        return self._last

    def finish(self) -> None:
        """Wait for the whole device."""
        self._cuda.synchronize(self._device)

    @staticmethod
    def seconds(start: Any, end: Any) -> float:
        """Between two events that have been passed; CUDA tells milliseconds."""
        return float(start.elapsed_time(end)) * 1e-3


class Timeline:
    """Accumulates nanoseconds by phase. Starts in ``first`` when it is created.

    ``before_ns`` are the nanoseconds by phase label at which this timeline continues, counted by another one before the
    run was interrupted.
    """

    __slots__ = (
        "_current",
        "_followed",
        "_marks",
        "_now_ns",
        "_points",
        "_settled_ns",
        "_since_ns",
        "_totals_ns",
        "started_ns",
    )

    def __init__(
        self, clock: Clock = HOST, first: Phase = Phase.PREPARE, before_ns: Mapping[str, int] | None = None
    ) -> None:
        self._now_ns = clock.now_ns
        before = before_ns or {}
        self._totals_ns = [before.get(phase.label, 0) for phase in Phase]
        self._current: int = first
        self._since_ns = self._now_ns()
        self.started_ns = self._since_ns - sum(self._totals_ns)
        self._marks: DeviceMarks | None = None

    def follow(self, marks: DeviceMarks) -> None:
        """From now on, a phase lasts as long as the work that was launched in it takes on the device.

        The host does not wait for the device at a switch, only in ``totals_ns``.
        """
        marks.finish()
        self.switch(self._current)
        self._marks, self._settled_ns = marks, list(self._totals_ns)
        self._points: list[tuple[int, int, Any]] = [(self._current, self._since_ns, marks.mark())]
        self._followed: tuple[list[int], list[int]] = [], []

    def switch(self, phase: int) -> None:
        """End the current phase now and begin ``phase``."""
        now = self._now_ns()
        self._totals_ns[self._current] += now - self._since_ns
        self._since_ns = now
        self._current = phase
        if self._marks is not None:
            self._points.append((phase, now, self._marks.mark()))
            if len(self._points) > _MOST_POINTS:
                self._settle(self._marks)

    def _settle(self, marks: DeviceMarks) -> None:
        """Divide the time since the last call by when the device passed each switch, instead of by the host's times."""
        marks.finish()
        now = self._now_ns()
        points = self._points
        began_ns = points[0][1]
        passed_ns = [began_ns, *(began_ns + round(marks.seconds(points[0][2], each[2]) * 1e9) for each in points[1:])]
        # The device's clock is not the host's: clamp each point between the previous one and the present.
        for at in range(1, len(passed_ns)):
            passed_ns[at] = min(max(passed_ns[at], passed_ns[at - 1]), now)
        self._totals_ns = list(self._settled_ns)
        for (phase, _, _), start_ns, end_ns in zip(points, passed_ns, [*passed_ns[1:], now], strict=True):
            self._totals_ns[phase] += end_ns - start_ns
        self._followed[0].extend(each[1] for each in points)
        self._followed[1].extend(passed_ns)
        self._settled_ns, self._since_ns = list(self._totals_ns), now
        self._points = [(self._current, now, marks.mark())]

    def on_device(self, spans_ns: Sequence[tuple[int, int]]) -> list[int]:
        """How long each span between two switches on the host took on the device, in ns.

        The spans must end before the last ``totals_ns``, and can be asked for once. Without a followed device they are
        returned as they were on the host.
        """
        if self._marks is None:
            return [end - start for start, end in spans_ns]
        hosts, passed = self._followed
        self._followed = [], []

        def when(host_ns: int) -> int:
            at = bisect_right(hosts, host_ns) - 1
            if at < 0 or at + 1 == len(hosts):
                return host_ns + (passed[at] - hosts[at] if at >= 0 else 0)
            share = (host_ns - hosts[at]) / (hosts[at + 1] - hosts[at])
            return passed[at] + round(share * (passed[at + 1] - passed[at]))

        return [max(0, when(end) - when(start)) for start, end in spans_ns]

    @property
    def current(self) -> Phase:
        """The phase that is running."""
        return Phase(self._current)

    @property
    def switched_ns(self) -> int:
        """When the current phase began, on this timeline's clock: no clock reading."""
        return self._since_ns

    def spent_ns(self, phase: int) -> int:
        """Nanoseconds in ``phase`` up to the last switch: no clock reading."""
        return self._totals_ns[phase]

    def totals_ns(self) -> dict[str, int]:
        """Nanoseconds of each phase that has run, up to now; their sum is ``elapsed_ns`` of the same instant."""
        if self._marks is None:
            self.switch(self._current)
        else:
            self._settle(self._marks)
        return {phase.label: ns for phase, ns in zip(Phase, self._totals_ns, strict=True) if ns}

    def elapsed_ns(self) -> int:
        """Nanoseconds since the start."""
        return self._now_ns() - self.started_ns
