"""Learning-rate schedules: a factor on the optimizer's base rate.

The one idea: a schedule whose shape depends on the length of training has a *fixed length*. Such a run cannot honestly
stop early, since it was promised all its steps, so its target is tested at its end.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from levelbench.errors import DefinitionError

__all__ = ["Constant", "OneCycle", "Schedule"]


class Schedule(ABC):
    """A function of the share of training that is done."""

    fixed_length: ClassVar[bool]

    @abstractmethod
    def factor(self, progress: float) -> float:
        """The factor at ``progress``: 0 before the first step of all planned ones, towards 1 at the last."""


@dataclass(frozen=True)
class Constant(Schedule):
    """Always 1: the run may stop as soon as the target is confirmed."""

    fixed_length: ClassVar[bool] = False

    def factor(self, progress: float) -> float:
        """1."""
        return 1.0


@dataclass(frozen=True)
class OneCycle(Schedule):
    """Linear warm-up over the share ``warmup``, then half a cosine down to 0 (Smith & Topin 2018, simplified)."""

    warmup: float = 0.25
    fixed_length: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.warmup < 1:
            raise DefinitionError(f"OneCycle with warmup={self.warmup}", "it is no share", "choose 0 < warmup < 1")

    def factor(self, progress: float) -> float:
        """The factor."""
        if progress < self.warmup:
            return progress / self.warmup
        return 0.5 * (1 + math.cos(math.pi * (progress - self.warmup) / (1 - self.warmup)))
