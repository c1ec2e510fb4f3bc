"""Makes the batches of a training split: rows of arrays that live on the device, or blocks that the host works on.

The one idea: where nothing is done to an example, a batch is one gather a column on the device and nothing else.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

from levelbench.networks.executor import Array, Backend
from levelbench.training.augmentation.base import Augmentation, Mixing
from levelbench.training.datasets.base import Dataset, Split
from levelbench.training.input.base import Loader
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
    maker = BlockMaker(split, dataset.classes, seed, tuple(augment), mix)
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
            self._turned(self._epoch)
            self._number = epoch

    @abstractmethod
    def _turned(self, epoch: Epoch) -> None:
        """Called with each new epoch."""


@final
class ResidentLoader(_Epochs):
    """Gathers rows of arrays that live on the device."""

    def __init__(
        self, backend: Backend, split: Split, sampler: Sampler, seed: int, normalise: Normalise | None
    ) -> None:
        super().__init__(split, sampler, seed)
        self._backend, self._normalise = backend, normalise
        self._columns = tuple(backend.array(column) for column in split.columns if is_resident(column))
        self._rows: Sequence[Array] = ()

    def batches(
        self, epoch: int, first: int = 0, last: int | None = None, progress: float = 0.0
    ) -> Iterator[tuple[Array, ...]]:
        """One gather a column, and normalisation where the first one is raw."""
        self._turn_to(epoch)
        take, columns, normalise, rows = self._backend.take, self._columns, self._normalise, self._rows[first:last]
        if len(columns) == 2 and normalise is None:
            # The usual case, written out: with small networks a microsecond a batch is seen.
            inputs, labels = columns
            for each in rows:
                yield take(inputs, each), take(labels, each)
            return
        inputs, *others = columns
        for each in rows:
            # No name is given to a batch, so that its memory is free for the next one as soon as it has been used.
            if normalise is None:
                yield take(inputs, each), *[take(column, each) for column in others]
            else:
                yield normalise(take(inputs, each)), *[take(column, each) for column in others]

    def _turned(self, epoch: Epoch) -> None:
        self._rows = self._backend.rows(epoch.order, epoch.bounds.tolist())


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
        array, normalise = self._backend.array, self._normalise
        jobs = self._maker.jobs(self._epoch, epoch, first, self.steps if last is None else last, progress)
        for block in self._prefetch.ordered(jobs):
            for inputs, *others in block:
                if normalise is None:
                    yield array(inputs), *[array(column) for column in others]
                else:
                    yield normalise(array(inputs)), *[array(column) for column in others]
            # So that the next block is made where this one was.
            del block, inputs, others

    def close(self) -> None:
        """End the workers."""
        self._prefetch.close()

    def _turned(self, epoch: Epoch) -> None:
        pass
