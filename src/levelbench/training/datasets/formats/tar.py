"""Reads tar archives member by member, and only what a dataset needs of them: regular files under plain names.

The one idea: nothing is unpacked to the disk. A member is a name, an offset and a size; a link, a device or a name that
leads out of the archive's folder ends the reading, since no honest dataset has one. Format: POSIX.1-2001 (ustar and
pax), and GNU tar's long names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from levelbench.training.datasets.formats.unpacking import Stream

__all__ = ["Member", "members", "safe_name"]

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
class Member:
    """A file in an archive: ``size`` bytes from ``offset`` of the unpacked archive."""

    name: str
    offset: int
    size: int


def members(stream: Stream) -> Iterator[Member]:
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
        yield Member(safe_name(stream, name), start, size)
        _skip_rest(stream, start, size, name)


def safe_name(stream: Stream, name: str) -> str:
    """``name`` without a leading ``./``; an error where it is absolute, or leads out of its folder."""
    parts = [part for part in name.split("/") if part != "."]
    if name.startswith("/") or ".." in parts or "\\" in name or not name.isprintable() or not name:
        stream.fail(f"its member {name!r} has a name that may lead out of its folder")
    return "/".join(parts)


def _skip_rest(stream: Stream, start: int, size: int, name: str) -> None:
    """To the end of a member and of its last block."""
    padded = -(-size // _BLOCK) * _BLOCK
    stream.skip(start + padded - stream.done, f"its member {name!r}")


def _small(stream: Stream, size: int) -> bytes:
    """A member that describes the next one; these are short, whatever they claim."""
    if size > _MOST_HEADER_BYTES:
        stream.fail(f"a header claims {size:,} bytes, and {_MOST_HEADER_BYTES:,} is the most allowed")
    start = stream.done
    content = stream.exactly(size, "a header")
    _skip_rest(stream, start, size, "a header")
    return content


def _require_checksum(stream: Stream, header: bytes) -> None:
    total = sum(header) - sum(header[148:156]) + 8 * ord(" ")
    if _number(stream, header[148:156]) != total:
        stream.fail("a header's checksum is wrong: it is no tar archive, or damaged")


def _number(stream: Stream, field: bytes) -> int:
    """Octal digits, or GNU's big-endian binary after a first byte of 0x80."""
    if field[:1] == b"\x80":
        value = int.from_bytes(field[1:], "big")
        if value >= 1 << 62:
            stream.fail(f"a header claims {value:,} bytes")
        return value
    digits = field.strip(b" \0")
    if digits and not set(digits) <= set(b"01234567"):
        stream.fail("a header has a number that is none: it is no tar archive, or damaged")
    return int(digits or b"0", 8)


def _name(header: bytes) -> bytes:
    name = header[:100].split(b"\0", 1)[0]
    prefix = header[345:500].split(b"\0", 1)[0] if header[257:263] == b"ustar\0" else b""
    return prefix + b"/" + name if prefix else name


def _text(stream: Stream, name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        stream.fail(f"it has a member whose name {name[:40]!r} is not in UTF-8")


def _pax(stream: Stream, content: bytes) -> tuple[str | None, int | None]:
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
