"""Starts one process a run and follows its record while it grows.

The record is the only channel for results. What a live display shows is read from the file that remains,
so nothing can be seen that was not written.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from levelbench.errors import LevelbenchError
from levelbench.experiments.jobs import Job, Message, phase_text
from levelbench.experiments.starting import Starter, spawn
from levelbench.experiments.witness import Parent
from levelbench.measure.clocks import HOST
from levelbench.measure.forking import Child
from levelbench.records import Event, Follower
from levelbench.records.schema import Between
from levelbench.training.pulse import Pulse

__all__ = ["CHILD", "Finished", "OnProgress", "launch"]

CHILD = "levelbench.experiments.child"
"""The module that the process of a run executes."""

_LOOK_S = 0.5
"""How often the record is looked at. Each look takes time from the run on a machine with few cores."""

OnProgress = Callable[[list[Event], float, str], None]


@dataclass(frozen=True)
class Finished:
    """How a process ended. ``path`` is its record, if it came so far; ``error`` what it told or how it died.

    ``testimony`` is what this process told it as the witness of its clock: its record has to hold that. ``None`` where
    the command on another node is the witness.
    """

    path: Path | None
    error: LevelbenchError | None
    testimony: tuple[Between, ...] | None = None


def launch(job: Job, on_progress: OnProgress | None = None, starter: Starter | None = None) -> Finished:
    """Run ``job`` to its end. ``on_progress`` gets new events, the elapsed seconds and the phase, twice a second.

    If this process is interrupted, the child is ended too; its record is left as interrupted. A run of several ranks
    is handed to its engine. Without a ``starter`` the child is a new interpreter.
    """
    if job.specification.distribution is not None:
        from levelbench.experiments.teams import run_team

        return Finished(*run_team(job, on_progress))
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as steps:
        pulse = Pulse(steps.fileno())
        passed = theirs.fileno(), steps.fileno()
        words = [str(each) for each in passed]
        if starter is None:
            process = spawn(CHILD, words, output.fileno(), passed)
        else:
            process = starter.start(job.specification.framework, words, output.fileno(), passed)
        theirs.close()
        witness = Parent()
        try:
            messages = _follow(process, job, ours, witness, pulse, on_progress)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            ours.close()
        output.seek(0)
        text = output.read().decode(errors="replace")
    return replace(_finished(process.wait(), messages, text, job), testimony=witness.testimony)


def _follow(
    process: Child,
    job: Job,
    link: socket.socket,
    witness: Parent,
    pulse: Pulse,
    on_progress: OnProgress | None,
) -> list[Message]:
    assert process.stdin is not None
    # It may have died before it read its job; how it died is told below.
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(msgspec.json.encode(job))
        process.stdin.close()
    began_ns = HOST.now_ns()
    messages: list[Message] = []
    pending, phase = b"", "start"
    follower: Follower | None = None
    looked_ns = began_ns
    with _waiting(process, link) as wait:
        alive = True
        while alive:
            alive = not wait(max(0.0, _LOOK_S - (HOST.now_ns() - looked_ns) * 1e-9))
            witness.look()
            pending, new = _messages(link, pending)
            answer = witness.found(new)
            if answer is not None:
                # A child that has died since hears no answer.
                with contextlib.suppress(OSError):
                    _send(link, msgspec.json.encode(answer) + b"\n")
            messages += new
            for message in new:
                phase = message.phase or phase
                if message.path is not None:
                    follower = Follower(Path(message.path))
            now_ns = HOST.now_ns()
            if on_progress is not None and (not alive or (now_ns - looked_ns) * 1e-9 >= _LOOK_S):
                looked_ns = now_ns
                elapsed_s = (now_ns - began_ns) * 1e-9
                on_progress(follower.poll() if follower else [], elapsed_s, phase_text(phase, pulse))
    return messages


@contextlib.contextmanager
def _waiting(process: Child, link: socket.socket) -> Iterator[Callable[[float], bool]]:
    """A function that waits up to so many seconds, asleep, and says whether the process has ended.

    It wakes up for a message, too, as the witness of the run's clock answers at once. ``Popen.wait`` with a timeout
    wakes up twenty times a second, beside a run whose threads need every core.
    """
    descriptor = os.pidfd_open(process.pid)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.register(link, select.POLLIN)

    def wait(seconds: float) -> bool:
        ready = poll.poll(seconds * 1e3)
        if any(file == link.fileno() and event & select.POLLHUP for file, event in ready):
            # It has closed its end, and says nothing more.
            poll.unregister(link)
        if not any(file == descriptor for file, _ in ready):
            return False
        process.wait()
        return True

    try:
        yield wait
    finally:
        os.close(descriptor)


def _send(link: socket.socket, line: bytes) -> None:
    """The whole line; the child is waiting for it."""
    link.setblocking(True)
    try:
        link.sendall(line)
    finally:
        link.setblocking(False)


def _messages(link: socket.socket, pending: bytes) -> tuple[bytes, list[Message]]:
    """The whole lines that have come, and the rest."""
    while True:
        try:
            chunk = link.recv(65536)
        except (BlockingIOError, ConnectionResetError):
            break
        if not chunk:
            break
        pending += chunk
    *lines, rest = pending.split(b"\n")
    return rest, [msgspec.json.decode(line, type=Message) for line in lines]


def _finished(code: int, messages: list[Message], output: str, job: Job) -> Finished:
    path = next((Path(message.path) for message in messages if message.path), None)
    told = next((message for message in messages if message.error), None)
    if told is not None and told.error is not None:
        error = LevelbenchError(*told.error)
        error.exit_code = told.exit_code
        error.trace = told.trace
        return Finished(path, error)
    if code == 0 and any(message.phase == "done" for message in messages):
        return Finished(path, None)
    ended = f"was killed by signal {-code}" if code < 0 else f"ended with code {code} before the run was done"
    last = output.strip().splitlines()[-1:] or ["nothing printed"]
    error = LevelbenchError(
        f"a run of {job.specification.task}, seed {job.seed}",
        f"its process {ended} ({last[0]})",
        "run the same command again to resume; --debug shows all that it printed",
    )
    error.exit_code = 3
    error.trace = output
    return Finished(path, error)
