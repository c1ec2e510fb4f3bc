"""Reads files strictly: text, gzip, tar archives and arrays, never further or into more memory than was agreed.

Whatever a file claims about itself, the reader asks for pieces of a known size, and a piece that is not there is an
error that names the file. Of tar archives (POSIX.1-2001, and GNU tar's long names) nothing is unpacked to the disk: a
member is a name, an offset and a size, and anything but files and folders under plain names ends the reading. Python's
``tarfile`` takes a damaged header for the end of the archive, which would make a cut shard a shorter dataset.
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


def read_bytes(path: Path, most_bytes: int = _MOST_BYTES) -> bytes:
    """The content of a file.

    :raises MissingError: when there is no such file.
    :raises DataError: when it cannot be read, or is larger than ``most_bytes``.
    """
    try:
        found = path.stat()
        # A pipe would be waited for, and a device never ends.
        if not (S_ISREG(found.st_mode) or S_ISDIR(found.st_mode)):
            raise DataError(f"reading {path}", "it is no regular file", "Name another file")
        size = found.st_size
        if size > most_bytes:
            raise DataError(
                f"reading {path}", f"it has {size:,} bytes, and {most_bytes:,} is the most allowed", "Name another file"
            )
        return path.read_bytes()
    except FileNotFoundError:
        raise MissingError(f"reading {path}", "there is no such file", "Name a file that exists") from None
    except OSError as error:
        raise DataError(f"reading {path}", f"it cannot be read ({error})", "Make it readable") from error


def read_text(path: Path, most_bytes: int = _MOST_BYTES) -> str:
    """The text of a file in UTF-8; raises as :func:`read_bytes`, and ``DataError`` for another encoding."""
    return decode(read_bytes(path, most_bytes), f"reading {path}")


def decode(content: bytes, asked: str) -> str:
    """``content`` as UTF-8 without a byte order mark; ``asked`` begins the message of the error."""
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
# Deflate codes at most 258 bytes in 2 bits (RFC 1951): no honest file unpacks to more than 1,032 times its size.
_MOST_DEFLATION = 1032


def bad(path: Path, kind: str, found: str, do: str = "Remove the file and fetch it again") -> DataError:
    """The error of a file that is not what it should be."""
    return DataError(f"reading {path} as {kind}", found, do)


def require_digest(path: Path, found: str, expected: str) -> None:
    """``DataError`` unless a file's digest, SHA-256 or MD5 in hexadecimal, is the one that is expected."""
    if found != expected:
        kind = "MD5" if len(expected) == 32 else "SHA-256"
        raise DataError(
            f"reading {path}",
            f"its content has {kind} {found}, and {expected} is expected",
            "Remove the file and fetch it again",
        )


def require_content(path: Path, sha256: str) -> None:
    """``DataError`` where a file cannot be read, or its SHA-256 is not the one that is expected.

    :raises MissingError: when there is no such file any more.
    """
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise MissingError(f"reading {path}", "it was removed meanwhile", "Run again") from None
    except OSError as error:
        raise DataError(f"reading {path}", f"it cannot be read ({error})", "Make it readable") from error
    require_digest(path, found, sha256)


@final
class BoundedFile:
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

    @property
    def possible_bytes(self) -> int:
        """What a file of this size can unpack to at most."""
        return self._size if self._plain else self._size * _MOST_DEFLATION

    def fill(self, values: memoryview) -> int:
        """Read until ``values`` is full or the file ends; the bytes read. In pieces, so that memory is touched late."""
        done = 0
        while done < len(values) and (piece := self._piece(min(_CHUNK_BYTES, len(values) - done))):
            values[done : done + len(piece)] = piece
            done += len(piece)
        return done

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
def unpacked(path: Path, kind: str, most_bytes: int) -> Iterator[BoundedFile]:
    """The content of ``path``; gzip is known by its first bytes, not by the name.

    :raises MissingError: when there is no such file.
    :raises DataError: when it cannot be read, now or later.
    """
    try:
        with path.open("rb") as file:
            yield BoundedFile(path, file, kind, most_bytes)
    except FileNotFoundError:
        raise MissingError(f"reading {path}", "there is no such file", "Name a file that exists") from None
    except OSError as error:
        raise bad(path, kind, f"it cannot be read ({error})") from error


