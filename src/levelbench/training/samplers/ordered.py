"""Samplers that may leave out a last batch that is not full, and the plainest of them: in the order of the data.

The one idea: batches of one size compile once and weigh alike, at the price of a few examples an epoch; whoever wants
that says so, and the sampler then no longer counts as exact.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DefinitionError
from levelbench.training.datasets.base import Split
from levelbench.training.samplers.base import Epoch, Sampler

__all__ = ["EvenSampler", "Sequential"]


@dataclass(frozen=True)
class EvenSampler(Sampler, ABC):
    """Batches of ``batch`` examples; the rest of an epoch is a smaller one, or is left out with ``drop_last``."""

    drop_last: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.drop_last:
            # A constant of the class otherwise; with examples left out no epoch is complete.
            object.__setattr__(self, "exact", False)

    def visits(self, split: Split) -> int:
        """Examples that an epoch draws, before a rest is left out."""
        return len(split)

    def steps(self, split: Split) -> int:
        """Batches an epoch. ``DefinitionError`` where leaving out the last one leaves none."""
        visits = self.visits(split)
        steps = visits // self.batch if self.drop_last else -(-visits // self.batch)
        if not steps:
            raise DefinitionError(f"{self!r} of {visits} examples", "an epoch has no batch", "choose a smaller batch")
        return steps

    def batched(self, order: NDArray[np.int64]) -> Epoch:
        """An order cut into batches."""
        return super().batched(order[: len(order) // self.batch * self.batch] if self.drop_last else order)


@dataclass(frozen=True)
class Sequential(EvenSampler):
    """In the order of the data, the same in every epoch."""

    random_order: ClassVar[bool] = False

    def epoch(self, split: Split, seed: int, epoch: int) -> Epoch:
        """0, 1, 2, ..."""
        return self.batched(np.arange(len(split), dtype=np.int64))
