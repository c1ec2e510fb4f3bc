"""Sparse gradients: the largest values, random ones, those above a threshold."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from levelbench.distributed.compression.arrays import add_at, index_type, largest, typed
from levelbench.distributed.compression.base import Compressor, Part, Payload
from levelbench.distributed.compression.draws import Key
from levelbench.networks.executor import Array
from levelbench.training.optimizers.arrays import namespace

__all__ = ["RandomKCompressor", "SparseCompressor", "ThresholdCompressor", "TopKCompressor", "kept"]


def kept(ratio: float, size: int) -> int:
    """How many of ``size`` elements the share ``ratio`` is: rounded up, at least one where there is one."""
    # 0.07 of 100 are 7, although the product is a little more in floating point.
    return min(size, math.ceil(round(ratio * size, 6))) or min(size, 1)


class SparseCompressor(Compressor):
    """Its payload is (values, places), each place at most once."""

    def add(self, target: Array, payload: Payload, factor: float = 1.0) -> Array:
        """The values at their places; the rest of ``target`` is not touched."""
        values, places = payload
        return add_at(target, typed(places, "int64"), values if factor == 1.0 else values * factor)

    def _taken(self, flat: Array, places: Array) -> Payload:
        return namespace(flat).take(flat, places), typed(places, index_type(flat.shape[0]))


@dataclass(frozen=True)
class TopKCompressor(SparseCompressor):
    """The ``ratio`` · n elements of the largest magnitude (Aji & Heafield 2017; Stich et al. 2018)."""

    ratio: float

    def parts(self, size: int) -> tuple[Part, ...]:
        """Values and places."""
        count = kept(self.ratio, size)
        return Part(count), Part(count, index_type(size))

    def compress(self, flat: Array, key: Key) -> Payload:
        """Which of equal magnitudes are taken is the framework's choice."""
        return self._taken(flat, largest(abs(flat), kept(self.ratio, flat.shape[0])))


@dataclass(frozen=True)
class RandomKCompressor(SparseCompressor):
    """``ratio`` · n elements at random places, the same on all ranks (Wangni et al. 2018; Stich et al. 2018).

    The places follow from the run's seed and the step, so that they do not travel, and the values of all ranks can be
    added as they are.
    """

    ratio: float

    def parts(self, size: int) -> tuple[Part, ...]:
        """The values alone."""
        return (Part(kept(self.ratio, size)),)

    def compress(self, flat: Array, key: Key) -> Payload:
        """The values at this step's places, ascending."""
        xp, size = namespace(flat), flat.shape[0]
        chosen = key.everywhere().generator().choice(size, kept(self.ratio, size), replace=False, shuffle=False)
        places = xp.asarray(np.sort(chosen).astype(np.int64), device=flat.device)
        return xp.take(flat, places), places


@dataclass(frozen=True)
class ThresholdCompressor(SparseCompressor):
    """All elements of a magnitude of ``threshold`` or more (Strom 2015; Dryden et al. 2016).

    ``relative``: of that many times the root mean square of all elements. The payload's size varies; :meth:`parts` is
    of the largest there can be.
    """

    threshold: float
    relative: bool

    def parts(self, size: int) -> tuple[Part, ...]:
        """Values and places, where all are above it."""
        return Part(size), Part(size, index_type(size))

    def compress(self, flat: Array, key: Key) -> Payload:
        """As many as there are; none of zeros."""
        xp = namespace(flat)
        magnitudes, limit = abs(flat), self.threshold
        if self.relative:
            limit = limit * xp.sqrt(xp.mean(flat * flat))
        (places,) = xp.nonzero((magnitudes >= limit) & (magnitudes > 0))
        return self._taken(flat, places)
