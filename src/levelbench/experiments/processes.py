"""Processes that measure: how they are started, how the parent follows one, and how the child reports and fails.

All processes of a command start in the same way, since comparing runs that were started differently raises a doubt.
They are forked if every framework of the command allows it: on Linux and on a CPU, if its import leaves no threads.
Otherwise, and with ``--spawn``, all are new interpreters.

Each framework has a server, which has imported levelbench's part of a run and the framework, but no user code. Arms on
the same framework share it, so that they are compared with the same layout of addresses and the same hash seed. After
``ROUNDS`` processes of each arm all servers are replaced. As in a new interpreter, the kernel chooses the physical
pages of each process; what one server hides is the variation of virtual addresses and of string hashes. The five runs
of a default command share these, so their interval holds for one layout; the twenty runs that settle a small difference
are spread over four. With fewer runs per server, forking would save nothing: importing PyTorch takes as long as twenty
runs of ``digits``.

Results are in the record; the pipe only says where that is, how far the process is, and why there is no record. A
process that dies reports nothing, so the parent reports how it died and what it printed last.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, final

import msgspec

from levelbench.errors import DefinitionError, LevelbenchError, UnsupportedError
from levelbench.measure.forking import SILENT_S, Child, ForkServer, Start, can_fork, die_with_parent, end_on_interrupt
from levelbench.records.locks import store_fault

__all__ = [
    "ROUNDS",
    "CrashError",
    "ProcessNote",
    "Starter",
    "listen",
    "need_folder",
    "raise_reported",
    "serve",
    "spawn",
]
__all__ += ["ceilings_of", "death", "framework_ceilings", "patience", "reported_error", "survived"]

ROUNDS: Final = 5
"""Servers are replaced after this many processes of each arm."""


def spawn(module: str, arguments: Sequence[str], output: int, pass_fds: Sequence[int]) -> Child:
    """Start ``python -P -m module`` with ``arguments``: a new interpreter that prints to the descriptor ``output``."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output,
        pass_fds=tuple(pass_fds),
    )


@final
class Starter(AbstractContextManager["Starter"]):
    """Starts processes that run ``module`` on ``arms``, pairs of framework and device; a context with its servers.

    If ``fork`` is false, all processes are new interpreters.
    """

    def __init__(self, module: str, arms: Iterable[tuple[str, str]], *, fork: bool = True) -> None:
        self._module, self._arms = module, tuple(dict.fromkeys(arms))
        self._servers: dict[str, ForkServer] = {}
        self._round = -1
        fork = fork and can_fork() and all(device == "cpu" for _, device in self._arms)
        self.how: Start = "fork" if fork else "spawn"

    def __exit__(self, *_: object) -> None:
        self._close()

    def begin(self, number: int) -> None:
        """Prepare for process ``number`` (from 0) of each arm, with new servers when a round begins."""
        if self.how == "spawn" or number // ROUNDS == self._round:
            return
        self._close()
        self._round = number // ROUNDS
        try:
            from levelbench.operators.frameworks import load_framework

            for framework in dict.fromkeys(name for name, _ in self._arms):
                imports = load_framework(framework).imports
                self._servers[framework] = ForkServer([self._module, *imports], safe_path=True)
            # They import in parallel; nothing is measured meanwhile.
            for server in self._servers.values():
                server.wait_ready()
        except UnsupportedError:
            self._close()
            self.how = "spawn"

    def start(self, framework: str, arguments: Sequence[str], output: int, pass_fds: Sequence[int]) -> Child:
        """Start a process on ``framework`` that prints to the descriptor ``output``; its job goes to its ``stdin``."""
        if self.how == "fork":
            server = self._servers[framework]
            try:
                return server.start(self._module, arguments, stdout=output, stderr=output, pass_fds=tuple(pass_fds))
            except UnsupportedError:
                # The server was killed, as the kernel does when memory is short.
                self._close()
                self.how = "spawn"
        return spawn(self._module, arguments, output, pass_fds)

    def _close(self) -> None:
        for server in self._servers.values():
            server.close()
        self._servers.clear()


# Signals of a process's own crash, and what stands for a hang; SIGKILL and SIGTERM come from others.
_CRASHES = {signal.SIGABRT, signal.SIGALRM, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV}


class ProcessNote(msgspec.Struct, frozen=True, kw_only=True):
    """A line to the parent: the record's path, the ceilings, the end, or an error in its three parts."""

    path: str | None = None
    ceilings: dict[str, Any] | None = None
    done: bool = False
    error: tuple[str, str, str] | None = None
    exit_code: int = 0
    trace: str = ""


class CrashError(LevelbenchError):
    """A process crashed in a framework, at the item ``index`` of its work."""

    exit_code = 3
    index = 0


N = TypeVar("N", bound=ProcessNote)
J = TypeVar("J")
T = TypeVar("T")


Begin = Callable[[Sequence[str], int, Sequence[int]], Child]
"""Starts a process with these arguments, which prints to a descriptor and inherits others."""


