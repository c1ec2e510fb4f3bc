"""Times the operations of a communicator over sizes, as all ranks see them, and fits the α-β model to the times.

After a barrier each rank times its own call, and the slowest rank's time is the value (Hoefler & Belli 2015, 4.2.1), so
clocks of different ranks are never compared. ``nbytes`` is the whole buffer, as in NCCL's tests (nccl-tests,
doc/PERFORMANCE.md). In the model t = α + n β, each time counts with its own uncertainty. If the line misses the points
by more than that, such as when a library changes its protocol, the intervals widen.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from levelbench.distributed.communicator import Communicator
from levelbench.errors import CheckFailedError, UnknownNameError, UsageError
from levelbench.measure.clocks import HOST, Clock, time_ns
from levelbench.measure.statistics import Estimate, Interval, estimate_median, normal_quantile, t_quantile
from levelbench.measure.stopping import Budget, Plateau, Precision, SampleSoFar, StoppingRule
from levelbench.measure.warmup import find_warmup
from levelbench.networks.executor import Array, Backend

ITEMSIZE = 4
"""Bytes of an element: float32."""

Make = Callable[[], Array]
"""Makes a constant array to work on."""


@dataclass(frozen=True)
class Operation:
    """``prepare(communicator, make)`` returns the work, on arrays of ``make()``.

    ``bus``: the factor, for a number of ranks, from nbytes / t to the bandwidth of the busiest link. ``parts``: an
    array is a rank's part of the buffer, not the whole. ``calls``: how often the work performs the operation.
    ``sized``: whether it has a size at all.
    """

    name: str
    prepare: Callable[[Communicator, Make], Callable[[], object]]
    bus: Callable[[int], float]
    parts: bool = False
    calls: int = 1
    sized: bool = True

    def work(
        self, communicator: Communicator, backend: Backend, elements: int, value: float
    ) -> tuple[Callable[[], object], int]:
        """The work on a buffer of at least ``elements`` elements of this value, and the buffer's bytes."""
        count = communicator.size if self.parts else 1
        each = ceil(elements / count)
        work = self.prepare(communicator, lambda: backend.array(np.full(each, value, np.float32)))
        return work, each * count * ITEMSIZE if self.sized else 0


def operation_named(name: str) -> Operation:
    """The operation with this name; ``UnknownNameError`` if there is none."""
    if name not in OPERATIONS:
        raise UnknownNameError("operation of a communicator", name, OPERATIONS)
    return OPERATIONS[name]


def require_right(operation: Operation, communicator: Communicator, backend: Backend) -> None:
    """Run it once on all ranks with a few elements; ``CheckFailedError`` for a wrong result. Collective."""
    size, rank = communicator.size, communicator.rank
    work, _ = operation.work(communicator, backend, 4 * size + 1, rank + 1.0)
    found = work()
    arrays = found if isinstance(found, tuple) else (found,)
    values = [backend.host(each) for each in arrays if each is not None]
    for value, wanted in zip(values, _wanted(operation.name, rank, size), strict=False):
        if not (value == wanted).all():
            raise CheckFailedError(
                f"{operation.name} on {size} ranks over {communicator.name}",
                f"rank {rank} got {value.ravel()[:3].tolist()}... instead of {wanted:g}",
                "repair the communicator before timing it",
            )


def _wanted(name: str, rank: int, size: int) -> list[float]:
    """The values of the returned arrays if rank r passes r + 1."""
    total = size * (size + 1) / 2
    all_ranks = [each + 1.0 for each in range(size)]
    return {
        "all-reduce": [total],
        "reduce-scatter": [total],
        "all-gather": all_ranks,
        "all-to-all": all_ranks,
        "gather": all_ranks,
        "broadcast": [1.0],
        "scatter": [1.0],
        "exchange": [(rank - 1) % size + 1.0, (rank + 1) % size + 1.0],
        "send-receive": [{0: 2.0, 1: 1.0}.get(rank, rank + 1.0)],
    }.get(name, [])


def _method(name: str) -> Callable[[Communicator, Make], Callable[[], object]]:
    """The work of a communicator's method that takes one array."""
    return lambda communicator, make: partial(getattr(communicator, name), make())


def _scatter(communicator: Communicator, make: Make) -> Callable[[], object]:
    arrays = [make() for _ in range(communicator.size)] if communicator.rank == 0 else None
    return partial(communicator.scatter, arrays, make())


