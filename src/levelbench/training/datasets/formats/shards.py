"""Indexes tar shards in WebDataset's layout: members that share a name up to its first dot are one example.

The one idea: a shard is read once for its headers; from then on any image is a file, an offset and a size, so that
shards are shuffled like anything else. Layout: https://github.com/webdataset/webdataset .
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import numpy.typing as npt

from levelbench.errors import DataError
from levelbench.training.datasets.formats.tar import members
from levelbench.training.datasets.formats.unpacking import GZIP_MAGIC, Stream, unpacked

__all__ = ["ShardIndex", "index_shards"]

_IMAGES = ("jpeg", "jpg", "png")
_IMAGE = "/image"  # no suffix has a slash
_LABEL = "cls"
_KIND = "a tar shard"
_MOST_LABEL_BYTES = 20
_MOST_SHARD_BYTES = 1 << 40


@final
@dataclass(frozen=True, eq=False)
class ShardIndex:
    """The images of some shards: where each one is, and its class."""

    paths: Sequence[Path]
    keys: Sequence[str]
    labels: npt.NDArray[np.int64]
    shards: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.keys)

    def name(self, index: int) -> str:
        """Of an image, for a message."""
        return f"{self.paths[self.shards[index]]}:{self.keys[index]}"

    def read(self, index: int, most_bytes: int) -> bytes:
        """The image's bytes; one byte more than ``most_bytes`` where it is larger. Safe in several threads."""
        size = min(int(self.sizes[index]), most_bytes + 1)
        with self.paths[self.shards[index]].open("rb") as file:
            return os.pread(file.fileno(), size, int(self.offsets[index]))

    def digest(self) -> str:
        """SHA-256 of the listing: a line an image, of its key and its size, in order. No image is read for it."""
        hashed = hashlib.sha256()
        for key, size in zip(self.keys, self.sizes.tolist(), strict=True):
            hashed.update(f"{key} {size}\n".encode())
        return hashed.hexdigest()


def index_shards(paths: Sequence[Path]) -> ShardIndex:
    """Read the headers and the labels of ``paths``, in order.

    An example is an image (``key.jpg``, ``.jpeg`` or ``.png``) and its class (``key.cls``, decimal digits).

    :raises DataError: for a shard that is truncated, damaged, compressed, or has anything but files under plain names;
        for an example without an image or class, and for a key that comes again.
    """
    keys: list[str] = []
    rows: list[tuple[int, int, int, int]] = []
    seen: set[str] = set()
    for number, path in enumerate(paths):
        for key, parts in _examples(path):
            if key in seen:
                raise _bad(path, f"the key {key!r} comes a second time")
            seen.add(key)
            keys.append(key)
            rows.append((number, *parts))
    table = np.array(rows, np.int64).reshape(len(rows), 4)
    return ShardIndex(list(paths), keys, table[:, 3], table[:, 0].astype(np.int32), table[:, 1], table[:, 2])


def _examples(path: Path) -> list[tuple[str, tuple[int, int, int]]]:
    """Of each example its key, and the image's offset, its size and the class."""
    grouped: dict[str, dict[str, tuple[int, int]]] = {}
    with unpacked(path, _KIND, _MOST_SHARD_BYTES) as stream:
        _require_plain(path)
        for member in members(stream):
            folder, _, base = member.name.rpartition("/")
            stem, _, suffix = base.partition(".")
            kind = _IMAGE if suffix.lower() in _IMAGES else suffix.lower()
            parts = grouped.setdefault(f"{folder}/{stem}" if folder else stem, {})
            if kind in parts:
                stream.fail(f"its member {member.name!r} is the second {kind.lstrip('/')} of its example")
            value = _label(stream, member.size) if kind == _LABEL else member.size
            parts[kind] = (member.offset, value)
    for key, parts in grouped.items():
        if _IMAGE not in parts or _LABEL not in parts:
            kinds = ", ".join(sorted("an image" if kind == _IMAGE else f".{kind}" for kind in parts))
            raise _bad(path, f"its example {key!r} has {kinds}, and an image and a .{_LABEL} are needed")
    return [(key, (*parts[_IMAGE], parts[_LABEL][1])) for key, parts in grouped.items()]


def _label(stream: Stream, size: int) -> int:
    if size > _MOST_LABEL_BYTES:
        stream.fail(f"it has a class of {size:,} bytes")
    text = stream.exactly(size, "a class").strip()
    if not text.isdigit() or len(text) > 9:
        stream.fail(f"it has a class {text!r}, which is no number")
    return int(text)


def _require_plain(path: Path) -> None:
    with path.open("rb") as file:
        if file.read(2) == GZIP_MAGIC:
            raise _bad(path, "it is compressed, and its images can be reached at random only in a plain tar")


def _bad(path: Path, found: str) -> DataError:
    return DataError(f"reading {path} as {_KIND}", found, "Write the shard anew, as plain tar in WebDataset's layout")
