"""The scores of MLPerf (Olympic means, medians over windows of runs) and AlgoPerf (performance profiles)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Literal

from msgspec import Struct

from levelbench.errors import RecordError, UsageError
from levelbench.measure.statistics.means import olympic_mean
from levelbench.records.reader import open_record

Even = Literal["lower", "upper", "mean"]

_SCALING_LIMIT = 64 * 1024


class OlympicScore(Struct, frozen=True):
    """The score of a result in seconds, ``None`` if it is invalid; which runs it is the mean of, by their index.

    ``failed`` runs did not converge. ``scaling`` is the factor that the score was multiplied by.
    """

    score_s: float | None
    kept: tuple[int, ...]
    fastest: tuple[int, ...]
    slowest: tuple[int, ...]
    failed: int
    scaling: float = 1.0


class WindowScore(Struct, frozen=True):
    """The score over all windows of consecutive runs: the median's, ``None`` if the median window is invalid.

    ``scores_s`` are those of the windows by their first run, ``None`` for an invalid one. ``middle`` are the first runs
    of the one or two windows in the middle, the faster one first. ``window`` is the first run of the window that the
    median is, ``None`` where it lies between two.
    """

    score_s: float | None
    scores_s: tuple[float | None, ...]
    window: int | None
    even: Even
    middle: tuple[int, int]


def olympic_score(times_s: Sequence[float | None], *, drop: int = 1, scaling: float = 1.0) -> OlympicScore:
    """The score of one result: ``drop`` fastest and slowest runs left out, the others averaged, times ``scaling``.

    ``None`` is a run that did not converge; with d of them and the sorted times x of the others this is the mean of
    ``x[drop : len(x) - (drop - d)]``. More than ``drop``, or nothing left, is invalid. ``drop`` is 1, and 4 for unet3d.
    """
    if not (math.isfinite(scaling) and scaling >= 1.0):
        raise ValueError(f"a scaling factor of {scaling}: it is at least 1")
    mean = olympic_mean(times_s, drop)
    order = sorted(
        range(len(times_s)), key=lambda run: math.inf if times_s[run] is None else float(times_s[run] or 0.0)
    )
    return OlympicScore(
        score_s=None if mean is None else mean * scaling,
        kept=tuple(order[drop : max(len(order) - drop, drop)]),
        fastest=tuple(order[:drop]),
        slowest=tuple(order[max(len(order) - drop, 0) :]),
        failed=sum(time is None for time in times_s),
        scaling=scaling,
    )


def window_median(times_s: Sequence[float | None], runs: int, *, drop: int = 1, even: Even = "upper") -> WindowScore:
    """The score of more runs than ``runs``, in an order that their result cannot have chosen (launch time).

    Every window of ``runs`` consecutive runs is scored, an invalid one counts as slower than any, and the median
    window's score is the result. The rules do not say which of the two middle windows is meant when their number is
    even: ``upper`` (the default) is the slower one, since it is a set of runs that was measured, and one run more than
    asked can then not better a score that stands (two more can: 9, 8, 7 s score 8 s, and 9, 8, 7, 1, 1 s score 7 s);
    ``lower`` is the faster one; ``mean`` their mean, which no set of runs scored.
    """
    if not 1 <= runs <= len(times_s):
        raise ValueError(f"windows of {runs} runs among {len(times_s)}")
    scores = tuple(olympic_mean(times_s[first : first + runs], drop) for first in range(len(times_s) - runs + 1))
    ranked = sorted(range(len(scores)), key=lambda first: _rank(scores[first]))
    low, high = ranked[(len(scores) - 1) // 2], ranked[len(scores) // 2]
    if even == "mean" and low != high:
        both = (scores[low], scores[high])
        mean = None if both[0] is None or both[1] is None else (both[0] + both[1]) / 2
        return WindowScore(mean, scores, None, even, (low, high))
    chosen = low if even == "lower" else high
    return WindowScore(scores[chosen], scores, chosen, even, (low, high))


def _rank(score: float | None) -> float:
    return math.inf if score is None else score


def read_scaling(path: str | Path) -> float:
    """The factor in a ``scaling.json``, which multiplies the score; ``RecordError`` for a file that has none."""
    asked = f"reading {path}"
    with open_record(Path(path), asked) as file:
        return scaling_of(file.read(_SCALING_LIMIT + 1), asked)


def scaling_of(content: bytes, asked: str) -> float:
    """The factor in the text of a ``scaling.json``: at least 1."""
    do = 'write {"scaling_factor": F} with F at least 1'
    if len(content) > _SCALING_LIMIT:
        raise RecordError(asked, f"it is larger than {_SCALING_LIMIT} bytes", do)
    try:
        said = json.loads(content)
    except (ValueError, RecursionError):
        raise RecordError(asked, "it is not JSON", do) from None
    factor = said.get("scaling_factor") if isinstance(said, dict) else None
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1.0 <= factor < 1e6:
        raise RecordError(asked, f"its scaling factor is {str(factor)[:50]}", do)
    return float(factor)


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
