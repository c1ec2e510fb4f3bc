"""The machine's measured limits: floating-point operations a second by precision, and bytes a second to memory.

A share of what this machine really achieves is worth more than a figure from a data sheet, so the limits are measured
here, with the same libraries and threads as the work that is compared with them, and with an interval.

A matrix product of size n counts 2 n^3 operations (a multiply-add is two). Bandwidth follows STREAM (McCalpin 1995):
arrays well beyond the caches; copy moves 2 words an element and triad 3. A cache that first reads the line it is about
to write moves one more (write-allocate), which STREAM does not count, so actual traffic is up to half more than shown.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from levelbench.errors import UnknownNameError
from levelbench.measure.clocks import HOST, Clock, time_ns
from levelbench.measure.environment.machine import HERE, Roots, cache_bytes, memory_left_bytes
from levelbench.measure.meters.resources import available_cores
from levelbench.measure.statistics import Estimate, estimate

GemmMaker = Callable[[int], tuple[Callable[[], object], float]]
"""From a size n: the work (one matrix product, finished when it returns) and its number of operations."""

_NS = 1e-9
_WORD_BYTES = 8
_COPY_WORDS, _TRIAD_WORDS = 2, 3
# A block of triad and its temporary stay in a core's own cache, so that only the three arrays move through memory.
_BLOCK = 16_384
_SIZES = (256, 512, 1024, 2048, 4096)
# From six values on, the median has an exact interval at 95 %.
_LEAST, _MOST = 6, 1_000
_BEYOND_CACHE = 4
_MEMORY_SHARE = 0.25


@dataclass(frozen=True)
class Ceilings:
    """Limits with intervals: operations a second by precision, and bytes a second by kernel (``copy``, ``triad``).

    ``details`` says how they were measured: sizes, bytes of an array, threads, whether the arrays exceeded the caches.
    """

    flop_s: Mapping[str, Estimate]
    bandwidth_b_s: Mapping[str, Estimate]
    details: Mapping[str, Any] = field(default_factory=dict)

    def share(self, flop_s: float, dtype: str) -> float:
        """``flop_s`` as a share of the limit in ``dtype``; ``UnknownNameError`` for a precision not measured."""
        if dtype not in self.flop_s:
            raise UnknownNameError("measured precision", dtype, self.flop_s)
        return flop_s / self.flop_s[dtype].value

    def to_dict(self) -> dict[str, Any]:
        """JSON-serialisable."""
        return {
            "flop_s": {name: asdict(each) for name, each in self.flop_s.items()},
            "bandwidth_b_s": {name: asdict(each) for name, each in self.bandwidth_b_s.items()},
            "details": dict(self.details),
        }


def measure_gemm(matmul: Callable[[], object], flops: float, *, seconds: float = 1.0, clock: Clock = HOST) -> Estimate:
    """Operations a second of ``matmul``, which does ``flops`` a call, for ``seconds`` after one call of warm-up."""
    return _rate(matmul, flops, seconds, clock)


def best_gemm(make: GemmMaker, flops: float, *, seconds: float = 0.5, clock: Clock = HOST) -> Estimate:
    """The highest rate of products of about ``flops`` operations, and of eight times as many, in any single call.

    It is what calls of that length can reach at most, also on a machine where others take most of the time.
    """
    size = round(min(max((flops / 2) ** (1 / 3), _SIZES[0] / 4), _SIZES[-1] / 2))
    rates: list[float] = []
    for n in (size, 2 * size):
        rates += _rates(*make(n), seconds / 2, clock)
    return Estimate(max(rates), None, len(rates), "maximum")


def numpy_gemm(dtype: DTypeLike) -> GemmMaker:
    """The maker of numpy's matrix product in ``dtype``, into a preallocated array."""

    def make(n: int) -> tuple[Callable[[], object], float]:
        random = np.random.default_rng(0)
        a, b = (random.standard_normal((n, n)).astype(dtype) for _ in range(2))
        out = np.empty_like(a)
        return lambda: np.matmul(a, b, out=out), 2.0 * n**3

    return make


