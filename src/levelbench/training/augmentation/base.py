"""What an augmentation is: a change of training images that depends on each image and its own seed alone.

The one idea: an example draws from a seed of its own, made of the run's seed, the epoch and the example's index. So
neither the batch it is in, nor the block, the number of workers or the framework changes a bit of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

__all__ = ["Augmentation", "Mixing"]


@dataclass(frozen=True)
class Augmentation(ABC):
    """A change of each image by itself, in NumPy on the host."""

    @abstractmethod
    def apply(self, images: NDArray[Any], seeds: NDArray[np.uint64]) -> NDArray[Any]:
        """A new array of the changed images: ``images`` (n, c, h, w) uint8 or float32, ``seeds`` (n,)."""

    def at(self, progress: float) -> Augmentation:
        """What it is at this share of training, 0 at the start and 1 at the end: itself, unless it changes."""
        return self


@dataclass(frozen=True)
class Mixing(ABC):
    """A mixture of the rows of a batch with each other, after which labels are shares of classes."""

    @abstractmethod
    def apply(self, columns: tuple[NDArray[Any], ...], classes: int, generator: Generator) -> tuple[NDArray[Any], ...]:
        """New columns: the first one mixed, the last one float32 (n, classes) instead of int64 (n,)."""
