"""A communicator that implements collectives with our own algorithms, using only another communicator's messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from time import sleep
from typing import Any, cast, final

import numpy as np

from levelbench.distributed.communicator import (
    Communicator,
    Done,
    FunctionHandle,
    Handle,
    Reduction,
    checked_count,
    checked_op,
    checked_rank,
    checked_tag,
)
from levelbench.distributed.communicators import collectives
from levelbench.distributed.communicators.collectives import Channel, ReduceOp, Steps, TrafficTally, from_flat, to_flat
from levelbench.distributed.packing import pieces
from levelbench.distributed.scheme import Traffic
from levelbench.distributed.traffic import Algorithms
from levelbench.errors import UsageError
from levelbench.networks.executor import Array

FIRST_TAG = 1 << 14
"""Tags from here on belong to the algorithms: 2^14 of them, which fits MPI's smallest tag bound (32767)."""
_NUMBERS = (1 << 14) - 1
"""How many collectives have a tag of their own; one more is for exchanges."""


@final
class _Running:
    """An algorithm running on this rank."""

    def __init__(self, steps: Steps[Any], answer: Callable[[Any], Array]) -> None:
        self._steps, self._answer = steps, answer
        self._pending: Handle | None = None
        self.over = False
        self.result: Array
        self._advance(None)

    def _advance(self, arrived: Array) -> None:
        try:
            # As with any other library, overflow in a sum is for the caller to detect.
            with np.errstate(over="ignore", invalid="ignore"):
                self._pending = self._steps.send(arrived)
        except StopIteration as end:
            self.over, self.result = True, self._answer(end.value)

    def drive(self) -> None:
        """Advance as far as possible without waiting."""
        while not self.over and self._pending is not None and self._pending.done():
            self._advance(self._pending.wait())

    def finish(self) -> None:
        while not self.over and self._pending is not None:
            self._advance(self._pending.wait())


