"""What a schedule is: a factor on the optimizer's base learning rate, as a function of the share of training done.

The one idea: a schedule that comes down towards an end has a *fixed length*. Such a run cannot honestly stop early,
since it was promised all its steps, so its target is tested at its end. One without an end may stop at any time.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from itertools import accumulate, pairwise
from typing import ClassVar

from levelbench.errors import DefinitionError

__all__ = ["Schedule", "check_at_least_zero", "check_share", "has_fixed_length", "refuse"]

_GRID = 128
_LOOKS = 32
_STEEPEST = 1.0
_UNEVEN = 0.05
_BELOW = 0.9
_MOST_BELOW = 0.05


class Schedule(ABC):
    """A function of the share of training that is done."""

    fixed_length: ClassVar[bool]
    """Whether what it will be depends on where training ends, so that a run under it takes all its steps.

    A factor that comes down to an end makes it so in any case: :func:`has_fixed_length`.
    """

    @abstractmethod
    def factor(self, progress: float) -> float:
        """The factor at ``progress``: 0 before the first step of all planned ones, towards 1 at the last.

        A schedule without a fixed length is asked beyond 1 where a run goes on after its planned steps.
        """


def has_fixed_length(schedule: Schedule) -> bool:
    """Whether a run under ``schedule`` takes all its steps: the schedule says so, or its factor comes down to an end.

    A factor that comes down without an end in sight is the same curve however long training was planned: after its peak
    it is constant, or falls as a power of the progress, by no more than 1 / progress. Any other fall was fitted to the
    planned length, whatever ``fixed_length`` says.
    """
    return schedule.fixed_length or _comes_down(schedule)


def _comes_down(schedule: Schedule) -> bool:
    shares = [at / _GRID for at in range(_GRID + 1)]
    values = [schedule.factor(share) for share in shares]
    highest = max(values)
    after = max(at for at, value in enumerate(values) if value >= highest * (1 - 1e-9)) + 1
    if not math.isfinite(highest):
        return False
    if _falls_before(values[:after]):
        return True
    if after > _GRID:
        return False
    if after > 1 and values[after] < highest * (1 - 1 / after) ** (_STEEPEST + _UNEVEN):
        # It drops at once: the grid's last step on the peak is ``1 - 1 / after`` of the next one.
        return True
    if after == _GRID:
        return False
    ratio = (1 / shares[after]) ** (1 / _LOOKS)
    points = [schedule.factor(min(1.0, shares[after] * ratio**at)) for at in range(_LOOKS + 1)]
    if not all(0 < value < math.inf for value in points):
        return True
    slopes = [math.log(b / a) / math.log(ratio) for a, b in pairwise(points)]
    return min(slopes) < -_STEEPEST - _UNEVEN or max(slopes) - min(slopes) > _UNEVEN


def _falls_before(values: list[float]) -> bool:
    """Whether it comes down before its last peak: a return to it, be it at the last instant, undoes no fall.

    A warm-up lies nowhere below what came before it.
    """
    below = sum(value < _BELOW * before for value, before in zip(values, accumulate(values, max), strict=True))
    return below > _MOST_BELOW * len(values)


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
