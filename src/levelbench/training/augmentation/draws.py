"""Random draws by counter: each example has a seed, each use of it a salt, and a draw is a function of the two alone.

The one idea: splitmix64 (Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators") turns any 64 bits
into 64 well-mixed ones in five array operations, so a block of examples draws at once, and an example draws the same
alone. Two draws that should be independent take different salts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["example_seeds", "random", "uniform", "words"]

Seeds = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_WORD = 2**64


def _mixed(words: Seeds) -> Seeds:
    """splitmix64's output for these states, shape (n,)."""
    z = words + _GOLDEN
    z ^= z >> np.uint64(30)
    z *= _FIRST
    z ^= z >> np.uint64(27)
    z *= _SECOND
    z ^= z >> np.uint64(31)
    return z


def _word(number: int) -> Seeds:
    """A whole number as an array of one word: arrays wrap around silently, scalars warn."""
    return np.array([number % _WORD], np.uint64)


def example_seeds(seed: int, epoch: int, indices: NDArray[np.int64]) -> Seeds:
    """A seed for each example of an epoch, shape (n,): a function of these three alone."""
    stream = _mixed(_mixed(_word(seed)) ^ _word(epoch))
    return _mixed(stream + indices.astype(np.uint64) * _GOLDEN)


def words(seeds: Seeds, salt: int) -> Seeds:
    """64 random bits an example, shape (n,)."""
    return _mixed(seeds ^ _mixed(_word(salt)))


def uniform(seeds: Seeds, salt: int, low: int, high: int) -> NDArray[np.int64]:
    """Whole numbers from ``low`` to ``high`` (both included), shape (n,).

    The upper half of the word is scaled, so each has its share but for (high - low + 1) / 2^32.
    """
    span = np.uint64(high - low + 1)
    return ((words(seeds, salt) >> np.uint64(32)) * span >> np.uint64(32)).astype(np.int64) + low


def random(seeds: Seeds, salt: int) -> NDArray[np.float64]:
    """Numbers from [0, 1), 53 bits each, shape (n,)."""
    return (words(seeds, salt) >> np.uint64(11)).astype(np.float64) * 2.0**-53
