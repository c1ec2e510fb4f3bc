"""The timeline: which phase a run is in, and how long each has taken.

A run is always in exactly one phase, so the phases sum to the wall time by construction, and a clock
policy (``policies``) is a choice of phases over the same totals. A switch is one clock reading and two list writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

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
    """Forward, backward and update, or all, of a program in which they cannot be told apart."""

    @property
    def label(self) -> str:
        """The name that records and reports use."""
        return self.name.lower()


class Timeline:
    """Accumulates nanoseconds a phase. Starts in ``first``, at the moment it is made.

    ``before_ns`` are nanoseconds by phase label of the same work that another timeline has counted, which this one goes
    on from: a run that was interrupted.
    """

    __slots__ = ("_current", "_now_ns", "_since_ns", "_totals_ns", "started_ns")

    def __init__(
        self, clock: Clock = HOST, first: Phase = Phase.PREPARE, before_ns: Mapping[str, int] | None = None
    ) -> None:
        self._now_ns = clock.now_ns
        before = before_ns or {}
        self._totals_ns = [before.get(phase.label, 0) for phase in Phase]
        self._current: int = first
        self._since_ns = self._now_ns()
        self.started_ns = self._since_ns - sum(self._totals_ns)

    def switch(self, phase: int) -> None:
        """End the current phase now and begin ``phase``."""
        now = self._now_ns()
        self._totals_ns[self._current] += now - self._since_ns
        self._since_ns = now
        self._current = phase

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
        self.switch(self._current)
        return {phase.label: ns for phase, ns in zip(Phase, self._totals_ns, strict=True) if ns}

    def elapsed_ns(self) -> int:
        """Nanoseconds since the start."""
        return self._now_ns() - self.started_ns
