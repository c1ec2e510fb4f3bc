"""Makes the batches of a training split: rows of arrays that live on the device, or blocks that the host works on.

The one idea: where nothing is done to an example, batches are one gather a column on the device and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

from levelbench.networks.executor import Array, Backend
from levelbench.training.augmentation.base import Augmentation, Mixing
from levelbench.training.datasets.base import Dataset, Split
from levelbench.training.input.base import Loader
from levelbench.training.input.grouping import examples_at_once, groups, in_batches, sizes
from levelbench.training.input.host import BlockMaker
from levelbench.training.input.normalising import Normalise, normaliser
from levelbench.training.input.prefetch import Prefetch
from levelbench.training.input.residence import is_resident
from levelbench.training.samplers.base import Epoch, Sampler

__all__ = ["HostLoader", "ResidentLoader", "make_loader"]


def make_loader(
    backend: Backend,
    dataset: Dataset,
    split: Split,
    sampler: Sampler,
    *,
    seed: int,
    augment: Sequence[Augmentation] = (),
    mix: Mixing | None = None,
    workers: int = 0,
) -> Loader:
    """The batches of ``split`` in the sampler's order; ``workers`` threads work ahead where the host has work to do.

    Batches are the same bits whatever the framework, the number of workers and where in an epoch one begins.
    """
    normalise = normaliser(backend, dataset, split)
    if not augment and mix is None and all(is_resident(column) for column in split.columns):
        return ResidentLoader(backend, split, sampler, seed, normalise)
    at_once = examples_at_once(backend, split.inputs.shape, sampler.batch)
    maker = BlockMaker(split, dataset.classes, seed, tuple(augment), mix, at_once)
    return HostLoader(backend, split, sampler, seed, normalise, maker, workers)


class _Epochs(Loader):
    """A loader that keeps the order of the epoch that it was asked for last."""

    def __init__(self, split: Split, sampler: Sampler, seed: int) -> None:
        self.steps = sampler.steps(split)
        self._split, self._sampler, self._seed = split, sampler, seed
        self._number = -1
        self._epoch: Epoch

    def sizes(self, epoch: int) -> NDArray[np.int64]:
        """Examples by step, shape (steps,)."""
        self._turn_to(epoch)
        return self._epoch.sizes

    def _turn_to(self, epoch: int) -> None:
        if epoch != self._number:
            self._epoch = self._sampler.epoch(self._split, self._seed, epoch)
            self._number = epoch


@final
class ResidentLoader(_Epochs):
    """Gathers rows of arrays that live on the device."""

    def __init__(
        self, backend: Backend, split: Split, sampler: Sampler, seed: int, normalise: Normalise | None
    ) -> None:
        super().__init__(split, sampler, seed)
        self._backend, self._normalise = backend, normalise
        self._columns = tuple(backend.array(column) for column in split.columns if is_resident(column))
        self._at_once = examples_at_once(backend, split.inputs.shape, sampler.batch)

    def batches(
        self, epoch: int, first: int = 0, last: int | None = None, progress: float = 0.0
    ) -> Iterator[tuple[Array, ...]]:
        """One gather a column and group, and normalisation where the first column is raw."""
        self._turn_to(epoch)
        backend, take, (inputs, *others) = self._backend, self._backend.take, self._columns
        change = self._normalise or _as_it_is
        order, bounds = self._epoch.order, self._epoch.bounds.tolist()
        steps = list(groups(bounds, first, self.steps if last is None else last, self._at_once))
        if not steps:
            return
        cuts = [bounds[start] for start, _ in steps] + [bounds[steps[-1][1]]]
        for rows, (start, stop) in zip(backend.rows(order, cuts), steps, strict=True):
            # No name is given to a batch, so that its memory is free for the next one as soon as it has been used.
            if stop == start + 1:
                yield change(take(inputs, rows)), *[take(column, rows) for column in others]
            else:
                yield from in_batches(
                    backend,
                    (change(take(inputs, rows)), *[take(column, rows) for column in others]),
                    sizes(bounds[start : stop + 1]),
                )


@final
class HostLoader(_Epochs):
    """Has the host make blocks of examples, ahead of time where there are workers, and cuts them into batches."""

    def __init__(
        self,
        backend: Backend,
        split: Split,
        sampler: Sampler,
        seed: int,
        normalise: Normalise | None,
        maker: BlockMaker,
        workers: int,
    ) -> None:
        super().__init__(split, sampler, seed)
        self._backend, self._normalise, self._maker = backend, normalise, maker
        self._prefetch = Prefetch(workers)

    def batches(
        self, epoch: int, first: int = 0, last: int | None = None, progress: float = 0.0
    ) -> Iterator[tuple[Array, ...]]:
        """The host's columns on the device, the first one normalised there."""
        self._turn_to(epoch)
        backend, array, change = self._backend, self._backend.array, self._normalise or _as_it_is
        jobs = self._maker.jobs(self._epoch, epoch, first, self.steps if last is None else last, progress)
        for block in self._prefetch.ordered(jobs):
            for (inputs, *others), rows in block:
                if len(rows) == 1:
                    yield change(array(inputs)), *[array(each) for each in others]
                else:
                    yield from in_batches(backend, (change(array(inputs)), *[array(each) for each in others]), rows)
            # So that the next block is made where this one was.
            del block, inputs, others

    def close(self) -> None:
        """End the workers."""
        self._prefetch.close()


def _as_it_is(array: Array) -> Array:
    return array
