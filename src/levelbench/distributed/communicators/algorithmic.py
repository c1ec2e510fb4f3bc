"""A communicator whose collectives are our own algorithms, over nothing but the messages of another one."""

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
from levelbench.distributed.communicators.collectives import Channel, Steps, TrafficTally, closed, opened
from levelbench.distributed.packing import pieces
from levelbench.distributed.scheme import Traffic
from levelbench.distributed.traffic import Algorithms
from levelbench.errors import UsageError
from levelbench.networks.executor import Array

FIRST_TAG = 1 << 14
"""Tags from here on are the algorithms' own: 2^14 of them, which MPI's smallest bound of tags (32767) allows."""

_EXCHANGE = 2 * FIRST_TAG - 1
"""Not all ranks need take part in an exchange, so it has no number: those between two ranks are in order anyway."""


@final
class _Running:
    """An algorithm at work on this rank."""

    def __init__(self, steps: Steps[Any], answer: Callable[[Any], Array]) -> None:
        self._steps, self._answer = steps, answer
        self._pending: Handle | None = None
        self.over = False
        self.result: Array
        self._go_on(None)

    def _go_on(self, arrived: Array) -> None:
        try:
            # A sum that overflows is the caller's to find out about, as with any other library.
            with np.errstate(over="ignore", invalid="ignore"):
                self._pending = self._steps.send(arrived)
        except StopIteration as end:
            self.over, self.result = True, self._answer(end.value)

    def drive(self) -> None:
        """As far as it goes without waiting."""
        while not self.over and self._pending is not None and self._pending.done():
            self._go_on(self._pending.wait())

    def finish(self) -> None:
        while not self.over and self._pending is not None:
            self._go_on(self._pending.wait())


