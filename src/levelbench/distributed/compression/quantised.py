"""Gradients in a few bits an element: stochastic levels (QSGD) and signs.

The one idea: elements are taken in buckets of fixed length, each with a scale of its own, so that a layer of small
gradients is not drowned by one of large ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from levelbench.distributed.compression.arrays import in_rows, pack_codes, packed_size, unpack_codes
from levelbench.distributed.compression.base import Compressor, Part, Payload
from levelbench.distributed.compression.draws import Key, uniform
from levelbench.networks.executor import Array
from levelbench.training.optimizers.arrays import namespace

__all__ = ["QSGDCompressor", "SignCompressor"]


def _accumulated(target: Array, rows: Array, factor: float) -> Array:
    """``target`` + factor · what the rows hold, without what fills up the last."""
    flat = rows.reshape(-1)[: target.shape[0]]
    target += flat if factor == 1.0 else flat * factor
    return target


@dataclass(frozen=True)
class QSGDCompressor(Compressor):
    """v becomes ‖v‖ · sign(v) · ξ / s with ξ one of 0 to s, rounded at random so that its mean is s |v| / ‖v‖.

    Alistarh et al. 2017, section 3, for each bucket of ``bucket`` elements, with s ``levels``: unbiased, and
    E ‖Q(v) − v‖² ≤ min(d / s², √d / s) ‖v‖² for d elements. ``norm`` is ``l2``, or ``max``, which the paper uses in its
    experiments. The payload is a norm a bucket, and codes of a fixed number of bits (the paper's Elias code makes small
    ones shorter).
    """

    levels: int = 127
    bucket: int = 512
    norm: str = "l2"

    @property
    def bits(self) -> int:
        """Bits of a code: there are 2 s + 1."""
        return (2 * self.levels).bit_length()

    @property
    def variance(self) -> float:
        """The bound on E ‖Q(v) − v‖² / ‖v‖² of a full bucket: Alistarh et al. 2017, lemma 3.1.

        With the norm ``max`` as well: a smaller scale only brings levels closer.
        """
        return min(self.bucket / self.levels**2, sqrt(self.bucket) / self.levels)

    def parts(self, size: int) -> tuple[Part, ...]:
        """Norms and packed codes."""
        rows = -(-size // self.bucket)
        return Part(rows), Part(packed_size(size, self.bits), "uint8")

    def compress(self, flat: Array, key: Key) -> Payload:
        """Draws are of the key's."""
        xp, size = namespace(flat), flat.shape[0]
        rows = in_rows(flat, self.bucket)
        magnitudes = abs(rows)
        norms = xp.max(magnitudes, axis=1) if self.norm == "max" else xp.sqrt(xp.sum(rows * rows, axis=1))
        # First the quotient, which is at most 1: of a tiny norm levels / norm is infinite.
        magnitudes /= xp.where(norms > 0, norms, xp.ones_like(norms)).reshape((-1, 1))
        magnitudes *= self.levels
        magnitudes += uniform(rows.shape[0] * self.bucket, flat, key).reshape(rows.shape)
        # Rounding may lift the quotient of the largest element above 1.
        signed = xp.copysign(xp.clip(xp.floor(magnitudes), 0, self.levels), rows)
        signed += self.levels
        whole = xp.uint8 if self.bits <= 8 else xp.int32
        return norms, pack_codes(xp.astype(signed.reshape(-1)[:size], whole), self.bits)

    def add(self, target: Array, payload: Payload, factor: float = 1.0) -> Array:
        """Level times norm."""
        norms, packed = payload
        xp = namespace(target)
        codes = xp.astype(unpack_codes(packed, self.bits, target.shape[0]), target.dtype)
        codes -= self.levels
        rows = in_rows(codes, self.bucket)
        rows *= (norms * (1.0 / self.levels)).reshape((-1, 1))
        return _accumulated(target, rows, factor)


@dataclass(frozen=True)
class SignCompressor(Compressor):
    """One bit an element, and what it stands for by bucket.

    ``scale`` is ``mean``, ± the mean magnitude of the bucket (Karimireddy et al. 2019); ``means``, the mean of those
    that are not negative and the mean of those that are, which has the smallest squared error that a bit can (1-bit
    SGD: Seide et al. 2014); or ``vote``, ± 1, and 0 for a bucket of zeros (signSGD: Bernstein et al. 2018).
    """

    bucket: int = 512
    scale: str = "mean"

    def parts(self, size: int) -> tuple[Part, ...]:
        """Scales and packed signs."""
        rows = -(-size // self.bucket)
        scales = (Part(rows), Part(rows)) if self.scale == "means" else (Part(rows),)
        return *scales, Part(packed_size(size, 1), "uint8")

    def compress(self, flat: Array, key: Key) -> Payload:
        """A zero counts as positive."""
        xp = namespace(flat)
        rows = in_rows(flat, self.bucket)
        signs = pack_codes(xp.astype(flat >= 0, xp.uint8), 1)
        if self.scale == "vote":
            return xp.astype(xp.max(abs(rows), axis=1) > 0, flat.dtype), signs
        magnitudes, counts = xp.sum(abs(rows), axis=1), self._counts(flat)
        if self.scale == "mean":
            return magnitudes / counts, signs
        sums = xp.sum(rows, axis=1)
        negative = xp.sum(xp.astype(rows < 0, flat.dtype), axis=1)
        high = (magnitudes + sums) / (2 * xp.clip(counts - negative, 1, None))
        return high, (sums - magnitudes) / (2 * xp.clip(negative, 1, None)), signs

    def _counts(self, flat: Array) -> Array:
        """How many elements each bucket has; the last one may have fewer than the others."""
        size = flat.shape[0]
        counts = np.full(-(-size // self.bucket), self.bucket, np.float64)
        counts[-1:] = (size - 1) % self.bucket + 1
        xp = namespace(flat)
        return xp.astype(xp.asarray(counts, device=flat.device), flat.dtype)

    def add(self, target: Array, payload: Payload, factor: float = 1.0) -> Array:
        """The scale of each sign."""
        *scales, packed = payload
        xp = namespace(target)
        bits = in_rows(unpack_codes(packed, 1, target.shape[0]), self.bucket)
        high = scales[0].reshape((-1, 1))
        low = scales[1].reshape((-1, 1)) if self.scale == "means" else -high
        return _accumulated(target, xp.where(bits > 0, high, low), factor)
