"""What a schedule is: a factor on the optimizer's base learning rate, as a function of the share of training done.

The one idea: a schedule that comes down towards an end has a *fixed length*. Such a run cannot honestly stop early,
since it was promised all its steps, so its target is tested at its end. One without an end may stop at any time.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar

from levelbench.errors import DefinitionError

__all__ = ["Schedule", "check_at_least_zero", "check_share", "refuse"]


class Schedule(ABC):
    """A function of the share of training that is done."""

    fixed_length: ClassVar[bool]
    """Whether what it will be depends on where training ends, so that a run under it takes all its steps."""

    @abstractmethod
    def factor(self, progress: float) -> float:
        """The factor at ``progress``: 0 before the first step of all planned ones, towards 1 at the last.

        A schedule without a fixed length is asked beyond 1 where a run goes on after its planned steps.
        """


def refuse(schedule: Schedule, found: str, do: str) -> DefinitionError:
    """The error of a schedule that cannot be."""
    return DefinitionError(repr(schedule), found, do)


def check_share(schedule: Schedule, name: str, value: float, *, zero: bool = False) -> None:
    """``DefinitionError`` unless ``value`` lies between 0 and 1, with 0 itself only where ``zero`` allows it."""
    if not (0 < value < 1 or (zero and value == 0)):
        bound = "<=" if zero else "<"
        raise refuse(schedule, f"its {name} of {value} is no share of the training", f"choose 0 {bound} {name} < 1")


def check_at_least_zero(schedule: Schedule, name: str, value: float) -> None:
    """``DefinitionError`` unless ``value`` is finite and not negative."""
    if not (math.isfinite(value) and value >= 0):
        raise refuse(schedule, f"its {name} is {value}", f"choose a finite {name} >= 0")
