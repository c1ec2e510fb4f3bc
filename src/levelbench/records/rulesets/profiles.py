"""AlgoPerf's scoring: a submission's time on a workload, performance profiles, held-out workloads, speedups.

The one idea: a miss is an infinite time and takes part in everything, in the median over studies as in the profile; so
a submission that is fast where it arrives and often does not arrive cannot win.
Sources: Dahl et al. 2023, arXiv 2306.07179, section 4; Dolan and Moré 2002; the rules of
mlcommons/algorithmic-efficiency.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Literal

from levelbench.errors import UsageError

__all__ = [
    "GRID_POINTS",
    "LARGEST_RATIO",
    "exact_score",
    "geometric_speedup",
    "grid_score",
    "profile",
    "ratios",
    "scores",
    "with_held_out",
    "workload_time",
]

Times = Mapping[str, Mapping[str, float]]
"""Seconds by submission and workload; infinite where the target was missed."""

LARGEST_RATIO = 4.0
"""Where the profile ends: a workload on which a submission takes four times the best counts as missed."""
GRID_POINTS = 100
"""On how many points the published scores integrate the profile."""


def workload_time(studies: Sequence[Sequence[float]]) -> float:
    """Seconds of one submission on one workload: the median over studies of the best trial in each.

    Of an even number of studies it is the mean of the two in the middle, infinite where one of them is. Self-tuning
    submissions have one trial a study. ``UsageError`` for a study without a trial, or none.
    """
    if not studies or any(not trials for trials in studies):
        raise UsageError("a time on a workload", "a study has no trials", "give every trial of every study")
    return median(min(trials) for trials in studies)


def ratios(times: Times) -> dict[str, dict[str, float]]:
    """Each time over the best of all submissions on that workload; infinite for a miss. Ratios of one are the best.

    ``UsageError`` where submissions do not name the same workloads, or a time is no positive number.
    """
    workloads = _workloads(times)
    best = {name: min((times[each][name] for each in times), default=math.inf) for name in workloads}
    return {
        each: {name: math.inf if math.isinf(own[name]) else own[name] / best[name] for name in workloads}
        for each, own in times.items()
    }


def _workloads(times: Times) -> list[str]:
    first = next(iter(times.values()), {})
    for each, own in times.items():
        if own.keys() != first.keys() or not own:
            do = "give every submission a time for every workload, infinite where it missed"
            raise UsageError("a performance profile", f"{each} has other workloads than the first, or none", do)
        wrong = [name for name, time_s in own.items() if not time_s > 0]
        if wrong:
            raise UsageError("a performance profile", f"{each} took {own[wrong[0]]} s on {wrong[0]}", "give a time")
    return list(first)


def profile(own: Mapping[str, float], tau: float) -> float:
    """The share of workloads whose ratio is ``tau`` or less."""
    return sum(ratio <= tau for ratio in own.values()) / len(own)


def exact_score(own: Mapping[str, float], largest: float = LARGEST_RATIO) -> float:
    """The area under the profile from 1 to ``largest`` over its width: 1 is best everywhere, 0 nowhere within it.

    In closed form, as the profile is a step function: the mean of ``max(0, (largest - ratio) / (largest - 1))``.
    """
    return math.fsum(max(0.0, (largest - ratio) / (largest - 1)) for ratio in own.values()) / len(own)


def grid_score(own: Mapping[str, float], largest: float = LARGEST_RATIO, points: int = GRID_POINTS) -> float:
    """The same area by the trapezoidal rule on ``points`` points, which is how published scores are computed.

    It differs from :func:`exact_score` by at most half a step of the grid: 0.5 / (points - 1).
    """
    if points < 2:
        raise UsageError("the score on a grid", f"{points} points", "give two or more")
    width = (largest - 1) / (points - 1)
    heights = [profile(own, 1 + at * width) for at in range(points)]
    return (math.fsum(heights) - (heights[0] + heights[-1]) / 2) / (points - 1)


def with_held_out(base: Times, held_out: Mapping[str, tuple[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """Base times under version 0.5's rules of held-out workloads: infinite wherever those rules say missed.

    ``held_out`` maps each variant to its base workload and the seconds by submission. In order: a variant counts as
    missed where its base was; any time beyond four times the best of its workload is a miss; a base workload is missed
    where one of its variants is. Scores are then taken of the base times alone, the best among them anew.
    """
    times = {each: dict(own) for each, own in base.items()}
    variants = [
        (name, {each: math.inf if math.isinf(times[each][name]) else time_s for each, time_s in own.items()})
        for name, own in held_out.values()
    ]
    for name in _workloads(base):
        _cut({each: own[name] for each, own in base.items()}, times, name)
    for name, own in variants:
        _cut(own, times, name)
    return times


def _cut(own: Mapping[str, float], times: dict[str, dict[str, float]], name: str) -> None:
    """Make workload ``name`` a miss for every submission that took too long, or for ever, by ``own``."""
    best = min(own.values(), default=math.inf)
    for each, time_s in own.items():
        if math.isinf(time_s) or time_s > LARGEST_RATIO * best:
            times[each][name] = math.inf


def scores(times: Times, *, how: Literal["exact", "grid"] = "exact") -> dict[str, float]:
    """Every submission's score, best first. It depends on who else takes part: the best time is the unit."""
    compute = exact_score if how == "exact" else grid_score
    found = {each: compute(own) for each, own in ratios(times).items()}
    return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))


def geometric_speedup(a: Mapping[str, float], b: Mapping[str, float], budgets_s: Mapping[str, float]) -> float:
    """How many times faster ``a`` is than ``b``: the geometric mean over workloads of ``b``'s time over ``a``'s.

    A miss counts as the workload's budget and one second, as in the published comparison. ``UsageError`` for times
    of different workloads or a budget that is not there.
    """
    if not a or a.keys() != b.keys() or not a.keys() <= budgets_s.keys():
        do = "give both a time, and a budget, for the same workloads"
        raise UsageError("a speedup", "times and budgets are of different workloads", do)
    logs = []
    for name, own in a.items():
        mine, theirs = (budgets_s[name] + 1 if math.isinf(each) else each for each in (own, b[name]))
        logs.append(math.log(theirs / mine))
    return math.exp(math.fsum(logs) / len(logs))
