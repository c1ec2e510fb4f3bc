"""Runs a function in its own process, which may crash, hang or eat memory without harming the caller.

The function is named ``module:function`` and called with a request and with ``say``, which sends a line of JSON back
immediately, so the caller knows how far it got. What it prints goes to standard error and is kept for error messages.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Final

from levelbench import errors
from levelbench.errors import DefinitionError, LevelbenchError
from levelbench.measure.forking import die_with_parent

JsonLine = dict[str, Any]
Say = Callable[[JsonLine], None]

_PACKAGES: Final = str(Path(__file__).resolve().parents[2])


@dataclass(frozen=True)
class Ended:
    """How a process ended.

    ``how`` is empty if it finished, else ``SIGSEGV``, ``exit code 3``, or that it exceeded its time limit. ``code`` is
    its exit status: negative for the signal that ended it, ``None`` at its time limit. ``error`` is the levelbench
    error it raised, if any; ``printed`` is everything it printed.
    """

    how: str
    printed: str
    code: int | None
    error: LevelbenchError | None = None

    def death(self, asked: str) -> DefinitionError:
        """An error that says how it ended, with the last line that it printed."""
        lines = self.printed.strip().splitlines()
        last = f"; it last printed: {lines[-1][:200]}" if lines else ""
        error = DefinitionError(asked, f"its process ended: {self.how}{last}", "use --debug to see all it printed")
        error.trace = self.printed
        return error


def run_isolated(
    function: str,
    request: Mapping[str, object],
    hear: Say,
    *,
    timeout_s: float | None = None,
    memory_bytes: int | None = None,
) -> Ended:
    """Call ``function(request, say)`` in its own process; ``hear`` gets each line it sends as it arrives.

    After ``timeout_s`` seconds the process and all its children are killed. Beyond ``memory_bytes`` of private memory,
    its allocations fail. ``request`` and the lines consist of JSON types.
    """
    failure: JsonLine = {}
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as printed,
        _process(printed, timeout_s) as (process, killed),
    ):
        assert process.stdin is not None
        job = {"function": function, "request": request, "memory_bytes": memory_bytes}
        # A process that is gone already is reported by how it ended.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(job).encode() + b"\n")
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        for text in _lines(process):
            line = json.loads(text)
            if "raised" in line:
                failure = line["raised"]
            else:
                hear(line)
        process.wait()
        timed_out = killed[:1]
        printed.seek(0)
        said = printed.read()
    code = process.returncode
    ended = signal_name(-code) if code < 0 else f"exit code {code}" if code else ""
    error = _rebuilt(failure, said) if failure else None
    return Ended(timed_out[0], said, None, error) if timed_out else Ended(ended, said, code, error)


def _rebuilt(failure: JsonLine, printed: str) -> LevelbenchError:
    """The error that the process raised, with the same class if this process knows it."""
    kind = getattr(errors, failure["kind"], DefinitionError)
    found = kind if isinstance(kind, type) and issubclass(kind, LevelbenchError) else DefinitionError
    error = found.__new__(found)
    LevelbenchError.__init__(error, *failure["parts"])
    error.trace = printed
    return error


@contextlib.contextmanager
def _process(printed: IO[str], timeout_s: float | None) -> Iterator[tuple[subprocess.Popen[bytes], list[str]]]:
    """A process that is killed at its time limit or on exit; and a list with the reason if the limit was reached.

    It leads its own session, so its children are killed with it.
    """
    inherited = os.environ.get("PYTHONPATH")
    paths = os.pathsep.join([_PACKAGES, *([inherited] if inherited else [])])
    killed: list[str] = []
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-m", "levelbench.checks.isolation"],
        stdin=pipe,
        stdout=pipe,
        stderr=printed,
        env={**os.environ, "PYTHONPATH": paths},
        start_new_session=True,
    ) as process:

        def stop() -> None:
            killed.append(f"it did not end within {timeout_s:g} s")
            _end(process)

        timer = threading.Timer(timeout_s or 0.0, stop)
        if timeout_s is not None:
            timer.start()
        try:
            yield process, killed
        finally:
            timer.cancel()
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _lines(process: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """The lines that a process writes until it ends, even if a child keeps its output open."""
    assert process.stdout is not None
    output = process.stdout.fileno()
    os.set_blocking(output, False)
    over, ended = os.pipe()

    def wait() -> None:
        process.wait()
        os.close(ended)

    threading.Thread(target=wait, daemon=True).start()
    left, running = b"", True
    try:
        while running:
            ready, _, _ = select.select([output, over], [], [])
            # Check that it has ended before reading, so that its last output is read too.
            running = over not in ready
            with contextlib.suppress(BlockingIOError):
                while part := os.read(output, 1 << 16):
                    left += part
                running = False
            *lines, left = left.split(b"\n")
            yield from lines
    finally:
        os.close(over)


def main() -> None:
    """Do the job given on standard input."""
    die_with_parent()
    # What the function prints must not mix with our lines.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    job = json.loads(sys.stdin.readline())
    if job["memory_bytes"] is not None:
        # Not RLIMIT_AS: frameworks reserve address space that they never use.
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        cap = job["memory_bytes"] if most == resource.RLIM_INFINITY else min(job["memory_bytes"], most)
        resource.setrlimit(resource.RLIMIT_DATA, (cap, most))

    def say(line: JsonLine) -> None:
        print(json.dumps(line), file=answers)

    module, _, name = job["function"].partition(":")
    try:
        getattr(import_module(module), name)(job["request"], say)
    except LevelbenchError as error:
        traceback.print_exc()
        say({"raised": {"kind": type(error).__name__, "parts": [error.asked, error.found, error.do]}})


if __name__ == "__main__":
    main()


def signal_name(number: int) -> str:
    """``SIGKILL``, or ``signal 40`` for one without a name (real-time signals have none)."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
