"""The usual sampler: every example once an epoch, in a new random order each time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import PCG64, Generator

from levelbench.training.datasets.base import Split
from levelbench.training.samplers.base import Epoch
from levelbench.training.samplers.ordered import EvenSampler

__all__ = ["Shuffled", "generator_of"]


def generator_of(seed: int, epoch: int) -> Generator:
    """The random numbers of an epoch: a function of these two alone."""
    return Generator(PCG64([seed, epoch, 0x5AFE]))


@dataclass(frozen=True)
class Shuffled(EvenSampler):
    """A new uniform permutation each epoch; with ``drop_last`` others are left out each time."""

    def epoch(self, split: Split, seed: int, epoch: int) -> Epoch:
        """The permutation, cut into batches."""
        return self.batched(generator_of(seed, epoch).permutation(len(split)).astype(np.int64, copy=False))
