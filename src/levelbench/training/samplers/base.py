"""What a sampler is: in which order an epoch visits the training set, and in batches of which examples.

The one idea: an epoch is a function of the split, the seed and its number alone, so every framework, process and number
of workers sees the same batches, and training goes on in the middle of one without having seen its beginning.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DefinitionError
from levelbench.training.datasets.base import Split

__all__ = ["Epoch", "Sampler"]

Indices = NDArray[np.int64]


@final
@dataclass(frozen=True, eq=False)
class Epoch:
    """The batches of an epoch: batch i is ``order[bounds[i] : bounds[i + 1]]``.

    ``order`` holds indices of examples, shape (visits,); ``bounds`` ascends from 0 to visits, shape (steps + 1,).
    """

    order: Indices
    bounds: Indices

    def batch(self, step: int) -> Indices:
        """The examples of one step."""
        return self.order[self.bounds[step] : self.bounds[step + 1]]

    @property
    def sizes(self) -> Indices:
        """Examples by step, shape (steps,)."""
        return np.diff(self.bounds)


@dataclass(frozen=True)
class Sampler(ABC):
    """Batches of ``batch`` examples; the last one of an epoch may be smaller."""

    batch: int
    exact: ClassVar[bool] = True
    """Whether an epoch visits every example exactly once."""

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise DefinitionError(f"{type(self).__name__} with batch={self.batch}", "it is empty", "choose batch >= 1")

    @abstractmethod
    def epoch(self, split: Split, seed: int, epoch: int) -> Epoch:
        """The batches of epoch number ``epoch`` (from 0)."""

    def steps(self, split: Split) -> int:
        """Batches an epoch, the same in every epoch."""
        return -(-len(split) // self.batch)

    def batched(self, order: Indices) -> Epoch:
        """An order cut into batches, the last one smaller where it does not come out even."""
        return Epoch(order, np.append(np.arange(0, len(order), self.batch, dtype=np.int64), len(order)))
