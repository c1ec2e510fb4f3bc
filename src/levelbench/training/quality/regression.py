"""Qualities of regressions: the network's first output against targets of its shape, lower is better.

The one idea: the errors are summed in float64 on the host, so a split of a million examples loses no digit to a sum in
float32, whatever the framework.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DataError
from levelbench.networks.executor import Executor
from levelbench.training.quality.base import Quality

if TYPE_CHECKING:
    from levelbench.training.input.held import Held

__all__ = ["MAE", "RMSE"]


@dataclass(frozen=True)
class _Error(Quality):
    """A mean over all elements of all targets, in the targets' unit; 0 is best and there is no worst."""

    direction: ClassVar[Literal["higher", "lower"]] = "lower"
    low: ClassVar[float] = 0.0
    high: ClassVar[float] = math.inf

    def measure(self, executor: Executor, held: Held) -> float:
        """Over all elements at once, not a mean of means.

        :raises DataError: where outputs (n, ...) and targets differ in shape by more than axes of size 1.
        """
        total, count = 0.0, 0
        for *inputs, targets in held.batches():
            outputs = np.asarray(held.backend.host(executor.infer(*inputs)[0])).astype(np.float64)
            wanted = np.asarray(held.backend.host(targets)).astype(np.float64)
            # (n, 1) against (n,) is what regressions of one number often have, and broadcasting would make (n, n).
            if [size for size in outputs.shape[1:] if size != 1] != [size for size in wanted.shape[1:] if size != 1]:
                found = f"outputs of shape {outputs.shape} and targets of shape {wanted.shape}"
                raise DataError(f"measuring {self.metric}", found, "make the network for the shape of the targets")
            total += self._sum(outputs.reshape(wanted.shape) - wanted)
            count += wanted.size
        return self._mean(total / count)

    @abstractmethod
    def _sum(self, errors: NDArray[Any]) -> float:
        """What is added up."""

    def _mean(self, mean: float) -> float:
        """What is made of the mean."""
        return mean


@dataclass(frozen=True)
class RMSE(_Error):
    """The root of the mean squared error."""

    metric: ClassVar[str] = "rmse"

    def _sum(self, errors: NDArray[Any]) -> float:
        return float((errors * errors).sum())

    def _mean(self, mean: float) -> float:
        return math.sqrt(mean)


@dataclass(frozen=True)
class MAE(_Error):
    """The mean absolute error."""

    metric: ClassVar[str] = "mae"

    def _sum(self, errors: NDArray[Any]) -> float:
        return float(np.abs(errors).sum())
