"""Random numbers for stochastic rounding: made where the arrays lie, the same bits on every framework.

The one idea: number i is a hash of i and a key, so there is no state to keep and nothing comes from the host. A key is
made of the run's seed, the rank and the step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from levelbench.networks.executor import Array
from levelbench.training.optimizers.arrays import namespace

__all__ = ["Key", "uniform"]

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
