"""Finds curves that are nearly the same: copies, copies with points changed or cut off, and copies with scaled times.

The one idea: a curve is told by the smallest few hashes of its points (bottom-k sketches, Broder 1997). Copies that
agree in almost all points share nearly all of them, so candidates come out of a dictionary, and only they are compared
point by point: n curves need about n look-ups and not n² comparisons.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import NamedTuple

from levelbench.records.submissions.schema import Curve

__all__ = ["LEAST_POINTS", "Match", "Near"]

LEAST_POINTS = 5
"""Shorter curves are compared by digest only: a few points agree by chance."""
_KEPT_POINTS = 400
_SKETCH = 6
_MOST_RIVALS = 8
"""With how many earlier curves one is compared at most: a thousand copies of one curve are found all the same."""
_AGREE = 0.9
"""The share of points that must agree."""
_RATIO = 1e-4
"""Within what share the times of a scaled copy have one ratio: measured times vary by far more."""


class Match(NamedTuple):
    """A curve like an earlier one: how many of ``points`` agree, and by how much its times are scaled (1: not)."""

    earlier: int
    agree: int
    points: int
    scale: float


class _Kept(NamedTuple):
    time_s: array[float]
    quality: array[float]


class Near:
    """Curves seen so far. ``add`` says what a curve is like; memory is at most 400 points a curve."""

    def __init__(self) -> None:
        self._curves: list[_Kept] = []
        # One curve by its number, several as a list: most hashes are of one curve only.
        self._buckets: dict[int, int | list[int]] = {}

    def add(self, curve: Curve) -> tuple[int, Match | None]:
        """The curve's number, and the earlier curve that it is most like, if it is nearly one's copy.

        The curve's columns must be of one length, with times that increase.
        """
        number = len(self._curves)
        begun = bisect_right(curve.time_s, 0.0)  # before anything was timed there is nothing to compare
        kept = _Kept(*(array("d", column[begun : begun + _KEPT_POINTS]) for column in (curve.time_s, curve.quality)))
        self._curves.append(kept)
        if not _tells(kept):
            return number, None
        votes: dict[int, int] = {}
        for each in _sketch(kept):
            bucket = self._buckets.setdefault(each, number)
            if bucket == number:
                continue
            seen = [bucket] if isinstance(bucket, int) else bucket
            for earlier in seen:
                votes[earlier] = votes.get(earlier, 0) + 1
            if len(seen) < _MOST_RIVALS:
                self._buckets[each] = [*seen, number]
        if not votes:
            return number, None
        rivals = sorted(votes, key=lambda earlier: (-votes[earlier], earlier))[:_MOST_RIVALS]
        matches = (_match(self._curves[earlier], kept, earlier) for earlier in rivals)
        return number, next((match for match in matches if match is not None), None)


def _tells(curve: _Kept) -> bool:
    """Whether the curve has points enough, and says more than one thing, so that agreeing is no accident."""
    return len(curve.time_s) >= LEAST_POINTS and len(set(curve.quality)) > 2


def _sketch(curve: _Kept) -> set[int]:
    """Hashes of the points as they are, and of a few qualities in a row, which stay as they are if times are scaled."""
    quality = curve.quality
    points = sorted(map(hash, zip(curve.time_s, quality, strict=True)))[:_SKETCH]
    steps = sorted(map(hash, zip(quality, quality[1:], quality[2:], quality[3:], strict=False)))[:_SKETCH]
    # A copy that was cut short keeps its beginning.
    return {*points, *steps, hash((curve.time_s[1], quality[1])), hash(tuple(quality[:4]))}


def _match(earlier: _Kept, curve: _Kept, number: int) -> Match | None:
    """The match, if almost all points of the shorter curve are points of the other, at one scale of time."""
    points = min(len(earlier.time_s), len(curve.time_s))
    ratios = [b / a for a, b in zip(earlier.time_s, curve.time_s, strict=False)]
    if not ratios:
        return None
    scale = sorted(ratios)[points // 2]
    agree = sum(
        abs(ratio - scale) <= _RATIO * scale and before == after
        for ratio, before, after in zip(ratios, earlier.quality, curve.quality, strict=False)
    )
    if agree < _AGREE * points or agree < LEAST_POINTS:
        return None
    return Match(number, agree, points, 1.0 if abs(scale - 1) <= _RATIO else scale)
