"""Quality: how good a network is on a split, and from where on it is good enough."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from levelbench.errors import UsageError
from levelbench.networks.executor import Executor
from levelbench.records.schema import Target

if TYPE_CHECKING:
    from levelbench.training.input.held import Held

__all__ = ["Quality"]


@dataclass(frozen=True)
class Quality(ABC):
    """A metric with its scale, and the target on it, looked for on the validation split."""

    target: float
    metric: ClassVar[str]
    direction: ClassVar[Literal["higher", "lower"]]
    low: ClassVar[float]
    high: ClassVar[float]

    def as_target(self, threshold: float | None = None) -> Target:
        """What a record states; ``threshold`` replaces the task's own target."""
        value = self.target if threshold is None else threshold
        if not self.low <= value <= self.high:
            percent = f" (did you mean {value / 100:g}?)" if self.high == 1 and 1 < value <= 100 else ""
            raise UsageError(
                f"target {value:g} for {self.metric}",
                f"its scale goes from {self.low:g} to {self.high:g}{percent}",
                "give a target on that scale",
            )
        high = None if math.isinf(self.high) else self.high
        return Target(self.metric, value, self.direction, self.low, high, "validation")

    @property
    def signature(self) -> str:
        """The options and version that decide about the score, where any do; kept in the record."""
        return ""

    @abstractmethod
    def measure(self, executor: Executor, held: Held) -> float:
        """The metric over all examples of ``held``; leaves the executor's state as it was."""
