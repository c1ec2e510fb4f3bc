"""The process above a rank: ``python -m levelbench.distributed.launching.supervisor FOLDER [options] -- COMMAND``.

It starts the command as a child in its own session, with its output in a log; it reports how that ended; and it ends
the child and its descendants when it is asked to or its own parent dies. Launchers report a rank's death in different
ways, or not at all. Our own parent process under each of them always knows, and is the one place that makes sure that
nothing outlives the job.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from levelbench.distributed.launching.base import LINGER_S, PEER_LOST, ExitReport, ended_by_watchdog
from levelbench.distributed.launching.environment import descendants, place_of, state_of, variables_of
from levelbench.measure.clocks import HOST

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_ASKS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
_HEARD = {signal.SIGCHLD, *_ASKS}
_GRACE_S = 2.0
"""Between SIGTERM and SIGKILL."""


@dataclass
class _End:
    """The state of the child so far."""

    status: int | None = None
    time_ns: int = 0
    asked: bool = False
    stopped: bool = False


def main(arguments: Sequence[str]) -> int:
    """Run one child from start to end; returns its exit code, or 128 plus the signal that killed it."""
    cut = arguments.index("--")
    options, command = list(arguments[:cut]), list(arguments[cut + 1 :])
    folder = Path(options[0])
    place = None if "--launcher" in options else place_of(os.environ)
    rank = None if place is None else place.rank
    signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
    libc = ctypes.CDLL(None, use_errno=True)
    # When the parent dies, be asked to end, not killed, or the child's own sessions would remain.
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    if "--parent" in options and os.getppid() != int(options[options.index("--parent") + 1]):
        return 1
    log = folder / ("launcher.log" if rank is None else f"rank-{rank}.log")
    sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    for here, there in ((nothing, 0), (sink, 1), (sink, 2)):
        os.dup2(here, there)
    child = _start(command, libc, {} if place is None else variables_of(place))
    end = _keep(child)
    assert end.status is not None
    status = os.waitstatus_to_exitcode(end.status)
    if status == -signal.SIGABRT and ended_by_watchdog(log):
        status = PEER_LOST
    code, number = (status, None) if status >= 0 else (None, -status)
    ExitReport(rank, code, number, end.asked, end.stopped, end.time_ns).write(folder)
    if code == PEER_LOST and not end.asked:
        signal.sigtimedwait(_ASKS, LINGER_S)
    return 128 - status if status < 0 else status


def _start(command: list[str], libc: ctypes.CDLL, place: dict[str, str]) -> int:
    """Start ``command`` and return its process id. Open files are inherited: MPI's launchers use one to communicate."""
    supervisor = os.getpid()
    os.environ.update(place)
    child = os.fork()
    if child == 0:
        _become(command, libc, supervisor)
    return child


def _become(command: list[str], libc: ctypes.CDLL, supervisor: int) -> NoReturn:
    try:
        os.setsid()
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)
        for each in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(each, signal.SIG_DFL)
        if os.getppid() == supervisor:
            os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]} cannot be started: {error}", file=sys.stderr, flush=True)  # noqa: T201  # the rank's log
    os._exit(127)


def _keep(child: int) -> _End:
    """Wait for the child, or end it when asked to; then end everything that it left behind."""
    end = _End()
    until_ns: int | None = None
    while end.status is None:
        if until_ns is None:
            received: signal.struct_siginfo | None = signal.sigwaitinfo(_HEARD)
        else:
            received = signal.sigtimedwait(_HEARD, max(0.0, (until_ns - HOST.now_ns()) * 1e-9))
        _reap(child, end)
        if end.status is None and received is None:
            _signal_all(child, signal.SIGKILL)
            until_ns = HOST.now_ns() + int(_GRACE_S * 1e9)
        elif end.status is None and received is not None and received.si_signo in _ASKS and not end.asked:
            end.asked, end.stopped = True, state_of(child) == "T"
            # A stopped process does not receive SIGTERM before it continues.
            _signal_all(child, signal.SIGKILL if end.stopped else signal.SIGTERM)
            until_ns = HOST.now_ns() + int(_GRACE_S * 1e9)
    while descendants(os.getpid()):
        _signal_all(child, signal.SIGKILL)
        signal.sigtimedwait([signal.SIGCHLD], 0.05)
        _reap(child, end)
    return end


def _reap(child: int, end: _End) -> None:
    """Reap whatever has ended, including orphans adopted by this process."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid == child:
            end.status, end.time_ns = status, HOST.now_ns()


def _signal_all(child: int, number: signal.Signals) -> None:
    """Signal the child's group; to kill, all descendants of this process."""
    if number is signal.SIGTERM:
        with suppress(ProcessLookupError):
            os.killpg(child, number)
        return
    for pid in descendants(os.getpid()):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


if __name__ == "__main__":
    # Not sys.exit: there is nothing to clean up, and the rank's last output is already in its log.
    os._exit(main(sys.argv[1:]))
