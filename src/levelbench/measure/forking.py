"""Processes forked from one that has done the imports: as fresh as ``python -m module``, without the wait for them.

A server imports what its children need and runs nothing else. Each child is forked from it and then made what a new
interpreter would be:

- It is a child of the process that asked for it, which waits for it and kills it as any other; it dies with it.
- It has its own files, environment, folder, session and signals, and draws its own random numbers.
- Its memory is its own. Pages that it would share with the server until it writes to them are copied, and the pages
  of libraries that the imports touched are mapped, before it begins: neither the faults of that nor a smaller peak are
  measured in its place. (This takes ``MADV_POPULATE_READ``, Linux 5.14; older kernels do it page by page, when needed.)
- Numeric libraries whose threads end at a fork have started them again.

A server whose imports leave threads behind that do not survive a fork refuses to serve, and says so.

What the children of one server do share is the layout of virtual addresses and the seed of string hashes. Programs run
a little faster or slower by either (Mytkowicz et al. 2009, ASPLOS; Curtsinger & Berger 2013, ASPLOS), which runs of one
server cannot show; so whoever measures starts a new server every few runs.
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

__all__ = ["Child", "ForkServer", "Start", "adopting", "can_fork", "how_started", "serve"]


_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies, so that no run goes on that nobody waits for."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def end_on_interrupt() -> None:
    """An interrupt ends this process at once and without a traceback: what it means is the parent's decision.

    Where interrupts are ignored (a command started with ``&`` in a script), they stay ignored, as in the parent.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


Start = Literal["fork", "spawn"]

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_POPULATE_READ, _POPULATE_WRITE = 22, 23
_PRESENT, _OF_FILE = 1 << 63, 1 << 61
_SELF: Final = Path("/proc/self")
_FIRST_FREE: Final = 200
"""File descriptors arrive above this number, so that none is in the way of those that the child is to have."""
_MOST_FILES: Final = 32
_GONE_NS: Final = 200_000_000
"""How long a thread that has ended may still be listed."""
_ADOPTED_NS: Final = 10_000_000_000
"""How long a child waits to become that of the process that asked for it, which takes some microseconds."""

_started: Start = "spawn"


def how_started() -> Start:
    """How this process was started: forked from a server, or as a new interpreter."""
    return _started


def can_fork() -> bool:
    """Whether this system has what a server needs."""
    return sys.platform == "linux" and hasattr(os, "pidfd_open")


