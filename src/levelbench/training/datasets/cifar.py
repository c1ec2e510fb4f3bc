"""cifar10 and cifar100: 60,000 colour images, 32x32 pixels, in 10 or 100 classes, in a folder or downloaded.

The one idea: whichever version is found, binary or Python, unpacked or as the archive, its content becomes the same
rows of bytes, and those are held against published checksums.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, final

import numpy as np
import numpy.typing as npt

from levelbench.errors import DataError, MissingError, StoreError, UsageError
from levelbench.training.datasets.base import Dataset, Progress, Split
from levelbench.training.datasets.cifar_files import CIFAR10, CIFAR100, Edition, File, Version
from levelbench.training.datasets.files import cache_folder
from levelbench.training.datasets.formats.cifar import (
    digest_of_rows,
    images_and_labels,
    rows_of_binary,
    rows_of_pickle,
)
from levelbench.training.datasets.formats.tar import members
from levelbench.training.datasets.formats.unpacking import read_whole, unpacked
from levelbench.training.datasets.places import FileSource, Found, folders_of
from levelbench.training.datasets.splits import stratified_split

__all__ = ["Cifar", "cifar10", "cifar100"]

OFFICIAL_URL: Final = "https://www.cs.toronto.edu/~kriz"
MOST_FILE_BYTES: Final = 200_000_000
MOST_ARCHIVE_BYTES: Final = 400_000_000
Validation = Literal["held-out", "test"]


@final
@dataclass(frozen=True)
class Held:
    """What a folder has: a version, unpacked in ``path``, or as the archive ``path``."""

    version: Version
    path: Path
    packed: bool


@final
class Cifar(FileSource):
    """CIFAR: inputs (n, 3, 32, 32) uint8 with their normalisation; 45,000, 5,000 and the official 10,000.

    ``validation="test"`` holds nothing out: training has all 50,000, and the test set is the validation split too, as
    in DAWNBench's rules.
    """

    licence = "none stated"
    attribution = "A. Krizhevsky (2009), Learning Multiple Layers of Features from Tiny Images, technical report"
    size = "170 MB, one archive"

    def __init__(self, edition: Edition, validation: Validation = "held-out") -> None:
        if validation not in {"held-out", "test"}:
            raise UsageError(f"validation={validation!r}", "there is no such split", "give held-out or test")
        self.name = edition.name
        self._edition = edition
        self._held_out = validation == "held-out"
        archives = " or ".join(version.archive for version in edition.versions)
        self.home = f"{OFFICIAL_URL}/cifar.html"
        self.ways = (
            f"put {archives}, or what it unpacks to, into a folder and name it with --data or LEVELBENCH_DATA; or "
            f"allow the download, with a network and without LEVELBENCH_OFFLINE ({self._mirror} names a mirror)"
        )
        self.split_rule = (
            "test is the official test set; of the official training images, the tenth of each class that comes first "
            "by the SHA-256 of its 3,072 bytes is the validation split, the rest the training split"
            if self._held_out
            else "training is the official training set; the official test set is both validation and test split"
        )

    def load(self, folder: Path | None = None) -> Dataset:
        """The three splits, downloaded to the cache first if the files are nowhere on this machine.

        :raises MissingError: when they are nowhere and may not or cannot be downloaded.
        :raises DataError: when a file is damaged, or is not what was published.
        :raises StoreError: when the cache cannot be written.
        """
        found, whole = self._read(folder)
        files, rows = zip(*whole, strict=True)
        names = [file.name for file in self._edition.versions[0].files]
        # A binary file has been held against its digest; a pickle has one of its own, and another of its rows.
        digests = map(digest_of_rows, rows) if found.held.version.pickled else (file.digest for file in files)
        checksums = dict(zip(names, digests, strict=True))
        images, labels = images_and_labels(rows[:-1], self._edition.classes)
        test = Split.of(*images_and_labels(rows[-1:], self._edition.classes))
        train, validation = Split.of(images, labels), test
        if self._held_out:
            kept, held = stratified_split(images, labels, lambda count: (count // 10,))
            train, validation = Split.of(images[kept], labels[kept]), Split.of(images[held], labels[held])
        return Dataset(
            name=self.name,
            train=train,
            validation=validation,
            test=test,
            classes=self._edition.classes,
            checksums=checksums,
            split_rule=self.split_rule,
            licence=self.licence,
            source=f"{found.label}; {self.attribution}",
            normalisation=self._edition.normalisation,
        )

    def held(self, folder: Path) -> Held | None:
        """The first version that is whole: unpacked before packed, binary before Python."""
        candidates = folders_of(folder, "cifar")
        for version in self._edition.versions:
            for path in candidates:
                if all(_readable(path / file.name) for file in version.files):
                    return Held(version, path, packed=False)
        for version in self._edition.versions:
            for path in candidates:
                if _readable(path / version.archive):
                    return Held(version, path / version.archive, packed=True)
        return None

    def download(self, progress: Progress) -> Held:
        """The binary archive, into the cache, where its files are left and the archive is not."""
        # Imported here because it brings ssl and http, which nobody needs who has the files.
        from levelbench.training.datasets.download import fetch

        version = self._edition.versions[0]
        target = cache_folder() / self.name
        url = os.environ.get(self._mirror) or OFFICIAL_URL
        archive = fetch(
            f"{url.rstrip('/')}/{version.archive}",
            target / version.archive,
            version.archive_sha256,
            most_bytes=MOST_ARCHIVE_BYTES,
            progress=progress,
        )
        folder = target / version.folder
        try:
            folder.mkdir(exist_ok=True)
            for file, content, _ in self._rows(Held(version, archive, packed=True)):
                part = folder / f"{file.name}.{os.getpid()}.part"
                part.write_bytes(content)
                part.replace(folder / file.name)
            archive.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(
                f"unpacking {archive}", str(error), "Make the folder writable, or make room on its disk"
            ) from error
        return Held(version, folder, packed=False)

    @property
    def _mirror(self) -> str:
        return f"LEVELBENCH_{self._edition.name.upper()}_URL"

    def _read(self, folder: Path | None) -> tuple[Found, list[tuple[File, npt.NDArray[np.uint8]]]]:
        """Where the files are, and the rows of each."""
        found = self.located(folder)
        try:
            return found, [(file, rows) for file, _, rows in self._rows(found.held)]
        except MissingError:
            if not found.held.packed:
                raise
        # Another process may have unpacked the archive and removed it since it was found.
        found = self.located(folder)
        return found, [(file, rows) for file, _, rows in self._rows(found.held)]

    def _rows(self, held: Held) -> Iterator[tuple[File, bytes, npt.NDArray[np.uint8]]]:
        """Of each file of a version, in order, its content, checked, and its rows."""
        read = rows_of_pickle if held.version.pickled else rows_of_binary
        contents = _of_archive(held) if held.packed else _of_folder(held)
        for file in held.version.files:
            path, content = contents[file.name]
            _require_digest(path, content, file.digest)
            yield file, content, read(content, self._edition.classes, file.images, path)


def cifar10(validation: Validation = "held-out") -> Cifar:
    """CIFAR-10: 10 classes."""
    return Cifar(CIFAR10, validation)


def cifar100(validation: Validation = "held-out") -> Cifar:
    """CIFAR-100: 100 classes, the fine ones."""
    return Cifar(CIFAR100, validation)


def _readable(path: Path) -> bool:
    return os.access(path, os.R_OK) and path.is_file()


def _require_digest(path: Path, content: bytes, expected: str) -> None:
    md5 = len(expected) == 32
    found = (hashlib.md5(content, usedforsecurity=False) if md5 else hashlib.sha256(content)).hexdigest()
    if found != expected:
        raise DataError(
            f"reading {path}",
            f"its content has {'MD5' if md5 else 'SHA-256'} {found}, and {expected} is expected",
            "Remove the file and fetch it again",
        )


def _of_folder(held: Held) -> dict[str, tuple[Path, bytes]]:
    paths = [held.path / file.name for file in held.version.files]
    return {path.name: (path, read_whole(path, "CIFAR", MOST_FILE_BYTES)) for path in paths}


def _of_archive(held: Held) -> dict[str, tuple[Path, bytes]]:
    """The wanted files of an archive whose checksum is right; nothing is written."""
    from levelbench.training.datasets.download import file_digest

    version, path = held.version, held.path
    try:
        digest = file_digest(path)
    except FileNotFoundError:
        raise MissingError(f"reading {path}", "it was removed meanwhile", "Run again") from None
    except OSError as error:
        raise DataError(f"reading {path}", f"it cannot be read ({error})", "Make it readable") from error
    if digest != version.archive_sha256:
        raise DataError(
            f"reading {path}",
            f"it has SHA-256 {digest}, and {version.archive_sha256} is expected",
            "Remove the archive and fetch it again",
        )
    wanted = {f"{version.folder}/{file.name}": file.name for file in version.files}
    contents: dict[str, tuple[Path, bytes]] = {}
    with unpacked(path, "a tar archive", MOST_ARCHIVE_BYTES) as stream:
        for member in members(stream):
            if member.name in wanted:
                content = stream.exactly(member.size, f"its member {member.name!r}")
                contents[wanted[member.name]] = (path / member.name, content)
        missing = sorted(set(wanted.values()) - set(contents))
        if missing:
            stream.fail(f"it has no {', '.join(missing)}")
    return contents
