"""Reads files strictly: text, gzip, tar archives and arrays, with limits on what is read and how much memory it takes.

Whatever a file claims about itself, the reader asks for pieces of a known size, and a missing piece is an error that
names the file. Tar archives (POSIX.1-2001, and GNU tar's long names) are not unpacked to disk: a member is a name, an
offset and a size, and anything but files and folders under plain names is an error. Python's ``tarfile`` takes a
damaged header for the end of the archive, which would silently make a dataset shorter.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any, BinaryIO, Literal, NoReturn, final

import numpy as np
import numpy.typing as npt

from levelbench.errors import DataError, MissingError

_MOST_BYTES = 1 << 30


@contextmanager
def reading(path: Path, kind: str = "") -> Iterator[None]:
    """Turn errors of the file system into ``MissingError`` or ``DataError``."""
    try:
        yield
    except FileNotFoundError:
        raise MissingError(f"reading {path}", "there is no such file", "Name a file that exists") from None
    except OSError as error:
        asked, found = f"reading {path}{kind and f' as {kind}'}", f"it cannot be read ({error})"
        raise DataError(asked, found, "Remove the file and fetch it again" if kind else "Make it readable") from error


def read_bytes(path: Path, most_bytes: int = _MOST_BYTES) -> bytes:
    """The content of a file.

    :raises MissingError: when the file does not exist.
    :raises DataError: when it cannot be read, or is larger than ``most_bytes``.
    """
    with reading(path):
        found = path.stat()
        # A pipe would block, and a device never ends.
        if not (S_ISREG(found.st_mode) or S_ISDIR(found.st_mode)):
            raise DataError(f"reading {path}", "it is not a regular file", "Name another file")
        size = found.st_size
        if size > most_bytes:
            raise DataError(
                f"reading {path}", f"it has {size:,} bytes, and {most_bytes:,} is the limit", "Name another file"
            )
        return path.read_bytes()


def read_text(path: Path) -> str:
    """The text of a UTF-8 file; raises the errors of :func:`read_bytes`, and ``DataError`` for another encoding."""
    return decode(read_bytes(path), f"reading {path}")


def decode(content: bytes, asked: str) -> str:
    """``content`` as UTF-8 without a byte order mark; ``asked`` is the first part of the error."""
    try:
        return content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(
            asked,
            f"it is not UTF-8: byte 0x{content[error.start]:02x} in line {line}, at {error.start:,}",
            "Convert it to UTF-8, or fetch it again",
        ) from None


GZIP_MAGIC = b"\x1f\x8b"
_CHUNK_BYTES = 1 << 20
# Deflate codes at most 258 bytes in 2 bits (RFC 1951): a valid file cannot unpack to more than 1,032 times its size.
_MOST_DEFLATION = 1032


def bad(path: Path, kind: str, found: str, do: str = "Remove the file and fetch it again") -> DataError:
    """The error of an invalid file."""
    return DataError(f"reading {path} as {kind}", found, do)


def require_digest(path: Path, found: str, expected: str) -> None:
    """``DataError`` unless a file's digest, SHA-256 or MD5 in hexadecimal, is as expected."""
    if found != expected:
        kind = "MD5" if len(expected) == 32 else "SHA-256"
        raise DataError(
            f"reading {path}",
            f"its content has {kind} {found}, and {expected} is expected",
            "Remove the file and fetch it again",
        )


def require_content(path: Path, sha256: str) -> None:
    """``DataError`` if a file cannot be read, or its SHA-256 is not as expected.

    :raises MissingError: when the file no longer exists.
    """
    try:
        with reading(path), path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except MissingError:
        raise MissingError(f"reading {path}", "it was removed in the meantime", "Run again") from None
    require_digest(path, found, sha256)


@final
class BoundedFile:
    """The unpacked bytes of a file, in order; at most ``most_bytes`` of them."""

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

    @property
    def possible_bytes(self) -> int:
        """The largest size that a file of this size can unpack to."""
        return self._size if self._plain else self._size * _MOST_DEFLATION

    def fill(self, values: memoryview) -> int:
        """Read until ``values`` is full or the file ends; returns the bytes read. In pieces, to touch memory late."""
        done = 0
        while done < len(values) and (piece := self._piece(min(_CHUNK_BYTES, len(values) - done))):
            values[done : done + len(piece)] = piece
            done += len(piece)
        return done

    def exactly(self, size: int, what: str) -> bytes:
        """The next ``size`` bytes; fewer are an error that says ``what`` is truncated."""
        content = self.read(size)
        if len(content) < size:
            self.fail(f"it is truncated: {len(content):,} of the {size:,} bytes of {what}")
        return content

    def skip(self, size: int, what: str) -> None:
        """Skip ``size`` bytes of ``what``, without reading them if the file is plain."""
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
            self.fail(f"it unpacks to more than the {self._most:,} bytes allowed")
        return piece


