"""The folder of a run on several ranks: what they are to do, what they say, their logs; gone with the run.

The one idea: it lies hidden in the store, which all machines share anyway, and its name says which process made it. So
what a killed one left is known as such, and is removed by the next command.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from levelbench.distributed.launching.marked import start_of
from levelbench.records.faults import store_fault
from levelbench.records.writer import path_part
from levelbench.runner.jobs import Job, Message

__all__ = ["JOB", "JOBS", "Inbox", "job_folder", "messages_of"]

JOB = "job.json"
"""The job's file in its folder."""
JOBS = ".jobs"
"""Where the folders are in a store; what begins with a dot holds no records."""


def messages_of(folder: Path, rank: int) -> Path:
    """The file in which a rank leaves its messages, a line each."""
    return folder / f"messages-{rank}.jsonl"


@contextmanager
def job_folder(job: Job) -> Iterator[Path]:
    """A new folder with the job in it, removed at the end; those that killed processes left are removed before.

    Raises ``StoreError`` where the store cannot be written.
    """
    place = Path(job.store).resolve() / JOBS
    pid = os.getpid()
    folder = place / f"{_here()}+{pid}+{start_of(pid)}+{path_part(job.id)}"
    try:
        folder.mkdir(parents=True)
        _remove_stale(place)
        store, data = str(place.parent), None if job.data is None else str(Path(job.data).resolve())
        (folder / JOB).write_bytes(msgspec.json.encode(msgspec.structs.replace(job, store=store, data=data)))
    except OSError as error:
        raise store_fault(f"a run on several ranks in the store {job.store}", folder, error) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _here() -> str:
    """The host and, as containers on it may share its name, the namespace in which ids of processes mean something."""
    try:
        ids = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        ids = 0
    return f"{path_part(socket.gethostname())}-{ids}"


def _remove_stale(place: Path) -> None:
    """Of other machines' processes nobody knows here whether they live."""
    here = re.escape(_here())
    for folder in place.iterdir():
        found = re.fullmatch(rf"{here}\+(\d+)\+(\d+)\+.*", folder.name)
        if found and start_of(int(found[1])) != int(found[2]):
            shutil.rmtree(folder, ignore_errors=True)


class Inbox:
    """The messages of all ranks, read as they come."""

    def __init__(self, folder: Path, ranks: int) -> None:
        self._paths = [messages_of(folder, rank) for rank in range(ranks)]
        self._read = [0] * ranks

    def take(self) -> list[Message]:
        """The whole lines that have come since the last time, by rank."""
        return [message for rank in range(len(self._paths)) for message in self._of(rank)]

    def _of(self, rank: int) -> list[Message]:
        # Opened anew each time: a file system over a network looks for what another machine wrote when one opens it.
        try:
            with self._paths[rank].open("rb") as file:
                file.seek(self._read[rank])
                whole, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        self._read[rank] += len(whole) + len(newline)
        return [msgspec.json.decode(line, type=Message) for line in whole.splitlines()]
