"""One process of a command that is not ours: started alone, followed, ended with all that it started.

A process is alone in a session and group of its own. Where this process is killed, which nothing in it can notice, a
shell that waits for its end kills the group.
"""

from __future__ import annotations

import fcntl
import math
import os
import re
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import FrameType
from typing import IO, final

from levelbench.errors import MissingError
from levelbench.experiments.file_events import WATCHED
from levelbench.experiments.revisions import TreeReads
from levelbench.experiments.told import ToldChannel
from levelbench.measure.clocks import HOST
from levelbench.measure.forking import adopting
from levelbench.measure.meters.resources import children_of
from levelbench.records.commands import CommandSpecification

__all__ = ["Command", "EndedCommand", "carry_out_command"]

_LOOK_MS = 10.0
"""How often a file that a program writes is looked at."""
_TAIL_BYTES = 4096
_NO_TEXT = bytes({*range(32)} - {*b"\a\b\t\n\v\f\r\x0e\x0f\x1b"})
"""Control characters that text has not, not even that which moves a terminal's cursor."""
_RETURNS = re.compile(rb"(?<=\r)")
_PIPE_BYTES = 1 << 20
"""So much may a program print while this process waits for a processor; without it that is 64 KiB."""
_LINE_BYTES = 1 << 16
_GRACE_S, _GONE_S, _FREED_S = 2.0, 1.0, 5.0

_SOON_S, _SOON_SHARE = 0.05, 0.1
"""Helpers of a program that has ended are gone so soon, or in this share of its time: their work is no part of it."""


@dataclass(frozen=True)
class Command:
    """What an arm starts: the words of the program, where, and how records and tables know it."""

    words: tuple[str, ...]
    folder: Path
    specification: CommandSpecification
    text: str = ""
    reads: TreeReads | None = None
    """Sees what is read of the working tree that its revision was checked out of."""

    def with_seed(self, seed: int) -> Command:
        """The same with the number in place of ``{seed}``."""
        return replace(self, words=tuple(word.replace("{seed}", str(seed)) for word in self.words))


@dataclass(frozen=True)
class EndedCommand:
    """How a process ended: wall time and resources, its exit code (negative for a signal), the last of its errors.

    ``peak_memory_b`` is ``None`` where it is below that of the process that started it, which hides it.
    ``left`` says that it left processes behind, which were ended, ``lingered`` that those it left ended by themselves
    right after it, ``fled`` that it left some in sessions of their own, ``paused`` that somebody stopped it for a time;
    ``timed_out`` that its time was up, ``stopped`` that whoever read what it printed ended it; ``writing`` are
    the files that it then had open for writing.
    """

    wall_ns: int
    user_s: float
    system_s: float
    peak_memory_b: int | None
    exit_code: int
    errors: str
    left: bool = False
    timed_out: bool = False
    stopped: bool = False
    strays: tuple[str, ...] = ()
    fled: bool = False
    writing: tuple[Path, ...] = ()
    lingered: bool = False
    paused: bool = False


