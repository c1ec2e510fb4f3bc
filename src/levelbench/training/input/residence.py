"""Which columns live on the device as a whole, and which are read row by row because they are too large or not made."""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from levelbench.training.datasets.base import Column

__all__ = ["is_resident", "rows_of"]


def is_resident(column: NDArray[Any] | Column) -> TypeGuard[NDArray[Any]]:
    """Whether a column is an array in memory: neither one of a file nor one whose rows are made when asked for."""
    return isinstance(column, np.ndarray) and not isinstance(column, np.memmap)


def rows_of(column: NDArray[Any] | Column, indices: NDArray[np.int64], seeds: NDArray[np.uint64]) -> NDArray[Any]:
    """Rows of a column for training, as an array of their own."""
    if isinstance(column, np.ndarray):
        return np.asarray(column.take(indices, axis=0))
    return column.take(indices, seeds)
