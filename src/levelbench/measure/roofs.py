"""Roofs measured beside the work: operations a second by precision, and bytes a second by level of the memory.

A ceiling (``ceilings``) is measured once, before the work. A machine that was busy then, or that has another clock rate
now, makes results lie above it. So here each roof is measured for a few milliseconds in every round, between two
stretches of work. A disturbance only lowers a roof, so the best round counts, and the spread says how quiet it was.

The time that the roofs allow is a bound, not an estimate. Of a working set of W bytes, at most what a level holds can
come from it, so the least time takes the first bytes at the bandwidth of the first level, and so on outwards (the
hierarchical roofline of Ilic et al. 2014, with capacities). Bandwidth of a level is that of dot products of float32
arrays half as large as what it holds (two reads an element and no write); of memory, of arrays beyond all caches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, final

import numpy as np
from numpy.lib.stride_tricks import as_strided

from levelbench.measure.ceilings import GemmMaker, numpy_gemm
from levelbench.measure.clocks import HOST, Clock, time_ns
from levelbench.measure.environment.machine import HERE, Roots, cache_bytes, cache_levels, memory_left_bytes
from levelbench.measure.meters.resources import available_cores

__all__ = ["LeastTime", "MemoryLevel", "RoofRates", "Roofs", "best_of_rounds", "levels_here", "steady"]

Bound = Literal["compute", "memory"]

_BESIDE = 3
"""Times that each roof is measured in a round; the fastest counts, as a roof is what can be reached."""

_WORD_BYTES = 4
_SIZES = (256, 512, 1024)
_KERNEL_S = 2e-3
_PRODUCT_S = 50e-3
_BEYOND_CACHE = 2
_MEMORY_SHARE = 0.25
_UNLISTED_BYTES = 128 * 2**20


@dataclass(frozen=True)
class MemoryLevel:
    """A level of the memory: what all cores in use can hold there, infinite for main memory."""

    name: str
    capacity_bytes: float


@dataclass(frozen=True)
class LeastTime:
    """The least time in seconds that the roofs allow, and which of them binds: a precision or a level's name."""

    seconds: float
    bound: Bound
    roof: str


@dataclass(frozen=True)
class RoofRates:
    """Operations a second by precision, and bytes a second by level, innermost first."""

    flop_s: Mapping[str, float]
    bytes_s: Mapping[str, float]
    levels: tuple[MemoryLevel, ...]

    def memory_s(self, moved: float) -> float:
        """The least time to move a working set of ``moved`` bytes once."""
        rates = self._falling()
        seconds, held = 0.0, 0.0
        for level in self.levels:
            here = min(moved, level.capacity_bytes) - held
            if here <= 0:
                break
            seconds += here / rates[level.name]
            held += here
        return seconds

    def level_of(self, moved: float) -> str:
        """The innermost level that holds ``moved`` bytes."""
        return next((each.name for each in self.levels if moved <= each.capacity_bytes), self.levels[-1].name)

    def least(self, flops: float | None, moved: float | None, dtype: str) -> LeastTime | None:
        """The bound for work of ``flops`` operations in ``dtype`` on ``moved`` bytes; ``None`` counts as unknown.

        An unknown part does not bind, so the result is still a bound. ``None`` if no known part has a roof.
        """
        peak = self.flop_s.get(dtype)
        compute_s = flops / peak if flops and peak else 0.0
        memory_s = self.memory_s(moved) if moved and self.levels else 0.0
        if compute_s <= 0 and memory_s <= 0:
            return None
        if compute_s >= memory_s:
            return LeastTime(compute_s, "compute", dtype)
        return LeastTime(memory_s, "memory", self.level_of(moved or 0.0))

    def _falling(self) -> dict[str, float]:
        """The bandwidths, each at least that of the levels outside: an inner level is not slower."""
        found, best = {}, 0.0
        for level in reversed(self.levels):
            best = max(best, self.bytes_s[level.name])
            found[level.name] = best
        return found


def best_of_rounds(rounds: Sequence[RoofRates]) -> RoofRates:
    """The roofs that several rounds reached: the best of each, because a disturbance only lowers a roof."""
    return RoofRates(
        {name: max(each.flop_s[name] for each in rounds) for name in rounds[0].flop_s},
        {name: max(each.bytes_s[name] for each in rounds) for name in rounds[0].bytes_s},
        rounds[0].levels,
    )


