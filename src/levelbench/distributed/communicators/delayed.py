"""A communicator that is late, at random, and on which a rank can die: what a scheme has to bear.

The one idea: delays are drawn from a seed, for each rank its own, so that an order of arrival which breaks a scheme can
be made again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import sleep
from typing import TypeVar, final

from numpy.random import PCG64, Generator

from levelbench.distributed.communicator import Communicator
from levelbench.distributed.communicators.wrapping import WrappingCommunicator
from levelbench.networks.executor import Array

__all__ = ["DelayedCommunicator", "Delays", "RankDied"]

T = TypeVar("T")


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
        """Late, or never."""
        with self._lock:
            self.operations += 1
            number, late_s = self.operations, self._generator.random() * self._delays.most_s
        last = self._delays.fail_at.get(self.rank)
        if last is not None and number >= last:
            self.inner.abort()
            raise RankDied(f"rank {self.rank} died before its operation {last}, as was asked")
        sleep(late_s + self._delays.slow.get(self.rank, 0.0))
        return call()