@adopting()
def carry_out_command(
    command: Command,
    timeout_s: float | None = None,
    *,
    show: bool = False,
    environment: Mapping[str, str] | None = None,
    read: Callable[[str, int], bool] | None = None,
    written: Callable[[bool], Iterable[str]] | None = None,
    on_end: Callable[[], object] = lambda: None,
    told: ToldChannel | None = None,
) -> EndedCommand:
    """Start it, wait until it has ended, and end what it leaves behind.

    With ``show`` it prints where levelbench does. ``read`` gets each line that it prints with when that arrived (one
    moment for all that arrived at once), and those that ``written`` gives, which is asked every hundredth of a second
    with whether it has ended, and ends it where it returns true; ``on_end`` is called when it has ended. So are the
    lines that it tells through ``told``. ``environment`` is added to ours.

    Raises ``MissingError`` for a program that cannot be started.
    """
    output = subprocess.PIPE if read is not None else None if show else subprocess.DEVNULL
    errors = None if show and read is None else subprocess.PIPE
    if command.reads is not None:
        command.reads.take()
    _guarded(None)
    had, began_ns = set(children_of("self")), HOST.now_ns()
    process, tail, stopped, last, writing, lingered, left_kib = None, None, False, "", set[Path](), False, 0
    pauses, watching = list[int](), ExitStack()
    try:
        with _uninterrupted():
            process = subprocess.Popen(
                command.words,
                cwd=command.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
                env={**os.environ, WATCHED: "1", **(environment or {})},
            )
            _guarded(process.pid)
        # What a process had before it became another program counts to that program, and it began as this one.
        own_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        watching.enter_context(_pauses_noted(process.pid, pauses))
        tail = _Tail(process.stderr if read is None else None)
        if read is None:
            timed_out = timeout_s is not None and not _ends_within(process.pid, timeout_s)
        else:
            stopped, timed_out, last = _follow(process, read, timeout_s, show, written, told)
        if timed_out or stopped:
            _end_group(process.pid, writing)
        _, status, usage = os.wait4(process.pid, 0)
        wall_ns = HOST.now_ns() - began_ns
        # At once: what does the work of a short process may end while anything else is looked at.
        lingered = not timed_out and not stopped and any(map(_runs, _adopted(had)))
        had |= {each for each in _adopted(had) if not _runs(each)}
        on_end()
        if not timed_out and not stopped and (lingered or _alive(process.pid)):
            lingered = True
            _until_gone(process.pid, min(_SOON_S, _SOON_SHARE * wall_ns * 1e-9), had)
            had |= {each for each in _adopted(had) if not _runs(each)}
        process.returncode = os.waitstatus_to_exitcode(status)
    except OSError as error:
        if process is not None:
            raise
        found = f"{command.words[0]!r} cannot be started: {error.strerror}"
        raise MissingError(f"command {command.specification.command!r}", found, "check its name and path") from error
    finally:
        watching.close()
        left = process is not None and _end_group(process.pid)
        # The tail's thread closes what it reads.
        for stream in (
            (process.stdout, None if tail and read is None else process.stderr) if process is not None else ()
        ):
            if stream is not None:
                stream.close()
        if process is not None and process.returncode is None:
            process.kill()
            process.wait()
        elif process is not None:
            left_kib = _wait_for_group(process.pid)
        _guarded(None)
    # One that has ended by now was still running after that, too.
    away = [each for each in _adopted(had) if _group_of(each) not in (None, process.pid)]
    fled = any(_runs(each) or not (timed_out or stopped) for each in away)
    return EndedCommand(
        wall_ns,
        usage.ru_utime,
        usage.ru_stime,
        most_kib * 1024 if (most_kib := max(usage.ru_maxrss, left_kib)) > own_kib else None,
        process.returncode,
        last or tail.read(),
        left and not timed_out and not stopped,
        timed_out,
        stopped,
        () if command.reads is None else tuple(command.reads.take(command.folder)),
        fled,
        tuple(sorted(writing)),
        lingered and not left and not fled,
        bool(pauses),
    )


