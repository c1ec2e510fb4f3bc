"""verses-en-es: 31,053 verses of the Bible in English and Spanish, each a pair to translate, all in the public domain.

Verses are paired by chapter and number; a chapter that has another number of verses in the other language is dropped,
so are verses that are empty in one of them. Byte pairs are learned from the training split, both languages together.

The one idea: no verse that is held out is in the training split in either language. Verses that are there more than
once (the Chronicles repeat Kings, one Gospel another) all go to training.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, final, overload

import numpy as np

from levelbench.training.datasets.base import Dataset, DatasetSource, Progress, Split, silent
from levelbench.training.datasets.files import cache_folder
from levelbench.training.datasets.formats.verses import Chapters
from levelbench.training.datasets.places import named_folder
from levelbench.training.datasets.splits import stratified_split
from levelbench.training.datasets.texts.bibles import ENGLISH, SPANISH, Bible
from levelbench.training.datasets.texts.prepared import Arrays, joined, parted, prepared
from levelbench.training.datasets.texts.tokens import BEGIN, END, PADDING, BytePairs, padded

__all__ = ["Translations", "VersePairs", "paired", "parts"]

LENGTH: Final = 40
TOKENS: Final = 4000
HELD_OUT: Final = (600, 1200)


@final
class Translations(Sequence[str]):
    """The reference translations of a split, with what turns the ids that a network puts out into text."""

    def __init__(self, texts: Sequence[str], pairs: BytePairs) -> None:
        self._texts, self.pairs = texts, pairs

    def __len__(self) -> int:
        return len(self._texts)

    @overload
    def __getitem__(self, at: int) -> str: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...

    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        return self._texts[at]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids."""
        return self.pairs.decode(ids)


