"""Compressors turn a gradient into a payload, a few native arrays to send, and back into an estimate of it.

A compressor keeps no state: error feedback remembers what it leaves out. The functions at the top are what compression
needs beyond the Array API standard; they use the array's own namespace if that has a fast way. Random numbers for
stochastic rounding are hashes of a position and a key (run seed, rank, step), so they are the same bits on every
framework.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np

from levelbench.errors import UnsupportedError
from levelbench.networks.executor import Array
from levelbench.training.optimizers.arrays import copy, namespace, zeros_like

_BYTE = 8


def typed(array: Array, name: str) -> Array:
    """A copy with the dtype of this name in the array's namespace: ``int32``, ``float16``, ``bfloat16``, ..."""
    xp = namespace(array)
    return xp.astype(array, getattr(xp, name))


def index_type(size: int) -> str:
    """The name of the smaller index type for ``size`` elements: ``int32`` or ``int64``."""
    return "int32" if size < 1 << 31 else "int64"


def largest(magnitudes: Array, count: int) -> Array:
    """The distinct places of the ``count`` largest elements of a flat array (at least one), in no order."""
    xp, size = namespace(magnitudes), magnitudes.shape[0]
    if count >= size:
        return xp.arange(size, device=magnitudes.device)
    if hasattr(xp, "topk"):
        return xp.topk(magnitudes, count, sorted=False)[1]
    if hasattr(xp, "argpartition"):
        return xp.argpartition(magnitudes, size - count)[size - count :]
    return xp.argsort(magnitudes, descending=True)[:count]


def add_at(target: Array, places: Array | int, values: Array) -> Array:
    """``target`` with ``values`` added at distinct ``places`` of its first axis; in place if possible."""
    if hasattr(target, "at"):
        return target.at[places].add(values)
    target[places] += values
    return target


def padded(flat: Array, size: int) -> Array:
    """A flat array padded with zeros to ``size`` elements; returned itself if no padding is needed."""
    missing = size - flat.shape[0]
    if missing == 0:
        return flat
    xp = namespace(flat)
    return xp.concat([flat, xp.zeros(missing, dtype=flat.dtype, device=flat.device)])


