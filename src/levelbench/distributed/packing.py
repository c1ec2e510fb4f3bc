"""Prepares arrays for messages: cuts them into pieces, packs them into flat arrays, views them as plain memory.

A packer is created once, for arrays of one dtype. A framework with writable arrays gives it a single buffer with named
views, so nothing is allocated while training. An array in host memory is sent and received through its NumPy view,
without copies.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any, cast, final

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import UnsupportedError
from levelbench.networks.executor import Array, Backend
from levelbench.training.optimizers.arrays import namespace


def pieces(length: int, count: int) -> list[int]:
    """The count + 1 bounds of ``count`` pieces of ``length`` elements, ascending from 0.

    Sizes differ by at most one, the larger ones first: ``pieces(5, 2)`` is ``[0, 3, 5]``.
    """
    size, rest = divmod(length, count)
    return [at * size + min(at, rest) for at in range(count + 1)]


@final
class FlatLayout:
    """The layout of named arrays of one dtype in a flat one."""

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
        """The named arrays; views of ``flat`` if the framework has views."""
        return {
            name: flat[start:stop].reshape(shape)
            for (name, shape), (start, stop) in zip(self.shapes.items(), pairwise(self._bounds), strict=True)
        }


class Packer:
    """Packs arrays like ``arrays``, all of one dtype, into a flat array in the mapping's order.

    The results of :meth:`put`, :meth:`packed` and :meth:`pack` belong to the packer and change with the next call.
    """

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        like = next(iter(arrays.values()))
        self.layout, self.dtype = FlatLayout(arrays), like.dtype
        self.size: int = self.layout.size
        """Elements in all."""
        self._namespace, self._device = namespace(like), like.device
        self._held: dict[str, Array] = {}

    def put(self, name: str, array: Array, factor: float = 1.0) -> Array:
        """Store ``factor`` times an array in its place; returns what is stored, in the array's shape.

        A factor of 1 keeps the bits, also of integers.
        """
        placed = array if factor == 1.0 else array * factor
        self._held[name] = placed
        return placed

    def packed(self) -> Array:
        """Everything that was put, as a flat array of shape (size,)."""
        held, self._held = self._held, {}
        return self.layout.pack(held)

    def pack(self, arrays: Mapping[str, Array], factor: float = 1.0) -> Array:
        """``factor`` times all arrays, as a flat array of shape (size,)."""
        for name in self.layout.shapes:
            self.put(name, arrays[name], factor)
        return self.packed()

    def unpack(self, flat: Array) -> dict[str, Array]:
        """The named arrays of a flat one; views of it if the framework has views."""
        return self.layout.unpack(flat)

    def empty(self) -> Array:
        """A new, uninitialised flat array to receive into, shape (size,)."""
        return self._namespace.empty(self.size, dtype=self.dtype, device=self._device)

    def write(self, flat: Array, targets: MutableMapping[str, Array]) -> None:
        """Copy a flat array into the live arrays of these names."""
        targets.update(self.unpack(flat))


def packer(backend: Backend, arrays: Mapping[str, Array]) -> Packer:
    """The framework's own packer if it has one, otherwise the generic one."""
    return cast("Packer | None", backend.packer(arrays)) or Packer(arrays)


def by_dtype(arrays: Mapping[str, Array]) -> dict[object, list[str]]:
    """The names of the arrays of each dtype, in order of first appearance."""
    result: dict[object, list[str]] = {}
    for name, array in arrays.items():
        result.setdefault(array.dtype, []).append(name)
    return result


