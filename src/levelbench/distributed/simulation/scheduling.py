"""Ranks in virtual time: each a greenlet with a clock of its own, of which the earliest goes on; and what they did.

A rank's clock moves on without anybody else, and only before it touches what others touch do those that are earlier go
first (:meth:`Scheduler.settle`). So everything shared happens in the order of virtual time, in one thread, the same in
every run. Where ranks talk by collectives alone, all do the same things in the same order, whatever their times are:
one rank's list of what it did is enough to replay it with other times for all ranks at once, without their code.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from heapq import heappop, heappush
from importlib import import_module
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import CommunicationError, MissingError

_COLLECT_AFTER = 200_000
"""New objects between two looks for garbage, while ranks run."""


@final
class Fiber:
    """A rank: its clock in seconds, and what it waits for."""

    __slots__ = ("greenlet", "looks", "now_s", "rank", "result", "waits")

    def __init__(self, rank: int, greenlet: Any) -> None:
        self.rank, self.greenlet = rank, greenlet
        self.now_s = 0.0
        self.looks = 0
        """How often it has looked whether something is there since it last computed."""
        self.waits: Callable[[], str] | None = None
        """Says what it waits for; ``None`` while it runs."""
        self.result: Any = None


@final
class Scheduler:
    """Runs fibers and events in the order of their virtual time; at the same time, in the order they were asked for."""

    def __init__(self) -> None:
        self._queue: list[tuple[float, int, Any]] = []
        self._asked = 0
        self._fibers: list[Fiber] = []
        self._error: BaseException | None = None
        self._broken = ""
        self.current: Fiber

    def run(self, work: Sequence[Callable[[], Any]], ranks: Sequence[int] | None = None) -> list[Any]:
        """Run one function a rank from time zero to their ends; the results in their order.

        ``ranks`` are theirs; ``None``: 0, 1, 2, ... The first exception of a rank ends the others, who get a
        ``CommunicationError``, and is raised. If nobody can go on, all get one that says where each waits.
        """
        greenlets = _greenlets()
        self._hub = greenlets.getcurrent()
        self._fibers = [Fiber(rank, None) for rank in ranks or range(len(work))]
        for fiber, each in zip(self._fibers, work, strict=True):
            fiber.greenlet = greenlets.greenlet(lambda fiber=fiber, each=each: self._live(fiber, each))
            self._push(0.0, fiber)
        with _seldom_collected():
            self._turn()
            if any(not fiber.greenlet.dead for fiber in self._fibers):
                self._deadlock()
        if self._error is not None:
            raise self._error
        return [fiber.result for fiber in self._fibers]

    def at(self, time_s: float, event: Callable[[float], None]) -> None:
        """Call ``event`` with its time when it is the earliest."""
        self._push(time_s, event)

    def settle(self) -> None:
        """Let everything go first that is earlier than the current rank."""
        if self._broken:
            raise self._end()
        fiber = self.current
        if self._queue and self._queue[0][0] < fiber.now_s:
            self._push(fiber.now_s, fiber)
            self._leave(fiber)

    def wait(self, waits: Callable[[], str]) -> None:
        """Stop the current rank until :meth:`wake`; raises ``CommunicationError`` where that cannot come."""
        if self._broken:
            raise self._end()
        fiber = self.current
        fiber.waits = waits
        self._leave(fiber)

    def wake(self, fiber: Fiber, time_s: float) -> None:
        """Let a rank that waits go on, at ``time_s`` of its clock."""
        fiber.waits = None
        self._push(time_s, fiber)

    def fail(self, why: str) -> None:
        """End all ranks: whoever waits or comes to talk gets a ``CommunicationError``."""
        self._broken = self._broken or why
        for fiber in self._fibers:
            if not fiber.greenlet.dead and fiber.waits is not None:
                self.wake(fiber, fiber.now_s)

    def _push(self, time_s: float, what: Any) -> None:
        self._asked += 1
        heappush(self._queue, (time_s, self._asked, what))

    def _leave(self, fiber: Fiber) -> None:
        self._hub.switch()
        self.current = fiber
        if self._broken:
            raise self._end()

    def _turn(self) -> None:
        """The loop: the earliest first."""
        queue = self._queue
        while queue:
            time_s, _, what = heappop(queue)
            if type(what) is Fiber:
                what.now_s = max(what.now_s, time_s)
                self.current = what
                what.greenlet.switch()
                if self._error is not None and not self._broken:
                    self.fail(f"rank {what.rank} failed: {self._error}")
            else:
                what(time_s)

    def _live(self, fiber: Fiber, work: Callable[[], Any]) -> None:
        try:
            fiber.result = work()
        except BaseException as error:  # noqa: BLE001  # a rank is code that is not ours: its error is raised by run
            self._error = self._error or error

    def _deadlock(self) -> None:
        waiting = [fiber for fiber in self._fibers if not fiber.greenlet.dead]
        shown = "; ".join(f"rank {fiber.rank} waits in {fiber.waits()}" for fiber in waiting[:16] if fiber.waits)
        left = f"; and {len(waiting) - 16} others" if len(waiting) > 16 else ""
        ended = len(self._fibers) - len(waiting)
        self.fail(f"deadlock: {shown}{left}" + (f"; {ended} have ended" if ended else ""))
        self._error = self._end()
        self._turn()

    def _end(self) -> CommunicationError:
        return CommunicationError("a message on simulated ranks", self._broken, "correct the order of the messages")


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """What thousands of ranks hold lives to their end: to look through it for garbage again and again finds nothing."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], _COLLECT_AFTER) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _greenlets() -> Any:
    try:
        return import_module("greenlet")
    except ImportError:
        raise MissingError(
            "simulated ranks", "greenlet is not installed", "install levelbench[simulate], or greenlet"
        ) from None


