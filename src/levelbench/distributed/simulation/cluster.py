"""Simulated ranks: real numbers, virtual time.

Each rank is a greenlet with its own clock, and the one with the earliest clock runs (:meth:`Scheduler.settle`). So
shared state changes in the order of virtual time, which is the same in every run. If ranks use collectives only, the
trace of one rank is enough to replay it with other times for all ranks at once.

An array of n bytes stands for one of ``scale`` times n bytes, except that arrays of at most ``CONTROL`` elements
(counters, versions, sizes) stand for themselves. A link is modelled as the time until which it is busy. A message
enters the receiver's link when its first byte arrives there, so several senders to one receiver queue in the order in
which they arrive (incast). A collective begins when its last rank has arrived and the previous one has ended.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import heappop, heappush
from importlib import import_module
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from levelbench.distributed.communicator import FunctionHandle, Handle
from levelbench.distributed.communicators.meeting import (
    ANY,
    Collective,
    CollectiveCall,
    Combine,
    Meeting,
    Parcel,
    Receipt,
)
from levelbench.distributed.packing import HostArray, view
from levelbench.distributed.simulation.networks import Interconnect, Route, Wire, collective_s
from levelbench.errors import CommunicationError, MissingError, UsageError
from levelbench.networks.executor import Array

_COLLECT_AFTER = 200_000
"""New objects between two garbage collections while ranks run."""


@final
@dataclass(eq=False, slots=True)
class Fiber:
    """A rank: its clock in seconds, and what it waits for."""

    rank: int
    greenlet: Any
    now_s: float = 0.0
    polls: int = 0
    """How often it has polled since it last computed."""
    waits: Callable[[], str] | None = None
    """Returns what it waits for; ``None`` while it runs."""
    result: Any = None


@final
class Scheduler:
    """Runs fibers and events in the order of virtual time; at equal times, in the order they were scheduled."""

    def __init__(self) -> None:
        self._queue: list[tuple[float, int, Any]] = []
        self._scheduled = 0
        self._fibers: list[Fiber] = []
        self._error: BaseException | None = None
        self._broken = ""
        self.current: Fiber

    def run(self, work: Sequence[Callable[[], Any]], ranks: Sequence[int] | None = None) -> list[Any]:
        """Run one function per rank from time zero to the end; returns the results in order.

        ``ranks`` are their numbers; ``None`` means 0, 1, 2, ... The first exception on a rank is raised, and the other
        ranks get a ``CommunicationError``. If no rank can continue, all get an error that says where each waits.
        """
        try:
            greenlets = import_module("greenlet")
        except ImportError:
            do = "install levelbench[simulate], or greenlet"
            raise MissingError("simulated ranks", "greenlet is not installed", do) from None
        self._hub = greenlets.getcurrent()
        self._fibers = [Fiber(rank, None) for rank in ranks or range(len(work))]
        for fiber, each in zip(self._fibers, work, strict=True):
            fiber.greenlet = greenlets.greenlet(lambda fiber=fiber, each=each: self._live(fiber, each))
            self._push(0.0, fiber)
        with _seldom_collected():
            self._loop()
            if any(not fiber.greenlet.dead for fiber in self._fibers):
                self._deadlock()
        if self._error is not None:
            raise self._error
        return [fiber.result for fiber in self._fibers]

    def at(self, time_s: float, event: Callable[[float], None]) -> None:
        """Call ``event`` with ``time_s`` when that is the earliest time."""
        self._push(time_s, event)

    def settle(self) -> None:
        """Let everything that is earlier than the current rank run first."""
        if self._broken:
            raise self._end()
        fiber = self.current
        if self._queue and self._queue[0][0] < fiber.now_s:
            self._push(fiber.now_s, fiber)
            self._leave(fiber)

    def wait(self, waits: Callable[[], str]) -> None:
        """Suspend the current rank until :meth:`wake`; ``CommunicationError`` if that cannot happen."""
        if self._broken:
            raise self._end()
        fiber = self.current
        fiber.waits = waits
        self._leave(fiber)

    def wake(self, fiber: Fiber, time_s: float) -> None:
        """Resume a waiting rank at ``time_s`` of its clock."""
        fiber.waits = None
        self._push(time_s, fiber)

    def fail(self, why: str) -> None:
        """End all ranks: those that wait or communicate get a ``CommunicationError``."""
        self._broken = self._broken or why
        for fiber in self._fibers:
            if not fiber.greenlet.dead and fiber.waits is not None:
                self.wake(fiber, fiber.now_s)

    def _push(self, time_s: float, what: Any) -> None:
        self._scheduled += 1
        heappush(self._queue, (time_s, self._scheduled, what))

    def _leave(self, fiber: Fiber) -> None:
        self._hub.switch()
        self.current = fiber
        if self._broken:
            raise self._end()

    def _loop(self) -> None:
        """The event loop, earliest first."""
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
        except BaseException as error:  # noqa: BLE001  # user code; run raises it
            self._error = self._error or error

    def _deadlock(self) -> None:
        waiting = [fiber for fiber in self._fibers if not fiber.greenlet.dead]
        shown = "; ".join(f"rank {fiber.rank} waits in {fiber.waits()}" for fiber in waiting[:16] if fiber.waits)
        left = f"; and {len(waiting) - 16} others" if len(waiting) > 16 else ""
        ended = len(self._fibers) - len(waiting)
        self.fail(f"deadlock: {shown}{left}" + (f"; {ended} have ended" if ended else ""))
        self._error = self._end()
        self._loop()

    def _end(self) -> CommunicationError:
        return CommunicationError("a message on simulated ranks", self._broken, "correct the order of the messages")


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Collect garbage rarely: what thousands of ranks hold lives to the end, so frequent collections find nothing."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], _COLLECT_AFTER) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


COMPUTE, SPEND, ENCODE, ENTER, WAIT = range(5)
"""A share of a step's compute; other seconds; the scheme's own seconds; start a collective; wait for its end."""


class Action(NamedTuple):
    """Something a rank did. ``number`` is the step of ``COMPUTE``, from 0, or the number of the collective."""

    kind: int
    number: int
    amount: float
    """A share, seconds, or bytes."""
    operation: str = ""


@final
class ActionTrace:
    """The actions of the first of ``ranks``, and whether all ranks had the same."""

    def __init__(self, ranks: Sequence[int]) -> None:
        self.actions: list[Action] = []
        self._first = ranks[0]
        self._digests = dict.fromkeys(ranks, 0)
        self._closed = dict.fromkeys(ranks, True)
        self._regular = True

    def add(self, rank: int, action: Action) -> None:
        """Record an action of a rank."""
        if self._closed[rank]:
            return
        self._digests[rank] = hash((self._digests[rank], action))
        if rank == self._first:
            self.actions.append(action)

    def spoil(self, rank: int) -> None:
        """Note that a rank did something that depends on timing."""
        self._regular = self._regular and self._closed[rank]

    def open(self, rank: int) -> None:
        """Record a rank's actions from now on; all ranks must have synchronised before."""
        self._closed[rank] = False

    def close(self, rank: int) -> None:
        """Stop recording a rank's actions."""
        self._closed[rank] = True

    @property
    def regular(self) -> bool:
        """Whether :func:`replay` is valid for this trace."""
        return self._regular and len(set(self._digests.values())) == 1