def _exchange(communicator: Communicator, make: Make) -> Callable[[], object]:
    rank, size = communicator.rank, communicator.size
    return partial(communicator.exchange, make(), ((rank - 1) % size, (rank + 1) % size))


def _send_receive(communicator: Communicator, make: Make) -> Callable[[], object]:
    array, room = make(), make()

    def there_and_back() -> Array:
        if communicator.rank == 0:
            communicator.send(array, 1)
            return communicator.receive(room, 1)
        if communicator.rank == 1:
            found = communicator.receive(room, 0)
            communicator.send(array, 0)
            return found
        return array

    return there_and_back


def _all_but_one(size: int) -> float:
    return (size - 1) / size


def _once(size: int) -> float:
    return 1.0


OPERATIONS: Mapping[str, Operation] = MappingProxyType(
    {
        each.name: each
        for each in (
            Operation("all-reduce", _method("all_reduce"), lambda size: 2 * _all_but_one(size)),
            Operation("reduce-scatter", _method("reduce_scatter"), _all_but_one),
            Operation("all-gather", _method("all_gather"), _all_but_one, parts=True),
            Operation("broadcast", _method("broadcast"), _once),
            Operation("gather", _method("gather"), _all_but_one, parts=True),
            Operation("scatter", _scatter, _all_but_one, parts=True),
            Operation(
                "all-to-all",
                lambda communicator, make: partial(communicator.all_to_all, [make() for _ in range(communicator.size)]),
                _all_but_one,
                parts=True,
            ),
            # With both neighbours on a ring at once.
            Operation("exchange", _exchange, lambda size: 2.0),
            # From rank 0 to rank 1 and back; half of it counts.
            Operation("send-receive", _send_receive, _once, calls=2),
            Operation("barrier", lambda communicator, make: communicator.barrier, _once, sized=False),
        )
    }
)


_FIRST = 6
_MOST_AT_ONCE = 2000
_UNITS = {"": 1, "b": 1, "k": 1000, "kb": 1000, "m": 10**6, "mb": 10**6, "g": 10**9, "gb": 10**9}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30}


@dataclass(frozen=True)
class SweepPoint:
    """One operation at one size: the slowest rank's times in seconds, in order, after warm-up.

    ``nbytes`` is 0 for an operation without a size. ``warmup`` leading values were cut, for ``warmup_reason``.
    """

    operation: str
    nbytes: int
    times_s: tuple[float, ...]
    warmup: int
    warmup_reason: str
    stopped_by: str

    def estimate(self, level: float = 0.95) -> Estimate:
        """The median with its exact interval."""
        return estimate_median(list(self.times_s), level)


def sweep(
    communicator: Communicator,
    backend: Backend,
    operations: Sequence[str],
    sizes: Sequence[int],
    until: StoppingRule,
    clock: Clock = HOST,
) -> Iterator[SweepPoint]:
    """Time each operation at each size (bytes). Collective: all ranks pass the same, and get the same.

    Arrays are ``backend``'s, of float32 zeros, so that sums do not grow. Raises ``CheckFailedError`` if an operation's
    result is wrong, ``UnknownNameError`` for an unknown operation.
    """
    for operation in [operation_named(name) for name in operations]:
        if communicator.size < 2 and operation.name == "send-receive":
            raise UsageError("send-receive of one rank", "there is no other rank to send to", "start two ranks or more")
        require_right(operation, communicator, backend)
        for nbytes in sizes if operation.sized else (0,):
            yield _point(operation, communicator, backend, nbytes, until, clock)


def rule_for(seconds: float, points: int) -> StoppingRule:
    """The stopping rule of each point if all together may take about ``seconds``."""
    return Precision(0.02) | Plateau() | Budget(seconds / max(1, points))


def parse_sizes(text: str) -> list[int]:
    """Sizes in bytes from ``4B:64MiB`` (doubling), ``1KiB:1MiB:4`` (times four) or ``4B,1KiB,1MB``.

    Raises ``UsageError`` for anything else, and for sizes below an element of four bytes.
    """
    if ":" not in text:
        return sorted({_size(each, text) for each in text.split(",")})
    first, last, *more = text.split(":")
    start, end = _size(first, text), _size(last, text)
    factor = more[0].strip() if more else "2"
    if len(more) > 1 or not re.fullmatch(r"[0-9]{1,4}", factor) or int(factor) < 2 or end < start:
        raise _invalid_sizes(text, "not a growing range of sizes")
    found = [start]
    while found[-1] * int(factor) <= end:
        found.append(found[-1] * int(factor))
    return found


