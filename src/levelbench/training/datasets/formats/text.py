"""Reads text files strictly, and says where a file is not in the encoding that was promised."""

from __future__ import annotations

from pathlib import Path
from stat import S_ISDIR, S_ISREG

from levelbench.errors import DataError, MissingError

__all__ = ["decode", "read_bytes", "read_text"]

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