class Replayed(NamedTuple):
    """For each draw: seconds until the last rank ended, and the share of all ranks' time spent only on waiting."""

    ended_s: NDArray[np.float64]
    communication_share: NDArray[np.float64]


def replay(
    actions: Sequence[Action],
    times_s: NDArray[np.float64],
    networks: Sequence[Interconnect],
    algorithm: str,
    encodings_s: Sequence[float] | None = None,
) -> Replayed:
    """Replay actions with compute times ``times_s``, shape (draws, ranks, steps), and a network for each draw.

    ``encodings_s`` has the scheme's own time per step in each draw (default: as in the actions).
    """
    draws, ranks, _ = times_s.shape
    now, waited, free = np.zeros((draws, ranks)), np.zeros(draws), np.zeros(draws)
    ends: dict[int, NDArray[np.float64]] = {}
    for kind, number, amount, operation in actions:
        if kind == COMPUTE:
            now += times_s[:, :, number] * amount
        elif kind == ENTER:
            took = np.array([collective_s(each, operation, amount, ranks, algorithm) for each in networks])
            ends[number] = free = np.maximum(now.max(axis=1), free) + took
        elif kind == WAIT:
            if number not in ends:  # it ended before the trace was opened
                continue
            until = ends[number][:, None]
            waited += np.maximum(until - now, 0).sum(axis=1)
            now = np.maximum(now, until)
        elif kind == ENCODE:
            encoding = np.full(draws, amount) if encodings_s is None else np.asarray(encodings_s)
            now += encoding[:, None]
            waited += ranks * encoding
        else:
            now += amount
    return Replayed(now.max(axis=1), waited / now.sum(axis=1))


CONTROL = 4
FREE_POLLS = 8
MOST_POLLS = 600
"""A rank that polls this often without computing has waited for weeks."""
POLL_S = 1e-6
POLL_GROWTH = 1.05
"""The growth of the interval between polls: a rank that waits by polling is late by at most this share."""
_MOST_ROUTES = 1 << 18
"""Routes in the cache; ranks mostly send to the same few others."""


class NotPlayed(Exception):
    """A rank needs another that is not played, or does something that only one rank does."""


