"""Ranks that meet in one process: one communicator for those that are threads and those that are simulated.

Everything that a library may do differently from run to run is pinned down. Sums are taken in the order of ranks, what
is sent is copied when it is sent, and calls that do not belong together are an error and not a hang. How a rank waits,
and what that costs, is the meeting's: real time between threads (:mod:`.threads`), virtual time in a simulated cluster
(:mod:`levelbench.distributed.simulation.cluster`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

import numpy as np

from levelbench.distributed.communicator import (
    Communicator,
    FunctionHandle,
    Handle,
    Reduction,
    checked_count,
    checked_op,
    checked_rank,
    checked_tag,
)
from levelbench.distributed.packing import HostArray, new, pieces, put, view
from levelbench.errors import CommunicationError, UsageError
from levelbench.networks.executor import Array

ANY = -1
"""In the place of a source: whoever comes first."""
_EXCHANGE = -1
"""The tag of :meth:`LocalCommunicator.exchange`, which users cannot choose."""

Combine = Callable[[list[Any]], Any]


class CollectiveCall(NamedTuple):
    """A collective call, which must be equal on all ranks; a scatter's arrays may have any shape."""

    operation: str
    root: int | None = None
    op: str = ""
    dtype: np.dtype[Any] | None = None
    shape: tuple[int, ...] = ()

    @property
    def source(self) -> int | None:
        """The one rank whose value is all that the others wait for; ``None``: they wait for all."""
        return self.root if self.operation in ("broadcast", "scatter") else None

    def __str__(self) -> str:
        root = "" if self.root is None else f"root={self.root}"
        array = "" if self.dtype is None else f"{self.dtype.name} {self.shape}"
        return f"{self.operation}({', '.join(filter(None, (self.op, root, array)))})"


@final
@dataclass(eq=False, slots=True)
class Collective:
    """One collective under way: the ranks' values, and the result once all have come. A simulated one takes time."""

    call: CollectiveCall
    number: int
    first: int
    values: dict[int, Any] = field(default_factory=dict)
    result: Any = None
    complete: bool = False
    taken: int = 0
    last_s: float = 0.0
    ends_s: float = 0.0
    nbytes: float = 0.0
    waiting: list[Any] = field(default_factory=list)

    @property
    def ready(self) -> bool:
        """Whether all is there that a rank waits for."""
        return self.complete if self.call.source is None else self.call.source in self.values


@final
@dataclass(eq=False, slots=True)
class Parcel:
    """An array of the sender's, copied. ``nbytes`` is what it stands for in a simulation."""

    array: HostArray
    source: int
    nbytes: float = 0.0
    taken: bool = False


@final
@dataclass(eq=False, slots=True)
class Receipt:
    """A place where a rank waits for a message from ``source``, or from ``ANY``."""

    source: int
    tag: int
    message: Parcel | None = None
    arrived_s: float = 0.0
    fiber: Any = None

    def __str__(self) -> str:
        if self.source == ANY:
            return f"receive_any(tag={self.tag})"
        if self.tag == _EXCHANGE:
            return f"exchange with {self.source}"
        return f"receive(source={self.source}, tag={self.tag})"


@final
@dataclass(eq=False, slots=True)
class Mailbox:
    """What has come to a rank under one tag, and who waits for it; messages of one source stay in order."""

    arrivals: deque[tuple[Parcel, float]] = field(default_factory=deque)
    by_source: dict[int, deque[tuple[Parcel, float]]] = field(default_factory=dict)
    receipts: list[Receipt] = field(default_factory=list)

    def deliver(self, message: Parcel, time_s: float = 0.0) -> Receipt | None:
        """Hand a message to the first receipt that wants it, which is answered, or keep it."""
        for at, receipt in enumerate(self.receipts):
            if receipt.source in (ANY, message.source):
                del self.receipts[at]
                receipt.message, receipt.arrived_s = message, time_s
                return receipt
        entry = (message, time_s)
        self.arrivals.append(entry)
        self.by_source.setdefault(message.source, deque()).append(entry)
        return None

    def want(self, receipt: Receipt) -> None:
        """Fill a receipt with the first message that it wants, or note that it waits for one."""
        found = _first(self.arrivals if receipt.source == ANY else self.by_source.get(receipt.source))
        if found is None:
            self.receipts.append(receipt)
            return
        receipt.message, receipt.arrived_s = found
        found[0].taken = True
        # Nobody may ever look there again, and arrays would stay for ever.
        _first(self.arrivals)
        _first(self.by_source[found[0].source])


def _first(entries: deque[tuple[Parcel, float]] | None) -> tuple[Parcel, float] | None:
    """The first that is not taken; those before it are dropped."""
    while entries and entries[0][0].taken:
        entries.popleft()
    return entries[0] if entries else None


