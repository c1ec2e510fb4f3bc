"""Columns of rows of many lengths: padded when they are asked for, so that only the words themselves are kept.

The one idea: a paragraph that has five questions is there once, and a word that comes a thousand times is spelled once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

__all__ = ["Padded", "Rows"]


@final
class Rows:
    """Integers in rows of any length, kept behind each other."""

    def __init__(self, rows: Sequence[Sequence[int]]) -> None:
        lengths = np.fromiter((len(row) for row in rows), np.int64, len(rows))
        self.starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        self.values = np.fromiter((each for row in rows for each in row), np.int64, int(self.starts[-1]))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def padded(self, indices: NDArray[np.int64], width: int) -> NDArray[np.int64]:
        """(n, width): the rows at ``indices`` with 0 behind them, cut at ``width``."""
        starts, ends = self.starts[indices, None], self.starts[indices + 1, None]
        places = starts + np.arange(width)
        inside = places < ends
        if not len(self.values):
            return np.zeros(places.shape, np.int64)
        return np.where(inside, self.values[np.minimum(places, len(self.values) - 1)], 0)


@final
class Padded:
    """A column (n, width, ...) of int64: what ``table`` says of each value of row ``which[i]`` of ``rows``.

    ``table`` is (values, ...); its first row is for padding.
    """

    def __init__(self, rows: Rows, which: NDArray[np.int64], width: int, table: NDArray[Any]) -> None:
        self._rows, self._which, self._width, self._table = rows, which, width, table

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, width, ...)."""
        return (len(self._which), self._width, *self._table.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """int64."""
        return np.dtype(np.int64)

    def __len__(self) -> int:
        return len(self._which)

    def take(self, indices: NDArray[np.int64], seeds: NDArray[np.uint64] | None) -> NDArray[np.int64]:
        """The rows at ``indices``; nothing in them is random."""
        return self._table[self._rows.padded(self._which[indices], self._width)].astype(np.int64, copy=False)
