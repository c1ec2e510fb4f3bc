"""Target crossing: at which evaluation a run counts as having reached its target.

A single lucky evaluation does not count. With an evaluation jitter of 0.1 points, a model that is stuck 0.1 points
below its target "reaches" it in most runs of ten evaluations, so the default rule requires a confirmation; the other
rules are views over the same curve.

Every rule asks for the first point at which some derived quality is at the target. A :class:`Climb` has that quality
computed once, so that the time for another target is a lookup.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import neg
from types import MappingProxyType

from levelbench.errors import UnknownNameError, UsageError

DIRECTIONS = ("higher", "lower")


def sign_of(direction: str) -> float:
    """1 if higher is better, -1 if lower is; ``UnknownNameError`` for any other direction."""
    if direction not in DIRECTIONS:
        raise UnknownNameError("direction", direction, DIRECTIONS)
    return 1.0 if direction == "higher" else -1.0


@dataclass(frozen=True)
class Crossing:
    """Where a curve reached its target.

    ``index`` is the evaluation at which the target counts as reached, ``first_index`` the one that began the streak,
    ``position`` the x at which it counts: ``x[index]``, or a value between two evaluations for the rule
    ``interpolated`` (in evaluations if no ``x`` was given), else ``None``.
    """

    index: int
    first_index: int
    position: float | None


def _first(reached: Sequence[bool], streak: int) -> tuple[int, int] | None:
    index = next((i for i, hit in enumerate(reached) if hit), None)
    return None if index is None else (index, index)


def _confirmed(reached: Sequence[bool], streak: int) -> tuple[int, int] | None:
    run = 0
    for i, hit in enumerate(reached):
        run = run + 1 if hit else 0
        if run == streak:
            return i, i - streak + 1
    return None


def _sustained(reached: Sequence[bool], streak: int) -> tuple[int, int] | None:
    start = len(reached)
    while start and reached[start - 1]:
        start -= 1
    return (start, start) if start < len(reached) else None


def _final(reached: Sequence[bool], streak: int) -> tuple[int, int] | None:
    last = len(reached) - 1
    return (last, last) if reached and reached[last] else None


_Finder = Callable[[Sequence[bool], int], tuple[int, int] | None]
_RULES: dict[str, tuple[_Finder, str]] = {
    "confirmed": (_confirmed, "two evaluations in a row; counts at the second"),
    "first": (_first, "the first evaluation at the target (DAWNBench's rule)"),
    "sustained": (_sustained, "from there to the end of the curve; counts at its first evaluation"),
    "final": (_final, "the last evaluation only, for schedules of fixed length"),
    "interpolated": (_first, "on the straight line between the evaluations before and after the first crossing"),
}
RULES = MappingProxyType({name: text for name, (_, text) in _RULES.items()})


def find_crossing(
    qualities: Sequence[float],
    threshold: float,
    *,
    direction: str = "higher",
    rule: str = "confirmed",
    x: Sequence[float] | None = None,
    streak: int = 2,
) -> Crossing | None:
    """Where ``qualities`` (one an evaluation, in order) reach ``threshold``, or ``None`` if they never do.

    The boundary counts as reached, NaN and infinity never. ``x`` (seconds, steps, epochs) has one value an evaluation
    and must not decrease; ``streak`` is the number of evaluations in a row that ``confirmed`` requires.

    Raises ``UnknownNameError`` for an unknown rule or direction, and ``UsageError`` for an ``x`` of the wrong length, a
    threshold that is NaN or a streak below one.
    """
    if rule not in _RULES:
        raise UnknownNameError("crossing rule", rule, RULES)
    sign = sign_of(direction)
    _check(qualities, threshold, x, streak)
    found = _RULES[rule][0]([sign * threshold <= sign * quality < math.inf for quality in qualities], streak)
    if found is None:
        return None
    index, first_index = found
    if rule == "interpolated":
        at = range(len(qualities)) if x is None else x
        return Crossing(index, first_index, _between(qualities, threshold, index, at))
    return Crossing(index, first_index, None if x is None else float(x[index]))


def _check(qualities: Sequence[float], threshold: float, x: Sequence[float] | None, streak: int) -> None:
    asked = "a target crossing"
    if math.isnan(threshold):
        raise UsageError(asked, "the threshold is not a number", "give the quality to reach")
    if streak < 1:
        raise UsageError(asked, f"a streak of {streak} evaluations", "ask for one evaluation or more in a row")
    if x is not None and len(x) != len(qualities):
        raise UsageError(asked, f"{len(x)} positions for {len(qualities)} qualities", "give one position an evaluation")


def _between(qualities: Sequence[float], threshold: float, index: int, x: Sequence[float]) -> float:
    """The x at which the line into evaluation ``index`` meets the threshold; ``x[index]`` if there is no line."""
    if index == 0:
        return float(x[0])
    before, after = qualities[index - 1], qualities[index]
    if not (math.isfinite(before) and math.isfinite(after)):
        return float(x[index])
    share = (threshold - before) / (after - before)
    return float(x[index - 1] + share * (x[index] - x[index - 1]))


@dataclass(frozen=True, slots=True)
class Climb:
    """A run as a crossing rule sees it: from ``time_s[i]`` on, ``best[i]`` counts as reached.

    Both increase strictly. ``best`` is the quality times ``sign`` (-1 if lower is better). ``before`` has, for the rule
    ``interpolated`` alone, the evaluation before each of these: its quality times ``sign``, and its time.
    """

    sign: float
    best: list[float]
    time_s: list[float]
    before: list[tuple[float, float]] | None = None

    def time_at(self, threshold: float) -> float | None:
        """When ``threshold`` counts as reached, exactly as in ``find_crossing``; ``None``: never."""
        wanted = self.sign * threshold
        at = bisect_left(self.best, wanted)
        if at == len(self.best):
            return None
        if self.before is None:
            return float(self.time_s[at])
        (quality, time), best, reached = self.before[at], self.best[at], self.time_s[at]
        if not (math.isfinite(quality) and math.isfinite(best)):
            return float(reached)
        return float(time + (wanted - quality) / (best - quality) * (reached - time))

    def steps(self) -> list[tuple[float, float]]:
        """``(quality, time)`` pairs, with strictly better qualities and later times."""
        qualities = self.best if self.sign > 0 else map(neg, self.best)
        return list(zip(qualities, self.time_s, strict=True))


def climb_of(times_s: Sequence[float], qualities: Sequence[float], rule: str, direction: str) -> Climb:
    """The climb under any of ``RULES``, with a streak of two for ``confirmed``.

    ``times_s`` has one value per quality. A NaN quality never counts as reached.
    """
    sign = sign_of(direction)
    times = times_s
    signed = qualities if sign > 0 else list(map(neg, qualities))
    if math.isnan(sum(signed)):
        signed = [-math.inf if math.isnan(each) else each for each in signed]
    if rule == "final":
        signed, times = signed[-1:], times[-1:]
    elif rule == "sustained":
        signed = list(accumulate(reversed(signed), min))[::-1]
    # A single pass, since a board has ten thousand entries with hundreds of points each.
    least = -math.inf if rule == "confirmed" else math.inf
    highest, last, best, reached_s, before = -math.inf, (-math.inf, 0.0), [], [], []
    for quality, time in zip(signed, times, strict=True):
        seen = quality if quality < least else least
        if seen > highest:
            highest = seen
            best.append(seen)
            reached_s.append(time)
            before.append(last)
        if rule == "confirmed":
            least = quality
        last = (quality, time)
    return Climb(sign, best, reached_s, before if rule == "interpolated" else None)