class NumpyPacker(Packer):
    """Writes into one buffer that is allocated once."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        super().__init__(arrays)
        self._flat = np.empty(self.size, self.dtype)
        self._views = self.layout.unpack(self._flat)

    def put(self, name: str, array: NDArray[Any], factor: float = 1.0) -> NDArray[Any]:
        view: NDArray[Any] = self._views[name]
        if factor == 1.0:
            view[...] = array
        else:
            np.multiply(array, factor, out=view)
        return view

    def packed(self) -> NDArray[Any]:
        return self._flat

    def unpack(self, flat: NDArray[Any]) -> dict[str, NDArray[Any]]:
        return dict(self._views) if flat is self._flat else super().unpack(flat)


@final
class Packed:
    """Packs named arrays of any dtypes into one flat array per dtype."""

    def __init__(self, backend: Backend, arrays: Mapping[str, Array]) -> None:
        self.packers = [packer(backend, {name: arrays[name] for name in names}) for names in by_dtype(arrays).values()]

    def pack(self, arrays: Mapping[str, Array], factor: float = 1.0) -> list[Array]:
        """``factor`` times the arrays, one flat array per dtype; valid until the next call."""
        return [each.pack(arrays, factor) for each in self.packers]

    def unpack(self, flats: Sequence[Array]) -> dict[str, Array]:
        """The named arrays; views of ``flats`` if the framework has views."""
        result: dict[str, Array] = {}
        for each, flat in zip(self.packers, flats, strict=True):
            result.update(each.unpack(flat))
        return result

    def write(self, flats: Sequence[Array], targets: MutableMapping[str, Array]) -> None:
        """Copy the flat arrays into the live arrays of these names."""
        for each, flat in zip(self.packers, flats, strict=True):
            each.write(flat, targets)


HostArray = NDArray[Any]
"""An array in host memory, of any dtype."""
_CPU = 1  # kDLCPU in DLPack's header


def view(array: Array) -> HostArray:
    """A NumPy view of the array's memory: writable for NumPy and PyTorch, read-only for JAX. Never a copy.

    bfloat16 becomes that of ml_dtypes. ``UnsupportedError`` for memory outside the host (CUDA), and for dtypes and
    layouts that NumPy lacks (float8, sparse).
    """
    if isinstance(array, np.ndarray):
        return array
    if isinstance(array, np.generic):
        return np.asarray(array)
    _require_host(array)
    # PyTorch refuses to export a parameter that autograd tracks.
    plain = array.detach() if hasattr(array, "detach") else array
    try:
        return np.asarray(plain)
    except (TypeError, RuntimeError) as error:
        if dtype_name(array) != "bfloat16":
            raise _unseen(array, str(error)) from error
    import ml_dtypes

    # PyTorch does not export bfloat16, but does export its bits as integers.
    return np.asarray(plain.view(namespace(array).int16)).view(ml_dtypes.bfloat16)


def put(result: HostArray, like: Array) -> Array:
    """``result`` as a native array: written into ``like`` if that is writable, otherwise new, on its device.

    ``result`` has the shape and dtype of ``like`` and is not kept.
    """
    if isinstance(like, np.generic):
        return result.copy()
    target = view(like)
    if target.flags.writeable:
        if target is not result:
            np.copyto(target, result)
        return like
    return _native(result.copy(), like)


def new(result: HostArray, like: Array) -> Array:
    """``result`` as a new native array of the type and device of ``like``, of any shape.

    The new array may share its memory, so ``result`` must not be used afterwards.
    """
    return result if isinstance(like, np.ndarray | np.generic) else _native(result, like)


def _native(owned: HostArray, like: Array) -> Array:
    xp = namespace(like)
    # JAX accepts the dtypes of ml_dtypes, which it is built on.
    if owned.dtype.isbuiltin != 2 or isinstance(getattr(xp, "bfloat16", None), type):
        return xp.asarray(owned, device=like.device)
    return xp.asarray(owned.view(np.int16), device=like.device).view(like.dtype)


def elements(array: Array) -> int:
    """The number of elements of an array."""
    return prod(array.shape)


def dtype_name(array: Array) -> str:
    """The dtype's name without the framework's prefix, such as ``float32``."""
    return str(array.dtype).rpartition(".")[2]


def is_floating(array: Array) -> bool:
    """Whether the dtype can hold a mean: any floating-point or complex one."""
    return "float" in dtype_name(array) or "complex" in dtype_name(array)


def _require_host(array: Array) -> None:
    try:
        kind = int(array.__dlpack_device__()[0])
    except (AttributeError, ValueError) as error:
        raise _unseen(array, "it does not tell where its memory is") from error
    if kind != _CPU:
        raise _unseen(array, f"its memory is that of {array.device}")


def _unseen(array: Array, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"a NumPy view of a {type(array).__name__} of dtype {dtype_name(array)}",
        why,
        "keep it on the host in a dtype that NumPy has, or use a communicator of its framework",
    )


@final
class Memory:
    """``host`` holds the elements of ``array``, writable, shape (n,): its own memory if possible, otherwise a copy.

    With ``reads=False`` the current values are not needed.
    """

    def __init__(self, array: Array, *, reads: bool = True) -> None:
        self._array = array
        own = view(array)
        self._shape = own.shape
        self._shared = own.flags.writeable and own.flags.c_contiguous and not isinstance(array, np.generic)
        if not self._shared:
            own = np.array(own, order="C") if reads else np.empty(own.shape, own.dtype)
        self.host: HostArray = own.reshape(-1)

    def result(self) -> Array:
        """The contents of :attr:`host`, in the given array if that is writable."""
        return self._array if self._shared else put(self.host.reshape(self._shape), self._array)


def dense(array: Array) -> HostArray:
    """The elements of ``array`` for reading, shape (n,); a copy if they are not contiguous."""
    return np.ascontiguousarray(view(array)).reshape(-1)


def as_bytes(host: HostArray) -> NDArray[np.uint8]:
    """The same memory as bytes."""
    return host.reshape(-1).view(np.uint8)


def rows(found: HostArray, likes: Sequence[Array]) -> tuple[Array, ...]:
    """Row i of ``found``, shape (size, n), as a new native array like ``likes[i]``."""
    # Copies, so that keeping one row does not keep all of them.
    return tuple(new(row.reshape(like.shape).copy(), like) for row, like in zip(found, likes, strict=True))
