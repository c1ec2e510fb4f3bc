"""Native arrays seen as NumPy's, for libraries that read and write plain memory.

An array in the host's memory has a NumPy view, so nothing is copied to be sent; what arrives goes back through the same
view where it can be written to, else into a new array of the same kind and device.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import UnsupportedError
from levelbench.networks.executor import Array
from levelbench.training.optimizers.arrays import namespace

HostArray = NDArray[Any]
"""An array in the host's memory, of any dtype."""
_CPU = 1  # kDLCPU in DLPack's header


def view(array: Array) -> HostArray:
    """The array's own memory as NumPy: writable for NumPy and PyTorch, read-only for JAX. No copy.

    bfloat16 comes as that of ml_dtypes. ``UnsupportedError`` for memory that is not the host's (CUDA), and for dtypes
    and layouts that NumPy lacks (float8, sparse).
    """
    if isinstance(array, np.ndarray):
        return array
    if isinstance(array, np.generic):
        return np.asarray(array)
    _require_host(array)
    # A PyTorch parameter refuses to be seen from outside while autograd watches it.
    plain = array.detach() if hasattr(array, "detach") else array
    try:
        return np.asarray(plain)
    except (TypeError, RuntimeError) as error:
        if dtype_name(array) != "bfloat16":
            raise _unseen(array, str(error)) from error
    import ml_dtypes

    # PyTorch hands out no bfloat16, but the same bits as integers.
    return np.asarray(plain.view(namespace(array).int16)).view(ml_dtypes.bfloat16)


def put(result: HostArray, like: Array) -> Array:
    """``result`` as a native array: in ``like`` itself where that can be written to, else new, of its device.

    ``result`` has the shape and dtype of ``like``, and stays the caller's.
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
    """``result`` as a new native array of the kind and device of ``like``, of any shape.

    ``result`` becomes part of it where it can: it must not be used afterwards.
    """
    return result if isinstance(like, np.ndarray | np.generic) else _native(result, like)


def _native(owned: HostArray, like: Array) -> Array:
    xp = namespace(like)
    # JAX takes the dtypes of ml_dtypes, on which it is built.
    if owned.dtype.isbuiltin == 1 or isinstance(getattr(xp, "bfloat16", None), type):
        return xp.asarray(owned, device=like.device)
    return xp.asarray(owned.view(np.int16), device=like.device).view(like.dtype)


def elements(array: Array) -> int:
    """How many elements it has."""
    return prod(array.shape)


def dtype_name(array: Array) -> str:
    """``float32``, whatever the framework calls it."""
    return str(array.dtype).rpartition(".")[2]


def is_floating(array: Array) -> bool:
    """Whether its elements have a mean of their own dtype: any floating-point or complex one."""
    return "float" in dtype_name(array) or "complex" in dtype_name(array)


def _require_host(array: Array) -> None:
    try:
        kind = int(array.__dlpack_device__()[0])
    except (AttributeError, ValueError) as error:
        raise _unseen(array, "it does not say where its memory is") from error
    if kind != _CPU:
        raise _unseen(array, f"its memory is that of {array.device}")


def _unseen(array: Array, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"a NumPy view of a {type(array).__name__} of dtype {dtype_name(array)}",
        why,
        "keep it on the host in a dtype that NumPy has, or take a communicator of its framework",
    )


@final
class Memory:
    """``host``: the elements of ``array`` to be written to, shape (n,): its own memory where that can be, else other.

    ``reads``: what is in ``array`` counts.
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
        """What is in :attr:`host`, in the array that was given wherever that can be written to."""
        return self._array if self._shared else put(self.host.reshape(self._shape), self._array)


def dense(array: Array) -> HostArray:
    """The elements of ``array`` to be read, shape (n,): a copy where they do not lie behind one another."""
    return np.ascontiguousarray(view(array)).reshape(-1)


def as_bytes(host: HostArray) -> NDArray[np.uint8]:
    """The same memory, of any dtype, as bytes."""
    return host.reshape(-1).view(np.uint8)


def rows(found: HostArray, likes: Sequence[Array]) -> tuple[Array, ...]:
    """Row number i of ``found``, shape (size, n), as a new native array like ``likes[i]``."""
    # Rows of their own: one that somebody keeps must not keep all of them.
    return tuple(new(row.reshape(like.shape).copy(), like) for row, like in zip(found, likes, strict=True))
