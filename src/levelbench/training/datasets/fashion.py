"""fashion-mnist: 70,000 grey images of clothing, 28x28 pixels, 10 classes, found on this machine or downloaded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

import numpy as np
import numpy.typing as npt

from levelbench.training.datasets.base import Dataset, Normalisation, Progress, Split
from levelbench.training.datasets.files import DataFile, cache_folder, read_checked
from levelbench.training.datasets.formats.idx import content_digest
from levelbench.training.datasets.places import FileSource, Place, folders_of
from levelbench.training.datasets.splits import stratified_split

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

HIGHEST: Final = 255.0
# Mean and population standard deviation of value / 255 over all pixels of the training split (50,000 images).
MEAN: Final = 0.2861
STD: Final = 0.3531

DEBIAN: Final = Path("/usr/share/datasets/fashion-mnist")
OFFICIAL_URL: Final = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
# The largest of the four official files has 26,421,880 bytes; a mirror may pack less well.
MOST_DOWNLOAD_BYTES: Final = 1 << 26


@final
class FashionMnist(FileSource):
    """Fashion-MNIST: inputs (n, 1, 28, 28) uint8 with their normalisation; 50,000, 10,000 and the official 10,000."""

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

    size = "4 files, 31 MB"
    home = "github.com/zalandoresearch/fashion-mnist, and Debian's and Ubuntu's package dataset-fashion-mnist"
    ways = (
        "in one of three ways: install the package dataset-fashion-mnist (Debian and Ubuntu); or put the "
        "four IDX files into a folder and name it with --data or LEVELBENCH_DATA; or allow the download, with a "
        "network and without LEVELBENCH_OFFLINE (LEVELBENCH_FASHION_MNIST_URL names a mirror)"
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
        found = self.located(folder)
        images, labels, test_images, test_labels = (read_checked(found.held, file) for file in self._files)
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
            source=f"{found.label}; {self.attribution}",
            normalisation=Normalisation(
                (MEAN,), (STD,), HIGHEST, "mean and deviation over all pixels of the training split"
            ),
        )

    def held(self, folder: Path) -> Path | None:
        """The folder with all four files: ``folder``, or one in it that has "fashion" in its name."""
        candidates = folders_of(folder, "fashion")
        return next((each for each in candidates if all(file.within(each) for file in self._files)), None)

    def packaged(self) -> Sequence[Place]:
        """Where the package of Debian and Ubuntu puts them."""
        return [Place("the package dataset-fashion-mnist", self._packaged)]

    def download(self, progress: Progress) -> Path:
        """The four files, into the cache."""
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


def _split(images: npt.NDArray[np.uint8], labels: npt.NDArray[np.uint8]) -> Split:
    return Split.of(images[:, None], labels.astype(np.int64))
