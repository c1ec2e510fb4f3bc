"""squad: SQuAD 1.1, questions on Wikipedia paragraphs whose answers are spans of the paragraph.

The files are the official ones (Rajpurkar et al. 2016, arXiv:1606.05250), downloaded or in a folder, checked by
SHA-256. An answer is accepted only if the paragraph has it at the stated position, because a shifted one would silently
train a network on the wrong words. Whole articles are held out; the vocabulary is from the training split alone.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DataError
from levelbench.training.datasets.base import Dataset, Progress, Split, split_by_digest
from levelbench.training.datasets.places import DataFile, FileSource, cache_folder, readable
from levelbench.training.datasets.reading import read_text, require_content
from levelbench.training.datasets.text import UNKNOWN, Padded, Passage, RaggedRows, frequent, spans

VERSION = "1.1"


@final
@dataclass(frozen=True)
class AnswerSpan:
    """A span of a paragraph: its text, and its first character's position in the paragraph."""

    text: str
    start: int


@final
@dataclass(frozen=True)
class Question:
    """A question with its paragraph, its article's title, and at least one answer."""

    id: str
    article: str
    context: str
    question: str
    answers: tuple[AnswerSpan, ...]


def read_squad(path: Path) -> list[Question]:
    """All questions of a file, in order.

    :raises MissingError: when the file does not exist.
    :raises DataError: when it is not UTF-8 or JSON, has another version, lacks a part, repeats an id, or has an answer
        that
        is not in its paragraph at that position.
    """
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:  # not JSON, or a number of thousands of digits
        raise _bad(path, f"it is not JSON ({error})") from None
    file = _Reader(path)
    root = file.mapping(content, "the file")
    version = root.get("version")
    if version != VERSION:
        raise _bad(path, f"its version is {version!r}, and {VERSION!r} is expected")
    found: list[Question] = []
    for article in file.items(root, "data", "the file"):
        title = file.text(article, "title", "an article")
        for paragraph in file.items(article, "paragraphs", f"article {title!r}"):
            context = file.text(paragraph, "context", f"a paragraph of {title!r}")
            asked = file.items(paragraph, "qas", f"a paragraph of {title!r}")
            found += [file.question(each, title, context) for each in asked]
    if not found:
        raise _bad(path, "it has no questions")
    seen: set[str] = set()
    for each in found:
        if each.id in seen:
            raise _bad(path, f"two questions have the id {each.id!r}")
        seen.add(each.id)
    return found


@final
@dataclass(frozen=True)
class _Reader:
    """Extracts parts of JSON; its errors say where a part is wrong."""

    path: Path

    def question(self, item: Mapping[str, object], article: str, context: str) -> Question:
        """One question, with its answers checked against the paragraph."""
        name = self.text(item, "id", f"a question of {article!r}")
        where = f"question {name!r}"
        answers = []
        for each in self.items(item, "answers", where):
            text, start = self.text(each, "text", f"an answer of {where}"), each.get("answer_start")
            if not isinstance(start, int) or isinstance(start, bool) or not 0 <= start < len(context):
                raise _bad(self.path, f"an answer of {where} starts at {start!r}, outside its paragraph")
            if context[start : start + len(text)] != text:
                said = context[start : start + len(text)]
                raise _bad(self.path, f"an answer of {where} is {text!r}, and its paragraph has {said!r} there")
            answers.append(AnswerSpan(text, start))
        if not answers:
            raise _bad(self.path, f"{where} has no answer")
        return Question(name, article, context, self.text(item, "question", where), tuple(answers))

    def mapping(self, item: object, where: str) -> Mapping[str, object]:
        """``item`` if it is a JSON object."""
        if not isinstance(item, dict):
            raise _bad(self.path, f"{where} is a {type(item).__name__}, not an object")
        return item

    def items(self, item: Mapping[str, object], key: str, where: str) -> list[Mapping[str, object]]:
        """The objects of the list ``item[key]``."""
        found = item.get(key)
        if not isinstance(found, list):
            raise _bad(self.path, f"{where} has no list {key!r}")
        return [self.mapping(each, f"an item of {key!r} in {where}") for each in found]

    def text(self, item: Mapping[str, object], key: str, where: str) -> str:
        """The string ``item[key]``, which must not be empty and must be valid Unicode."""
        found = item.get(key)
        if not isinstance(found, str) or not found:
            raise _bad(self.path, f"{where} has no text {key!r}")
        try:
            found.encode()
        except UnicodeEncodeError as error:
            half = found[error.start]
            raise _bad(self.path, f"{key!r} in {where} has half a surrogate pair, {half!r}") from None
        return found


