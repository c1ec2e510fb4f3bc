"""Processes that are forked from one which has the imports behind it, for tests to which importing is not the point.

``python -m levelbench.x`` takes a second, most of it importing, and three with PyTorch. What is forked
from a process that has imported and done nothing else is as fresh: it has its own files, environment, session and
signals, and is this process's child, to be waited for and killed. Only the seed of its hashes is that of the others.
"""

from __future__ import annotations

import ctypes
import inspect
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["TORCH", "WARM", "Warm", "main"]

_PR_SET_CHILD_SUBREAPER = 36
_FIRST_FREE = 200
"""File descriptors come in above this number, so that none is in the way of those that the child is to have."""

MODULES = (
    "levelbench.runner.child",
    "levelbench.runner.network_child",
    "levelbench.runner.benchmark_child",
    "levelbench.runner.inference.child",
    "levelbench.runner.inference.training",
    "levelbench.checks.isolation",
)
"""What is run in this way, and imported before."""
LATER = (
    "levelbench.operators.conformance",
    "levelbench.operators.custom.isolation",
    "levelbench.operators.probes.files",
    "levelbench.frameworks.numpy.executor",
    "array_api_compat.numpy",
)
"""What most of them import once they know what they are to do."""
TORCH = ("levelbench.frameworks.torch.executor", "array_api_compat.torch")
"""What there is to import for a run on PyTorch."""


_ENDS = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
# What is replaced is private to CPython: where another version has it otherwise, real processes do, and take longer.
_KNOWN = sys.platform == "linux" and {*_ENDS, "pass_fds", "cwd", "env", "start_new_session"} <= set(
    inspect.signature(subprocess.Popen._execute_child).parameters if hasattr(subprocess.Popen, "_execute_child") else ()
)


def _can_be_forked(args: Any) -> bool:
    words = list(args) if isinstance(args, list) and _KNOWN else []
    return "-m" in words and words[0] == sys.executable and words[words.index("-m") + 1] in MODULES


class Warm:
    """Starts what ``subprocess`` is asked to start, from the process that has imported it."""

    def __init__(self) -> None:
        self._servers: dict[tuple[str, ...], tuple[subprocess.Popen[bytes], socket.socket]] = {}
        self._turn = threading.Lock()
        self._real = subprocess.Popen._execute_child
        self.beside: tuple[str, ...] = ()

    @contextmanager
    def processes(self, *beside: str) -> Iterator[None]:
        """Within it the modules above are forked; what is imported ``beside`` them is there already."""
        before = self.beside, subprocess.Popen._execute_child
        real, warm = self._real, self

        def execute(self: subprocess.Popen[Any], args: Any, *given: Any) -> None:
            if _can_be_forked(args):
                words = list(args)
                bound = inspect.signature(real).bind(self, args, *given).arguments
                self.pid = warm.fork(words, bound)
                self._child_created = True
                self._close_pipe_fds(*(bound[end] for end in _ENDS))
            else:
                real(self, args, *given)

        self.beside = beside
        subprocess.Popen._execute_child = execute  # type: ignore[method-assign]
        try:
            yield
        finally:
            self.beside, subprocess.Popen._execute_child = before  # type: ignore[method-assign]

    @contextmanager
    def cold(self) -> Iterator[None]:
        """Within it every process is made as ``subprocess`` makes it, whatever is around it."""
        before = subprocess.Popen._execute_child
        subprocess.Popen._execute_child = self._real  # type: ignore[method-assign]
        try:
            yield
        finally:
            subprocess.Popen._execute_child = before  # type: ignore[method-assign]

    def fork(self, words: list[str], given: dict[str, Any]) -> int:
        """The process id of a new child of ours that runs these words."""
        standard = [
            own if given[name] == -1 else given[name] for own, name in enumerate(("p2cread", "c2pwrite", "errwrite"))
        ]
        passed = [int(each) for each in given["pass_fds"]]
        asked = {
            "words": words,
            "cwd": os.fspath(given["cwd"] or Path.cwd()),
            "environment": dict(os.environ if given["env"] is None else given["env"]),
            "session": bool(given["start_new_session"]),
            "files": [0, 1, 2, *passed],
            "parent": os.getpid(),
        }
        with self._turn:
            link = self._server()
            prctl = ctypes.CDLL(None).prctl
            # What the fork in between leaves behind comes to us, and not to the first process.
            prctl(_PR_SET_CHILD_SUBREAPER, 1)
            try:
                text = json.dumps(asked).encode()
                socket.send_fds(link, [len(text).to_bytes(8, "big")], [*standard, *passed])
                link.sendall(text)
                answer = link.recv(8)
            finally:
                prctl(_PR_SET_CHILD_SUBREAPER, 0)
        assert len(answer) == 8, "the process that has the imports behind it is gone"
        return int.from_bytes(answer, "big")

    def _server(self) -> socket.socket:
        if self.beside not in self._servers:
            ours, theirs = socket.socketpair()
            with theirs, self.cold():
                process = subprocess.Popen(
                    [sys.executable, "-m", "tests.warm", str(theirs.fileno()), *self.beside],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    cwd=Path(__file__).parents[1],
                )
            self._servers[self.beside] = process, ours
        return self._servers[self.beside][1]

    def close(self) -> None:
        """End the processes that wait to be forked."""
        for process, link in self._servers.values():
            link.close()
            process.wait()
        self._servers.clear()


WARM = Warm()


def main(link: socket.socket) -> list[str]:
    """Import, and answer each request with a fork; in the fork, return the words that it is to run."""
    import gc
    import importlib

    for name in (*sys.argv[2:], *MODULES, *LATER):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    while True:
        size, files, _, _ = socket.recv_fds(link, 8, 16)
        if not size:
            sys.exit(0)
        text = b""
        while len(text) < int.from_bytes(size, "big"):
            text += link.recv(1 << 16)
        between = os.fork()
        if not between:
            if not os.fork():
                return _begin(link, files, json.loads(text))
            os._exit(0)
        os.waitpid(between, 0)
        for each in files:
            os.close(each)


def _begin(link: socket.socket, files: list[int], asked: dict[str, Any]) -> list[str]:
    """Become what was asked for: its files, environment, folder and session."""
    import fcntl
    import time

    import numpy as np

    np.random.seed()
    while os.getppid() != asked["parent"]:
        time.sleep(0.0005)
    if asked["session"]:
        os.setsid()
    high = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE) for each in files]
    answering = fcntl.fcntl(link, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE)
    for each in files:
        os.close(each)
    link.close()
    for each, number in zip(high, asked["files"], strict=True):
        os.dup2(each, number)
        os.close(each)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["cwd"])
    os.write(answering, os.getpid().to_bytes(8, "big"))
    os.close(answering)
    return list(asked["words"])


def _as_python_would(words: list[str]) -> None:
    """Run the module as ``python -m`` does."""
    import faulthandler
    import runpy

    named = words.index("-m") + 1
    if "faulthandler" in words[:named]:
        faulthandler.enable()
    sys.orig_argv, sys.argv = words, words[named:]
    sys.path[0] = str(Path.cwd())
    sys.path[1:1] = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each not in sys.path]
    # Imported before, and now run: runpy warns of it.
    del sys.modules[words[named]]
    runpy.run_module(words[named], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _as_python_would(main(socket.socket(fileno=int(sys.argv[1]))))
