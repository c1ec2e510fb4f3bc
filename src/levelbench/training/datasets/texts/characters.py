"""web-characters: the World English Bible as 4.8 million characters for language models, in the public domain.

The one idea: whole chapters are held out, so no sentence is cut between the splits.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from levelbench.training.datasets.base import Dataset, DatasetSource, Progress, Split, silent
from levelbench.training.datasets.files import cache_folder
from levelbench.training.datasets.places import named_folder
from levelbench.training.datasets.splits import stratified_split
from levelbench.training.datasets.texts.bibles import ENGLISH, Bible
from levelbench.training.datasets.texts.prepared import Arrays, joined, parted, prepared

__all__ = ["Characters", "cut"]

LENGTH: Final = 128
RAREST: Final = 10
UNKNOWN: Final = 0


@final
class Characters(DatasetSource):
    """Columns ``input_ids`` (n, 128) and the labels, the same one character further on; both int64.

    Id 0 stands for every character that comes less than 10 times in the training split; the others are numbered by how
    often they come. ``classes`` is the number of ids.
    """

    name = "web-characters"
    licence = "public domain"
    attribution = "World English Bible, https://worldenglish.bible (Debian's package sword-text-web 426.0)"
    split_rule = (
        "chapters ordered by the SHA-256 of their text: the first 40 are the validation split, the next 80 the test "
        "split, the rest the training split; in each, chapters follow in the book's order, a verse a line, and are cut "
        "into rows of 128 characters, what is left over dropped"
    )

    def __init__(self, bible: Bible = ENGLISH, *, length: int = LENGTH, held_out: tuple[int, int] = (40, 80)) -> None:
        self._bible, self._length, self._held_out = bible, length, held_out

    def load(self, folder: Path | None = None) -> Dataset:
        """The three splits; made once and kept in the cache.

        :raises MissingError: when the Bible is nowhere.
        :raises DataError: when its files are damaged, or its words others than those of the checksum.
        """
        return self._loaded(folder, anew=False)

    def checked(self, folder: Path | None = None) -> Dataset:
        """As :meth:`load`, but made anew of the files."""
        return self._loaded(folder, anew=True)

    def _loaded(self, folder: Path | None, *, anew: bool) -> Dataset:
        place = self._bible.located(folder)
        print_ = self._bible.fingerprint(place)
        key = hashlib.sha256(repr((1, print_, self._length, self._held_out)).encode()).hexdigest()
        kept = cache_folder() / self.name / f"{key[:16]}.npz"
        arrays = prepared(kept, key, lambda: self._made(place), anew=anew)
        train, validation, test = (_split(arrays[f"ids.{at}"], self._length) for at in range(3))
        return Dataset(
            name=self.name,
            train=train,
            validation=validation,
            test=test,
            classes=1 + len(_alphabet(arrays)),
            checksums={self._bible.module: self._bible.sha256},
            split_rule=self.split_rule,
            licence=self.licence,
            source=f"{place}; {self.attribution}",
        )

    def fetch(self, folder: Path | None = None, progress: Progress = silent) -> None:
        """See that the Bible is here; raises ``MissingError`` as ``load`` does."""
        self._bible.located(folder)

    def where(self, folder: Path | None = None) -> str | None:
        """The folder of the Bible."""
        place = self._bible.folder(folder)
        return None if place is None else str(place)

    def lacks(self, folder: Path | None = None) -> str | None:
        """``None`` when the Bible is here, else which package to install."""
        if self._bible.folder(folder) is not None:
            return None
        place = "on this machine" if named_folder(folder) is None else f"in {folder}"
        return f"its text is not {place}: apt-get install {self._bible.package}"

    def _made(self, place: Path) -> Arrays:
        chapters = ["".join(f"{verse}\n" for verse in verses) for verses in self._bible.read(place).values()]
        digests = b"".join(hashlib.sha256(each.encode()).digest() for each in chapters)
        rows = np.frombuffer(digests, np.uint8).reshape(len(chapters), 32)
        split = stratified_split(rows, np.zeros(len(chapters), np.int64), lambda _: self._held_out)
        texts = ["".join(chapters[at] for at in part) for part in split]
        counts = Counter(texts[0])
        alphabet = sorted((each for each in counts if counts[each] >= RAREST), key=lambda each: (-counts[each], each))
        ids = {each: at for at, each in enumerate(alphabet, UNKNOWN + 1)}
        result: Arrays = {"alphabet": joined([f"{ord(each):x}" for each in alphabet])}
        for at, text in enumerate(texts):
            result[f"ids.{at}"] = np.array([ids.get(each, UNKNOWN) for each in text], np.uint8)
        return result


def _alphabet(arrays: Arrays) -> Sequence[str]:
    """The characters of ids from 1 on."""
    return [chr(int(each, 16)) for each in parted(arrays["alphabet"])]


def cut(ids: NDArray[np.uint8], length: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of ``length`` ids that follow each other, and for each id the one behind it."""
    count = (len(ids) - 1) // length
    whole = ids[: count * length + 1].astype(np.int64)
    return whole[:-1].reshape(count, length), whole[1:].reshape(count, length)


def _split(ids: NDArray[np.uint8], length: int) -> Split:
    return Split(cut(ids, length))
