"""Finds a Bible of Debian's packages on this machine, and reads it against the checksum of its words.

The one idea: a Bible is its words. The checksum is of the plain text, verse by verse, so another packing or markup of
the same words is the same Bible, and other words are an error.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from levelbench.errors import DataError, MissingError
from levelbench.training.datasets.formats.text import read_bytes
from levelbench.training.datasets.formats.verses import FILES, TESTAMENTS, Chapters, plain, read_bible
from levelbench.training.datasets.places import named_folder

__all__ = ["ENGLISH", "SPANISH", "Bible", "words_digest"]

_SHARED = Path("/usr/share/sword")
_ENGLISH_WORDS = "75a4ddf245d7aa95f17b6d9728ad9e196de4897d16a8d1bacb84037aee144662"
_SPANISH_WORDS = "e4a464493000e1fa0dc4e1b4109f3d082dc95f75ee30dcf1957a21b37e5a61a0"


@final
@dataclass(frozen=True)
class Bible:
    """A module of SWORD: its name, Debian's package that brings it, what it is, and the SHA-256 of its words."""

    module: str
    package: str
    title: str
    sha256: str
    shared: Path = _SHARED

    def folder(self, said: Path | None) -> Path | None:
        """Where its files are: in ``said`` if it was named; else in LEVELBENCH_DATA, else at its package's place."""
        for candidate in self._candidates(said):
            files = [candidate / f"{testament}{suffix}" for testament in TESTAMENTS for suffix in FILES]
            if all(os.access(each, os.R_OK) and each.is_file() for each in files):
                return candidate
        return None

    def located(self, said: Path | None) -> Path:
        """:meth:`folder`; ``MissingError`` with what to install where it is nowhere."""
        found = self.folder(said)
        if found is None:
            places = ", ".join(str(each) for each in self._candidates(said))
            also = ", and leave --data out" if named_folder(said) is not None else ""
            raise MissingError(
                f"the {self.title} ({self.module})",
                f"its six files are in none of {places}",
                f"Install the package {self.package} (Debian and Ubuntu){also}; or unpack it somewhere and name the "
                f"folder with --data or LEVELBENCH_DATA",
            )
        return found

    def read(self, folder: Path) -> Chapters:
        """Its chapters as plain words; ``DataError`` when the words are others than the checksum says."""
        chapters = {name: [plain(verse) for verse in verses] for name, verses in read_bible(folder).items()}
        digest = words_digest(chapters)
        if digest != self.sha256:
            raise DataError(
                f"reading the {self.title} in {folder}",
                f"its words have SHA-256 {digest}, and {self.sha256} is expected",
                f"Install {self.package} as in Debian 12, or remove what is in this folder",
            )
        return chapters

    def fingerprint(self, folder: Path) -> str:
        """The SHA-256 of its files as they lie there, which is quick, to know again what was read before."""
        digest = hashlib.sha256()
        for testament in TESTAMENTS:
            for suffix in FILES:
                digest.update(hashlib.sha256(read_bytes(folder / f"{testament}{suffix}")).digest())
        return digest.hexdigest()

    def _candidates(self, said: Path | None) -> Iterator[Path]:
        told, named = os.environ.get("LEVELBENCH_DATA"), named_folder(said)
        for each in [named] if named is not None else [*([Path(told)] if told else []), self.shared]:
            for below in ("", "modules/texts/ztext", "usr/share/sword/modules/texts/ztext"):
                yield each / below / self.module


def words_digest(chapters: Chapters) -> str:
    """The SHA-256 of ``chapter<tab>verse<line feed>`` of all verses in order, in UTF-8."""
    digest = hashlib.sha256()
    for name, verses in chapters.items():
        digest.update("".join(f"{name}\t{verse}\n" for verse in verses).encode())
    return digest.hexdigest()


ENGLISH: Final = Bible("engWEB2015eb", "sword-text-web", "World English Bible", _ENGLISH_WORDS)
SPANISH: Final = Bible("spaRV1909eb", "sword-text-sparv", "Reina-Valera of 1909", _SPANISH_WORDS)