def _size(text: str, whole: str) -> int:
    match = re.fullmatch(r"([0-9]{1,15})\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS:
        raise _invalid_sizes(whole, f"{text.strip()!r} is not a size")
    found = int(match[1]) * _UNITS[match[2]]
    if found < ITEMSIZE:
        raise _invalid_sizes(whole, f"{text.strip()!r} is less than an element of {ITEMSIZE} bytes")
    return found


def _invalid_sizes(text: str, found: str) -> UsageError:
    return UsageError(f"the sizes {text!r}", found, "write 4B:64MiB, 1KiB:1MiB:4 or 4B,1KiB,1MB")


def _point(
    operation: Operation, communicator: Communicator, backend: Backend, nbytes: int, until: StoppingRule, clock: Clock
) -> SweepPoint:
    """Measure in turns until rank 0 has enough values."""
    work, moved = operation.work(communicator, backend, ceil(nbytes / ITEMSIZE), 0.0)
    values: NDArray[np.float64] = np.zeros(0)
    started_ns, turns = clock.now_ns(), _FIRST
    while turns:
        own = []
        for _ in range(turns):
            communicator.barrier()
            own.append(time_ns(work, clock))
        all_ranks = communicator.all_gather(np.array(own, np.int64))
        values = np.concatenate([values, np.max(all_ranks, axis=0) * (1e-9 / operation.calls)])
        found = find_warmup(values)
        progress = SampleSoFar(values[found.cut :], (clock.now_ns() - started_ns) * 1e-9)
        check = until.check(progress)
        wanted = 0 if check.met else min(until.more(progress), max(2, len(values) // 3), _MOST_AT_ONCE)
        # Ranks measure different elapsed times but must agree on when to stop.
        turns = int(communicator.broadcast(np.array([wanted], np.int64))[0])
    # All ranks report rank 0's reason.
    reason = np.frombuffer(check.text.encode()[:200].ljust(200), np.uint8).copy()
    return SweepPoint(
        operation.name,
        moved,
        tuple(values[found.cut :].tolist()),
        found.cut,
        found.reason,
        bytes(communicator.broadcast(reason)).decode(errors="replace").strip(),
    )


_LEAST_ERROR = 0.01
"""Relative, of a median: no point counts as more precise than one percent, or a lucky one would decide alone."""


@dataclass(frozen=True)
class Timed:
    """The time of an operation on ``nbytes`` bytes, in seconds, with its standard error."""

    nbytes: float
    time_s: float
    error_s: float


@dataclass(frozen=True)
class Fit:
    """t = ``alpha_s`` + n · ``beta_s_b``: seconds, and seconds per byte, with their intervals.

    ``misfit`` is √(χ² / degrees of freedom): how far the line misses the points, in their own errors; about 1 if the
    model holds. ``relative`` is the largest |measured / fitted − 1|. ``n`` is the number of points.
    """

    alpha_s: float
    alpha_interval: Interval
    beta_s_b: float
    beta_interval: Interval
    misfit: float
    relative: float
    n: int

    def time_s(self, nbytes: float) -> float:
        """The model's time for a size, in seconds."""
        return self.alpha_s + nbytes * self.beta_s_b

    @property
    def bandwidth_b_s(self) -> float:
        """1 / β: the asymptotic bandwidth in bytes per second."""
        return 1.0 / self.beta_s_b if self.beta_s_b > 0 else math.inf

    @property
    def half_size_b(self) -> float:
        """α / β: the size at which half of the time is latency (Hockney's n½)."""
        return self.alpha_s / self.beta_s_b if self.beta_s_b > 0 else math.inf


@dataclass(frozen=True)
class Round:
    """``count`` consecutive messages, each with ``share`` of the operation's bytes."""

    count: int
    share: float

    @property
    def parts(self) -> tuple[float, float]:
        """One message's part of the operation's α and β: the operation is ``count`` (α + share · n β)."""
        return 1 / self.count, 1 / (self.count * self.share)

    def per_message(self, whole: Fit) -> tuple[float, float]:
        """α (s) and β (s/B) of a single message."""
        alpha, beta = self.parts
        return whole.alpha_s * alpha, whole.beta_s_b * beta


def rounds_of(operation: str, size: int) -> Round | None:
    """The consecutive messages of the bandwidth-optimal algorithm of ``operation`` on ``size`` ranks.

    A ring for all-reduce, reduce-scatter and all-gather (Patarasuk & Yuan 2009), pairs for all-to-all. ``None`` for
    other operations and for a single rank. The additions of a reduction count as part of β.
    """
    if size < 2:
        return None
    if operation == "all-reduce":
        return Round(2 * (size - 1), 1 / size)
    if operation in ("reduce-scatter", "all-gather", "all-to-all"):
        return Round(size - 1, 1 / size)
    return Round(1, 1.0) if operation == "send-receive" else None


def fit_points(estimates: Sequence[tuple[float, Estimate]]) -> list[Timed]:
    """Points from sizes and medians; the standard error is that of a normal distribution with the interval's width.

    A median without an interval (fewer than six values) is assumed to have an error of ten percent.
    """
    found = []
    for nbytes, estimate in estimates:
        error = 0.1 * estimate.value
        if estimate.interval is not None and math.isfinite(estimate.interval.width):
            error = estimate.interval.width / (2 * normal_quantile(0.5 + estimate.interval.level / 2))
        found.append(Timed(nbytes, estimate.value, max(error, _LEAST_ERROR * estimate.value)))
    return found


def fit(points: Sequence[Timed], level: float = 0.95) -> Fit:
    """Weighted least squares through at least three points of at least two sizes, with both parameters >= 0.

    Intervals are Student's with n − 2 degrees of freedom, for errors widened by the misfit if that is above 1 (Birge's
    ratio), cut at zero. A parameter that would be negative is 0 and the other is fitted alone; their intervals keep the
    width of the joint fit, around these values. Raises ``UsageError`` for fewer points.
    """
    sizes, times, errors = (np.array([getattr(each, name) for each in points]) for name in Timed.__dataclass_fields__)
    if len(points) < 3 or len(set(sizes.tolist())) < 2:
        raise UsageError(
            f"a line through {len(points)} points", "it needs three points of at least two sizes", "measure more sizes"
        )
    # Columns on the same scale, for numerical stability.
    scale = float(sizes.max()) or 1.0
    design = np.stack([np.ones_like(sizes), sizes / scale], axis=1)
    solution, covariance = _weighted(design, times, errors, (True, True))
    free = (bool(solution[0] >= 0), bool(solution[1] >= 0))
    bounded = solution
    if not all(free):
        bounded, _ = _weighted(design, times, errors, free)
    left = times - design @ bounded
    freedom = len(points) - 2
    misfit = math.sqrt(float(np.sum((left / errors) ** 2)) / freedom)
    wide = t_quantile(0.5 + level / 2, freedom) * max(1.0, misfit)
    intervals = []
    for at, unit in ((0, 1.0), (1, scale)):
        reach = wide * math.sqrt(covariance[at, at])
        low, high = max(0.0, float(bounded[at]) - reach), float(bounded[at]) + reach
        intervals.append(Interval(low / unit, high / unit, level, "weighted least squares, Student's t, Birge's ratio"))
    fitted = design @ bounded
    return Fit(
        alpha_s=float(bounded[0]),
        alpha_interval=intervals[0],
        beta_s_b=float(bounded[1]) / scale,
        beta_interval=intervals[1],
        misfit=misfit,
        relative=float(np.max(np.abs(times / fitted - 1.0))),
        n=len(points),
    )


def _weighted(
    design: NDArray[np.float64], times: NDArray[np.float64], errors: NDArray[np.float64], free: tuple[bool, bool]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The solution with the free parameters, the others 0, and its covariance for these errors."""
    chosen = [at for at in (0, 1) if free[at]]
    weighted = design[:, chosen] / errors[:, None]
    inverse = np.linalg.inv(weighted.T @ weighted)
    solution, covariance = np.zeros(2), np.zeros((2, 2))
    solution[chosen] = inverse @ weighted.T @ (times / errors)
    covariance[np.ix_(chosen, chosen)] = inverse
    return solution, covariance
