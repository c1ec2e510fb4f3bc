"""The engine interface: an engine starts a command once per rank, watches until all have ended, and leaves no process.

An engine knows nothing about training. Afterwards it tells which rank failed first and what that printed last. When one
rank fails the others fail too, each in its own way; a rank that reports the loss of another (``PEER_LOST``) is not
named if another can be.
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
"""The exit code of a rank that ends because another was lost (``EX_TEMPFAIL``); it is not named if another can be."""


@dataclass(frozen=True)
class Failure:
    """How a job failed: its first rank to fail, or the launcher itself if ``rank`` is ``None``.

    ``code`` is its exit code, or ``signal`` what killed it; both are ``None`` if it did not respond and was ended.
    ``lines`` are the last of its log at ``log``. ``note`` adds other observations, such as an unreachable host.
    """

    rank: int | None
    code: int | None
    signal: int | None
    lines: tuple[str, ...]
    log: Path
    note: str = ""

    @property
    def reason(self) -> str:
        """One clause, such as ``rank 2 was killed by SIGKILL``."""
        who = "the launcher" if self.rank is None else f"rank {self.rank}"
        if self.signal is not None:
            how = f"was killed by {signal_name(self.signal)}"
        elif self.code is not None:
            how = f"ended with code {self.code}"
        else:
            how = "did not answer"
        return f"{who} {how}{', ' if self.note else ''}{self.note}"

    def error(self, asked: str) -> CommunicationError:
        """The error for the user; ``trace`` is the end of the log."""
        last = next((line.strip() for line in reversed(self.lines) if line.strip()), "nothing printed")
        error = CommunicationError(asked, f"{self.reason} ({last})", f"see its log, {self.log}")
        error.trace = "\n".join(self.lines)
        return error


class RunningJob(ABC):
    """A started job. Leaving its context ends it."""

    job: str
    """The mark of all its processes, in their environment as ``LEVELBENCH_JOB``."""
    folder: Path
    look_s: float = 0.5
    """The longest sleep of :meth:`wait`."""

    @abstractmethod
    def poll(self) -> bool:
        """Whether all ranks have ended. Ends the others once one failed, so call it regularly, or use :meth:`wait`."""

    def wait(self, timeout_s: float) -> bool:
        """:meth:`poll` until all ranks have ended or the time is over, sleeping in between."""
        until_ns = HOST.now_ns() + int(timeout_s * 1e9)
        while not self.poll():
            left_s = (until_ns - HOST.now_ns()) * 1e-9
            if left_s <= 0:
                return False
            self.sleep(min(left_s, self.look_s))
        return True

    def sleep(self, seconds: float) -> None:
        """Sleep until the time is over, or earlier if something happens."""
        select.select([], [], [], seconds)

    @abstractmethod
    def kill(self) -> None:
        """End all ranks and everything they started; returns when nothing is left. Does nothing after the end."""

    @abstractmethod
    def failure(self) -> Failure | None:
        """What failed first; ``None`` if nothing did, while ranks run, and after a :meth:`kill` from outside."""

    def log(self, rank: int) -> Path:
        """The standard output and error of ``rank``."""
        return self.folder / f"rank-{rank}.log"

    def silence(self, rank: int | None, note: str) -> Failure:
        """The failure of a rank that was waited for in vain; ``None`` if it is not known which."""
        log = self.folder / "launcher.log" if rank is None else self.log(rank)
        return Failure(rank, None, None, last_lines(log), log, note)

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
    """The communicators that its ranks can open; the first is the default."""
    options: ClassVar[tuple[str, ...]] = ()
    """The names of further options of :meth:`start`."""

    @abstractmethod
    def lacks(self, options: Mapping[str, object] | None = None) -> str | None:
        """What is missing here to use it with these options; ``None`` if nothing is. Imports nothing."""

    def elsewhere(self, options: Mapping[str, object]) -> bool:
        """Whether ranks run on machines that may have other devices and cores than this one, such as a login node."""
        return False

    @abstractmethod
    def start(
        self, command: Sequence[str], ranks: int, folder: Path, environment: Mapping[str, str], **options: Any
    ) -> RunningJob:
        """Start ``command`` as each of ``ranks`` ranks.

        The output of rank r goes to ``folder/rank-r.log``. ``environment`` is set on top of this process's own, without
        its place in another team. If neither sets the number of threads (``OMP_NUM_THREADS``), a rank gets the
        machine's cores divided by the ranks on it, at least one.

        Call it from a thread that outlives the job: the kernel ends the ranks with the thread that started them.

        ``MissingError`` if something is missing, ``UsageError`` for an option that the engine does not have.
        """

    def require(self, options: Mapping[str, object]) -> None:
        """Raise ``MissingError`` if something is missing here."""
        if lacking := self.lacks(options):
            raise MissingError(f"engine {self.name!r}", lacking, "install it, or choose another engine")

    def check(self, ranks: int, options: Mapping[str, object]) -> None:
        """Raise ``UsageError`` for what :meth:`start` would refuse: options, values, a number of ranks.

        Starts and creates nothing, and needs nothing to be installed.
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
        """An integer option; ``UsageError`` if it is something else, or too small."""
        given = options.get(name, otherwise)
        if not re.fullmatch(r"\d{1,9}", str(given), re.ASCII) or int(str(given)) < least:
            found = f"it is not a whole number of at least {least}"
            raise self.refused(name, given, found, "give one, or leave it out")
        return int(str(given))

    def refused(self, name: str, value: object, found: str, do: str) -> UsageError:
        """The error for an invalid value of an option."""
        return UsageError(f"{name}={value} of the engine {self.name!r}", found, do)


