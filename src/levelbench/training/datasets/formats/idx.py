"""Reads and writes IDX, the file format of MNIST and its descendants, plain or gzipped.

The one idea: nothing is believed before it is checked. The header says how many bytes follow; that claim is held
against the file's own size before anything is allocated, exactly that many bytes are read, and one byte more is an
error. Format: http://yann.lecun.com/exdb/mnist/ : two zero bytes, a type code, the number of dimensions, each dimension
as a big-endian uint32, then the values, big-endian.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, final

import numpy as np
import numpy.typing as npt

from levelbench.errors import DataError, MissingError

__all__ = ["IdxFile", "content_digest", "encode_idx", "read_idx", "write_idx"]

_CODES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_GZIP_MAGIC = b"\x1f\x8b"
# Deflate codes at most 258 bytes in 2 bits (RFC 1951): no honest file unpacks to more than 1,032 times its size.
_MOST_DEFLATION = 1032
_MOST_DIMENSIONS = 32
_MOST_BYTES = 1 << 31
_CHUNK_BYTES = 1 << 20


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


@final
@dataclass(frozen=True, eq=False)
class IdxFile:
    """An array in native byte order, and the SHA-256 of the uncompressed file that it was read from."""

    array: npt.NDArray[Any]
    sha256: str


def read_idx(path: Path, most_bytes: int = _MOST_BYTES) -> IdxFile:
    """The content of an IDX file; gzip is known by its first bytes, not by the name.

    :raises MissingError: when there is no such file.
    :raises DataError: when it is not exactly one array in IDX, or would be larger than ``most_bytes``.
    """
    try:
        with path.open("rb") as plain:
            size = path.stat().st_size
            zipped = plain.read(2) == _GZIP_MAGIC
            plain.seek(0)
            if not zipped:
                return _read(plain, path, size, most_bytes)
            with gzip.GzipFile(fileobj=plain) as unzipped:
                return _read(unzipped, path, size * _MOST_DEFLATION, most_bytes)
    except FileNotFoundError:
        raise MissingError(f"reading {path}", "there is no such file", "Name a file that exists") from None
    except (OSError, EOFError, zlib.error) as error:
        raise _bad(path, f"it cannot be read to its end ({error})") from error


def _read(stream: _Readable, path: Path, possible_bytes: int, most_bytes: int) -> IdxFile:
    """Header, values, end; ``possible_bytes`` is what a file of this size can hold at most."""
    header, dtype, shape = _read_header(stream, path)
    claimed = math.prod(shape) * dtype.itemsize
    if claimed > most_bytes:
        raise _bad(path, f"its header claims {claimed:,} bytes of values, and {most_bytes:,} is the most allowed")
    if claimed > possible_bytes:
        raise _bad(path, f"its header claims {claimed:,} bytes of values, more than the file can hold")
    values = np.empty(claimed, dtype=np.uint8)
    count = _fill(stream, values.data)
    if count < claimed:
        raise _bad(path, f"it is truncated: {count:,} bytes of values where its header claims {claimed:,}")
    if stream.read(1):
        raise _bad(path, f"bytes follow the {claimed:,} bytes of values that its header claims")
    digest = hashlib.sha256(header)
    digest.update(values.data)
    array = values.view(dtype).reshape(shape)
    return IdxFile(array.astype(dtype.newbyteorder("="), copy=False), digest.hexdigest())


def _read_header(stream: _Readable, path: Path) -> tuple[bytes, np.dtype[Any], tuple[int, ...]]:
    magic = stream.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0":
        raise _bad(path, f"it does not begin as IDX does (first bytes: {magic.hex(' ') or 'none'})")
    if magic[2] not in _CODES:
        raise _bad(path, f"its type code 0x{magic[2]:02x} is none of IDX's")
    if not 1 <= magic[3] <= _MOST_DIMENSIONS:
        raise _bad(path, f"it claims {magic[3]} dimensions, and 1 to {_MOST_DIMENSIONS} is possible")
    sizes = stream.read(4 * magic[3])
    if len(sizes) < 4 * magic[3]:
        raise _bad(path, "it ends inside its header")
    shape = tuple(int(size) for size in np.frombuffer(sizes, dtype=">u4"))
    if not all(shape):
        raise _bad(path, f"its shape {shape} holds nothing")
    return magic + sizes, np.dtype(_CODES[magic[2]]), shape


def _fill(stream: _Readable, values: memoryview) -> int:
    """Read until ``values`` is full or the stream ends; the bytes read. In pieces, so that memory is touched late."""
    done = 0
    while done < len(values):
        chunk = stream.read(min(_CHUNK_BYTES, len(values) - done))
        if not chunk:
            break
        values[done : done + len(chunk)] = chunk
        done += len(chunk)
    return done


def content_digest(path: Path) -> str:
    """The SHA-256 of an IDX file's uncompressed content, whether the file is gzipped or not.

    :raises DataError: when it is not IDX.
    """
    return read_idx(path).sha256


def encode_idx(array: npt.NDArray[Any]) -> bytes:
    """The IDX file of an array.

    :raises DataError: for a type that IDX has no code for, or a shape that it cannot say.
    """
    stored = array.dtype.newbyteorder(">").str.replace("|", ">")
    code = next((code for code, name in _CODES.items() if name == stored), None)
    if code is None or not 1 <= array.ndim <= _MOST_DIMENSIONS or not array.size:
        raise DataError(
            "writing an IDX file",
            f"an array of {array.dtype} and shape {array.shape}, which the format cannot hold",
            "Use uint8, int8, int16, int32, float32 or float64 with at least one element and one dimension",
        )
    header = bytes([0, 0, code, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes()
    return header + array.astype(stored, copy=False).tobytes()


def write_idx(path: Path, array: npt.NDArray[Any]) -> None:
    """Write an array as IDX, gzipped if the name ends in ``.gz``; the same array gives the same bytes."""
    content = encode_idx(array)
    path.write_bytes(gzip.compress(content, 9, mtime=0) if path.suffix == ".gz" else content)


def _bad(path: Path, found: str) -> DataError:
    return DataError(f"reading {path} as an IDX file", found, "Remove the file and fetch it again")
