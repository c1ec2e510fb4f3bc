"""digits and fashion-mnist, and IDX, the file format that they use.

IDX (http://yann.lecun.com/exdb/mnist/) is two zero bytes, a type code, the number of dimensions, each dimension as a
big-endian uint32, then the values, big-endian; plain or gzipped. The header's claim is compared with the file's size
before anything is allocated.

digits are 1,797 images of 8x8 pixels, bundled, so that a first run needs nothing else: the test set of the UCI "Optical
Recognition of Handwritten Digits" (values 0 to 16), as shipped by scikit-learn. The files in ``data/`` were made by::

    digits = sklearn.datasets.load_digits()
    write_idx(Path("digits-images-idx3-ubyte.gz"), digits.images.astype(np.uint8))
    write_idx(Path("digits-labels-idx1-ubyte.gz"), digits.target.astype(np.uint8))
"""

from __future__ import annotations

import gzip
import hashlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np
import numpy.typing as npt

from levelbench.errors import DataError, MissingError
from levelbench.training.datasets.base import (
    Dataset,
    DatasetSource,
    Normalisation,
    Progress,
    Split,
    silent,
    standardise,
    stratified_split,
)
from levelbench.training.datasets.places import (
    DataFile,
    FileLocation,
    FileSource,
    cache_folder,
    folders_of,
    refuse_folder,
)
from levelbench.training.datasets.reading import BoundedFile, require_digest, unpacked

_CODES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_MOST_DIMENSIONS = 32
_MOST_HEADER_BYTES = 4 * (_MOST_DIMENSIONS + 1)
_MOST_BYTES = 1 << 31


@final
@dataclass(frozen=True, eq=False)
class IdxFile:
    """An array in native byte order, and the SHA-256 of its uncompressed file."""

    array: npt.NDArray[Any]
    sha256: str


def read_idx(path: Path, most_bytes: int = _MOST_BYTES) -> IdxFile:
    """The content of an IDX file; gzip is recognised by its first bytes, not by the name.

    :raises MissingError: when the file does not exist.
    :raises DataError: when it is not exactly one array in IDX, or would be larger than ``most_bytes``.
    """
    with unpacked(path, "an IDX file", most_bytes + _MOST_HEADER_BYTES) as stream:
        header, dtype, shape = _read_header(stream)
        claimed = math.prod(shape) * dtype.itemsize
        if claimed > most_bytes:
            stream.fail(f"its header claims {claimed:,} bytes of values, and {most_bytes:,} is the limit")
        if claimed > stream.possible_bytes:
            stream.fail(f"its header claims {claimed:,} bytes of values, more than the file can hold")
        values = np.empty(claimed, dtype=np.uint8)
        count = stream.fill(values.data)
        if count < claimed:
            stream.fail(f"it is truncated: {count:,} bytes of values where its header claims {claimed:,}")
        if stream.read(1):
            stream.fail(f"bytes follow the {claimed:,} bytes of values that its header claims")
    digest = hashlib.sha256(header)
    digest.update(values.data)
    array = values.view(dtype).reshape(shape)
    return IdxFile(array.astype(dtype.newbyteorder("="), copy=False), digest.hexdigest())


def _read_header(stream: BoundedFile) -> tuple[bytes, np.dtype[Any], tuple[int, ...]]:
    magic = stream.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0":
        stream.fail(f"it does not start like an IDX file (first bytes: {magic.hex(' ') or 'none'})")
    if magic[2] not in _CODES:
        stream.fail(f"its type code 0x{magic[2]:02x} is not defined by IDX")
    if not 1 <= magic[3] <= _MOST_DIMENSIONS:
        stream.fail(f"it claims {magic[3]} dimensions instead of 1 to {_MOST_DIMENSIONS}")
    sizes = stream.read(4 * magic[3])
    if len(sizes) < 4 * magic[3]:
        stream.fail("it ends inside its header")
    shape = tuple(int(size) for size in np.frombuffer(sizes, dtype=">u4"))
    if not all(shape):
        stream.fail(f"its shape {shape} is empty")
    return magic + sizes, np.dtype(_CODES[magic[2]]), shape


def content_digest(path: Path) -> str:
    """The SHA-256 of an IDX file's uncompressed content, whether or not the file is gzipped.

    :raises DataError: when it is not IDX.
    """
    return read_idx(path).sha256