@contextmanager
def _pauses_noted(pid: int, noted: list[int]) -> Iterator[None]:
    """Note when a child is stopped, or goes on; its end is left to whoever waits for it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def look(*_: object) -> None:
        with suppress(ChildProcessError):
            if os.waitid(os.P_PID, pid, os.WSTOPPED | os.WCONTINUED | os.WNOHANG) is not None:
                noted.append(pid)

    before = signal.signal(signal.SIGCHLD, look)
    look()
    try:
        yield
    finally:
        # Another language may have set one, which Python cannot put back.
        signal.signal(signal.SIGCHLD, before if before is not None else signal.SIG_DFL)


@cache
def _guard() -> int:
    """The descriptor that tells a shell the running group, which it kills once this process is gone."""
    reads, writes = os.pipe()
    script = 'while read -r each; do group=$each; done; test -z "$group" || kill -s KILL -- -"$group"'
    files = [
        (os.POSIX_SPAWN_DUP2, reads, 0),
        *((os.POSIX_SPAWN_OPEN, each, os.devnull, os.O_WRONLY, 0) for each in (1, 2)),
    ]
    os.posix_spawn("/bin/sh", ["sh", "-c", script], os.environ, file_actions=files, setpgroup=0)
    os.close(reads)
    return writes


def _guarded(group: int | None) -> None:
    """Have a group killed if this process ends before it says ``None``."""
    with suppress(OSError):
        os.write(_guard(), f"{group or ''}\n".encode())


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Signals take effect at its end: raised between a process's start and its name, they would leave it behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    ours = {each: handler for each, handler in handlers.items() if callable(handler)}
    for each in ours:
        signal.signal(each, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        for each, handler in ours.items():
            signal.signal(each, handler)
    for number, frame in came:
        ours[signal.Signals(number)](number, frame)


@final
class _Tail:
    """Reads what a process prints, however much that is, and keeps the last of it."""

    def __init__(self, stream: IO[bytes] | None) -> None:
        self._stream, self._kept = stream, b""
        self._thread = threading.Thread(target=self._drain, daemon=True)
        if stream is not None:
            self._thread.start()

    def _drain(self) -> None:
        assert self._stream is not None
        with suppress(OSError, ValueError):
            while part := os.read(self._stream.fileno(), 1 << 16):
                self._kept = (self._kept + part)[-_TAIL_BYTES:]

    def read(self) -> str:
        """The last that was printed. A process that holds the other end for longer than a moment is not waited for."""
        if self._stream is None:
            return ""
        self._thread.join(0.5)
        if not self._thread.is_alive():
            self._stream.close()
        return self._kept.decode("utf-8", "replace").strip()


def _follow(
    process: subprocess.Popen[bytes],
    read: Callable[[str, int], bool],
    timeout_s: float | None,
    show: bool,
    written: Callable[[bool], Iterable[str]] | None,
    told: ToldChannel | None,
) -> tuple[bool, bool, str]:
    """Read what a process prints until it ends, whoever else holds its output, or ``read`` returns true, or time is up.

    Whether it was the second or the third, and the last line.
    """
    # A progress bar on one must not run into the lines of the other.
    pending = {each.fileno(): b"" for each in (process.stdout, process.stderr) if each is not None}
    end, poll = os.pidfd_open(process.pid), select.poll()
    for each in pending:
        poll.register(each, select.POLLIN)
        with suppress(OSError, AttributeError):
            fcntl.fcntl(each, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    until_ns = None if timeout_s is None else HOST.now_ns() + int(timeout_s * 1e9)
    poll.register(end, select.POLLIN)
    if told is not None:
        poll.register(told.descriptor, select.POLLIN)
    last, since_told = "", 0
    try:
        while True:
            left_ms = math.inf if until_ns is None else max(0.0, (until_ns - HOST.now_ns()) / 1e6)
            wait_ms = min(left_ms, math.inf if written is None else _LOOK_MS)
            ready = dict(poll.poll(None if math.isinf(wait_ms) else wait_ms))
            if written is not None and any(read(line, HOST.now_ns()) for line in written(end in ready)):
                return True, False, last
            if not ready and wait_ms < left_ms:
                continue
            if not ready:
                return False, True, last
            # What was printed before it was told comes first, but for the end of a process.
            if told is not None and told.descriptor in ready:
                is_end = not ready[told.descriptor] & select.POLLIN
                if is_end or pending.keys().isdisjoint(ready) or since_told > _PIPE_BYTES:
                    since_told = 0
                    if any(read(line, HOST.now_ns()) for line in told.take()):
                        return True, False, last
                if pending.keys().isdisjoint(ready) and end not in ready:
                    continue
            # Once it has ended, what it has printed is read, and nothing is waited for.
            parts = {each: os.read(each, 1 << 16) if each in ready else b"" for each in pending}
            over, arrived_ns = end in ready and not any(parts.values()), HOST.now_ns()
            for each, part in parts.items():
                since_told += len(part)
                if show:
                    sys.stderr.write(part.decode("utf-8", "replace"))
                closed = each in ready and not part
                lines, pending[each] = _whole_lines(pending[each] + part, ended=closed or over)
                for printed in lines:
                    last = printed.strip() or last
                    if read(printed, arrived_ns):
                        return True, False, last
                if closed:
                    poll.unregister(each)
                    del pending[each]
            if over:
                return False, False, last
    finally:
        os.close(end)


def _whole_lines(text: bytes, *, ended: bool) -> tuple[list[str], bytes]:
    """The lines of text in it, and what is left of it; without an end, the last line is whole once there is no more."""
    cut = len(text) if ended else max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
    lines = [each for each in _lines_of(text[:cut]) if len(each.translate(None, _NO_TEXT)) == len(each)]
    # What goes on for so long is no line that tells a quality.
    return [each.decode("utf-8", "replace") for each in lines], text[cut:][-_LINE_BYTES:]


def _lines_of(text: bytes) -> list[bytes]:
    """Its lines; a carriage return that does not belong to a new line stays with its line, and says what it is."""
    if b"\r" not in text:
        return text.removesuffix(b"\n").split(b"\n")
    *whole, rest = text.split(b"\n")
    found = [line for each in whole for line in _RETURNS.split(each.removesuffix(b"\r"))]
    return [*found, *(line for line in _RETURNS.split(rest) if line)]


def _ends_within(pid: int, timeout_s: float) -> bool:
    """Whether a child ends in time; it is not reaped."""
    descriptor = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(timeout_s * 1e3))
    finally:
        os.close(descriptor)


def _end_group(group: int, writing: set[Path] | None = None) -> bool:
    """End the processes of a group, those that do not listen with force; whether there were any.

    ``writing`` gets the files that they have open for writing.
    """
    # Zombies still belong to the group.
    found = _alive(group)
    if writing is not None:
        writing |= _written_by(group)
    _signal_group(group, signal.SIGTERM)
    # A stopped process gets its SIGTERM when it goes on.
    _signal_group(group, signal.SIGCONT)
    _until_gone(group, _GRACE_S if found or _alive(group, trackers=True) else 0.0, trackers=True)
    if writing is not None:
        writing |= _written_by(group)
    # What was killed is gone a moment later, unless it waits for a disk.
    _until_gone(group, _GONE_S if _signal_group(group, signal.SIGKILL) else 0.0)
    return found


def _wait_for_group(group: int) -> int:
    """Wait for those whose parent, the program, is gone: their processor time is then ours, and no load of others.

    Returns the most memory that one of them, or of those that they waited for, had, in KiB. A shell that is ended has
    waited for none of its programs.
    """
    most_kib, deadline_ns = 0, HOST.now_ns() + int(_FREED_S * 1e9)
    with suppress(ChildProcessError):
        while HOST.now_ns() < deadline_ns:
            ended, _, usage = os.wait4(-group, os.WNOHANG)
            most_kib = max(most_kib, usage.ru_maxrss if ended else 0)
            # One that gives a gigabyte back on a busy machine takes most of a second.
            time.sleep(0 if ended else 0.001)
    return most_kib


def _until_gone(group: int, most_s: float, had: set[str] | None = None, *, trackers: bool = False) -> None:
    """Wait until no process of the group runs nor, given the children that this one ``had``, any adopted since."""
    deadline_ns = HOST.now_ns() + int(most_s * 1e9)
    while (left_ns := deadline_ns - HOST.now_ns()) > 0:
        if not (had is not None and any(map(_runs, _adopted(had)))) and not _alive(group, trackers=trackers):
            return
        time.sleep(min(0.005, left_ns * 1e-9))


def _adopted(had: set[str]) -> set[str]:
    """Processes that lost their parent and so became children of this one, which ``had`` these before (on Linux)."""
    # A child may be skipped where another one ends while the kernel lists them.
    return {*children_of("self"), *children_of("self")} - had


def _alive(group: int, *, trackers: bool = False) -> bool:
    """Whether a process of the group still runs; a zombie does not."""
    return any(_runs(each.name, group, trackers=trackers) for each in Path("/proc").glob("[0-9]*"))


def _written_by(group: int) -> set[Path]:
    """The files that processes of a group have open for writing."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            for each in (process / "fd").iterdir() if _runs(process.name, group) else ():
                with suppress(OSError):
                    path = each.readlink()
                    flags = re.search(r"^flags:\s*([0-7]+)", (process / "fdinfo" / each.name).read_text(), re.MULTILINE)
                    if flags is not None and int(flags[1], 8) & os.O_ACCMODE and path.is_file():
                        found.add(path)
    return found


def _group_of(pid: str) -> int | None:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[2])
    return None


_TRACKER = re.compile(rb"\0-c\0from [\w.]+\.resource_tracker import main; ?main\([\w, ]*\)\0$")
"""Python's own helper, of multiprocessing and joblib: it ends by itself, just after the program that started it."""


def _runs(pid: str, group: int | None = None, *, trackers: bool = False) -> bool:
    """Whether a process, of this group, still runs; of Python's ``trackers`` of resources only if asked for."""
    with suppress(OSError):
        # Before its state: a process that ends loses its command line first, and would be taken for no tracker.
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        # One that has given its memory back is about to be gone.
        if group not in (None, int(fields[2])) or fields[0] in "ZX" or not int(fields[20]):
            return False
        return trackers or _TRACKER.search(line) is None
    return False


def _signal_group(group: int, number: int) -> bool:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
