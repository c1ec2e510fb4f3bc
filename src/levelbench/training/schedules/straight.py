"""Schedules of straight lines: constant, in steps, between points, and the trapezoid."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from levelbench.training.schedules.base import Schedule, check_at_least_zero, check_share, refuse

__all__ = ["Constant", "PiecewiseLinear", "Step", "Trapezoid"]


@dataclass(frozen=True)
class Constant(Schedule):
    """Always 1: the run may stop as soon as the target is confirmed."""

    fixed_length: ClassVar[bool] = False

    def factor(self, progress: float) -> float:
        """1."""
        return 1.0


@dataclass(frozen=True)
class Step(Schedule):
    """Times ``by`` at each milestone, a share of the training (He et al. 2016: tenths at 1/2 and 3/4)."""

    milestones: tuple[float, ...] = (0.5, 0.75)
    by: float = 0.1
    fixed_length: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for each in self.milestones:
            check_share(self, "milestone", each)
        if not self.milestones or any(a >= b for a, b in pairwise(self.milestones)):
            raise refuse(self, "its milestones do not ascend, or there is none", "give shares in ascending order")
        check_at_least_zero(self, "by", self.by)

    def factor(self, progress: float) -> float:
        """``by`` to the power of the milestones that are reached."""
        return float(self.by ** bisect_right(self.milestones, progress))


@dataclass(frozen=True)
class PiecewiseLinear(Schedule):
    """Straight lines through ``points`` of progress and factor; before the first and after the last it is level."""

    points: tuple[tuple[float, float], ...] = ((0.0, 0.0), (0.2, 1.0), (1.0, 0.0))
    fixed_length: ClassVar[bool] = True

    def __post_init__(self) -> None:
        shares = [share for share, _ in self.points]
        if len(shares) < 2 or any(not a < b for a, b in pairwise(shares)) or not 0 <= shares[0] < shares[-1] <= 1:
            raise refuse(
                self,
                "its points are fewer than two, or their shares do not ascend within 0 and 1",
                "give points as ((0, 0), (0.2, 1), (1, 0))",
            )
        for _, factor in self.points:
            check_at_least_zero(self, "factor of a point", factor)

    def factor(self, progress: float) -> float:
        """Between its two neighbours in proportion."""
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
        # 0.7 + 0.3 and its like may miss 1 by a rounding.
        if self.warmup + self.cooldown > 1 and not math.isclose(self.warmup + self.cooldown, 1):
            raise refuse(self, "its warm-up and cool-down overlap", "choose warmup + cooldown <= 1")

    def factor(self, progress: float) -> float:
        """The factor."""
        if progress < self.warmup:
            return progress / self.warmup
        return self.floor + (1 - self.floor) * min(1.0, max(0.0, 1 - progress) / self.cooldown)
