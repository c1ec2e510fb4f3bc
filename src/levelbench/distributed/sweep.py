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
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from levelbench.distributed.communicator import REDUCTIONS, Communicator, Done, Handle, Reduction
from levelbench.distributed.packing import pieces
from levelbench.errors import CheckFailedError, UnknownNameError, UsageError
from levelbench.measure.clocks import HOST, Clock, time_ns
from levelbench.measure.statistics import Estimate, Interval, estimate_median, normal_quantile, t_quantile
from levelbench.measure.stopping import Budget, Plateau, Precision, SampleSoFar, StoppingRule
from levelbench.measure.warmup import find_warmup
from levelbench.networks.executor import Array, Backend

DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64")
"""Types of an element that can be measured; the first is the default."""

Make = Callable[[], Array]
"""Makes an array to work on."""


@dataclass(frozen=True)
class Operation:
    """``prepare(communicator, make)`` returns the work, on arrays of ``make()``.

    ``bus``: the factor, for a number of ranks, from nbytes / t to the bandwidth of the busiest link. ``parts``: an
    array is a rank's part of the buffer, not the whole. ``calls``: how often the work performs the operation.
    ``sized``: whether it has a size at all. ``pair``: whether it needs two ranks. ``overwrites``: whether its argument
    gets the result. ``start``: the same work begun without waiting, where the interface has that. ``op``: how it
    reduces, if it does.
    """

    name: str
    prepare: Callable[[Communicator, Make], Callable[[], object]]
    bus: Callable[[int], float]
    parts: bool = False
    calls: int = 1
    sized: bool = True
    pair: bool = False
    overwrites: bool = False
    start: Callable[[Communicator, Make], Callable[[], Sequence[Handle]]] | None = None
    op: Reduction | None = None

    def arrays(
        self, communicator: Communicator, backend: Backend, nbytes: int, dtype: str, values: Values | None = None
    ) -> tuple[Make, int]:
        """What makes its arrays, of zeros or ``values``, and the bytes of the buffer: ``nbytes`` or a little more."""
        kind = _kind(dtype)
        count = communicator.size if self.parts else 1
        each = ceil(ceil(nbytes / kind.itemsize) / count)
        given = np.zeros(each, kind) if values is None else values(communicator.rank, each).astype(kind)
        return lambda: backend.array(given.copy()), each * count * kind.itemsize if self.sized else 0


def _kind(dtype: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, dtype, dtype))


def operation_named(name: str) -> Operation:
    """The operation with this name; ``UnknownNameError`` if there is none."""
    if name not in OPERATIONS:
        raise UnknownNameError("operation of a communicator", name, OPERATIONS)
    return OPERATIONS[name]


Values = Callable[[int, int], NDArray[Any]]
"""``values(rank, n)``: the numbers that a rank passes."""


def _numbers(rank: int, n: int) -> NDArray[np.int64]:
    """What a rank passes to an operation that only moves it."""
    return rank % 3 + np.arange(n, dtype=np.int64) % 4


_PERIOD = 4099
"""A prime: what is misplaced by a power of two shows."""
_ACTIVE = 8
"""So many ranks have a number at each place that rounds; the others have zeros for a sum, and 1 or -1 for a product."""


