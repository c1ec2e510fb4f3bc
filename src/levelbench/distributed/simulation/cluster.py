"""What simulated ranks share: clocks, network, collectives and messages; and the handles of what is under way.

The one idea: an array of n bytes stands for one of ``scale`` times n, so a small network goes through a scheme's own
code while time and traffic are those of the large one. Arrays of at most ``CONTROL`` elements (counters, versions,
sizes) stand for themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from levelbench.distributed.buffers import new, put, view
from levelbench.distributed.communicator import Handle, Reduction
from levelbench.distributed.simulation.meeting import Meeting, Meetings
from levelbench.distributed.simulation.networks import Network, collective_s
from levelbench.distributed.simulation.scheduling import Scheduler
from levelbench.distributed.simulation.tracing import SPEND, Action, Trace
from levelbench.distributed.simulation.transport import Receipt, Transport
from levelbench.errors import CommunicationError, UsageError
from levelbench.networks.executor import Array

__all__ = ["CONTROL", "Cluster", "Collecting", "NotPlayed", "Receiving", "Sending", "fitted", "reduced"]

CONTROL = 4
FREE_LOOKS = 8
MOST_LOOKS = 600
"""A rank that looks so often without computing has waited for weeks."""
POLL_S = 1e-6
POLL_GROWTH = 1.05
"""How much later each further look at a handle is: a rank that waits by looking is late by this share at most."""


class NotPlayed(Exception):
    """A rank wants something of one that is not there, or of one alone."""


@final
class Cluster:
    """What simulated ranks share: their clocks, the network, collectives and messages.

    ``algorithm`` is that of an all-reduce (``collectives.ALL_REDUCE``). ``played`` are the ranks that there really are,
    where the others would do the same: then messages from one to another, and roots that are not there, are
    :class:`NotPlayed`.
    """

    def __init__(
        self,
        size: int,
        network: Network,
        *,
        scale: float = 1.0,
        algorithm: str = "auto",
        played: Sequence[int] | None = None,
    ) -> None:
        if size < 1:
            raise UsageError(f"{size} simulated ranks", "there is nobody", "ask for at least one")
        self.size, self.network, self.scale, self.algorithm = size, network, scale, algorithm
        self.scheduler = Scheduler()
        self.transport = Transport(self.scheduler, network, size)
        self.played = range(size) if played is None else played
        self.trace = Trace(self.played)
        self.meetings = Meetings(self.scheduler, size, self.played, self._seconds, self.trace)

    def require_played(self, root: int | None = None) -> None:
        """Refuse what needs a rank that is not there: a root, or any that may be the other end of a message."""
        if len(self.played) < self.size and root not in self.played:
            raise NotPlayed

    def _seconds(self, operation: str, nbytes: float) -> float:
        return collective_s(self.network, operation, nbytes, self.size, self.algorithm)

    def stands_for(self, array: NDArray[Any]) -> float:
        """Bytes of the large array that this one stands for."""
        return array.nbytes * self.scale if array.size > CONTROL else float(array.nbytes)

    @property
    def now_s(self) -> float:
        """The clock of the rank that runs."""
        return self.scheduler.current.now_s

    def spend(self, seconds: float, action: Action | None = None) -> None:
        """Let the clock of the rank that runs move on: it computes. ``action`` says what, if not so many seconds."""
        fiber = self.scheduler.current
        fiber.now_s += seconds
        fiber.looks = 0
        self.trace.add(fiber.rank, action or Action(SPEND, 0, seconds))

    def look(self, ready: Callable[[float], bool], *, exact: bool = True) -> bool:
        """Whether something is ready by now.

        The first looks of a rank that computes in between are free. One that looks again and again waits: looking then
        takes a little time, and longer each time. Without ``exact`` a free look does not let earlier ranks go first:
        "not yet" is then always a possible answer, and the quicker one.
        """
        scheduler = self.scheduler
        fiber = scheduler.current
        fiber.looks += 1
        waits = fiber.looks > FREE_LOOKS
        if fiber.looks > MOST_LOOKS:
            raise CommunicationError(
                f"rank {fiber.rank} looks whether something has come",
                f"it has not after {fiber.now_s:.3g} s of its clock, and nobody is earlier",
                "correct the order of the messages",
            )
        if waits:
            fiber.now_s += POLL_S * POLL_GROWTH ** (fiber.looks - FREE_LOOKS)
            self.trace.spoil(fiber.rank)
        if waits or exact:
            scheduler.settle()
        if not ready(fiber.now_s):
            return False
        fiber.looks = 0
        return True


def reduced(given: list[NDArray[Any]], op: Reduction) -> NDArray[Any]:
    """The sum or mean, in the order of ranks."""
    total = given[0].copy()
    for each in given[1:]:
        np.add(total, each, out=total)
    return np.asarray(total / len(given)).astype(total.dtype) if op == "mean" else total


def fitted(found: NDArray[Any], like: Array, source: int, keep: bool = False) -> Array:
    """What came as a native array like ``like``, and in it unless that is to be kept."""
    expected = view(like)
    if found.shape != expected.shape or found.dtype != expected.dtype:
        raise CommunicationError(
            f"a message of {expected.dtype}{list(expected.shape)} from rank {source}",
            f"it is {found.dtype}{list(found.shape)}",
            "receive what is sent",
        )
    return new(found, like) if keep else put(found, like)


@final
class Collecting(Handle):
    """A collective that others have still to come to, or that takes its time."""

    def __init__(self, cluster: Cluster, meeting: Meeting, finish: Callable[[Any], Array]) -> None:
        self._cluster, self._meeting, self._finish = cluster, meeting, finish

    def wait(self) -> Array:
        """The result; the rank's clock is at the end of the collective or later."""
        return self._finish(self._cluster.meetings.wait(self._meeting))

    def done(self) -> bool:
        """Looks, and lets the others go on."""
        meeting = self._meeting
        return self._cluster.look(lambda now_s: not meeting.missing and meeting.ends_s <= now_s, exact=False)


@final
class Receiving(Handle):
    """A message that is to come; into ``like``, unless that is to be kept."""

    def __init__(self, cluster: Cluster, receipt: Receipt, like: Array, tag: int, keep: bool) -> None:
        self._cluster, self._receipt, self._like, self._tag, self._keep = cluster, receipt, like, tag, keep

    def wait(self) -> Array:
        """What came."""
        source = self._receipt.source
        message = self._cluster.transport.wait(self._receipt, lambda: f"receive(source={source}, tag={self._tag})")
        return fitted(message.array, self._like, source, self._keep)

    def done(self) -> bool:
        """Looks, and lets the others go on."""
        receipt = self._receipt
        return self._cluster.look(lambda now_s: receipt.message is not None and receipt.arrived_s <= now_s)


@final
class Sending(Handle):
    """A message that leaves until ``until_s``."""

    def __init__(self, cluster: Cluster, array: Array, until_s: float) -> None:
        self._cluster, self._array, self._until_s = cluster, array, until_s

    def wait(self) -> Array:
        """The array, once its last byte has left."""
        fiber = self._cluster.scheduler.current
        fiber.now_s = max(fiber.now_s, self._until_s)
        return self._array

    def done(self) -> bool:
        """Looks, and lets the others go on."""
        return self._cluster.look(lambda now_s: self._until_s <= now_s)
