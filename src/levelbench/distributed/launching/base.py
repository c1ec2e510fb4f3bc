"""What an engine is: it starts a command once a rank, and watches until all have ended.

The one idea: an engine knows nothing of training. It answers one question afterwards, which rank failed first and what
it printed last, and it leaves no process behind.
"""

from __future__ import annotations

import re
import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from levelbench.errors import CommunicationError, UsageError

__all__ = ["PEER_LOST", "Engine", "Failure", "Running"]

PEER_LOST = 75
"""The exit code of a rank that ends since another was lost (``EX_TEMPFAIL``): it is not named while another is."""


@dataclass(frozen=True)
class Failure:
    """How a job failed: its first rank to do so, or the launcher itself where ``rank`` is ``None``.

    ``code`` is its exit code, or ``signal`` what killed it; both are ``None`` where it did not answer and was ended.
    ``lines`` are the last of its log at ``log``. ``note`` says what else was seen, as a host that cannot be reached.
    """

    rank: int | None
    code: int | None
    signal: int | None
    lines: tuple[str, ...]
    log: Path
    note: str = ""

    @property
    def reason(self) -> str:
        """One clause: ``rank 2 was killed by SIGKILL``."""
        who = "the launcher" if self.rank is None else f"rank {self.rank}"
        if self.signal is not None:
            how = f"was killed by {_name(self.signal)}"
        elif self.code is not None:
            how = f"ended with code {self.code}"
        else:
            how = "did not answer"
        return f"{who} {how}{', ' if self.note else ''}{self.note}"

    def error(self, asked: str) -> CommunicationError:
        """The error for a user; ``trace`` is the end of the log."""
        last = next((line.strip() for line in reversed(self.lines) if line.strip()), "nothing printed")
        error = CommunicationError(asked, f"{self.reason} ({last})", f"see its log, {self.log}")
        error.trace = "\n".join(self.lines)
        return error


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Running(ABC):
    """A job that was started. Leaving its context ends it."""

    job: str
    """What all its processes carry in their environment as ``LEVELBENCH_JOB``."""
    folder: Path

    @abstractmethod
    def poll(self) -> bool:
        """Whether all ranks have ended. Ends the others once one failed, so call it now and then, or :meth:`wait`."""

    @abstractmethod
    def wait(self, timeout_s: float) -> bool:
        """:meth:`poll` until all ranks have ended or the time is over, asleep in between."""

    @abstractmethod
    def kill(self) -> None:
        """End all ranks and whatever they started; returns when nothing is left. Does nothing after the end."""

    @abstractmethod
    def failure(self) -> Failure | None:
        """What failed first; ``None`` where nothing did, also while ranks run and after a :meth:`kill` from outside."""

    def log(self, rank: int) -> Path:
        """What ``rank`` printed, standard output and error."""
        return self.folder / f"rank-{rank}.log"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


class Engine(ABC):
    """A way to start ranks."""

    name: ClassVar[str]
    communicators: ClassVar[tuple[str, ...]]
    """Kinds of communicators that its ranks can open; the first is the default."""
    options: ClassVar[tuple[str, ...]] = ()
    """Names of what else :meth:`start` takes."""

    @abstractmethod
    def lacks(self) -> str | None:
        """What is missing here to use it; ``None`` where nothing is. Imports nothing."""

    @abstractmethod
    def start(
        self, command: Sequence[str], ranks: int, folder: Path, environment: Mapping[str, str], **options: Any
    ) -> Running:
        """Start ``command`` as each of ``ranks`` ranks.

        What rank r prints goes to ``folder/rank-r.log``. ``environment`` is set on top of this process's own, whose
        place in another team is not handed on. Where neither sets the number of threads (``OMP_NUM_THREADS``), a rank
        gets the machine's cores divided by the ranks on it, at least one.

        Start it from a thread that outlives the job: the kernel ends the ranks with the thread that started them.

        ``MissingError`` where something is missing, ``UsageError`` for an option that the engine does not have.
        """

    def check(self, ranks: int, options: Mapping[str, Any]) -> None:
        """Raise ``UsageError`` for what :meth:`start` would refuse: options, values, a number of ranks.

        It starts nothing, makes nothing and needs nothing to be installed.
        """
        if ranks < 1:
            raise UsageError(f"{ranks} ranks", "a job has at least one", "give a number of ranks from 1")
        self.refuse(options)

    def refuse(self, options: Mapping[str, Any]) -> None:
        """Raise ``UsageError`` for an option that the engine does not have."""
        for name in options:
            if name not in self.options:
                raise UsageError(
                    f"option {name!r} of the engine {self.name!r}",
                    f"it has {', '.join(self.options) or 'none'}",
                    "leave it out or choose one that exists",
                )

    def number(self, options: Mapping[str, Any], name: str, otherwise: int, least: int = 1) -> int:
        """An option that is a whole number; ``UsageError`` where it is another thing, or too small."""
        given = options.get(name, otherwise)
        if not re.fullmatch(r"\d{1,9}", str(given), re.ASCII) or int(given) < least:
            raise UsageError(
                f"{name}={given} of the engine {self.name!r}",
                f"it is no whole number from {least}",
                f"leave it out for {otherwise}, or give one",
            )
        return int(given)
