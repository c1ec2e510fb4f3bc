"""Schedules of curves: cosine, one cycle, a power, the inverse square root."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from levelbench.training.schedules.base import Schedule, check_at_least_zero, check_share, refuse

__all__ = ["Cosine", "InverseSquareRoot", "OneCycle", "Polynomial"]


@dataclass(frozen=True)
class Cosine(Schedule):
    """Half a cosine from 1 down to ``floor``, a factor (Loshchilov & Hutter 2017, without restarts)."""

    floor: float = 0.0
    fixed_length: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_at_least_zero(self, "floor", self.floor)

    def factor(self, progress: float) -> float:
        """The factor: floor + (1 - floor) (1 + cos(pi progress)) / 2."""
        return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))


@dataclass(frozen=True)
class OneCycle(Schedule):
    """Linear warm-up over the share ``warmup``, then half a cosine down to 0 (Smith & Topin 2018, simplified)."""

    warmup: float = 0.25
    fixed_length: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_share(self, "warmup", self.warmup)

    def factor(self, progress: float) -> float:
        """The factor."""
        if progress < self.warmup:
            return progress / self.warmup
        return 0.5 * (1 + math.cos(math.pi * (progress - self.warmup) / (1 - self.warmup)))


@dataclass(frozen=True)
class Polynomial(Schedule):
    """From 1 down to ``floor`` as (1 - progress) to the ``power``: 1 is a line; LARS and LAMB take 2 and 1."""

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

    It has no end to come down to, so the run may stop as soon as the target is confirmed, and may go on.
    """

    warmup: float = 0.1
    fixed_length: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_share(self, "warmup", self.warmup)

    def factor(self, progress: float) -> float:
        """The factor."""
        if progress < self.warmup:
            return progress / self.warmup
        return math.sqrt(self.warmup / progress)