@contextmanager
def unpacked(path: Path, kind: str, most_bytes: int) -> Iterator[BoundedFile]:
    """The content of ``path``; gzip is recognised by its first bytes, not by the name.

    :raises MissingError: when the file does not exist.
    :raises DataError: when it cannot be read, now or later.
    """
    with reading(path, kind), path.open("rb") as file:
        yield BoundedFile(path, file, kind, most_bytes)


def read_whole(path: Path, kind: str, most_bytes: int) -> bytes:
    """All of a file of at most ``most_bytes``, unpacked; raises the errors of :func:`unpacked`."""
    with unpacked(path, kind, most_bytes) as stream:
        return stream.read(most_bytes + 1)


_BLOCK = 512
_MOST_HEADER_BYTES = 1 << 16
_OTHERS = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a character device",
    b"4": "a block device",
    b"6": "a pipe",
    b"S": "a sparse file",
}


@final
@dataclass(frozen=True)
class ArchiveMember:
    """A file in an archive: ``size`` bytes from ``offset`` of the unpacked archive."""

    name: str
    offset: int
    size: int


def members(stream: BoundedFile) -> Iterator[ArchiveMember]:
    """The regular files of an archive in order. Until the next one is requested, ``stream`` is at the file's content.

    The caller may read up to ``size`` bytes of the content; the rest is skipped.

    :raises DataError: for anything but a complete archive of regular files and folders.
    """
    longer: str | None = None
    sized: int | None = None
    while True:
        header = stream.exactly(_BLOCK, "a header, and there is no end mark before it")
        if not any(header):
            return
        _require_checksum(stream, header)
        size = _number(stream, header[124:136])
        kind = header[156:157]
        if kind in {b"L", b"x", b"g"}:
            content = _small(stream, size)
            if kind == b"L":
                longer = _text(stream, content.rstrip(b"\0"))
            elif kind == b"x":
                path, stated = _pax(stream, content)
                longer, sized = path or longer, stated
            continue
        name = _text(stream, _name(header)) if longer is None else longer
        size = size if sized is None else sized
        longer = sized = None
        if kind == b"5":
            safe_name(stream, name.rstrip("/") or ".")
            _skip_rest(stream, stream.done, size, name)
            continue
        if kind not in {b"0", b"\0"}:
            stream.fail(f"its member {name!r} is {_OTHERS.get(kind, f'of the unknown kind {kind!r}')}, not a file")
        start = stream.done
        yield ArchiveMember(safe_name(stream, name), start, size)
        _skip_rest(stream, start, size, name)


def safe_name(stream: BoundedFile, name: str) -> str:
    """``name`` without a leading ``./``; an error if it is absolute or leads out of its folder."""
    parts = [part for part in name.split("/") if part != "."]
    if name.startswith("/") or ".." in parts or "\\" in name or not name.isprintable() or not name:
        stream.fail(f"its member {name!r} has a name that may lead out of its folder")
    return "/".join(parts)


