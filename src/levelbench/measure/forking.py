"""Processes forked from one that has done the imports: as fresh as ``python -m module``, without waiting for imports.

A server imports what its children need and runs nothing else. Each child is forked from it and then made equivalent to
a new interpreter:

- It is a child of the process that requested it, which waits for it and can kill it like any other; it dies with it.
- It has its own files, environment, folder, session and signals, and draws its own random numbers.
- It has its own memory. Before it begins, the pages that it would share with the server until it writes to them are
  copied, and the pages of libraries that the imports touched are mapped, so that a measurement contains neither these
  page faults nor a lower peak. (This needs ``MADV_POPULATE_READ``, Linux 5.14; older kernels do it page by page, when
  needed.)
- Numeric libraries whose threads end at a fork have started them again.

A server whose imports leave threads behind that do not survive a fork refuses to serve, with the reason.

The children of one server still share the layout of virtual addresses and the seed of string hashes. Either makes
programs a little faster or slower (Mytkowicz et al. 2009, ASPLOS; Curtsinger & Berger 2013, ASPLOS), which runs of one
server cannot show, so start a new server every few runs when measuring.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import importlib
import json
import os
import random
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final, Literal, NamedTuple, NoReturn, Protocol, final

from levelbench.errors import UnsupportedError
from levelbench.measure.clocks import HOST

__all__ = ["Child", "ForkServer", "Start", "adopting", "can_fork", "ending_leftovers", "how_started", "serve"]


_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies, so that no orphaned run continues."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def end_on_interrupt() -> None:
    """Let an interrupt end this process at once and without a traceback; the parent decides what it means.

    If interrupts are ignored (a command started with ``&`` in a script), they stay ignored, as in the parent.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


Start = Literal["fork", "spawn"]

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_POPULATE_READ, _POPULATE_WRITE = 22, 23
_PRESENT, _OF_FILE = 1 << 63, 1 << 61
_SELF: Final = Path("/proc/self")
_FIRST_FREE: Final = 200
"""Received file descriptors are moved above this number, so that they do not collide with the child's own."""
_MOST_FILES: Final = 32
_GONE_NS: Final = 200_000_000
"""How long a thread may still be listed after it has ended."""
_ADOPTED_NS: Final = 10_000_000_000
"""How long a child waits until the requesting process has adopted it, which takes a few microseconds."""

_started: Start = "spawn"
_SERVERS: Final[set[int]] = set()
"""The servers that this process has started."""


def how_started() -> Start:
    """How this process was started: forked from a server, or as a new interpreter."""
    return _started


def can_fork() -> bool:
    """Whether this system supports a fork server."""
    return sys.platform == "linux" and hasattr(os, "pidfd_open")


SILENT_S: Final = 600.0
"""A process of an engine, or of a node test, that says nothing for longer is taken to hang."""


class Child(Protocol):
    """A process that was started: the part of ``subprocess.Popen`` that callers use."""

    pid: int
    returncode: int | None
    stdin: IO[bytes] | None

    def poll(self) -> int | None:
        """Its exit code, if it has ended."""

    def wait(self) -> int:
        """Its exit code, once it has ended."""

    def kill(self) -> None:
        """End it at once."""


@final
class _Forked:
    """A child of this process that a server has forked."""

    def __init__(self, pid: int, stdin: IO[bytes] | None) -> None:
        self.pid, self.stdin = pid, stdin
        self.returncode: int | None = None
        self._waiting = threading.Lock()

    def poll(self) -> int | None:
        """Its exit code, if it has ended."""
        return self._ended(os.WNOHANG)

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        code = self._ended(0)
        assert code is not None
        return code

    def kill(self) -> None:
        """End it at once."""
        # Only this process waits for it, so its pid cannot be reused before that.
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _ended(self, options: int) -> int | None:
        # Several threads may wait, and only one of them gets the status.
        with self._waiting:
            if self.returncode is None:
                pid, status = os.waitpid(self.pid, options)
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
            return self.returncode


class _Request(NamedTuple):
    """A requested child. ``files`` are the descriptor numbers that it is to have."""

    module: str
    arguments: list[str]
    environment: dict[str, str]
    folder: str
    session: bool
    files: list[int]
    parent: int


