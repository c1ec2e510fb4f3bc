"""Communicators around another one: the base of those that watch what goes through, and one that is late or dies.

Delays are drawn from a seed, separately for each rank, so an order of arrival that breaks a scheme can be reproduced.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import sleep
from typing import TypeVar, final

from numpy.random import PCG64, Generator

from levelbench.distributed.communicator import Communicator, Handle, Reduction
from levelbench.distributed.traffic import Algorithms
from levelbench.networks.executor import Array

__all__ = ["DelayedCommunicator", "Delays", "RankDied", "WrappingCommunicator"]

T = TypeVar("T")


class WrappingCommunicator(Communicator):
    """Passes every call on to ``inner`` through :meth:`around`, which a subclass makes its own."""

    def __init__(self, inner: Communicator) -> None:
        self.inner = inner
        self.name, self.rank, self.size = inner.name, inner.rank, inner.size
        self.algorithms: Algorithms = getattr(inner, "algorithms", Algorithms())
        """What the inner one declares."""

    def around(
        self, operation: str, call: Callable[[], T], arrays: Sequence[Array], peer: int = 0, count: int = 0
    ) -> T:
        """Make the call of ``operation``, whose name is without ``start_``.

        ``arrays`` are those that it was given to send or reduce, or else to receive into; ``peer`` is the root or the
        other rank; ``count`` is how many neighbours there are besides this rank.
        """
        return call()

    def all_reduce(self, array: Array, op: Reduction = "sum") -> Array:
        """As the inner one."""
        return self.around("all_reduce", lambda: self.inner.all_reduce(array, op), [array])

    def broadcast(self, array: Array, root: int = 0) -> Array:
        """As the inner one."""
        return self.around("broadcast", lambda: self.inner.broadcast(array, root), [array], root)

    def send(self, array: Array, to: int, tag: int = 0) -> None:
        """As the inner one."""
        self.around("send", lambda: self.inner.send(array, to, tag), [array], to)

    def receive(self, like: Array, source: int, tag: int = 0) -> Array:
        """As the inner one."""
        return self.around("receive", lambda: self.inner.receive(like, source, tag), [like], source)

    def start_all_reduce(self, array: Array, op: Reduction = "sum") -> Handle:
        """As the inner one."""
        return self.around("all_reduce", lambda: self.inner.start_all_reduce(array, op), [array])

    def start_broadcast(self, array: Array, root: int = 0) -> Handle:
        """As the inner one."""
        return self.around("broadcast", lambda: self.inner.start_broadcast(array, root), [array], root)

    def start_send(self, array: Array, to: int, tag: int = 0) -> Handle:
        """As the inner one."""
        return self.around("send", lambda: self.inner.start_send(array, to, tag), [array], to)

    def start_receive(self, like: Array, source: int, tag: int = 0) -> Handle:
        """As the inner one."""
        return self.around("receive", lambda: self.inner.start_receive(like, source, tag), [like], source)

    def receive_any(self, like: Array, tag: int = 0) -> tuple[Array, int]:
        """As the inner one."""
        return self.around("receive_any", lambda: self.inner.receive_any(like, tag), [like])

    def reduce_scatter(self, array: Array, op: Reduction = "sum") -> Array:
        """As the inner one."""
        return self.around("reduce_scatter", lambda: self.inner.reduce_scatter(array, op), [array])

    def all_gather(self, array: Array) -> tuple[Array, ...]:
        """As the inner one."""
        return self.around("all_gather", lambda: self.inner.all_gather(array), [array])

    def gather(self, array: Array, root: int = 0) -> tuple[Array, ...] | None:
        """As the inner one."""
        return self.around("gather", lambda: self.inner.gather(array, root), [array], root)

    def scatter(self, arrays: Sequence[Array] | None, like: Array, root: int = 0) -> Array:
        """As the inner one."""
        given = (arrays or []) if self.rank == root else [like]
        return self.around("scatter", lambda: self.inner.scatter(arrays, like, root), given, root)

    def all_to_all(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        """As the inner one."""
        return self.around("all_to_all", lambda: self.inner.all_to_all(arrays), arrays)

    def exchange(self, array: Array, neighbours: Sequence[int]) -> tuple[Array, ...]:
        """As the inner one."""
        others = sum(each != self.rank for each in neighbours)
        return self.around("exchange", lambda: self.inner.exchange(array, neighbours), [array], count=others)

    def barrier(self) -> None:
        """As the inner one."""
        self.around("barrier", self.inner.barrier, [])

    def close(self) -> None:
        """As the inner one."""
        self.inner.close()

    def abort(self) -> None:
        """As the inner one."""
        self.inner.abort()


class RankDied(BaseException):
    """The death of a rank, played by :class:`DelayedCommunicator`.

    Like a signal it is no ``Exception``, so that no handler of errors survives it.
    """


@dataclass(frozen=True)
class Delays:
    """What goes wrong, and when.

    ``most_s``: before each operation a rank waits for up to so many seconds, drawn evenly. ``slow``: seconds by rank
    that it waits in addition. ``fail_at``: by rank the operation, counted from 1, in place of which it dies.
    """

    seed: int = 0
    most_s: float = 0.001
    slow: Mapping[int, float] = field(default_factory=dict)
    fail_at: Mapping[int, int] = field(default_factory=dict)


@final
class DelayedCommunicator(WrappingCommunicator):
    """``inner`` with delays. A rank that dies calls ``abort`` and raises :class:`RankDied`, then and ever after."""

    def __init__(self, inner: Communicator, delays: Delays) -> None:
        super().__init__(inner)
        self._delays = delays
        self._generator = Generator(PCG64([delays.seed, inner.rank]))
        self._lock = threading.Lock()
        self.operations = 0
        """How many there were."""

    def around(
        self, operation: str, call: Callable[[], T], arrays: Sequence[Array], peer: int = 0, count: int = 0
    ) -> T:
        """Wait, then make the call or die."""
        with self._lock:
            self.operations += 1
            number, late_s = self.operations, self._generator.random() * self._delays.most_s
        last = self._delays.fail_at.get(self.rank)
        if last is not None and number >= last:
            self.inner.abort()
            raise RankDied(f"rank {self.rank} died before its operation {last}, as was asked")
        sleep(late_s + self._delays.slow.get(self.rank, 0.0))
        return call()
