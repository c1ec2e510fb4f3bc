"""imagenet: 1.28 million photographs in 1,000 classes, in a folder that the user has.

The images stay where and as they are, JPEG in class folders or tar shards, and are decoded when their rows are asked
for. They may not be passed on, so nothing is downloaded.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, final

import numpy as np
import numpy.typing as npt

from levelbench.errors import DataError, UsageError
from levelbench.training.datasets.base import Dataset, Normalisation, Split
from levelbench.training.datasets.images import (
    EncodedImages,
    FolderIndex,
    ImageColumn,
    ShardIndex,
    View,
    index_folder,
    index_shards,
)
from levelbench.training.datasets.places import FileSource

CONSTANTS: Final = Normalisation(
    (0.485, 0.456, 0.406),
    (0.229, 0.224, 0.225),
    source="mean and deviation as torchvision's reference recipes have them",
)
Index = FolderIndex | ShardIndex


@final
@dataclass(frozen=True)
class ImagenetFiles:
    """The class folders ``train`` and ``val``, or the shards of both."""

    train: Path | tuple[Path, ...]
    test: Path | tuple[Path, ...]


@final
@dataclass(frozen=True)
class _Part:
    """Some of the images of an index."""

    index: Index
    rows: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def name(self, index: int) -> str:
        return self.index.name(int(self.rows[index]))

    def read(self, index: int, most_bytes: int) -> bytes:
        return self.index.read(int(self.rows[index]), most_bytes)


@final
class Imagenet(FileSource):
    """ImageNet (ILSVRC 2012): images (n, 3, size, size) uint8, decoded when they are taken.

    Training sees a random piece of 8 to 100 % of each image, evaluation the middle of the image whose shorter side was
    scaled to ``size`` * 256 / 224. ``validation="test"`` holds nothing out, as in DAWNBench's rules; else the 50 images
    of each training class that come first by the SHA-256 of their names are the validation split. ``threads`` decode.
    """

    name = "imagenet"
    licence = "ImageNet terms of access"
    attribution = "O. Russakovsky et al. (2015), ImageNet Large Scale Visual Recognition Challenge, arXiv:1409.0575"
    size = "1,331,167 files, 147 GB"
    home = "https://image-net.org, after registration"
    downloads = False
    ways = (
        "Accept the terms (for research and education, not to be passed on) at image-net.org, unpack "
        "ILSVRC2012_img_train.tar and ILSVRC2012_img_val.tar into a folder that has "
        "train/ and val/ with one folder a class (or train-*.tar and val-*.tar shards in WebDataset's layout), and "
        "name that folder with --data or LEVELBENCH_DATA"
    )

    def __init__(
        self,
        size: int = 224,
        validation: Literal["held-out", "test"] = "held-out",
        classes: int = 1000,
        held_out: int = 50,
        threads: int | None = None,
    ) -> None:
        if validation not in {"held-out", "test"}:
            raise UsageError(f"validation={validation!r}", "there is no such split", "give held-out or test")
        # ImageNet's few EXIF orientations are ignored, as all published figures ignore them.
        self._seen = View(size, round(size * 256 / 224), (0.08, 1.0), upright=False)
        self._classes = classes
        self._held_out = held_out if validation == "held-out" else 0
        self._threads = threads or min(8, os.cpu_count() or 1)
        self.split_rule = (
            f"test is the official validation set; of the official training images, the {held_out} of each class that "
            "come first by the SHA-256 of their names are the validation split, the rest the training split"
            if self._held_out
            else "training is the official training set; the official validation set is both validation and test split"
        )

    def load(self, folder: Path | None = None) -> Dataset:
        """The three splits. Lists the images, and reads none; ``MissingError`` also where Pillow is not installed."""
        found = self.located(folder)
        train, test = self._index(found.held.train), self._index(found.held.test)
        if isinstance(train, FolderIndex) and isinstance(test, FolderIndex) and train.classes != test.classes:
            other = sorted(set(train.classes) ^ set(test.classes))[:3]
            raise _bad(found.held.test, f"its classes are not those of the training images ({', '.join(other)}, ...)")
        kept, held = _parts(train, self._held_out)
        tested = self._split(test, np.arange(len(test), dtype=np.int64))
        splits = (self._split(train, kept), self._split(train, held) if self._held_out else tested, tested)
        # Of the names and sizes: a digest of 147 GB would take longer than many a training.
        checksums = {"listing of train": train.digest(), "listing of val": test.digest()}
        return self.assembled(splits, self._classes, checksums, found.label, normalisation=CONSTANTS)

    def held(self, folder: Path) -> ImagenetFiles | None:
        """``folder``, or ``imagenet`` in it: class folders before shards."""
        for each in (folder, folder / "imagenet"):
            if os.access(each / "train", os.R_OK) and os.access(each / "val", os.R_OK):
                return ImagenetFiles(each / "train", each / "val")
            if os.access(each, os.R_OK) and each.is_dir():
                train, test = (tuple(sorted(each.glob(f"{part}-*.tar"))) for part in ("train", "val"))
                if train and test:
                    return ImagenetFiles(train, test)
        return None

    def _index(self, part: Path | tuple[Path, ...]) -> Index:
        index: Index = index_folder(part) if isinstance(part, Path) else index_shards(part)
        highest = int(index.labels.max(initial=0))
        if highest >= self._classes:
            raise _bad(part, f"it has a class {highest}, and there are {self._classes}, from 0")
        counts = np.bincount(index.labels, minlength=self._classes)
        if not counts.all():
            raise _bad(part, f"its class {int(counts.argmin())} has no image; there are {self._classes} classes")
        return index

    def _split(self, index: Index, rows: npt.NDArray[np.int64]) -> Split:
        images: EncodedImages = _Part(index, rows)
        return Split.of(ImageColumn(images, self._seen, self._threads), index.labels[rows])


def _parts(index: Index, held_out: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Row numbers of what trains and of what is held out of each class, ascending."""
    names = index.names if isinstance(index, FolderIndex) else index.keys
    digests = np.frombuffer(b"".join(hashlib.sha256(_base(name)).digest() for name in names), dtype="S32")
    order = np.lexsort((digests, index.labels))
    starts = np.searchsorted(index.labels[order], np.arange(index.labels.max() + 1))
    rank = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    return np.sort(order[rank >= held_out]), np.sort(order[rank < held_out])


def _base(name: str) -> bytes:
    """The file's own name without its suffix: the same in a folder and in a shard."""
    return name.rpartition("/")[2].partition(".")[0].encode("utf-8", "surrogateescape")


def _bad(part: Path | tuple[Path, ...], found: str) -> DataError:
    where = part if isinstance(part, Path) else part[0].parent
    return DataError(
        f"reading imagenet in {where}", found, "Give it the official images, one folder a class in train and val"
    )