@final
class Roofs:
    """The kernels of all roofs, ready to be measured in rounds; a context with its threads.

    ``gemms`` are pairs of a precision and a maker; of several for one precision the fastest counts in each round.
    """

    def __init__(
        self,
        gemms: Sequence[tuple[str, GemmMaker]] = (),
        *,
        clock: Clock = HOST,
        roots: Roots = HERE,
        cores: int | None = None,
    ) -> None:
        self._clock, threads = clock, cores or available_cores()
        self._pool = ThreadPoolExecutor(threads)
        makers = [("float32", numpy_gemm(np.float32)), ("float64", numpy_gemm(np.float64)), *gemms]
        self._products: list[tuple[str, Callable[[], object], float]] = []
        for name, maker in makers:
            # Larger where that is quick: a small product does not reach the peak, and a slow type would take seconds.
            for size in _SIZES:
                work, flops = maker(size)
                work()
                if min(self._seconds(work) for _ in range(_BESIDE)) * 8 > _PRODUCT_S:
                    break
            self._products.append((name, work, flops))
        self.levels = levels_here(threads, roots)
        self._reads = {each.name: self._read(size, threads) for each, size in _sizes(self.levels, threads, roots)}

    def __enter__(self) -> Roofs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown()

    def measure(self) -> RoofRates:
        """One round: every kernel a few times, the fastest of each."""

        def rate(work: Callable[[], object], amount: float) -> float:
            return amount / min(self._seconds(work) for _ in range(_BESIDE))

        flop_s: dict[str, float] = {}
        for name, work, flops in self._products:
            flop_s[name] = max(flop_s.get(name, 0.0), rate(work, flops))
        return RoofRates(flop_s, {name: rate(*each) for name, each in self._reads.items()}, self.levels)

    def _seconds(self, work: Callable[[], object]) -> float:
        return max(1, time_ns(work, self._clock)) * 1e-9

    def _read(self, size_bytes: int, threads: int) -> tuple[Callable[[], object], float]:
        """Dot products of two arrays of together ``size_bytes`` a thread, repeated inside one call, and its bytes."""
        n = max(64, size_bytes // (2 * _WORD_BYTES))
        # Guessed at 50 GB/s a thread: a call should take milliseconds, so that its own cost does not count.
        repeats = max(1, math.ceil(_KERNEL_S * 50e9 / (2 * _WORD_BYTES * n)))
        parts = []
        for _ in range(threads):
            x, y = (as_strided(np.ones(n, np.float32), (repeats, n), (0, _WORD_BYTES)) for _ in range(2))
            parts.append((x, y, np.empty(repeats, np.float32)))

        def one(part: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
            np.matmul(part[0][:, None, :], part[1][:, :, None], out=part[2][:, None, None])

        def work() -> object:
            return list(self._pool.map(one, parts))

        work()
        return work, 2.0 * _WORD_BYTES * n * repeats * threads


def levels_here(threads: int, roots: Roots = HERE) -> tuple[MemoryLevel, ...]:
    """The levels that ``threads`` threads can use, innermost first; main memory alone where no cache is listed."""
    kept: list[MemoryLevel] = []
    for level, size, instances in cache_levels(roots):
        held = float(size * min(instances, threads))
        # An outer level that is not larger than an inner one adds nothing.
        if not kept or held > kept[-1].capacity_bytes:
            kept.append(MemoryLevel(f"L{level}", held))
    return (*kept, MemoryLevel("memory", math.inf))


def _sizes(levels: Sequence[MemoryLevel], threads: int, roots: Roots) -> list[tuple[MemoryLevel, int]]:
    """The bytes that each thread reads to measure each level."""
    found = [(level, int(level.capacity_bytes / threads / 2)) for level in levels[:-1]]
    # At least in the middle between a level and the next inner one, so that most comes from the level itself.
    found = [
        (level, max(size, int(inner.capacity_bytes / threads * 1.5)))
        for (level, size), inner in zip(found, [MemoryLevel("", 0.0), *levels], strict=False)
    ]
    beyond = (_BEYOND_CACHE * cache_bytes(roots) or _UNLISTED_BYTES) // threads
    left = memory_left_bytes(roots)
    most = beyond if left is None else int(left * _MEMORY_SHARE / threads)
    return [*found, (levels[-1], min(beyond, most))]


def steady(rounds: Sequence[RoofRates]) -> dict[str, float]:
    """The spread of each roof over the rounds: the interquartile range over the median."""
    found = {}
    for kind in ("flop_s", "bytes_s"):
        for name in getattr(rounds[0], kind):
            low, middle, high = np.quantile([getattr(each, kind)[name] for each in rounds], (0.25, 0.5, 0.75))
            found[name] = float((high - low) / middle)
    return found