@final
class VersePairs(DatasetSource):
    """The verses: columns ``source_ids`` and ``source_mask`` (n, 40), ``target_ids`` and the labels, all int64.

    ``target_ids`` are the Spanish verse behind ``BEGIN``, labels the same with ``END`` behind it, 0 where nothing is.
    ``reference`` are the Spanish verses. ``classes`` is the number of tokens.
    """

    name = "verses-en-es"
    licence = "public domain"
    attribution = (
        "World English Bible, https://worldenglish.bible (Debian's package sword-text-web 426.0), and Reina-Valera "
        "1909, https://ebible.org (sword-text-sparv 2.60)"
    )
    split_rule = (
        "pairs by chapter and verse, without the chapters of another number of verses (Romans 16) and the 22 verses "
        "that are empty in one language; of the verses that are there once in both languages, "
        "ordered by the SHA-256 of the pair, the first 600 are the validation split, the next 1,200 the test split, "
        "the rest the training split; 4,000 byte pairs are learned from the training split, and from each split the "
        "pairs with more than 39 tokens on a side are dropped"
    )

    def __init__(
        self,
        source: Bible = ENGLISH,
        target: Bible = SPANISH,
        *,
        length: int = LENGTH,
        tokens: int = TOKENS,
        held_out: tuple[int, int] = HELD_OUT,
    ) -> None:
        self._bibles, self._length, self._tokens, self._held_out = (source, target), length, tokens, held_out

    def load(self, folder: Path | None = None) -> Dataset:
        """The three splits; made once and kept in the cache.

        :raises MissingError: when a Bible is nowhere.
        :raises DataError: when its files are damaged, or its words others than those of the checksum.
        """
        return self._loaded(folder, anew=False)

    def checked(self, folder: Path | None = None) -> Dataset:
        """As :meth:`load`, but made anew of the files."""
        return self._loaded(folder, anew=True)

    def _loaded(self, folder: Path | None, *, anew: bool) -> Dataset:
        places = [bible.located(folder) for bible in self._bibles]
        prints = [bible.fingerprint(place) for bible, place in zip(self._bibles, places, strict=True)]
        key = hashlib.sha256(repr((1, prints, self._length, self._tokens, self._held_out)).encode()).hexdigest()

        def make() -> Arrays:
            source, target = (bible.read(place) for bible, place in zip(self._bibles, places, strict=True))
            return self._made(paired(source, target))

        arrays = prepared(cache_folder() / self.name / f"{key[:16]}.npz", key, make, anew=anew)
        merged = [_merge(line) for line in parted(arrays["merges"])]
        pairs = BytePairs(parted(arrays["characters"])[0], merged)
        splits = [self._split(arrays, at, pairs) for at in range(3)]
        return Dataset(
            name=self.name,
            train=splits[0],
            validation=splits[1],
            test=splits[2],
            classes=len(pairs),
            checksums={bible.module: bible.sha256 for bible in self._bibles},
            split_rule=self.split_rule,
            licence=self.licence,
            source=f"{' and '.join(str(place) for place in places)}; {self.attribution}",
        )

    def fetch(self, folder: Path | None = None, progress: Progress = silent) -> None:
        """See that both Bibles are here; raises ``MissingError`` as ``load`` does."""
        for bible in self._bibles:
            bible.located(folder)

    def where(self, folder: Path | None = None) -> str | None:
        """The folders of both Bibles."""
        places = [bible.folder(folder) for bible in self._bibles]
        return None if None in places else ", ".join(map(str, places))

    def lacks(self, folder: Path | None = None) -> str | None:
        """``None`` when both Bibles are here, else which packages to install."""
        missing = [bible.package for bible in self._bibles if bible.folder(folder) is None]
        place = "on this machine" if named_folder(folder) is None else f"in {folder}"
        return f"its text is not {place}: apt-get install {' '.join(missing)}" if missing else None

    def _made(self, verses: list[tuple[str, str]]) -> Arrays:
        rest, validation, test = parts(verses, self._held_out)
        pairs = BytePairs.learn((text for at in rest for text in verses[at]), self._tokens)
        result: Arrays = {
            "characters": joined(["".join(pairs.characters)]),
            "merges": joined([f"{left}\t{right}" for left, right in pairs.merges]),
        }
        for split, indices in enumerate((rest, validation, test)):
            encoded = [(pairs.encode(verses[at][0]), pairs.encode(verses[at][1]), verses[at][1]) for at in indices]
            kept = [each for each in encoded if max(len(each[0]), len(each[1])) < self._length]
            result[f"source.{split}"] = padded([source for source, _, _ in kept], self._length).astype(np.uint16)
            result[f"target.{split}"] = padded([target for _, target, _ in kept], self._length).astype(np.uint16)
            result[f"text.{split}"] = joined([text for _, _, text in kept])
        return result

    def _split(self, arrays: Arrays, at: int, pairs: BytePairs) -> Split:
        source, target = (arrays[f"{side}.{at}"].astype(np.int64) for side in ("source", "target"))
        shifted = np.concatenate([np.full((len(target), 1), BEGIN), target[:, :-1]], axis=1)
        lengths = (target != PADDING).sum(axis=1)
        target[np.arange(len(target)), lengths] = END
        mask = (source != PADDING).astype(np.int64)
        return Split((source, mask, shifted, target), reference=Translations(parted(arrays[f"text.{at}"]), pairs))


def paired(source: Chapters, target: Chapters) -> list[tuple[str, str]]:
    """Verses of the same chapter and number, where both chapters have as many and both verses have words."""
    return [
        (left, right)
        for name, verses in source.items()
        if len(verses) == len(target.get(name, ()))
        for left, right in zip(verses, target[name], strict=True)
        if left and right
    ]


def parts(verses: Sequence[tuple[str, str]], held_out: tuple[int, int]) -> tuple[list[int], list[int], list[int]]:
    """Numbers of the verses for training, validation and test, ascending; what comes twice is for training."""
    seen = Counter(text for pair in verses for text in pair)
    once = np.array([max(seen[left], seen[right]) == 1 for left, right in verses])
    single = np.flatnonzero(once)
    digests = [hashlib.sha256("\n".join(verses[at]).encode()).digest() for at in single.tolist()]
    rows = np.frombuffer(b"".join(digests), np.uint8).reshape(len(single), 32)
    rest, validation, test = stratified_split(rows, np.zeros(len(single), np.int64), lambda _: held_out)
    training = np.sort(np.concatenate([single[rest], np.flatnonzero(~once)]))
    return training.tolist(), single[validation].tolist(), single[test].tolist()


def _merge(line: str) -> tuple[str, str]:
    left, right = line.split("\t")
    return left, right