def encode_idx(array: npt.NDArray[Any]) -> bytes:
    """The bytes of an IDX file of an array.

    :raises DataError: for a dtype or shape that IDX cannot represent.
    """
    stored = array.dtype.newbyteorder(">").str.replace("|", ">")
    code = next((code for code, name in _CODES.items() if name == stored), None)
    if code is None or not 1 <= array.ndim <= _MOST_DIMENSIONS or not array.size:
        raise DataError(
            "writing an IDX file",
            f"an array of {array.dtype} and shape {array.shape}, which the format cannot represent",
            "Use uint8, int8, int16, int32, float32 or float64 with at least one element and one dimension",
        )
    header = bytes([0, 0, code, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes()
    return header + array.astype(stored, copy=False).tobytes()


def write_idx(path: Path, array: npt.NDArray[Any]) -> None:
    """Write an array as IDX, gzipped if the name ends in ``.gz``; the same array gives the same bytes."""
    content = encode_idx(array)
    path.write_bytes(gzip.compress(content, 9, mtime=0) if path.suffix == ".gz" else content)


def read_checked(folder: Path, file: DataFile) -> npt.NDArray[Any]:
    """The array of ``file`` in ``folder``.

    :raises MissingError: when it is not there.
    :raises DataError: when it is not IDX, or its content differs.
    """
    path = file.within(folder)
    if path is None:
        raise MissingError(f"reading {file.name}", f"{folder} does not have it", "Fetch the file again")
    read = read_idx(path)
    require_digest(path, read.sha256, file.content_sha256)
    return read.array


DIGITS_IMAGES: Final = DataFile(
    "digits-images-idx3-ubyte", "359cd13f0f514122884198b78a131df597421cbf5e93a76678fa96fc548f0d96"
)
DIGITS_LABELS: Final = DataFile(
    "digits-labels-idx1-ubyte", "ce71631c1f31ce56fa54f31d1d498fafacff59b001e6c30c4a5e29508aa277ad"
)
DIGITS_HIGHEST: Final = 16
# Mean and population standard deviation of value / 16 over all pixels of the training split.
DIGITS_MEAN: Final = 0.3050
DIGITS_STD: Final = 0.3759

_BUNDLE = Path(__file__).parent / "data"


def _fifths(count: int) -> tuple[int, int]:
    """A fifth of a class, rounded half up, for the test split, and as much for the validation split."""
    fifth = (2 * count + 5) // 10
    return fifth, fifth


@final
class Digits(DatasetSource):
    """The bundled digits: inputs (n, 64) float32, 10 classes, splits of 1,079, 359 and 359."""

    name = "digits"
    licence = "CC BY 4.0"
    attribution = (
        "E. Alpaydin and C. Kaynak (1998), Optical Recognition of Handwritten Digits, "
        "UCI Machine Learning Repository, https://doi.org/10.24432/C50P49"
    )
    split_rule = (
        "the rows of each class ordered by the SHA-256 of their 64 bytes: the first fifth (rounded) is the test split, "
        "the next fifth the validation split, the rest the training split"
    )

    def __init__(self, bundle: Path = _BUNDLE) -> None:
        self._bundle = bundle

    def load(self, folder: Path | None = None) -> Dataset:
        """The three splits; ``UsageError`` for a named ``folder``, as the data is bundled."""
        refuse_folder(self.name, folder)
        images = read_checked(self._bundle, DIGITS_IMAGES)
        labels = read_checked(self._bundle, DIGITS_LABELS).astype(np.int64)
        rows = images.reshape(len(images), -1)
        train, test, validation = (
            Split.of(standardise(rows[part], DIGITS_HIGHEST, DIGITS_MEAN, DIGITS_STD), labels[part])
            for part in stratified_split(rows, labels, _fifths)
        )
        checksums = {file.name: file.content_sha256 for file in (DIGITS_IMAGES, DIGITS_LABELS)}
        return self.assembled((train, validation, test), 10, checksums, "bundled")

    def fetch(self, folder: Path | None = None, progress: Progress = silent) -> None:
        """Nothing to do; ``UsageError`` as in ``load``."""
        refuse_folder(self.name, folder)

    def where(self, folder: Path | None = None) -> str | None:
        return f"{self._bundle} (bundled)"

    def lacks(self, folder: Path | None = None) -> str | None:
        """``None``, unless the installation is damaged."""
        missing = [file.name for file in (DIGITS_IMAGES, DIGITS_LABELS) if file.within(self._bundle) is None]
        return f"the bundled {', '.join(missing)}: reinstall levelbench" if missing else None


# Content checksums: of the files in Debian's dataset-fashion-mnist 0.0~git20200523.55506a9-1, unpacked. Download
# checksums: of the official .gz files (README of github.com/zalandoresearch/fashion-mnist).
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

FASHION_HIGHEST: Final = 255.0
# Mean and population standard deviation of value / 255 over all pixels of the training split (50,000 images).
FASHION_MEAN: Final = 0.2861
FASHION_STD: Final = 0.3531

DEBIAN: Final = Path("/usr/share/datasets/fashion-mnist")
OFFICIAL_URL: Final = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
# The largest of the four official files has 26,421,880 bytes; a mirror may compress less well.
MOST_DOWNLOAD_BYTES: Final = 1 << 26


_FASHION_CONSTANTS: Final = Normalisation(
    (FASHION_MEAN,), (FASHION_STD,), FASHION_HIGHEST, "mean and deviation over all pixels of the training split"
)


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
        "IDX files into a folder and name it with --data or LEVELBENCH_DATA; or allow the download, with a "
        "network and without LEVELBENCH_OFFLINE (LEVELBENCH_FASHION_MNIST_URL names a mirror)"
    )

    def __init__(self, files: Sequence[DataFile] = FILES, packaged: Path = DEBIAN) -> None:
        self._files = files
        self._packaged = packaged

    def load(self, folder: Path | None = None) -> Dataset:
        """The three splits, downloaded to the cache first if they are not on this machine.

        ``folder`` holds the four IDX files, gzipped or plain, or has a folder of them with "fashion" in its name.
        """
        found = self.located(folder)
        images, labels, test_images, test_labels = (read_checked(found.held, file) for file in self._files)
        train, validation = stratified_split(images, labels, lambda count: (count // 6,))
        own = ((images[part], labels[part]) for part in (train, validation))
        return self.assembled(
            (Split.of(x[:, None], y.astype(np.int64)) for x, y in (*own, (test_images, test_labels))),
            10,
            {file.name: file.content_sha256 for file in self._files},
            found.label,
            normalisation=_FASHION_CONSTANTS,
        )

    def held(self, folder: Path) -> Path | None:
        """The folder with all files: ``folder``, or one in it with "fashion" in its name."""
        candidates = folders_of(folder, "fashion")
        return next((each for each in candidates if all(file.within(each) for file in self._files)), None)

    def packaged(self) -> Sequence[FileLocation]:
        """Where the Debian and Ubuntu package puts them."""
        return [FileLocation("the package dataset-fashion-mnist", self._packaged)]

    def download(self, progress: Progress) -> Path:
        # A mirror may have compressed the same content differently; the official address has the official bytes.
        mirrored = bool(os.environ.get(self.mirror))
        for file in self._files:
            sha256, digest = (file.content_sha256, content_digest) if mirrored else (file.download_sha256, None)
            self.fetch_file(f"{file.name}.gz", sha256, OFFICIAL_URL, MOST_DOWNLOAD_BYTES, progress, digest)
        return cache_folder() / self.name


@final
class FashionImages(FashionMnist):
    """Fashion-MNIST without its labels, which are not even read: each image (1, 28, 28) is its own target, in bytes."""

    name = "fashion-mnist-images"
    mirror = "LEVELBENCH_FASHION_MNIST_URL"
    split_rule = (
        "test is the official test set; of the 60,000 official training images, the 10,000 that come first by the "
        "SHA-256 of their 784 bytes are the validation split, the rest the training split"
    )
    size = "2 files, 31 MB"

    def __init__(self, files: Sequence[DataFile] = (TRAIN_IMAGES, TEST_IMAGES), packaged: Path = DEBIAN) -> None:
        super().__init__(files, packaged)

    def load(self, folder: Path | None = None) -> Dataset:
        found = self.located(folder)
        images, test = (read_checked(found.held, file)[:, None] for file in self._files)
        train, validation = stratified_split(images, np.zeros(len(images), np.int64), lambda count: (count // 6,))
        return self.assembled(
            (Split((each, each)) for each in (images[train], images[validation], test)),
            0,
            {file.name: file.content_sha256 for file in self._files},
            found.label,
            normalisation=_FASHION_CONSTANTS,
        )

    def packaged(self) -> Sequence[FileLocation]:
        """Also where fashion-mnist is kept, which has the same files."""
        return [FileLocation("the cache of fashion-mnist", cache_folder() / FashionMnist.name), *super().packaged()]
