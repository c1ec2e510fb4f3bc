"""Lets the processes that the program starts be forked, for tests to which importing is not the point.

``python -m levelbench.x`` takes a second, most of it importing, and three with PyTorch. Here ``subprocess`` is made to
ask a ``levelbench.measure.forking`` server instead, also for the servers that the program itself starts.
"""

import inspect
import os
import subprocess
import sys
from contextlib import chdir, contextmanager
from pathlib import Path

from levelbench.measure.forking import ForkServer, can_fork

__all__ = ["TORCH", "WARM"]

MODULES = (
    "levelbench.measure.forking",
    "levelbench.experiments.child",
    "levelbench.experiments.networks",
    "levelbench.experiments.operators",
    "levelbench.experiments.inference.processes",
    "levelbench.experiments.inference.making",
    "levelbench.checks.isolation",
)
"""What is run in this way, and imported before."""
LATER = (
    "levelbench.operators.conformance",
    "levelbench.operators.custom.isolation",
    "levelbench.operators.probes.files",
    "levelbench.frameworks.numpy.backend",
    "array_api_compat.numpy",
)
"""What most of them import once they know what they are to do."""
TORCH = ("levelbench.frameworks.torch.executor", "array_api_compat.torch")
"""What there is to import for a run on PyTorch."""


_ENDS = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
# What is replaced is private to CPython: where another version has it otherwise, real processes do, and take longer.
_KNOWN = can_fork() and {*_ENDS, "pass_fds", "cwd", "env", "start_new_session"} <= set(
    inspect.signature(subprocess.Popen._execute_child).parameters if hasattr(subprocess.Popen, "_execute_child") else ()
)


def _can_be_forked(args):
    words = list(args) if isinstance(args, list) and _KNOWN else []
    return "-m" in words and words[0] == sys.executable and words[words.index("-m") + 1] in MODULES


class Warm:
    """Starts what ``subprocess`` is asked to start, from the process that has imported it."""

    def __init__(self):
        self._servers = {}
        self._real = subprocess.Popen._execute_child
        self.beside = ()

    @contextmanager
    def processes(self, *beside):
        """Within it the modules above are forked; what is imported ``beside`` them is there already."""
        before = self.beside, subprocess.Popen._execute_child
        real, warm = self._real, self

        def execute(self, args, *given):
            if _can_be_forked(args):
                words = list(args)
                bound = inspect.signature(real).bind(self, args, *given).arguments
                self.pid = warm.fork(words, bound)
                self._child_created = True
                self._close_pipe_fds(*(bound[end] for end in _ENDS))
            else:
                real(self, args, *given)

        self.beside = beside
        subprocess.Popen._execute_child = execute
        try:
            yield
        finally:
            self.beside, subprocess.Popen._execute_child = before

    @contextmanager
    def cold(self):
        """Within it every process is made as ``subprocess`` makes it, whatever is around it."""
        before = subprocess.Popen._execute_child
        subprocess.Popen._execute_child = self._real
        try:
            yield
        finally:
            subprocess.Popen._execute_child = before

    def fork(self, words, given):
        """The process id of a new child of ours that runs these words."""
        ends = enumerate(("p2cread", "c2pwrite", "errwrite"))
        stdin, stdout, stderr = (own if given[name] == -1 else given[name] for own, name in ends)
        at = words.index("-m") + 1
        environment = given["env"]
        if "faulthandler" in words[:at]:
            environment = {**(environment or os.environ), "PYTHONFAULTHANDLER": "1"}
        child = self._server().start(
            words[at],
            words[at + 1 :],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=[int(each) for each in given["pass_fds"]],
            environment=environment,
            folder=Path(given["cwd"] or Path.cwd()),
            session=bool(given["start_new_session"]),
        )
        return child.pid

    def _server(self):
        if self.beside not in self._servers:
            with self.cold(), chdir(Path(__file__).parents[1]):
                self._servers[self.beside] = ForkServer([*self.beside, *MODULES, *LATER])
            self._servers[self.beside].wait_ready()
        return self._servers[self.beside]

    def close(self):
        """End the processes that wait to be forked."""
        for server in self._servers.values():
            server.close()
        self._servers.clear()


WARM = Warm()
