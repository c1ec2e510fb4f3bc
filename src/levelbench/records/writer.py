"""Writes a record during its run, one whole line at a time, each record to its own file.

An event is one ``write`` of one line to a file that no other process writes to. So a process that is killed loses at
most the event being written, and processes that share a store cannot lose each other's events.
"""

from __future__ import annotations

import errno
import os
import re
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from levelbench.errors import RecordError, StoreError
from levelbench.records import lines, locks
from levelbench.records.locks import store_fault
from levelbench.records.schema import Event, Header

__all__ = ["RecordWriter", "new_id", "path_part", "publish", "write_whole"]

_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}


def new_id() -> str:
    """A new run id: sixteen random hexadecimal digits, so that no two of a million runs share one."""
    return os.urandom(8).hex()


class RecordWriter:
    """Writes a record; made by ``create``. A context manager, for one thread of the process that made it.

    It holds the file's lock until it is closed, which distinguishes a running record from an interrupted one.
    """

    def __init__(self, path: Path, descriptor: int, first: bytes) -> None:
        """``first`` is the line already in the file: if it has no checksum, the others get none either."""
        self.path = path
        self._descriptor = descriptor
        self._size_bytes = len(first)
        self._sum = lines.checksum_in(first)

    @classmethod
    def create(cls, store: Path, header: Header) -> Self:
        """Begin the record ``<store>/<task>/<date>/<key8>-s<seed>-<id>.jsonl``, with its header in it.

        The file gets its name once its header is complete, so readers never see a record without one. Raises
        ``StoreError`` if the file cannot be made (nothing is left behind), and ``RecordError`` for a header that could
        not be read back.
        """
        asked = f"beginning a record in {store}"
        line = _header_line(header, asked)
        return cls._begin(_path_of(Path(store), header, asked), line, asked)

    @classmethod
    def _begin(cls, path: Path, line: bytes, asked: str) -> Self:
        """Make the file ``path`` containing ``line``, and hold its lock."""
        draft = path.with_name(f".{path.name}.new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
        except OSError as error:
            raise store_fault(asked, draft, error) from error
        published = False
        try:
            locks.hold(descriptor)
            write_whole(descriptor, line)
            publish(draft, path)
            published = True
        except OSError as error:
            raise store_fault(asked, path, error) from error
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            if not published:
                os.close(descriptor)
        return cls(path, descriptor, line)

    def append(self, event: Event) -> None:
        """Write ``event`` as one line; it survives the end of this process from then on.

        Raises ``StoreError`` if it cannot be written; the record then still ends with a complete line.
        """
        asked = f"appending to {self.path}"
        if self._descriptor < 0:
            raise StoreError(asked, "the record is closed", "begin another record")
        line = lines.encode(event)
        if self._sum:
            line = lines.sealed(line, self._sum)
        if len(line) > lines.LINE_LIMIT:
            found = f"one event of {len(line)} bytes, more than {lines.LINE_LIMIT}"
            raise RecordError(asked, found, "write the samples in smaller blocks")
        whole = False
        try:
            write_whole(self._descriptor, line)
            whole = True
        except OSError as error:
            raise store_fault(asked, self.path, error) from error
        finally:
            # Also after a KeyboardInterrupt: the next event must not continue an incomplete line.
            if not whole:
                with suppress(OSError):
                    os.ftruncate(self._descriptor, self._size_bytes)
        self._size_bytes += len(line)
        self._sum = lines.checksum_in(line)

    def close(self) -> None:
        """Flush everything to disk and close the file. Closing twice is harmless."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise store_fault(f"closing {self.path}", self.path, error) from error
        finally:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def write_whole(descriptor: int, line: bytes) -> None:
    """Write the whole line, in one call unless a nearly full disk or a signal cuts it short."""
    done = os.write(descriptor, line)
    while done < len(line):
        done += os.write(descriptor, line[done:])


def publish(draft: Path, path: Path) -> None:
    """Rename the draft, without ever overwriting a file."""
    try:
        os.link(draft, path)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error
        draft.rename(path)


def _header_line(header: Header, asked: str) -> bytes:
    line = lines.first_line(header)
    if lines.RUN.decode_header(line, asked).specification != header.specification:
        do = "use finite numbers, booleans and text in a specification"
        raise RecordError(asked, "the specification would not be read back unchanged", do)
    return line


def _path_of(store: Path, header: Header, asked: str) -> Path:
    try:
        date = datetime.fromisoformat(header.started).date().isoformat()
    except ValueError as error:
        do = "give the start as an ISO 8601 time"
        raise RecordError(asked, f"the run started at {header.started!r}", do) from error
    name = f"{path_part(header.key)[:8]}-s{header.seed}-{path_part(header.id)}.jsonl"
    return store / path_part(header.specification.task) / date / name


def path_part(text: str) -> str:
    """``text`` as the name of a file or folder that is not a path, not hidden and not empty."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip(".-")[:80] or "unnamed"
