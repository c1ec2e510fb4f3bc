"""One communicator for ranks that share a process, as threads or in a simulation.

Everything that may vary from run to run in a library is fixed here. Sums are taken in rank order, sent arrays are
copied at the call, and mismatched calls raise an error instead of hanging. How a rank waits, and what that costs, is
up to the meeting: real time between threads (:mod:`.threads`), virtual time in a simulated cluster
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
    REDUCTIONS,
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
"""As a source: whichever rank's message comes first."""
_EXCHANGE = -1
"""The tag of :meth:`LocalCommunicator.exchange`, which users cannot choose."""

Combine = Callable[[list[Any]], Any]


class CollectiveCall(NamedTuple):
    """A collective call, which must be equal on all ranks; the arrays of a scatter may have any shape."""

    operation: str
    root: int | None = None
    op: str = ""
    dtype: np.dtype[Any] | None = None
    shape: tuple[int, ...] = ()

    @property
    def source(self) -> int | None:
        """The one rank that the others wait for; ``None`` if they wait for all."""
        return self.root if self.operation in ("broadcast", "scatter") else None

    def __str__(self) -> str:
        root = "" if self.root is None else f"root={self.root}"
        array = "" if self.dtype is None else f"{self.dtype.name} {self.shape}"
        return f"{self.operation}({', '.join(filter(None, (self.op, root, array)))})"


@final
@dataclass(eq=False, slots=True)
class Collective:
    """One collective in progress: the ranks' values, and the result once complete. Times are for simulations."""

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
        """Whether a rank need not wait any longer."""
        return self.complete if self.call.source is None else self.call.source in self.values


@final
@dataclass(eq=False, slots=True)
class Parcel:
    """A copy of the sender's array. ``nbytes`` is the size that it stands for in a simulation."""

    array: HostArray
    source: int
    nbytes: float = 0.0
    taken: bool = False


@final
@dataclass(eq=False, slots=True)
class Receipt:
    """A posted receive: waits for a message from ``source``, or from ``ANY``."""

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
    """A rank's messages and posted receives with one tag; messages of one source stay in order."""

    arrivals: deque[tuple[Parcel, float]] = field(default_factory=deque)
    by_source: dict[int, deque[tuple[Parcel, float]]] = field(default_factory=dict)
    receipts: list[Receipt] = field(default_factory=list)

    def deliver(self, message: Parcel, time_s: float = 0.0) -> Receipt | None:
        """Give a message to the first matching receive, which is returned, or else keep it."""
        for at, receipt in enumerate(self.receipts):
            if receipt.source in (ANY, message.source):
                del self.receipts[at]
                receipt.message, receipt.arrived_s = message, time_s
                return receipt
        entry = (message, time_s)
        self.arrivals.append(entry)
        self.by_source.setdefault(message.source, deque()).append(entry)
        return None

    def post(self, receipt: Receipt) -> None:
        """Complete a receive with the first matching message, or queue it."""
        found = _first(self.arrivals if receipt.source == ANY else self.by_source.get(receipt.source))
        if found is None:
            self.receipts.append(receipt)
            return
        receipt.message, receipt.arrived_s = found
        found[0].taken = True
        # Otherwise arrays could stay in the other queue for ever.
        _first(self.arrivals)
        _first(self.by_source[found[0].source])


def _first(entries: deque[tuple[Parcel, float]] | None) -> tuple[Parcel, float] | None:
    """The first entry that is not taken; drops those before it."""
    while entries and entries[0][0].taken:
        entries.popleft()
    return entries[0] if entries else None


