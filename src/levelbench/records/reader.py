"""Reads a record: a whole one, one that was interrupted, and one that is still being written.

Lines are appended whole, so only the last can be torn, and a torn line has no newline. What stands before it is good,
and the run was interrupted. Every other line that cannot be read, or is not what its checksum says, is damage.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Generic, Literal, TypeVar

from levelbench.errors import LevelbenchError, RecordError
from levelbench.records import lines, locks
from levelbench.records.lines import E, H
from levelbench.records.locks import store_fault
from levelbench.records.schema import End, Evaluation, Event, Header, Measurement, RankSamples, Samples

__all__ = ["SUPERSEDED", "FileLines", "Follower", "Record", "Status", "follow", "ids_in", "is_record_name"]
__all__ += ["open_record", "read_header", "read_line", "read_lines", "read_record"]

SUPERSEDED = ".superseded"
"""Folder beside records that fresh runs have replaced; hidden ones are looked into by nothing else."""

Status = Literal["done", "failed", "interrupted", "running"]

T = TypeVar("T")
_RESTORE = "restore the record from a copy, or remove the file"


@dataclass(frozen=True)
class FileLines(Generic[H, E]):
    """What is in the file of a record of any kind.

    ``running`` says whether it is being written, ``checksum`` is that of the last line (empty in the first schema).
    """

    header: H
    events: list[E]
    running: bool
    checksum: str

    def last(self, kind: type[T]) -> T | None:
        """The last event of that type, if there is one."""
        return next((each for each in reversed(self.events) if isinstance(each, kind)), None)

    def all(self, kind: type[T]) -> tuple[T, ...]:
        """The events of that type, in order."""
        return tuple(each for each in self.events if isinstance(each, kind))


@dataclass(frozen=True)
class Record:
    """What one run left behind.

    ``samples`` holds, by name, all blocks of a quantity joined in order; ``ranks`` those that each rank of a
    distributed run observed, by rank. ``checksum`` is that of the last line; empty for a record of the first schema,
    whose lines are not chained.
    """

    path: Path
    header: Header
    evaluations: tuple[Evaluation, ...]
    samples: dict[str, Samples]
    measurements: tuple[Measurement, ...]
    end: End | None
    status: Status
    ranks: dict[int, dict[str, Samples]] = field(default_factory=dict)
    checksum: str = ""


def read_record(path: str | Path) -> Record:
    """The record at ``path``.

    Raises ``RecordError`` for a file that is no record, a damaged line (with its number) or a newer schema, and
    ``StoreError`` for a file that the system does not let us read.
    """
    path = Path(path)
    asked = f"reading the record {path}"
    found = read_lines(path, lines.RUN)
    end = found.last(End)
    return Record(
        path=path,
        header=found.header,
        evaluations=found.all(Evaluation),
        samples=_joined(found.all(Samples), asked),
        measurements=found.all(Measurement),
        end=end,
        status=end.status if end is not None else "running" if found.running else "interrupted",
        ranks=_by_rank(found.all(RankSamples), asked),
        checksum=found.checksum,
    )


def read_lines(path: Path, form: lines.Format[H, E]) -> FileLines[H, E]:
    """The lines of the record at ``path``, checked; a torn last line is passed over. Raises as ``read_record`` does."""
    asked = f"reading the {form.name} {path}"
    events: list[E] = []
    with open_record(path, asked) as file:
        # Asked before reading: a lock let go in between then means that the end is there to be read.
        running = locks.is_held(file.fileno())
        first = read_line(file, 1, asked)
        header = form.decode_header(first, asked)
        chain = lines.chain_from(first, header.schema, asked)
        for event in _decoded(file, form.decode_event, chain, asked):
            if events and isinstance(events[-1], form.end):
                raise RecordError(asked, f"line {len(events) + 2} comes after the end of the run", _RESTORE)
            events.append(event)
    return FileLines(header, events, running, chain.last)


def read_header(path: Path, form: lines.Format[H, E]) -> H:
    """The first line of the record at ``path`` alone; raises as ``read_record`` does for a file that has none."""
    asked = f"reading the {form.name} {path}"
    with open_record(path, asked) as file:
        return form.decode_header(read_line(file, 1, asked), asked)


def is_record_name(name: str) -> bool:
    """Whether a file of that name is a record: hidden ones are drafts, and others are somebody else's."""
    return name.endswith(".jsonl") and not name.startswith(".")


def ids_in(folders: Iterable[Path]) -> frozenset[str]:
    """The ids of the records in ``folders`` themselves; what cannot be read has none, a folder may be missing."""
    found = set()
    for folder in folders:
        try:
            names = [entry.name for entry in os.scandir(folder)]
        except OSError:
            continue
        for name in filter(is_record_name, names):
            with suppress(LevelbenchError):
                found.add(read_header(folder / name, lines.RUN).id)
    return frozenset(found)