def _bad(path: Path, found: str) -> DataError:
    return DataError(f"reading {path} as SQuAD {VERSION}", found, "Fetch the file again")


OFFICIAL_URL: Final = "https://rajpurkar.github.io/SQuAD-explorer/dataset"
TRAIN: Final = DataFile("train-v1.1.json", "3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955")
DEV: Final = DataFile("dev-v1.1.json", "95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9")
MOST_DOWNLOAD_BYTES: Final = 64_000_000
CONTEXT: Final = 400
QUESTION: Final = 50
LETTERS: Final = 16
WORDS: Final = 30_000
CHARACTERS: Final = 128


@final
class Squad(FileSource):
    """Paragraphs and questions as numbers, and the positions of the answers.

    Columns: ``context_ids`` (n, 400), ``context_characters`` (n, 400, 16), ``context_mask`` (n, 400), the same for the
    question (50 words), then the first and the last word of the answer (n,); all int64. ``reference`` are passages.

    Words are runs of letters and digits, and single punctuation marks; those outside the 30,000 most frequent share an
    id, but each has its characters. ``classes`` is the number of positions at which an answer may start.
    """

    name = "squad"
    licence = "CC BY-SA 4.0"
    attribution = (
        "Rajpurkar, Zhang, Lopyrev, Liang (2016), SQuAD: 100,000+ questions for machine comprehension of text, "
        "arXiv:1606.05250, version 1.1"
    )
    size = "2 files, 35 MB"
    home = "https://rajpurkar.github.io/SQuAD-explorer"
    ways = (
        "put train-v1.1.json and dev-v1.1.json into a folder and name it with --data or LEVELBENCH_DATA; or allow the "
        "download, with a network and without LEVELBENCH_OFFLINE (LEVELBENCH_SQUAD_URL names a mirror)"
    )
    split_rule = (
        "test is the official development set, whose answers are public (the official test set's are not); of the "
        "official training set's articles, ordered by the SHA-256 of their titles, the first tenth (rounded down) is "
        "the validation split, the rest the training split, without the questions whose answer has no word or lies "
        "behind the paragraph's 400th; longer paragraphs are cut in all splits"
    )

    def __init__(
        self,
        train: DataFile = TRAIN,
        dev: DataFile = DEV,
        *,
        words: int = WORDS,
        context: int = CONTEXT,
        question: int = QUESTION,
    ) -> None:
        self._files, self._sizes = (train, dev), _Sizes(words, context, question)

    def held(self, folder: Path) -> Path | None:
        """The folder, or ``squad`` in it, that has both files."""
        for each in (folder, folder / "squad"):
            if all(readable(each / file.name) for file in self._files):
                return each
        return None

    def download(self, progress: Progress) -> Path:
        for file in self._files:
            self.fetch_file(file.name, file.content_sha256, OFFICIAL_URL, MOST_DOWNLOAD_BYTES, progress)
        return cache_folder() / self.name

    def load(self, folder: Path | None = None) -> Dataset:
        found = self.located(folder)
        for file in self._files:
            require_content(found.held / file.name, file.content_sha256)
        train, dev = (read_squad(found.held / file.name) for file in self._files)
        titles = sorted({each.article for each in train})
        _, held = split_by_digest((each.encode() for each in titles), None, lambda count: (max(1, count // 10),))
        held_out = {titles[at] for at in held.tolist()}
        parts = (
            [each for each in train if each.article not in held_out],
            [each for each in train if each.article in held_out],
            dev,
        )
        checksums = {file.name: file.content_sha256 for file in self._files}
        return self.assembled(_Encoder(parts, self._sizes).splits(), self._sizes.context, checksums, found.label)


def token_span(places: Sequence[tuple[int, int]], start: int, end: int) -> tuple[int, int]:
    """The first and the last token that overlap the characters from ``start`` to ``end`` (exclusive)."""
    touched = [at for at, (first, last) in enumerate(places) if first < end and last > start]
    return (touched[0], touched[-1]) if touched else (len(places), len(places))


@final
@dataclass(frozen=True)
class _Text:
    """A text split into words."""

    words: list[str]
    places: list[tuple[int, int]]


@final
@dataclass(frozen=True)
class _Sizes:
    """The size of the vocabulary, and the number of words read of a paragraph and of a question."""

    words: int
    context: int
    question: int


@final
class _Encoder:
    """Questions as numbers: a table of all distinct words, and the words of each text as indices into it."""

    def __init__(self, parts: Sequence[Sequence[Question]], sizes: _Sizes) -> None:
        self._parts, self._sizes = parts, sizes
        contexts = list(dict.fromkeys(each.context for part in parts for each in part))
        self._texts = {each: _split_words(each) for each in contexts}
        self._asked = [[_split_words(each.question) for each in part] for part in parts]
        counts: Counter[str] = Counter()
        for context in dict.fromkeys(each.context for each in parts[0]):
            counts.update(word.lower() for word in self._texts[context].words)
        for text in self._asked[0]:
            counts.update(word.lower() for word in text.words)
        known = frequent(counts, sizes.words)
        everything = [*self._texts.values(), *(text for asked in self._asked for text in asked)]
        self._types = {word: at for at, word in enumerate(sorted({w for text in everything for w in text.words}), 1)}
        self._words = np.array([0, *(known.get(each.lower(), UNKNOWN) for each in self._types)], np.int64)
        self._character_table = _character_table(list(self._types))
        self._mask = np.array([0, *([1] * len(self._types))], np.int64)
        self._contexts = RaggedRows([self._row(text) for text in self._texts.values()])
        self._numbers = {context: at for at, context in enumerate(self._texts)}

    def splits(self) -> list[Split]:
        return [
            self._split(part, asked, training=at == 0)
            for at, (part, asked) in enumerate(zip(self._parts, self._asked, strict=True))
        ]

    def _split(self, part: Sequence[Question], asked: Sequence[_Text], *, training: bool) -> Split:
        answers = [self._answer(each) for each in part]
        # The others cannot be learnt; they count in an evaluation, which compares texts.
        ends = [min(len(self._texts[each.context].words), self._sizes.context) for each in part]
        kept = [at for at, (_, last) in enumerate(answers) if last < ends[at] or not training]
        if not kept:
            raise DataError("SQuAD", "a split has no questions", "Fetch the files again")
        which = np.array([self._numbers[part[at].context] for at in kept], np.int64)
        questions, each = RaggedRows([self._row(asked[at]) for at in kept]), np.arange(len(kept))
        columns: list[Any] = []
        for rows, row, width in ((self._contexts, which, self._sizes.context), (questions, each, self._sizes.question)):
            columns += [Padded(rows, row, width, table) for table in (self._words, self._character_table, self._mask)]
        labels = np.minimum(np.array([answers[at] for at in kept], np.int64), self._sizes.context - 1)
        return Split(
            (*columns, np.ascontiguousarray(labels[:, 0]), np.ascontiguousarray(labels[:, 1])),
            targets=2,
            reference=[self._passage(part[at]) for at in kept],
        )

    def _row(self, text: _Text) -> list[int]:
        return [self._types[word] for word in text.words]

    def _answer(self, question: Question) -> tuple[int, int]:
        first = question.answers[0]
        return token_span(self._texts[question.context].places, first.start, first.start + len(first.text))

    def _passage(self, question: Question) -> Passage:
        places = self._texts[question.context].places
        return Passage(question.context, places, tuple(each.text for each in question.answers))


def _split_words(text: str) -> _Text:
    places = spans(text)
    return _Text([text[first:last] for first, last in places], places)


def _character_table(words: Sequence[str]) -> NDArray[np.uint8]:
    """(words + 1, letters): the first bytes of each word in UTF-8, with 127 for non-ASCII and 0 as padding."""
    table = np.zeros((len(words) + 1, LETTERS), np.uint8)
    for at, word in enumerate(words, 1):
        letters = np.frombuffer(word.encode()[:LETTERS], np.uint8)
        table[at, : len(letters)] = np.minimum(letters, CHARACTERS - 1)
    return table
