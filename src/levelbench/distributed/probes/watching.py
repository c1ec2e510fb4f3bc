"""A communicator that knows what its rank does: counts operations, ends a rank that hangs, sends without buffers.

A rank that is a thread cannot be stopped from outside. So whatever it asks for after the run's time, or after it was
told often enough that a rank is lost, ends it from within.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar, cast, final

from levelbench.distributed.communicator import Communicator, FunctionHandle, Handle
from levelbench.distributed.communicators.wrapping import WrappingCommunicator
from levelbench.errors import CommunicationError
from levelbench.measure.clocks import HOST
from levelbench.networks.executor import Array
from levelbench.training.optimizers.arrays import zeros_like

T = TypeVar("T")

_ENDLESS = 20
_PATIENCE = 20
"""Errors of communication that a rank may swallow before it is ended."""
_RECEIPTS = 10_000_000
"""Added to the tag of a message: the tag of its receipt."""


class Abandoned(BaseException):
    """The end of a rank that goes on although it was told that others are lost: no handler of errors survives it."""


@final
class HangDetector:
    """When any rank of a run last did something: a run that does nothing for ``seconds`` hangs.

    So does one that has not ended after twenty times as long, whatever it does. A slow machine alone makes no finding.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._allowed_ns = int(seconds * 1e9)
        self._last_ns = HOST.now_ns()
        self._until_ns = self._last_ns + _ENDLESS * self._allowed_ns

    def beat(self) -> None:
        """Somebody does something."""
        self._last_ns = HOST.now_ns()

    @property
    def stopped(self) -> bool:
        """Whether the run hangs."""
        now = HOST.now_ns()
        return now - self._last_ns > self._allowed_ns or now > self._until_ns


@final
class Watched(WrappingCommunicator):
    """``inner``, with a count of the operations that were begun.

    Once the run's ``pulse`` has stopped every operation is an error. With ``synchronous`` a send is over only when it
    was received, as it may be in MPI and NCCL with large messages.
    """

    def __init__(
        self,
        inner: Communicator,
        pulse: HangDetector,
        *,
        synchronous: bool = False,
        tell: Callable[[str], None] = lambda operation: None,
    ) -> None:
        """``tell`` is called with each operation that the rank had to wait for, or might have."""
        super().__init__(inner)
        self._pulse, self._synchronous, self.tell = pulse, synchronous, tell
        self.operations = 0
        """How many were begun."""
        self.last = "before its first operation"
        """What it did last."""
        self._errors = 0

    def around(
        self, operation: str, call: Callable[[], T], arrays: Sequence[Array], peer: int = 0, count: int = 0
    ) -> T:
        self.operations += 1
        self.last = f"in its operation {self.operations}, {operation}"
        result = self._guarded(call)
        if isinstance(result, Handle):
            return cast("T", self._watching(result, operation))
        self.tell(operation)
        return result

    def send(self, array: Array, to: int, tag: int = 0) -> None:
        self.start_send(array, to, tag).wait()

    def start_send(self, array: Array, to: int, tag: int = 0) -> Handle:
        """Over at once, or once there is a receipt."""
        handle = super().start_send(array, to, tag)
        if not self._synchronous:
            return handle
        receipt = self.inner.start_receive(_nothing(array), to, tag + _RECEIPTS)
        received = self._watching(receipt, "send")

        def wait() -> Array:
            received.wait()
            return handle.wait()

        return FunctionHandle(wait, lambda: received.done() and handle.done())

    def receive(self, like: Array, source: int, tag: int = 0) -> Array:
        return self.start_receive(like, source, tag).wait()

    def start_receive(self, like: Array, source: int, tag: int = 0) -> Handle:
        """As the inner one; then a receipt is sent."""
        handle = super().start_receive(like, source, tag)
        if not self._synchronous:
            return handle

        def wait() -> Array:
            array = handle.wait()
            self._confirm(like, source, tag)
            return array

        return FunctionHandle(wait, handle.done)

    def receive_any(self, like: Array, tag: int = 0) -> tuple[Array, int]:
        """As the inner one; then a receipt is sent."""
        array, source = super().receive_any(like, tag)
        if self._synchronous:
            self._confirm(like, source, tag)
        return array, source

    def _confirm(self, like: Array, source: int, tag: int) -> None:
        self.inner.send(_nothing(like), source, tag + _RECEIPTS)

    def _watching(self, handle: Handle, operation: str) -> Handle:
        """An operation under way, for which no rank that has to end waits."""

        def wait() -> Array:
            result = self._guarded(handle.wait)
            self.tell(operation)
            return result

        def done() -> bool:
            self._check()
            return handle.done()

        return FunctionHandle(wait, done)

    def _guarded(self, call: Callable[[], T]) -> T:
        """``call``, unless the rank has to end."""
        self._check()
        self._pulse.beat()
        try:
            result = call()
        except CommunicationError:
            self._failed()
            raise
        self._pulse.beat()
        return result

    def _check(self) -> None:
        """Raise where the run hangs."""
        if self._pulse.stopped:
            self._failed()
            asked, do = f"rank {self.rank}, {self.last}", "see what it waits for, or give the check more --seconds"
            raise CommunicationError(
                asked, f"nothing has happened for {self._pulse.seconds:g} s, or no end is in sight", do
            )

    def _failed(self) -> None:
        self._errors += 1
        if self._errors > _PATIENCE:
            raise Abandoned


def receipts_as_sends(words: str) -> str:
    """Words about waiting for a receipt, as words about the send that it is of."""
    return re.sub(rf"receive\(source=(\d+), tag={_RECEIPTS}\d*\)", r"send(to=\1)", words)


def _nothing(like: Array) -> Array:
    """An empty array of the dtype of ``like``."""
    return zeros_like(like.reshape(-1)[:0])
