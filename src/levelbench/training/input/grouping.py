"""Which batches are made at once: small ones in groups, for a call on an array costs the same however few its rows.

The one idea: a group is consecutive steps, whole, so a batch is some rows of it, and no bit depends on the group.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod

from levelbench.networks.executor import Array, Backend

__all__ = ["examples_at_once", "groups", "in_batches", "sizes"]

_ELEMENTS = 2**19
_LEAST = 4


def examples_at_once(backend: Backend, shape: Sequence[int], batch: int) -> int:
    """How many examples of a column of this shape (n, ...) a group has at most: two megabytes in float32.

    None, and so each batch for itself, where the backend cannot cut a group without cost, or where so few batches of
    this size fit that what a call costs is a small part of their work.
    """
    fitting = _ELEMENTS // max(1, prod(shape[1:]))
    return fitting if backend.slices_are_views and fitting >= _LEAST * batch else 0


def groups(bounds: Sequence[int], first: int, last: int, examples: int) -> Iterator[tuple[int, int]]:
    """Steps ``first`` to ``last`` (exclusive) in groups, each from a step to another (exclusive).

    A group has as many batches as together have ``examples``, and one at least; batch i is
    ``bounds[i]`` to ``bounds[i + 1]``.
    """
    while first < last:
        stop = min(max(first + 1, bisect_right(bounds, bounds[first] + examples, first) - 1), last)
        yield first, stop
        first = stop


def sizes(bounds: Sequence[int]) -> list[int]:
    """Rows by batch."""
    return [stop - start for start, stop in pairwise(bounds)]


def in_batches(backend: Backend, columns: Sequence[Array], rows: Sequence[int]) -> Iterator[tuple[Array, ...]]:
    """The columns of a group as its batches, of so many rows each."""
    return zip(*(backend.split(column, rows) for column in columns), strict=True)