def listen(
    module: str,
    job: msgspec.Struct,
    note: type[N],
    on_note: Callable[[N], None] | None = None,
    begin: Begin | None = None,
    silent_s: float | None = None,
) -> tuple[list[N], int, str]:
    """Carry out a job in a process of its own, alone: its notes, its exit code, and what it printed.

    The process is what ``begin`` starts, and without it a new interpreter: ``python -m module``. After ``silent_s``
    seconds without a note it is killed, and its exit code is that of SIGALRM.
    """
    read, write = os.pipe()
    with tempfile.TemporaryFile() as output:
        process = (begin or partial(spawn, module))([str(write)], output.fileno(), [write])
        os.close(write)
        notes: list[N] = []
        try:
            assert process.stdin is not None
            # It may have died before it read its job; the error below says how.
            with suppress(BrokenPipeError):
                process.stdin.write(msgspec.json.encode(job))
                process.stdin.close()
            hangs = False
            with os.fdopen(read, "rb", buffering=0) as pipe:
                waiting, text = select.poll(), b""
                waiting.register(pipe, select.POLLIN)
                wait_ms = None if silent_s is None else 1000 * silent_s
                # The loop sleeps until something comes, and ends with the process.
                while not (hangs := not waiting.poll(wait_ms)) and (more := pipe.read(1 << 16)):
                    *lines, text = (text + more).split(b"\n")
                    for line in lines:
                        notes.append(msgspec.json.decode(line, type=note, strict=False))
                        if on_note is not None:
                            on_note(notes[-1])
            if not hangs:
                process.wait()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        output.seek(0)
        return notes, -signal.SIGALRM if hangs else process.wait(), output.read().decode(errors="replace")


def patience(framework: str) -> float | None:
    """How long a process on it may say nothing: engines that only execute hang, and others take the time they need."""
    from levelbench.operators.frameworks import load_framework

    return None if load_framework(framework).trains else SILENT_S


def reported_error(parts: tuple[str, str, str], exit_code: int, trace: str) -> LevelbenchError:
    """The error that another process reported in its three parts."""
    error = LevelbenchError(*parts)
    error.exit_code, error.trace = exit_code, trace
    return error


def death(asked: str, code: int, output: str, at: str = "", *, crash: bool = False) -> LevelbenchError:
    """The error for a process that died without a report: how, at which stage (``at``), and what it printed last.

    With ``crash`` it is a ``CrashError`` if the signal is that of a crash, such as SIGSEGV.
    """
    ended = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    if code == -signal.SIGALRM:
        ended = f"said nothing for {SILENT_S:g} s and was killed"
    last = output.strip().splitlines()[-1:] or ["nothing printed"]
    do = "run the same command again to resume; --debug shows all that it printed"
    kind = CrashError if crash and -code in _CRASHES else LevelbenchError
    error = kind(asked, f"its process {ended}{at} ({last[0]})", do)
    error.exit_code, error.trace = 3, output
    return error


def raise_reported(
    notes: Sequence[ProcessNote], code: int, output: str, asked: str, at: str, index: int, *, begun: bool = False
) -> None:
    """Raise what a process reported, or how it died; return if it finished.

    ``at`` names its stage, such as `` at Conv``, and ``index`` is its position. The error is a ``CrashError`` if the
    record had ``begun``, as a note with its path shows, ``at`` is not empty and the signal is that of a crash.
    """
    told = next((note for note in notes if note.error is not None), None)
    if told is not None and told.error is not None:
        raise reported_error(told.error, told.exit_code, told.trace)
    if code == 0 and any(note.done for note in notes):
        return
    error = death(asked, code, output, at, crash=bool(at) and (begun or any(note.path for note in notes)))
    if isinstance(error, CrashError):
        error.index = index
    raise error


def survived(attempt: Callable[[dict[int, str]], T]) -> T:
    """The result of ``attempt``, which gets the positions of earlier crashes and their reasons.

    After a crash, the next attempt skips that position; a second crash at the same position is raised.
    """
    crashed: dict[int, str] = {}
    while True:
        try:
            return attempt(crashed)
        except CrashError as crash:
            if crash.index in crashed:
                raise
            crashed = {**crashed, crash.index: crash.found}


def ceilings_of(process: Callable[[], Sequence[Any]]) -> dict[str, Any]:
    """The ceilings in a process's notes; empty after a crash: what is measured then shows whether it crashes, too."""
    try:
        return next(note.ceilings for note in process() if note.ceilings is not None)
    except CrashError:
        return {}


def serve(arguments: Sequence[str], job: type[J], carry_out: Callable[[J, Callable[[ProcessNote], None]], None]) -> int:
    """The child's side: read a job from standard input, carry it out, and write notes to the descriptor named first."""
    end_on_interrupt()
    die_with_parent()
    pipe = int(arguments[0])

    def tell(note: ProcessNote) -> None:
        line = msgspec.json.encode(note) + b"\n"
        while line:
            line = line[os.write(pipe, line) :]

    given = msgspec.json.decode(sys.stdin.buffer.read(), type=job)
    try:
        carry_out(given, tell)
        tell(ProcessNote(done=True))
    except LevelbenchError as error:
        parts = error.asked, error.found, error.do
        tell(ProcessNote(error=parts, exit_code=error.exit_code, trace=traceback.format_exc()))
        return error.exit_code
    except Exception as error:  # noqa: BLE001  # the process's boundary: reported to the parent
        found = f"it raised {type(error).__name__}: {error}"
        failure = DefinitionError("a benchmark's process", found, "--debug shows where; correct the adapter")
        parts = failure.asked, failure.found, failure.do
        tell(ProcessNote(error=parts, exit_code=failure.exit_code, trace=traceback.format_exc()))
        return failure.exit_code
    return 0


def framework_ceilings(framework: str, device: str, dtype: str, flops: float = 0.0) -> dict[str, object]:
    """Measure a framework's ceilings on a device, in this process, in the form that records use.

    With ``flops``: only what its best calls of about that many operations reach.
    """
    from levelbench.operators.benchmark.measuring import backend_ceilings, best_ceilings
    from levelbench.operators.frameworks import load_framework

    found = load_framework(framework)
    opened = found.open(device)
    if flops:
        measured = best_ceilings(found, opened, device, dtype, flops)
    else:
        measured = backend_ceilings(found, opened, device, dtype)
    return {**measured.to_dict(), "framework": framework}


def need_folder(folder: Path) -> None:
    """Make the folder of the records before anything is measured: ``StoreError`` if it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise store_fault("a store for the records", folder, error) from error
