"""Collectives between simulated ranks: all come, the last one works out the result, and all go on at the same time.

The one idea: a collective begins when its last rank has come and the one before it has ended, as libraries run those of
one communicator one after another, and takes what ``collectives`` says. Its arithmetic is done for real, once, in the
order of the ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from levelbench.distributed.simulation.scheduling import Fiber, Scheduler
from levelbench.distributed.simulation.tracing import COME, WAIT, Action, Trace
from levelbench.errors import CommunicationError

__all__ = ["Call", "Meeting", "Meetings"]


class Call(NamedTuple):
    """What all ranks must agree on."""

    operation: str
    detail: str
    """Reduction or root."""
    dtype: np.dtype[Any] | None
    """``None`` of what has no array."""
    shape: tuple[int, ...]


@final
class Meeting:
    """One collective: what each rank has brought, and the results by rank once all have come."""

    __slots__ = ("brought", "call", "ends_s", "first", "last_s", "missing", "nbytes", "number", "results", "waiting")

    def __init__(self, call: Call, number: int, first: int, missing: int) -> None:
        self.call, self.number, self.first, self.missing = call, number, first, missing
        self.brought: dict[int, Any] = {}
        self.results: Any = None
        self.last_s = self.ends_s = self.nbytes = 0.0
        self.waiting: list[Fiber] = []


@final
class Meetings:
    """The collectives of one communicator of ``size`` ranks, of which those ``played`` come.

    In the place of the others stands what the played ones bring, in turn.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        size: int,
        played: Sequence[int],
        seconds: Callable[[str, float], float],
        trace: Trace,
    ) -> None:
        self._scheduler, self._size, self._played = scheduler, size, played
        self._seconds, self._trace = seconds, trace
        self._calls = dict.fromkeys(played, 0)
        self._open: dict[int, Meeting] = {}
        self._free_s = 0.0
        self.busy_s = 0.0
        """Seconds in which some collective was under way."""

    def come(self, call: Call, nbytes: float, brought: Any, work: Callable[[list[Any]], Any]) -> Meeting:
        """The current rank comes with an array of ``nbytes``; ``work`` makes the results of what all have brought."""
        fiber = self._scheduler.current
        number = self._calls[fiber.rank]
        self._calls[fiber.rank] = number + 1
        meeting = self._open.get(number)
        if meeting is None:
            meeting = self._open[number] = Meeting(call, number, fiber.rank, len(self._played))
        elif meeting.call != call:
            raise CommunicationError(
                f"collective number {number + 1}",
                f"rank {meeting.first} calls {_words(meeting.call)}, and rank {fiber.rank} {_words(call)}",
                "let all ranks make the same calls in the same order",
            )
        meeting.brought[fiber.rank] = brought
        meeting.last_s = max(meeting.last_s, fiber.now_s)
        meeting.nbytes = max(meeting.nbytes, nbytes)
        meeting.missing -= 1
        self._trace.add(fiber.rank, Action(COME, number, nbytes, call.operation))
        if meeting.missing == 0:
            del self._open[number]
            self._finish(meeting, work)
        return meeting

    def _finish(self, meeting: Meeting, work: Callable[[list[Any]], Any]) -> None:
        brought, played = meeting.brought, self._played
        meeting.results = work(
            [brought[rank] if rank in brought else brought[played[rank % len(played)]] for rank in range(self._size)]
        )
        took = self._seconds(meeting.call.operation, meeting.nbytes)
        meeting.brought = {}
        meeting.ends_s = self._free_s = max(meeting.last_s, self._free_s) + took
        self.busy_s += took
        for fiber in meeting.waiting:
            self._scheduler.wake(fiber, meeting.ends_s)

    def wait(self, meeting: Meeting) -> Any:
        """Let the current rank wait for the end; the results by rank."""
        fiber = self._scheduler.current
        self._trace.add(fiber.rank, Action(WAIT, meeting.number, 0.0))
        if meeting.missing:
            meeting.waiting.append(fiber)
            self._scheduler.wait(lambda: f"{_words(meeting.call)} for {self._absent(meeting)}")
        fiber.now_s = max(fiber.now_s, meeting.ends_s)
        return meeting.results

    def _absent(self, meeting: Meeting) -> str:
        absent = [rank for rank, calls in self._calls.items() if calls <= meeting.number]
        shown = ", ".join(map(str, absent[:4]))
        return f"rank {shown}" if len(absent) == 1 else f"ranks {shown}" + (", ..." if len(absent) > 4 else "")


def _words(call: Call) -> str:
    what = f" of {call.dtype}{list(call.shape)}" if call.dtype is not None else ""
    return f"{call.operation}{f' ({call.detail})' if call.detail else ''}{what}"
