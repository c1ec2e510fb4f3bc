"""Files of other systems: read under limits, and placed in a leaderboard as entries."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from levelbench.competition.entries import Submission, cut_at_word, encode, submission_digest, write_whole
from levelbench.competition.reading import FILE_LIMIT
from levelbench.errors import RecordError, StoreError, UsageError


def read_bytes(path: Path, most: int, root: Path | None = None) -> bytes:
    """The bytes of a regular file of at most ``most`` bytes. ``RecordError`` for a larger or another one."""
    asked = f"reading {path}"
    try:
        if root is not None and not path.resolve().is_relative_to(root.resolve()):
            raise RecordError(asked, "it leads out of the folder", "put the file itself there, not a link")
        if not path.is_file():
            found = "it is no regular file" if path.exists() else "there is none"
            raise RecordError(asked, found, "give the path of a file")
        with path.open("rb") as file:
            data = file.read(most + 1)
    except (OSError, RuntimeError) as error:
        found = getattr(error, "strerror", None) or str(error)
        raise StoreError(asked, found, "make the file readable") from error
    if len(data) > most:
        raise RecordError(asked, f"it is larger than {most:,} bytes", "give a file of the format's size")
    return data


def place_in(root: Path, path: Path) -> str:
    """Where ``path`` lies in ``root``, as text: names that are no Unicode, which file systems allow, as escapes."""
    where = path.relative_to(root) if path.is_relative_to(root) else path
    return where.as_posix().encode("utf-8", "backslashreplace").decode()


_MODES = ("training", "inference")
_LONGEST = 80
"""The most characters of a file's name."""


class Placed(NamedTuple):
    """The files that an import wrote, and how many lay there already as they are."""

    written: list[Path]
    unchanged: int


def places(submissions: Sequence[Submission]) -> list[str]:
    """The id of each: ``task/mode/stem``. Entries that would share one get a part of their digest as well."""
    stems = [f"{_slug(each.task)}/{each.mode}/{_stem(each)}" for each in submissions]
    folded = [each.lower() for each in stems]
    return [
        f"{stem}-{submission_digest(each)[:8]}" if folded.count(stem.lower()) > 1 else stem
        for stem, each in zip(stems, submissions, strict=True)
    ]


def _stem(entry: Submission) -> str:
    origin = entry.origin
    if origin is not None and origin.format == "dawnbench":
        return _slug(Path(origin.file).stem)
    if origin is not None and _slug(origin.file) != "unnamed":
        return _slug(origin.file.removesuffix(".txt"))
    return _slug(f"{entry.author.name}_{entry.model}_{entry.hardware.description}_{entry.framework}")


def _slug(text: str) -> str:
    """``text`` as a file's name: never a path, never hidden, never empty."""
    return cut_at_word(re.sub(r"[^A-Za-z0-9._+-]+", "-", text), _LONGEST) or "unnamed"


def place(submissions: Sequence[Submission], folder: Path, *, force: bool = False) -> Placed:
    """Write each submission to its place under ``folder``.

    Raises ``UsageError``, before anything is written, where another submission has one of the places; ``force``
    replaces it.
    """
    wanted = [
        (folder / f"{name}.json", encode(each)) for name, each in zip(places(submissions), submissions, strict=True)
    ]
    there = {path: read_bytes(path, FILE_LIMIT, folder) for path, _ in wanted if path.exists()}
    other = [path for path, data in wanted if path in there and there[path] != data]
    if other and not force:
        many = "1 entry lies there and differs" if len(other) == 1 else f"{len(other)} entries lie there and differ"
        found = f"{many}, {other[0].relative_to(folder)} the first"
        raise UsageError(f"importing into {folder}", found, "choose another folder, or give --force to replace them")
    new = [(path, data) for path, data in wanted if there.get(path) != data]
    return Placed([write_whole(path, data) for path, data in new], len(wanted) - len(new))


def entry_paths(where: Path) -> Iterator[tuple[str, Path]]:
    """Id and path of each entry of a leaderboard's folder, sorted; of a single file, its own stem and path."""
    if not where.is_dir():
        yield where.stem, where
        return
    for path in sorted(where.glob("*/*/*.json")):
        if path.parent.name in _MODES:
            yield path.relative_to(where).with_suffix("").as_posix(), path
