"""Where imported entries lie in a leaderboard's folder, and finding those that lie there.

The one idea: an entry's place follows from what it was read from, so importing again changes nothing, and an entry that
somebody has changed since is not overwritten unasked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from levelbench.errors import UsageError
from levelbench.records.exchange.files import read_bytes, write_whole
from levelbench.records.submissions.digests import encode, submission_digest
from levelbench.records.submissions.files import cut_at_word
from levelbench.records.submissions.reading import FILE_LIMIT
from levelbench.records.submissions.schema import Submission

__all__ = ["Placed", "entry_paths", "place", "places"]

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
