"""A communicator between simulated ranks: real numbers, virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from levelbench.distributed.buffers import new, put, view
from levelbench.distributed.communicator import (
    Communicator,
    Done,
    Handle,
    Reduction,
    checked_count,
    checked_op,
    checked_rank,
    checked_tag,
)
from levelbench.distributed.packing import pieces
from levelbench.distributed.simulation.cluster import Cluster, Collecting, Receiving, Sending, fitted, reduced
from levelbench.distributed.simulation.meeting import Call, Meeting
from levelbench.distributed.simulation.networks import Network
from levelbench.distributed.simulation.transport import ANY, Message
from levelbench.errors import CommunicationError
from levelbench.networks.executor import Array

__all__ = ["SimulatedCommunicator", "run_simulated"]

T = TypeVar("T")

_EXCHANGE = -1
"""The tag of :meth:`SimulatedCommunicator.exchange`, which nobody else can use."""


@final
class SimulatedCommunicator(Communicator):
    """Rank ``rank`` of a :class:`Cluster`."""

    name = "simulated"

    def __init__(self, cluster: Cluster, rank: int) -> None:
        self.cluster, self.rank, self.size = cluster, rank, cluster.size
        self._open = True

    def start_all_reduce(self, array: Array, op: Reduction = "sum") -> Handle:
        """In the order of ranks."""
        checked_op("all_reduce", op, array)
        given = view(array)
        return self._collect(
            "all_reduce", op, given, given, lambda all_: reduced(all_, op), lambda result: put(result, array)
        )

    def start_broadcast(self, array: Array, root: int = 0) -> Handle:
        """The root, too, goes on when all have it."""
        checked_rank("broadcast", root, self.size)
        self.cluster.require_played(root)
        like = view(array)
        given = like.copy() if self.rank == root else None
        return self._collect(
            "broadcast", f"root={root}", like, given, lambda all_: all_[root], lambda result: put(result, array)
        )

    def start_send(self, array: Array, to: int, tag: int = 0) -> Handle:
        """The array is copied now; the handle is done when its last byte has left this rank's link."""
        checked_rank("send", to, self.size)
        checked_tag("send", tag)
        return self._send(array, to, tag)

    def start_receive(self, like: Array, source: int, tag: int = 0) -> Handle:
        """Messages go to receives in the order in which these were started."""
        checked_rank("receive", source, self.size)
        checked_tag("receive", tag)
        return self._receive(like, source, tag, keep=False)

    def receive_any(self, like: Array, tag: int = 0) -> tuple[Array, int]:
        """What arrives first in virtual time."""
        checked_tag("receive_any", tag)
        self._require_message()
        self.cluster.scheduler.settle()
        receipt = self.cluster.transport.receive(ANY, tag)
        message = self.cluster.transport.wait(receipt, lambda: f"receive_any(tag={tag})")
        return fitted(message.array, like, message.source), message.source

    def reduce_scatter(self, array: Array, op: Reduction = "sum") -> Array:
        """In the order of ranks."""
        checked_op("reduce_scatter", op, array)
        given = view(array)
        bounds = pieces(given.size, self.size)
        start, stop = bounds[self.rank], bounds[self.rank + 1]
        return self._collect(
            "reduce_scatter",
            op,
            given,
            given,
            lambda all_: reduced(all_, op),
            lambda result: new(result[start:stop].copy(), array),
        ).wait()

    def all_gather(self, array: Array) -> tuple[Array, ...]:
        """Copies, also of this rank's own array."""
        given = view(array)
        meeting = self._come("all_gather", "", given, given.copy(), np.stack)
        return tuple(new(each, array) for each in self.cluster.meetings.wait(meeting).copy())

    def gather(self, array: Array, root: int = 0) -> tuple[Array, ...] | None:
        """Only the root waits."""
        checked_rank("gather", root, self.size)
        self.cluster.require_played(root)
        given = view(array)
        meeting = self._come("gather", f"root={root}", given, given.copy(), np.stack)
        if self.rank != root:
            return None
        return tuple(new(each, array) for each in self.cluster.meetings.wait(meeting).copy())

    def scatter(self, arrays: Sequence[Array] | None, like: Array, root: int = 0) -> Array:
        """Arrays may differ in shape from rank to rank; the time is that of equal ones of the largest size."""
        checked_rank("scatter", root, self.size)
        self.cluster.require_played(root)
        given = None
        if self.rank == root:
            given = [view(each).copy() for each in checked_count("scatter", arrays, self.size)]
        nbytes = self.cluster.stands_for(view(like))
        call = Call("scatter", f"root={root}", None, ())
        meeting = self.cluster.meetings.come(call, nbytes, given, lambda all_: all_[root])
        return fitted(self.cluster.meetings.wait(meeting)[self.rank], like, root)

    def all_to_all(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        """Copies, also of what stays here; the time is that of equal arrays of the largest size."""
        given = [view(each).copy() for each in checked_count("all_to_all", arrays, self.size)]
        nbytes = max(self.cluster.stands_for(each) for each in given)
        meeting = self.cluster.meetings.come(Call("all_to_all", "", None, ()), nbytes, given, lambda all_: all_)
        brought = self.cluster.meetings.wait(meeting)
        return tuple(new(each[self.rank].copy(), arrays[self.rank]) for each in brought)

    def exchange(self, array: Array, neighbours: Sequence[int]) -> tuple[Array, ...]:
        """All messages are sent before the first is waited for."""
        for each in neighbours:
            checked_rank("exchange", each, self.size)
        sending = [self._send(array, each, _EXCHANGE) for each in neighbours]
        receiving = [self._receive(array, each, _EXCHANGE, keep=True) for each in neighbours]
        results = tuple(each.wait() for each in receiving)
        for handle in sending:
            handle.wait()
        return results

    def barrier(self) -> None:
        """Wait for all."""
        self._require_open()
        meeting = self.cluster.meetings.come(Call("barrier", "", None, ()), 0.0, None, lambda all_: None)
        self.cluster.meetings.wait(meeting)

    def close(self) -> None:
        """Leave; costs no time."""
        self._open = False

    def abort(self) -> None:
        """The others get an error at once."""
        self.cluster.scheduler.fail(f"rank {self.rank} aborted")

    def _send(self, array: Array, to: int, tag: int) -> Handle:
        self._require_message()
        self.cluster.scheduler.settle()
        given = view(array)
        message = Message(given.copy(), self.cluster.stands_for(given), self.rank)
        return Sending(self.cluster, array, self.cluster.transport.send(message, to, tag))

    def _receive(self, like: Array, source: int, tag: int, keep: bool) -> Handle:
        self._require_message()
        return Receiving(self.cluster, self.cluster.transport.receive(source, tag), like, tag, keep)

    def _collect(
        self,
        operation: str,
        detail: str,
        like: NDArray[Any],
        given: Any,
        work: Callable[[list[Any]], Any],
        finish: Callable[[Any], Array],
    ) -> Handle:
        meeting = self._come(operation, detail, like, given, work)
        return Done(finish(meeting.results)) if self.size == 1 else Collecting(self.cluster, meeting, finish)

    def _come(
        self, operation: str, detail: str, like: NDArray[Any], given: Any, work: Callable[[list[Any]], Any]
    ) -> Meeting:
        self._require_open()
        call = Call(operation, detail, like.dtype, like.shape)
        return self.cluster.meetings.come(call, self.cluster.stands_for(like), given, work)

    def _require_message(self) -> None:
        self._require_open()
        self.cluster.require_played()
        self.cluster.trace.spoil(self.rank)

    def _require_open(self) -> None:
        if not self._open:
            raise CommunicationError("a message on simulated ranks", "the communicator was closed", "open another")


def run_simulated(
    size: int,
    work: Callable[[SimulatedCommunicator], T],
    network: Network,
    *,
    scale: float = 1.0,
    algorithm: str = "auto",
) -> list[T]:
    """``work`` on ``size`` simulated ranks; the results by rank.

    The first exception of a rank ends all; a deadlock is a ``CommunicationError`` that says where each rank waits.
    """
    cluster = Cluster(size, network, scale=scale, algorithm=algorithm)
    ranks = [SimulatedCommunicator(cluster, rank) for rank in range(size)]
    return cluster.scheduler.run([partial(work, each) for each in ranks])