class Meeting(ABC):
    """What the ranks of one process share: messages, collectives, and how a rank waits."""

    name: str
    size: int

    def __init__(self) -> None:
        self.boxes: dict[tuple[int, int], Mailbox] = {}
        """By rank and tag."""
        self.gone: set[int] = set()
        """Ranks that have closed their communicator."""

    def box(self, rank: int, tag: int) -> Mailbox:
        """What has come for a rank under a tag."""
        found = self.boxes.get((rank, tag))
        if found is None:
            found = self.boxes[rank, tag] = Mailbox()
        return found

    def require_open(self, rank: int, asked: object) -> None:
        """``UsageError`` for a rank that has closed its communicator."""
        if rank in self.gone:
            raise UsageError(str(asked), f"rank {rank} has closed its communicator", "close it after the last call")

    @abstractmethod
    def send(self, rank: int, array: Array, to: int, tag: int) -> Handle:
        """Send a copy of ``array``."""

    @abstractmethod
    def want(self, rank: int, source: int, tag: int) -> Receipt:
        """Ask for the next message from ``source`` (or ``ANY``) that no earlier receipt gets."""

    @abstractmethod
    def receive(self, rank: int, receipt: Receipt) -> Parcel:
        """Wait for a message."""

    @abstractmethod
    def arrived(self, receipt: Receipt) -> bool:
        """Whether :meth:`receive` would return at once."""

    @abstractmethod
    def enter(
        self, rank: int, call: CollectiveCall, value: Any, combine: Combine | None = None, like: HostArray | None = None
    ) -> Collective:
        """Take part in this rank's next collective; an error where another rank calls something else there.

        ``combine`` makes the result of the values of all ranks, by rank; the last one to come calls it. ``like`` is the
        array whose size the operation's time follows from.
        """

    @abstractmethod
    def finish(self, rank: int, entered: Collective) -> None:
        """Wait until the collective is ready."""

    @abstractmethod
    def ended(self, entered: Collective) -> bool:
        """Whether :meth:`finish` would return at once."""

    @abstractmethod
    def leave(self, entered: Collective) -> None:
        """Say that a rank has taken what it needs of a collective."""

    @abstractmethod
    def part(self, rank: int) -> None:
        """Take part no more; who waits for this rank gets an error."""

    @abstractmethod
    def fail(self, why: str) -> None:
        """End everything: every rank that waits or calls gets an error that says why."""


