"""Batches of examples of near lengths, so that little of them is padding.

The one idea: what is near in length is batched together, and the batches come in random order. A batch is full at a
number of examples, or at a number of tokens, padding included.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from levelbench.errors import DefinitionError
from levelbench.training.datasets.base import Split
from levelbench.training.samplers.base import Epoch, Sampler
from levelbench.training.samplers.columns import lengths_of
from levelbench.training.samplers.shuffled import generator_of

__all__ = ["Bucketed"]

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Bucketed(Sampler):
    """Every example once an epoch, in batches of near lengths, the batches shuffled.

    The length of an example is what ``length`` gives, a function from the split to an array (n,); by default its places
    in column ``column`` up to the last one that is not ``padding``. The data is shuffled and sorted by length in pools
    of ``pool`` batches (0: all of it): small ones mix more, large ones pad less. With ``tokens`` a batch ends before
    its examples times the longest of them pass that number; then all is sorted at once, which keeps the number of
    batches the same in each epoch, and an example that is too long by itself is a batch.
    """

    column: int = 0
    padding: int = 0
    length: Callable[[Split], NDArray[np.int64]] | None = None
    pool: int = 64
    tokens: int | None = None
    random_order: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pool < 0 or (self.tokens is not None and self.tokens < 1):
            raise DefinitionError(
                f"Bucketed with pool={self.pool}, tokens={self.tokens}",
                "a pool is negative, or no token is left for a batch",
                "choose pool >= 0 and tokens >= 1",
            )

    def lengths(self, split: Split) -> Indices:
        """Of each example, shape (n,)."""
        if self.length is None:
            return lengths_of(split, self.column, self.padding)
        found = np.asarray(self.length(split))
        if found.shape != (len(split),) or found.dtype.kind not in "iu" or (len(found) and found.min() < 0):
            raise DefinitionError(
                "the lengths of Bucketed",
                f"its function gave {found.dtype} of shape {found.shape} for {len(split)} examples",
                "give a whole number from 0 on for each example",
            )
        return found.astype(np.int64, copy=False)

    def steps(self, split: Split) -> int:
        """Batches an epoch."""
        if self.tokens is None:
            return super().steps(split)
        return len(self._by_tokens(np.sort(self.lengths(split)))) - 1

    def epoch(self, split: Split, seed: int, epoch: int) -> Epoch:
        """The examples sorted by length in their pools, the batches in random order."""
        generator, lengths = generator_of(seed, epoch), self.lengths(split)
        shuffled = generator.permutation(len(split)).astype(np.int64)
        pooled = self.pool and self.tokens is None
        pools = np.arange(len(split)) // (self.pool * self.batch) if pooled else np.zeros(len(split), np.int64)
        # lexsort is stable, so that equal lengths stay shuffled.
        order = shuffled[np.lexsort((lengths[shuffled], pools))]
        bounds = self.batched(order).bounds if self.tokens is None else self._by_tokens(lengths[order])
        return _in_random_order(order, bounds, generator)

    def _by_tokens(self, ascending: Indices) -> Indices:
        """Where batches begin, and the end: each as large as ``tokens`` and ``batch`` allow."""
        assert self.tokens is not None
        bounds, start = [0], 0
        while start < len(ascending):
            # Ascending lengths: the last one is the longest, and a batch of k costs k times it.
            window = ascending[start : start + self.batch]
            costs = np.arange(1, len(window) + 1) * window
            start += max(1, int(np.searchsorted(costs, self.tokens, side="right")))
            bounds.append(start)
        return np.array(bounds, np.int64)


def _in_random_order(order: Indices, bounds: Indices, generator: Generator) -> Epoch:
    """The same batches, shuffled, without a loop over them."""
    steps = generator.permutation(len(bounds) - 1)
    sizes = np.diff(bounds)[steps]
    ends = np.cumsum(sizes)
    # The place of each visit in the old order: where its batch began, and how far into it.
    places = np.repeat(bounds[:-1][steps] - (ends - sizes), sizes) + np.arange(len(order))
    return Epoch(order[places], np.concatenate([np.zeros(1, np.int64), ends.astype(np.int64)]))
