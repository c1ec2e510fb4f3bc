"""Fills memory that an operator is about to be given, so that what it does not write and what it should not is seen.

The one idea: ``numpy.empty`` and ``numpy.empty_like`` promise nothing of their values; inside :func:`poisoned` they
answer with arrays full of one byte, which lie between guards that a write beyond an end changes. What asks the C
library for memory gets blocks that were filled and freed just before.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from levelbench.operators.validation.subject import Host

__all__ = ["Guarded", "fill_heap", "guarded_copy", "poisoned"]

_GUARD_BYTES = 256
_GUARD = 0xA7
_ALIGNMENT = 64


class Guarded:
    """A block of memory with guards on both sides."""

    def __init__(self, nbytes: int, pattern: int) -> None:
        self._buffer = np.full(nbytes + 2 * _GUARD_BYTES + _ALIGNMENT, _GUARD, np.uint8)
        address = self._buffer.__array_interface__["data"][0] + _GUARD_BYTES
        self._start = _GUARD_BYTES + (-address) % _ALIGNMENT
        self._end = self._start + nbytes
        self.bytes: NDArray[np.uint8] = self._buffer[self._start : self._end]
        self.bytes[...] = pattern

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any], order: str = "C") -> Host:
        """The block as an array."""
        return self.bytes.view(dtype).reshape(shape, order="F" if order == "F" else "C")

    def broken(self) -> str | None:
        """Which guard was written over, and how far from the block's end, if one was."""
        before = np.flatnonzero(self._buffer[: self._start] != _GUARD)
        if before.size:
            return f"{self._start - int(before[0])} bytes before its beginning"
        after = np.flatnonzero(self._buffer[self._end :] != _GUARD)
        return f"{int(after[-1]) + 1} bytes beyond its end" if after.size else None


def guarded_copy(value: Host) -> tuple[Host, Guarded]:
    """A copy of ``value`` between guards."""
    block = Guarded(value.nbytes, 0)
    copy = block.array(value.shape, value.dtype)
    copy[...] = value
    return copy, block


@contextlib.contextmanager
def poisoned(pattern: int) -> Iterator[list[Guarded]]:
    """Inside, NumPy's uninitialised arrays are full of ``pattern`` and guarded; the blocks handed out."""
    blocks: list[Guarded] = []
    empty, empty_like = np.empty, np.empty_like

    def guarded(shape: Any, dtype: Any = float, order: str = "C", **more: Any) -> Any:
        wanted = np.dtype(dtype)
        if wanted.hasobject or wanted.itemsize == 0 or more.get("like") is not None or order not in "CF":
            return empty(shape, dtype, order, **more)  # type: ignore[call-overload]
        sizes = (int(shape),) if np.ndim(shape) == 0 else tuple(int(each) for each in shape)
        blocks.append(Guarded(math.prod(sizes) * wanted.itemsize, pattern))
        return blocks[-1].array(sizes, wanted, order)

    def guarded_like(
        prototype: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, **more: Any
    ) -> Any:
        model = np.asarray(prototype)
        plain = type(prototype) is np.ndarray and model.flags.c_contiguous
        if not plain:
            return empty_like(prototype, dtype=dtype, order=order, subok=subok, shape=shape, **more)  # type: ignore[call-overload]
        return guarded(model.shape if shape is None else shape, dtype or model.dtype)

    with mock.patch.object(np, "empty", guarded), mock.patch.object(np, "empty_like", guarded_like):
        yield blocks


def fill_heap(outputs: Sequence[Host | None], pattern: int) -> None:
    """Fill and free blocks of the sizes of ``outputs``, some larger: what is allocated next is likely among them."""
    sizes = [each.nbytes + extra for each in outputs if each is not None and each.nbytes for extra in (0, 64, 128)]
    blocks = [np.full(size, pattern, np.uint8) for size in sizes for _ in range(4)]
    del blocks
