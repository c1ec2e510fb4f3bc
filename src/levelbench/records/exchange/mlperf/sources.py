"""The files of a results tree: in a folder, in a tar archive, or a single log.

The one idea: a tree comes from strangers. No link is followed, nothing is extracted, only the few files that a results
tree has are read, and all of them under limits that hold before a byte is parsed.
"""

from __future__ import annotations

import gzip
import os
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from levelbench.errors import RecordError
from levelbench.records.exchange.mlperf.dialects import FILE_LIMIT
from levelbench.records.reader import open_record

__all__ = ["FILES_LIMIT", "Tree", "read_bytes", "read_tree"]

FILES_LIMIT = 20_000
"""The most files of one tree that are looked at."""
_ARCHIVE_LIMIT = 512 * 1024 * 1024
"""The most bytes that an archive may hold, unpacked."""
_DEPTH = 12
_SMALL = 4 * 1024 * 1024
"""The largest JSON file that is read."""

Tree = dict[PurePosixPath, bytes]
"""Contents by path, relative to the tree's root."""


def read_bytes(path: Path, asked: str, limit: int = FILE_LIMIT) -> bytes:
    """The content of a regular file; ``RecordError`` if it is larger than ``limit`` bytes or none."""
    with open_record(path, asked) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise RecordError(asked, f"it is larger than {limit} bytes", "give a smaller file")
    return content


def read_tree(path: Path, wanted: re.Pattern[str], asked: str) -> Tree:
    """The files below ``path`` whose name matches ``wanted``, and the JSON files of systems and scalings.

    ``path`` is a folder, a tar archive (``.tar``, ``.tar.gz``, ``.tgz``) or one file, which is taken whatever its name.
    Raises ``RecordError`` for a path that is none of them, an archive that is damaged, and beyond the limits.
    """
    if path.is_dir():
        return {name: read_bytes(path / name, f"reading {path / name}", _limit(name)) for name in _walk(path, wanted)}
    if path.name.endswith((".tar", ".tar.gz", ".tgz")):
        return _read_archive(path, wanted, asked)
    return {PurePosixPath(path.name): read_bytes(path, asked)}


def _wanted(name: PurePosixPath, logs: re.Pattern[str]) -> bool:
    described = name.suffix == ".json" and (name.parent.name == "systems" or name.name == "scaling.json")
    return described or logs.fullmatch(name.name) is not None


def _limit(name: PurePosixPath) -> int:
    return _SMALL if name.suffix == ".json" and name.name != "mlperf_log_accuracy.json" else FILE_LIMIT


def _walk(root: Path, logs: re.Pattern[str]) -> list[PurePosixPath]:
    """The wanted files below ``root``, sorted; links and what is too deep are not looked at."""
    found: list[PurePosixPath] = []
    for folder, folders, files in os.walk(root):
        inside = Path(folder).relative_to(root)
        folders[:] = sorted(each for each in folders if len(inside.parts) < _DEPTH and not each.startswith("."))
        for name in files:
            path = PurePosixPath(inside.as_posix()) / name
            if _wanted(path, logs) and not (root / path).is_symlink():
                found.append(path)
        if len(found) > FILES_LIMIT:
            found_text = f"it has more than {FILES_LIMIT} files of results"
            raise RecordError(f"reading {root}", found_text, "give one submitter's folder")
    return sorted(found, key=_natural)


def _natural(path: PurePosixPath) -> list[tuple[int, str]]:
    """``result_10`` after ``result_9``."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d{1,9})", str(path))]


class _Limited:
    """A stream that refuses to give more than ``limit`` bytes, so that no small archive unpacks to a large one."""

    def __init__(self, read: Callable[[int], bytes], limit: int) -> None:
        self._read = read
        self._left = limit

    def read(self, size: int) -> bytes:
        """Up to ``size`` bytes."""
        data = self._read(size)
        self._left -= len(data)
        if self._left < 0:
            raise ValueError(f"it unpacks to more than {_ARCHIVE_LIMIT} bytes")
        return data


def _read_archive(path: Path, logs: re.Pattern[str], asked: str) -> Tree:
    found: Tree = {}
    with open_record(path, asked) as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        try:
            stream: BinaryIO | gzip.GzipFile = gzip.GzipFile(fileobj=raw) if packed else raw
            # As a stream: nothing is sought, so what comes is counted once.
            with tarfile.open(fileobj=_Limited(stream.read, _ARCHIVE_LIMIT), mode="r|") as archive:  # type: ignore[call-overload]
                for name, content in _members(archive, logs):
                    found[name] = content
        except (tarfile.TarError, EOFError, zlib.error, OSError, ValueError, OverflowError) as error:
            reason = str(error) or type(error).__name__
            raise RecordError(
                asked, f"the archive cannot be read ({reason})", "give a whole .tar or .tar.gz"
            ) from error
    return dict(sorted(found.items(), key=lambda item: _natural(item[0])))


def _members(archive: tarfile.TarFile, logs: re.Pattern[str]) -> Iterator[tuple[PurePosixPath, bytes]]:
    for number, member in enumerate(archive):
        if number > FILES_LIMIT:
            raise ValueError(f"it has more than {FILES_LIMIT} members")
        name = PurePosixPath(member.name)
        if not member.isreg() or name.is_absolute() or ".." in name.parts or not _wanted(name, logs):
            continue
        if member.size > _limit(name):
            raise ValueError(f"{name} is larger than {_limit(name)} bytes")
        content = archive.extractfile(member)
        if content is not None:
            yield name, content.read()