@final
class ForkServer(AbstractContextManager["ForkServer"]):
    """A process that imports the modules ``imports`` and from which others are forked; it ends with the ``with`` block.

    Call ``wait_ready`` before the first ``start``. With ``safe_path`` nothing is imported from the working folder.
    ``prepare`` are functions (``module:function``) with the text that each is called with after the imports.
    ``measured=False`` is for children that measure nothing: their memory is copied when they write to it, not before.
    """

    def __init__(
        self,
        imports: Sequence[str],
        *,
        prepare: Sequence[tuple[str, str]] = (),
        safe_path: bool = False,
        measured: bool = True,
    ) -> None:
        self._turn = threading.Lock()
        self._link, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, *(["-P"] if safe_path else []), "-m", __name__, str(theirs.fileno()), str(measured)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
            )
        _SERVERS.add(self._process.pid)
        _send(self._link, [*((name, "") for name in imports), *prepare])

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait_ready(self) -> None:
        """Return when the imports are done; ``UnsupportedError`` with the reason if it cannot serve."""
        found = _read(self._link)
        if found is None or found:
            reason = "their server ended while importing" if found is None else str(found)
            raise UnsupportedError("processes that are forked", reason, "start them as new interpreters (--spawn)")

    def close(self) -> None:
        """End the server; its children continue."""
        self._link.close()
        self._process.kill()
        self._process.wait()
        _SERVERS.discard(self._process.pid)

    def start(
        self,
        module: str,
        arguments: Sequence[str],
        *,
        stdin: int | None = None,
        stdout: int,
        stderr: int,
        pass_fds: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        session: bool = False,
    ) -> Child:
        """Run ``python -m module`` with ``arguments`` in a new child of this process.

        The descriptors are those of this process; ``pass_fds`` keep their numbers. Without ``stdin`` the child reads
        from a pipe, to which the returned child's ``stdin`` writes. ``UnsupportedError`` if the server has ended.
        """
        read, write = (stdin, -1) if stdin is not None else os.pipe()
        request = _Request(
            module,
            list(arguments),
            dict(os.environ if environment is None else environment),
            os.fspath(folder or Path.cwd()),
            session,
            [0, 1, 2, *pass_fds],
            os.getpid(),
        )
        try:
            pid = self._fork(request, [read, stdout, stderr, *pass_fds])
        except BaseException:
            if write >= 0:
                os.close(write)
            raise
        finally:
            if write >= 0:
                os.close(read)
        return _Forked(pid, os.fdopen(write, "wb") if write >= 0 else None)

    def _fork(self, request: _Request, files: list[int]) -> int:
        # The server forks twice, so that the second process loses its parent and is adopted by this one.
        with self._turn, adopting():
            try:
                text = json.dumps(request).encode()
                socket.send_fds(self._link, [len(text).to_bytes(8, "big")], files)
                self._link.sendall(text)
                pid = _read(self._link)
            except OSError:
                pid = None
        if not isinstance(pid, int):
            found = pid or "their server has ended"
            raise UnsupportedError("processes that are forked", found, "start the command again, or with --spawn")
        return pid


@contextmanager
def adopting() -> Iterator[None]:
    """Meanwhile, descendants of this process that lose their parent become its children (on Linux)."""
    if sys.platform != "linux":
        yield
        return
    prctl, before = ctypes.CDLL(None).prctl, ctypes.c_int()
    prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before))
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, before.value)


_LOOK_S = 0.02


@contextmanager
def ending_leftovers(patience_s: float = 5.0) -> Iterator[list[int]]:
    """On exit, end processes that descendants left behind; the list then holds their pids.

    Those that end by themselves within ``patience_s``, as helpers of a pool do, are not among them. (On Linux.)
    """
    found: list[int] = []
    before = _children()
    with adopting():
        yield found
        until_ns = HOST.now_ns() + round(patience_s * 1e9)
        while left := _children() - before - _SERVERS:
            for pid in left:
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            if HOST.now_ns() > until_ns:
                break
            time.sleep(_LOOK_S)
        while left := _children() - before - _SERVERS:
            # Each may leave others behind when it ends.
            found += left
            for pid in left:
                with suppress(ProcessLookupError, ChildProcessError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)


