"""Messages between simulated ranks: when each arrives, and who takes it.

The one idea: a link is a time until which it is taken. A message goes on to its first links when it is sent, and on to
the link of the one that receives it when its first byte comes there, so that many who send to one wait for each other
in the order in which they arrive (incast).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, final

from levelbench.distributed.simulation.networks import Link, Network, Route
from levelbench.distributed.simulation.scheduling import Fiber, Scheduler

__all__ = ["ANY", "Message", "Receipt", "Transport"]

ANY = -1
"""In the place of a source: whoever comes first."""
_MOST_ROUTES = 1 << 18
"""That are kept: ranks mostly send to the same few."""


@final
class Message:
    """What travels: an array of the sender's, copied, and the bytes that it stands for."""

    __slots__ = ("array", "nbytes", "source", "taken")

    def __init__(self, array: Any, nbytes: float, source: int) -> None:
        self.array, self.nbytes, self.source = array, nbytes, source
        self.taken = False


@final
class Receipt:
    """A place where a message is waited for."""

    __slots__ = ("arrived_s", "fiber", "message", "source")

    def __init__(self, source: int) -> None:
        self.source = source
        self.message: Message | None = None
        self.arrived_s = 0.0
        self.fiber: Fiber | None = None


class _Box:
    """What has come to a rank under one tag, and who waits for it."""

    __slots__ = ("arrivals", "by_source", "receipts")

    def __init__(self) -> None:
        self.arrivals: deque[tuple[Message, float]] = deque()
        self.by_source: dict[int, deque[tuple[Message, float]]] = {}
        self.receipts: list[Receipt] = []


@final
class Transport:
    """The messages under way between ``size`` ranks on a network."""

    def __init__(self, scheduler: Scheduler, network: Network, size: int) -> None:
        self._scheduler, self._network, self._size = scheduler, network, size
        self._boxes: dict[tuple[int, int], _Box] = {}
        self._free_s: dict[tuple[str | int, ...], float] = {}
        self._routes: dict[tuple[int, int], Route] = {}
        self.sent = [0.0] * size
        """Bytes by rank."""
        self.received = [0.0] * size

    def send(self, message: Message, target: int, tag: int) -> float:
        """Send from the current rank, now; until when the sender's own link is taken."""
        now = self._scheduler.current.now_s
        self.sent[message.source] += message.nbytes
        if message.source == target:
            self._scheduler.at(now, lambda time_s: self._deliver(message, target, tag, time_s))
            return now
        pair = message.source, target
        route = self._routes.get(pair)
        if route is None:
            if len(self._routes) >= _MOST_ROUTES:
                self._routes.clear()
            route = self._routes[pair] = self._network.route(*pair, self._size)
        own, *inner, last = route.links
        head, released = self._take(own, now, message.nbytes)
        end = released
        for link in inner:
            head, end_here = self._take(link, head, message.nbytes)
            end = max(end, end_here)
        tail = end + route.latency_s
        self._scheduler.at(head + route.latency_s, self._arriving(message, target, tag, last, tail))
        return released

    def _take(self, link: Link, from_s: float, nbytes: float) -> tuple[float, float]:
        """When a message enters a link, and when it has left it."""
        start = max(from_s, self._free_s.get(link.name, 0.0))
        end = start + nbytes / link.beta
        self._free_s[link.name] = end
        return start, end

    def _arriving(self, message: Message, target: int, tag: int, link: Link, tail_s: float) -> Callable[[float], None]:
        """The first byte comes to the receiver's link; the last cannot come before ``tail_s``."""

        def arrive(time_s: float) -> None:
            _, end = self._take(link, time_s, message.nbytes)
            self._scheduler.at(max(end, tail_s), lambda at: self._deliver(message, target, tag, at))

        return arrive

    def _deliver(self, message: Message, target: int, tag: int, time_s: float) -> None:
        self.received[target] += message.nbytes
        box = self._boxes.setdefault((target, tag), _Box())
        for at, receipt in enumerate(box.receipts):
            if receipt.source in (ANY, message.source):
                del box.receipts[at]
                receipt.message, receipt.arrived_s = message, time_s
                if receipt.fiber is not None:
                    self._scheduler.wake(receipt.fiber, time_s)
                return
        entry = (message, time_s)
        box.arrivals.append(entry)
        box.by_source.setdefault(message.source, deque()).append(entry)

    def receive(self, source: int, tag: int) -> Receipt:
        """A place for the next message from ``source`` (or ``ANY``) to the current rank; filled if it is there."""
        box = self._boxes.setdefault((self._scheduler.current.rank, tag), _Box())
        receipt = Receipt(source)
        found = _take_first(box.arrivals) if source == ANY else _take_first(box.by_source.get(source))
        if found is None:
            box.receipts.append(receipt)
        else:
            receipt.message, receipt.arrived_s = found
            # Nobody would look there again where all are received in the other way, and arrays would stay for ever.
            _drop_taken(box.arrivals)
            _drop_taken(box.by_source[found[0].source])
        return receipt

    def wait(self, receipt: Receipt, waits: Callable[[], str]) -> Message:
        """Let the current rank wait until its message is there."""
        fiber = self._scheduler.current
        if receipt.message is None:
            receipt.fiber = fiber
            self._scheduler.wait(waits)
        fiber.now_s = max(fiber.now_s, receipt.arrived_s)
        assert receipt.message is not None
        return receipt.message


def _take_first(entries: deque[tuple[Message, float]] | None) -> tuple[Message, float] | None:
    """The first that nobody has taken; those taken under another name are dropped on the way."""
    if not entries:
        return None
    _drop_taken(entries)
    if not entries:
        return None
    entries[0][0].taken = True
    return entries.popleft()


def _drop_taken(entries: deque[tuple[Message, float]]) -> None:
    while entries and entries[0][0].taken:
        entries.popleft()
