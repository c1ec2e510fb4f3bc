"""Starts one process a run and follows its record while it grows.

The one idea: the record is the only channel for results. What a live display shows is read from the file that remains,
so nothing can be seen that was not written.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from levelbench.errors import LevelbenchError
from levelbench.records import Event, Follower
from levelbench.runner.child import Job, Message

__all__ = ["Finished", "launch"]

_POLL_S = 0.2


@dataclass(frozen=True)
class Finished:
    """How a process ended. ``path`` is its record, if it came so far; ``error`` what it told or how it died."""

    path: Path | None
    error: LevelbenchError | None
    exit_code: int
    output: str
    trace: str = ""


def launch(job: Job, on_events: Callable[[list[Event], float], None] | None = None) -> Finished:
    """Run ``job`` to its end. ``on_events`` gets the new events and the elapsed seconds a few times a second.

    If this process is interrupted, the child is ended too; its record is left as interrupted.
    """
    read, write = os.pipe()
    os.set_blocking(read, False)
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "levelbench.runner.child", str(write)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            pass_fds=(write,),
        )
        os.close(write)
        try:
            messages = _follow(process, job, read, on_events)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            os.close(read)
        output.seek(0)
        text = output.read().decode(errors="replace")
    return _finished(process.returncode, messages, text, job)


def _follow(
    process: subprocess.Popen[bytes],
    job: Job,
    read: int,
    on_events: Callable[[list[Event], float], None] | None,
) -> list[Message]:
    assert process.stdin is not None
    try:
        process.stdin.write(msgspec.json.encode(job))
        process.stdin.close()
    except BrokenPipeError:
        pass  # it died before it read its job; how it died is told below
    began = time.monotonic()
    messages: list[Message] = []
    pending = b""
    follower: Follower | None = None
    ended = False
    while not ended:
        try:
            ended = process.wait(_POLL_S) is not None
        except subprocess.TimeoutExpired:
            ended = False
        pending, new = _messages(read, pending)
        messages += new
        for message in new:
            if message.path is not None:
                follower = Follower(Path(message.path))
        if on_events is not None:
            on_events(follower.poll() if follower else [], time.monotonic() - began)
    return messages


def _messages(read: int, pending: bytes) -> tuple[bytes, list[Message]]:
    """The whole lines that have come through the pipe, and the rest."""
    while True:
        try:
            chunk = os.read(read, 65536)
        except BlockingIOError:
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
        return Finished(path, error, told.exit_code, output, told.trace)
    if code == 0:
        return Finished(path, None, 0, output)
    ended = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    last = output.strip().splitlines()[-1:] or ["nothing printed"]
    error = LevelbenchError(
        f"a run of {job.specification.task}, seed {job.seed}",
        f"its process {ended} ({last[0]})",
        "run the same command again to resume; --debug shows all that it printed",
    )
    error.exit_code = 3
    return Finished(path, error, 3, output)
