"""Communicators that wrap another one: the base class, one that delays or fails, and one that counts.

Delays are drawn from a seed, separately for each rank, so an order of arrival that breaks a scheme can be reproduced.
With our own collectives (``Algorithmic``), every message is counted. A library's collectives are opaque, so they count
as the closed form of the algorithm that the communicator declares, for the arrays that were actually passed. All
counts are integers, so they can be compared exactly.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import sleep
from typing import TypeVar, cast, final

from numpy.random import PCG64, Generator

from levelbench.distributed import traffic
from levelbench.distributed.communicator import Communicator, FunctionHandle, Handle, Reduction
from levelbench.distributed.communicators.algorithmic import Algorithmic
from levelbench.distributed.packing import elements
from levelbench.distributed.scheme import Traffic
from levelbench.distributed.traffic import Algorithms
from levelbench.measure.clocks import HOST, Clock
from levelbench.measure.timeline import Phase
from levelbench.networks.executor import Array

T = TypeVar("T")


class WrappingCommunicator(Communicator):
    """Forwards every call to ``inner`` through :meth:`around`, which subclasses override."""

    def __init__(self, inner: Communicator) -> None:
        self.inner = inner
        self.name, self.rank, self.size = inner.name, inner.rank, inner.size
        self.algorithms: Algorithms = getattr(inner, "algorithms", Algorithms())
        """Those that the inner communicator declares."""

    def around(
        self, operation: str, call: Callable[[], T], arrays: Sequence[Array], peer: int = 0, count: int = 0
    ) -> T:
        """Make the call of ``operation``, which is named without ``start_``.

        ``arrays`` are those to send or reduce, or else to receive into; ``peer`` is the root or the other rank;
        ``count`` is the number of neighbours other than this rank.
        """
        return call()

    def all_reduce(self, array: Array, op: Reduction = "sum") -> Array:
        return self.around("all_reduce", lambda: self.inner.all_reduce(array, op), [array])

    def broadcast(self, array: Array, root: int = 0) -> Array:
        return self.around("broadcast", lambda: self.inner.broadcast(array, root), [array], root)

    def send(self, array: Array, to: int, tag: int = 0) -> None:
        self.around("send", lambda: self.inner.send(array, to, tag), [array], to)

    def receive(self, like: Array, source: int, tag: int = 0) -> Array:
        return self.around("receive", lambda: self.inner.receive(like, source, tag), [like], source)

    def start_all_reduce(self, array: Array, op: Reduction = "sum") -> Handle:
        return self.around("all_reduce", lambda: self.inner.start_all_reduce(array, op), [array])

    def start_broadcast(self, array: Array, root: int = 0) -> Handle:
        return self.around("broadcast", lambda: self.inner.start_broadcast(array, root), [array], root)

    def start_send(self, array: Array, to: int, tag: int = 0) -> Handle:
        return self.around("send", lambda: self.inner.start_send(array, to, tag), [array], to)

    def start_receive(self, like: Array, source: int, tag: int = 0) -> Handle:
        return self.around("receive", lambda: self.inner.start_receive(like, source, tag), [like], source)

    def receive_any(self, like: Array, tag: int = 0) -> tuple[Array, int]:
        return self.around("receive_any", lambda: self.inner.receive_any(like, tag), [like])

    def reduce_scatter(self, array: Array, op: Reduction = "sum") -> Array:
        return self.around("reduce_scatter", lambda: self.inner.reduce_scatter(array, op), [array])

    def all_gather(self, array: Array) -> tuple[Array, ...]:
        return self.around("all_gather", lambda: self.inner.all_gather(array), [array])

    def gather(self, array: Array, root: int = 0) -> tuple[Array, ...] | None:
        return self.around("gather", lambda: self.inner.gather(array, root), [array], root)

    def scatter(self, arrays: Sequence[Array] | None, like: Array, root: int = 0) -> Array:
        given = (arrays or []) if self.rank == root else [like]
        return self.around("scatter", lambda: self.inner.scatter(arrays, like, root), given, root)

    def all_to_all(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return self.around("all_to_all", lambda: self.inner.all_to_all(arrays), arrays)

    def exchange(self, array: Array, neighbours: Sequence[int]) -> tuple[Array, ...]:
        others = sum(each != self.rank for each in neighbours)
        return self.around("exchange", lambda: self.inner.exchange(array, neighbours), [array], count=others)

    def barrier(self) -> None:
        self.around("barrier", self.inner.barrier, [])

    def close(self) -> None:
        self.inner.close()

    def abort(self) -> None:
        self.inner.abort()


class RankDied(BaseException):
    """The simulated death of a rank, raised by :class:`DelayedCommunicator`.

    Not an ``Exception``, so that no error handler swallows it, just as none survives a signal.
    """


@dataclass(frozen=True)
class Delays:
    """What goes wrong, and when.

    ``most_s``: before each operation, a rank waits for up to this many seconds (uniform). ``slow``: additional seconds
    to wait, by rank. ``fail_at``: the operation, counted from 1, at which a rank dies instead, by rank.
    """

    seed: int = 0
    most_s: float = 0.001
    slow: Mapping[int, float] = field(default_factory=dict)
    fail_at: Mapping[int, int] = field(default_factory=dict)


@final
class DelayedCommunicator(WrappingCommunicator):
    """``inner`` with delays. A rank that dies calls ``abort`` and raises :class:`RankDied`, also in later calls."""

    def __init__(self, inner: Communicator, delays: Delays) -> None:
        super().__init__(inner)
        self._delays = delays
        self._generator = Generator(PCG64([delays.seed, inner.rank]))
        self._lock = threading.Lock()
        self.operations = 0
        """The number of operations so far."""

    def around(
        self, operation: str, call: Callable[[], T], arrays: Sequence[Array], peer: int = 0, count: int = 0
    ) -> T:
        with self._lock:
            self.operations += 1
            number, late_s = self.operations, self._generator.random() * self._delays.most_s
        last = self._delays.fail_at.get(self.rank)
        if last is not None and number >= last:
            self.inner.abort()
            raise RankDied(f"rank {self.rank} died before its operation {last}, as requested")
        sleep(late_s + self._delays.slow.get(self.rank, 0.0))
        return call()


_NOTHING = (0, 0)
_UNSENT = Traffic(0, 0)
_RECEIVING = ("receive", "receive_any")


@dataclass(frozen=True)
class Count:
    """Counts of one operation in one phase on one rank.

    ``sent_bytes`` and ``messages`` went to other ranks. ``payload_bytes`` is the size of the arrays passed to be sent
    or reduced. ``time_ns`` was spent in the call and in waiting for its handle.
    """

    calls: int = 0
    sent_bytes: int = 0
    messages: int = 0
    payload_bytes: int = 0
    time_ns: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(
            self.calls + other.calls,
            self.sent_bytes + other.sent_bytes,
            self.messages + other.messages,
            self.payload_bytes + other.payload_bytes,
            self.time_ns + other.time_ns,
        )


@dataclass(frozen=True)
class Totals(Count):
    """What one rank did in an interval; ``counts`` has the parts, by operation and phase label."""

    counts: Mapping[tuple[str, str], Count] = field(default_factory=dict)

    def by_operation(self) -> dict[str, Count]:
        """Sums over all phases."""
        result: dict[str, Count] = {}
        for (operation, _), each in self.counts.items():
            result[operation] = result.get(operation, Count()) + each
        return result


def _as_ints(sent: Traffic) -> tuple[int, int]:
    return int(sent.sent_bytes), int(sent.messages)


@final
class CountingCommunicator(WrappingCommunicator):
    """Counts what ``inner`` does; ``phase()`` returns the current phase. As thread-safe as ``inner``."""

    def __init__(
        self, inner: Communicator, phase: Callable[[], Phase] = lambda: Phase.COMMUNICATE, clock: Clock = HOST
    ) -> None:
        super().__init__(inner)
        self.phase = phase
        self._now_ns = clock.now_ns
        self._counts: dict[tuple[str, Phase], list[int]] = {}
        self._forms: dict[tuple[str, int, int, int, int], tuple[int, int]] = {}
        self._lock = threading.Lock()
        innermost = inner
        while isinstance(innermost, WrappingCommunicator):
            innermost = innermost.inner
        self._algorithmic = innermost if isinstance(innermost, Algorithmic) else None
        self._seen = {} if self._algorithmic is None else self._algorithmic.sent_by_operation()
        self.sent_bytes = 0
        """Bytes sent to other ranks since creation; :meth:`take` does not reset it."""
        self.sent_messages = 0

    def take(self) -> Totals:
        """The counts since the last call."""
        with self._lock:
            counts, self._counts = self._counts, {}
        parts = {(operation, phase.label): Count(*values) for (operation, phase), values in counts.items()}
        whole = Count(*map(sum, zip(*counts.values(), strict=True)))
        return Totals(**vars(whole), counts=parts)

    def around(
        self, operation: str, call: Callable[[], T], arrays: Sequence[Array], peer: int = 0, count: int = 0
    ) -> T:
        phase, now_ns = self.phase(), self._now_ns
        only_receives = operation in _RECEIVING or (operation == "scatter" and self.rank != peer)
        payload = 0 if only_receives else sum(each.nbytes for each in arrays)
        declared = self._declared(operation, arrays, peer, count) if self._algorithmic is None else _NOTHING
        start = now_ns()
        result = call()
        self._note(operation, phase, 1, declared, payload, now_ns() - start)
        return result if not isinstance(result, Handle) else cast("T", self._counted(operation, result))

    def _counted(self, operation: str, inner: Handle) -> Handle:
        """Count the time of waiting for the handle as well."""

        def wait() -> Array:
            phase, now_ns = self.phase(), self._now_ns
            start = now_ns()
            result = inner.wait()
            self._note(operation, phase, 0, _NOTHING, 0, now_ns() - start)
            return result

        return FunctionHandle(wait, inner.done)

    def _note(
        self, operation: str, phase: Phase, calls: int, declared: tuple[int, int], payload: int, time_ns: int
    ) -> None:
        with self._lock:
            self._add((operation, phase), (calls, *declared, payload, time_ns))
            if self._algorithmic is None:
                return
            # A collective in progress is credited with what it sent meanwhile, whichever call advanced it.
            seen, self._seen = self._seen, self._algorithmic.sent_by_operation()
            for name, now in self._seen.items():
                before = seen.get(name, _UNSENT)
                if now != before:
                    sent = int(now.sent_bytes - before.sent_bytes), int(now.messages - before.messages)
                    self._add((name, phase), (0, *sent, 0, 0))

    def _add(self, key: tuple[str, Phase], more: tuple[int, ...]) -> None:
        """Add figures in the field order of :class:`Count`."""
        values = self._counts.setdefault(key, [0] * len(more))
        for at, each in enumerate(more):
            values[at] += each
        self.sent_bytes += more[1]
        self.sent_messages += more[2]

    def _declared(self, operation: str, arrays: Sequence[Array], peer: int, count: int) -> tuple[int, int]:
        """Bytes and messages of a call by the closed form, computed once for each length."""
        if operation == "all_to_all" or (operation == "scatter" and self.algorithms.scatter == "direct"):
            if operation == "scatter" and self.rank != peer:
                return _NOTHING
            sizes = [elements(each) for each in arrays]
            return _as_ints(traffic.all_to_all(sizes, arrays[0].itemsize if arrays else 1, self.size, self.rank))
        nbytes, itemsize = (arrays[0].nbytes, arrays[0].itemsize) if arrays else (0, 1)
        key = (operation, nbytes, itemsize, peer, count)
        form = self._forms.get(key)
        if form is None:
            form = _as_ints(self._closed_form(operation, nbytes // itemsize, itemsize, peer, count))
            self._forms[key] = form
        return form

    def _closed_form(self, operation: str, length: int, itemsize: int, peer: int, count: int) -> Traffic:
        size, rank = self.size, self.rank
        match operation:
            case "send":
                return _UNSENT if peer == rank else traffic.send(length, itemsize)
            case "receive" | "receive_any":
                return _UNSENT
            case "exchange":
                return traffic.exchange(length, itemsize, count)
            case "barrier":
                return traffic.barrier(size, rank, self.algorithms.barrier)
            case _:
                root = (peer,) if operation in ("broadcast", "gather", "scatter") else ()
                form, algorithm = getattr(traffic, operation), getattr(self.algorithms, operation)
                return cast("Traffic", form(length, itemsize, size, rank, *root, algorithm))
