"""verses-en-es and web-characters: Bibles of Debian's packages ``sword-text-*``, for translation and as characters.

SWORD stores a testament (driver zText with OSIS markup) in three files. ``.bzz`` holds blocks of text compressed with
zlib. ``.bzs`` gives each block's start, compressed size and uncompressed size (three little-endian uint32). ``.bzv``
gives each entry's block (uint32), position in it (uint32) and length (uint16), all in bytes. Entries are titles and
verses in order, and the text shows which is which: the entry before each chapter says ``<chapter osisID="Gen.1">``, and
the last verse ends it. So no versification table is needed, unlike in pysword, and damage is an error. The checksum is
of the words, so the same words compressed differently are the same Bible.
"""

from __future__ import annotations

import hashlib
import html
import os
import re
import struct
import zlib
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DataError, MissingError
from levelbench.training.datasets.base import Dataset, DatasetSource, Progress, Split, silent, split_by_digest
from levelbench.training.datasets.places import cache_folder, named_folder, readable
from levelbench.training.datasets.reading import decode, read_bytes
from levelbench.training.datasets.text import (
    BEGIN,
    END,
    PADDING,
    Arrays,
    BytePairs,
    join_lines,
    padded,
    prepared,
    split_lines,
)

TESTAMENTS: Final = ("ot", "nt")
FILES: Final = (".bzs", ".bzv", ".bzz")
Chapters = dict[str, list[str]]
"""Verses by chapter, such as ``"Gen.1"``: each in OSIS markup, in order."""

_BLOCK = struct.Struct("<III")
_ENTRY = struct.Struct("<IIH")
# The World English Bible's Old Testament, the largest, has 23 million bytes of text, compressed to 3 million.
_MOST_FILE_BYTES = 1 << 26
_MOST_TEXT_BYTES = 1 << 27
_BEGINS = re.compile(r'<chapter\b[^>]*?\bosisID="([^"]+)"')
_ENDS = re.compile(r'<chapter\b[^>]*?\beID="([^"]+)"')
# Parts of a verse that are not its words: notes with their readings, headings, speakers.
_ASIDE = re.compile(r"<(note|title|speaker)\b[^>]*(?<!/)>.*?</\1>", re.DOTALL)
# A line of verse that ends without a space must not run into the next.
_BREAK = re.compile(r"<(?:l|lg|lb|div)\b[^>]*>")
# A removed aside separates words, but adds no space before punctuation.
_GAP = "\0"
_GAP_AHEAD_OF_SIGN = re.compile(r"\0+(?=[^\w“‘(¿¡\0])")
_TAG = re.compile(r"<[^>]*>")


def read_bible(folder: Path) -> Chapters:
    """All chapters of both testaments in ``folder``; raises the errors of :func:`read_testament`."""
    found: Chapters = {}
    for testament in TESTAMENTS:
        found |= read_testament(folder, testament)
    return found


def read_testament(folder: Path, testament: str) -> Chapters:
    """The chapters of ``ot`` or ``nt`` in ``folder``.

    A chapter whose verses are not all there in this order is left out: osis2mod stores it so if its versification has
    no place for it (the Greek additions to Daniel and Esther in the World English Bible).

    :raises MissingError: when one of the three files does not exist.
    :raises DataError: when they do not fit together, or a chapter occurs twice.
    """
    where = folder / testament
    found: Chapters = {}
    current = ""
    verses: list[str] = []
    for text in _entries(where):
        begins, ends = _BEGINS.findall(text), _ENDS.findall(text)
        if current and not begins:
            verses.append(text)
            if ends == [current]:
                if current in found:
                    raise _bad(where, f"chapter {current} occurs twice")
                found[current] = verses
            if ends:
                current = ""
        elif begins:
            current, verses = ("" if ends or len(begins) > 1 else begins[0]), []
    return found


def plain(markup: str) -> str:
    """The words of a verse, without markup, notes and headings, separated by single spaces."""
    text = _TAG.sub("", _BREAK.sub(" ", _ASIDE.sub(_GAP, markup)))
    text = _GAP_AHEAD_OF_SIGN.sub("", text).replace(_GAP, " ")
    return " ".join(html.unescape(text).split())


