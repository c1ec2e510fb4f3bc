"""Ranks that say only what the intervals say, and the record over the years.

The one idea: entries are ranked in the order of their values, and a new rank begins where an entry is clearly worse
than one that has the current rank; so those that cannot be told apart share one, nobody with a worse value stands
before a better one, and a single run stands as the point that it is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from datetime import date

from msgspec import Struct

from levelbench.records.submissions.figures import Figure

__all__ = ["Ranked", "display", "is_clearly_better", "order", "progress", "rank"]


class Ranked(Struct, frozen=True, gc=False):
    """The place of one figure: ``rank`` from 1, ``None`` where there is no value, with the ``reason``.

    ``shared`` says that others have the same rank, ``point`` that it was compared without an interval.
    """

    rank: int | None
    shared: bool
    point: bool
    reason: str = ""


def is_clearly_better(a: Figure, b: Figure) -> bool:
    """Whether the interval of ``a`` lies wholly below that of ``b``: both have a value, and less is better."""
    return a.value is not None and b.value is not None and _bounds(a)[1] < _bounds(b)[0]


def rank(figures: Sequence[Figure]) -> list[Ranked]:
    """The rank of each figure of one column, in the order given; 1 + how many have a smaller one.

    In the order of their values, each shares the rank of the one before unless some entry of that rank is clearly
    better than it: then it opens the next. So a wide interval gains nobody a rank before a better value, and who is
    clearly better than another always has the smaller rank. The other way round it need not hold, since "cannot be told
    apart" is not transitive. One sort: n log n in all.
    """
    ranks: list[int | None] = [None] * len(figures)
    bounds = {index: _bounds(each) for index, each in enumerate(figures) if _has_value(each)}
    place, least = 1, math.inf
    for at, index in enumerate(sorted(bounds, key=lambda index: (figures[index].value, *bounds[index])), 1):
        low, high = bounds[index]
        if low > least:
            place, least = at, math.inf
        ranks[index], least = place, min(least, high)
    times = Counter(ranks)
    return [
        Ranked(
            place,
            shared=place is not None and times[place] > 1,
            point=place is not None and each.low is None,
            reason="" if place is not None else each.how,
        )
        for place, each in zip(ranks, figures, strict=True)
    ]


def display(place: Ranked) -> str:
    """``3``, ``3=`` where the rank is shared, a dash where there is none."""
    return "–" if place.rank is None else f"{place.rank}{'=' * place.shared}"


def order(figures: Sequence[Figure], ranks: Sequence[Ranked], names: Sequence[str]) -> list[int]:
    """The indices in the order of a board: by rank, within it by value, then by name; the unranked last."""

    def key(index: int) -> tuple[float, float, str]:
        place, value = ranks[index].rank, figures[index].value
        return (math.inf if place is None else place, math.inf if value is None else value, names[index])

    return sorted(range(len(figures)), key=key)


def progress(entries: Sequence[tuple[str, float | None]]) -> list[tuple[str, float, int]]:
    """The record over time: ``(day, value, index)`` for each entry that was better than all before it, oldest first.

    ``entries`` are the ISO day of submission and the value of each, ``None`` without one. Of the same day only the best
    can be a record. An entry whose day is no date holds none: nobody knows what it was before.
    """
    best, found = math.inf, []
    known = [(day, value, index) for index, (day, value) in enumerate(entries) if value is not None]
    for day, value, index in sorted(known):
        if value < best and _is_day(day):
            best = value
            found.append((day, value, index))
    return found


def _has_value(figure: Figure) -> bool:
    return figure.value is not None and not math.isnan(figure.value)


def _bounds(figure: Figure) -> tuple[float, float]:
    """The interval, or the point twice; an interval that does not hold its own value reaches to it."""
    value = math.nan if figure.value is None else figure.value
    low = value if figure.low is None else figure.low
    high = value if figure.high is None else figure.high
    return min(low, value), max(high, value)


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
