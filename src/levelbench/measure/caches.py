"""Hot and cold caches as two different measurements, and the proof that cold is cold.

A flush that is not checked may flush nothing (a buffer of zeros that was never written is one physical page, read over
and over). So a small buffer is read hot, then read after a flush, and cold is claimed only if the second reading took
clearly longer. The proof holds for the caches of the calling thread's core and for the shared last level.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from levelbench.errors import MissingError
from levelbench.measure.clocks import HOST, Calibration, Clock, Work, calibrate, time_ns
from levelbench.measure.environment.machine import HERE, Roots, last_level_cache_bytes

FALLBACK_BYTES: Final = 64 << 20
_LINE_BYTES: Final = 64
_PROBE_BYTES: Final = 256 << 10
_PROBE_ROUNDS: Final = 9
LEAST_RATIO: Final = 1.5


@dataclass(frozen=True)
class LastLevel:
    """The size of the last-level cache in bytes, and where it was read or that it was assumed."""

    size_bytes: int
    source: str


class Flusher(Protocol):
    """Evicts cached data."""

    def flush(self) -> None:
        """Return when what was cached has been evicted."""


@dataclass(frozen=True)
class FlushProof:
    """Median nanoseconds of reading the same buffer hot, and after a flush; proved if cold takes 1.5 times as long."""

    hot_ns: float
    cold_ns: float

    @property
    def ratio(self) -> float:
        """Cold over hot; 1 if the clock resolved neither."""
        return self.cold_ns / self.hot_ns if self.hot_ns > 0 else 1.0

    @property
    def proved(self) -> bool:
        """Whether the flush had a visible effect."""
        return self.ratio >= LEAST_RATIO


def last_level_cache(roots: Roots = HERE) -> LastLevel:
    """One last-level cache as the system describes it; 64 MiB are assumed if it describes none."""
    size_bytes = last_level_cache_bytes(roots)
    if size_bytes == 0:
        return LastLevel(FALLBACK_BYTES, f"assumed: {roots.sys} describes no cache")
    return LastLevel(size_bytes, f"read from {roots.sys}")


class StreamFlusher:
    """Reads a buffer of twice the last-level cache from end to end.

    The buffer is filled with ones: pages that were never written share one page of zeros, and reading them flushes
    nothing.
    """

    def __init__(self, cache: LastLevel | None = None) -> None:
        self.cache = last_level_cache() if cache is None else cache
        self._buffer = np.ones(2 * self.cache.size_bytes // 8, dtype=np.int64)

    def flush(self) -> None:
        """Read the whole buffer."""
        self._buffer.sum()


class CacheProbe:
    """A buffer small enough to stay cached, read one line at a time in an order that no prefetcher follows."""

    def __init__(self, clock: Clock = HOST) -> None:
        doubles = _LINE_BYTES // 8
        lines = _PROBE_BYTES // _LINE_BYTES
        self._clock = clock
        self._data = np.ones(lines * doubles)
        self._order = np.random.default_rng(0).permutation(lines) * doubles
        self._out = np.empty(lines)

    def read_ns(self) -> int:
        """Nanoseconds to read one double of each line."""
        return time_ns(self._read, self._clock)

    def _read(self) -> None:
        np.take(self._data, self._order, out=self._out, mode="clip")


class ProbeReader(Protocol):
    """Reads the same data each time and says how long that took."""

    def read_ns(self) -> int:
        """Nanoseconds of one reading."""


def prove_flush(flusher: Flusher, clock: Clock = HOST, probe: ProbeReader | None = None) -> FlushProof:
    """Whether ``flusher`` really flushes on this machine, from nine rounds on ``probe`` (default: 256 KiB).

    A round reads twice and keeps the second time (hot), flushes, and reads again (cold).
    """
    probe = CacheProbe(clock) if probe is None else probe
    hot: list[int] = []
    cold: list[int] = []
    for _ in range(_PROBE_ROUNDS):
        probe.read_ns()
        hot.append(probe.read_ns())
        flusher.flush()
        cold.append(probe.read_ns())
    return FlushProof(float(np.median(hot)), float(np.median(cold)))


class CacheState(ABC):
    """What happens to the caches between two values."""

    name: str
    proof: FlushProof | None

    @abstractmethod
    def prepare(self) -> None:
        """Bring the caches into this state, off the clock."""

    @abstractmethod
    def calibrate(self, work: Work, clock: Clock) -> Calibration:
        """How many calls make a value in this state."""


class Hot(CacheState):
    """Caches as the previous call left them."""

    name = "hot"
    proof = None

    def prepare(self) -> None:
        """Leave the caches alone."""

    def calibrate(self, work: Work, clock: Clock) -> Calibration:
        """As many calls as the clock needs."""
        return calibrate(work, clock)


class Cold(CacheState):
    """Caches flushed before each value; ``MissingError`` if the flush cannot be proved."""

    name = "cold"

    def __init__(self, flusher: Flusher, proof: FlushProof) -> None:
        if not proof.proved:
            raise MissingError(
                "a sample with cold caches",
                f"after the flush a cached buffer reads {proof.ratio:.2f} times as slowly; to call it cold, at least "
                f"{LEAST_RATIO:g} is needed",
                "measure hot, or give a flusher that works on this machine",
            )
        self.proof = proof
        self._flush = flusher.flush

    def prepare(self) -> None:
        """Flush."""
        self._flush()

    def calibrate(self, work: Work, clock: Clock) -> Calibration:
        """One call a value, since a second would be hot; the timer's share of a value cannot be reduced.

        Calibration calls are not made cold, so they count as first attempts and never as values.
        """
        return calibrate(work, clock, most_inner=1).without_values()
