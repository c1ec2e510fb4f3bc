"""Runs a function in its own process, which may crash, hang or eat memory without harming the caller.

The function is named ``module:function`` and called with a request and with ``say``, which sends a line of JSON back
immediately, so the caller knows how far it got. What it prints goes to standard error and is kept for error messages.
Within :func:`forking`, processes are forked from one that has done the imports, which saves seconds for each of many.
"""

from __future__ import annotations

import atexit
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NoReturn

from levelbench import errors
from levelbench.errors import DefinitionError, LevelbenchError, UnsupportedError
from levelbench.measure.forking import Child, ForkServer, can_fork, die_with_parent, how_started

if TYPE_CHECKING:
    from levelbench.checks.findings import Finding, Report

JsonLine = dict[str, Any]
Say = Callable[[JsonLine], None]

_PACKAGES: Final = str(Path(__file__).resolve().parents[2])
_MODULE: Final = "levelbench.checks.isolation"
_server: ForkServer | None = None
_processor_s: int | None = None


@contextlib.contextmanager
def forking(
    imports: Sequence[str], processor_s: int | None = None, prepare: Sequence[tuple[str, str]] = ()
) -> Iterator[None]:
    """Within, isolated functions run in processes forked from one that has imported these modules.

    It has also called ``prepare``: functions (``module:function``), each with a text. Where forking is impossible, they
    run in new interpreters as usual, and answer alike. A process ends when it has taken ``processor_s`` seconds of
    processor time: unlike seconds, they do not depend on how busy the machine is.
    """
    global _server, _processor_s  # noqa: PLW0603  # one server for all threads of this process
    if not can_fork():
        yield
        return
    with ForkServer(imports, prepare=prepare, measured=False) as server:
        with contextlib.suppress(UnsupportedError):
            server.wait_ready()
            _server = server
        _processor_s = processor_s
        try:
            yield
        finally:
            _server = _processor_s = None


_enough: ContextVar[Callable[[Finding], bool]] = ContextVar("enough", default=lambda _: False)


@contextlib.contextmanager
def until(enough: Callable[[Finding], bool]) -> Iterator[None]:
    """Within, a check in its own process ends with the first finding that is ``enough``: no further probe is run."""
    before = _enough.set(enough)
    try:
        yield
    finally:
        _enough.reset(before)


class _EnoughFound(Exception):
    """The findings suffice, so the process that is looking for more is killed."""


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
    silent_s: float | None = None,
    memory_bytes: int | None = None,
    variables: Mapping[str, str] | None = None,
) -> Ended:
    """Call ``function(request, say)`` in its own process; ``hear`` gets each line it sends as it arrives.

    After ``timeout_s`` seconds, or ``silent_s`` without a line, the process and all its children are killed. Beyond
    ``memory_bytes`` of private memory, its allocations fail. ``variables`` are added to its environment. ``request``
    and the lines consist of JSON types.
    """
    failure: JsonLine = {}
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as printed,
        _process(printed, timeout_s, variables or {}) as (process, answers, killed),
    ):
        assert process.stdin is not None
        job = {"function": function, "request": request, "memory_bytes": memory_bytes, "processor_s": _processor_s}
        # A process that is gone already is reported by how it ended.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(job).encode() + b"\n")
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        for text in _lines(process, answers.fileno(), silent_s, killed):
            line = json.loads(text)
            if "raised" in line:
                failure = line["raised"]
            else:
                hear(line)
        code = process.wait()
        timed_out = killed[:1]
        printed.seek(0)
        said = printed.read()
    ended = signal_name(-code) if code < 0 else f"exit code {code}" if code else ""
    error = _rebuilt(failure, said) if failure else None
    return Ended(timed_out[0], said, None, error) if timed_out else Ended(ended, said, code, error)


