"""What compression needs of arrays beyond arithmetic, on NumPy, PyTorch and JAX, where the array lies.

The one idea: the Array API standard covers most of it; the few functions that it lacks (the k largest, packed bits,
adding at places) are taken from the array's own namespace where that has a fast one, else made of what the standard
has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from levelbench.networks.executor import Array
from levelbench.training.optimizers.arrays import copy, namespace

__all__ = [
    "add_at",
    "as_bytes",
    "from_bytes",
    "in_rows",
    "index_type",
    "largest",
    "pack_codes",
    "packed_size",
    "padded",
    "typed",
    "unpack_codes",
]

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
