"""Ranks that say only what the intervals say, and the record over the years.

Entries are ranked in the order of their values, and a new rank begins where an entry is clearly worse
than one that has the current rank; so those that cannot be told apart share one, nobody with a worse value stands
before a better one, and a single run stands as the point that it is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from datetime import date
from typing import Protocol

from msgspec import Struct


class Bounded(Protocol):
    """What can be ranked: a value of which less is better, and its interval."""

    @property
    def value(self) -> float | None:
        """``None``: it has no rank."""

    @property
    def low(self) -> float | None:
        """``None``: a single run, which stands as a point."""

    @property
    def high(self) -> float | None:
        """As ``low``."""


class Placing(Struct, frozen=True, gc=False):
    """The place of one figure: ``rank`` from 1, ``None`` without a value; ``shared``: others have the same rank."""

    rank: int | None
    shared: bool


def rank(figures: Sequence[Bounded]) -> list[Placing]:
    """The rank of each figure of one column, in the order given; 1 + how many have a smaller one.

    In the order of their values, each shares the rank of the one before unless some entry of that rank is clearly
    better than it: then it opens the next. So a wide interval gains nobody a rank before a better value, and who is
    clearly better than another always has the smaller rank. The other way round it need not hold, since "cannot be told
    apart" is not transitive. One sort: n log n in all.
    """
    ranks: list[int | None] = [None] * len(figures)
    # Tuples are sorted three times as fast as indices with a key.
    known = sorted(
        (value, *_bounds(value, each), index)
        for index, each in enumerate(figures)
        if (value := each.value) is not None and not math.isnan(value)
    )
    place, least = 1, math.inf
    for at, (_, low, high, index) in enumerate(known, 1):
        if low > least:
            place, least = at, math.inf
        ranks[index], least = place, min(least, high)
    times = Counter(ranks)
    return [Placing(place, place is not None and times[place] > 1) for place in ranks]


def order(figures: Sequence[Bounded], ranks: Sequence[Placing], names: Sequence[str]) -> list[int]:
    """The indices in the order of a board: by rank, within it by value, then by name; the unranked last."""
    keys = [
        (math.inf if place.rank is None else place.rank, math.inf if each.value is None else each.value, name, index)
        for index, (place, each, name) in enumerate(zip(ranks, figures, names, strict=True))
    ]
    return [index for *_, index in sorted(keys)]


def progress(entries: Sequence[tuple[str, float | None]]) -> list[tuple[str, float, int]]:
    """The record over time: ``(day, value, index)`` for each entry that was better than all before it, oldest first.

    ``entries`` are the ISO day of submission and the value of each, ``None`` without one. Of the same day only the best
    can be a record. An entry whose day is no date holds none: nobody knows what it was before.
    """
    best_of: dict[str, tuple[float, int]] = {}
    for index, (day, value) in enumerate(entries):
        if value is not None and (day not in best_of or value < best_of[day][0]):
            best_of[day] = (value, index)
    best, found = math.inf, []
    for day, (value, index) in sorted(best_of.items()):
        if value < best and _is_day(day):
            best = value
            found.append((day, value, index))
    return found


def _bounds(value: float, figure: Bounded) -> tuple[float, float]:
    """The interval, or the point twice; an interval that does not hold its own value reaches to it."""
    low, high = figure.low, figure.high
    return value if low is None or low > value else low, value if high is None or high < value else high


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