def report_isolated(
    function: str,
    request: Mapping[str, object],
    name: str,
    framework: str = "",
    *,
    tell: Callable[[str], None],
    timeout_s: float,
    memory_bytes: int | None = None,
) -> tuple[Report, JsonLine]:
    """The report of a check that runs in its own process, and the last line it sent (empty if it did not end).

    ``function`` sends ``{"started": probe}``, ``{"finding": ...}`` and finally ``{"done": [finding, ...]}``. A process
    that is killed by a signal or by its time limit is a failure of what it checks. Raises what prevents the check.
    Within :func:`until` it ends with the first finding that suffices.
    """
    # Supervisors of ranks use this module, too, and check nothing.
    from levelbench.checks.findings import Finding, Report, failed

    findings: list[Finding] = []
    done: JsonLine = {}
    started = ""

    def hear(line: JsonLine) -> None:
        nonlocal started
        if "started" in line:
            started = line["started"]
            tell(started)
        elif "finding" in line:
            findings.append(Finding(**line["finding"]))
            if enough(findings[-1]):
                raise _EnoughFound
        else:
            done.update(line)

    enough = _enough.get()
    try:
        ended = run_isolated(function, request, hear, timeout_s=timeout_s, memory_bytes=memory_bytes)
    except _EnoughFound:
        return Report(name, tuple(findings), framework), {}
    if ended.error is not None:
        raise ended.error
    if done:
        return Report(name, tuple(Finding(**each) for each in done["done"]), framework), done
    if not started:
        raise ended.death(f"{name} on {framework}" if framework else name)
    probe, _, case = started.partition(" on ")
    crash = failed(f"its process ended in the check {probe!r}: {ended.how}", case=case, probe="crash")
    return Report(name, (*findings, crash), framework), done


def _rebuilt(failure: JsonLine, printed: str) -> LevelbenchError:
    """The error that the process raised, with the same class if this process knows it."""
    kind = getattr(errors, failure["kind"], DefinitionError)
    found = kind if isinstance(kind, type) and issubclass(kind, LevelbenchError) else DefinitionError
    error = found.__new__(found)
    LevelbenchError.__init__(error, *failure["parts"])
    error.trace = printed
    return error


@contextlib.contextmanager
def _process(
    printed: IO[str], timeout_s: float | None, variables: Mapping[str, str]
) -> Iterator[tuple[Child, IO[bytes], list[str]]]:
    """A process that is killed at its time limit or on exit; what it answers; a list with the reason if it was killed.

    It leads its own session, so its children are killed with it.
    """
    killed: list[str] = []
    read, write = os.pipe()
    with os.fdopen(read, "rb") as answers:
        try:
            process = _started(write, printed.fileno(), variables)
        finally:
            os.close(write)

        def stop() -> None:
            killed.append(f"it did not end within {timeout_s:g} s")
            _end(process)

        timer = threading.Timer(timeout_s or 0.0, stop)
        if timeout_s is not None:
            timer.start()
        try:
            yield process, answers, killed
        finally:
            timer.cancel()
            _end(process)
            process.wait()


def _started(answers: int, printed: int, variables: Mapping[str, str]) -> Child:
    inherited = os.environ.get("PYTHONPATH")
    paths = os.pathsep.join([_PACKAGES, *([inherited] if inherited else [])])
    environment = {**os.environ, **variables, "PYTHONPATH": paths}
    # A library to preload, say, is read only by a new interpreter.
    if _server is not None and not variables:
        return _server.start(
            "levelbench.checks.isolation", [], stdout=answers, stderr=printed, environment=environment, session=True
        )
    return subprocess.Popen(
        [sys.executable, "-m", "levelbench.checks.isolation"],
        stdin=subprocess.PIPE,
        stdout=answers,
        stderr=printed,
        env=environment,
        start_new_session=True,
    )


def _end(process: Child) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _lines(process: Child, output: int, silent_s: float | None, killed: list[str]) -> Iterator[bytes]:
    """The lines that a process writes to ``output`` until it ends, even if a child keeps that open.

    It is killed after ``silent_s`` seconds without anything written, and the list gets the reason.
    """
    os.set_blocking(output, False)
    over, ended = os.pipe()

    def wait() -> None:
        process.wait()
        os.close(ended)

    threading.Thread(target=wait, daemon=True).start()
    left, running = b"", True
    try:
        while running:
            ready, _, _ = select.select([output, over], [], [], silent_s)
            if not ready:
                killed.append(f"it said nothing for {silent_s:g} s")
                _end(process)
                return
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

    if job["processor_s"] is not None:
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (job["processor_s"], most))
    module, _, name = job["function"].partition(":")
    try:
        getattr(import_module(module), name)(job["request"], say)
    except LevelbenchError as error:
        traceback.print_exc()
        say({"raised": {"kind": type(error).__name__, "parts": [error.asked, error.found, error.do]}})
    if how_started() == "fork":
        _leave()


def _leave() -> NoReturn:
    """End in good order, but without freeing every object, for which all memory shared with the server is copied."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()


def signal_name(number: int) -> str:
    """``SIGKILL``, or ``signal 40`` for one without a name (real-time signals have none)."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
