"""What samplers read of a split: its labels, the lengths of its examples, some of its rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DefinitionError
from levelbench.training.datasets.base import Column, Split

__all__ = ["SomeRows", "labels_of", "lengths_of", "rows_of", "some_of"]

_BLOCK = 4096


class SomeRows:
    """Some rows of a column, in an order of their own; nothing is copied until they are taken."""

    def __init__(self, column: NDArray[Any] | Column, chosen: NDArray[np.int64]) -> None:
        self._column, self._chosen = column, chosen
        self.shape = (len(chosen), *column.shape[1:])
        self.dtype = column.dtype

    def __len__(self) -> int:
        return len(self._chosen)

    def take(self, indices: NDArray[np.int64], seeds: NDArray[np.uint64] | None) -> NDArray[Any]:
        """The rows at ``indices`` of the chosen ones."""
        return rows_of(self._column, self._chosen[indices], seeds)


def rows_of(
    column: NDArray[Any] | Column, indices: NDArray[np.int64], seeds: NDArray[np.uint64] | None = None
) -> NDArray[Any]:
    """Rows of a column of either kind, shape (len(indices), ...)."""
    if isinstance(column, np.ndarray):
        return column[indices]
    return column.take(indices, seeds)


def some_of(split: Split, chosen: NDArray[np.int64]) -> Split:
    """The split of these examples alone: labels as an array, all other columns as views."""
    columns = [
        column[chosen] if isinstance(column, np.ndarray) and column.ndim == 1 else SomeRows(column, chosen)
        for column in split.columns
    ]
    reference = None if split.reference is None else [split.reference[at] for at in chosen.tolist()]
    return Split(tuple(columns), split.targets, reference)


def labels_of(split: Split, asked: str) -> NDArray[np.int64]:
    """The class of each example, shape (n,); ``DefinitionError`` where the last column does not hold classes."""
    labels = split.labels
    if len(labels.shape) != 1 or np.dtype(labels.dtype).kind not in "iu":
        raise DefinitionError(
            asked, f"the labels are {labels.dtype} of shape {tuple(labels.shape)}", "it needs a whole number an example"
        )
    found = rows_of(labels, np.arange(len(split), dtype=np.int64)).astype(np.int64, copy=False)
    if len(found) and found.min() < 0:
        raise DefinitionError(asked, f"a label is {found.min()}", "it needs classes from 0 on")
    return found


def lengths_of(split: Split, column: int, padding: int) -> NDArray[np.int64]:
    """Of each row of a column its places up to the last one that is not ``padding``, shape (n,)."""
    if not -len(split.columns) <= column < len(split.columns) or len(split.columns[column].shape) < 2:
        raise DefinitionError(
            f"the lengths of column {column}", "it is not there, or has no places to count", "name a column of tokens"
        )
    source = split.columns[column]
    lengths = np.empty(len(split), np.int64)
    for start in range(0, len(split), _BLOCK):
        rows = rows_of(source, np.arange(start, min(start + _BLOCK, len(split)), dtype=np.int64))
        used = (rows != padding).reshape(len(rows), rows.shape[1], -1).any(axis=2)
        lengths[start : start + len(rows)] = np.where(used.any(axis=1), used.shape[1] - used[:, ::-1].argmax(axis=1), 0)
    return lengths