@final
class Algorithmic(Communicator):
    """``inner`` with its collectives replaced. Only one thread at a time may use it.

    :attr:`sent` counts the bytes actually sent. Arrays are processed in place: in host memory through NumPy, elsewhere
    with their own framework. Collectives progress whenever this communicator is called, in the order in which they were
    started; a rank that waits for a message also drives them.
    """

    def __init__(
        self, inner: Communicator, algorithms: Algorithms | str = "ring", *, first_tag: int = FIRST_TAG
    ) -> None:
        """A name as ``algorithms`` selects that all-reduce and the default for everything else.

        ``first_tag``: the first of the 2^14 tags that belong to the algorithms. To wrap another one, give a larger one
        to ``inner``.
        """
        self.inner, self._first_tag = inner, first_tag
        self.algorithms = Algorithms(algorithms) if isinstance(algorithms, str) else algorithms
        self.name, self.rank, self.size = inner.name, inner.rank, inner.size
        self._tallies: dict[str, TrafficTally] = {}
        self._started = 0
        self._in_progress: deque[_Running] = deque()

    @property
    def sent(self) -> Traffic:
        """What this rank has sent to others so far, counted message by message."""
        return sum(self.sent_by_operation().values(), Traffic(0, 0))

    def sent_by_operation(self) -> dict[str, Traffic]:
        """:attr:`sent`, by operation."""
        return {name: Traffic(each.sent_bytes, each.messages) for name, each in self._tallies.items()}

    def start_all_reduce(self, array: Array, op: Reduction = "sum") -> Handle:
        checked_op("all_reduce", op, array)
        flat = to_flat(array, change=True)
        return self._start("all_reduce", lambda _: from_flat(flat, array, change=True), flat, ReduceOp(op, self.size))

    def start_broadcast(self, array: Array, root: int = 0) -> Handle:
        checked_rank("broadcast", root, self.size)
        own = self.rank == root
        flat = to_flat(array, change=not own)
        return self._start("broadcast", lambda _: array if own else from_flat(flat, array, change=True), flat, root)

    def start_send(self, array: Array, to: int, tag: int = 0) -> Handle:
        """A message of ``inner``; tags are below the algorithms' own."""
        checked_tag("send", tag, self._first_tag)
        if to != self.rank:
            self._tally("send").note(array.nbytes)
        return self._message(self.inner.start_send(array, to, tag))

    def start_receive(self, like: Array, source: int, tag: int = 0) -> Handle:
        """A message of ``inner``; tags are below the algorithms' own."""
        checked_tag("receive", tag, self._first_tag)
        return self._message(self.inner.start_receive(like, source, tag))

    def receive_any(self, like: Array, tag: int = 0) -> tuple[Array, int]:
        """That of ``inner``, after all collectives in progress have finished."""
        checked_tag("receive_any", tag, self._first_tag)
        while self._in_progress:
            self._finish_to(self._in_progress[-1])
        return self.inner.receive_any(like, tag)

    def reduce_scatter(self, array: Array, op: Reduction = "sum") -> Array:
        """By ``algorithms.reduce_scatter``; ``array`` is not changed."""
        checked_op("reduce_scatter", op, array)
        flat = _owned(to_flat(array))
        start, stop = list(pairwise(pieces(len(flat), self.size)))[self.rank]
        handle = self._start(
            "reduce_scatter",
            lambda piece: from_flat(_owned(piece), array, shape=(stop - start,)),
            flat,
            ReduceOp(op, self.size),
        )
        return handle.wait()

    def all_gather(self, array: Array) -> tuple[Array, ...]:
        parts = self._start("all_gather", lambda parts: _each(parts, array), to_flat(array)).wait()
        return cast("tuple[Array, ...]", parts)

    def gather(self, array: Array, root: int = 0) -> tuple[Array, ...] | None:
        checked_rank("gather", root, self.size)
        parts = self._start("gather", lambda parts: _each(parts, array), to_flat(array), root).wait()
        return cast("tuple[Array, ...]", parts) if self.rank == root else None

    def scatter(self, arrays: Sequence[Array] | None, like: Array, root: int = 0) -> Array:
        """By ``algorithms.scatter``; only ``direct`` supports arrays of different sizes."""
        checked_rank("scatter", root, self.size)
        flats = [to_flat(each) for each in checked_count("scatter", arrays, self.size)] if self.rank == root else []
        if self.algorithms.scatter == "binomial" and len({len(each) for each in flats}) > 1:
            raise UsageError(
                "a binomial scatter of different sizes", "only the root knows them", "scatter with algorithm 'direct'"
            )
        own = to_flat(like, change=True)
        return self._start("scatter", lambda _: from_flat(own, like, change=True), flats, own, root).wait()

    def all_to_all(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        given = checked_count("all_to_all", arrays, self.size)
        own, flats = given[self.rank], [to_flat(each) for each in given]
        return cast("tuple[Array, ...]", self._start("all_to_all", lambda parts: _each(parts, own), flats).wait())

    def exchange(self, array: Array, neighbours: Sequence[int]) -> tuple[Array, ...]:
        """All at the same time, ordered with earlier exchanges between the same two ranks."""
        for each in neighbours:
            checked_rank("exchange", each, self.size)
        flat = to_flat(array)
        # Not all ranks take part, so exchanges are not numbered; between two ranks they stay in order.
        link = Channel(self.inner, self._first_tag + _NUMBERS, self._tally("exchange"))
        running = _Running(collectives.exchange(link, flat, neighbours), lambda parts: _each(parts, array))
        while self._in_progress and not running.over:
            running.drive()
            self._progress()
            sleep(0)
        running.finish()
        return cast("tuple[Array, ...]", running.result)

    def barrier(self) -> None:
        self._start("barrier", lambda _: None).wait()

    def close(self) -> None:
        self.inner.close()

    def abort(self) -> None:
        self.inner.abort()

    def _tally(self, operation: str) -> TrafficTally:
        return self._tallies.setdefault(operation, TrafficTally())

    def _start(self, operation: str, answer: Callable[[Any], Array], *arguments: Any) -> Handle:
        """Start the selected algorithm on ``arguments``; ``answer`` converts its result."""
        steps = collectives.STEPS[operation][getattr(self.algorithms, operation)]
        # All ranks start the same collectives in the same order, so a number is enough to separate their messages.
        link = Channel(self.inner, self._first_tag + self._started % _NUMBERS, self._tally(operation))
        self._started += 1
        running = _Running(steps(link, *arguments), answer)
        if running.over and not self._in_progress:
            return Done(running.result)
        self._in_progress.append(running)

        def wait() -> Array:
            # Earlier ones first, as on every rank.
            self._finish_to(running)
            return running.result

        def done() -> bool:
            self._progress()
            return running.over

        return FunctionHandle(wait, done)

    def _message(self, inner: Handle) -> Handle:
        """A user's message; collectives progress while it is in flight."""

        def wait() -> Array:
            while self._in_progress and not inner.done():
                self._progress()
                sleep(0)
            return inner.wait()

        def done() -> bool:
            self._progress()
            return inner.done()

        return FunctionHandle(wait, done)

    def _progress(self) -> None:
        """Advance all collectives as far as possible without waiting."""
        for running in self._in_progress:
            running.drive()
        self._drop_finished()

    def _finish_to(self, last: _Running) -> None:
        """Wait for this collective and all earlier ones."""
        while not last.over:
            self._in_progress[0].finish()
            self._drop_finished()

    def _drop_finished(self) -> None:
        while self._in_progress and self._in_progress[0].over:
            self._in_progress.popleft()


def _each(parts: Sequence[Array], like: Array) -> tuple[Array, ...]:
    return tuple(from_flat(_owned(part), like) for part in parts)


def _owned(part: Array) -> Array:
    """A copy, if the array is a view of another one's memory."""
    if isinstance(part, np.ndarray):
        return part if part.base is None else part.copy()
    return part + 0
