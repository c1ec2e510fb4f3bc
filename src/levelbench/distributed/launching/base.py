"""What an engine is: it starts a command once a rank, watches until all have ended, and leaves no process behind.

An engine knows nothing of training. Afterwards it says which rank failed first and what it printed last. When one rank
fails the others die of it, each in its own way; a rank that says that it lost another (``PEER_LOST``) is not named
while another can be.
"""

from __future__ import annotations

import json
import os
import re
import select
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from levelbench.checks.isolation import signal_name
from levelbench.errors import CommunicationError, MissingError, UsageError
from levelbench.measure.clocks import HOST

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
            how = f"was killed by {signal_name(self.signal)}"
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


class RunningJob(ABC):
    """A job that was started. Leaving its context ends it."""

    job: str
    """What all its processes carry in their environment as ``LEVELBENCH_JOB``."""
    folder: Path
    look_s: float = 0.5
    """The longest sleep of :meth:`wait`."""

    @abstractmethod
    def poll(self) -> bool:
        """Whether all ranks have ended. Ends the others once one failed, so call it now and then, or :meth:`wait`."""

    def wait(self, timeout_s: float) -> bool:
        """:meth:`poll` until all ranks have ended or the time is over, asleep in between."""
        until_ns = HOST.now_ns() + int(timeout_s * 1e9)
        while not self.poll():
            left_s = (until_ns - HOST.now_ns()) * 1e-9
            if left_s <= 0:
                return False
            self.sleep(min(left_s, self.look_s))
        return True

    def sleep(self, seconds: float) -> None:
        """Until the time is over, or earlier where there is something to see."""
        select.select([], [], [], seconds)

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
    ) -> RunningJob:
        """Start ``command`` as each of ``ranks`` ranks.

        What rank r prints goes to ``folder/rank-r.log``. ``environment`` is set on top of this process's own, whose
        place in another team is not handed on. Where neither sets the number of threads (``OMP_NUM_THREADS``), a rank
        gets the machine's cores divided by the ranks on it, at least one.

        Start it from a thread that outlives the job: the kernel ends the ranks with the thread that started them.

        ``MissingError`` where something is missing, ``UsageError`` for an option that the engine does not have.
        """

    def require(self) -> None:
        """Raise ``MissingError`` where something is missing here."""
        if lacking := self.lacks():
            raise MissingError(f"engine {self.name!r}", lacking, "install it, or choose another engine")

    def check(self, ranks: int, options: Mapping[str, object]) -> None:
        """Raise ``UsageError`` for what :meth:`start` would refuse: options, values, a number of ranks.

        It starts nothing, makes nothing and needs nothing to be installed.
        """
        if ranks < 1:
            raise UsageError(f"{ranks} ranks", "a job has at least one", "give a number of ranks from 1 up")
        for name in options:
            if name not in self.options:
                raise UsageError(
                    f"option {name!r} of the engine {self.name!r}",
                    f"it has {', '.join(self.options) or 'none'}",
                    "leave it out or choose one that exists",
                )

    def number(self, options: Mapping[str, object], name: str, otherwise: int, least: int = 1) -> int:
        """An option that is a whole number; ``UsageError`` where it is something else, or too small."""
        given = options.get(name, otherwise)
        if not re.fullmatch(r"\d{1,9}", str(given), re.ASCII) or int(str(given)) < least:
            raise UsageError(
                f"{name}={given} of the engine {self.name!r}",
                f"it is not a whole number of at least {least}",
                f"give one, or leave it out for {otherwise}",
            )
        return int(str(given))


LINGER_S = 1.5
"""How long the end of a rank that lost another is held back, so that the other's is known before anything is ended."""
_LINES = 20
_TAIL_BYTES = 16_384


def _machine() -> str:
    return os.uname().nodename


@dataclass(frozen=True)
class ExitReport:
    """How a rank ended: ``code``, or the ``signal`` that killed it.

    ``ended`` where its supervisor was asked to end it; ``stopped`` where it was found stopped then (SIGSTOP, a
    debugger).
    ``time_ns`` is on the clock of ``machine``.
    """

    rank: int | None
    code: int | None
    signal: int | None
    ended: bool
    stopped: bool
    time_ns: int
    machine: str = field(default_factory=_machine)

    @property
    def failed(self) -> bool:
        """Whether it failed by itself."""
        return not self.ended and self.code != 0

    def write(self, folder: Path) -> None:
        """Write it to the folder, atomically."""
        path = folder / f"{_stem(self.rank)}.json"
        part = path.with_suffix(".part")
        part.write_text(json.dumps(asdict(self)))
        part.replace(path)


def _stem(rank: int | None) -> str:
    return "launcher" if rank is None else f"rank-{rank}"


def read_reports(folder: Path, ranks: int) -> list[ExitReport]:
    """The reports that are there, the launcher's included, in the order in which their processes ended."""
    paths = [folder / f"{_stem(rank)}.json" for rank in (None, *range(ranks))]
    found = [(path.stat().st_mtime_ns, ExitReport(**json.loads(path.read_text()))) for path in paths if path.exists()]
    # Machines have no common clock but the folder's, which is coarse: it decides only where machines differ.
    one = len({report.machine for _, report in found}) == 1
    return [report for _, report in sorted(found, key=lambda pair: pair[1].time_ns if one else pair[0])]


def has_failed(folder: Path, ranks: int) -> bool:
    """Whether a rank failed and the others can be ended: at once, but where it lost another that has a while to show.

    For ranks whose launcher does not end them, or not before they have called it.
    """
    for report in read_reports(folder, ranks):
        if report.rank is not None and report.failed:
            shown = report.machine != _machine() or HOST.now_ns() - report.time_ns > LINGER_S * 1e9
            if report.code != PEER_LOST or shown:
                return True
    return False


def first_failure(folder: Path, ranks: int, over: bool = True) -> Failure | None:
    """What failed first; ``over`` says that the job has ended, so that a rank without a report never will have one.

    In this order: a rank that failed by itself; where others only lost a peer, the rank that was found stopped, or the
    only one that had not ended before it was ended; the first that lost a peer; the launcher.
    """
    reports = read_reports(folder, ranks)
    of_ranks = [report for report in reports if report.rank is not None]
    failed = [report for report in of_ranks if report.failed]
    own = [report for report in failed if report.code != PEER_LOST]
    if own:
        return _failure(own[0], folder)
    if failed:
        silent = _silent(of_ranks, ranks, over)
        return _failure(silent, folder) if silent is not None else _failure(failed[0], folder)
    launcher = [report for report in reports if report.rank is None and report.failed]
    return _failure(launcher[0], folder) if launcher else None


def _silent(reports: Sequence[ExitReport], ranks: int, over: bool) -> ExitReport | None:
    """The rank that the others waited for in vain."""
    stopped = [report for report in reports if report.stopped]
    if stopped:
        return stopped[0]
    ended = [report for report in reports if report.ended]
    there = {report.rank for report in reports}
    if over:
        ended += [ExitReport(rank, None, None, True, False, 0) for rank in range(ranks) if rank not in there]
    return ended[0] if len(ended) == 1 else None


def _failure(report: ExitReport, folder: Path) -> Failure:
    log = folder / f"{_stem(report.rank)}.log"
    lines = last_lines(log)
    if report.ended:
        note = "stopped" if report.stopped else "while the others waited for it"
        return Failure(report.rank, None, None, lines, log, note)
    return Failure(report.rank, report.code, report.signal, lines, log)


def last_lines(log: Path) -> tuple[str, ...]:
    """The last lines of a log; empty where there is no log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ()
    return tuple(text.splitlines()[-_LINES:])