@final
class LocalCommunicator(Communicator):
    """Rank ``rank`` of those who meet at ``meeting``."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        checked_rank("a communicator", rank, meeting.size)
        self.meeting, self.rank, self.size, self.name = meeting, rank, meeting.size, meeting.name

    def start_all_reduce(self, array: Array, op: Reduction = "sum") -> Handle:
        """In the order of ranks: ((x0 + x1) + x2) + ..., once, by the last one to come."""
        checked_op("all_reduce", op, array)
        value = view(array)
        entered = self._enter("all_reduce", op, value, value, _REDUCTIONS[op])
        return self._collecting(entered, lambda: put(entered.result, array))

    def start_broadcast(self, array: Array, root: int = 0) -> Handle:
        checked_rank("broadcast", root, self.size)
        value, own = view(array), self.rank == root
        call = CollectiveCall("broadcast", root, "", value.dtype, value.shape)
        entered = self.meeting.enter(self.rank, call, value.copy() if own else None, like=value)
        return self._collecting(entered, lambda: array if own else put(entered.values[root], array))

    def start_send(self, array: Array, to: int, tag: int = 0) -> Handle:
        checked_rank("send", to, self.size)
        checked_tag("send", tag)
        return self.meeting.send(self.rank, array, to, tag)

    def start_receive(self, like: Array, source: int, tag: int = 0) -> Handle:
        """Messages go to receives in the order in which these were started."""
        checked_rank("receive", source, self.size)
        checked_tag("receive", tag)
        return self._receiving(like, self.meeting.want(self.rank, source, tag))

    def receive_any(self, like: Array, tag: int = 0) -> tuple[Array, int]:
        checked_tag("receive_any", tag)
        receipt = self.meeting.want(self.rank, ANY, tag)
        message = self.meeting.receive(self.rank, receipt)
        return _fitted(message.array, like, receipt, message.source), message.source

    def reduce_scatter(self, array: Array, op: Reduction = "sum") -> Array:
        checked_op("reduce_scatter", op, array)
        value = view(array)
        bounds = pieces(value.shape[0], self.size)
        entered = self._all(self._enter("reduce_scatter", op, value, value, _REDUCTIONS[op]))
        piece = entered.result[bounds[self.rank] : bounds[self.rank + 1]].copy()
        self.meeting.leave(entered)
        return new(piece, array)

    def all_gather(self, array: Array) -> tuple[Array, ...]:
        """Copies, also of this rank's own array."""
        value = view(array)
        entered = self._all(self._enter("all_gather", "", value, value.copy(), np.stack))
        return self._rows(entered, array)

    def gather(self, array: Array, root: int = 0) -> tuple[Array, ...] | None:
        """Only the root waits."""
        checked_rank("gather", root, self.size)
        value = view(array)
        call = CollectiveCall("gather", root, "", value.dtype, value.shape)
        entered = self.meeting.enter(self.rank, call, value.copy(), np.stack, value)
        if self.rank == root:
            return self._rows(self._all(entered), array)
        self.meeting.leave(entered)
        return None

    def scatter(self, arrays: Sequence[Array] | None, like: Array, root: int = 0) -> Array:
        """Arrays may differ in shape from rank to rank; simulated, it takes as long as with all of the largest size."""
        checked_rank("scatter", root, self.size)
        own = self.rank == root
        value = [view(each).copy() for each in checked_count("scatter", arrays, self.size)] if own else None
        call = CollectiveCall("scatter", root)
        entered = self._all(self.meeting.enter(self.rank, call, value, like=view(like)))
        result = _fitted(entered.values[root][self.rank], like, call, root)
        self.meeting.leave(entered)
        return result

    def all_to_all(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        """Copies, also of what stays here."""
        given = [view(each).copy() for each in checked_count("all_to_all", arrays, self.size)]
        largest = max(given, key=lambda each: each.nbytes)
        entered = self._all(self._enter("all_to_all", "", largest, given, list))
        result = tuple(
            _fitted(brought[self.rank].copy(), arrays[self.rank], entered.call, rank, keep=True)
            for rank, brought in enumerate(entered.result)
        )
        self.meeting.leave(entered)
        return result

    def exchange(self, array: Array, neighbours: Sequence[int]) -> tuple[Array, ...]:
        """All messages are sent before the first is waited for."""
        for each in neighbours:
            checked_rank("exchange", each, self.size)
        sending = [self.meeting.send(self.rank, array, each, _EXCHANGE) for each in neighbours]
        receipts = [self.meeting.want(self.rank, each, _EXCHANGE) for each in neighbours]
        coming = [self._receiving(array, each, keep=True) for each in receipts]
        results = tuple(each.wait() for each in coming)
        for handle in sending:
            handle.wait()
        return results

    def barrier(self) -> None:
        self.meeting.leave(self._all(self.meeting.enter(self.rank, CollectiveCall("barrier"), None)))

    def close(self) -> None:
        """Whoever waits for this rank afterwards gets an error."""
        self.meeting.part(self.rank)

    def abort(self) -> None:
        """The others get an error at once."""
        self.meeting.fail(f"rank {self.rank} aborted")

    def _enter(self, operation: str, op: str, like: HostArray, value: object, combine: Combine) -> Collective:
        call = CollectiveCall(operation, None, op, like.dtype, like.shape)
        return self.meeting.enter(self.rank, call, value, combine, like)

    def _collecting(self, entered: Collective, take: Callable[[], Array]) -> Handle:
        """A collective under way; ``take`` makes the result of it."""

        def wait() -> Array:
            self._all(entered)
            result = take()
            self.meeting.leave(entered)
            return result

        return FunctionHandle(wait, lambda: self.meeting.ended(entered))

    def _receiving(self, like: Array, receipt: Receipt, *, keep: bool = False) -> Handle:
        """A message that is to come; into ``like``, unless that is to be kept."""

        def wait() -> Array:
            message = self.meeting.receive(self.rank, receipt)
            return _fitted(message.array, like, receipt, message.source, keep=keep)

        return FunctionHandle(wait, lambda: self.meeting.arrived(receipt))

    def _all(self, entered: Collective) -> Collective:
        self.meeting.finish(self.rank, entered)
        return entered

    def _rows(self, entered: Collective, like: Array) -> tuple[Array, ...]:
        """What was stacked, as native arrays of this rank's own."""
        stacked = entered.result.copy()
        self.meeting.leave(entered)
        return tuple(new(stacked[rank, ...], like) for rank in range(self.size))


def _sum(values: list[HostArray]) -> HostArray:
    total = values[0].copy()
    with np.errstate(over="ignore", invalid="ignore"):
        for each in values[1:]:
            np.add(total, each, out=total)
    return total


def _mean(values: list[HostArray]) -> HostArray:
    total = _sum(values)
    np.divide(total, total.dtype.type(len(values)), out=total)
    return total


_REDUCTIONS: dict[str, Combine] = {"sum": _sum, "mean": _mean}


def _fitted(message: HostArray, like: Array, asked: object, source: int, *, keep: bool = False) -> Array:
    """The message in ``like``, or with ``keep`` in an array of its own; an error where it is of another kind."""
    expected = view(like)
    if message.shape != expected.shape or message.dtype != expected.dtype:
        sent, wanted = (f"{each.dtype.name} {each.shape}" for each in (message, expected))
        raise CommunicationError(
            str(asked),
            f"rank {source} sent {sent} where {wanted} was expected",
            "send and receive arrays of one shape and dtype",
        )
    return new(message, like) if keep or not expected.flags.writeable else put(message, like)
