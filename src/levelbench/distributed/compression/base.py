"""What a compressor is: a gradient becomes a payload, a few native arrays that travel, and an estimate of it again.

The one idea: a compressor keeps nothing. What it leaves out is for error feedback to remember, which is the same for
all of them (:mod:`levelbench.distributed.compression.feedback`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from levelbench.distributed.compression.arrays import as_bytes, from_bytes
from levelbench.distributed.compression.draws import Key
from levelbench.networks.executor import Array
from levelbench.training.optimizers.arrays import namespace, zeros_like

__all__ = ["Compressor", "Part", "Payload"]

Payload = tuple[Array, ...]
"""Flat native arrays."""

_WIDTHS = {"uint8": 1, "uint16": 2, "float16": 2, "bfloat16": 2, "int32": 4, "int64": 8}


@dataclass(frozen=True)
class Part:
    """One array of a payload: its elements, and their type (the gradient's own where ``kind`` is empty)."""

    elements: int
    kind: str = ""

    def nbytes(self, itemsize: int) -> int:
        """Bytes, for a gradient of ``itemsize`` bytes an element."""
        return self.elements * _WIDTHS.get(self.kind, itemsize)


class Compressor(ABC):
    """A frozen description. ``flat`` is always of shape (n,) and of type ``float32`` or ``float64``."""

    @abstractmethod
    def parts(self, size: int) -> tuple[Part, ...]:
        """The arrays of the payload of ``size`` elements."""

    @abstractmethod
    def compress(self, flat: Array, key: Key) -> Payload:
        """The payload: new arrays. ``flat`` is left as it is."""

    @abstractmethod
    def add(self, target: Array, payload: Payload, factor: float = 1.0) -> Array:
        """``target`` + factor · what the payload says, shape (n,); in place where that can be."""

    def summable(self, ranks: int) -> Compressor:
        """The compressor whose payloads ``ranks`` ranks may add up as they are; itself where that makes no odds."""
        return self

    def decompress(self, payload: Payload, like: Array) -> Array:
        """What the payload says, of the shape, type and device of ``like``."""
        return self.add(zeros_like(like), payload)

    def nbytes(self, size: int, itemsize: int) -> int:
        """Bytes of the payload of ``size`` elements of ``itemsize`` bytes each."""
        return sum(part.nbytes(itemsize) for part in self.parts(size))

    def joined(self, payload: Payload) -> Array:
        """The payload as one array of bytes (``uint8``)."""
        return as_bytes(payload)

    def parted(self, data: Array, like: Array) -> Payload:
        """The payload of :meth:`joined` again, for a gradient like this one."""
        xp = namespace(like)
        kinds: list[tuple[int, Any, int]] = []
        for part in self.parts(like.shape[0]):
            # Where arrays have no bfloat16, its bits travel.
            kind = getattr(xp, part.kind, xp.uint16) if part.kind else like.dtype
            kinds.append((part.elements, kind, _WIDTHS.get(part.kind) or like.dtype.itemsize))
        return from_bytes(data, kinds)
