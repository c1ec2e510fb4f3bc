"""What ranks beside the first leave behind: a file each, which becomes part of the run's one record.

A rank appends to a file that is its own, so it loses nothing when another dies; the first rank takes all
of them into the record before the line that ends it. A record that has its end holds every rank once, and one that was
interrupted in between is no finished run and is made again.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from levelbench.errors import RecordError, StoreError
from levelbench.records import lines
from levelbench.records.faults import store_fault
from levelbench.records.reader import open_record, read_line, read_record
from levelbench.records.schema import End, RankSamples
from levelbench.records.writer import RecordWriter, write_whole

__all__ = [
    "RankWriter",
    "end_failed",
    "merge_ranks",
    "rank_file",
    "remove_old_rank_files",
    "remove_rank_files",
    "remove_rank_files_if_left",
]

_SUFFIX = ".rank-"


def rank_file(record: Path, rank: int) -> Path:
    """The file of a rank beside the record's."""
    return record.with_suffix(f"{_SUFFIX}{rank}")


class RankWriter:
    """An open file of one rank, begun anew. A context manager; for one thread."""

    def __init__(self, record: Path, rank: int) -> None:
        """Raises ``StoreError`` if the file cannot be made."""
        self.path, self.rank = rank_file(record, rank), rank
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
            self._descriptor = os.open(self.path, flags, 0o666)
            self._sum = ""
        except OSError as error:
            raise store_fault(f"beginning {self.path}", self.path, error) from error

    def append(self, observed: Mapping[str, tuple[str, Sequence[float]]]) -> None:
        """A line for each quantity: its unit and values by name."""
        for name, (unit, values) in observed.items():
            line = lines.sealed(lines.encode(RankSamples(self.rank, name, unit, values)), self._sum)
            try:
                write_whole(self._descriptor, line)
            except OSError as error:
                raise store_fault(f"appending to {self.path}", self.path, error) from error
            self._sum = lines.checksum_in(line)

    def close(self) -> None:
        """Let go of the file, with everything on the disk. Closing twice is harmless."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.fsync(descriptor)
            os.close(descriptor)

    def __enter__(self) -> RankWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def merge_ranks(writer: RecordWriter, ranks: int) -> dict[int, str]:
    """Append to the record what each of ``ranks`` has left, in the order of ranks: all of a rank's, or nothing of it.

    Answers with the ranks of which there is nothing in the record, and why. All of them must have closed their files.
    The files stay: :func:`remove_rank_files` takes them away once the record has its end.

    Raises ``StoreError`` where the record cannot be written.
    """
    doubts = {}
    for rank in range(ranks):
        try:
            events = list(_events(rank_file(writer.path, rank), rank))
        except (RecordError, StoreError) as problem:
            doubts[rank] = f"what rank {rank} observed is not in this record: {problem.found}"
            continue
        for event in events:
            writer.append(event)
    return doubts


def remove_rank_files(record: Path, but: Collection[int] = ()) -> None:
    """Take the files of the ranks of a record away, ``but`` those of some: they hold what the record does not."""
    kept = {rank_file(record, rank).name for rank in but}
    for path in record.parent.glob(f"{record.stem}{_SUFFIX}*"):
        if path.name not in kept:
            path.unlink(missing_ok=True)


def remove_rank_files_if_left(record: Path) -> None:
    """Take them away where the run came to no end of its own: they are of no record."""
    if _is_left(record):
        remove_rank_files(record)


def remove_old_rank_files(record: Path, key: str, seed: int) -> None:
    """Take away what ranks of other runs of this key and seed left, in the store of ``record``: one is done.

    Files beside a record that is done, or goes on, stay.
    """
    for path in record.parent.parent.glob(f"*/{key[:8]}-s{seed}-*{_SUFFIX}*"):
        other = path.with_suffix(record.suffix)
        if other != record and _is_left(other):
            path.unlink(missing_ok=True)


def _is_left(record: Path) -> bool:
    """Whether a run came to no end of its own. Of a record that cannot be read nobody knows."""
    try:
        return read_record(record).status in ("failed", "interrupted")
    except (RecordError, StoreError):
        return not record.exists()


def end_failed(path: Path, error: str) -> bool:
    """Append the end of a failed run to the record that its ranks left without one; whether that could be done.

    Its time is that of the last evaluation. A record that has its end, is being written or has a torn last line is left
    as it is.

    Raises ``StoreError`` where the record cannot be written.
    """
    asked = f"appending to {path}"
    try:
        record = read_record(path)
    except (RecordError, StoreError):
        return False
    if record.status != "interrupted":
        return False
    last = record.evaluations[-1] if record.evaluations else None
    phases = dict(last.phases_ns) if last is not None else {}
    line = lines.encode(End("failed", sum(phases.values()), phases, error=error))
    if record.checksum:
        line = lines.sealed(line, record.checksum)
    try:
        with path.open("rb+", buffering=0) as file:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                return False
            write_whole(file.fileno(), line)
            os.fsync(file.fileno())
    except OSError as fault:
        raise store_fault(asked, path, fault) from fault
    return True


def _events(path: Path, rank: int) -> Iterator[RankSamples]:
    asked = f"reading {path}"
    number, chain = 1, lines.Chain()
    with open_record(path, asked) as file:
        while line := read_line(file, number, asked):
            try:
                chain.check(line)
                event = lines.RUN.decode_event(line)
            except (*lines.MALFORMED, lines.InvalidLine) as error:
                raise RecordError(asked, f"line {number} is damaged ({error})", "run it again") from error
            if not isinstance(event, RankSamples) or event.rank != rank:
                raise RecordError(asked, f"line {number} is not of rank {rank}", "run it again")
            yield event
            number += 1
