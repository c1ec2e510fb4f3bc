"""Stratified batches: each has the classes in about the shares of the whole.

The one idea: the j-th of the n_c examples of a class belongs at the share (j + 1/2) / n_c of the epoch; sorting all by
that place interleaves the classes as evenly as Webster's method shares out seats.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from levelbench.training.datasets.base import Split
from levelbench.training.samplers.base import Epoch
from levelbench.training.samplers.columns import labels_of
from levelbench.training.samplers.ordered import EvenSampler
from levelbench.training.samplers.shuffled import generator_of

__all__ = ["Stratified"]

_RADIX = 2**16


@dataclass(frozen=True)
class Stratified(EvenSampler):
    """Every example once an epoch in random order, with the classes' shares in each batch.

    After any number of visits the count of a class is within (1 + C s) / 2 of its share s of them, for C classes; with
    classes of one size, and batches of a multiple of C, every batch has each class equally often.
    """

    def epoch(self, split: Split, seed: int, epoch: int) -> Epoch:
        """Each class in a random order of its own, the classes interleaved."""
        generator = generator_of(seed, epoch)
        labels = labels_of(split, f"Stratified of {len(split)} examples")
        shuffled = generator.permutation(len(split))
        counts = np.bincount(labels)
        # Sorted by class, in random order inside of each; up to 16 bits the sort is a radix sort.
        few = len(counts) <= _RADIX
        keys = labels[shuffled].astype(np.uint16) if few else labels[shuffled]
        grouped = shuffled[np.argsort(keys, kind="stable")]
        starts = np.cumsum(counts) - counts
        mine = labels[grouped]
        places = (np.arange(len(split)) - starts[mine] + 0.5) / counts[mine]
        # The sort is stable, so that of those that belong at one place chance says who is first.
        mixed = generator.permutation(len(split))
        return self.batched(grouped[mixed[np.argsort(places[mixed], kind="stable")]].astype(np.int64))
