"""Target crossing: at which evaluation a run counts as having reached its target.

A single lucky evaluation does not count. With an evaluation jitter of 0.1 points, a model that is stuck 0.1 points
below its target "reaches" it in most runs of ten evaluations, so the default rule requires a confirmation; the other
rules are views over the same curve.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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

    The boundary counts as reached, NaN never does. ``x`` (seconds, steps, epochs) has one value an evaluation and must
    not decrease; ``streak`` is the number of evaluations in a row that ``confirmed`` requires.

    Raises ``UnknownNameError`` for an unknown rule or direction, and ``UsageError`` for an ``x`` of the wrong length, a
    threshold that is NaN or a streak below one.
    """
    if rule not in _RULES:
        raise UnknownNameError("crossing rule", rule, RULES)
    sign = sign_of(direction)
    _check(qualities, threshold, x, streak)
    found = _RULES[rule][0]([sign * quality >= sign * threshold for quality in qualities], streak)
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
