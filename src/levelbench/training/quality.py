"""Quality: how good a network is on a split, and from where on it is good enough."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from levelbench.errors import UsageError
from levelbench.networks.executor import Array, Backend, Executor
from levelbench.records.schema import Target

__all__ = ["Quality", "Top1"]

_BATCH = 1000


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
        return Target(self.metric, value, self.direction, self.low, self.high, "validation")

    @abstractmethod
    def measure(self, executor: Executor, backend: Backend, inputs: Array, labels: Array) -> float:
        """The metric over all rows of ``inputs`` (native arrays); leaves the executor's state as it was."""


@dataclass(frozen=True)
class Top1(Quality):
    """The share of samples whose highest logit is that of their label."""

    metric: ClassVar[str] = "top1"
    direction: ClassVar[Literal["higher", "lower"]] = "higher"
    low: ClassVar[float] = 0.0
    high: ClassVar[float] = 1.0

    def measure(self, executor: Executor, backend: Backend, inputs: Array, labels: Array) -> float:
        """Correct over all, exact: counted in integers."""
        correct = 0
        for start in range(0, len(labels), _BATCH):
            (logits, *_) = executor.infer(inputs[start : start + _BATCH])
            correct = correct + (logits.argmax(1) == labels[start : start + _BATCH]).sum()
        return int(np.asarray(backend.host(correct))) / len(labels)
