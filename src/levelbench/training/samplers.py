"""Samplers: in which order an epoch visits the training set, and in batches of how many.

The one idea: the order is a function of seed and epoch alone, so every framework sees the same batches, and an epoch
visits every sample exactly once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from levelbench.errors import DefinitionError

__all__ = ["Sampler", "Shuffled"]


@dataclass(frozen=True)
class Sampler(ABC):
    """Batches of ``batch`` samples; the last one of an epoch may be smaller."""

    batch: int

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise DefinitionError(f"{type(self).__name__} with batch={self.batch}", "it is empty", "choose batch >= 1")

    @abstractmethod
    def order(self, samples: int, seed: int, epoch: int) -> NDArray[np.int64]:
        """The indices of one epoch (from 0), in order: shape (samples,)."""

    def steps(self, samples: int) -> int:
        """Batches an epoch."""
        return -(-samples // self.batch)


@dataclass(frozen=True)
class Shuffled(Sampler):
    """A new uniform permutation each epoch."""

    def order(self, samples: int, seed: int, epoch: int) -> NDArray[np.int64]:
        """The permutation."""
        return Generator(PCG64([seed, epoch, 0x5AFE])).permutation(samples).astype(np.int64)
