"""Ranks as threads of one process: for tests, for the validator of schemes, and to try a scheme out without launching.

The one idea: everything that a library may do differently from run to run is pinned down. Sums are taken in the order
of ranks, what is sent is copied when it is sent, and calls that do not belong together are an error and not a hang.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import sleep
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
from levelbench.distributed.communicators.meeting import Collective, Meeting, described
from levelbench.distributed.communicators.wrapping import DelayedCommunicator, Delays
from levelbench.distributed.packing import pieces
from levelbench.errors import CommunicationError
from levelbench.networks.executor import Array

__all__ = ["ThreadCommunicator", "rank_outcomes", "run_ranks"]

T = TypeVar("T")

_EXCHANGE = -1
"""The tag of :meth:`exchange`, which nobody else can use."""


@final
class ThreadCommunicator(Communicator):
    """Rank ``rank`` of those who meet at ``meeting``. Any thread of this process may use it."""

    name = "threads"

    def __init__(self, meeting: Meeting, rank: int) -> None:
        checked_rank("a communicator", rank, meeting.size)
        self._meeting, self.rank, self.size = meeting, rank, meeting.size

    def start_all_reduce(self, array: Array, op: Reduction = "sum") -> Handle:
        """In the order of ranks: ((x0 + x1) + x2) + ..., once, by the last one to come."""
        checked_op("all_reduce", op, array)
        words = f"all_reduce({op}, {described(view(array))})"
        entered = self._meeting.enter(self.rank, words, view(array), _REDUCTIONS[op])
        return _Pending(self._meeting, self.rank, entered, None, lambda: put(entered.result, array))

    def start_broadcast(self, array: Array, root: int = 0) -> Handle:
        """The root waits for nobody."""
        checked_rank("broadcast", root, self.size)
        value = view(array)
        words, own = f"broadcast(root={root}, {described(value)})", self.rank == root
        entered = self._meeting.enter(self.rank, words, value.copy() if own else None, awaited=own)
        if own:
            self._meeting.leave(entered)
            return Done(array)
        return _Pending(self._meeting, self.rank, entered, root, lambda: put(entered.values[root], array))

    def start_send(self, array: Array, to: int, tag: int = 0) -> Handle:
        """Copied at once: it never waits."""
        checked_rank("send", to, self.size)
        checked_tag("send", tag)
        self._meeting.send(self.rank, to, tag, view(array).copy())
        return Done(array)

    def start_receive(self, like: Array, source: int, tag: int = 0) -> Handle:
        """Messages go to receives in the order in which these were started."""
        checked_rank("receive", source, self.size)
        checked_tag("receive", tag)
        return _Arriving(self._meeting, self.rank, like, source, tag)

    def receive_any(self, like: Array, tag: int = 0) -> tuple[Array, int]:
        """What came first."""
        checked_tag("receive_any", tag)
        source, message = self._meeting.receive_any(self.rank, tag)
        return _fitted(message, like, f"receive_any(tag={tag})", source), source

    def reduce_scatter(self, array: Array, op: Reduction = "sum") -> Array:
        """In the order of ranks."""
        checked_op("reduce_scatter", op, array)
        value = view(array)
        bounds = pieces(value.shape[0], self.size)
        entered = self._all(f"reduce_scatter({op}, {described(value)})", value, _REDUCTIONS[op])
        piece = entered.result[bounds[self.rank] : bounds[self.rank + 1]].copy()
        self._meeting.leave(entered)
        return new(piece, array)

    def all_gather(self, array: Array) -> tuple[Array, ...]:
        """Copies, also of this rank's own array."""
        value = view(array)
        entered = self._all(f"all_gather({described(value)})", value.copy())
        result = tuple(new(entered.values[rank].copy(), array) for rank in range(self.size))
        self._meeting.leave(entered)
        return result

    def gather(self, array: Array, root: int = 0) -> tuple[Array, ...] | None:
        """Only the root waits."""
        checked_rank("gather", root, self.size)
        value = view(array)
        entered = self._meeting.enter(self.rank, f"gather(root={root}, {described(value)})", value.copy())
        if self.rank == root:
            self._meeting.finish(self.rank, entered)
        result = tuple(new(entered.values[rank], array) for rank in range(self.size)) if self.rank == root else None
        self._meeting.leave(entered)
        return result

    def scatter(self, arrays: Sequence[Array] | None, like: Array, root: int = 0) -> Array:
        """Arrays may differ in shape from rank to rank."""
        checked_rank("scatter", root, self.size)
        own = self.rank == root
        value = [view(each).copy() for each in checked_count("scatter", arrays, self.size)] if own else None
        entered = self._meeting.enter(self.rank, f"scatter(root={root})", value, awaited=own)
        self._meeting.finish(self.rank, entered, root)
        result = _fitted(entered.values[root][self.rank], like, f"scatter(root={root})", root)
        self._meeting.leave(entered)
        return result

    def all_to_all(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        """Copies, also of what stays here."""
        given = checked_count("all_to_all", arrays, self.size)
        entered = self._all(f"all_to_all({described(view(given[0]))})", [view(each).copy() for each in given])
        result = tuple(
            _fitted(entered.values[rank][self.rank], given[self.rank], "all_to_all", rank, keep=True)
            for rank in range(self.size)
        )
        self._meeting.leave(entered)
        return result

    def exchange(self, array: Array, neighbours: Sequence[int]) -> tuple[Array, ...]:
        """All messages are sent before the first is waited for."""
        for each in neighbours:
            checked_rank("exchange", each, self.size)
            self._meeting.send(self.rank, each, _EXCHANGE, view(array).copy())
        receipts = [self._meeting.want(self.rank, each, _EXCHANGE) for each in neighbours]
        return tuple(
            _fitted(self._meeting.receive(self.rank, each, words), array, words, each.source, keep=True)
            for each in receipts
            for words in [f"exchange with {each.source}"]
        )

    def barrier(self) -> None:
        """Wait for all."""
        self._meeting.leave(self._all("barrier()", None))

    def close(self) -> None:
        """Whoever waits for this rank afterwards gets an error."""
        self._meeting.part(self.rank)

    def abort(self) -> None:
        """The others get an error at once."""
        self._meeting.fail(f"rank {self.rank} aborted")

    def _all(self, words: str, value: Any, combine: Callable[[list[Any]], Any] | None = None) -> Collective:
        entered = self._meeting.enter(self.rank, words, value, combine)
        self._meeting.finish(self.rank, entered)
        return entered


@final
class _Pending(Handle):
    """A collective under way, which waits for all, or for rank ``needs``."""

    def __init__(
        self, meeting: Meeting, rank: int, entered: Collective, needs: int | None, take: Callable[[], Array]
    ) -> None:
        self._meeting, self._rank, self._entered, self._needs, self._take = meeting, rank, entered, needs, take

    def wait(self) -> Array:
        self._meeting.finish(self._rank, self._entered, self._needs)
        result = self._take()
        self._meeting.leave(self._entered)
        return result

    def done(self) -> bool:
        return _let_others_run(self._meeting.came(self._entered, self._needs) or self._meeting.failed)


@final
class _Arriving(Handle):
    """A message that is waited for."""

    def __init__(self, meeting: Meeting, rank: int, like: Array, source: int, tag: int) -> None:
        self._meeting, self._rank, self._like = meeting, rank, like
        self._receipt = meeting.want(rank, source, tag)

    def wait(self) -> Array:
        words = f"receive(source={self._receipt.source}, tag={self._receipt.tag})"
        message = self._meeting.receive(self._rank, self._receipt, words)
        return _fitted(message, self._like, words, self._receipt.source)

    def done(self) -> bool:
        return _let_others_run(self._receipt.message is not None or self._meeting.failed)


def _let_others_run(over: bool) -> bool:
    # Who asks in a loop would otherwise keep the interpreter to itself for milliseconds.
    if not over:
        sleep(0)
    return over


def _sum(values: list[NDArray[Any]]) -> NDArray[Any]:
    total = values[0].copy()
    with np.errstate(over="ignore", invalid="ignore"):
        for each in values[1:]:
            np.add(total, each, out=total)
    return total


def _mean(values: list[NDArray[Any]]) -> NDArray[Any]:
    total = _sum(values)
    np.divide(total, total.dtype.type(len(values)), out=total)
    return total


_REDUCTIONS = {"sum": _sum, "mean": _mean}


def _fitted(message: NDArray[Any], like: Array, words: str, source: int, *, keep: bool = False) -> Array:
    """The message in ``like``, or with ``keep`` in an array of its own; an error where it is of another kind."""
    expected = view(like)
    if message.shape != expected.shape or message.dtype != expected.dtype:
        raise CommunicationError(
            words,
            f"rank {source} sent {described(message)} where {described(expected)} was expected",
            "send and receive arrays of one shape and dtype",
        )
    return new(message, like) if keep or not expected.flags.writeable else put(message, like)


def run_ranks(
    size: int, work: Callable[[Communicator], T], *, timeout_s: float = 30.0, delays: Delays | None = None
) -> list[T]:
    """``work`` on each of ``size`` ranks, each a thread: the results by rank.

    The first exception of a rank ends all and is raised; the others get ``CommunicationError``. So does everybody in a
    deadlock: at once where no other thread was started meanwhile that could end it, else after ``timeout_s`` seconds,
    which no rank may wait in one go.
    """
    results, errors = _run(size, work, timeout_s, delays)
    if errors:
        raise next(iter(errors.values()))
    return [results[rank] for rank in range(size)]


def rank_outcomes(
    size: int, work: Callable[[Communicator], T], *, timeout_s: float = 30.0, delays: Delays | None = None
) -> list[T | BaseException]:
    """As :func:`run_ranks`, but with each rank's exception in the place of its result."""
    results, errors = _run(size, work, timeout_s, delays)
    return [errors[rank] if rank in errors else results[rank] for rank in range(size)]


def _run(
    size: int, work: Callable[[Communicator], T], timeout_s: float, delays: Delays | None
) -> tuple[dict[int, T], dict[int, BaseException]]:
    """Results by rank, and exceptions by rank in the order in which they were raised."""
    meeting = Meeting(size, timeout_s)
    results: dict[int, T] = {}
    errors: dict[int, BaseException] = {}
    over = threading.Semaphore(0)

    def play(rank: int) -> None:
        communicator: Communicator = ThreadCommunicator(meeting, rank)
        try:
            results[rank] = work(communicator if delays is None else DelayedCommunicator(communicator, delays))
        except BaseException as error:  # noqa: BLE001  # work is anybody's code; what it raises is raised by the caller
            errors[rank] = error
            meeting.fail(f"rank {rank} failed with {type(error).__name__}: {error}")
        else:
            meeting.part(rank)
        over.release()

    threads = [threading.Thread(target=play, args=(rank,), name=f"rank-{rank}", daemon=True) for rank in range(size)]
    meeting.expect(threads)
    try:
        for thread in threads:
            thread.start()
        # Who computes on although another rank has failed is not waited for longer than a message would be.
        while len(results) + len(errors) < size and over.acquire(timeout=timeout_s if errors else None):
            pass
        ended = results.keys() | errors.keys()
        for rank in set(range(size)) - ended:
            errors[rank] = CommunicationError(
                f"the end of rank {rank}", "it went on after another had failed", "call the communicator in its loop"
            )
    finally:
        meeting.fail("the ranks' run is over")
    return results, errors