def ranks_per_node(ranks: int, nodes: int) -> int:
    """The number of ranks on each node; ``UsageError`` unless it is the same on all."""
    if ranks % nodes:
        raise UsageError(
            f"{ranks} ranks on {nodes} nodes", "each node gets the same number of ranks", f"use a multiple of {nodes}"
        )
    return ranks // nodes


LINGER_S = 1.5
"""How long to hold back the end of a rank that lost another, so that the other's end is known before any is ended."""
_LINES = 20
_TAIL_BYTES = 16_384


def _machine() -> str:
    return os.uname().nodename


@dataclass(frozen=True)
class ExitReport:
    """How a rank ended: ``code``, or the ``signal`` that killed it.

    ``ended``: its supervisor was asked to end it; ``stopped``: it was found stopped then (SIGSTOP, a debugger).
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
        """Write the report to the folder, atomically."""
        path = folder / f"{_stem(self.rank)}.json"
        part = path.with_suffix(".part")
        part.write_text(json.dumps(asdict(self)))
        part.replace(path)


def _stem(rank: int | None) -> str:
    return "launcher" if rank is None else f"rank-{rank}"


def read_reports(folder: Path, ranks: int) -> list[ExitReport]:
    """The existing reports, the launcher's included, in the order in which their processes ended."""
    paths = [folder / f"{_stem(rank)}.json" for rank in (None, *range(ranks))]
    found = [(path.stat().st_mtime_ns, ExitReport(**json.loads(path.read_text()))) for path in paths if path.exists()]
    # Machines share no clock but the folder's, which is coarse, so it only decides between machines.
    one = len({report.machine for _, report in found}) == 1
    return [report for _, report in sorted(found, key=lambda pair: pair[1].time_ns if one else pair[0])]


def has_failed(folder: Path, ranks: int) -> bool:
    """Whether a rank failed and the others can be ended: at once, or after a while if it lost a peer that may report.

    For ranks whose launcher does not end them, or not before they have called it.
    """
    for report in read_reports(folder, ranks):
        if report.rank is not None and report.failed:
            shown = report.machine != _machine() or HOST.now_ns() - report.time_ns > LINGER_S * 1e9
            if report.code != PEER_LOST or shown:
                return True
    return False


def first_failure(folder: Path, ranks: int, over: bool = True) -> Failure | None:
    """What failed first; ``over`` means that the job has ended, so a rank without a report will never have one.

    In this order: a rank that failed by itself; if others only lost a peer, the rank that was found stopped, or the
    only one that had not ended by itself; the first that lost a peer; if the launcher failed, the only rank without a
    report, or else the launcher.
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
    lost = {*range(ranks)} - {report.rank for report in of_ranks}
    if launcher and over and of_ranks and len(lost) == 1:
        (rank,) = lost
        log = folder / f"{_stem(rank)}.log"
        return Failure(rank, None, None, last_lines(log), log, "and its supervisor was killed or never started")
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
    """The last lines of a log; empty if there is none."""
    return tuple(_tail(log).splitlines()[-_LINES:])


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


_WATCHDOG = re.compile(
    "watchdog thread terminated with exception:.*?"
    "(?:collective operation timeout|remote process exited|ncclRemoteError)"
)


def ended_by_watchdog(log: Path) -> bool:
    """Whether NCCL's watchdog ended the process because another rank was lost or late, and not for an error of its own.

    PyTorch then aborts the process (SIGABRT), which looks like a failure of that rank.
    """
    return _WATCHDOG.search(_tail(log)) is not None
