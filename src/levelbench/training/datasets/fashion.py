"""fashion-mnist: 70,000 grey images of clothing, 28x28 pixels, 10 classes, found on this machine or downloaded.

The one idea: the places are asked in a fixed order (the user's folder, the cache, Debian's package, the official
download), and it does not matter which one answers, because the content is held against the same checksums.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import numpy as np
import numpy.typing as npt

from levelbench.errors import MissingError
from levelbench.training.datasets.base import Dataset, DatasetSource, Progress, Split, silent
from levelbench.training.datasets.files import DataFile, cache_folder, offline, read_checked
from levelbench.training.datasets.idx import content_digest
from levelbench.training.datasets.splits import standardise, stratified_split

__all__ = ["FashionMnist"]

# Content checksums: of the files in Debian's dataset-fashion-mnist 0.0~git20200523.55506a9-1, unpacked.
# Download checksums: of the official .gz files (README of github.com/zalandoresearch/fashion-mnist).
TRAIN_IMAGES: Final = DataFile(
    "train-images-idx3-ubyte",
    "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
)
TRAIN_LABELS: Final = DataFile(
    "train-labels-idx1-ubyte",
    "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
)
TEST_IMAGES: Final = DataFile(
    "t10k-images-idx3-ubyte",
    "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
)
TEST_LABELS: Final = DataFile(
    "t10k-labels-idx1-ubyte",
    "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
)
FILES: Final = (TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS)

HIGHEST: Final = 255
# Mean and population standard deviation of value / 255 over all pixels of the training split (50,000 images).
MEAN: Final = 0.2861
STD: Final = 0.3531

DEBIAN: Final = Path("/usr/share/datasets/fashion-mnist")
OFFICIAL_URL: Final = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
# The largest of the four official files has 26,421,880 bytes; a mirror may pack less well.
MOST_DOWNLOAD_BYTES: Final = 1 << 26


@final
@dataclass(frozen=True)
class Place:
    """A folder that may hold the files, and what to call it in a message."""

    label: str
    folder: Path

    def holder(self, files: Sequence[DataFile]) -> Path | None:
        """The folder with all of ``files``: this one, or one below it that has "fashion" in its name."""
        return next((each for each in self._candidates() if all(file.within(each) for file in files)), None)

    def _candidates(self) -> Iterator[Path]:
        yield self.folder
        if os.access(self.folder, os.R_OK) and self.folder.is_dir():
            for child in sorted(self.folder.iterdir()):
                if "fashion" in child.name.lower():
                    yield child
                    yield child / "raw"


@final
class FashionMnist(DatasetSource):
    """Fashion-MNIST: inputs (n, 1, 28, 28) float32, splits of 50,000, 10,000 and the official 10,000."""

    name = "fashion-mnist"
    licence = "MIT"
    attribution = (
        "H. Xiao, K. Rasul and R. Vollgraf (2017), Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine "
        "Learning Algorithms, arXiv:1708.07747; copyright 2017 Zalando SE"
    )
    split_rule = (
        "test is the official test set; of the 60,000 official training images, the 1,000 of each class that come "
        "first by the SHA-256 of their 784 bytes are the validation split, the rest the training split"
    )

    def __init__(self, files: Sequence[DataFile] = FILES, packaged: Path = DEBIAN) -> None:
        self._files = files
        self._packaged = packaged

    def load(self, folder: Path | None = None) -> Dataset:
        """The three splits, downloaded to the cache first if they are nowhere on this machine.

        ``folder`` holds the four IDX files, gzipped or plain, or has a folder of them whose name has "fashion" in it.

        :raises MissingError: when they are nowhere and may not or cannot be downloaded.
        :raises DataError: when a file is damaged.
        :raises StoreError: when the cache cannot be written.
        """
        holder, label = self._located(folder, silent)
        images, labels, test_images, test_labels = (read_checked(holder, file) for file in self._files)
        train, validation = stratified_split(images, labels, lambda count: (count // 6,))
        return Dataset(
            name=self.name,
            train=_split(images[train], labels[train]),
            validation=_split(images[validation], labels[validation]),
            test=_split(test_images, test_labels),
            classes=10,
            checksums={file.name: file.content_sha256 for file in self._files},
            split_rule=self.split_rule,
            licence=self.licence,
            source=f"{label}; {self.attribution}",
        )

    def lacks(self, folder: Path | None = None) -> str | None:
        """``None`` when the files are here or may be downloaded; whether the network answers is seen only then."""
        if not offline() or any(place.holder(self._files) for place in self._places(folder)):
            return None
        return "its files are nowhere on this machine, and LEVELBENCH_OFFLINE forbids to download them"

    def fetch(self, folder: Path | None = None, progress: Progress = silent) -> None:
        """Download the files to the cache, unless they are on this machine; raises as ``load`` does."""
        self._located(folder, progress)

    def _located(self, folder: Path | None, progress: Progress) -> tuple[Path, str]:
        """The folder that holds the files, after a download if need be, and its place's name."""
        for place in self._places(folder):
            holder = place.holder(self._files)
            if holder is not None:
                return holder, place.label
        if offline():
            raise self._missing(folder, "LEVELBENCH_OFFLINE forbids to download it")
        try:
            return self._download(progress), "downloaded"
        except MissingError as error:
            raise self._missing(folder, f"the download failed ({error.asked}: {error.found})") from error

    def _places(self, folder: Path | None) -> list[Place]:
        said = os.environ.get("LEVELBENCH_DATA")
        return [
            *([Place("--data", folder)] if folder is not None else []),
            *([Place("LEVELBENCH_DATA", Path(said))] if said else []),
            Place("the cache", cache_folder() / self.name),
            Place("the package dataset-fashion-mnist", self._packaged),
        ]

    def _download(self, progress: Progress) -> Path:
        # Imported here because it brings ssl and http, which nobody needs who has the files.
        from levelbench.training.datasets.download import fetch, file_digest

        mirror = os.environ.get("LEVELBENCH_FASHION_MNIST_URL")
        target = cache_folder() / self.name
        for file in self._files:
            fetch(
                f"{(mirror or OFFICIAL_URL).rstrip('/')}/{file.name}.gz",
                target / f"{file.name}.gz",
                # A mirror may have packed the same content anew; the official address has the official bytes.
                file.content_sha256 if mirror else file.download_sha256,
                digest=content_digest if mirror else file_digest,
                most_bytes=MOST_DOWNLOAD_BYTES,
                progress=progress,
            )
        return target

    def _missing(self, folder: Path | None, why: str) -> MissingError:
        looked = ", ".join(f"{place.label} ({place.folder})" for place in self._places(folder))
        return MissingError(
            f"the dataset {self.name} (4 files, 31 MB)",
            f"it is not in {looked}, and {why}",
            "Get it in one of three ways: install the package dataset-fashion-mnist (Debian and Ubuntu); or put the "
            "four IDX files into a folder and name it with --data or LEVELBENCH_DATA; or allow the download, with a "
            "network and without LEVELBENCH_OFFLINE (LEVELBENCH_FASHION_MNIST_URL names a mirror)",
        )


def _split(images: npt.NDArray[np.uint8], labels: npt.NDArray[np.uint8]) -> Split:
    return Split(standardise(images[:, None], HIGHEST, MEAN, STD), labels.astype(np.int64))
