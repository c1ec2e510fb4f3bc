"""Text as numbers: byte pairs, words with their positions, rows of various lengths, and a cache of prepared arrays.

Whatever is learned from text depends on the training split alone: ties between counts are broken by the strings
themselves, so the same text gives the same tokens everywhere. A cached file states which bytes it was made from and by
which rule, and the SHA-256 of its content; if anything differs or is damaged, it is made again.
"""

from __future__ import annotations

import hashlib
import heapq
import os
import re
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tokenize import TokenError
from typing import Any, Final, final
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

PADDING: Final = 0
BEGIN: Final = 1
END: Final = 2
UNKNOWN: Final = 3
SPECIALS: Final = 4
"""Ids below this one do not stand for text."""

# A word or punctuation with the space before it, so that joining the pieces restores the text.
_PIECES = re.compile(r" ?\w+| ?[^\w\s]+")
_WORDS = re.compile(r"\w+|[^\w\s]")


def spans(text: str) -> list[tuple[int, int]]:
    """Where the words and punctuation of ``text`` start and end, without white space."""
    return [found.span() for found in _WORDS.finditer(text)]


def frequent(counts: Mapping[str, int], most: int) -> dict[str, int]:
    """Ids from ``SPECIALS`` for the most frequent strings, up to ``most`` ids in all."""
    order = sorted(counts, key=lambda each: (-counts[each], each))
    return {each: at for at, each in enumerate(order[: most - SPECIALS], SPECIALS)}


def padded(rows: Sequence[Sequence[int]], width: int) -> NDArray[np.int64]:
    """(n, width): each row followed by ``PADDING``, or cut to ``width``."""
    result = np.full((len(rows), width), PADDING, np.int64)
    for at, row in enumerate(rows):
        result[at, : len(row)] = row[:width]
    return result


