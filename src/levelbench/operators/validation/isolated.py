"""Checks the operators of a file in processes of their own: one that crashes or hangs is a finding, and no more."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from levelbench import errors
from levelbench.errors import DefinitionError, LevelbenchError
from levelbench.operators.validation.files import Request
from levelbench.operators.validation.findings import Finding, Report, failed

__all__ = ["check_isolated", "names_isolated"]

_WORKER: Final = [sys.executable, "-m", "levelbench.operators.validation.worker"]
_PACKAGES: Final = str(Path(__file__).resolve().parents[3])


@dataclass
class _Said:
    """What a process said, and how it ended."""

    names: list[str] | None = None
    findings: list[Finding] = field(default_factory=list)
    done: list[Finding] | None = None
    started: str = ""
    error: dict[str, Any] | None = None
    how: str = ""
    printed: str = ""


def names_isolated(path: Path, timeout_s: float = 300.0) -> list[str]:
    """The names of the operators of a file, which is loaded (and compiled) in a process of its own.

    Raises what loading it raises, ``DefinitionError`` for a file that ends or hangs the process.
    """
    said = _ask({"list": str(path)}, timeout_s)
    if said.error is not None:
        raise _again(said)
    if said.names is None:
        raise _died(f"the operator file {path}", said)
    return said.names


def check_isolated(
    request: Request, tell: Callable[[str], None] = lambda _: None, timeout_s: float = 300.0
) -> tuple[Report, NDArray[np.float64] | None]:
    """The report on one operator, and its deviation from the reference; ``tell`` hears of each check as it begins.

    A process that dies by a signal or does not end within ``timeout_s`` seconds is a finding against the operator.
    Raises what stands in the way of checking it at all.
    """
    with tempfile.TemporaryDirectory(prefix="levelbench-") as folder:
        place = Path(folder) / "deviation.npy"
        said = _ask(asdict(request), timeout_s, tell, [str(place)])
        if said.error is not None:
            raise _again(said)
        deviation = np.load(place, allow_pickle=False) if said.done is not None and place.exists() else None
    if said.done is not None:
        return Report(request.operator, tuple(said.done)), deviation
    if not said.started:
        raise _died(f"operator {request.operator} on {request.framework}", said)
    check, _, case = said.started.partition(" on ")
    crash = failed("crash", f"its process ended in the check {check!r}: {said.how}", case)
    return Report(request.operator, (*said.findings, crash)), None


@contextlib.contextmanager
def _process(
    words: list[str], printed: IO[str], timeout_s: float
) -> Iterator[tuple[subprocess.Popen[bytes], list[str]]]:
    """A process that is killed after ``timeout_s`` seconds, or when it is left; and what was done to it.

    What it started goes with it, as it is the first of a session.
    """
    inherited = os.environ.get("PYTHONPATH")
    paths = os.pathsep.join([_PACKAGES, *([inherited] if inherited else [])])
    done: list[str] = []
    pipe = subprocess.PIPE
    environment = {**os.environ, "PYTHONPATH": paths}
    with subprocess.Popen(
        words, stdin=pipe, stdout=pipe, stderr=printed, env=environment, start_new_session=True
    ) as process:

        def stop() -> None:
            done.append(f"it did not end within {timeout_s:g} s")
            _end(process)

        timer = threading.Timer(timeout_s, stop)
        timer.start()
        try:
            yield process, done
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


def _ask(
    request: dict[str, Any],
    timeout_s: float,
    tell: Callable[[str], None] = lambda _: None,
    words: list[str] | None = None,
) -> _Said:
    said = _Said()
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as printed,
        _process([*_WORKER, *(words or [])], printed, timeout_s) as (process, done),
    ):
        assert process.stdin is not None
        # One that is gone already says so by how it ended.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(request).encode() + b"\n")
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        for line in _lines(process):
            _hear(json.loads(line), said, tell)
        process.wait()
        timed_out = done[:1]
        printed.seek(0)
        said.printed = printed.read()
    code = process.returncode
    ended = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    said.how = timed_out[0] if timed_out else ended
    return said


def _hear(line: dict[str, Any], said: _Said, tell: Callable[[str], None]) -> None:
    if "started" in line:
        said.started = line["started"]
        tell(said.started)
    elif "finding" in line:
        said.findings.append(Finding(**line["finding"]))
    elif "done" in line:
        said.done = [Finding(**each) for each in line["done"]]
    elif "names" in line:
        said.names = line["names"]
    else:
        said.error = line["error"]


def _again(said: _Said) -> LevelbenchError:
    """The error that the process raised, of the same kind where this one knows it."""
    assert said.error is not None
    kind = getattr(errors, said.error["kind"], DefinitionError)
    found = kind if isinstance(kind, type) and issubclass(kind, LevelbenchError) else DefinitionError
    error = found.__new__(found)
    LevelbenchError.__init__(error, *said.error["parts"])
    error.trace = said.printed
    return error


def _died(asked: str, said: _Said) -> DefinitionError:
    lines = said.printed.strip().splitlines()
    last = f"; it last printed: {lines[-1][:200]}" if lines else ""
    error = DefinitionError(asked, f"its process ended: {said.how}{last}", "--debug shows all that it printed")
    error.trace = said.printed
    return error
