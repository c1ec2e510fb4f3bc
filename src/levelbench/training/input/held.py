"""A split on a backend, to be looked at: all its examples once, in their own order, without any augmentation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import numpy as np

from levelbench.networks.executor import Array, Backend
from levelbench.training.datasets.base import Dataset, Split
from levelbench.training.input.normalising import normaliser
from levelbench.training.input.residence import is_resident

__all__ = ["Held"]


@final
class Held:
    """Batches of a split for :class:`levelbench.training.Quality`.

    Arrays are moved to the device at the first look and stay there; columns that make their rows do so at each look.
    """

    def __init__(self, backend: Backend, dataset: Dataset, split: Split) -> None:
        self.backend, self.split = backend, split
        self._normalise = normaliser(backend, dataset, split)
        self._resident: tuple[Array | None, ...] | None = None

    def batches(self, size: int = 1000) -> Iterator[tuple[Array, ...]]:
        """All examples once, as native columns of ``size`` rows (the last ones fewer), inputs first, targets last."""
        array, columns = self.backend.array, self.split.columns
        if self._resident is None:
            self._resident = tuple(array(each) if is_resident(each) else None for each in columns)
        for start in range(0, len(self), size):
            stop = min(start + size, len(self))
            batch = []
            for native, column in zip(self._resident, columns, strict=True):
                if native is not None:
                    batch.append(native[start:stop])
                elif isinstance(column, np.ndarray):
                    batch.append(array(np.array(column[start:stop])))
                else:
                    batch.append(array(column.take(np.arange(start, stop, dtype=np.int64), None)))
            if self._normalise is not None:
                batch[0] = self._normalise(batch[0])
            yield tuple(batch)

    def __len__(self) -> int:
        return len(self.split)