def _children() -> set[int]:
    """The processes whose parent is this one."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.add(int(path.parent.name))
    return found


def _send(link: socket.socket, what: object) -> None:
    link.sendall(json.dumps(what).encode() + b"\n")


def _read(link: socket.socket) -> Any:
    """The next line of JSON; ``None`` if the other side has closed."""
    line = b""
    while not line.endswith(b"\n"):
        if not (part := link.recv(1 << 16)):
            return None
        line += part
    return json.loads(line)


def serve(arguments: Sequence[str]) -> _Request:
    """The server: import, then fork a child for each request; returns in the child, with its request."""
    import fcntl

    # Interrupts are for the requesting process and for the children.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    link, parent = socket.socket(fileno=int(arguments[0])), os.getppid()
    _die_with(parent)
    reason = ""
    try:
        for name, text in _read(link) or ():
            module, _, function = name.partition(":")
            found = importlib.import_module(module)
            if function:
                getattr(found, function)(text)
    except Exception as error:  # noqa: BLE001  # the client spawns instead, and its process raises the error again
        reason = f"importing {name} raised {type(error).__name__}: {error}"
    gc.collect()
    gc.freeze()
    reason = reason or _threads_that_stay()
    _send(link, reason)
    memory = _resident() if arguments[1:] != ["False"] else []
    while True:
        size, files, _, _ = socket.recv_fds(link, 8, _MOST_FILES)
        if not size:
            os._exit(0)
        text = b""
        while len(text) < int.from_bytes(size, "big"):
            text += link.recv(1 << 16)
        between = os.fork()
        if not between:
            if not os.fork():
                request = _Request(*json.loads(text))
                answering = link.fileno()
                try:
                    answering = fcntl.fcntl(link, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE)
                    _become(request, link, files, memory)
                    answer: int | str = os.getpid()
                except OSError as error:
                    # The client waits for an answer, and the server continues.
                    answer = f"the process that was forked could not begin: {error.strerror}"
                os.write(answering, json.dumps(answer).encode() + b"\n")
                os.close(answering)
                if isinstance(answer, str):
                    os._exit(1)
                return request
            os._exit(0)
        os.waitpid(between, 0)
        for each in files:
            os.close(each)


def _threads_that_stay() -> str:
    """Why this process cannot be forked: threads that remain after a fork, when libraries end theirs; else empty."""
    tried = os.fork()
    if not tried:
        os._exit(0)
    os.waitpid(tried, 0)
    until = HOST.now_ns() + _GONE_NS
    while (count := len([*_SELF.joinpath("task").iterdir()])) > 1 and HOST.now_ns() < until:
        time.sleep(0.005)
    if count == 1:
        return ""
    threads = f"{count - 1} thread{'s' * (count > 2)} of their own"
    return f"the imports start {threads}, which a forked process would lack"


def _become(
    request: _Request, link: socket.socket, files: Sequence[int], memory: Sequence[tuple[int, int, int]]
) -> None:
    """Turn this process into the requested one."""
    global _started  # noqa: PLW0603  # a fact about this process
    import fcntl

    until = HOST.now_ns() + _ADOPTED_NS
    while os.getppid() != request.parent:
        if HOST.now_ns() > until:
            os._exit(1)
        time.sleep(0.0002)
    _die_with(request.parent)
    if request.session:
        os.setsid()
    high = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE) for each in files]
    for each in files:
        os.close(each)
    link.close()
    for each, number in zip(high, request.files, strict=True):
        os.dup2(each, number)
        os.close(each)
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.folder)
    if not sys.flags.safe_path:
        sys.path[0] = request.folder
    if request.environment.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    sys.path[1:1] = [
        each for each in request.environment.get("PYTHONPATH", "").split(os.pathsep) if each not in sys.path
    ]
    # Give the random generators of this process their own states, as in a new interpreter.
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    _populate(memory)
    _restart_threads()
    _started = "fork"
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _die_with(parent: int) -> None:
    die_with_parent()
    if os.getppid() != parent:
        os._exit(1)


def _resident() -> list[tuple[int, int, int]]:
    """The resident pages of this process as ranges: the advice that makes them resident in a child, address, length."""
    import numpy as np

    page, found = os.sysconf("SC_PAGE_SIZE"), []
    with suppress(OSError), (_SELF / "pagemap").open("rb", 0) as pagemap:
        for line in (_SELF / "maps").read_text().splitlines():
            place, kind, *_ = line.split()
            begin, end = (int(each, 16) for each in place.split("-"))
            if kind[0] != "r" or kind[3] != "p" or line.endswith(("[vvar]", "[vdso]", "[vsyscall]", "[vvar_vclock]")):
                continue
            pagemap.seek(begin // page * 8)
            entries = np.frombuffer(pagemap.read((end - begin) // page * 8), np.uint64)
            there, of_file = (entries & np.uint64(_PRESENT)) != 0, (entries & np.uint64(_OF_FILE)) != 0
            wanted = [(_POPULATE_READ, there & of_file)]
            if kind[1] == "w":
                wanted.append((_POPULATE_WRITE, there & ~of_file))
            for advice, pages in wanted:
                edges = np.flatnonzero(np.diff(np.concatenate(([0], pages.view(np.int8), [0]))))
                found += [
                    (advice, begin + int(first) * page, int(last - first) * page)
                    for first, last in edges.reshape(-1, 2)
                ]
    return found


def _populate(memory: Sequence[tuple[int, int, int]]) -> None:
    """Make these pages resident now instead of at first use."""
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    for advice, address, length in memory:
        madvise(address, length, advice)


def _restart_threads() -> None:
    """Restart the threads of each OpenBLAS: it ends them at a fork, but a new process has them after the import."""
    lines = (_SELF / "maps").read_text().splitlines()
    paths = {line.split(None, 5)[5] for line in lines if "openblas" in line and ".so" in line}
    for path in paths:
        library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD)
        for name in ("scipy_openblas_{}64_", "scipy_openblas_{}", "openblas_{}64_", "openblas_{}"):
            if hasattr(library, name.format("set_num_threads")):
                count = getattr(library, name.format("get_num_threads"))()
                getattr(library, name.format("set_num_threads"))(count)
                break


def _run(request: _Request) -> NoReturn:
    """As ``python -m`` does."""
    sys.orig_argv = [sys.executable, "-m", request.module, *request.arguments]
    sys.argv = ["", *request.arguments]
    # It may have been imported already, and runpy would warn that it runs again.
    sys.modules.pop(request.module, None)
    runpy.run_module(request.module, run_name="__main__", alter_sys=True)
    sys.exit(0)


if __name__ == "__main__":
    # Other code calls ``how_started`` of the module under its own name, not of ``__main__``.
    from levelbench.measure import forking  # noqa: PLW0406

    _run(forking.serve(sys.argv[1:]))