def _entries(where: Path) -> Iterator[str]:
    """The text of every entry, in order."""
    blocks, entries, packed = (read_bytes(where.with_suffix(suffix), _MOST_FILE_BYTES) for suffix in FILES)
    for name, content, struct_ in ((".bzs", blocks, _BLOCK), (".bzv", entries, _ENTRY)):
        if not content or len(content) % struct_.size:
            raise _bad(where, f"{name} has {len(content)} bytes, which is not a multiple of {struct_.size}")
    # All blocks may refer to the same compressed bytes, and all entries to the same text, so the sums must be limited.
    _limit_total(where, "blocks", (block[2] for block in _BLOCK.iter_unpack(blocks)))
    _limit_total(where, "entries", (entry[2] for entry in _ENTRY.iter_unpack(entries)))
    texts = [_decompress(where, packed, *block) for block in _BLOCK.iter_unpack(blocks)]
    for at, (block, start, length) in enumerate(_ENTRY.iter_unpack(entries)):
        if block >= len(texts) or start + length > len(texts[block]):
            raise _bad(where, f"entry {at} is outside the text: block {block}, bytes {start} to {start + length}")
        yield decode(texts[block][start : start + length], f"reading entry {at} of {where}")


def _limit_total(where: Path, what: str, sizes: Iterable[int]) -> None:
    total = sum(sizes)
    if total > _MOST_TEXT_BYTES:
        raise _bad(where, f"its {what} claim {total:,} bytes of text, and {_MOST_TEXT_BYTES:,} is the limit")


def _decompress(where: Path, packed: bytes, start: int, length: int, claimed: int) -> bytes:
    if start + length > len(packed):
        raise _bad(where, f"a block claims bytes {start} to {start + length} of {len(packed)}, {claimed} unpacked")
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(packed[start : start + length], claimed + 1)
    except zlib.error as error:
        raise _bad(where, f"a block cannot be unpacked ({error})") from None
    if len(text) != claimed:
        raise _bad(where, f"a block unpacks to {len(text)} bytes or more, and {claimed} are claimed")
    return text


def _bad(where: Path, found: str) -> DataError:
    return DataError(f"reading {where}.bzz", found, "Reinstall the package that it comes from")


_SHARED = Path("/usr/share/sword")
_ENGLISH_WORDS = "75a4ddf245d7aa95f17b6d9728ad9e196de4897d16a8d1bacb84037aee144662"
_SPANISH_WORDS = "e4a464493000e1fa0dc4e1b4109f3d082dc95f75ee30dcf1957a21b37e5a61a0"


@final
@dataclass(frozen=True)
class Bible:
    """A SWORD module: its name, its Debian package, its title, and the SHA-256 of its words."""

    module: str
    package: str
    title: str
    sha256: str
    shared: Path = _SHARED

    def folder(self, said: Path | None) -> Path | None:
        """The folder of its files: in ``said`` if given; else in LEVELBENCH_DATA, else where its package puts it."""
        for candidate in self._candidates(said):
            files = [candidate / f"{testament}{suffix}" for testament in TESTAMENTS for suffix in FILES]
            if all(map(readable, files)):
                return candidate
        return None

    def located(self, said: Path | None) -> Path:
        """:meth:`folder`; ``MissingError`` that says what to install if it is not found."""
        found = self.folder(said)
        if found is None:
            places = ", ".join(str(each) for each in self._candidates(said))
            also = " without --data" if named_folder(said) is not None else ""
            raise MissingError(
                f"the {self.title} ({self.module})",
                f"its six files are in none of {places}",
                f"Install the package {self.package} (Debian and Ubuntu){also}; or unpack it anywhere and name that "
                f"folder with --data or LEVELBENCH_DATA",
            )
        return found

    def read(self, folder: Path) -> Chapters:
        """Its chapters as plain words; ``DataError`` if the words do not match the checksum."""
        chapters = {name: [plain(verse) for verse in verses] for name, verses in read_bible(folder).items()}
        digest = words_digest(chapters)
        if digest != self.sha256:
            raise DataError(
                f"reading the {self.title} in {folder}",
                f"its words have SHA-256 {digest}, and {self.sha256} is expected",
                f"Install {self.package} as in Debian 12, or remove this folder",
            )
        return chapters

    def fingerprint(self, folder: Path) -> str:
        """The SHA-256 of its files as they are, which is quick, to recognise what was read before."""
        digest = hashlib.sha256()
        for testament in TESTAMENTS:
            for suffix in FILES:
                digest.update(hashlib.sha256(read_bytes(folder / f"{testament}{suffix}")).digest())
        return digest.hexdigest()

    def _candidates(self, said: Path | None) -> Iterator[Path]:
        general, named = os.environ.get("LEVELBENCH_DATA"), named_folder(said)
        for each in [named] if named is not None else [*([Path(general)] if general else []), self.shared]:
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


