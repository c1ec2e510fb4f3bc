"""Finds and ends the processes of a job, wherever they went: all carry its mark in their environment.

Process groups and sessions can be left, and parents die first. The environment stays.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from levelbench.measure.clocks import HOST

__all__ = ["JOB", "descendants", "end_marked", "marked", "rank_supervisors", "start_of", "state_of", "tell_supervisors"]

JOB = "LEVELBENCH_JOB"
"""The variable that names the job that a process belongs to."""

_PROC = Path("/proc")


def marked(job: str) -> list[int]:
    """Ids of the processes of a job that are alive. Those of other users cannot be read, and do not belong to it."""
    mark = f"{JOB}={job}".encode()
    return [pid for pid in _processes() if mark in _environment(pid) and state_of(pid) != "Z"]


def end_marked(job: str, timeout_s: float = 2.0) -> list[int]:
    """Kill what is left of a job, again until nothing is. Answers with what still is after the time: ids."""
    until_ns = HOST.now_ns() + int(timeout_s * 1e9)
    while (left := [pid for pid in marked(job) if pid != os.getpid()]) and HOST.now_ns() < until_ns:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # A moment for the kernel to take them away.
        select.select([], [], [], 0.01)
    return left


def tell_supervisors(job: str) -> None:
    """Ask the supervisors of a job on this machine to end their ranks."""
    for pid, _ in _supervisors(job):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def rank_supervisors(job: str) -> list[int]:
    """Ids of the supervisors over the ranks of a job on this machine, without that over its launcher."""
    return [pid for pid, words in _supervisors(job) if b"--launcher" not in words]


def _supervisors(job: str) -> Iterator[tuple[int, list[bytes]]]:
    """Ids of the supervisors of a job, and their words up to the command."""
    for pid in marked(job):
        with suppress(FileNotFoundError, ProcessLookupError):
            words = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
            if words[1:4] == [b"-P", b"-m", b"levelbench.distributed.launching.supervisor"]:
                yield pid, words[: words.index(b"--")]


def descendants(pid: int) -> list[int]:
    """Ids of the children of a process, and theirs, that have not been waited for."""
    children: dict[int, list[int]] = {}
    for each in _processes():
        fields = _fields(each)
        if fields:
            children.setdefault(int(fields[1]), []).append(each)
    found, todo = [], [pid]
    while todo:
        new = children.get(todo.pop(), [])
        found += new
        todo += new
    return found


def state_of(pid: int) -> str | None:
    """One letter of proc(5): ``T`` stopped, ``Z`` not waited for, ...; ``None`` where there is no such process."""
    fields = _fields(pid)
    return fields[0] if fields else None


def start_of(pid: int) -> int | None:
    """When a process started, in clock ticks after boot: with its id it names one process for good."""
    fields = _fields(pid)
    return int(fields[19]) if fields else None


def _fields(pid: int) -> list[str] | None:
    """What ``/proc/PID/stat`` says from the state on: after the name, which may hold anything but ends at a bracket."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text[text.rindex(")") + 2 :].split()


def _processes() -> Iterator[int]:
    return (int(name) for name in os.listdir(_PROC) if name.isdecimal())  # noqa: PTH208  # paths would be thrown away


def _environment(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []
