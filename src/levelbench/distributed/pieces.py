"""How an array is cut into pieces for ranks, and parameters are packed into one flat array."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import prod
from typing import final

from levelbench.networks.executor import Array
from levelbench.training.optimizers.arrays import namespace

__all__ = ["Layout", "pieces"]


def pieces(length: int, count: int) -> list[int]:
    """Bounds of ``count`` pieces of a stretch of ``length``, ascending from 0, count + 1 of them.

    Sizes differ by one at most, the larger ones first: ``pieces(5, 2)`` is ``[0, 3, 5]``.
    """
    size, rest = divmod(length, count)
    return [at * size + min(at, rest) for at in range(count + 1)]


@final
class Layout:
    """The order in which named arrays of one dtype lie behind one another in a flat one."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self.shapes = {name: tuple(each.shape) for name, each in arrays.items()}
        sizes = [prod(shape) for shape in self.shapes.values()]
        self._bounds = [sum(sizes[:at]) for at in range(len(sizes) + 1)]
        self.size = self._bounds[-1]
        """Elements in all."""

    def pack(self, arrays: Mapping[str, Array]) -> Array:
        """One new flat array, shape (size,)."""
        parts = [arrays[name].reshape(-1) for name in self.shapes]
        return namespace(parts[0]).concat(parts)

    def unpack(self, flat: Array) -> dict[str, Array]:
        """The named arrays; views of ``flat`` where the framework has views."""
        return {
            name: flat[start:stop].reshape(shape)
            for (name, shape), (start, stop) in zip(self.shapes.items(), pairwise(self._bounds), strict=True)
        }
