"""Begins and reads the records of benchmarks, in which one file is what one process left behind.

What a line may be is each benchmark's own affair; that lines are whole, that a file gets its name once
its header is in it, and that a torn last line is passed over is the same for all of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Generic, Literal, Protocol, Self, TypeVar, cast

from msgspec.json import Decoder

from levelbench.errors import RecordError
from levelbench.records import lines, locks
from levelbench.records.faults import store_fault
from levelbench.records.reader import decoded, open_record, read_line
from levelbench.records.writer import RecordWriter, path_part, publish, write_whole

__all__ = ["ENDING", "ProcessRecord", "ProcessWriter", "decoded_header", "decoded_lines", "find_records", "open_record"]

ENDING = ".jsonlines"
"""Another than runs have, so that neither kind is taken for the other."""

_REMOVE = "restore the record from a copy, or remove the file"


class _Header(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def started(self) -> str: ...
    @property
    def specification(self) -> Any: ...


H = TypeVar("H", bound=_Header)
E = TypeVar("E")


class ProcessRecord:
    """What one process left behind; ``end`` is its last line, ``running`` whether it is being written."""

    path: Path
    header: Any
    end: Any
    running: bool

    @property
    def status(self) -> Literal["done", "running", "interrupted"]:
        """``done`` has an end; what is not done and not being written was interrupted."""
        return "done" if self.end is not None else "running" if self.running else "interrupted"


R = TypeVar("R", bound=ProcessRecord)


class ProcessWriter(RecordWriter, Generic[H, E]):
    """An open record of one process; see :class:`RecordWriter`, whose way to write whole lines it shares.

    A kind of benchmark names its ``folder`` in the store, and what messages call its records.
    """

    folder: ClassVar[str]
    kind: ClassVar[str]

    @classmethod
    def begin(cls, store: Path, header: H) -> Self:
        """Begin ``<store>/<folder>/<title>/<date>/<key8>-s<seed>-<id>.jsonlines`` with its header in it.

        Raises ``StoreError`` if the file cannot be made: nothing is left behind then.
        """
        name = f"{header.key[:8]}-s{header.seed}-{path_part(header.id)}{ENDING}"
        path = store / cls.folder / path_part(header.specification.title) / path_part(header.started[:10]) / name
        return cls(path, *_begin(path, header, f"beginning a {cls.kind} in {store}"))

    def __enter__(self) -> Self:
        return self

    def add(self, event: E) -> None:
        """Write one line; it survives the end of this process from then on."""
        self.append(cast(Any, event))


def _begin(path: Path, header: Any, asked: str) -> tuple[int, bytes]:
    """Make the file ``path`` with ``header`` as its first line and hold its lock: its descriptor and that line.

    Raises ``StoreError`` if the file cannot be made: nothing is left behind then.
    """
    draft = path.with_name(f".{path.name}.new")
    line = lines.first_line(header)
    descriptor = -1
    published = False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
        locks.hold(descriptor)
        write_whole(descriptor, line)
        publish(draft, path)
        published = True
    except OSError as error:
        raise store_fault(asked, path, error) from error
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        if not published and descriptor >= 0:
            os.close(descriptor)
    return descriptor, line


def find_records(store: Path, folder: str, key: str, read: Callable[[Path], R]) -> list[R]:
    """The records in ``store`` of the specification with that key, oldest first; those damaged are passed over."""
    found = []
    for path in (store / folder).glob(f"*/*/{key[:8]}-s*{ENDING}"):
        with suppress(RecordError):
            record = read(path)
            if record.header.key == key:
                found.append(record)
    return sorted(found, key=lambda record: (record.header.started, str(record.path)))


def decoded_header(
    file: BinaryIO, decoder: Decoder[Any], newest: int, kind: str, asked: str
) -> tuple[Any, lines.Chain]:
    """The header in the first line, and the chain that it begins.

    Raises ``RecordError`` for a line that is no header, is damaged, or is of a newer schema than ``newest``.
    """
    line = read_line(file, 1, asked)
    try:
        header = decoder.decode(line)
    except lines.MALFORMED as error:
        raise RecordError(asked, f"line 1 is not the header of a {kind} ({error})", _REMOVE) from error
    if header.schema > newest:
        found = f"it was written in schema {header.schema} and this version reads up to {newest}"
        raise RecordError(asked, found, "upgrade levelbench to read it")
    return header, lines.chain_from(line, header.schema, asked)


def decoded_lines(file: BinaryIO, decoder: Decoder[Any], chain: lines.Chain, asked: str) -> Iterator[Any]:
    """The events after the header; a torn last line is passed over, any other that is damaged is a ``RecordError``."""
    return decoded(file, decoder.decode, chain, asked)