class Meeting(ABC):
    """What the ranks of one process share: messages, collectives, and a way to wait."""

    name: str
    size: int

    def __init__(self) -> None:
        self.boxes: dict[tuple[int, int], Mailbox] = {}
        """By rank and tag."""
        self.gone: set[int] = set()
        """Ranks that closed their communicator."""

    def box(self, rank: int, tag: int) -> Mailbox:
        """The mailbox of a rank and tag."""
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
    def post_receive(self, rank: int, source: int, tag: int) -> Receipt:
        """Post a receive for the next message from ``source`` (or ``ANY``)."""

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
        """Enter this rank's next collective; an error if another rank makes a different call.

        ``combine`` computes the result from the values of all ranks, in rank order; the last rank to enter calls it.
        ``like`` is the array whose size determines the simulated time.
        """

    @abstractmethod
    def finish(self, rank: int, entered: Collective) -> None:
        """Wait until the collective is ready."""

    @abstractmethod
    def completed(self, entered: Collective) -> bool:
        """Whether :meth:`finish` would return at once."""

    @abstractmethod
    def leave(self, entered: Collective) -> None:
        """Note that a rank no longer needs a collective."""

    @abstractmethod
    def depart(self, rank: int) -> None:
        """Close a rank; ranks that wait for it get an error."""

    @abstractmethod
    def fail(self, why: str) -> None:
        """End everything: every rank that waits or calls gets an error with this reason."""


