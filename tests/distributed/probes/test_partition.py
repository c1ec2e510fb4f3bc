from dataclasses import dataclass, replace

import numpy as np
import pytest

from levelbench.distributed.probes.schemes import check_partition
from levelbench.training.samplers import Epoch, Partitioned, Sequential, Shuffled


@dataclass(frozen=True)
class _Part(Partitioned):
    """Correct; each fault below changes a rank's part."""


class ShuffledByRank(_Part):
    def epoch(self, split, seed, epoch):
        return super().epoch(split, seed + self.rank, epoch)


class SameEverywhere(_Part):
    def epoch(self, split, seed, epoch):
        return self.sampler.epoch(split, seed, epoch)


class DropsTheRest(_Part):
    """All ranks have the same number of examples, and the remainder is dropped."""

    def epoch(self, split, seed, epoch):
        whole = self.sampler.epoch(split, seed, epoch)
        sizes = whole.sizes // self.ranks
        parts = [whole.batch(step)[self.rank * size :][:size] for step, size in enumerate(sizes)]
        return Epoch(np.concatenate(parts), np.concatenate([[0], np.cumsum(sizes)]))


class BlockOfTheEpoch(_Part):
    """Each rank has a contiguous part of the epoch: all examples, but step t is not batch t."""

    def epoch(self, split, seed, epoch):
        whole = self.sampler.epoch(split, seed, epoch)
        own = super().epoch(split, seed, epoch)
        before = sum(len(replace(self, rank=rank).own(split, seed, epoch).order) for rank in range(self.rank))
        return Epoch(whole.order[before : before + len(own.order)], own.bounds)

    def own(self, split, seed, epoch):
        return super().epoch(split, seed, epoch)


class RestToTheLast(_Part):
    """The last rank takes the remainder of each batch."""

    def epoch(self, split, seed, epoch):
        whole = self.sampler.epoch(split, seed, epoch)
        first = whole.sizes // self.ranks * self.rank
        last = whole.sizes if self.rank == self.ranks - 1 else first + whole.sizes // self.ranks
        parts = [whole.batch(step)[first[step] : last[step]] for step in range(len(whole.sizes))]
        return Epoch(np.concatenate(parts), np.concatenate([[0], np.cumsum(last - first)]))


def test_partitioned_covers_every_epoch():
    assert not check_partition().failed
    assert not check_partition(sampler=Sequential(7), workers=(2, 3, 7)).failed


@pytest.mark.parametrize(
    ("cut", "words"),
    [
        (ShuffledByRank, "are visited too rarely"),
        (SameEverywhere, "0 of 53 examples are visited too rarely, and 53 too often"),
        (DropsTheRest, "are visited too rarely, and 0 too often"),
        (BlockOfTheEpoch, "step 1 of all ranks together is not batch 1"),
        (RestToTheLast, "not as even as possible"),
    ],
)
def test_a_wrong_partition_is_named(cut, words):
    def part(sampler, rank, ranks):
        return cut(sampler=sampler, rank=rank, ranks=ranks)

    (found,) = check_partition(part, workers=(1, 3), sampler=Shuffled(8)).failed
    assert words in found.found
    assert found.found.startswith("3 workers, epoch 0")
