"""Runs a function in a process of its own, which may crash, hang or eat memory without harm to the one that asks.

The function is named ``module:function`` and called with a request and with ``say``, which sends a line of JSON back at
once: so whoever asks knows how far it came. What it prints goes to standard error and is kept for the error message.
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

__all__ = ["JsonLine", "Say", "run_isolated", "signal_name"]

JsonLine = dict[str, Any]
Say = Callable[[JsonLine], None]

_PACKAGES: Final = str(Path(__file__).resolve().parents[2])


@dataclass(frozen=True)
class Ended:
    """How a process ended.

    ``how`` is empty if it came to its end, else ``SIGSEGV``, ``exit code 3``, or that it did not end in its time.
    ``code`` is its exit status, below zero the signal that ended it, ``None`` at its time limit; ``error`` is what it
    raised of levelbench's own errors; ``printed`` all that it printed.
    """

    how: str
    printed: str
    code: int | None
    error: LevelbenchError | None = None

    def death(self, asked: str) -> DefinitionError:
        """The error that says how it ended, with the last line that it printed."""
        lines = self.printed.strip().splitlines()
        last = f"; it last printed: {lines[-1][:200]}" if lines else ""
        error = DefinitionError(asked, f"its process ended: {self.how}{last}", "--debug shows all that it printed")
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
    """Call ``function(request, say)`` in a process of its own; ``hear`` gets each line that it says, as it comes.

    After ``timeout_s`` seconds the process and whatever it started are killed. Beyond ``memory_bytes`` of memory of its
    own, its allocations fail. ``request`` and lines are of JSON types.
    """
    failure: JsonLine = {}
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as printed,
        _process(printed, timeout_s) as (process, killed),
    ):
        assert process.stdin is not None
        job = {"function": function, "request": request, "memory_bytes": memory_bytes}
        # One that is gone already says so by how it ended.
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
    error = _again(failure, said) if failure else None
    return Ended(timed_out[0], said, None, error) if timed_out else Ended(ended, said, code, error)


def _again(failure: JsonLine, printed: str) -> LevelbenchError:
    """The error that the process raised, of the same kind where this one knows it."""
    kind = getattr(errors, failure["kind"], DefinitionError)
    found = kind if isinstance(kind, type) and issubclass(kind, LevelbenchError) else DefinitionError
    error = found.__new__(found)
    LevelbenchError.__init__(error, *failure["parts"])
    error.trace = printed
    return error


@contextlib.contextmanager
def _process(printed: IO[str], timeout_s: float | None) -> Iterator[tuple[subprocess.Popen[bytes], list[str]]]:
    """A process that is killed at its time limit, or when it is left; and why it was killed.

    What it started goes with it, as it is the first of a session.
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
    """The lines that a process writes until it ends, even if what it started holds its output open."""
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
            # It is seen to have ended before the last of what it wrote is read.
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
    """Carry out the job on standard input."""
    die_with_parent()
    # What the function prints must not come between our lines.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    job = json.loads(sys.stdin.readline())
    if job["memory_bytes"] is not None:
        # Not RLIMIT_AS: frameworks reserve address space that they never touch.
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
    """``SIGKILL``; ``signal 40`` for one without a name, as real-time signals have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
