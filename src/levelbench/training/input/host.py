"""Makes blocks of training examples on the host: rows gathered, augmented, mixed, and cut into groups of batches.

The one idea: a block is many batches at once, or one large one, so that work by array pays off whatever the batch; what
an example becomes follows from the seed, the epoch and its index alone, so where a block begins changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from typing import Any, final

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from levelbench.errors import DefinitionError
from levelbench.training.augmentation.base import Augmentation, Mixing
from levelbench.training.augmentation.draws import example_seeds, words
from levelbench.training.augmentation.inplace import InPlace
from levelbench.training.augmentation.pixels import images_of
from levelbench.training.datasets.base import Split
from levelbench.training.input.grouping import groups, sizes
from levelbench.training.input.moved import make_moved
from levelbench.training.input.residence import rows_of
from levelbench.training.samplers.base import Epoch

__all__ = ["Block", "BlockMaker"]

Columns = tuple[NDArray[Any], ...]
Block = list[tuple[Columns, list[int]]]
"""Groups of batches on the host: their columns, and the rows of each batch."""

_EXAMPLES = 16384
_BYTES = 16 * 2**20
_MIXING = 0x317


@final
class BlockMaker:
    """Knows how to make any steps of an epoch; threads may share it.

    Raises ``DefinitionError`` for augmentations of what are no images, and for a mixture of what are no classes.
    """

    def __init__(
        self,
        split: Split,
        classes: int,
        seed: int,
        augment: tuple[Augmentation, ...],
        mix: Mixing | None,
        at_once: int = 0,
    ) -> None:
        shape, labels = split.inputs.shape, split.labels
        if augment and len(shape) != 4:
            raise DefinitionError(
                f"{type(augment[0]).__name__} of examples of shape {tuple(shape[1:])}",
                "augmentations change images, (channels, height, width)",
                "leave it out, or give the dataset that shape",
            )
        if mix is not None and (len(labels.shape) != 1 or labels.dtype.kind not in "iu"):
            raise DefinitionError(
                f"{type(mix).__name__} of labels of shape {tuple(labels.shape)} and type {labels.dtype}",
                "it mixes classes, one whole number an example",
                "leave it out",
            )
        self._split, self._classes, self._seed, self._augment, self._mix = split, classes, seed, augment, mix
        self._moved, self._at_once = make_moved(split.inputs, augment), 0 if mix else at_once
        row_bytes = max(1, prod(shape[1:]) * split.inputs.dtype.itemsize)
        self._examples = min(_EXAMPLES, max(1, _BYTES // row_bytes))

    def jobs(self, order: Epoch, epoch: int, first: int, last: int, progress: float) -> Iterator[Callable[[], Block]]:
        """What makes the blocks of steps ``first`` to ``last`` (exclusive), in order."""
        augment = tuple(each.at(progress) for each in self._augment)
        for start, stop in groups(order.bounds.tolist(), first, last, self._examples):
            yield partial(self._make, order, epoch, start, stop, augment)

    def _make(self, order: Epoch, epoch: int, first: int, stop: int, augment: tuple[Augmentation, ...]) -> Block:
        bounds = order.bounds[first : stop + 1].tolist()
        indices = order.order[bounds[0] : bounds[-1]]
        seeds = example_seeds(self._seed, epoch, indices)
        columns = [
            self._inputs(indices, seeds, augment),
            *[rows_of(column, indices, seeds) for column in self._split.columns[1:]],
        ]
        block = []
        for start, end in groups(bounds, 0, stop - first, self._at_once):
            cut = slice(bounds[start] - bounds[0], bounds[end] - bounds[0])
            group = tuple(column[cut] for column in columns)
            if self._mix is not None:
                generator = Generator(PCG64([self._seed, epoch, first + start, _MIXING]))
                group = self._mix.apply(group, self._classes, generator)
            block.append((group, sizes(bounds[start : end + 1])))
        return block

    def _inputs(
        self, indices: NDArray[np.int64], seeds: NDArray[np.uint64], augment: tuple[Augmentation, ...]
    ) -> NDArray[Any]:
        """The first column's rows, changed by each in turn; in place where they are ours."""
        column, done = self._split.inputs, 0
        # Rows taken of an array are a copy; what a column makes may be its own.
        ours = isinstance(column, np.ndarray)
        if self._moved is None:
            images = rows_of(column, indices, seeds)
        else:
            images, done = self._moved.take(indices, seeds), len(self._moved.augment)
        for position in range(done, len(augment)):
            # Each draws for itself: two of a kind in a row do not do the same.
            each, draws = augment[position], words(seeds, position)
            if ours and isinstance(each, InPlace):
                images = images_of(images, type(each).__name__)
                each.change(images, draws)
            else:
                images = each.apply(images, draws)
            ours = True
        return images
