"""A run's curve as a rule of crossing sees it, and so its time at any target.

The one idea: each rule asks for the first point at which some quality is at the target, whatever the target is; so
that quality (the running best, the better of two in a row, the worst from here on) is computed once, and a time at
another target is a look-up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

from levelbench.measure.crossing import sign_of
from levelbench.records.rulesets.schema import Ruleset
from levelbench.records.schema import Target
from levelbench.records.submissions.schema import Submission, SubmittedRun

__all__ = ["LONGEST_S", "column_of", "crossing_of", "steps_of", "thinned"]

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


def steps_of(times_s: Sequence[float], qualities: Sequence[float], rule: str, direction: str) -> list[list[float]]:
    """``[quality, time]`` pairs, both strictly increasing towards better and later: from the time on it is reached.

    The time at a threshold is that of the first pair whose quality is at it, exactly as ``find_crossing`` has it under
    ``first``, ``confirmed`` (two in a row), ``sustained`` and ``final``.
    """
    sign = sign_of(direction)
    signed = [sign * quality for quality in qualities]
    pairs: list[tuple[float, float]]
    if rule == "final":
        pairs = list(zip(signed[-1:], times_s[-1:], strict=True))
    elif rule == "confirmed":
        pairs = list(zip(map(min, signed, signed[1:]), times_s[1:], strict=True))
    elif rule == "sustained":
        pairs = list(zip(list(accumulate(reversed(signed), min))[::-1], times_s, strict=True))
    else:
        pairs = list(zip(signed, times_s, strict=True))
    best, steps = -float("inf"), []
    for quality, time in pairs:
        if quality > best:
            best = quality
            steps.append([sign * quality, time])
    return steps


def thinned(steps: list[list[float]], most: int, target: Target) -> list[list[float]]:
    """At most ``most`` (3 or more) of the steps: the one at the target, the first, the last, evenly many of the others.

    A step that is left out makes the time at the targets between it and the one before later, never earlier.
    """
    if len(steps) <= most:
        return steps
    sign = sign_of(target.direction)
    at = next((i for i, (quality, _) in enumerate(steps) if sign * quality >= sign * target.threshold), len(steps) - 1)
    return [steps[i] for i in sorted({*_evenly(len(steps), most), at})]


@lru_cache(maxsize=1024)
def _evenly(count: int, most: int) -> frozenset[int]:
    """At most ``most`` - 1 of ``count`` indices, the first and the last among them."""
    return frozenset(round(i * (count - 1) / (most - 2)) for i in range(most - 1))
