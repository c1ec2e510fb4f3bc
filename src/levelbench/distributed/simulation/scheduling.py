"""Ranks in virtual time: each a greenlet with a clock of its own, of which the earliest goes on.

A rank's clock moves on without anybody else, and only before it touches what others touch do those that
are earlier go first (:meth:`Scheduler.settle`). So everything shared happens in the order of virtual time, in one
thread, the same in every run.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from heapq import heappop, heappush
from importlib import import_module
from typing import Any, final

from levelbench.errors import CommunicationError, MissingError

__all__ = ["Fiber", "Scheduler"]

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
