"""Native arrays as dense stretches of the host's memory, for a library that is given addresses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from levelbench.distributed import buffers
from levelbench.networks.executor import Array

__all__ = ["Memory", "as_bytes", "dense", "rows"]


@final
class Memory:
    """``host``: the elements of ``array`` to be written to, shape (n,): its own memory where that can be, else other.

    ``reads``: what is in ``array`` counts.
    """

    def __init__(self, array: Array, *, reads: bool = True) -> None:
        self._array = array
        own = buffers.view(array)
        self._shape = own.shape
        self._shared = own.flags.writeable and own.flags.c_contiguous and not isinstance(array, np.generic)
        if not self._shared:
            own = np.array(own, order="C") if reads else np.empty(own.shape, own.dtype)
        self.host: NDArray[Any] = own.reshape(-1)

    def result(self) -> Array:
        """What is in :attr:`host`, in the array that was given wherever that can be written to."""
        return self._array if self._shared else buffers.put(self.host.reshape(self._shape), self._array)


def dense(array: Array) -> NDArray[Any]:
    """The elements of ``array`` to be read, shape (n,): a copy where they do not lie behind one another."""
    return np.ascontiguousarray(buffers.view(array)).reshape(-1)


def as_bytes(host: NDArray[Any]) -> NDArray[np.uint8]:
    """The same memory, of any dtype, as bytes."""
    return host.reshape(-1).view(np.uint8)


def rows(found: NDArray[Any], likes: Sequence[Array]) -> tuple[Array, ...]:
    """Row number i of ``found``, shape (size, n), as a new native array like ``likes[i]``."""
    # Rows of their own: one that somebody keeps must not keep all of them.
    return tuple(buffers.new(row.reshape(like.shape).copy(), like) for row, like in zip(found, likes, strict=True))
