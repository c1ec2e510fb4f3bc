"""Samplers made of samplers: a rank's part, some of the examples, several epochs as one.

The one idea: a sampler is a function, so another one can be made of it without its knowledge. Each takes its batches
from the one inside, and only says which examples or which steps of it count.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from levelbench.errors import DefinitionError
from levelbench.training.datasets.base import Split
from levelbench.training.samplers.base import Epoch, Sampler
from levelbench.training.samplers.columns import some_of
from levelbench.training.samplers.promises import promised_shares, promises_random_order

__all__ = ["Partitioned", "Repeated", "Subset"]


@dataclass(frozen=True)
class Partitioned(Sampler):
    """What rank ``rank`` of ``ranks`` has of each batch of ``sampler``: together they make up exactly that batch.

    Of m examples the ranks have m // ranks or one more, in order, for any number of ranks. All take the same number of
    steps; of a last, small batch a rank may have none.
    """

    batch: int = field(init=False)
    sampler: Sampler
    rank: int = 0
    ranks: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.ranks:
            raise DefinitionError(
                f"rank {self.rank} of {self.ranks}", "there is no such rank", "count ranks from 0 to ranks - 1"
            )
        object.__setattr__(self, "batch", -(-self.sampler.batch // self.ranks))
        object.__setattr__(self, "exact", self.sampler.exact and self.ranks == 1)
        object.__setattr__(self, "random_order", promises_random_order(self.sampler))
        super().__post_init__()

    def expected_shares(self, split: Split) -> NDArray[np.float64] | None:
        """What each example's share of the visits is to be, shape (n,): the same for every rank."""
        return promised_shares(self.sampler, split)

    def steps(self, split: Split) -> int:
        """As many as all ranks together."""
        return self.sampler.steps(split)

    def epoch(self, split: Split, seed: int, epoch: int) -> Epoch:
        """The rank's part of each batch."""
        whole = self.sampler.epoch(split, seed, epoch)
        sizes = whole.sizes
        first, last = (sizes * at // self.ranks for at in (self.rank, self.rank + 1))
        mine = last - first
        ends = np.cumsum(mine)
        places = np.repeat(whole.bounds[:-1] + first - (ends - mine), mine) + np.arange(int(mine.sum()))
        return Epoch(whole.order[places], np.concatenate([np.zeros(1, np.int64), ends.astype(np.int64)]))


@dataclass(frozen=True)
class Subset(Sampler):
    """``sampler`` on ``examples`` of the examples, chosen by ``choice`` at random: the same in every run and epoch."""

    batch: int = field(init=False)
    sampler: Sampler
    examples: int = 1
    choice: int = 0

    def __post_init__(self) -> None:
        if self.examples < 1:
            raise DefinitionError(f"a subset of {self.examples} examples", "it is empty", "choose examples >= 1")
        object.__setattr__(self, "batch", self.sampler.batch)
        object.__setattr__(self, "exact", False)
        object.__setattr__(self, "random_order", promises_random_order(self.sampler))
        super().__post_init__()

    def chosen(self, split: Split) -> NDArray[np.int64]:
        """The examples that are visited, ascending, shape (examples,)."""
        if self.examples > len(split):
            raise DefinitionError(f"a subset of {self.examples} examples", f"there are {len(split)}", "choose fewer")
        generator = Generator(PCG64([self.choice, 0x50B5E7]))
        return np.sort(generator.permutation(len(split))[: self.examples]).astype(np.int64)

    def expected_shares(self, split: Split) -> NDArray[np.float64] | None:
        """What each example's share of the visits is to be, shape (n,)."""
        chosen, shares = self.chosen(split), np.zeros(len(split))
        inner = promised_shares(self.sampler, some_of(split, chosen))
        if inner is None:
            return None
        shares[chosen] = inner
        return shares

    def steps(self, split: Split) -> int:
        """Those of the sampler on the subset."""
        return self.sampler.steps(some_of(split, self.chosen(split)))

    def epoch(self, split: Split, seed: int, epoch: int) -> Epoch:
        """The sampler's epoch on the subset, in the indices of the whole."""
        chosen = self.chosen(split)
        inner = self.sampler.epoch(some_of(split, chosen), seed, epoch)
        return Epoch(chosen[inner.order], inner.bounds)


@dataclass(frozen=True)
class Repeated(Sampler):
    """``times`` epochs of ``sampler``, one after another, as one."""

    batch: int = field(init=False)
    sampler: Sampler
    times: int = 1

    def __post_init__(self) -> None:
        if self.times < 1:
            raise DefinitionError(f"an epoch {self.times} times", "it is empty", "choose times >= 1")
        object.__setattr__(self, "batch", self.sampler.batch)
        object.__setattr__(self, "exact", self.sampler.exact and self.times == 1)
        object.__setattr__(self, "random_order", promises_random_order(self.sampler))
        super().__post_init__()

    def expected_shares(self, split: Split) -> NDArray[np.float64] | None:
        """What each example's share of the visits is to be, shape (n,)."""
        return promised_shares(self.sampler, split)

    def steps(self, split: Split) -> int:
        """``times`` those of the sampler."""
        return self.times * self.sampler.steps(split)

    def epoch(self, split: Split, seed: int, epoch: int) -> Epoch:
        """The epochs of the sampler, numbered on."""
        parts = [self.sampler.epoch(split, seed, epoch * self.times + at) for at in range(self.times)]
        starts = np.cumsum([0, *(len(each.order) for each in parts[:-1])])
        bounds = [each.bounds[:-1] + start for each, start in zip(parts, starts, strict=True)]
        order = np.concatenate([each.order for each in parts])
        return Epoch(order, np.append(np.concatenate(bounds), len(order)).astype(np.int64))
