"""What a loader is: the batches of a split as a backend's own arrays, in a fixed order.

The one idea: a loader is asked for steps of an epoch, from any to any. Training that goes on after an interruption asks
for the rest of the epoch and gets the batches that it would have got.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from levelbench.networks.executor import Array

__all__ = ["Loader"]


class Loader(ABC):
    """Batches for a training network: native arrays in the order of its inputs, normalised and augmented."""

    steps: int
    """Batches an epoch."""

    @abstractmethod
    def batches(
        self, epoch: int, first: int = 0, last: int | None = None, progress: float = 0.0
    ) -> Iterator[tuple[Array, ...]]:
        """The batches of steps ``first`` to ``last`` (exclusive; ``None``: the end) of an epoch.

        ``progress`` is the share of training that was done at the epoch's start.
        """

    @abstractmethod
    def sizes(self, epoch: int) -> NDArray[np.int64]:
        """Examples by step, shape (steps,)."""

    def close(self) -> None:  # noqa: B027
        """Let go of threads and files; a loader that has none has nothing to do."""
