"""Reads a file from front to back, plain or gzipped, never further or into more memory than was agreed.

The one idea: whatever a file claims about itself, the reader asks for pieces of a known size, and a piece that is not
there is an error that names the file.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NoReturn, final

from levelbench.errors import DataError, MissingError

__all__ = ["Stream", "bad", "read_whole", "unpacked"]

GZIP_MAGIC = b"\x1f\x8b"
_CHUNK_BYTES = 1 << 20


def bad(path: Path, kind: str, found: str, do: str = "Remove the file and fetch it again") -> DataError:
    """The error of a file that is not what it should be."""
    return DataError(f"reading {path} as {kind}", found, do)


@final
class Stream:
    """The unpacked bytes of a file, from front to back; at most ``most_bytes`` of them."""

    def __init__(self, path: Path, file: BinaryIO, kind: str, most_bytes: int) -> None:
        self.path = path
        self.kind = kind
        self.done = 0
        self._most = most_bytes
        self._size = path.stat().st_size
        zipped = file.read(2) == GZIP_MAGIC
        file.seek(0)
        self._plain = None if zipped else file
        self._file: BinaryIO | gzip.GzipFile = gzip.GzipFile(fileobj=file) if zipped else file

    def fail(self, found: str) -> NoReturn:
        """Raise the ``DataError`` of this file."""
        raise bad(self.path, self.kind, found)

    def read(self, size: int) -> bytes:
        """The next ``size`` bytes, fewer only at the end of the file."""
        pieces: list[bytes] = []
        left = size
        while left and (piece := self._piece(min(left, _CHUNK_BYTES))):
            pieces.append(piece)
            left -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def exactly(self, size: int, what: str) -> bytes:
        """The next ``size`` bytes; fewer is an error that says ``what`` they should have been."""
        content = self.read(size)
        if len(content) < size:
            self.fail(f"it is truncated: {len(content):,} of the {size:,} bytes of {what}")
        return content

    def skip(self, size: int, what: str) -> None:
        """Go on after ``size`` bytes of ``what``, without reading them where the file is plain."""
        if self._plain is None:
            while size:
                size -= len(self.exactly(min(size, _CHUNK_BYTES), what))
            return
        if self.done + size > self._size:
            self.fail(f"it is truncated: {self._size - self.done:,} of the {size:,} bytes of {what}")
        self.done += size
        self._plain.seek(self.done)

    def _piece(self, size: int) -> bytes:
        try:
            piece = self._file.read(size)
        except (OSError, EOFError, zlib.error) as error:
            raise bad(self.path, self.kind, f"it cannot be read to its end ({error})") from error
        self.done += len(piece)
        if self.done > self._most:
            self.fail(f"it unpacks to more than the {self._most:,} bytes that it may have")
        return piece


@contextmanager
def unpacked(path: Path, kind: str, most_bytes: int) -> Iterator[Stream]:
    """The content of ``path``; gzip is known by its first bytes, not by the name.

    :raises MissingError: when there is no such file.
    :raises DataError: when it cannot be read, now or later.
    """
    try:
        with path.open("rb") as file:
            yield Stream(path, file, kind, most_bytes)
    except FileNotFoundError:
        raise MissingError(f"reading {path}", "there is no such file", "Name a file that exists") from None
    except OSError as error:
        raise bad(path, kind, f"it cannot be read ({error})") from error


def read_whole(path: Path, kind: str, most_bytes: int) -> bytes:
    """All of a file that may have ``most_bytes``, unpacked; raises as :func:`unpacked` does."""
    with unpacked(path, kind, most_bytes) as stream:
        return stream.read(most_bytes + 1)