def open_record(path: Path, asked: str) -> BinaryIO:
    """The file, if it is a regular one; ``RecordError`` or ``StoreError`` that begins with ``asked`` otherwise."""
    try:
        # Not blocking: a named pipe would keep us waiting for somebody to write to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        raise RecordError(asked, "there is no such file", "check the path; levelbench list runs shows them") from None
    except OSError as error:
        raise store_fault(asked, path, error) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RecordError(asked, "it is not a regular file", "give the path of a record")
    return os.fdopen(descriptor, "rb")


def read_line(file: BinaryIO, number: int, asked: str) -> bytes:
    """The next line, empty at the end; ``RecordError`` for one that is too long to be ours."""
    line = file.readline(lines.LINE_LIMIT + 1)
    if len(line) > lines.LINE_LIMIT:
        raise RecordError(asked, f"line {number} is longer than {lines.LINE_LIMIT} bytes", _RESTORE)
    return line


def _decoded(file: BinaryIO, decode: Callable[[bytes], T], chain: lines.Chain, asked: str) -> Iterator[T]:
    """The lines after the header; ``RecordError`` that names the first one that is damaged.

    A torn last line is passed over. One that lacks nothing but its newline is not torn.
    """
    number = 2
    while line := read_line(file, number, asked):
        try:
            if not line.endswith(b"\n"):
                if not _is_whole(line + b"\n", decode, chain):
                    if _is_whole(line[:-1] + b"\n", decode, chain):
                        raise lines.InvalidLine("its newline is another character")
                    return
                line += b"\n"
            chain.check(line)
            event = decode(line)
        except (*lines.MALFORMED, lines.InvalidLine) as error:
            raise RecordError(asked, f"line {number} is damaged ({error})", _RESTORE) from error
        yield event
        number += 1


def _is_whole(line: bytes, decode: Callable[[bytes], T], chain: lines.Chain) -> bool:
    if not chain.holds(line):
        return False
    try:
        decode(line)
    except (*lines.MALFORMED, lines.InvalidLine):
        return False
    return True


def _joined(blocks: Iterable[Samples], asked: str) -> dict[str, Samples]:
    units: dict[str, str] = {}
    values: dict[str, list[Sequence[int | float]]] = {}
    for block in blocks:
        if units.setdefault(block.name, block.unit) != block.unit:
            found = f"samples of {block.name!r} in {units[block.name]} and in {block.unit}"
            raise RecordError(asked, found, "write one quantity in one unit")
        values.setdefault(block.name, []).append(block.values)
    return {
        name: Samples(name, units[name], [each for part in parts for each in part]) for name, parts in values.items()
    }


def _by_rank(found: Iterable[RankSamples], asked: str) -> dict[int, dict[str, Samples]]:
    blocks: dict[int, list[Samples]] = {}
    for each in found:
        blocks.setdefault(each.rank, []).append(Samples(each.name, each.unit, each.values))
    return {rank: _joined(each, asked) for rank, each in sorted(blocks.items())}


class Follower:
    """Reads a record while it grows. ``header`` is known after the first ``poll``, ``end`` after the last event."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.header: Header | None = None
        self.end: End | None = None
        self._offset = 0
        self._number = 0
        self._chain = lines.Chain()

    def poll(self) -> list[Event]:
        """The events that have become whole since the last poll, in order; none is not an error.

        A file that does not exist yet has no events yet. Raises ``RecordError`` for a damaged line.
        """
        if not self.path.exists():
            return []
        asked = f"following the record {self.path}"
        events: list[Event] = []
        with open_record(self.path, asked) as file:
            file.seek(self._offset)
            while (line := read_line(file, self._number + 1, asked)).endswith(b"\n"):
                self._offset += len(line)
                self._number += 1
                event = self._read(line, asked)
                if event is not None:
                    events.append(event)
        return events

    def _read(self, line: bytes, asked: str) -> Event | None:
        if self.header is None:
            self.header = lines.RUN.decode_header(line, asked)
            self._chain = lines.chain_from(line, self.header.schema, asked)
            return None
        try:
            self._chain.check(line)
            event = lines.RUN.decode_event(line)
        except (*lines.MALFORMED, lines.InvalidLine) as error:
            raise RecordError(asked, f"line {self._number} is damaged ({error})", _RESTORE) from error
        if isinstance(event, End):
            self.end = event
        return event


def follow(path: str | Path) -> Follower:
    """A follower of the record at ``path``, from its beginning."""
    return Follower(path)
