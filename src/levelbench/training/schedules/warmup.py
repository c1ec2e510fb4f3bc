"""A warm-up in front of any schedule."""

from __future__ import annotations

from dataclasses import dataclass

from levelbench.training.schedules.base import Schedule, check_share, refuse

__all__ = ["Warmup"]


@dataclass(frozen=True)
class Warmup(Schedule):
    """Linear from ``start`` to 1 times the beginning of ``then`` over the share ``share``; then all of ``then``.

    ``then`` is fitted into what is left, so a cosine still ends at its floor (Goyal et al. 2017, 2.2). It has a fixed
    length if ``then`` has one.
    """

    then: Schedule
    share: float = 0.1
    start: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.then, Schedule):
            raise refuse(self, "what follows is no schedule", "give one, as Warmup(Cosine(), 0.1)")
        check_share(self, "share", self.share)
        check_share(self, "start", self.start, zero=True)
        # A constant of every other schedule; here it is that of the schedule inside.
        object.__setattr__(self, "fixed_length", self.then.fixed_length)

    def factor(self, progress: float) -> float:
        """The factor."""
        if progress < self.share:
            return self.then.factor(0.0) * (self.start + (1 - self.start) * progress / self.share)
        return self.then.factor((progress - self.share) / (1 - self.share))
