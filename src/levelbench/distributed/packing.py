"""How arrays are cut into pieces for ranks, and named arrays packed into flat ones for messages.

A packer is made once, for arrays of one dtype, so a framework that can write to arrays gives it one buffer with views
of it by name, and nothing is allocated while training; the generic one works on any arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from itertools import pairwise
from math import prod
from typing import cast, final

from levelbench.networks.executor import Array, Backend
from levelbench.training.optimizers.arrays import namespace


def pieces(length: int, count: int) -> list[int]:
    """Bounds of ``count`` pieces of a stretch of ``length``, ascending from 0, count + 1 of them.

    Sizes differ by one at most, the larger ones first: ``pieces(5, 2)`` is ``[0, 3, 5]``.
    """
    size, rest = divmod(length, count)
    return [at * size + min(at, rest) for at in range(count + 1)]


@final
class FlatLayout:
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


class Packer:
    """Arrays like ``arrays``, which are of one dtype, behind one another in the mapping's order.

    What :meth:`put`, :meth:`packed` and :meth:`pack` answer with belongs to the packer, and changes at the next call.
    """

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        like = next(iter(arrays.values()))
        self.layout, self.dtype = FlatLayout(arrays), like.dtype
        self._namespace, self._device = namespace(like), like.device
        self._held: dict[str, Array] = {}

    @property
    def size(self) -> int:
        """Elements in all."""
        size: int = self.layout.size
        return size

    def put(self, name: str, array: Array, factor: float = 1.0) -> Array:
        """``factor`` times an array in its place; answers with what is there now, of the array's own shape.

        A factor of 1 leaves the bits as they are, of integers too.
        """
        placed = array if factor == 1.0 else array * factor
        self._held[name] = placed
        return placed

    def packed(self) -> Array:
        """All that was put, flat, shape (size,)."""
        held, self._held = self._held, {}
        return self.layout.pack(held)

    def pack(self, arrays: Mapping[str, Array], factor: float = 1.0) -> Array:
        """``factor`` times all arrays, flat, shape (size,)."""
        for name in self.layout.shapes:
            self.put(name, arrays[name], factor)
        return self.packed()

    def unpack(self, flat: Array) -> dict[str, Array]:
        """The named arrays of a flat one; views of it where the framework has views."""
        return self.layout.unpack(flat)

    def empty(self) -> Array:
        """A flat array of its own to receive into, shape (size,), of no particular values."""
        return self._namespace.empty(self.size, dtype=self.dtype, device=self._device)

    def write(self, flat: Array, targets: MutableMapping[str, Array]) -> None:
        """The values of a flat array into live arrays of these names."""
        targets.update(self.unpack(flat))


def packer(backend: Backend, arrays: Mapping[str, Array]) -> Packer:
    """The framework's own packer where it has one, else the generic one."""
    return cast("Packer | None", backend.packer(arrays)) or Packer(arrays)


def by_dtype(arrays: Mapping[str, Array]) -> dict[object, list[str]]:
    """The names of the arrays of each dtype, in the order in which dtypes and names first appear."""
    result: dict[object, list[str]] = {}
    for name, array in arrays.items():
        result.setdefault(array.dtype, []).append(name)
    return result


@final
class Packed:
    """Named arrays of any dtypes as a few flat ones: one a dtype."""

    def __init__(self, backend: Backend, arrays: Mapping[str, Array]) -> None:
        self.packers = [packer(backend, {name: arrays[name] for name in names}) for names in by_dtype(arrays).values()]

    def pack(self, arrays: Mapping[str, Array], factor: float = 1.0) -> list[Array]:
        """``factor`` times the arrays, one flat array a dtype; they are the packers' own until the next call."""
        return [each.pack(arrays, factor) for each in self.packers]

    def unpack(self, flats: Sequence[Array]) -> dict[str, Array]:
        """The named arrays; views of ``flats`` where the framework has views."""
        result: dict[str, Array] = {}
        for each, flat in zip(self.packers, flats, strict=True):
            result.update(each.unpack(flat))
        return result

    def write(self, flats: Sequence[Array], targets: MutableMapping[str, Array]) -> None:
        """The values of the flat arrays into live arrays of these names."""
        for each, flat in zip(self.packers, flats, strict=True):
            each.write(flat, targets)