COMPUTE, SPEND, ENCODE, COME, WAIT = range(5)
"""A share of a step's passes; other seconds; those of the scheme itself; begin a collective; wait for its end."""


class Action(NamedTuple):
    """Something a rank did. ``number`` is the step of ``COMPUTE``, from 0, and the collective of the others."""

    kind: int
    number: int
    amount: float
    """A share, seconds, or bytes."""
    operation: str = ""


@final
class ActionTrace:
    """The actions of the first of ``ranks``, and whether all of them had the same."""

    def __init__(self, ranks: Sequence[int]) -> None:
        self.actions: list[Action] = []
        self._first = ranks[0]
        self._digests = dict.fromkeys(ranks, 0)
        self._closed = dict.fromkeys(ranks, True)
        self._regular = True

    def add(self, rank: int, action: Action) -> None:
        """One more of a rank."""
        if self._closed[rank]:
            return
        self._digests[rank] = hash((self._digests[rank], action))
        if rank == self._first:
            self.actions.append(action)

    def spoil(self, rank: int) -> None:
        """A rank did something that depends on times, or on who came first."""
        self._regular = self._regular and self._closed[rank]

    def open(self, rank: int) -> None:
        """From now on what a rank does counts; all must have met before."""
        self._closed[rank] = False

    def close(self, rank: int) -> None:
        """What a rank does counts no more."""
        self._closed[rank] = True

    @property
    def regular(self) -> bool:
        """Whether :func:`replay` holds for it."""
        return self._regular and len(set(self._digests.values())) == 1


class Replayed(NamedTuple):
    """By draw: seconds until the last rank was done, and the share of all ranks' time in which they only waited."""

    ended_s: NDArray[np.float64]
    communication_share: NDArray[np.float64]


def replay(
    actions: Sequence[Action], times_s: NDArray[np.float64], seconds: Sequence[Callable[[str, float], float]]
) -> Replayed:
    """The same actions with the passes' times ``times_s``, shape (draws, ranks, steps).

    ``seconds`` say for each draw what a collective of an operation and so many bytes takes.
    """
    draws, ranks, _ = times_s.shape
    now, waited, free = np.zeros((draws, ranks)), np.zeros(draws), np.zeros(draws)
    ends: dict[int, NDArray[np.float64]] = {}
    for kind, number, amount, operation in actions:
        if kind == COMPUTE:
            now += times_s[:, :, number] * amount
        elif kind == COME:
            took = np.array([each(operation, amount) for each in seconds])
            ends[number] = free = np.maximum(now.max(axis=1), free) + took
        elif kind == WAIT:
            if number not in ends:  # begun, and so over, before the trace was opened
                continue
            until = ends[number][:, None]
            waited += np.maximum(until - now, 0).sum(axis=1)
            now = np.maximum(now, until)
        else:
            now += amount
            waited += ranks * amount if kind == ENCODE else 0.0
    return Replayed(now.max(axis=1), waited / now.sum(axis=1))
