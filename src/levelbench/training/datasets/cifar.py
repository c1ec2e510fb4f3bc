"""cifar10 and cifar100: 60,000 colour images, 32x32 pixels, in 10 or 100 classes, from a folder or downloaded.

Whichever version is found, binary or Python pickles, unpacked or as the archive, its content becomes the same rows of
label bytes and 3,072 bytes of pixels (red, green, blue; 32x32 each), which are checked against published checksums.
Formats: https://www.cs.toronto.edu/~kriz/cifar.html .
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, final

import numpy as np
import numpy.typing as npt

from levelbench.errors import MissingError, StoreError, UsageError
from levelbench.training.datasets.base import Dataset, Normalisation, Progress, Split, stratified_split
from levelbench.training.datasets.pickles import read_pickle
from levelbench.training.datasets.places import FileSource, folders_of, readable
from levelbench.training.datasets.reading import bad, members, read_whole, require_content, require_digest, unpacked


@final
@dataclass(frozen=True)
class File:
    """One file of a version: ``digest`` is its SHA-256, or for pickles the MD5, the only one published."""

    name: str
    images: int
    digest: str


@final
@dataclass(frozen=True)
class Version:
    """The binary or the Python version: its archive, the folder in it, and its files, the test set last."""

    archive: str
    archive_sha256: str
    folder: str
    files: tuple[File, ...]
    pickled: bool = False


@final
@dataclass(frozen=True)
class Edition:
    """CIFAR-10 or CIFAR-100; the binary version comes first."""

    name: str
    classes: int
    versions: tuple[Version, ...]
    normalisation: Normalisation


# Archives: SHA-256 as published by TensorFlow Datasets and Keras; their MD5 are those of the official page. Binary
# files: SHA-256 as published by torchvision-ruby. Pickles: MD5 as published by torchvision.
CIFAR10: Final = Edition(
    "cifar10",
    10,
    (
        Version(
            "cifar-10-binary.tar.gz",
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            "cifar-10-batches-bin",
            (
                File("data_batch_1.bin", 10_000, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
                File("data_batch_2.bin", 10_000, "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
                File("data_batch_3.bin", 10_000, "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
                File("data_batch_4.bin", 10_000, "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
                File("data_batch_5.bin", 10_000, "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
                File("test_batch.bin", 10_000, "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
            ),
        ),
        Version(
            "cifar-10-python.tar.gz",
            "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
            "cifar-10-batches-py",
            (
                File("data_batch_1", 10_000, "c99cafc152244af753f735de768cd75f"),
                File("data_batch_2", 10_000, "d4bba439e000b95fd0a9bffe97cbabec"),
                File("data_batch_3", 10_000, "54ebc095f3ab1f0389bbae665268c751"),
                File("data_batch_4", 10_000, "634d18415352ddfa80567beed471001a"),
                File("data_batch_5", 10_000, "482c414d41f54cd18b22e5b47cb7c3cb"),
                File("test_batch", 10_000, "40351d587109b95175f43aff81a1287e"),
            ),
            pickled=True,
        ),
    ),
    Normalisation(
        (0.4914, 0.4822, 0.4465),
        (0.2470, 0.2435, 0.2616),
        source="mean and deviation of all 50,000 training images, as in D. Page's DAWNBench entry (cifar10-fast)",
    ),
)
CIFAR100: Final = Edition(
    "cifar100",
    100,
    (
        Version(
            "cifar-100-binary.tar.gz",
            "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            "cifar-100-binary",
            (
                File("train.bin", 50_000, "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"),
                File("test.bin", 10_000, "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"),
            ),
        ),
        Version(
            "cifar-100-python.tar.gz",
            "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
            "cifar-100-python",
            (
                File("train", 50_000, "16019d7e3df5f24257cddd939b257f8d"),
                File("test", 10_000, "f0ef6b0ae62326f3e7ffdfab6717acfc"),
            ),
            pickled=True,
        ),
    ),
    Normalisation(
        (0.5071, 0.4865, 0.4409),
        (0.2673, 0.2564, 0.2762),
        source="mean and deviation of all 50,000 training images, as in github.com/weiaicunzai/pytorch-cifar100",
    ),
)


PIXELS = 3 * 32 * 32
Rows = npt.NDArray[np.uint8]

_KIND = "CIFAR"
_FINE = {10: (b"labels",), 100: (b"coarse_labels", b"fine_labels")}
_CLASSES = {b"labels": 10, b"coarse_labels": 20, b"fine_labels": 100}


def rows_of_binary(content: bytes, classes: int, count: int, path: Path) -> Rows:
    """The rows of a binary file of ``count`` images, shape (count, 1 + 3,072), or (count, 2 + 3,072) for CIFAR-100.

    :raises DataError: when its size is wrong, or a label is out of range.
    """
    width = len(_FINE[classes]) + PIXELS
    if len(content) != count * width:
        raise bad(path, _KIND, f"it has {len(content):,} bytes, and {count:,} images have {count * width:,}")
    return _with_labels_in_range(np.frombuffer(content, np.uint8).reshape(count, width), classes, path)


def rows_of_pickle(content: bytes, classes: int, count: int, path: Path) -> Rows:
    """The same rows, from a file of the Python version; nothing in it is executed.

    :raises DataError: when it is not a pickle of plain data, or does not hold ``count`` images with their labels.
    """
    held = read_pickle(content, path)
    if not isinstance(held, dict):
        raise bad(path, _KIND, "its pickle does not hold a dictionary")
    # Python 2 wrote the keys as bytes; a file saved again with Python 3 has text.
    held = {key.encode("utf-8", "surrogatepass") if isinstance(key, str) else key: value for key, value in held.items()}
    pixels = held.get(b"data")
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape != (count, PIXELS):
        raise bad(path, _KIND, f"its pickle has no data of shape ({count}, {PIXELS}) and uint8")
    labels = [_labels(held, key, count, path) for key in _FINE[classes]]
    return _with_labels_in_range(np.concatenate([*labels, pixels], axis=1), classes, path)


def images_and_labels(files: Sequence[Rows], classes: int) -> tuple[Rows, npt.NDArray[np.int64]]:
    """Images (n, 3, 32, 32) uint8 and labels (n,) of the rows of some files; for CIFAR-100 the 100 fine labels."""
    first = len(_FINE[classes])
    images = np.concatenate([rows[:, first:] for rows in files]).reshape(-1, 3, 32, 32)
    return images, np.concatenate([rows[:, first - 1] for rows in files]).astype(np.int64)


def digest_of_rows(rows: Rows) -> str:
    """SHA-256 in hexadecimal of the rows, which is that of the binary file."""
    return hashlib.sha256(np.ascontiguousarray(rows).data).hexdigest()


def _labels(held: dict[object, object], key: bytes, count: int, path: Path) -> Rows:
    given = held.get(key)
    if isinstance(given, list) and len(given) == count and all(type(each) is int for each in given):
        if all(0 <= each < _CLASSES[key] for each in given):
            return np.array(given, np.uint8)[:, None]
        raise bad(path, _KIND, f"its {key.decode()} are not all in 0 to {_CLASSES[key] - 1}")
    raise bad(path, _KIND, f"its pickle has no {count} {key.decode()}")


def _with_labels_in_range(rows: Rows, classes: int, path: Path) -> Rows:
    for column, key in enumerate(_FINE[classes]):
        highest = int(rows[:, column].max(initial=0))
        if highest >= _CLASSES[key]:
            raise bad(
                path, _KIND, f"it has a label {highest} among its {key.decode()}, outside 0 to {_CLASSES[key] - 1}"
            )
    return rows


OFFICIAL_URL: Final = "https://www.cs.toronto.edu/~kriz"
MOST_FILE_BYTES: Final = 200_000_000
MOST_ARCHIVE_BYTES: Final = 400_000_000
Validation = Literal["held-out", "test"]


@final
@dataclass(frozen=True)
class CifarFiles:
    """The files found in a folder: a version, unpacked in ``path``, or the archive ``path``."""

    version: Version
    path: Path
    packed: bool


@final
class Cifar(FileSource):
    """CIFAR: inputs (n, 3, 32, 32) uint8 with their normalisation; splits of 45,000, 5,000 and the official 10,000.

    ``validation="test"`` holds nothing out: training has all 50,000, and the test set is also the validation split, as
    in DAWNBench's rules.
    """

    licence = "none stated"
    attribution = "A. Krizhevsky (2009), Learning Multiple Layers of Features from Tiny Images, technical report"
    size = "170 MB, one archive"

    def __init__(self, edition: Edition, validation: Validation = "held-out") -> None:
        if validation not in {"held-out", "test"}:
            raise UsageError(f"validation={validation!r}", "unknown split", "give held-out or test")
        self.name = edition.name
        self._edition = edition
        self._held_out = validation == "held-out"
        archives = " or ".join(version.archive for version in edition.versions)
        self.home = f"{OFFICIAL_URL}/cifar.html"
        self.ways = (
            f"put {archives}, or its unpacked files, into a folder and name it with --data or LEVELBENCH_DATA; or "
            f"allow the download, with a network and without LEVELBENCH_OFFLINE ({self.mirror} names a mirror)"
        )
        self.split_rule = (
            "test is the official test set; of the official training images, the tenth of each class that comes first "
            "by the SHA-256 of its 3,072 bytes is the validation split, the rest the training split"
            if self._held_out
            else "training is the official training set; the official test set is both validation and test split"
        )

    def load(self, folder: Path | None = None) -> Dataset:
        found = self.located(folder)
        try:
            rows = list(self._rows(found.held))
        except MissingError:
            if not found.held.packed:
                raise
            # Another process may have unpacked and removed the archive since it was found.
            found = self.located(folder)
            rows = list(self._rows(found.held))
        files = self._edition.versions[0].files
        # A binary file was checked against its digest; a pickle has its own digest, and its rows have another.
        digests = map(digest_of_rows, rows) if found.held.version.pickled else (file.digest for file in files)
        checksums = {file.name: digest for file, digest in zip(files, digests, strict=True)}
        images, labels = images_and_labels(rows[:-1], self._edition.classes)
        test = Split.of(*images_and_labels(rows[-1:], self._edition.classes))
        train, validation = Split.of(images, labels), test
        if self._held_out:
            kept, held = stratified_split(images, labels, lambda count: (count // 10,))
            train, validation = Split.of(images[kept], labels[kept]), Split.of(images[held], labels[held])
        splits, classes = (train, validation, test), self._edition.classes
        return self.assembled(splits, classes, checksums, found.label, normalisation=self._edition.normalisation)

    def held(self, folder: Path) -> CifarFiles | None:
        """The first complete version: unpacked before packed, binary before Python."""
        candidates = folders_of(folder, "cifar")
        for version in self._edition.versions:
            for path in candidates:
                if all(readable(path / file.name) for file in version.files):
                    return CifarFiles(version, path, packed=False)
        for version in self._edition.versions:
            for path in candidates:
                if readable(path / version.archive):
                    return CifarFiles(version, path / version.archive, packed=True)
        return None

    def download(self, progress: Progress) -> CifarFiles:
        """Download the binary archive into the cache, and unpack and remove it there."""
        version = self._edition.versions[0]
        archive = self.fetch_file(version.archive, version.archive_sha256, OFFICIAL_URL, MOST_ARCHIVE_BYTES, progress)
        folder = archive.with_name(version.folder)
        try:
            folder.mkdir(exist_ok=True)
            for file, rows in zip(version.files, self._rows(CifarFiles(version, archive, packed=True)), strict=True):
                part = folder / f"{file.name}.{os.getpid()}.part"
                part.write_bytes(rows.data)
                part.replace(folder / file.name)
            archive.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(
                f"unpacking {archive}", str(error), "Make the folder writable, or free some disk space"
            ) from error
        return CifarFiles(version, folder, packed=False)

    def _rows(self, held: CifarFiles) -> Iterator[Rows]:
        """The checked rows of each file of a version, in order; for a binary file they are its content."""
        read = rows_of_pickle if held.version.pickled else rows_of_binary
        paths = [held.path / file.name for file in held.version.files]
        contents = (
            _of_archive(held)
            if held.packed
            else {path.name: (path, read_whole(path, _KIND, MOST_FILE_BYTES)) for path in paths}
        )
        for file in held.version.files:
            path, content = contents[file.name]
            digest = hashlib.new("md5" if len(file.digest) == 32 else "sha256", content, usedforsecurity=False)
            require_digest(path, digest.hexdigest(), file.digest)
            yield read(content, self._edition.classes, file.images, path)


def cifar10(validation: Validation = "held-out") -> Cifar:
    """CIFAR-10: 10 classes."""
    return Cifar(CIFAR10, validation)


def cifar100(validation: Validation = "held-out") -> Cifar:
    """CIFAR-100: 100 classes, the fine ones."""
    return Cifar(CIFAR100, validation)


def _of_archive(held: CifarFiles) -> dict[str, tuple[Path, bytes]]:
    """The wanted files of an archive whose checksum is right; nothing is written."""
    version, path = held.version, held.path
    require_content(path, version.archive_sha256)
    wanted = {f"{version.folder}/{file.name}": file.name for file in version.files}
    contents: dict[str, tuple[Path, bytes]] = {}
    with unpacked(path, "a tar archive", MOST_ARCHIVE_BYTES) as stream:
        for member in members(stream):
            if member.name in wanted:
                content = stream.exactly(member.size, f"its member {member.name!r}")
                contents[wanted[member.name]] = (path / member.name, content)
        missing = sorted(set(wanted.values()) - set(contents))
        if missing:
            stream.fail(f"it lacks {', '.join(missing)}")
    return contents