@final
class BytePairs:
    """Sennrich et al. 2016 (arXiv:1508.07909): a word is split into parts made by merging frequent pairs.

    ``parts`` are the single characters and the merged parts; a part's id is its index plus ``SPECIALS``.
    """

    def __init__(self, characters: Sequence[str], merges: Sequence[tuple[str, str]]) -> None:
        self.characters, self.merges = tuple(characters), tuple(merges)
        self.parts = (*self.characters, *(left + right for left, right in self.merges))
        self._ids = {part: at for at, part in enumerate(self.parts, SPECIALS)}
        self._ranks = {pair: rank for rank, pair in enumerate(self.merges)}
        self._known: dict[str, list[int]] = {}

    def __len__(self) -> int:
        return SPECIALS + len(self.parts)

    @classmethod
    def learn(cls, texts: Iterable[str], size: int) -> BytePairs:
        """The merges of ``texts``, until there are ``size`` ids or no pair occurs twice.

        Among equally frequent pairs, the first in alphabetical order is merged.
        """
        counts = Counter(piece for text in texts for piece in _PIECES.findall(text))
        characters = sorted({character for piece in counts for character in piece})
        merges: list[tuple[str, str]] = []
        seen = set(characters)
        for merge in _merges(counts):
            if SPECIALS + len(seen) >= size:
                break
            # Two merges may make the same part, which needs only one id.
            if "".join(merge) not in seen:
                seen.add("".join(merge))
                merges.append(merge)
        return cls(characters, merges)

    def encode(self, text: str) -> list[int]:
        """The ids of a text; ``UNKNOWN`` for a character that did not occur in the training text."""
        result: list[int] = []
        for piece in _PIECES.findall(text):
            if piece not in self._known:
                self._known[piece] = [self._ids.get(part, UNKNOWN) for part in self._cut(piece)]
            result += self._known[piece]
        return result

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids up to the first ``END``, without special ids."""
        parts = []
        for each in ids:
            if each == END:
                break
            if each >= SPECIALS:
                parts.append(self.parts[each - SPECIALS])
        return "".join(parts).strip()

    def _cut(self, piece: str) -> list[str]:
        word = list(piece)
        while len(word) > 1:
            ranks = [self._ranks.get(pair, len(self._ranks)) for pair in pairwise(word)]
            if min(ranks) == len(self._ranks):
                break
            word = _merged(word, self.merges[min(ranks)])
        return word


def _merges(counts: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """The most frequent pair of neighbouring parts, repeatedly; each is merged before the next is chosen."""
    words, weights = [list(piece) for piece in counts], list(counts.values())
    pairs: Counter[tuple[str, str]] = Counter()
    places: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for at, word in enumerate(words):
        _count(word, weights[at], at, pairs, places)
    # An entry whose count is outdated is stale: the pair was pushed again when its count changed.
    heap = [(-count, pair) for pair, count in pairs.items()]
    heapq.heapify(heap)
    while heap:
        count, best = heapq.heappop(heap)
        if count > -2:
            return
        if pairs.get(best) != -count:
            continue
        yield best
        changed: set[tuple[str, str]] = set()
        for at in places.pop(best):
            changed |= _count(words[at], -weights[at], at, pairs, places)
            words[at] = _merged(words[at], best)
            changed |= _count(words[at], weights[at], at, pairs, places)
        for pair in changed & pairs.keys():
            heapq.heappush(heap, (-pairs[pair], pair))


def _merged(word: list[str], pair: tuple[str, str]) -> list[str]:
    result: list[str] = []
    at = 0
    while at < len(word):
        if at + 1 < len(word) and word[at] == pair[0] and word[at + 1] == pair[1]:
            result.append(pair[0] + pair[1])
            at += 2
        else:
            result.append(word[at])
            at += 1
    return result


def _count(
    word: list[str],
    weight: int,
    at: int,
    pairs: Counter[tuple[str, str]],
    places: defaultdict[tuple[str, str], set[int]],
) -> set[tuple[str, str]]:
    """Add the pairs of word number ``at`` to the counts and return them; pairs whose count becomes 0 are dropped."""
    found = set(pairwise(word))
    for pair in pairwise(word):
        pairs[pair] += weight
        if pairs[pair] == 0:
            del pairs[pair]
    if weight > 0:
        for pair in found:
            places[pair].add(at)
    return found


# A word, a number or signs, each with the space before it; the end of a line with the indentation of the next.
_CODE = re.compile(rb" ?[A-Za-z_]+| ?[0-9]+| ?[^A-Za-z0-9_\s]+|\n *|\s")


@final
class ByteTokens:
    """Byte pairs of bytes instead of characters: every text has tokens, and they restore all of its bytes.

    Ids below 256 are bytes, 256 is the end of a text, and 257 + i stands for the pair ``merges[i]``. Pairs are merged
    within pieces of code: a word, a number, signs, or the end of a line with the indentation of the next.
    """

    END: Final = 256

    def __init__(self, merges: Sequence[tuple[int, int]]) -> None:
        self.merges = tuple(merges)
        spelled = [*(bytes([each]) for each in range(256)), b""]
        for left, right in self.merges:
            spelled.append(spelled[left] + spelled[right])
        self.spelled = tuple(spelled)

    def __len__(self) -> int:
        return len(self.spelled)

    @classmethod
    def learn(cls, texts: Iterable[bytes], size: int) -> ByteTokens:
        """The merges of ``texts`` until there are ``size`` ids; among equally frequent pairs, that of the lowest."""
        counts = Counter(piece for text in texts for piece in _CODE.findall(text))
        ids = _laid_out(counts)
        weights = np.repeat(np.fromiter(counts.values(), np.float64), [1 + len(piece) for piece in counts])
        merges: list[tuple[int, int]] = []
        for new in range(cls.END + 1, size):
            inside = (ids[:-1] >= 0) & (ids[1:] >= 0)
            # Whole numbers below 2 ** 53, whose sums are exact in any order.
            totals = np.bincount((ids[:-1] * size + ids[1:])[inside], weights[:-1][inside], minlength=1)
            best = int(totals.argmax())
            if totals[best] < 2:
                break
            merges.append(divmod(best, size))
            ids, kept = _joined(ids, merges[-1], new)
            weights = weights[kept]
        return cls(merges)

    def encode(self, texts: Iterable[bytes]) -> NDArray[np.int64]:
        """The ids of all texts, one after another, each with ``END``."""
        known: dict[bytes, int] = {}
        # The empty piece stands for the end of a text.
        order = [known.setdefault(piece, len(known)) for text in texts for piece in (*_CODE.findall(text), b"")]
        ids, chosen = _laid_out(known), np.array(order, np.int64)
        for new, merge in enumerate(self.merges, self.END + 1):
            ids, _ = _joined(ids, merge, new)
        ends = np.flatnonzero(ids < 0)
        lengths = np.diff(ends, prepend=-1) - 1
        starts, counts = (ends - lengths)[chosen], np.maximum(lengths, 1)[chosen]
        places = np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        found: NDArray[np.int64] = np.where(ids < 0, self.END, ids)[places]
        return found

    def decode(self, ids: Iterable[int]) -> bytes:
        """The bytes that ids stand for, one text after another."""
        return b"".join(self.spelled[each] for each in ids)


def _laid_out(pieces: Collection[bytes]) -> NDArray[np.int64]:
    """The bytes of all pieces, with -1 after each."""
    values = np.frombuffer(b"".join(pieces), np.uint8).astype(np.int64)
    return np.insert(values, np.cumsum([len(piece) for piece in pieces], dtype=np.int64), -1)


def _joined(ids: NDArray[np.int64], pair: tuple[int, int], new: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """``ids`` with ``new`` for each ``pair``, from the left, and which of the old places are left."""
    at = np.flatnonzero((ids[:-1] == pair[0]) & (ids[1:] == pair[1]))
    if pair[0] == pair[1]:  # of a run of equal ids, every second pair
        begins = np.where(np.diff(at, prepend=-2) != 1, at, 0)
        at = at[(at - np.maximum.accumulate(begins)) % 2 == 0]
    changed, kept = ids.copy(), np.ones(len(ids), np.bool_)
    changed[at] = new
    kept[at + 1] = False
    return changed[kept], kept


@final
class RaggedRows:
    """Rows of integers of any length, stored one after another."""

    def __init__(self, rows: Sequence[Sequence[int]]) -> None:
        lengths = np.fromiter((len(row) for row in rows), np.int64, len(rows))
        self.starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        self.values = np.fromiter((each for row in rows for each in row), np.int64, int(self.starts[-1]))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def padded(self, indices: NDArray[np.int64], width: int) -> NDArray[np.int64]:
        """(n, width): the rows at ``indices`` padded with 0, or cut to ``width``."""
        starts, ends = self.starts[indices, None], self.starts[indices + 1, None]
        places = starts + np.arange(width)
        inside = places < ends
        if not len(self.values):
            return np.zeros(places.shape, np.int64)
        return np.where(inside, self.values[np.minimum(places, len(self.values) - 1)], 0)


@final
class Padded:
    """A column (n, width, ...) of int64: the entry of ``table`` for each value of row ``which[i]`` of ``rows``.

    ``table`` is (values, ...); its first row is for padding.
    """

    def __init__(self, rows: RaggedRows, which: NDArray[np.int64], width: int, table: NDArray[Any]) -> None:
        self._rows, self._which, self._width, self._table = rows, which, width, table

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, width, ...)."""
        return (len(self._which), self._width, *self._table.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """int64."""
        return np.dtype(np.int64)

    def __len__(self) -> int:
        return len(self._which)

    def take(self, indices: NDArray[np.int64], seeds: NDArray[np.uint64] | None) -> NDArray[np.int64]:
        """The rows at ``indices``; nothing is random."""
        return self._table[self._rows.padded(self._which[indices], self._width)].astype(np.int64, copy=False)


@final
@dataclass(frozen=True)
class Passage:
    """What a prediction is scored against: the paragraph, its tokens' starts and ends, and the answers."""

    context: str
    spans: Sequence[tuple[int, int]]
    answers: tuple[str, ...]

    def text(self, first: int, last: int) -> str:
        """The paragraph from token ``first`` to token ``last``, both included; empty if there is no such token."""
        if first >= len(self.spans):
            return ""
        return self.context[self.spans[first][0] : self.spans[min(last, len(self.spans) - 1)][1]]


Arrays = dict[str, NDArray[Any]]
"""Arrays by name."""

_KEY = "made-of"
_DIGEST = "sha256"
# What NumPy and zipfile raise for files that are damaged, encrypted or compressed with an unknown method.
_UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
    SyntaxError,
    TypeError,
    TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


def prepared(path: Path, key: str, make: Callable[[], Arrays], *, fresh: bool = False) -> Arrays:
    """The arrays of ``make()``, from ``path`` if it holds those of the same ``key``; ``fresh`` ignores the file.

    If the folder cannot be written, they are made each time: the cache is optional.
    """
    kept = None if fresh else _kept(path, key)
    if kept is not None:
        return kept
    arrays = make()
    part = path.with_name(f"{path.name}.{uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("xb") as file:
                marks = {_KEY: np.array(key), _DIGEST: np.array(_digest(arrays))}
                np.savez(file, allow_pickle=False, **marks, **arrays)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError:
        return arrays
    return arrays


def _kept(path: Path, key: str) -> Arrays | None:
    try:
        # Opened here because ``np.load`` leaves a file open if it cannot read it.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            if _KEY not in file or str(file[_KEY]) != key:
                return None
            arrays = {name: file[name] for name in file.files if name not in {_KEY, _DIGEST}}
            return arrays if str(file[_DIGEST]) == _digest(arrays) else None
    except _UNREADABLE:
        return None


def _digest(arrays: Arrays) -> str:
    """The SHA-256 of names, dtypes, shapes and values, which also detects a missing array."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        each = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}\0{each.dtype.str}\0{each.shape}\0".encode("utf-8", "backslashreplace"))
        digest.update(each.data)
    return digest.hexdigest()


def join_lines(lines: list[str]) -> NDArray[np.uint8]:
    """Lines as UTF-8 bytes, separated by line feeds; no line may contain one."""
    return np.frombuffer("\n".join(lines).encode(), np.uint8)


def split_lines(content: NDArray[np.uint8]) -> list[str]:
    """The lines of :func:`join_lines`."""
    return content.tobytes().decode().split("\n")