@final
class LocalCommunicator(Communicator):
    """Rank ``rank`` of a meeting."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        checked_rank("a communicator", rank, meeting.size)
        self.meeting, self.rank, self.size, self.name = meeting, rank, meeting.size, meeting.name

    def start_all_reduce(self, array: Array, op: Reduction = "sum") -> Handle:
        """In rank order, ((x0 + x1) + x2) + ..., computed once by the last rank to enter."""
        checked_op("all_reduce", op, array)
        value = view(array)
        entered = self._enter("all_reduce", op, value, value, _reduced(op))
        return self._collective_handle(entered, lambda: put(entered.result, array))

    def start_broadcast(self, array: Array, root: int = 0) -> Handle:
        checked_rank("broadcast", root, self.size)
        value, own = view(array), self.rank == root
        call = CollectiveCall("broadcast", root, "", value.dtype, value.shape)
        entered = self.meeting.enter(self.rank, call, value.copy() if own else None, like=value)
        return self._collective_handle(entered, lambda: array if own else put(entered.values[root], array))

    def start_send(self, array: Array, to: int, tag: int = 0) -> Handle:
        checked_rank("send", to, self.size)
        checked_tag("send", tag)
        return self.meeting.send(self.rank, array, to, tag)

    def start_receive(self, like: Array, source: int, tag: int = 0) -> Handle:
        """Receives get messages in the order in which they were started."""
        checked_rank("receive", source, self.size)
        checked_tag("receive", tag)
        return self._receive_handle(like, self.meeting.post_receive(self.rank, source, tag))

    def receive_any(self, like: Array, tag: int = 0) -> tuple[Array, int]:
        checked_tag("receive_any", tag)
        receipt = self.meeting.post_receive(self.rank, ANY, tag)
        message = self.meeting.receive(self.rank, receipt)
        return _checked(message.array, like, receipt, message.source), message.source

    def reduce_scatter(self, array: Array, op: Reduction = "sum") -> Array:
        checked_op("reduce_scatter", op, array)
        value = view(array)
        bounds = pieces(value.shape[0], self.size)
        entered = self._finished(self._enter("reduce_scatter", op, value, value, _reduced(op)))
        piece = entered.result[bounds[self.rank] : bounds[self.rank + 1]].copy()
        self.meeting.leave(entered)
        return new(piece, array)

    def all_gather(self, array: Array) -> tuple[Array, ...]:
        """Returns copies, also of this rank's own array."""
        value = view(array)
        entered = self._finished(self._enter("all_gather", "", value, value.copy(), np.stack))
        return self._rows(entered, array)

    def gather(self, array: Array, root: int = 0) -> tuple[Array, ...] | None:
        """Only the root waits."""
        checked_rank("gather", root, self.size)
        value = view(array)
        call = CollectiveCall("gather", root, "", value.dtype, value.shape)
        entered = self.meeting.enter(self.rank, call, value.copy(), np.stack, value)
        if self.rank == root:
            return self._rows(self._finished(entered), array)
        self.meeting.leave(entered)
        return None

    def scatter(self, arrays: Sequence[Array] | None, like: Array, root: int = 0) -> Array:
        """Arrays may differ in shape by rank; a simulation takes as long as if all had the largest size."""
        checked_rank("scatter", root, self.size)
        own = self.rank == root
        value = [view(each).copy() for each in checked_count("scatter", arrays, self.size)] if own else None
        call = CollectiveCall("scatter", root)
        entered = self._finished(self.meeting.enter(self.rank, call, value, like=view(like)))
        result = _checked(entered.values[root][self.rank], like, call, root)
        self.meeting.leave(entered)
        return result

    def all_to_all(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        """Returns copies, also of this rank's own part."""
        given = [view(each).copy() for each in checked_count("all_to_all", arrays, self.size)]
        largest = max(given, key=lambda each: each.nbytes)
        entered = self._finished(self._enter("all_to_all", "", largest, given, list))
        result = tuple(
            _checked(brought[self.rank].copy(), arrays[self.rank], entered.call, rank, keep=True)
            for rank, brought in enumerate(entered.result)
        )
        self.meeting.leave(entered)
        return result

    def exchange(self, array: Array, neighbours: Sequence[int]) -> tuple[Array, ...]:
        """Sends all messages before it waits for the first."""
        for each in neighbours:
            checked_rank("exchange", each, self.size)
        sending = [self.meeting.send(self.rank, array, each, _EXCHANGE) for each in neighbours]
        receipts = [self.meeting.post_receive(self.rank, each, _EXCHANGE) for each in neighbours]
        coming = [self._receive_handle(array, each, keep=True) for each in receipts]
        results = tuple(each.wait() for each in coming)
        for handle in sending:
            handle.wait()
        return results

    def barrier(self) -> None:
        self.meeting.leave(self._finished(self.meeting.enter(self.rank, CollectiveCall("barrier"), None)))

    def close(self) -> None:
        """Ranks that wait for this one afterwards get an error."""
        self.meeting.depart(self.rank)

    def abort(self) -> None:
        """The other ranks get an error at once."""
        self.meeting.fail(f"rank {self.rank} aborted")

    def _enter(self, operation: str, op: str, like: HostArray, value: object, combine: Combine) -> Collective:
        call = CollectiveCall(operation, None, op, like.dtype, like.shape)
        return self.meeting.enter(self.rank, call, value, combine, like)

    def _collective_handle(self, entered: Collective, take: Callable[[], Array]) -> Handle:
        """The handle of a collective; ``take`` makes this rank's result."""

        def wait() -> Array:
            self._finished(entered)
            result = take()
            self.meeting.leave(entered)
            return result

        return FunctionHandle(wait, lambda: self.meeting.completed(entered))

    def _receive_handle(self, like: Array, receipt: Receipt, *, keep: bool = False) -> Handle:
        """The handle of a receive into ``like``, or with ``keep`` into a new array."""

        def wait() -> Array:
            message = self.meeting.receive(self.rank, receipt)
            return _checked(message.array, like, receipt, message.source, keep=keep)

        return FunctionHandle(wait, lambda: self.meeting.arrived(receipt))

    def _finished(self, entered: Collective) -> Collective:
        self.meeting.finish(self.rank, entered)
        return entered

    def _rows(self, entered: Collective, like: Array) -> tuple[Array, ...]:
        """The stacked result as new native arrays."""
        stacked = entered.result.copy()
        self.meeting.leave(entered)
        return tuple(new(stacked[rank, ...], like) for rank in range(self.size))


def _reduced(op: Reduction) -> Combine:
    """What reduces the arrays of all ranks, in rank order."""
    join = getattr(np, REDUCTIONS[op])

    def combine(values: list[HostArray]) -> HostArray:
        total = values[0].copy()
        with np.errstate(over="ignore", invalid="ignore"):
            for each in values[1:]:
                join(total, each, out=total)
        if op == "mean":
            np.divide(total, total.dtype.type(len(values)), out=total)
        return total

    return combine


def _checked(message: HostArray, like: Array, asked: object, source: int, *, keep: bool = False) -> Array:
    """The message in ``like``, or with ``keep`` in a new array; an error if its shape or dtype differs."""
    expected = view(like)
    if message.shape != expected.shape or message.dtype != expected.dtype:
        sent, wanted = (f"{each.dtype.name} {each.shape}" for each in (message, expected))
        raise CommunicationError(
            str(asked), f"rank {source} sent {sent} where {wanted} was expected", "use the same shape and dtype"
        )
    return new(message, like) if keep or not expected.flags.writeable else put(message, like)