def measure_bandwidth(elements: int, threads: int, *, seconds: float = 1.0, clock: Clock = HOST) -> dict[str, Estimate]:
    """Bytes a second of copy (``a = c``) and triad (``a = b + 3 c``) on float64 arrays of ``elements``.

    Each of ``threads`` threads works on its own part; numpy releases the interpreter lock inside both loops.
    """
    edges = np.linspace(0, elements, threads + 1).astype(int).tolist()
    parts = list(itertools.pairwise(edges))
    a, b, c = (np.empty(elements) for _ in range(3))

    def fill(part: tuple[int, int]) -> None:
        a[slice(*part)], b[slice(*part)], c[slice(*part)] = 1.0, 2.0, 0.5

    def copy(part: tuple[int, int]) -> None:
        np.copyto(a[slice(*part)], c[slice(*part)])

    def triad(part: tuple[int, int]) -> None:
        _triad(a, b, c, *part)

    with ThreadPoolExecutor(threads) as pool:

        def rate(kernel: Callable[[tuple[int, int]], None], words: int) -> Estimate:
            moved = words * _WORD_BYTES * elements
            return _rate(lambda: list(pool.map(kernel, parts)), moved, seconds / 2, clock)

        # Each thread touches its part first, so that the pages are local to its NUMA node.
        list(pool.map(fill, parts))
        return {"copy": rate(copy, _COPY_WORDS), "triad": rate(triad, _TRIAD_WORDS)}


def measure_ceilings(
    seconds: float = 4.0,
    clock: Clock = HOST,
    gemms: Sequence[tuple[str, GemmMaker]] = (),
    *,
    roots: Roots = HERE,
    cores: int | None = None,
) -> Ceilings:
    """The limits of this machine in about ``seconds``: numpy's in float32 and float64, and those of ``gemms``.

    ``gemms`` are pairs of a precision's name and a maker; one named like one of numpy's replaces it (a framework may be
    faster than numpy).
    """
    makers = {"float32": numpy_gemm(np.float32), "float64": numpy_gemm(np.float64), **dict(gemms)}
    share_s = seconds / (len(makers) + 1)
    flop_s, sizes = {}, {}
    for name, maker in makers.items():
        flop_s[name], sizes[name] = measure_largest_gemm(maker, share_s, clock)
    threads = cores or available_cores()
    array_bytes, large = _array_bytes(roots)
    bandwidth = measure_bandwidth(array_bytes // _WORD_BYTES, threads, seconds=share_s, clock=clock)
    details = {
        "gemm_sizes": sizes,
        "array_bytes": array_bytes,
        "beyond_caches": large,
        "bandwidth_threads": threads,
        "counting": "2 n^3 operations; copy 2 and triad 3 words an element, write-allocate not counted",
    }
    return Ceilings(flop_s, bandwidth, details)


def measure_largest_gemm(maker: GemmMaker, seconds: float, clock: Clock) -> tuple[Estimate, int]:
    """The rate at the largest size for which enough calls fit into ``seconds``."""
    first_ns = clock.now_ns()
    for size, larger in zip(_SIZES, (*_SIZES[1:], None), strict=True):
        work, flops = maker(size)
        work()
        took_s = time_ns(work, clock) * _NS
        # Twice the size is eight times the work, once to warm up and again for each value.
        if larger is None or took_s * 8 * (_LEAST + 2) > seconds:
            break
    left_s = seconds - (clock.now_ns() - first_ns) * _NS
    return measure_gemm(work, flops, seconds=left_s, clock=clock), size


def _rate(work: Callable[[], object], amount: float, seconds: float, clock: Clock) -> Estimate:
    """``amount`` a second, over calls that take ``seconds`` and are at least as many as an interval needs."""
    return estimate(_rates(work, amount, seconds, clock))


def _rates(work: Callable[[], object], amount: float, seconds: float, clock: Clock) -> list[float]:
    work()
    rates: list[float] = []
    begin = last = clock.now_ns()
    while len(rates) < _LEAST or ((last - begin) * _NS < seconds and len(rates) < _MOST):
        start = clock.now_ns()
        work()
        last = clock.now_ns()
        rates.append(amount / max(1, last - start) / _NS)
    return rates


def _triad(a: NDArray[np.float64], b: NDArray[np.float64], c: NDArray[np.float64], start: int, stop: int) -> None:
    held = np.empty(min(_BLOCK, stop - start))
    for first in range(start, stop, _BLOCK):
        block = slice(first, min(first + _BLOCK, stop))
        scaled = held[: block.stop - first]
        np.multiply(c[block], 3.0, out=scaled)
        np.add(b[block], scaled, out=a[block])


def _array_bytes(roots: Roots) -> tuple[int, bool]:
    """Bytes of one array (four times all last-level caches, if memory allows), and whether it is that large."""
    wanted = _BEYOND_CACHE * cache_bytes(roots) or 128 * 2**20
    left = memory_left_bytes(roots)
    most = wanted if left is None else int(left * _MEMORY_SHARE / 3)
    return min(wanted, most) // _WORD_BYTES * _WORD_BYTES, most >= wanted
