"""A run's curve as a rule of crossing sees it, and so its time at any target.

The one idea: each rule asks for the first point at which some quality is at the target, whatever the target is; so
that quality (the running best, the better of two in a row, the worst from here on) is computed once, and a time at
another target is a look-up.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from operator import neg

from msgspec import Struct

from levelbench.measure.crossing import sign_of
from levelbench.records.rulesets.schema import Ruleset
from levelbench.records.schema import Target
from levelbench.records.submissions.schema import Submission, SubmittedRun

__all__ = ["LONGEST_S", "Climb", "climb_of", "climbs_of", "column_of", "crossing_of", "steps_of", "thinned"]

LONGEST_S = 1e12
"""Thirty thousand years: no figure beyond it is one, and sums of those within it are exact enough."""


def column_of(run: SubmittedRun, submission: Submission, target: Target) -> list[float] | None:
    """The qualities of ``run`` in the metric of ``target``; ``None`` where its curve has another, or is broken."""
    curve = run.curve
    same = submission.target.metric == target.metric
    found = curve.quality if same else curve.others.get(target.metric)
    if found is None or len(found) != len(curve.time_s):
        return None
    # The sum is not finite where a time is not a number, of which minimum and maximum need not tell.
    possible = not found or (min(curve.time_s) >= -LONGEST_S and max(curve.time_s) <= LONGEST_S)
    return found if possible and math.isfinite(sum(curve.time_s)) else None


def crossing_of(submission: Submission, rules: Ruleset) -> str:
    """The rule that its runs are judged by: the ruleset's, but that a schedule of fixed length is at its end.

    Under ``confirmed`` such a schedule, which the entry calls ``final``, has one evaluation that counts.
    """
    fixed = rules.crossing == "confirmed" and submission.crossing == "final"
    return "final" if fixed else rules.crossing


class Climb(Struct, frozen=True, gc=False):
    """A run as a rule of crossing sees it: from ``time_s[i]`` on, ``best[i]`` counts as reached.

    Both increase strictly. ``best`` is the quality times ``sign`` (-1 where lower is better).
    """

    sign: float
    best: list[float]
    time_s: list[float]

    def time_at(self, threshold: float) -> float | None:
        """When ``threshold`` counts as reached, exactly as ``find_crossing`` has it; ``None``: never."""
        at = bisect_left(self.best, self.sign * threshold)
        return float(self.time_s[at]) if at < len(self.best) else None

    def steps(self) -> list[tuple[float, float]]:
        """``(quality, time)`` pairs, both strictly increasing towards better and later."""
        qualities = self.best if self.sign > 0 else map(neg, self.best)
        return list(zip(qualities, self.time_s, strict=True))


def climb_of(times_s: Sequence[float], qualities: Sequence[float], rule: str, direction: str) -> Climb:
    """The climb under ``first``, ``confirmed`` (two in a row), ``sustained`` or ``final``.

    ``times_s`` has one value a quality. A quality that is not a number is never at any threshold.
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
    # A single pass: of ten thousand entries each has hundreds of points.
    before = -math.inf if rule == "confirmed" else math.inf
    highest, best, reached_s = -math.inf, [], []
    for quality, time in zip(signed, times, strict=True):
        seen = quality if quality < before else before
        if seen > highest:
            highest = seen
            best.append(seen)
            reached_s.append(time)
        if rule == "confirmed":
            before = quality
    return Climb(sign, best, reached_s)


def climbs_of(submission: Submission, target: Target, rule: str) -> list[Climb | None]:
    """Each run's climb in the metric of ``target``; ``None`` for one that failed, has another metric or is broken."""
    found: list[Climb | None] = []
    for run in submission.runs:
        column = column_of(run, submission, target) if run.status == "done" else None
        found.append(climb_of(run.curve.time_s, column, rule, target.direction) if column is not None else None)
    return found


def steps_of(
    times_s: Sequence[float], qualities: Sequence[float], rule: str, direction: str
) -> list[tuple[float, float]]:
    """``(quality, time)`` pairs, both strictly increasing towards better and later: from the time on it is reached.

    The time at a threshold is that of the first pair whose quality is at it, exactly as ``find_crossing`` has it.
    """
    return climb_of(times_s, qualities, rule, direction).steps()


def thinned(steps: Sequence[tuple[float, float]], most: int, target: Target) -> Sequence[tuple[float, float]]:
    """At most ``most`` (3 or more) of the steps: the one at the target, the first, the last, evenly many of the others.

    A step that is left out makes the time at the targets between it and the one before later, never earlier.
    """
    if len(steps) <= most:
        return steps
    sign = sign_of(target.direction)
    at = bisect_left(steps, sign * target.threshold, key=lambda step: sign * step[0])
    kept = _evenly(len(steps), most)
    if at == len(steps) or at in kept:
        return [steps[i] for i in kept]
    return [steps[i] for i in sorted((*kept, at))]


@lru_cache(maxsize=1024)
def _evenly(count: int, most: int) -> tuple[int, ...]:
    """At most ``most`` - 1 of ``count`` indices in order, the first and the last among them."""
    return tuple(sorted({round(i * (count - 1) / (most - 2)) for i in range(most - 1)}))