def _skip_rest(stream: BoundedFile, start: int, size: int, name: str) -> None:
    """Skip to the end of a member's last block."""
    padded = -(-size // _BLOCK) * _BLOCK
    stream.skip(start + padded - stream.done, f"its member {name!r}")


def _small(stream: BoundedFile, size: int) -> bytes:
    """A member that describes the next one; its size is limited, whatever it claims."""
    if size > _MOST_HEADER_BYTES:
        stream.fail(f"a header claims {size:,} bytes, and {_MOST_HEADER_BYTES:,} is the limit")
    start = stream.done
    content = stream.exactly(size, "a header")
    _skip_rest(stream, start, size, "a header")
    return content


def _require_checksum(stream: BoundedFile, header: bytes) -> None:
    total = sum(header) - sum(header[148:156]) + 8 * ord(" ")
    if _number(stream, header[148:156]) != total:
        stream.fail("a header's checksum is wrong: it is not a tar archive, or damaged")


def _number(stream: BoundedFile, field: bytes) -> int:
    """Octal digits, or GNU's big-endian binary after a first byte of 0x80."""
    if field[:1] == b"\x80":
        value = int.from_bytes(field[1:], "big")
        if value >= 1 << 62:
            stream.fail(f"a header claims {value:,} bytes")
        return value
    digits = field.strip(b" \0")
    if digits and not set(digits) <= set(b"01234567"):
        stream.fail("a header has a damaged number: it is not a tar archive, or damaged")
    return int(digits or b"0", 8)


def _name(header: bytes) -> bytes:
    name = header[:100].split(b"\0", 1)[0]
    prefix = header[345:500].split(b"\0", 1)[0] if header[257:263] == b"ustar\0" else b""
    return prefix + b"/" + name if prefix else name


def _text(stream: BoundedFile, name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        stream.fail(f"it has a member whose name {name[:40]!r} is not in UTF-8")


def _pax(stream: BoundedFile, content: bytes) -> tuple[str | None, int | None]:
    """The path and size in a pax header: records of "length key=value" and a line feed."""
    path: str | None = None
    size: int | None = None
    while content:
        stated, space, _ = content.partition(b" ")
        length = int(stated) if stated.isdigit() and len(stated) < 8 else 0
        record = content[len(stated) + 1 : length]
        key, equals, value = record.partition(b"=")
        if not space or not equals or length > len(content) or not value.endswith(b"\n"):
            stream.fail("it has a pax header that is damaged")
        if key == b"path":
            path = _text(stream, value[:-1])
        elif key == b"size" and value[:-1].isdigit() and len(value) < 20:
            size = int(value[:-1])
        elif key == b"size" or key.startswith(b"GNU.sparse"):
            stream.fail(f"it has a pax header {key.decode('ascii', 'replace')!r} that is not for a plain file")
        content = content[length:]
    return path, size


_KIND = "an array"
_MOST_DIMENSIONS = 32
_HEADER = re.compile(
    rb"\{'descr': '([<>|][biuf][1248])', 'fortran_order': (True|False), "
    rb"'shape': \(((?:\d{1,15}, ?)*\d{0,15})\), ?\} *\n"
)
_DTYPE = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248])")


def map_npy(path: Path) -> npt.NDArray[Any]:
    """The array of a ``.npy`` file, read-only, its values on disk until they are used.

    :raises MissingError: when the file does not exist.
    :raises DataError: when it is not an array of plain numbers, or its size does not match its header.
    """
    with reading(path, _KIND), path.open("rb") as file:
        magic = file.read(8)
        if magic[:6] != b"\x93NUMPY" or magic[6:] not in {b"\1\0", b"\2\0", b"\3\0"}:
            raise bad(path, _KIND, "it does not start like a .npy file")
        width = 2 if magic[6] == 1 else 4
        length = int.from_bytes(file.read(width), "little")
        if length > _MOST_HEADER_BYTES:
            raise bad(path, _KIND, f"it claims a header of {length:,} bytes, and {_MOST_HEADER_BYTES:,} is the limit")
        found = _HEADER.fullmatch(file.read(length))
        offset = file.tell()
    if found is None:
        raise bad(path, _KIND, "its header is not that of an array of plain numbers (objects are never loaded)")
    shape = tuple(int(size) for size in found[3].replace(b" ", b"").split(b",") if size)
    return _mapped(path, found[1].decode(), shape, offset, "F" if found[2] == b"True" else "C")


def _mapped(path: Path, name: str, shape: tuple[int, ...], offset: int, order: Literal["C", "F"]) -> npt.NDArray[Any]:
    if not _DTYPE.fullmatch(name):
        raise bad(path, _KIND, f"{name!r} is not a plain number")
    dtype = np.dtype(name)
    if not shape or len(shape) > _MOST_DIMENSIONS or min(shape) < 1:
        raise bad(path, _KIND, f"its shape {shape} holds no rows")
    wanted, size = offset + math.prod(shape) * dtype.itemsize, path.stat().st_size
    if wanted != size:
        raise bad(path, _KIND, f"{shape} of {dtype} are {wanted:,} bytes with the header, and it has {size:,}")
    return np.memmap(path, dtype, "r", offset, shape, order)
