"""What compression needs of arrays beyond arithmetic, on NumPy, PyTorch and JAX, where the array lies.

The Array API standard covers most of it. The functions that it lacks (the k largest, packed bits, adding at places) are
taken from the array's own namespace where that has a fast one. Random numbers for stochastic rounding are hashes of a
position and a key (the run's seed, the rank, the step): no state, and the same bits on every framework.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from levelbench.networks.executor import Array
from levelbench.training.optimizers.arrays import copy, namespace

_BYTE = 8


def typed(array: Array, name: str) -> Array:
    """A copy in the type of that name in the array's namespace: ``int32``, ``float16``, ``bfloat16``, ..."""
    xp = namespace(array)
    return xp.astype(array, getattr(xp, name))


def index_type(size: int) -> str:
    """The name of the smaller type that counts up to ``size``: ``int32`` or ``int64``."""
    return "int32" if size < 1 << 31 else "int64"


def largest(magnitudes: Array, count: int) -> Array:
    """The places of the ``count`` largest elements of a flat array, at least one, in no order, each once."""
    xp, size = namespace(magnitudes), magnitudes.shape[0]
    if count >= size:
        return xp.arange(size, device=magnitudes.device)
    if hasattr(xp, "topk"):
        return xp.topk(magnitudes, count, sorted=False)[1]
    if hasattr(xp, "argpartition"):
        return xp.argpartition(magnitudes, size - count)[size - count :]
    return xp.argsort(magnitudes, descending=True)[:count]


def add_at(target: Array, places: Array | int, values: Array) -> Array:
    """``target`` with ``values`` added at ``places`` of its first axis, each named once; in place where that can be."""
    if hasattr(target, "at"):
        return target.at[places].add(values)
    target[places] += values
    return target


def padded(flat: Array, size: int) -> Array:
    """A flat array with zeros behind it, ``size`` elements in all; itself where there are as many already."""
    missing = size - flat.shape[0]
    if missing == 0:
        return flat
    xp = namespace(flat)
    return xp.concat([flat, xp.zeros(missing, dtype=flat.dtype, device=flat.device)])


def in_rows(flat: Array, length: int) -> Array:
    """A flat array as rows of ``length``, shape (rows, length), the last one filled up with zeros."""
    rows = -(-flat.shape[0] // length)
    return padded(flat, rows * length).reshape((rows, length))


def packed_size(count: int, bits: int) -> int:
    """Bytes that :func:`pack_codes` makes of ``count`` codes of ``bits`` bits each."""
    if _BYTE % bits == 0:
        return -(-count * bits // _BYTE)
    return bits * -(-count // _BYTE)


def pack_codes(codes: Array, bits: int) -> Array:
    """Codes from 0 to 2^bits - 1 (flat, of an integer type) as bytes (``uint8``), with nothing in between.

    Where ``bits`` divides 8 a byte holds 8 / bits of them, the first in the lowest bits. Else bit 0 of all codes comes
    first, then bit 1 of all, and so on, each stretch filled up to a byte.
    """
    xp = namespace(codes)
    if bits == _BYTE:
        return xp.astype(codes, xp.uint8)
    if _BYTE % bits:
        return xp.concat([pack_codes((codes >> plane) & 1, 1) for plane in range(bits)])
    small = xp.astype(codes, xp.uint8)
    if bits == 1 and hasattr(xp, "packbits"):
        return xp.packbits(small, bitorder="little")
    columns = in_rows(small, _BYTE // bits)
    packed = xp.asarray(columns[:, 0], copy=True)
    for at in range(1, columns.shape[1]):
        packed |= columns[:, at] << (at * bits)
    return packed


def unpack_codes(packed: Array, bits: int, count: int) -> Array:
    """The ``count`` codes that :func:`pack_codes` packed: ``uint8`` up to 8 bits, else ``int32``."""
    xp = namespace(packed)
    if bits == _BYTE:
        return packed
    if _BYTE % bits:
        wide = xp.int32 if bits > _BYTE else xp.uint8
        planes = packed.reshape((bits, packed.shape[0] // bits))
        codes = xp.astype(unpack_codes(planes[0, :], 1, count), wide)
        for plane in range(1, bits):
            codes |= xp.astype(unpack_codes(planes[plane, :], 1, count), wide) << plane
        return codes
    if bits == 1 and hasattr(xp, "unpackbits"):
        return xp.unpackbits(packed, count=count, bitorder="little")
    mask = (1 << bits) - 1
    columns = [(packed >> (at * bits)) & mask for at in range(_BYTE // bits)]
    return xp.stack(columns, axis=1).reshape(-1)[:count]


def as_bytes(parts: Sequence[Array]) -> Array:
    """The bytes of all parts behind one another (``uint8``), so that one message carries them."""
    xp = namespace(parts[0])
    flat = [part.reshape(-1).view(xp.uint8) for part in parts]
    return flat[0] if len(flat) == 1 else xp.concat(flat)


def from_bytes(data: Array, kinds: Sequence[tuple[int, Any, int]]) -> tuple[Array, ...]:
    """The parts that :func:`as_bytes` joined, by (elements, type, bytes an element)."""
    parts, start = [], 0
    for count, kind, width in kinds:
        stop = start + count * width
        # Not every framework reads numbers that do not begin at a multiple of their width.
        part = copy(data[start:stop]) if start % width else data[start:stop]
        parts.append(part.view(kind))
        start = stop
    return tuple(parts)


_FIRST, _SECOND = 0x7FEB352D, 0x846CA68B - (1 << 32)
_BITS = 23


@dataclass(frozen=True)
class Key:
    """Which draws are meant. ``group`` and ``stage`` tell apart several arrays, and uses of one, in a step."""

    seed: int = 0
    rank: int = 0
    step: int = 1
    group: int = 0
    stage: int = 0

    def at(self, stage: int) -> Key:
        """The same step's key for another use."""
        return replace(self, stage=stage)

    def everywhere(self) -> Key:
        """The key that all ranks share."""
        return replace(self, rank=-1)

    def words(self) -> tuple[int, int]:
        """Two 32-bit words, signed, as the arithmetic of :func:`uniform` is."""
        words = self._sequence().generate_state(2).astype(np.int32)
        return int(words[0]), int(words[1])

    def generator(self) -> np.random.Generator:
        """A generator on the host, for the few numbers that are drawn there."""
        return np.random.Generator(np.random.PCG64(self._sequence()))

    def _sequence(self) -> np.random.SeedSequence:
        return np.random.SeedSequence([self.seed, self.rank + 1, self.step, self.group, self.stage])


def uniform(size: int, like: Array, key: Key) -> Array:
    """``size`` numbers in the open interval (0, 1), multiples of 2^-24, in the type and on the device of ``like``.

    The hash is ``lowbias32`` (Wellons 2018, "Prospecting for hash functions"), with the second word of the key mixed in
    halfway, so that two keys do not give one sequence in two orders. Needs a type of 24 bits of precision or more.
    """
    xp = namespace(like)
    first, second = key.words()
    bits = xp.arange(size, dtype=xp.int32, device=like.device)
    bits ^= first
    # Shifts of signed integers drag the sign along: the masks take it off.
    bits ^= (bits >> 16) & 0xFFFF
    bits *= _FIRST
    bits ^= second
    bits ^= (bits >> 15) & 0x1FFFF
    bits *= _SECOND
    bits ^= (bits >> 16) & 0xFFFF
    bits = (bits >> (32 - _BITS)) & ((1 << _BITS) - 1)
    result = xp.astype(bits, like.dtype)
    result += 0.5
    result *= 2.0**-_BITS
    return result