@final
class Cluster(Meeting):
    """What simulated ranks share: clocks, the network, collectives and messages.

    ``algorithm`` is that of all-reduce (``networks.ALL_REDUCE``). ``played`` are the ranks that are really simulated,
    if the others would do the same. Then messages, and roots that are not played, raise :class:`NotPlayed`, and in
    collectives the values of the played ranks stand in for the others, cyclically.
    """

    name = "simulated"

    def __init__(
        self,
        size: int,
        network: Interconnect,
        *,
        scale: float = 1.0,
        algorithm: str = "auto",
        played: Sequence[int] | None = None,
    ) -> None:
        if size < 1:
            raise UsageError(f"{size} simulated ranks", "there must be at least one", "ask for one or more")
        super().__init__()
        self.size, self.network, self.scale, self.algorithm = size, network, scale, algorithm
        self.scheduler = Scheduler()
        self.played = range(size) if played is None else played
        self.trace = ActionTrace(self.played)
        self.sent, self.received = [0.0] * size, [0.0] * size
        """Bytes of messages, by rank."""
        self._links_free_s: dict[tuple[str | int, ...], float] = {}
        self._routes: dict[tuple[int, int], Route] = {}
        self._next_numbers = dict.fromkeys(self.played, 0)
        self._collectives: dict[int, Collective] = {}
        self._free_s = 0.0

    def stands_for(self, array: HostArray) -> float:
        """The size in bytes of the large array that this one stands for."""
        return array.nbytes * self.scale if array.size > CONTROL else float(array.nbytes)

    @property
    def now_s(self) -> float:
        """The clock of the running rank."""
        return self.scheduler.current.now_s

    def spend(self, seconds: float, action: Action | None = None) -> None:
        """Advance the clock of the running rank. ``action`` records what it did, if not just these seconds."""
        fiber = self.scheduler.current
        fiber.now_s += seconds
        fiber.polls = 0
        self.trace.add(fiber.rank, action or Action(SPEND, 0, seconds))

    def poll(self, ready: Callable[[float], bool], *, exact: bool = True) -> bool:
        """Poll whether something is ready by now; lets other ranks run.

        The first polls after computing are free. Further ones mean that the rank waits: each takes a little time, more
        each time. Without ``exact``, a free poll does not let earlier ranks run first: "not yet" is always a valid
        answer, and the faster one.
        """
        scheduler = self.scheduler
        fiber = scheduler.current
        fiber.polls += 1
        waits = fiber.polls > FREE_POLLS
        if fiber.polls > MOST_POLLS:
            raise CommunicationError(
                f"rank {fiber.rank} polls for a message or collective",
                f"nothing has arrived after {fiber.now_s:.3g} s of virtual time, and no other rank is behind",
                "correct the order of the messages",
            )
        if waits:
            fiber.now_s += POLL_S * POLL_GROWTH ** (fiber.polls - FREE_POLLS)
            self.trace.spoil(fiber.rank)
        if waits or exact:
            scheduler.settle()
        if not ready(fiber.now_s):
            return False
        fiber.polls = 0
        return True

    # Messages

    def send(self, rank: int, array: Array, to: int, tag: int) -> Handle:
        """Copies at once; the handle is done when the last byte has left this rank's link."""
        self._require_messages(rank)
        self.scheduler.settle()
        given, now = view(array), self.now_s
        message = Parcel(given.copy(), rank, self.stands_for(given))
        self.sent[rank] += message.nbytes
        if rank == to:
            self.scheduler.at(now, lambda time_s: self._deliver(message, to, tag, time_s))
            return self._send_handle(array, now)
        route = self._routes.get((rank, to))
        if route is None:
            if len(self._routes) >= _MOST_ROUTES:
                self._routes.clear()
            route = self._routes[rank, to] = self.network.route(rank, to, self.size)
        own, *inner, last = route.links
        head, released = self._take(own, now, message.nbytes)
        end = released
        for link in inner:
            head, end_here = self._take(link, head, message.nbytes)
            end = max(end, end_here)
        tail_s = end + route.latency_s

        def arrive(time_s: float) -> None:
            """The first byte reaches the receiver's link; the last cannot arrive before ``tail_s``."""
            _, end_s = self._take(last, time_s, message.nbytes)
            self.scheduler.at(max(end_s, tail_s), lambda at: self._deliver(message, to, tag, at))

        self.scheduler.at(head + route.latency_s, arrive)
        return self._send_handle(array, released)

    def _send_handle(self, array: Array, until_s: float) -> Handle:
        """A message that has left this rank at ``until_s``."""

        def wait() -> Array:
            fiber = self.scheduler.current
            fiber.now_s = max(fiber.now_s, until_s)
            return array

        return FunctionHandle(wait, lambda: self.poll(lambda now_s: until_s <= now_s))

    def _take(self, link: Wire, from_s: float, nbytes: float) -> tuple[float, float]:
        """The times at which a message enters and leaves a link."""
        start = max(from_s, self._links_free_s.get(link.name, 0.0))
        end = start + nbytes / link.beta
        self._links_free_s[link.name] = end
        return start, end

    def _deliver(self, message: Parcel, to: int, tag: int, time_s: float) -> None:
        self.received[to] += message.nbytes
        receipt = self.box(to, tag).deliver(message, time_s)
        if receipt is not None and receipt.fiber is not None:
            self.scheduler.wake(receipt.fiber, time_s)

    def post_receive(self, rank: int, source: int, tag: int) -> Receipt:
        self._require_messages(rank)
        if source == ANY:
            self.scheduler.settle()
        receipt = Receipt(source, tag)
        self.box(rank, tag).post(receipt)
        return receipt

    def receive(self, rank: int, receipt: Receipt) -> Parcel:
        """Wait until the message is there, and move the rank's clock to its arrival."""
        fiber = self.scheduler.current
        if receipt.message is None:
            receipt.fiber = fiber
            self.scheduler.wait(lambda: str(receipt))
        fiber.now_s = max(fiber.now_s, receipt.arrived_s)
        assert receipt.message is not None
        return receipt.message

    def arrived(self, receipt: Receipt) -> bool:
        return self.poll(lambda now_s: receipt.message is not None and receipt.arrived_s <= now_s)

    # Collectives

    def enter(
        self, rank: int, call: CollectiveCall, value: Any, combine: Combine | None = None, like: HostArray | None = None
    ) -> Collective:
        self.require_open(rank, call)
        if call.root is not None:
            self._require_played(call.root)
        fiber, nbytes = self.scheduler.current, 0.0 if like is None else self.stands_for(like)
        number = self._next_numbers[rank]
        self._next_numbers[rank] = number + 1
        entered = self._collectives.get(number)
        if entered is None:
            entered = self._collectives[number] = Collective(call, number, rank)
        elif entered.call != call:
            raise CommunicationError(
                f"collective number {number + 1}",
                f"rank {entered.first} calls {entered.call}, and rank {rank} {call}",
                "let all ranks make the same calls in the same order",
            )
        entered.values[rank] = value
        entered.last_s = max(entered.last_s, fiber.now_s)
        entered.nbytes = max(entered.nbytes, nbytes)
        self.trace.add(rank, Action(ENTER, number, nbytes, call.operation))
        if len(entered.values) == len(self.played):
            del self._collectives[number]
            self._complete(entered, combine)
        return entered

    def _complete(self, entered: Collective, combine: Combine | None) -> None:
        values, played = entered.values, self.played
        if combine is not None:
            ranks = range(self.size)
            entered.result = combine([values[each if each in values else played[each % len(played)]] for each in ranks])
        source = entered.call.source
        entered.values = {} if source is None else {source: values[source]}
        entered.complete = True
        took = collective_s(self.network, entered.call.operation, entered.nbytes, self.size, self.algorithm)
        entered.ends_s = self._free_s = max(entered.last_s, self._free_s) + took
        for fiber in entered.waiting:
            self.scheduler.wake(fiber, entered.ends_s)

    def finish(self, rank: int, entered: Collective) -> None:
        fiber = self.scheduler.current
        self.trace.add(rank, Action(WAIT, entered.number, 0.0))
        if not entered.complete:
            entered.waiting.append(fiber)
            self.scheduler.wait(lambda: f"{entered.call} for {self._absent(entered)}")
        fiber.now_s = max(fiber.now_s, entered.ends_s)

    def completed(self, entered: Collective) -> bool:
        return self.poll(lambda now_s: entered.complete and entered.ends_s <= now_s, exact=False)

    def leave(self, entered: Collective) -> None:
        """Do nothing: a complete collective is not kept."""

    def _absent(self, entered: Collective) -> str:
        absent = [rank for rank, turn in self._next_numbers.items() if turn <= entered.number]
        shown = ", ".join(map(str, absent[:4]))
        return f"rank {shown}" if len(absent) == 1 else f"ranks {shown}" + (", ..." if len(absent) > 4 else "")

    # Endings

    def depart(self, rank: int) -> None:
        self.gone.add(rank)

    def fail(self, why: str) -> None:
        self.scheduler.fail(why)

    def _require_messages(self, rank: int) -> None:
        self.require_open(rank, "a message")
        self._require_played()
        self.trace.spoil(rank)

    def _require_played(self, root: int | None = None) -> None:
        """Refuse what needs a rank that is not played: a root, or any rank at the other end of a message."""
        if len(self.played) < self.size and root not in self.played:
            raise NotPlayed