class Child(Protocol):
    """A process that was started: the part of ``subprocess.Popen`` that is used of it."""

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
        # Nobody else waits for it, so its number is its own until we have.
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _ended(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


class _Wish(NamedTuple):
    """What a child is to be. ``files`` are the numbers of the descriptors that come with it."""

    module: str
    arguments: list[str]
    environment: dict[str, str]
    folder: str
    session: bool
    files: list[int]
    parent: int


@final
class ForkServer(AbstractContextManager["ForkServer"]):
    """A process that imports the modules ``imports``, and from which others are forked; it is ended on leaving.

    ``wait_ready`` comes before the first ``start``.
    """

    def __init__(self, imports: Sequence[str]) -> None:
        self._turn = threading.Lock()
        self._link, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
            )
        _send(self._link, list(imports))

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait_ready(self) -> None:
        """Return when the imports are done; ``UnsupportedError`` where it cannot serve, with the reason."""
        found = _read(self._link)
        if found is None or found:
            reason = "their server ended while it imported" if found is None else str(found)
            raise UnsupportedError("processes that are forked", reason, "start them as new interpreters (--spawn)")

    def close(self) -> None:
        """End the server; its children go on."""
        self._link.close()
        self._process.kill()
        self._process.wait()

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
        from a pipe, to which its attribute of that name writes. ``UnsupportedError`` where the server has gone.
        """
        read, write = (stdin, -1) if stdin is not None else os.pipe()
        wish = _Wish(
            module,
            list(arguments),
            dict(os.environ if environment is None else environment),
            os.fspath(folder or Path.cwd()),
            session,
            [0, 1, 2, *pass_fds],
            os.getpid(),
        )
        try:
            pid = self._fork(wish, [read, stdout, stderr, *pass_fds])
        except BaseException:
            if write >= 0:
                os.close(write)
            raise
        finally:
            if write >= 0:
                os.close(read)
        return _Forked(pid, os.fdopen(write, "wb") if write >= 0 else None)

    def _fork(self, wish: _Wish, files: list[int]) -> int:
        # The server forks twice, so that the second process has lost its parent and comes to us.
        with self._turn, adopting():
            try:
                text = json.dumps(wish).encode()
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
    """Processes below this one that lose their parent in the meantime become its children, on Linux."""
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


def _send(link: socket.socket, what: object) -> None:
    link.sendall(json.dumps(what).encode() + b"\n")


def _read(link: socket.socket) -> Any:
    """The next line of JSON; ``None`` where the other side has closed."""
    line = b""
    while not line.endswith(b"\n"):
        if not (part := link.recv(1 << 16)):
            return None
        line += part
    return json.loads(line)


def serve(arguments: Sequence[str]) -> _Wish:
    """The server: import, then fork a child for each wish that comes; returns in the child, with its wish."""
    import fcntl

    # An interrupt is for the process that asked, and for the children.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    link, parent = socket.socket(fileno=int(arguments[0])), os.getppid()
    _die_with(parent)
    reason = ""
    try:
        for name in _read(link) or ():
            importlib.import_module(name)
    except Exception as error:  # noqa: BLE001  # the asker spawns instead, and its process raises the error again
        reason = f"importing {name} raised {type(error).__name__}: {error}"
    gc.collect()
    gc.freeze()
    reason = reason or _threads_that_stay()
    _send(link, reason)
    memory = _resident()
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
                wish = _Wish(*json.loads(text))
                answering = link.fileno()
                try:
                    answering = fcntl.fcntl(link, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE)
                    _become(wish, link, files, memory)
                    answer: int | str = os.getpid()
                except OSError as error:
                    # Whoever asked waits for an answer, and the server lives on.
                    answer = f"the process that was forked could not begin: {error.strerror}"
                os.write(answering, json.dumps(answer).encode() + b"\n")
                os.close(answering)
                if isinstance(answer, str):
                    os._exit(1)
                return wish
            os._exit(0)
        os.waitpid(between, 0)
        for each in files:
            os.close(each)


def _threads_that_stay() -> str:
    """Why this process cannot be forked: threads that are still there after a fork, where libraries end their own."""
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
    return f"the imports start {threads}, which a forked process would not have"


def _become(wish: _Wish, link: socket.socket, files: Sequence[int], memory: Sequence[tuple[int, int, int]]) -> None:
    """Become what was asked for."""
    global _started  # noqa: PLW0603  # a fact about this process
    import fcntl

    until = HOST.now_ns() + _ADOPTED_NS
    while os.getppid() != wish.parent:
        if HOST.now_ns() > until:
            os._exit(1)
        time.sleep(0.0002)
    _die_with(wish.parent)
    if wish.session:
        os.setsid()
    high = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE) for each in files]
    for each in files:
        os.close(each)
    link.close()
    for each, number in zip(high, wish.files, strict=True):
        os.dup2(each, number)
        os.close(each)
    os.environ.clear()
    os.environ.update(wish.environment)
    os.chdir(wish.folder)
    if not sys.flags.safe_path:
        sys.path[0] = wish.folder
    if wish.environment.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    sys.path[1:1] = [each for each in wish.environment.get("PYTHONPATH", "").split(os.pathsep) if each not in sys.path]
    # The generators of this process begin with states of their own, as those of a new interpreter do.
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    _own(memory)
    _restart_threads()
    _started = "fork"
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _die_with(parent: int) -> None:
    die_with_parent()
    if os.getppid() != parent:
        os._exit(1)


def _resident() -> list[tuple[int, int, int]]:
    """The pages that this process has, as ranges: advice for a child to have the same, address, length."""
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


def _own(memory: Sequence[tuple[int, int, int]]) -> None:
    """Have these pages now, and not when they are first used."""
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    for advice, address, length in memory:
        madvise(address, length, advice)


def _restart_threads() -> None:
    """Start the threads of each OpenBLAS again, which it ends at a fork and a new process has from its import on."""
    lines = (_SELF / "maps").read_text().splitlines()
    paths = {line.split(None, 5)[5] for line in lines if "openblas" in line and ".so" in line}
    for path in paths:
        library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD)
        for name in ("scipy_openblas_{}64_", "scipy_openblas_{}", "openblas_{}64_", "openblas_{}"):
            if hasattr(library, name.format("set_num_threads")):
                count = getattr(library, name.format("get_num_threads"))()
                getattr(library, name.format("set_num_threads"))(count)
                break


def _run(wish: _Wish) -> NoReturn:
    """As ``python -m`` does."""
    sys.orig_argv = [sys.executable, "-m", wish.module, *wish.arguments]
    sys.argv = ["", *wish.arguments]
    # It may have been imported for others, and runpy would warn that it is run again.
    sys.modules.pop(wish.module, None)
    runpy.run_module(wish.module, run_name="__main__", alter_sys=True)
    sys.exit(0)


if __name__ == "__main__":
    # ``how_started`` is asked of the module by its own name.
    from levelbench.measure import forking  # noqa: PLW0406

    _run(forking.serve(sys.argv[1:]))
