"""The folder of a run on several ranks: the job, the ranks' messages and logs. It is removed when the run ends.

It is a hidden folder in the store, which all machines share anyway, and its name says which process made it. So the
next command recognises and removes what a killed process left.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec

from levelbench.distributed.launching.environment import start_of
from levelbench.errors import UsageError
from levelbench.experiments.jobs import Job, Message
from levelbench.records.locks import hold, store_fault
from levelbench.records.writer import path_part

__all__ = ["ANSWERS", "JOB", "JOBS", "PULSE", "Inbox", "job_folder", "mark", "messages_of", "only_one", "record_paths"]

JOB = "job.json"
"""The job's file in its folder."""
PULSE = "steps"
"""The file through which the first rank shows its progress."""
ANSWERS = "answers.jsonl"
"""The file in which the launcher, as the witness of its clock, answers the first rank, one line per answer."""
JOBS = ".jobs"
"""The folder of these folders in a store; names that begin with a dot hold no records."""


def messages_of(folder: Path, rank: int, restarts: int = 0) -> Path:
    """The file for the messages of a rank that was restarted ``restarts`` times, one line per message."""
    return folder / f"messages-{rank}{f'.{restarts}' if restarts else ''}.jsonl"


def mark(folder: Path, moment: Literal["ready", "met", "left"], rank: int, restarts: int = 0) -> Path:
    """The empty file that a rank writes once it is ready to meet the others, has met them, or only libraries end."""
    return folder / f"{moment}-{rank}.{restarts}"


def record_paths(folder: Path) -> list[Path]:
    """The records that ranks have named in messages, in the order of their starts."""
    found: dict[Path, None] = {}
    for _, path in sorted(_by_restarts(folder)):
        lines = path.read_bytes().split(b"\n")[:-1]
        told = (msgspec.json.decode(line, type=Message).path for line in lines)
        found |= dict.fromkeys(Path(each) for each in told if each)
    return list(found)


def _by_restarts(folder: Path) -> list[tuple[int, Path]]:
    """The message files in ``folder``, each with the number of restarts of its rank."""
    named = [(re.fullmatch(r"messages-\d+(?:\.(\d+))?\.jsonl", path.name), path) for path in folder.iterdir()]
    return [(int(found[1] or 0), path) for found, path in named if found]


@contextmanager
def job_folder(job: Job) -> Iterator[Path]:
    """A new folder that contains the job and is removed at the end; first removes those of killed processes.

    Raises ``StoreError`` if the store cannot be written.
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


@contextmanager
def only_one(job: Job) -> Iterator[None]:
    """Hold the lock on this run in its store; ``UsageError`` if another process holds it.

    The record alone does not prevent two processes from making a run: it begins only once the ranks have started.
    """
    place = Path(job.store).resolve() / JOBS
    path = place / f"{path_part(job.key)[:8]}-s{job.seed}.lock"
    try:
        place.mkdir(parents=True, exist_ok=True)
        descriptor = _locked(path, job)
    except OSError as error:
        raise store_fault(f"a run on several ranks in the store {job.store}", path, error) from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _locked(path: Path, job: Job) -> int:
    """Open and lock the file at ``path``, and write this process and host into it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            hold(descriptor)
        except BlockingIOError:
            who = os.read(descriptor, 200).decode(errors="replace") or "another process"
            os.close(descriptor)
            raise UsageError(
                f"seed {job.seed} of {job.specification.task}",
                f"{who} is already running this",
                "wait for it, or choose other seeds with --seed",
            ) from None
        # Its last owner may have removed it in between: then no other process would find this file.
        with suppress(FileNotFoundError):
            if os.fstat(descriptor).st_ino == path.stat().st_ino:
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
                return descriptor
        os.close(descriptor)


def _here() -> str:
    """The host and the namespace of process ids, since containers on a host may share its name."""
    try:
        ids = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        ids = 0
    return f"{path_part(socket.gethostname())}-{ids}"


def _remove_stale(place: Path) -> None:
    """Remove folders of dead processes of this machine; those of other machines cannot be checked."""
    here = re.escape(_here())
    for folder in place.iterdir():
        found = re.fullmatch(rf"{here}\+(\d+)\+(\d+)\+.*", folder.name)
        if found and start_of(int(found[1])) != int(found[2]):
            shutil.rmtree(folder, ignore_errors=True)


class Inbox:
    """Reads the messages of all ranks as they arrive, since their last start."""

    def __init__(self, folder: Path, ranks: int) -> None:
        self._folder, self._ranks = folder, ranks
        self.restarts = 0
        """How often the ranks were restarted."""
        self._begin()

    def _begin(self) -> None:
        self._paths = [messages_of(self._folder, rank, self.restarts) for rank in range(self._ranks)]
        self._read = [0] * self._ranks

    def take(self) -> list[Message]:
        """The complete lines that have arrived since the last call, by rank."""
        # Any rank's file: the first rank may be on another node, whose command has a separate folder.
        newest = max((restarts for restarts, _ in _by_restarts(self._folder)), default=0)
        if newest > self.restarts:
            self.restarts = newest
            self._begin()
        return [message for rank in range(len(self._paths)) for message in self._of(rank)]

    def _of(self, rank: int) -> list[Message]:
        # Reopened each time: a network file system fetches what another machine wrote when a file is opened.
        try:
            with self._paths[rank].open("rb") as file:
                file.seek(self._read[rank])
                whole, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        self._read[rank] += len(whole) + len(newline)
        return [msgspec.json.decode(line, type=Message) for line in whole.splitlines()]
