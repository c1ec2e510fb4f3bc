"""Reads records: complete, interrupted, or still being written.

Lines are appended whole, so only the last line can be incomplete, and then it has no newline: the run was interrupted,
and the lines before it are valid. Any other line that cannot be read, or does not match its checksum, is damage.
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

__all__ = ["SUPERSEDED", "FileLines", "Follower", "Record", "Status", "ids_in", "is_record_name"]
__all__ += ["open_record", "read_header", "read_line", "read_lines", "read_record"]

SUPERSEDED = ".superseded"
"""The folder, next to the records, of those that later runs have replaced; hidden folders are not searched."""

Status = Literal["done", "failed", "interrupted", "running"]

T = TypeVar("T")


@dataclass(frozen=True)
class FileLines(Generic[H, E]):
    """The contents of a record file of any kind.

    ``running`` says whether it is being written; ``checksum`` is that of the last line (empty in the first schema).
    """

    header: H
    events: list[E]
    running: bool
    checksum: str

    def last(self, kind: type[T]) -> T | None:
        """The last event of type ``kind``, if there is one."""
        return next((each for each in reversed(self.events) if isinstance(each, kind)), None)

    def all(self, kind: type[T]) -> tuple[T, ...]:
        """The events of type ``kind``, in order."""
        return tuple(each for each in self.events if isinstance(each, kind))


@dataclass(frozen=True)
class Record:
    """The record of one run.

    ``samples`` maps the name of each quantity to its blocks, joined in order; ``ranks`` has the same for each rank of a
    distributed run. ``checksum`` is that of the last line; empty in the first schema, whose lines are not chained.
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

    Raises ``RecordError`` for a file that is not a record, a damaged line (with its number) or a newer schema, and
    ``StoreError`` for a file that the system refuses to read.
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
    """The checked lines of the record at ``path``, without an incomplete last one. Raises like ``read_record``."""
    asked = f"reading the {form.name} {path}"
    events: list[E] = []
    with open_record(path, asked) as file:
        # Before reading: if the lock is released in between, the end is there to be read.
        running = locks.is_held(file.fileno())
        first = read_line(file, 1, asked)
        header = form.decode_header(first, asked)
        chain = lines.chain_from(first, header.schema, asked)
        for event in _decoded(file, form.decode_event, chain, asked):
            if events and isinstance(events[-1], form.end):
                raise RecordError(asked, f"line {len(events) + 2} comes after the end of the run", lines.RESTORE)
            events.append(event)
    return FileLines(header, events, running, chain.last)


def read_header(path: Path, form: lines.Format[H, E]) -> H:
    """The header of the record at ``path``. Raises like ``read_record``."""
    asked = f"reading the {form.name} {path}"
    with open_record(path, asked) as file:
        return form.decode_header(read_line(file, 1, asked), asked)


def is_record_name(name: str) -> bool:
    """Whether a file of that name is a record; hidden files are drafts."""
    return name.endswith(".jsonl") and not name.startswith(".")


def ids_in(folders: Iterable[Path]) -> frozenset[str]:
    """The ids of the readable records directly in ``folders``; folders may be missing."""
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
    """The opened file; ``RecordError`` or ``StoreError`` (about ``asked``) if it is not a readable regular file."""
    try:
        # Not blocking: opening a named pipe would wait for a writer.
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
    """The next line, empty at the end; ``RecordError`` for one longer than any that is written."""
    line = file.readline(lines.LINE_LIMIT + 1)
    if len(line) > lines.LINE_LIMIT:
        raise RecordError(asked, f"line {number} is longer than {lines.LINE_LIMIT} bytes", lines.RESTORE)
    return line


def _decoded(file: BinaryIO, decode: Callable[[bytes], T], chain: lines.Chain, asked: str) -> Iterator[T]:
    """The events after the header; ``RecordError`` with the number of the first damaged line.

    An incomplete last line is left out. If only its newline is missing, it is complete.
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
            raise RecordError(asked, f"line {number} is damaged ({error})", lines.RESTORE) from error
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
    """Reads a record while it is written. ``header`` is set by the first ``poll``, ``end`` with the last event."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.header: Header | None = None
        self.end: End | None = None
        self._offset = 0
        self._number = 0
        self._chain = lines.Chain()

    def poll(self) -> list[Event]:
        """The events that were completed since the last poll, in order; none if the file does not exist yet.

        Raises ``RecordError`` for a damaged line.
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
            raise RecordError(asked, f"line {self._number} is damaged ({error})", lines.RESTORE) from error
        if isinstance(event, End):
            self.end = event
        return event
