"""How the processes of one command are started: forked from servers that have done the imports, or as new interpreters.

All processes of a command start in the same way, as runs that were started in two ways are compared with a doubt. They
are forked where every framework of the command allows it: on Linux and on a CPU, where what it imports leaves no thread
behind. Elsewhere all are new interpreters, and with ``--spawn``.

Each framework has a server of its own, which has imported levelbench's part of a run and the framework, and no code of
a user. Arms on one framework share it, so that they are compared in one layout of addresses and with one seed of
hashes. After ``ROUNDS`` processes of each arm all servers are new. What a run allocates lies elsewhere in memory each
time, as in a new interpreter, since the kernel chooses the pages of each process; what one server hides is how virtual
addresses lie and how strings hash. The five runs of a default command share these, so their interval is one of this
layout; the twenty that settle a small difference are spread over four. With fewer runs a server would cost what forking
saves: to import PyTorch takes as long as twenty runs of ``digits``.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Final, final

from levelbench.errors import UnsupportedError
from levelbench.measure.forking import Child, ForkServer, Start, can_fork

__all__ = ["ROUNDS", "Starter", "spawn"]

ROUNDS: Final = 5
"""After so many processes of each arm the servers are new."""


def spawn(module: str, arguments: Sequence[str], output: int, pass_fds: Sequence[int]) -> Child:
    """``python -m module`` with ``arguments``, as a new interpreter that prints to the descriptor ``output``."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output,
        pass_fds=tuple(pass_fds),
    )


@final
class Starter(AbstractContextManager["Starter"]):
    """Starts processes that run ``module`` on ``arms``, each a framework and a device; leaving it ends its servers.

    With ``fork`` false all are new interpreters.
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
        """Make ready for process ``number`` (from 0) of each arm, with new servers where their turn has come."""
        if self.how == "spawn" or number // ROUNDS == self._round:
            return
        self._close()
        self._round = number // ROUNDS
        try:
            from levelbench.operators.frameworks import load_framework

            for framework in dict.fromkeys(name for name, _ in self._arms):
                imports = load_framework(framework).imports
                self._servers[framework] = ForkServer([self._module, *imports])
            # They import side by side, and nothing is measured meanwhile.
            for server in self._servers.values():
                server.wait_ready()
        except UnsupportedError:
            self._close()
            self.how = "spawn"

    def start(self, framework: str, arguments: Sequence[str], output: int, pass_fds: Sequence[int]) -> Child:
        """A process on ``framework`` that prints to the descriptor ``output``; its job goes to its ``stdin``."""
        if self.how == "fork":
            server = self._servers[framework]
            try:
                return server.start(self._module, arguments, stdout=output, stderr=output, pass_fds=tuple(pass_fds))
            except UnsupportedError:
                # Somebody has ended it, as the kernel does where memory is short.
                self._close()
                self.how = "spawn"
        return spawn(self._module, arguments, output, pass_fds)

    def _close(self) -> None:
        for server in self._servers.values():
            server.close()
        self._servers.clear()
