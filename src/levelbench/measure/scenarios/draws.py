"""The random draws of LoadGen, number for number: which samples in which order, and when they arrive.

C++'s standard defines ``mt19937``, and numpy has it, so equal seeds give the queries that LoadGen issues, and two
drivers can be compared on the same load. What the standard leaves open (how integers in a range are drawn, how a list
is shuffled) follows libstdc++, with which LoadGen's wheels are built.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]

_WORD: Final = 2**32
_BLOCK: Final = 65_536
_REFILL: Final = 4096


@dataclass(frozen=True)
class Seeds:
    """LoadGen's three seeds: for the order of the sample set, the samples of the queries, and the arrivals."""

    sample_set: int
    samples: int
    schedule: int

    @classmethod
    def of(cls, seed: int | Seeds) -> Seeds:
        """Three independent seeds from one number (``numpy.random.SeedSequence``), or the three themselves."""
        if isinstance(seed, Seeds):
            return seed
        return cls(*(int(word) for word in np.random.SeedSequence(seed).generate_state(3)))


class SampleOrder:
    """Draws the samples of queries from ``samples`` of them, 0 <= index < ``samples``.

    ``stride`` is the number of samples a query in the multi-stream scenario, 1 elsewhere; ``least_queries`` is the
    least number of queries of the run. The set itself is shuffled once, as when LoadGen chooses what to load.
    """

    def __init__(self, samples: int, seeds: Seeds, stride: int = 1, least_queries: int = 1) -> None:
        self.loaded = _shuffled(np.arange(samples), _Engine(seeds.sample_set))
        self._stride = stride
        self._engine = _Engine(seeds.samples)
        # LoadGen first prepares two other modes, which take words from the same engine: every sample once, and the
        # padded set in permutations.
        _shuffled(np.arange(0, samples, stride), self._engine)
        padded = np.arange(samples + stride - 1)
        for _ in range(0, least_queries, len(padded)):
            padded = _shuffled(padded, self._engine)

    def draw(self, queries: int) -> Indices:
        """The samples of the next ``queries`` queries, shape (queries, stride), drawn with replacement.

        A query of several samples takes neighbours in the shuffled set, which wraps around.
        """
        starts = self._engine.below(len(self.loaded), queries)
        found: Indices = self.loaded[(starts[:, None] + np.arange(self._stride)) % len(self.loaded)]
        return found

    def whole(self, count: int) -> Indices:
        """``count`` samples of the shuffled set, repeated as needed: without replacement up to its size (offline)."""
        return np.resize(self.loaded, count).astype(np.int64, copy=False)


def arrivals_ns(per_s: float, least_ns: int, least_queries: int, seed: int) -> NDArray[np.int64]:
    """Poisson arrivals at ``per_s`` a second, in nanoseconds from the start, the first at 0.

    As many as LoadGen generates: up to and including the first at or after ``least_ns``, but at least
    ``least_queries``. The gaps are exponential: -log(1 - u) / rate, truncated to whole nanoseconds.
    """
    engine = _Engine(seed)
    blocks = [np.zeros(1, dtype=np.int64)]
    count, last = 1, 0
    while last < least_ns or count < least_queries:
        missing = max(least_queries - count, (least_ns - last) * 1e-9 * per_s)
        block = min(_BLOCK, 64 + int(1.05 * missing))
        gaps = (-np.log(1.0 - engine.uniform(block)) / per_s * 1e9).astype(np.int64)
        blocks.append(last + np.cumsum(gaps))
        count, last = count + block, int(blocks[-1][-1])
    whole = np.concatenate(blocks)
    wanted = int(np.searchsorted(whole, least_ns)) + 1 if least_ns > 0 else 1
    return whole[: max(wanted, least_queries)]


class _Engine:
    """``std::mt19937`` and the draws that libstdc++ makes from it."""

    def __init__(self, seed: int) -> None:
        self._source = np.random.RandomState(seed % _WORD)
        self._words = np.zeros(0, dtype=np.uint64)
        self._as_list: list[int] = []
        self._at = 0

    def _take(self, count: int) -> NDArray[np.uint64]:
        """The next ``count`` words."""
        left = self._words[self._at : self._at + count]
        self._at += len(left)
        missing = count - len(left)
        return np.concatenate([left, self._fresh(missing)]) if missing else left

    def _fresh(self, count: int) -> NDArray[np.uint64]:
        return self._source.randint(0, _WORD, count, dtype=np.uint64)

    def one_below(self, limit: int) -> int:
        """One integer in [0, ``limit``), as :meth:`below` draws it."""
        while True:
            if self._at >= len(self._as_list):
                self._words = self._fresh(_REFILL)
                self._as_list, self._at = self._words.tolist(), 0
            product = self._as_list[self._at] * limit
            self._at += 1
            if product % _WORD >= _WORD % limit:
                return product // _WORD

    def uniform(self, count: int) -> NDArray[np.float64]:
        """Numbers in [0, 1) of 53 bits, each from two words: ``std::generate_canonical``."""
        words = self._take(2 * count).astype(np.float64)
        drawn: NDArray[np.float64] = (words[0::2] + words[1::2] * float(_WORD)) / float(_WORD) ** 2
        return np.minimum(drawn, np.nextafter(1.0, 0.0))

    def below(self, limit: int, count: int) -> Indices:
        """Integers in [0, ``limit``), 1 <= ``limit`` < 2^32, by Lemire's method (2019, algorithm 5)."""
        kept: list[Indices] = []
        missing = count
        while missing:
            products = self._take(missing) * np.uint64(limit)
            good = (products & np.uint64(_WORD - 1)) >= np.uint64(_WORD % limit)
            kept.append((products[good] >> np.uint64(32)).astype(np.int64))
            missing = count - sum(len(part) for part in kept)
        return np.concatenate(kept) if kept else np.zeros(0, dtype=np.int64)


def _shuffled(values: Indices, engine: _Engine) -> Indices:
    """``values`` shuffled as by ``std::shuffle``: below 65,536 values, one draw gives two places."""
    order: list[int] = values.tolist()
    size, at = len(order), 1
    in_pairs = size > 0 and (_WORD - 1) // size >= size
    if in_pairs and size % 2 == 0:
        _swap(order, 1, engine.one_below(2))
        at = 2
    while at < size:
        if not in_pairs:
            _swap(order, at, engine.one_below(at + 1))
            at += 1
            continue
        drawn = engine.one_below((at + 1) * (at + 2))
        _swap(order, at, drawn // (at + 2))
        _swap(order, at + 1, drawn % (at + 2))
        at += 2
    return np.asarray(order, dtype=np.int64)


def _swap(order: list[int], one: int, other: int) -> None:
    order[one], order[other] = order[other], order[one]
