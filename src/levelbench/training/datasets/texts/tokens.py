"""Text as numbers: byte-pair encoding for translation, words with their places for reading, characters.

The one idea: what is learned from text is learned from the training split and is a function of it alone: counts are
compared with ties broken by the strings themselves, so the same text gives the same tokens everywhere.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

__all__ = ["BEGIN", "END", "PADDING", "SPECIALS", "UNKNOWN", "BytePairs", "frequent", "padded", "spans"]

PADDING: Final = 0
BEGIN: Final = 1
END: Final = 2
UNKNOWN: Final = 3
SPECIALS: Final = 4
"""Ids below this one stand for no text."""

# A word or a sign with the space ahead of it: what was cut is put together again by joining it.
_PIECES = re.compile(r" ?\w+| ?[^\w\s]+")
_WORDS = re.compile(r"\w+|[^\w\s]")


def spans(text: str) -> list[tuple[int, int]]:
    """Where the words and the signs of ``text`` start and end, white space left out."""
    return [found.span() for found in _WORDS.finditer(text)]


def frequent(counts: Mapping[str, int], most: int) -> dict[str, int]:
    """Ids from ``SPECIALS`` on for the most frequent strings, so many that there are ``most`` ids in all."""
    order = sorted(counts, key=lambda each: (-counts[each], each))
    return {each: at for at, each in enumerate(order[: most - SPECIALS], SPECIALS)}


def padded(rows: Sequence[Sequence[int]], width: int) -> NDArray[np.int64]:
    """(n, width): each row with ``PADDING`` behind it; what is longer than ``width`` is cut."""
    result = np.full((len(rows), width), PADDING, np.int64)
    for at, row in enumerate(rows):
        result[at, : len(row)] = row[:width]
    return result


@final
class BytePairs:
    """Sennrich et al. 2016 (arXiv:1508.07909): a word is cut into the parts that merging frequent pairs made.

    ``parts`` are the single characters and the merged parts; a part's id is its place plus ``SPECIALS``.
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
        """The merges of ``texts``, until there are ``size`` ids or no pair comes twice.

        Of pairs that are equally frequent the first in the order of the alphabet is merged.
        """
        counts = Counter(piece for text in texts for piece in _PIECES.findall(text))
        characters = sorted({character for piece in counts for character in piece})
        merges: list[tuple[str, str]] = []
        seen = set(characters)
        for merge in _merges(counts):
            if SPECIALS + len(seen) >= size:
                break
            # Two merges may make the same part; it needs one id.
            if "".join(merge) not in seen:
                seen.add("".join(merge))
                merges.append(merge)
        return cls(characters, merges)

    def encode(self, text: str) -> list[int]:
        """The ids of a text; ``UNKNOWN`` for a character that was not in the training text."""
        result: list[int] = []
        for piece in _PIECES.findall(text):
            if piece not in self._known:
                self._known[piece] = [self._ids.get(part, UNKNOWN) for part in self._cut(piece)]
            result += self._known[piece]
        return result

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids up to the first ``END``; what stands for no text is left out."""
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
    """The most frequent pair of parts that are neighbours, again and again, each merged before the next is chosen."""
    words, weights = [list(piece) for piece in counts], list(counts.values())
    pairs: Counter[tuple[str, str]] = Counter()
    places: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for at, word in enumerate(words):
        _count(word, weights[at], at, pairs, places)
    # An entry whose count is no longer the pair's is stale: the pair was pushed again when its count changed.
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
    """Add the pairs of word number ``at`` to the counts, and those pairs; such that nobody has any more are dropped."""
    found = set(pairwise(word))
    for pair in pairwise(word):
        pairs[pair] += weight
        if pairs[pair] == 0:
            del pairs[pair]
    if weight > 0:
        for pair in found:
            places[pair].add(at)
    return found