def operands(op: Reduction, kind: np.dtype[Any], size: int, rank: int, n: int) -> NDArray[Any]:
    """What a rank of ``size`` passes to a reduction: numbers with all of their digits, different on each rank.

    Whole numbers have the whole range of their type, so that sums and products wrap; factors are odd, as even ones
    would soon make zero. Products of fractions stay between 2^-8 and 2^8 in any order.
    """
    places = np.arange(min(n, _PERIOD), dtype=np.uint64)
    # SplitMix64 (Steele, Lea & Flood 2014).
    mixed = (places + np.uint64(rank * _PERIOD + 1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    if kind.kind in "iu":
        return np.resize((mixed | np.uint64(op == "product")).astype(kind), n)
    share, sign = (mixed >> np.uint64(11)) * 2.0**-53, np.where(mixed & np.uint64(1), -1.0, 1.0)
    active = (places + np.uint64(rank)) % np.uint64(ceil(size / _ACTIVE)) == 0
    if op == "product":
        upward = np.where(mixed & np.uint64(2), 0.5, -0.5)
        numbers = sign * np.where(active, 2.0 ** (upward * (1 + share)), 1.0)
    else:
        numbers = sign * (1 + share) * (active | (op in ("max", "min")))
    return np.resize(numbers.astype(kind), n)


Right = tuple[NDArray[Any], NDArray[Any] | float]
"""What an array has to be, and how far it may be off."""


def reduced(op: Reduction, kind: np.dtype[Any], size: int, n: int) -> Right:
    """The reduction of all ranks' operands, computed in a wider type than theirs, and how far rounding may lead.

    Whole numbers wrap at the width of their type, in two's complement. Each of at most eight roundings (seven joins and
    the division of a mean) is off by half of the type's epsilon, in whatever order they come.
    """
    whole = kind.kind in "iu"
    wide = np.dtype(np.uint64 if whole else np.longdouble if kind == np.float64 else np.float64)
    if whole and op in ("max", "min"):
        wide = kind
    join = getattr(np, REDUCTIONS[op])
    few = min(n, _PERIOD)
    first, *others = (operands(op, kind, size, rank, few).astype(wide) for rank in range(size))
    total, weight = first.copy(), np.abs(first) if not whole else first
    for each in others:
        total = join(total, each)
        weight = weight + np.abs(each) if op in ("sum", "mean") and not whole else np.abs(total)
    if op == "mean":
        total, weight = total / size, weight / size
    rounding = math.expm1(_ACTIVE * math.log1p(float(ml_dtypes.finfo(kind).eps) / 2)) if not whole else 0.0
    exact = whole or size == 1 or op in ("max", "min")
    room = 0.0 if exact else np.resize(weight.astype(np.float64), n) * rounding
    return np.resize(total.astype(np.int64).astype(kind) if whole and wide != kind else total, n), room


def require_right(
    operation: Operation, communicator: Communicator, backend: Backend, nbytes: int, dtype: str = DTYPES[0]
) -> None:
    """Run it once on all ranks; ``CheckFailedError`` for a wrong result. Collective."""
    kind, size, rank = _kind(dtype), communicator.size, communicator.rank
    values = partial(operands, operation.op, kind, size) if operation.op else _numbers
    make, _ = operation.arrays(communicator, backend, nbytes, dtype, values)
    n = len(backend.host(make()))
    found = operation.prepare(communicator, make)()
    returned = found if isinstance(found, tuple) else (found,)
    results = [np.asarray(backend.host(each)) for each in returned if each is not None]
    wanted = _wanted(operation, kind, rank, size, n)
    if results and len(results) != len(wanted):
        raise _wrong(operation, communicator, f"rank {rank} got {len(results)} arrays instead of {len(wanted)}")
    for result, (right, room) in zip(results, wanted, strict=False):
        if (result.dtype, result.shape) != (kind, right.shape):
            got = f"an array of {result.dtype} {result.shape} instead of {dtype} {right.shape}"
            raise _wrong(operation, communicator, f"at {nbytes:,} bytes of {dtype}, rank {rank} got {got}")
        # Not "> room", which holds for no NaN.
        off = result != right if isinstance(room, float) else ~(np.abs(result.astype(right.dtype) - right) <= room)
        if off.any():
            at = int(np.argmax(off))
            said = f"at {nbytes:,} bytes of {dtype}, rank {rank} got {_some(result, at)} instead of {_some(right, at)}"
            raise _wrong(operation, communicator, f"{said} from element {at} on")


def _some(array: NDArray[Any], at: int) -> str:
    return f"[{', '.join(f'{each:.6g}' for each in array[at : at + 3].astype(object))}]..."


def _wrong(operation: Operation, communicator: Communicator, found: str) -> CheckFailedError:
    asked = f"{operation.name} on {communicator.size} ranks over {communicator.name}"
    return CheckFailedError(asked, found, "repair the communicator before timing it")


def _wanted(operation: Operation, kind: np.dtype[Any], rank: int, size: int, n: int) -> Sequence[Right]:
    """The returned arrays, if each rank passes its operands to a reduction, and otherwise its numbers."""
    name = operation.name
    if operation.op:
        total, room = reduced(operation.op, kind, size, n)
        start, stop = pieces(n, size)[rank : rank + 2] if name.startswith("reduce-scatter") else (0, n)
        return [(total[start:stop], room if isinstance(room, float) else room[start:stop])]
    ranks: Sequence[int] = []
    if name in ("all-gather", "all-to-all", "gather"):
        ranks = range(size)
    elif name in ("broadcast", "scatter"):
        ranks = [0]
    elif name == "exchange":
        ranks = [(rank - 1) % size, (rank + 1) % size]
    elif name == "window":
        ranks = [0 if rank == 1 else rank]
    elif operation.pair:
        ranks = [{0: 1, 1: 0}.get(rank, rank)]
    return [(_numbers(each, n).astype(kind), 0.0) for each in ranks]


def _method(name: str, *further: Any) -> Callable[[Communicator, Make], Callable[[], object]]:
    """The work of a communicator's method that takes one array."""
    return lambda communicator, make: partial(getattr(communicator, name), make(), *further)


def _started(name: str, *further: Any) -> Callable[[Communicator, Make], Callable[[], Sequence[Handle]]]:
    """The same, begun without waiting."""

    def prepare(communicator: Communicator, make: Make) -> Callable[[], Sequence[Handle]]:
        array = make()
        return lambda: [getattr(communicator, f"start_{name}")(array, *further)]

    return prepare


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


def _both_ways(communicator: Communicator, make: Make) -> Callable[[], Sequence[Handle]]:
    """Ranks 0 and 1 send to each other at the same time."""
    array, room = make(), make()
    rank, other = communicator.rank, 1 - communicator.rank
    if rank > 1:
        return lambda: [Done(array)]
    return lambda: [communicator.start_receive(room, other), communicator.start_send(array, other)]


def _bidirectional(communicator: Communicator, make: Make) -> Callable[[], object]:
    start = _both_ways(communicator, make)

    def both_ways() -> object:
        received, *_ = [each.wait() for each in start()]
        return received

    return both_ways


_WINDOW = 64


def _window(communicator: Communicator, make: Make) -> Callable[[], object]:
    """Rank 0 has 64 messages to rank 1 on their way at once, which answers the last (as OSU's ``osu_bw``)."""
    array, room = make(), make()
    answer = array[:1]

    def many() -> Array:
        if communicator.rank == 0:
            for handle in [communicator.start_send(array, 1) for _ in range(_WINDOW)]:
                handle.wait()
            communicator.receive(room[:1], 1, 1)
        elif communicator.rank == 1:
            found = [handle.wait() for handle in [communicator.start_receive(room, 0) for _ in range(_WINDOW)]]
            communicator.send(answer, 0, 1)
            return found[-1]
        return array

    return many


def _all_but_one(size: int) -> float:
    return (size - 1) / size


def _twice(size: int) -> float:
    return 2 * _all_but_one(size)


def _once(size: int) -> float:
    return 1.0


def reducing_name(collective: str, op: Reduction) -> str:
    """``all-reduce`` for the sum, ``all-reduce-max`` for the maximum."""
    return collective if op == "sum" else f"{collective}-{op}"


def _all_reduce(op: Reduction) -> Operation:
    name, work = reducing_name("all-reduce", op), _method("all_reduce", op)
    return Operation(name, work, _twice, overwrites=True, start=_started("all_reduce", op), op=op)


def _reduce_scatter(op: Reduction) -> Operation:
    return Operation(reducing_name("reduce-scatter", op), _method("reduce_scatter", op), _all_but_one, op=op)


OPERATIONS: Mapping[str, Operation] = MappingProxyType(
    {
        each.name: each
        for each in (
            *(reducing(op) for op in REDUCTIONS for reducing in (_all_reduce, _reduce_scatter)),
            Operation("all-gather", _method("all_gather"), _all_but_one, parts=True),
            Operation("broadcast", _method("broadcast"), _once, overwrites=True, start=_started("broadcast")),
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
            Operation("send-receive", _send_receive, _once, calls=2, pair=True),
            Operation("bidirectional", _bidirectional, lambda size: 2.0, pair=True, start=_both_ways),
            Operation("window", _window, _once, calls=_WINDOW, pair=True),
            Operation("barrier", lambda communicator, make: communicator.barrier, _once, sized=False),
        )
    }
)


_FIRST = 6
_MOST_AT_ONCE = 2000
_LEAST_BYTES = 4
_UNITS = {"": 1, "b": 1, "k": 1000, "kb": 1000, "m": 10**6, "mb": 10**6, "g": 10**9, "gb": 10**9}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30}


@dataclass(frozen=True)
class SweepPoint:
    """One operation at one size: the slowest rank's times in seconds, in order, after warm-up.

    ``nbytes`` is 0 for an operation without a size. ``warmup`` leading values were cut, for ``warmup_reason``.
    ``overlap``: the shares of the time during which a rank could compute beside it, if that was measured.
    """

    operation: str
    nbytes: int
    times_s: tuple[float, ...]
    warmup: int
    warmup_reason: str
    stopped_by: str
    overlap: tuple[float, ...] = ()

    def estimate(self, level: float = 0.95) -> Estimate:
        """The median with its exact interval."""
        return estimate_median(list(self.times_s), level)


@dataclass(frozen=True)
class How:
    """How operations are measured.

    On elements of ``dtype``; with ``copy`` on a copy of an argument that they overwrite, as where it is needed
    afterwards (out of place); with ``overlap`` also beside work of the processor.
    """

    dtype: str = DTYPES[0]
    copy: bool = False
    overlap: bool = False


def sweep(
    communicator: Communicator,
    backend: Backend,
    operations: Sequence[str],
    sizes: Sequence[int],
    until: StoppingRule,
    clock: Clock = HOST,
    how: How | None = None,
) -> Iterator[SweepPoint]:
    """Check and time each operation at each size (bytes). Collective: all ranks pass the same, and get the same.

    Arrays are ``backend``'s, of zeros when timed, so that sums do not grow. Raises ``CheckFailedError`` if an
    operation's result is wrong, ``UnknownNameError`` for an unknown operation.
    """
    how = how or How()
    for operation in [operation_named(name) for name in operations]:
        if communicator.size < 2 and operation.pair:
            raise UsageError(
                f"{operation.name} of one rank", "there is no other rank to send to", "start two ranks or more"
            )
        for nbytes in sizes if operation.sized else (0,):
            require_right(operation, communicator, backend, nbytes, how.dtype)
            make, moved = operation.arrays(communicator, backend, nbytes, how.dtype)
            work = operation.prepare(communicator, make)
            if how.copy and operation.overwrites:
                work = _on_a_copy(work)
            point = replace(_point(operation, communicator, work, until, clock), nbytes=moved)
            if how.overlap and operation.start is not None:
                compute = computing(float(np.median(point.times_s)), clock)
                shares = overlap(communicator, operation.start(communicator, make), compute, clock)
                point = replace(point, overlap=shares)
            yield point


def _on_a_copy(work: Callable[[], object]) -> Callable[[], object]:
    """The method's call on a copy of its first argument, which it would overwrite."""
    assert isinstance(work, partial)
    call, (array, *further) = work.func, work.args
    copied = array.clone if hasattr(array, "clone") else array.copy
    return lambda: call(copied(), *further)


_OVERLAP_TURNS = 30


def computing(seconds: float, clock: Clock) -> Callable[[], None]:
    """Work of the processor that takes about so long."""
    block = np.full((32, 32), 1e-3, np.float32)
    once_s = max(1e-7, float(np.median([time_ns(lambda: block @ block, clock) for _ in range(50)])) * 1e-9)
    repeats = max(1, round(seconds / once_s))

    def compute() -> None:
        for _ in range(repeats):
            block @ block

    return compute


def overlap(
    communicator: Communicator, start: Callable[[], Sequence[Handle]], compute: Callable[[], None], clock: Clock
) -> tuple[float, ...]:
    """The share of an operation's time in which a rank can compute: 1 - (both - compute) / alone, within [0, 1].

    As in OSU's benchmarks of non-blocking collectives: ``compute`` lasts about as long as the operation alone, and
    calls nothing of the communicator. In turns, of the slowest rank. Collective.
    """

    def alone() -> None:
        for handle in start():
            handle.wait()

    def both() -> None:
        handles = start()
        compute()
        for handle in handles:
            handle.wait()

    own = []
    for _ in range(_OVERLAP_TURNS):
        for work in (alone, compute, both):
            communicator.barrier()
            own.append(time_ns(work, clock))
    slowest = np.max(communicator.all_gather(np.array(own, np.int64)), axis=0).reshape(-1, 3)
    alone_ns, compute_ns, both_ns = (np.maximum(1, slowest[:, each]) for each in range(3))
    return tuple(np.clip(1 - (both_ns - compute_ns) / alone_ns, 0, 1).tolist())


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
    if found < _LEAST_BYTES:
        raise _invalid_sizes(whole, f"{text.strip()!r} is less than an element of {_LEAST_BYTES} bytes")
    return found


def _invalid_sizes(text: str, found: str) -> UsageError:
    return UsageError(f"the sizes {text!r}", found, "write 4B:64MiB, 1KiB:1MiB:4 or 4B,1KiB,1MB")


def _point(
    operation: Operation, communicator: Communicator, work: Callable[[], object], until: StoppingRule, clock: Clock
) -> SweepPoint:
    """Measure in turns until rank 0 has enough values."""
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
        0,
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
    collective, _, op = operation.rpartition("-")
    operation = collective if op in REDUCTIONS else operation
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
