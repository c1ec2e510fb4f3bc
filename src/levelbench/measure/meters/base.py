"""What a meter is: something that is started and stopped, and then reports what it read or why it could not.

A meter reads a counter at the two ends of an interval and does nothing in between, so it costs the measured work
nothing; and a reading without a value carries the reason, so "not available" is never a silent zero.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, TypeVar, final

T = TypeVar("T")


@dataclass(frozen=True)
class Reading:
    """A value in ``unit`` with the method that gave it, or no value with the reason.

    Raises ``ValueError`` for a value without a method, or for neither a value nor a reason.
    """

    name: str
    unit: str
    value: float | None
    method: str | None
    reason: str | None = None

    def __post_init__(self) -> None:
        if (self.value is None) != (self.method is None):
            raise ValueError(f"{self.name}: a value and its method come together")
        if (self.value is None) != (self.reason is not None):
            raise ValueError(f"{self.name}: a reading has either a value or the reason why it has none")


class NoReading(Exception):
    """Why a counter has no value; ``CounterMeter`` turns this into a reading."""


class Meter(ABC):
    """Measures one quantity between ``start`` and ``stop``; can be used again after ``stop``."""

    name: str
    unit: str

    @abstractmethod
    def start(self) -> None:
        """Begin; the last thing this does is read the counter."""

    @abstractmethod
    def stop(self) -> Reading:
        """End; the first thing this does is read the counter. Never raises if the counter cannot be read."""

    def catch_up(self) -> None:
        """Take an extra reading, so that a counter can be followed when it wraps around; call it only off the clock."""
        return


@final
class NullMeter(Meter):
    """Stands in for a meter that is not available here: its reading carries the reason."""

    def __init__(self, name: str, unit: str, reason: str) -> None:
        self.name = name
        self.unit = unit
        self.reason = reason

    def start(self) -> None:
        """Nothing to start."""

    def stop(self) -> Reading:
        """No value, and why."""
        return Reading(self.name, self.unit, None, None, self.reason)


class CounterMeter(Meter, Generic[T]):
    """A meter whose value is a function of a counter's state at the two ends."""

    method: str

    def __init__(self) -> None:
        self._before: T | NoReading = NoReading("the meter was not started")

    @abstractmethod
    def _read(self) -> T:
        """The counter's state now; raises ``NoReading``."""

    @abstractmethod
    def _between(self, before: T, after: T) -> float:
        """The value for the two states; raises ``NoReading`` if they do not determine one."""

    def start(self) -> None:
        """Remember the counter's state."""
        try:
            self._before = self._read()
        except NoReading as reason:
            self._before = reason

    def stop(self) -> Reading:
        """The value since ``start``, or the reason why there is none."""
        try:
            after = self._read()
            if isinstance(self._before, NoReading):
                raise self._before
            return Reading(self.name, self.unit, self._between(self._before, after), self.method)
        except NoReading as reason:
            return Reading(self.name, self.unit, None, None, str(reason))