def read_whole(path: Path, kind: str, most_bytes: int) -> bytes:
    """All of a file that may have ``most_bytes``, unpacked; raises as :func:`unpacked` does."""
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
    """The regular files of an archive in order. Until the next is asked for, ``stream`` stands at the file's content.

    Whoever reads of the content reads at most ``size`` bytes; what is left is skipped.

    :raises DataError: for anything that is not a whole archive of regular files and folders.
    """
    longer: str | None = None
    sized: int | None = None
    while True:
        header = stream.exactly(_BLOCK, "a header; no end mark stands before it")
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
                path, told = _pax(stream, content)
                longer, sized = path or longer, told
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
    """``name`` without a leading ``./``; an error where it is absolute, or leads out of its folder."""
    parts = [part for part in name.split("/") if part != "."]
    if name.startswith("/") or ".." in parts or "\\" in name or not name.isprintable() or not name:
        stream.fail(f"its member {name!r} has a name that may lead out of its folder")
    return "/".join(parts)


def _skip_rest(stream: BoundedFile, start: int, size: int, name: str) -> None:
    """To the end of a member and of its last block."""
    padded = -(-size // _BLOCK) * _BLOCK
    stream.skip(start + padded - stream.done, f"its member {name!r}")


def _small(stream: BoundedFile, size: int) -> bytes:
    """A member that describes the next one; these are short, whatever they claim."""
    if size > _MOST_HEADER_BYTES:
        stream.fail(f"a header claims {size:,} bytes, and {_MOST_HEADER_BYTES:,} is the most allowed")
    start = stream.done
    content = stream.exactly(size, "a header")
    _skip_rest(stream, start, size, "a header")
    return content


def _require_checksum(stream: BoundedFile, header: bytes) -> None:
    total = sum(header) - sum(header[148:156]) + 8 * ord(" ")
    if _number(stream, header[148:156]) != total:
        stream.fail("a header's checksum is wrong: it is no tar archive, or damaged")


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
    """The path and the size that a pax header gives: records of "length key=value" and a line feed."""
    path: str | None = None
    size: int | None = None
    while content:
        told, space, _ = content.partition(b" ")
        length = int(told) if told.isdigit() and len(told) < 8 else 0
        record = content[len(told) + 1 : length]
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
    """The array of a ``.npy`` file, read-only, its values on the disk until they are used.

    :raises MissingError: when there is no such file.
    :raises DataError: when it is no array of plain numbers, or has another size than its header says.
    """
    with _opened(path) as file:
        magic = file.read(8)
        if magic[:6] != b"\x93NUMPY" or magic[6:] not in {b"\1\0", b"\2\0", b"\3\0"}:
            raise bad(path, _KIND, "it does not begin as a .npy file does")
        width = 2 if magic[6] == 1 else 4
        length = int.from_bytes(file.read(width), "little")
        if length > _MOST_HEADER_BYTES:
            raise bad(path, _KIND, f"it claims a header of {length:,} bytes, and {_MOST_HEADER_BYTES:,} is the most")
        found = _HEADER.fullmatch(file.read(length))
        offset = file.tell()
    if found is None:
        raise bad(path, _KIND, "its header is not that of an array of plain numbers (objects are never read)")
    shape = tuple(int(size) for size in found[3].replace(b" ", b"").split(b",") if size)
    return _mapped(path, found[1].decode(), shape, offset, "F" if found[2] == b"True" else "C")


def map_raw(path: Path, dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """A file of values and nothing else: ``dtype`` as ``"<f4"`` or ``"uint8"``, in C order; raises as :func:`map_npy`.

    :raises DataError: when ``dtype`` is no plain number, or the file is not as large as it and ``shape`` say.
    """
    try:
        name = np.dtype(dtype).str
    except (TypeError, ValueError, SyntaxError):
        raise bad(path, _KIND, f"{dtype!r} is no plain number", 'Give a type as "<f4" or "uint8"') from None
    with _opened(path):
        return _mapped(path, name, shape, 0, "C")


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise MissingError(f"reading {path}", "there is no such file", "Name a file that exists") from None
    except OSError as error:
        raise bad(path, _KIND, f"it cannot be read ({error})") from error


def _mapped(path: Path, name: str, shape: tuple[int, ...], offset: int, order: Literal["C", "F"]) -> npt.NDArray[Any]:
    if not _DTYPE.fullmatch(name):
        raise bad(path, _KIND, f"{name!r} is no plain number")
    dtype = np.dtype(name)
    if not shape or len(shape) > _MOST_DIMENSIONS or min(shape) < 1:
        raise bad(path, _KIND, f"its shape {shape} holds no rows")
    wanted, size = offset + math.prod(shape) * dtype.itemsize, path.stat().st_size
    if wanted != size:
        raise bad(path, _KIND, f"{shape} of {dtype} are {wanted:,} bytes with the header, and it has {size:,}")
    return np.memmap(path, dtype, "r", offset, shape, order)
