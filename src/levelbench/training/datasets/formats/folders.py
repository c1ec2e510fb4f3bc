"""Lists image folders: a folder a class, its images in it or below, classes and images in the order of their names.

The one idea: listing is cheap and opens no image, so that a folder of a million is there in seconds; the images come
when their rows are asked for.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import numpy.typing as npt

from levelbench.errors import DataError, MissingError

__all__ = ["SUFFIXES", "FolderIndex", "index_folder"]

SUFFIXES = (".jpeg", ".jpg", ".png")
_MOST_DEPTH = 8


@final
@dataclass(frozen=True, eq=False)
class FolderIndex:
    """The images of a folder: ``names`` relative to ``root``, ``labels`` (n,) int64 in the order of ``classes``."""

    root: Path
    classes: tuple[str, ...]
    names: Sequence[str]
    labels: npt.NDArray[np.int64]
    others: int
    """Files that are no images by their names, and were left out."""

    def __len__(self) -> int:
        return len(self.names)

    def name(self, index: int) -> str:
        """Of an image, for a message."""
        return str(self.root / self.names[index])

    def read(self, index: int, most_bytes: int) -> bytes:
        """The file's bytes; one byte more than ``most_bytes`` where it is larger."""
        with (self.root / self.names[index]).open("rb") as file:
            return file.read(most_bytes + 1)

    def digest(self) -> str:
        """SHA-256 of the listing: a line a file, of its name and its size, in order. No image is read for it."""
        hashed = hashlib.sha256()
        for name in self.names:
            hashed.update(f"{name} {(self.root / name).stat().st_size}\n".encode("utf-8", "surrogateescape"))
        return hashed.hexdigest()


def index_folder(root: Path) -> FolderIndex:
    """List ``root``; hidden files are not looked at.

    Links are followed where a class folder or an image is one, also out of ``root``: a part of a larger set is often
    made of links. Do not give it a folder of links that somebody else made. Folders further down are never links.

    :raises MissingError: when there is no such folder.
    :raises DataError: when it holds no class folder, or one of them holds no image.
    """
    try:
        classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith("."))
        found = {name: sorted(_files(root / name, name, 0)) for name in classes}
    except FileNotFoundError:
        raise MissingError(f"reading {root}", "there is no such folder", "Name one that exists") from None
    except OSError as error:
        raise DataError(f"reading the image folder {root}", str(error), "Make it readable") from error
    if not classes:
        raise _bad(root, "it has no folders, and each class is one")
    images = {name: [each for each in files if each.lower().endswith(SUFFIXES)] for name, files in found.items()}
    for name, listed in images.items():
        if not listed:
            raise _bad(root, f"its class {name!r} has no image ({', '.join(SUFFIXES)})")
    counts = [len(images[name]) for name in classes]
    return FolderIndex(
        root,
        tuple(classes),
        [each for name in classes for each in images[name]],
        np.repeat(np.arange(len(classes), dtype=np.int64), counts),
        sum(map(len, found.values())) - sum(counts),
    )


def _files(folder: Path, below: str, depth: int) -> Iterator[str]:
    """Regular files by their names relative to the root. Depth is bounded: a link may lead back up."""
    for entry in os.scandir(folder):
        if entry.name.startswith("."):
            continue
        if entry.is_file():
            yield f"{below}/{entry.name}"
        elif entry.is_dir(follow_symlinks=False) and depth < _MOST_DEPTH:
            yield from _files(folder / entry.name, f"{below}/{entry.name}", depth + 1)


def _bad(root: Path, found: str) -> DataError:
    return DataError(f"reading the image folder {root}", found, "Give it one folder a class, with images in it")
