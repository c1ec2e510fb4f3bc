"""Learning-rate schedules: factors on the optimizer's base rate, as functions of the share of training done.

A schedule that comes down towards an end has a *fixed length*. Such a run cannot fairly stop early, because its rate
was planned for all of its steps, so its target is tested at its end. A run without an end may stop at any time.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import ClassVar

from levelbench.errors import DefinitionError, LevelbenchError

_GRID = 128
_LOOKS = 32
_STEEPEST = 1.0
_UNEVEN = 0.05
_BELOW = 0.9
_MOST_BELOW = 0.05
_OCTAVES = 12
_GOLDEN = 0.6180339887498949
_BETWEEN = 0.02


class Schedule(ABC):
    """A function of the share of training done."""

    fixed_length: ClassVar[bool]
    """Whether the factor depends on where training ends, so that a run under it takes all its steps.

    A factor that comes down to an end has a fixed length in any case: see :func:`has_fixed_length`.
    """

    @abstractmethod
    def factor(self, progress: float) -> float:
        """The factor at ``progress``: 0 before the first of all planned steps, approaching 1 at the last.

        A schedule without a fixed length is called with values above 1 if a run continues after its planned steps.
        """


def has_fixed_length(schedule: Schedule) -> bool:
    """Whether a run under ``schedule`` takes all its steps: the schedule says so, or its factor comes down to an end.

    A factor that decays without an end is the same curve however long training was planned: after its peak it is
    constant, or falls as a power of the progress, no faster than 1 / progress. Any other fall was fitted to the planned
    length, whatever ``fixed_length`` says.
    """
    if schedule.fixed_length or type(schedule) in (Constant, InverseSquareRoot):
        return schedule.fixed_length
    try:
        return _comes_down(schedule)
    except LevelbenchError:
        raise
    except Exception as error:  # a user's factor may raise anything
        found = f"its factor raised {type(error).__name__}: {error}"
        raise refuse(schedule, found, "correct it: it is given the progress of training, from 0 to 1") from error


def _comes_down(schedule: Schedule) -> bool:
    if _falls_between(schedule):
        return True
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
        # It drops abruptly: the last grid point on the peak is ``1 - 1 / after`` of the next one.
        return True
    if after == _GRID:
        return False
    ratio = (1 / shares[after]) ** (1 / _LOOKS)
    points = [schedule.factor(min(1.0, shares[after] * ratio**at)) for at in range(_LOOKS + 1)]
    if not all(0 < value < math.inf for value in points):
        return True
    slopes = [math.log(b / a) / math.log(ratio) for a, b in pairwise(points)]
    return min(slopes) < -_STEEPEST - _UNEVEN or max(slopes) - min(slopes) > _UNEVEN


def _falls_between(schedule: Schedule) -> bool:
    """Whether it falls where the grid does not look: near the beginning, or between grid points.

    A power of the progress falls by the same share over each octave; no open-ended schedule falls faster.
    """
    early = [2.0 ** (-at / 4) for at in range(4 * _OCTAVES, -1, -1)]
    values = [schedule.factor(share) for share in early]
    if any(b < a * 2 ** (-(_STEEPEST + _UNEVEN) / 4) * (1 - 1e-9) for a, b in pairwise(values) if 0 < a < math.inf):
        return True
    points = [((at + 1) * _GOLDEN % 1.0) for at in range(2 * _GRID)]
    around = [
        (schedule.factor(math.floor(share * _GRID) / _GRID), schedule.factor(share), share) for share in sorted(points)
    ]
    low = sum(inside < _BELOW * left * (1 - 1 / (share * _GRID + 1)) ** (_STEEPEST + _UNEVEN)
              for left, inside, share in around if left > 0)  # fmt: skip
    return bool(low > _BETWEEN * len(around))


def _falls_before(values: list[float]) -> bool:
    """Whether it comes down before its last peak: returning to the peak, even at the last moment, does not undo a fall.

    A warm-up never falls below what came before it.
    """
    below = sum(value < _BELOW * before for value, before in zip(values, accumulate(values, max), strict=True))
    return below > _MOST_BELOW * len(values)


def refuse(schedule: Schedule, found: str, do: str) -> DefinitionError:
    """The error of an invalid schedule."""
    return DefinitionError(repr(schedule), found, do)


def check_share(schedule: Schedule, name: str, value: float, *, zero: bool = False) -> None:
    """``DefinitionError`` unless ``value`` is between 0 and 1, with 0 itself only if ``zero`` allows it."""
    if not (0 < value < 1 or (zero and value == 0)):
        bound = "<=" if zero else "<"
        raise refuse(schedule, f"its {name} of {value} is not a share of the training", f"choose 0 {bound} {name} < 1")


def check_at_least_zero(schedule: Schedule, name: str, value: float) -> None:
    """``DefinitionError`` unless ``value`` is finite and not negative."""
    if not (math.isfinite(value) and value >= 0):
        raise refuse(schedule, f"its {name} is {value}", f"choose a finite {name} >= 0")


@dataclass(frozen=True)
class Constant(Schedule):
    """Always 1: the run may stop as soon as the target is confirmed."""

    fixed_length: ClassVar[bool] = False

    def factor(self, progress: float) -> float:
        return 1.0


@dataclass(frozen=True)
class Step(Schedule):
    """Multiplied by ``by`` at each milestone, a share of training (He et al. 2016: tenths at 1/2 and 3/4)."""

    milestones: tuple[float, ...] = (0.5, 0.75)
    by: float = 0.1
    fixed_length: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for each in self.milestones:
            check_share(self, "milestone", each)
        if not self.milestones or any(a >= b for a, b in pairwise(self.milestones)):
            raise refuse(self, "its milestones do not ascend, or there are none", "give shares in ascending order")
        check_at_least_zero(self, "by", self.by)

    def factor(self, progress: float) -> float:
        """``by`` to the power of the number of milestones reached."""
        return float(self.by ** bisect_right(self.milestones, progress))


@dataclass(frozen=True)
class PiecewiseLinear(Schedule):
    """Straight lines through ``points`` of progress and factor; constant before the first and after the last."""

    points: tuple[tuple[float, float], ...] = ((0.0, 0.0), (0.2, 1.0), (1.0, 0.0))
    fixed_length: ClassVar[bool] = True

    def __post_init__(self) -> None:
        shares = [share for share, _ in self.points]
        if len(shares) < 2 or any(not a < b for a, b in pairwise(shares)) or not 0 <= shares[0] < shares[-1] <= 1:
            raise refuse(
                self,
                "it has fewer than two points, or their shares do not ascend between 0 and 1",
                "give points as ((0, 0), (0.2, 1), (1, 0))",
            )
        for _, factor in self.points:
            check_at_least_zero(self, "factor of a point", factor)

    def factor(self, progress: float) -> float:
        """Interpolated between the two neighbouring points."""
        after = bisect_right(self.points, progress, key=lambda point: point[0])
        if after == 0:
            return float(self.points[0][1])
        if after == len(self.points):
            return float(self.points[-1][1])
        (left, low), (right, high) = self.points[after - 1 : after + 1]
        return low + (high - low) * (progress - left) / (right - left)


@dataclass(frozen=True)
class Trapezoid(Schedule):
    """Linear warm-up, then 1, then linear to ``floor`` over the last share ``cooldown``.

    Also called warm-up, stable, decay (Xing et al. 2018; Hägele et al. 2024).
    """

    warmup: float = 0.1
    cooldown: float = 0.2
    floor: float = 0.0
    fixed_length: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_share(self, "warmup", self.warmup, zero=True)
        check_share(self, "cooldown", self.cooldown)
        check_at_least_zero(self, "floor", self.floor)
        # Rounding may make sums such as 0.7 + 0.3 differ from 1.
        if self.warmup + self.cooldown > 1 and not math.isclose(self.warmup + self.cooldown, 1):
            raise refuse(self, "its warm-up and cool-down overlap", "choose warmup + cooldown <= 1")

    def factor(self, progress: float) -> float:
        if progress < self.warmup:
            return progress / self.warmup
        return self.floor + (1 - self.floor) * min(1.0, max(0.0, 1 - progress) / self.cooldown)


@dataclass(frozen=True)
class Cosine(Schedule):
    """Half a cosine from 1 down to the factor ``floor`` (Loshchilov & Hutter 2017, without restarts)."""

    floor: float = 0.0
    fixed_length: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_at_least_zero(self, "floor", self.floor)

    def factor(self, progress: float) -> float:
        """The factor: floor + (1 - floor) (1 + cos(pi progress)) / 2."""
        return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))


@dataclass(frozen=True)
class WarmupCosine(Schedule):
    """Linear warm-up over the share ``warmup``, then half a cosine down to 0: ``Warmup(Cosine(), warmup)`` in one."""

    warmup: float = 0.25
    fixed_length: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_share(self, "warmup", self.warmup)

    def factor(self, progress: float) -> float:
        if progress < self.warmup:
            return progress / self.warmup
        return 0.5 * (1 + math.cos(math.pi * (progress - self.warmup) / (1 - self.warmup)))


OneCycle = WarmupCosine
"""The earlier name. Elsewhere it means Smith & Topin's cycle, which also varies the momentum and starts above 0."""