def in_rows(flat: Array, length: int) -> Array:
    """A flat array as rows of ``length``, shape (rows, length), the last one padded with zeros."""
    rows = -(-flat.shape[0] // length)
    return padded(flat, rows * length).reshape((rows, length))


def packed_size(count: int, bits: int) -> int:
    """The bytes that :func:`pack_codes` makes of ``count`` codes of ``bits`` bits each."""
    if _BYTE % bits == 0:
        return -(-count * bits // _BYTE)
    return bits * -(-count // _BYTE)


def pack_codes(codes: Array, bits: int) -> Array:
    """Pack codes from 0 to 2^bits - 1 (flat, of an integer type) densely into bytes (``uint8``).

    If ``bits`` divides 8, a byte holds 8 / bits codes, the first in the lowest bits. Otherwise bit 0 of all codes comes
    first, then bit 1 of all, and so on, each padded to a whole byte.
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
    """The bytes of all parts concatenated (``uint8``), for a single message."""
    xp = namespace(parts[0])
    flat = [part.reshape(-1).view(xp.uint8) for part in parts]
    return flat[0] if len(flat) == 1 else xp.concat(flat)


def from_bytes(data: Array, kinds: Sequence[tuple[int, Any, int]]) -> tuple[Array, ...]:
    """The parts that :func:`as_bytes` joined, described by (elements, type, bytes per element)."""
    parts, start = [], 0
    for count, kind, width in kinds:
        stop = start + count * width
        # Not every framework reads unaligned numbers.
        part = copy(data[start:stop]) if start % width else data[start:stop]
        parts.append(part.view(kind))
        start = stop
    return tuple(parts)


_FIRST, _SECOND = 0x7FEB352D, 0x846CA68B - (1 << 32)
_BITS = 23


@dataclass(frozen=True)
class Key:
    """Identifies random draws. ``group`` and ``stage`` distinguish several arrays, and uses of one, in a step."""

    seed: int = 0
    rank: int = 0
    step: int = 1
    group: int = 0
    stage: int = 0

    def at(self, stage: int) -> Key:
        """The key of the same step for another use."""
        return replace(self, stage=stage)

    def everywhere(self) -> Key:
        """The key that all ranks share."""
        return replace(self, rank=-1)

    def words(self) -> tuple[int, int]:
        """Two signed 32-bit words, for the arithmetic of :func:`uniform`."""
        words = self._sequence().generate_state(2).astype(np.int32)
        return int(words[0]), int(words[1])

    def generator(self) -> np.random.Generator:
        """A host generator, for the few numbers that are drawn there."""
        return np.random.Generator(np.random.PCG64(self._sequence()))

    def _sequence(self) -> np.random.SeedSequence:
        return np.random.SeedSequence([self.seed, self.rank + 1, self.step, self.group, self.stage])


def uniform(size: int, like: Array, key: Key) -> Array:
    """``size`` numbers in the open interval (0, 1), multiples of 2^-24, with the type and device of ``like``.

    The hash is ``lowbias32`` (Wellons 2018, "Prospecting for hash functions"). The second word of the key is mixed in
    halfway, so that two keys do not give one sequence in two orders. Needs a type with at least 24 bits of precision.
    """
    xp = namespace(like)
    first, second = key.words()
    bits = xp.arange(size, dtype=xp.int32, device=like.device)
    bits ^= first
    # Shifts of signed integers extend the sign; the masks remove it.
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


Payload = tuple[Array, ...]
"""Flat native arrays."""

_WIDTHS = {"uint8": 1, "uint16": 2, "float16": 2, "bfloat16": 2, "int32": 4, "int64": 8}


@dataclass(frozen=True)
class PayloadPart:
    """One array of a payload: the number of elements, and their type (an empty ``kind`` is the gradient's)."""

    elements: int
    kind: str = ""

    def nbytes(self, itemsize: int) -> int:
        """Its bytes, for a gradient of ``itemsize`` bytes per element."""
        return self.elements * _WIDTHS.get(self.kind, itemsize)


class Compressor(ABC):
    """A frozen description. ``flat`` always has shape (n,) and type ``float32`` or ``float64``."""

    @abstractmethod
    def parts(self, size: int) -> tuple[PayloadPart, ...]:
        """The arrays of the payload for ``size`` elements."""

    @abstractmethod
    def compress(self, flat: Array, key: Key) -> Payload:
        """The payload, in new arrays. ``flat`` is not changed."""

    @abstractmethod
    def add(self, target: Array, payload: Payload, factor: float = 1.0) -> Array:
        """``target`` + factor · the decompressed payload, shape (n,); in place if possible."""

    def summable(self, ranks: int) -> Compressor:
        """The compressor to use if payloads of ``ranks`` ranks are summed; itself if that makes no difference."""
        return self

    def decompress(self, payload: Payload, like: Array) -> Array:
        """The decompressed payload, with the shape, type and device of ``like``."""
        return self.add(zeros_like(like), payload)

    def nbytes(self, size: int, itemsize: int) -> int:
        """The payload's bytes for ``size`` elements of ``itemsize`` bytes each."""
        return sum(part.nbytes(itemsize) for part in self.parts(size))

    def parted(self, data: Array, like: Array) -> Payload:
        """The payload from its bytes (:func:`as_bytes`), for a gradient like this one."""
        xp = namespace(like)
        kinds: list[tuple[int, Any, int]] = []
        for part in self.parts(like.shape[0]):
            # Without a bfloat16 type, its bits are sent.
            kind = getattr(xp, part.kind, xp.uint16) if part.kind else like.dtype
            kinds.append((part.elements, kind, _WIDTHS.get(part.kind) or like.dtype.itemsize))
        return from_bytes(data, kinds)


def kept(ratio: float, size: int) -> int:
    """The number of elements in a share of ``ratio``: rounded up, and at least one if there are any."""
    # 0.07 of 100 is 7, although the floating-point product is a little more.
    return min(size, math.ceil(round(ratio * size, 6))) or min(size, 1)


class SparseCompressor(Compressor):
    """A compressor whose payload is (values, places), each place at most once."""

    def add(self, target: Array, payload: Payload, factor: float = 1.0) -> Array:
        """Add the values at their places; the rest of ``target`` is not touched."""
        values, places = payload
        return add_at(target, typed(places, "int64"), values if factor == 1.0 else values * factor)

    def _taken(self, flat: Array, places: Array) -> Payload:
        return namespace(flat).take(flat, places), typed(places, index_type(flat.shape[0]))


@dataclass(frozen=True)
class TopKCompressor(SparseCompressor):
    """The ``ratio`` · n elements of the largest magnitude (Aji & Heafield 2017; Stich et al. 2018)."""

    ratio: float

    def parts(self, size: int) -> tuple[PayloadPart, ...]:
        count = kept(self.ratio, size)
        return PayloadPart(count), PayloadPart(count, index_type(size))

    def compress(self, flat: Array, key: Key) -> Payload:
        """Which of equal magnitudes are taken depends on the framework."""
        return self._taken(flat, largest(abs(flat), kept(self.ratio, flat.shape[0])))


@dataclass(frozen=True)
class RandomKCompressor(SparseCompressor):
    """``ratio`` · n elements at random places, the same on all ranks (Wangni et al. 2018; Stich et al. 2018).

    The places follow from the run's seed and the step, so they need not be sent, and the values of all ranks can be
    summed directly.
    """

    ratio: float

    def parts(self, size: int) -> tuple[PayloadPart, ...]:
        return (PayloadPart(kept(self.ratio, size)),)

    def compress(self, flat: Array, key: Key) -> Payload:
        """The values at this step's places, ascending."""
        xp, size = namespace(flat), flat.shape[0]
        chosen = key.everywhere().generator().choice(size, kept(self.ratio, size), replace=False, shuffle=False)
        places = xp.asarray(np.sort(chosen).astype(np.int64), device=flat.device)
        return xp.take(flat, places), places


@dataclass(frozen=True)
class ThresholdCompressor(SparseCompressor):
    """All elements with a magnitude of at least ``threshold`` (Strom 2015; Dryden et al. 2016).

    With ``relative``, the threshold is in units of the root mean square of all elements. NaN always qualifies. The
    payload's size varies; :meth:`parts` gives the maximum.
    """

    threshold: float
    relative: bool

    def parts(self, size: int) -> tuple[PayloadPart, ...]:
        """Values and places if all elements qualify."""
        return PayloadPart(size), PayloadPart(size, index_type(size))

    def compress(self, flat: Array, key: Key) -> Payload:
        """All elements that qualify; zeros never do."""
        xp = namespace(flat)
        magnitudes, limit = abs(flat), self.threshold
        if self.relative and flat.shape[0]:
            # In units of the largest magnitude, whose square may be infinite. A limit of infinity would send nothing.
            unit = xp.max(magnitudes)
            magnitudes /= xp.where(unit > 0, unit, xp.ones_like(unit))
            limit = limit * xp.sqrt(xp.mean(magnitudes * magnitudes))
        (places,) = xp.nonzero(~(magnitudes < limit) & (magnitudes != 0))
        return self._taken(flat, places)


def _accumulated(target: Array, rows: Array, factor: float) -> Array:
    """``target`` + factor · the rows (or a flat array), without the padding."""
    flat = rows.reshape(-1)[: target.shape[0]]
    target += flat if factor == 1.0 else flat * factor
    return target


@dataclass(frozen=True)
class QSGDCompressor(Compressor):
    """v becomes ‖v‖ · sign(v) · ξ / s with ξ one of 0 to s, randomly rounded so that its mean is s |v| / ‖v‖.

    Alistarh et al. 2017, section 3, applied to buckets of ``bucket`` elements, with s ``levels``: unbiased, and
    E ‖Q(v) − v‖² ≤ min(d / s², √d / s) ‖v‖² for d elements. ``norm`` is ``l2``, or ``max``, which the paper uses in its
    experiments. The payload is a norm per bucket and codes with a fixed number of bits (the paper's Elias code makes
    small ones shorter).
    """

    levels: int = 127
    bucket: int = 512
    norm: str = "l2"

    @property
    def bits(self) -> int:
        """Bits per code: there are 2 s + 1 codes."""
        return (2 * self.levels).bit_length()

    @property
    def variance(self) -> float:
        """The bound on E ‖Q(v) − v‖² / ‖v‖² of a full bucket (Alistarh et al. 2017, lemma 3.1).

        It also holds for the norm ``max``: a smaller scale only brings levels closer together.
        """
        return min(self.bucket / self.levels**2, sqrt(self.bucket) / self.levels)

    def parts(self, size: int) -> tuple[PayloadPart, ...]:
        rows = -(-size // self.bucket)
        return PayloadPart(rows), PayloadPart(packed_size(size, self.bits), "uint8")

    def compress(self, flat: Array, key: Key) -> Payload:
        xp, size = namespace(flat), flat.shape[0]
        rows = in_rows(flat, self.bucket)
        magnitudes = abs(rows)
        norms = xp.max(magnitudes, axis=1) if self.norm == "max" else xp.sqrt(xp.sum(rows * rows, axis=1))
        # First the quotient, which is at most 1: for a tiny norm, levels / norm is infinite.
        magnitudes /= xp.where(norms > 0, norms, xp.ones_like(norms)).reshape((-1, 1))
        magnitudes *= self.levels
        magnitudes += uniform(rows.shape[0] * self.bucket, flat, key).reshape(rows.shape)
        # Rounding may raise the quotient of the largest element above 1.
        signed = xp.copysign(xp.clip(xp.floor(magnitudes), 0, self.levels), rows)
        signed += self.levels
        whole = xp.uint8 if self.bits <= 8 else xp.int32
        return norms, pack_codes(xp.astype(signed.reshape(-1)[:size], whole), self.bits)

    def add(self, target: Array, payload: Payload, factor: float = 1.0) -> Array:
        norms, packed = payload
        xp = namespace(target)
        codes = xp.astype(unpack_codes(packed, self.bits, target.shape[0]), target.dtype)
        codes -= self.levels
        rows = in_rows(codes, self.bucket)
        rows *= (norms * (1.0 / self.levels)).reshape((-1, 1))
        return _accumulated(target, rows, factor)


@dataclass(frozen=True)
class SignCompressor(Compressor):
    """One bit per element, and its value per bucket.

    ``scale`` is ``mean``: ± the mean magnitude of the bucket (Karimireddy et al. 2019); ``means``: the means of the
    non-negative and of the negative elements, which have the smallest squared error possible with one bit (1-bit SGD:
    Seide et al. 2014); or ``vote``: ± 1, and 0 for a bucket of zeros (signSGD: Bernstein et al. 2018).
    A bucket with NaN is NaN.
    """

    bucket: int = 512
    scale: str = "mean"

    def parts(self, size: int) -> tuple[PayloadPart, ...]:
        rows = -(-size // self.bucket)
        scales = (PayloadPart(rows), PayloadPart(rows)) if self.scale == "means" else (PayloadPart(rows),)
        return *scales, PayloadPart(packed_size(size, 1), "uint8")

    def compress(self, flat: Array, key: Key) -> Payload:
        """Zeros count as positive."""
        xp = namespace(flat)
        rows = in_rows(flat, self.bucket)
        signs = pack_codes(xp.astype(flat >= 0, xp.uint8), 1)
        if self.scale == "vote":
            highest = xp.max(abs(rows), axis=1)
            return xp.where(highest > 0, 1.0, highest), signs
        magnitudes, counts = xp.sum(abs(rows), axis=1), self._counts(flat)
        if self.scale == "mean":
            return magnitudes / counts, signs
        sums = xp.sum(rows, axis=1)
        negative = xp.sum(xp.astype(rows < 0, flat.dtype), axis=1)
        high = (magnitudes + sums) / (2 * xp.clip(counts - negative, 1, None))
        return high, (sums - magnitudes) / (2 * xp.clip(negative, 1, None)), signs

    def _counts(self, flat: Array) -> Array:
        """The number of elements in each bucket; the last one may be smaller."""
        size = flat.shape[0]
        counts = np.full(-(-size // self.bucket), self.bucket, np.float64)
        counts[-1:] = (size - 1) % self.bucket + 1
        xp = namespace(flat)
        return xp.astype(xp.asarray(counts, device=flat.device), flat.dtype)

    def add(self, target: Array, payload: Payload, factor: float = 1.0) -> Array:
        *scales, packed = payload
        xp = namespace(target)
        bits = in_rows(unpack_codes(packed, 1, target.shape[0]), self.bucket)
        high = scales[0].reshape((-1, 1))
        low = scales[1].reshape((-1, 1)) if self.scale == "means" else -high
        return _accumulated(target, xp.where(bits > 0, high, low), factor)


_LARGEST_HALF = 65504.0


@dataclass(frozen=True)
class CastCompressor(Compressor):
    """Each element rounded to the nearest value of type ``kind``, ``float16`` or ``bfloat16``, ties to even.

    Half precision ends at 65504: magnitudes beyond ``most`` are sent as ``most``, and error feedback keeps the rest.
    NumPy has no bfloat16, so its bits are sent (``uint16``), which the communicator cannot sum; then ``summed``, which
    lets it add payloads, raises ``UnsupportedError``.
    """

    kind: str = "float16"
    summed: bool = False
    most: float = _LARGEST_HALF

    def summable(self, ranks: int) -> CastCompressor:
        """With magnitudes of at most 65504 / (2 ranks), so that no sum is infinite, however additions are rounded."""
        return replace(self, most=_LARGEST_HALF / (2 * ranks)) if ranks > 1 else self

    def parts(self, size: int) -> tuple[PayloadPart, ...]:
        return (PayloadPart(size, self.kind),)

    def compress(self, flat: Array, key: Key) -> Payload:
        """Rounds to bfloat16 through ``float32``, as PyTorch does."""
        xp = namespace(flat)
        if self.kind == "float16":
            return (typed(xp.clip(flat, -self.most, self.most), "float16"),)
        if hasattr(xp, "bfloat16"):
            return (typed(flat, "bfloat16"),)
        if self.summed:
            found = "this framework has no bfloat16 arrays"
            raise UnsupportedError("a sum in bfloat16", found, "choose narrow=False, or another framework")
        return (_bfloat16_bits(flat),)

    def add(self, target: Array, payload: Payload, factor: float = 1.0) -> Array:
        (small,) = payload
        if small.dtype == np.uint16:
            small = (small.astype(np.uint32) << 16).view(np.float32)
        wide = namespace(target).astype(small, target.dtype)
        return _accumulated(target, wide, factor)


def _bfloat16_bits(flat: Array) -> Array:
    """The upper half of the bits of a ``float32``, rounded to nearest, ties to even; NaN stays NaN."""
    bits = np.asarray(flat, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(flat), (bits >> 16) | 0x40, rounded).astype(np.uint16)