LENGTH: Final = 40
TOKENS: Final = 4000
HELD_OUT: Final = (600, 1200)


@final
class Translations(list[str]):
    """The reference translations of a split, and the decoder of a network's output ids."""

    def __init__(self, texts: Iterable[str], pairs: BytePairs) -> None:
        super().__init__(texts)
        self.pairs = pairs

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids."""
        return self.pairs.decode(ids)


class _BibleSource(DatasetSource):
    """A dataset of one or more Bibles, made once and kept in the cache."""

    licence = "public domain"
    _bibles: tuple[Bible, ...]

    def checked(self, folder: Path | None = None) -> Dataset:
        return self.load(folder, fresh=True)

    def fetch(self, folder: Path | None = None, progress: Progress = silent) -> None:
        for bible in self._bibles:
            bible.located(folder)

    def where(self, folder: Path | None = None) -> str | None:
        places = [bible.folder(folder) for bible in self._bibles]
        return None if None in places else ", ".join(map(str, places))

    def lacks(self, folder: Path | None = None) -> str | None:
        missing = [bible.package for bible in self._bibles if bible.folder(folder) is None]
        place = "on this machine" if named_folder(folder) is None else f"in {folder}"
        return f"its text is not {place}: apt-get install {' '.join(missing)}" if missing else None

    @abstractmethod
    def load(self, folder: Path | None = None, *, fresh: bool = False) -> Dataset:
        """The three splits; made once and kept in the cache, which ``fresh`` ignores."""


@final
class VersePairs(_BibleSource):
    """The verses: columns ``source_ids`` and ``source_mask`` (n, 40), ``target_ids`` and the labels, all int64.

    ``target_ids`` are the Spanish verse after ``BEGIN``; labels are the same verse followed by ``END``; padding is 0.
    ``reference`` are the Spanish verses. ``classes`` is the number of tokens.
    """

    name = "verses-en-es"
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

    def load(self, folder: Path | None = None, *, fresh: bool = False) -> Dataset:
        places = [bible.located(folder) for bible in self._bibles]
        prints = [bible.fingerprint(place) for bible, place in zip(self._bibles, places, strict=True)]
        key = hashlib.sha256(repr((1, prints, self._length, self._tokens, self._held_out)).encode()).hexdigest()

        def make() -> Arrays:
            source, target = (bible.read(place) for bible, place in zip(self._bibles, places, strict=True))
            return self._made(paired(source, target))

        arrays = prepared(cache_folder() / self.name / f"{key[:16]}.npz", key, make, fresh=fresh)
        merged = [(left, right) for left, right in (line.split("\t") for line in split_lines(arrays["merges"]))]
        pairs = BytePairs(split_lines(arrays["characters"])[0], merged)
        splits = (self._split(arrays, at, pairs) for at in range(3))
        checksums = {bible.module: bible.sha256 for bible in self._bibles}
        return self.assembled(splits, len(pairs), checksums, " and ".join(map(str, places)))

    def _made(self, verses: list[tuple[str, str]]) -> Arrays:
        rest, validation, test = parts(verses, self._held_out)
        pairs = BytePairs.learn((text for at in rest for text in verses[at]), self._tokens)
        result: Arrays = {
            "characters": join_lines(["".join(pairs.characters)]),
            "merges": join_lines([f"{left}\t{right}" for left, right in pairs.merges]),
        }
        for split, indices in enumerate((rest, validation, test)):
            encoded = [(pairs.encode(verses[at][0]), pairs.encode(verses[at][1]), verses[at][1]) for at in indices]
            kept = [each for each in encoded if max(len(each[0]), len(each[1])) < self._length]
            result[f"source.{split}"] = padded([source for source, _, _ in kept], self._length).astype(np.uint16)
            result[f"target.{split}"] = padded([target for _, target, _ in kept], self._length).astype(np.uint16)
            result[f"text.{split}"] = join_lines([text for _, _, text in kept])
        return result

    def _split(self, arrays: Arrays, at: int, pairs: BytePairs) -> Split:
        source, target = (arrays[f"{side}.{at}"].astype(np.int64) for side in ("source", "target"))
        shifted = np.concatenate([np.full((len(target), 1), BEGIN), target[:, :-1]], axis=1)
        lengths = (target != PADDING).sum(axis=1)
        target[np.arange(len(target)), lengths] = END
        mask = (source != PADDING).astype(np.int64)
        return Split((source, mask, shifted, target), reference=Translations(split_lines(arrays[f"text.{at}"]), pairs))


def paired(source: Chapters, target: Chapters) -> list[tuple[str, str]]:
    """Verses of the same chapter and number, if both chapters have equally many and both verses have words."""
    return [
        (left, right)
        for name, verses in source.items()
        if len(verses) == len(target.get(name, ()))
        for left, right in zip(verses, target[name], strict=True)
        if left and right
    ]


def parts(verses: Sequence[tuple[str, str]], held_out: tuple[int, int]) -> tuple[list[int], list[int], list[int]]:
    """Numbers of the verses for training, validation and test, ascending; repeated verses are for training."""
    seen = Counter(text for pair in verses for text in pair)
    once = np.array([max(seen[left], seen[right]) == 1 for left, right in verses])
    single = np.flatnonzero(once)
    contents = ("\n".join(verses[at]).encode() for at in single.tolist())
    rest, validation, test = split_by_digest(contents, None, lambda _: held_out)
    training = np.sort(np.concatenate([single[rest], np.flatnonzero(~once)]))
    return training.tolist(), single[validation].tolist(), single[test].tolist()


ROW_LENGTH: Final = 128
RAREST: Final = 10
UNKNOWN_CHARACTER: Final = 0


@final
class Characters(_BibleSource):
    """Columns ``input_ids`` (n, 128) and the labels, which are the same one character later; both int64.

    Id 0 stands for every character that occurs less than 10 times in the training split; the others are numbered by
    frequency. ``classes`` is the number of ids.
    """

    name = "web-characters"
    attribution = "World English Bible, https://worldenglish.bible (Debian's package sword-text-web 426.0)"
    split_rule = (
        "chapters ordered by the SHA-256 of their text: the first 40 are the validation split, the next 80 the test "
        "split, the rest the training split; in each, chapters follow in the book's order, a verse a line, and are cut "
        "into rows of 128 characters, what is left over dropped"
    )

    def __init__(
        self, bible: Bible = ENGLISH, *, length: int = ROW_LENGTH, held_out: tuple[int, int] = (40, 80)
    ) -> None:
        self._bibles, self._length, self._held_out = (bible,), length, held_out

    def load(self, folder: Path | None = None, *, fresh: bool = False) -> Dataset:
        (bible,) = self._bibles
        place = bible.located(folder)
        key = hashlib.sha256(repr((1, bible.fingerprint(place), self._length, self._held_out)).encode()).hexdigest()
        kept = cache_folder() / self.name / f"{key[:16]}.npz"
        arrays = prepared(kept, key, lambda: self._made(bible.read(place)), fresh=fresh)
        splits = (Split(cut(arrays[f"ids.{at}"], self._length)) for at in range(3))
        return self.assembled(
            splits, 1 + len(split_lines(arrays["alphabet"])), {bible.module: bible.sha256}, str(place)
        )

    def _made(self, bible: Chapters) -> Arrays:
        chapters = ["".join(f"{verse}\n" for verse in verses) for verses in bible.values()]
        split = split_by_digest((each.encode() for each in chapters), None, lambda _: self._held_out)
        texts = ["".join(chapters[at] for at in part) for part in split]
        counts = Counter(texts[0])
        alphabet = sorted((each for each in counts if counts[each] >= RAREST), key=lambda each: (-counts[each], each))
        ids = {each: at for at, each in enumerate(alphabet, UNKNOWN_CHARACTER + 1)}
        result: Arrays = {"alphabet": join_lines([f"{ord(each):x}" for each in alphabet])}
        for at, text in enumerate(texts):
            result[f"ids.{at}"] = np.array([ids.get(each, UNKNOWN_CHARACTER) for each in text], np.uint8)
        return result


def cut(ids: NDArray[np.uint8], length: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Consecutive rows of ``length`` ids, and for each id the next one."""
    count = (len(ids) - 1) // length
    whole = ids[: count * length + 1].astype(np.int64)
    return whole[:-1].reshape(count, length), whole[1:].reshape(count, length)
