"""An operation of PyTorch's that is under way, as a handle."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import Thread
from typing import Any, final

from levelbench.distributed.communicator import Handle
from levelbench.networks.executor import Array

__all__ = ["Pending"]


@final
class Pending(Handle):
    """A ``Work``, what to call it in an error (``named``), and what makes the result of it.

    gloo cannot be asked whether a message has gone or come (``polled`` is false): there a thread waits from the first
    question on, as a wait that is given up closes the connection.
    """

    def __init__(
        self,
        named: Callable[[str], AbstractContextManager[None]],
        what: str,
        work: Any,
        result: Callable[[], Array],
        *,
        polled: bool,
    ) -> None:
        self._named, self._what, self._work, self._result, self._polled = named, what, work, result, polled
        self._watch: Thread | None = None
        self._error: RuntimeError | None = None

    def wait(self) -> Array:
        """The result."""
        with self._named(self._what):
            if self._watch is None:
                self._work.wait()
            else:
                self._watch.join()
                if self._error is not None:
                    raise self._error
        return self._result()

    def done(self) -> bool:
        """Whether the library says so, or the thread that waits has ended."""
        if self._polled:
            return bool(self._work.is_completed())
        if self._watch is None:
            self._watch = Thread(target=self._wait, name=self._what, daemon=True)
            self._watch.start()
        return not self._watch.is_alive()

    def _wait(self) -> None:
        try:
            self._work.wait()
        except RuntimeError as error:
            self._error = error