@dataclass(frozen=True)
class Polynomial(Schedule):
    """From 1 down to ``floor`` as (1 - progress) to the ``power``: 1 is a line; LARS and LAMB use 2 and 1."""

    power: float = 2.0
    floor: float = 0.0
    fixed_length: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_at_least_zero(self, "floor", self.floor)
        if not (math.isfinite(self.power) and self.power > 0):
            raise refuse(self, f"its power is {self.power}", "choose a finite power > 0")

    def factor(self, progress: float) -> float:
        """The factor: floor + (1 - floor) (1 - progress) ** power."""
        return float(self.floor + (1 - self.floor) * max(0.0, 1 - progress) ** self.power)


@dataclass(frozen=True)
class InverseSquareRoot(Schedule):
    """Linear warm-up over the share ``warmup``, then 1 / sqrt(progress / warmup) (Vaswani et al. 2017, 5.3).

    It has no end to come down to, so the run may stop as soon as the target is confirmed, or continue.
    """

    warmup: float = 0.1
    fixed_length: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_share(self, "warmup", self.warmup)

    def factor(self, progress: float) -> float:
        if progress < self.warmup:
            return progress / self.warmup
        return math.sqrt(self.warmup / progress)


@dataclass(frozen=True)
class Warmup(Schedule):
    """Linear from ``start`` to 1 times the first factor of ``then`` over the share ``share``; then all of ``then``.

    ``then`` is fitted into the rest, so a cosine still ends at its floor (Goyal et al. 2017, 2.2). The length is fixed
    if that of ``then`` is.
    """

    then: Schedule
    share: float = 0.1
    start: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.then, Schedule):
            raise refuse(self, "its first argument is not a schedule", "give one, as in Warmup(Cosine(), 0.1)")
        check_share(self, "share", self.share)
        check_share(self, "start", self.start, zero=True)
        # Constant for every other class; here it is that of the inner schedule.
        object.__setattr__(self, "fixed_length", self.then.fixed_length)

    def factor(self, progress: float) -> float:
        if progress < self.share:
            return self.then.factor(0.0) * (self.start + (1 - self.start) * progress / self.share)
        return self.then.factor((progress - self.share) / (1 - self.share))
