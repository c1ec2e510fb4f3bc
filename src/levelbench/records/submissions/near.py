"""Finds curves that are nearly the same: copies, copies with points changed or cut off, and copies with scaled times.

The one idea: a curve is told by the smallest few hashes of its points (bottom-k sketches, Broder 1997). Copies that
agree in almost all points share nearly all of them, so candidates come out of one sort of all sketches, and only they
are compared point by point: n curves need n log n steps and not n² comparisons. A sketch depends on its curve alone,
so it can be made anywhere and be remembered.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from levelbench.records.submissions.schema import Curve

__all__ = ["LEAST_POINTS", "MOST_RIVALS", "Match", "match", "rivals", "sketch"]

LEAST_POINTS = 5
"""Shorter curves are compared by digest only: a few points agree by chance."""
MOST_RIVALS = 8
"""With how many earlier curves one is compared at most: a thousand copies of one curve are found all the same."""
_DIGITS, _SAME = 1e6, 2e-6
"""Of a quality six digits are compared; by how much equal ones may differ for it."""
_MOST = 1e300
"""Beyond it figures are none, and round ones not finite."""
_SIGNIFICANT, _LEAST_S = 1e4, 1e-9
"""Times are compared in shares of the first of a curve."""
_KEPT_POINTS = 400
_SKETCH = 6
_AGREE = 0.9
"""The share of points that must agree."""
_RATIO = 1e-4
"""Within what share the times of a scaled copy have one ratio: measured times vary by far more."""


class Match(NamedTuple):
    """A curve like an earlier one: how many of ``points`` agree, and by how much its times are scaled (1: not)."""

    agree: int
    points: int
    scale: float


def _begun(curve: Curve) -> tuple[list[float], list[float]]:
    """Times and qualities that are compared: before anything was timed there is nothing to compare."""
    begun = bisect_right(curve.time_s, 0.0)
    return curve.time_s[begun : begun + _KEPT_POINTS], curve.quality[begun : begun + _KEPT_POINTS]


def sketch(curve: Curve) -> bytes:
    """A few hashes of the curve, 8 bytes each; none of a curve that says too little for agreeing to be no accident.

    They are of the points in round figures, and of a few qualities in a row, which stay as they are if times are
    scaled. The curve's columns must be of one length, with times that increase.
    """
    time_s, quality = _begun(curve)
    if len(time_s) < LEAST_POINTS or len(set(quality)) < 3:
        return b""
    # In round figures: nobody measures the digits behind them, and whoever copies may change them.
    unit = _SIGNIFICANT / max(time_s[0], _LEAST_S)
    if time_s[-1] * unit > _MOST or max(quality) > _MOST or min(quality) < -_MOST:
        return b""
    time_s = [(each * unit + 0.5) // 1.0 for each in time_s]
    quality = [(each * _DIGITS + 0.5) // 1.0 for each in quality]
    # In its own unit the first time is the same for all curves: that point would tell nothing but one quality.
    points = sorted(map(hash, zip(time_s[1:], quality[1:], strict=True)))[:_SKETCH]
    steps = sorted(map(hash, zip(quality, quality[1:], quality[2:], quality[3:], strict=False)))[:_SKETCH]
    # A copy that was cut short keeps its beginning.
    kept = {*points, *steps, hash((time_s[1], quality[1])), hash(tuple(quality[:4]))}
    return array("q", kept).tobytes()


def rivals(sketches: Sequence[bytes]) -> dict[int, list[int]]:
    """For each curve that shares a hash with earlier ones, those that it shares most with, at most ``MOST_RIVALS``.

    Of each hash only the first ``MOST_RIVALS`` curves that have it count, so the work is in proportion to the curves.
    """
    hashes = np.frombuffer(b"".join(sketches), np.int64)
    if len(hashes) == 0:
        return {}
    owners = np.repeat(np.arange(len(sketches)), np.fromiter(map(len, sketches), np.int64, len(sketches)) // 8)
    # Nearly all hashes are one curve's alone; to sort them takes a fifth of the time that their order would take.
    sorted_hashes = np.sort(hashes)
    shared = np.unique(sorted_hashes[1:][sorted_hashes[1:] == sorted_hashes[:-1]])
    if len(shared) == 0:
        return {}
    is_shared = shared[np.minimum(np.searchsorted(shared, hashes), len(shared) - 1)] == hashes
    hashes, owners = hashes[is_shared], owners[is_shared]
    order = np.argsort(hashes)
    hashes, owners = hashes[order], owners[order]
    begins = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1]))
    sizes = np.diff(np.append(begins, len(hashes)))
    votes: dict[int, dict[int, int]] = {}
    for begin, size in zip(begins[sizes > 1].tolist(), sizes[sizes > 1].tolist(), strict=True):
        members = sorted(owners[begin : begin + size].tolist())
        for at, number in enumerate(members):
            mine = votes.setdefault(number, {})
            for earlier in members[: min(at, MOST_RIVALS)]:
                mine[earlier] = mine.get(earlier, 0) + 1
    return {
        number: [earlier for _, earlier in sorted((-shared, earlier) for earlier, shared in mine.items())[:MOST_RIVALS]]
        for number, mine in sorted(votes.items())
        if mine
    }


def match(earlier: Curve, curve: Curve) -> Match | None:
    """The match, if almost all points of the shorter curve are points of the other, at one scale of time."""
    (times_before, before), (times, after) = _begun(earlier), _begun(curve)
    points = min(len(times_before), len(times))
    ratios = [b / a for a, b in zip(times_before, times, strict=False)]
    if not ratios:
        return None
    scale = sorted(ratios)[points // 2]
    agree = sum(
        abs(ratio - scale) <= _RATIO * scale and abs(one - other) <= _SAME
        for ratio, one, other in zip(ratios, before, after, strict=False)
    )
    if agree < _AGREE * points or agree < LEAST_POINTS:
        return None
    return Match(agree, points, 1.0 if abs(scale - 1) <= _RATIO else scale)