@final
class Algorithmic(Communicator):
    """``inner`` with other collectives. One thread at a time may use it.

    What is counted is what is sent: see :attr:`sent`. Arrays are worked on in place, in the host's memory through NumPy
    and elsewhere through their own framework. Collectives go on while this communicator is called, in the order in
    which they were started, and a rank that waits for a message drives them on.
    """

    def __init__(self, inner: Communicator, algorithms: Algorithms | str = "ring") -> None:
        """``algorithms`` by a name are the usual ones with that of all-reduce."""
        self.inner = inner
        self.algorithms = Algorithms(algorithms) if isinstance(algorithms, str) else algorithms
        self.name, self.rank, self.size = inner.name, inner.rank, inner.size
        self._tallies: dict[str, TrafficTally] = {}
        self._started = 0
        self._under_way: deque[_Running] = deque()

    @property
    def sent(self) -> Traffic:
        """What this rank sent to others up to now, counted message by message."""
        return sum(self.sent_by_operation().values(), Traffic(0, 0))

    def sent_by_operation(self) -> dict[str, Traffic]:
        """The same by the operation that it was sent for."""
        return {name: Traffic(each.sent_bytes, each.messages) for name, each in self._tallies.items()}

    def start_all_reduce(self, array: Array, op: Reduction = "sum") -> Handle:
        checked_op("all_reduce", op, array)
        flat = opened(array, change=True)
        return self._start("all_reduce", lambda _: closed(flat, array, change=True), flat, self._divisor(op))

    def start_broadcast(self, array: Array, root: int = 0) -> Handle:
        checked_rank("broadcast", root, self.size)
        own = self.rank == root
        flat = opened(array, change=not own)
        return self._start("broadcast", lambda _: array if own else closed(flat, array, change=True), flat, root)

    def start_send(self, array: Array, to: int, tag: int = 0) -> Handle:
        """A message of ``inner``; tags are below ``FIRST_TAG``."""
        checked_tag("send", tag, FIRST_TAG)
        if to != self.rank:
            self._tally("send").note(array.nbytes)
        return self._message(self.inner.start_send(array, to, tag))

    def start_receive(self, like: Array, source: int, tag: int = 0) -> Handle:
        """A message of ``inner``; tags are below ``FIRST_TAG``."""
        checked_tag("receive", tag, FIRST_TAG)
        return self._message(self.inner.start_receive(like, source, tag))

    def receive_any(self, like: Array, tag: int = 0) -> tuple[Array, int]:
        """Of ``inner``; collectives that are under way end first."""
        checked_tag("receive_any", tag, FIRST_TAG)
        while self._under_way:
            self._finish_to(self._under_way[-1])
        return self.inner.receive_any(like, tag)

    def reduce_scatter(self, array: Array, op: Reduction = "sum") -> Array:
        """By ``algorithms.reduce_scatter``; ``array`` is left as it was."""
        checked_op("reduce_scatter", op, array)
        flat = _own(opened(array))
        start, stop = list(pairwise(pieces(len(flat), self.size)))[self.rank]
        handle = self._start(
            "reduce_scatter",
            lambda piece: closed(_own(piece), array, shape=(stop - start,)),
            flat,
            self._divisor(op),
        )
        return handle.wait()

    def all_gather(self, array: Array) -> tuple[Array, ...]:
        parts = self._start("all_gather", lambda parts: _each(parts, array), opened(array)).wait()
        return cast("tuple[Array, ...]", parts)

    def gather(self, array: Array, root: int = 0) -> tuple[Array, ...] | None:
        checked_rank("gather", root, self.size)
        parts = self._start("gather", lambda parts: _each(parts, array), opened(array), root).wait()
        return cast("tuple[Array, ...]", parts) if self.rank == root else None

    def scatter(self, arrays: Sequence[Array] | None, like: Array, root: int = 0) -> Array:
        """By ``algorithms.scatter``; arrays of different sizes only by ``direct``."""
        checked_rank("scatter", root, self.size)
        flats = [opened(each) for each in checked_count("scatter", arrays, self.size)] if self.rank == root else []
        if self.algorithms.scatter == "binomial" and len({len(each) for each in flats}) > 1:
            raise UsageError(
                "a binomial scatter of different sizes", "only the root knows them", "scatter with algorithm 'direct'"
            )
        own = opened(like, change=True)
        return self._start("scatter", lambda _: closed(own, like, change=True), flats, own, root).wait()

    def all_to_all(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        given = checked_count("all_to_all", arrays, self.size)
        own, flats = given[self.rank], [opened(each) for each in given]
        return cast("tuple[Array, ...]", self._start("all_to_all", lambda parts: _each(parts, own), flats).wait())

    def exchange(self, array: Array, neighbours: Sequence[int]) -> tuple[Array, ...]:
        """All at the same time, in order with earlier ones between the same two ranks."""
        for each in neighbours:
            checked_rank("exchange", each, self.size)
        flat = opened(array)
        link = Channel(self.inner, _EXCHANGE, self._tally("exchange"))
        running = _Running(collectives.exchange(link, flat, neighbours), lambda parts: _each(parts, array))
        while self._under_way and not running.over:
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

    def _divisor(self, op: Reduction) -> int | None:
        return self.size if op == "mean" else None

    def _tally(self, operation: str) -> TrafficTally:
        return self._tallies.setdefault(operation, TrafficTally())

    def _start(self, operation: str, answer: Callable[[Any], Array], *arguments: Any) -> Handle:
        """Set the algorithm that is chosen for it to work on ``arguments``; ``answer`` makes the result of its own."""
        steps = collectives.STEPS[operation][getattr(self.algorithms, operation)]
        # Two ranks start the same collectives in the same order, so a number is enough to keep their messages apart.
        link = Channel(self.inner, FIRST_TAG + self._started % (FIRST_TAG - 1), self._tally(operation))
        self._started += 1
        running = _Running(steps(link, *arguments), answer)
        if running.over and not self._under_way:
            return Done(running.result)
        self._under_way.append(running)
        return FunctionHandle(lambda: self._finished(running), lambda: self._is_over(running))

    def _finished(self, running: _Running) -> Array:
        """Those before it go on first, as they do on every rank."""
        self._finish_to(running)
        return running.result

    def _is_over(self, running: _Running) -> bool:
        self._progress()
        return running.over

    def _message(self, inner: Handle) -> Handle:
        """A message of a user, during whose way collectives go on."""

        def wait() -> Array:
            while self._under_way and not inner.done():
                self._progress()
                sleep(0)
            return inner.wait()

        def done() -> bool:
            self._progress()
            return inner.done()

        return FunctionHandle(wait, done)

    def _progress(self) -> None:
        """Drive all collectives on as far as they go without waiting."""
        for running in self._under_way:
            running.drive()
        self._drop_over()

    def _finish_to(self, last: _Running) -> None:
        """Wait for this collective and those before it."""
        while not last.over:
            self._under_way[0].finish()
            self._drop_over()

    def _drop_over(self) -> None:
        while self._under_way and self._under_way[0].over:
            self._under_way.popleft()


def _each(parts: Sequence[Array], like: Array) -> tuple[Array, ...]:
    return tuple(closed(_own(part), like) for part in parts)


def _own(part: Array) -> Array:
    """A view of what somebody else holds as an array of its own."""
    if isinstance(part, np.ndarray):
        return part if part.base is None else part.copy()
    return part + 0
