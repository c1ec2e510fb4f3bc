"""The scores of MLPerf (Olympic means, medians over windows of runs, reference convergence) and AlgoPerf (profiles).

MLPerf's reference convergence points (RCP) say whether a submission converged faster than its batch size can explain. A
time to accuracy can be won with better machines or by training less, and only the former is wanted. So the epochs that
a submission needed are compared with those of reference runs at its batch size, and a mean below what a one-sided t
test at 5 % allows is refused (``m_min = mu + t(0.05) s sqrt(1/n_ref + 1/n_sub)``; the official code finds the same
value by bisection to 1e-4).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Literal

import numpy as np
from msgspec import Struct

from levelbench.errors import RecordError, UsageError
from levelbench.measure.statistics.distributions import t_quantile
from levelbench.measure.statistics.values import arithmetic_mean, olympic_mean, positive

Even = Literal["lower", "upper", "mean"]

_SCALING_LIMIT = 64 * 1024


class OlympicScore(Struct, frozen=True):
    """The score of a result in seconds, ``None`` if it is invalid, and the indices of the runs in its mean.

    ``failed`` is the number of runs that did not converge.
    """

    score_s: float | None
    kept: tuple[int, ...]
    failed: int


class WindowScore(Struct, frozen=True):
    """The score over all windows of consecutive runs: the median's, ``None`` if the median window is invalid.

    ``scores_s`` are the scores of the windows by their first run, ``None`` for an invalid one. ``middle`` are the first
    runs of the one or two middle windows, the faster one first. ``window`` is the first run of the median window,
    ``None`` if the median lies between two.
    """

    score_s: float | None
    scores_s: tuple[float | None, ...]
    window: int | None
    middle: tuple[int, int]


def olympic_score(times_s: Sequence[float | None], *, drop: int = 1) -> OlympicScore:
    """The score of one result: the ``drop`` fastest and slowest runs are dropped, the others averaged.

    ``None`` is a run that did not converge; with d of them and the sorted times x of the others, the score is the mean
    of ``x[drop : len(x) - (drop - d)]``. If more than ``drop`` failed, or no run is left, it is invalid. ``drop`` is 1,
    and 4 for unet3d.
    """
    mean = olympic_mean(times_s, drop)
    times = [math.inf if time is None else float(time) for time in times_s]
    order = sorted(range(len(times)), key=times.__getitem__)
    return OlympicScore(mean, tuple(order[drop : max(len(order) - drop, drop)]), times_s.count(None))


def window_median(times_s: Sequence[float | None], runs: int, *, drop: int = 1, even: Even = "upper") -> WindowScore:
    """The score of more than ``runs`` runs, in an order that their results cannot have influenced (launch time).

    Every window of ``runs`` consecutive runs is scored, an invalid window counts as slower than any, and the score of
    the median window is the result. The rules do not say which of the two middle windows counts if their number is
    even: ``upper`` (the default) is the slower one, because it is a set of runs that was measured, and one run more
    than required then cannot improve a score (two more can: 9, 8, 7 s score 8 s, and 9, 8, 7, 1, 1 s score 7 s);
    ``lower`` is the faster one; ``mean`` is their mean, which no set of runs scored.
    """
    if not 1 <= runs <= len(times_s):
        raise ValueError(f"windows of {runs} runs among {len(times_s)}")
    scores = tuple(olympic_mean(times_s[first : first + runs], drop) for first in range(len(times_s) - runs + 1))
    ranks = [math.inf if score is None else score for score in scores]
    ranked = sorted(range(len(scores)), key=ranks.__getitem__)
    low, high = ranked[(len(scores) - 1) // 2], ranked[len(scores) // 2]
    if even == "mean" and low != high:
        both = (scores[low], scores[high])
        mean = None if both[0] is None or both[1] is None else (both[0] + both[1]) / 2
        return WindowScore(mean, scores, None, (low, high))
    chosen = low if even == "lower" else high
    return WindowScore(scores[chosen], scores, chosen, (low, high))


def scaling_of(content: bytes, asked: str) -> float:
    """The factor in the content of a ``scaling.json``: at least 1."""
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
"""Seconds by submission and workload; infinite if the target was missed."""

LARGEST_RATIO = 4.0
"""The end of the profile: a workload that takes a submission four times the best time counts as missed."""
GRID_POINTS = 100
"""The number of points on which the published scores integrate the profile."""


def workload_time(studies: Sequence[Sequence[float]]) -> float:
    """Seconds of one submission on one workload: the median over studies of the best trial in each.

    For an even number of studies it is the mean of the two in the middle, infinite if one of them is. Self-tuning
    submissions have one trial per study. ``UsageError`` if there is no study, or one without a trial.
    """
    if not studies or any(not trials for trials in studies):
        raise UsageError("a time on a workload", "a study has no trials", "give every trial of every study")
    return median(min(trials) for trials in studies)


def ratios(times: Times) -> dict[str, dict[str, float]]:
    """Each time divided by the best of all submissions on that workload; infinite for a miss, 1 for the best.

    ``UsageError`` if submissions name different workloads, or a time is not a positive number.
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
            raise UsageError("a performance profile", f"{each} has different workloads than the first, or none", do)
        wrong = [name for name, time_s in own.items() if not time_s > 0]
        if wrong:
            raise UsageError("a performance profile", f"{each} took {own[wrong[0]]} s on {wrong[0]}", "give a time")
    return list(first)


def profile(own: Mapping[str, float], tau: float) -> float:
    """The share of workloads with a ratio of at most ``tau``."""
    return sum(ratio <= tau for ratio in own.values()) / len(own)


def exact_score(own: Mapping[str, float]) -> float:
    """The area under the profile from 1 to ``LARGEST_RATIO`` over its width: 1 if best everywhere, 0 if always a miss.

    In closed form, as the profile is a step function: the mean of ``max(0, (largest - ratio) / (largest - 1))``.
    """
    return math.fsum(max(0.0, (LARGEST_RATIO - ratio) / (LARGEST_RATIO - 1)) for ratio in own.values()) / len(own)


def grid_score(own: Mapping[str, float]) -> float:
    """The same area by the trapezoidal rule on ``GRID_POINTS`` points, as the published scores are computed.

    It differs from :func:`exact_score` by at most half a grid step: 0.5 / (points - 1).
    """
    width = (LARGEST_RATIO - 1) / (GRID_POINTS - 1)
    heights = [profile(own, 1 + at * width) for at in range(GRID_POINTS)]
    return (math.fsum(heights) - (heights[0] + heights[-1]) / 2) / (GRID_POINTS - 1)


def scores(times: Times, *, how: Literal["exact", "grid"] = "exact") -> dict[str, float]:
    """Every submission's score, best first. It depends on the other participants: the best time is the unit."""
    compute = exact_score if how == "exact" else grid_score
    found = {each: compute(own) for each, own in ratios(times).items()}
    return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))


class Convention(Struct, frozen=True):
    """How the spread of the reference runs is computed; the official code has changed it, so it is a parameter.

    ``deviation``: the standard deviation of the ``full`` list, or of the ``olympic`` one, without the ``drop`` fastest
    and slowest, as for the mean. ``ddof`` is subtracted from the number of values in the variance. ``submission_drop``
    is how many runs on each side the test subtracts from a submission's count: the official code always uses 1, even
    where the score drops 4.
    """

    deviation: Literal["full", "olympic"] = "full"
    ddof: Literal[0, 1] = 0
    alpha: float = 0.05
    submission_drop: int = 1


CURRENT = Convention()
"""The official code since 31 July 2024: the population standard deviation of the full list."""
RULES_EXAMPLE = Convention(deviation="olympic")
"""The worked example in the rules, and the code until then: of the list without its ends."""


class ReferencePoint(Struct, frozen=True):
    """Reference runs at one batch size: what each needed to converge, in epochs or samples, in any order."""

    batch_size: int
    values: tuple[float, ...]
    drop: int = 1

    def at(self, runs: int, convention: Convention = CURRENT) -> ConvergenceReference:
        """The reference for a submission of ``runs`` runs at this batch size.

        Raises ``ValueError`` for values that are not finite and positive, or too few to drop ``drop`` on each side.
        """
        ordered = sorted(positive(self.values, 2 * self.drop + 1 + convention.ddof).tolist())
        kept = ordered[self.drop : len(ordered) - self.drop]
        mean = arithmetic_mean(kept)
        spread = float(np.std(kept if convention.deviation == "olympic" else ordered, ddof=convention.ddof))
        return _reference(float(self.batch_size), mean, spread, len(kept), runs, convention)


class ConvergenceReference(Struct, frozen=True):
    """The reference for a submission at ``batch_size``: Olympic ``mean`` and ``deviation`` of the reference runs.

    They rest on ``count`` values. A submission with a mean below ``least`` is refused; ``max_speedup`` is ``mean /
    least``. With a deviation of zero nothing below the mean is allowed.
    """

    batch_size: float
    mean: float
    deviation: float
    count: int
    least: float
    max_speedup: float


class ConvergenceOutcome(Struct, frozen=True):
    """The result of a comparison. ``how`` says what the submission was compared with.

    ``found``: a point at its batch size. ``interpolated``: between two points. ``smaller``: it is below the smallest
    point and was compared with that. ``missing``: above the largest point, or below the smallest and faster than it
    allows. ``none``: there are no points. ``not-converged``: more runs failed than may be dropped. ``scale`` multiplies
    the score: a submission that passes with a mean below the reference is scaled back to it (``mean / submission
    mean``), else 1.
    """

    passed: bool
    how: Literal["found", "interpolated", "smaller", "missing", "none", "not-converged"]
    batch_size: int
    submission_mean: float | None
    reference: ConvergenceReference | None
    scale: float = 1.0

    def __str__(self) -> str:
        verdict = f"{'passed' if self.passed else 'failed'}: {_HOW[self.how]} {self.batch_size}"
        if self.reference is None or self.submission_mean is None:
            return verdict
        means = f"mean {self.submission_mean:.6g}, reference {self.reference.mean:.6g}"
        return f"{verdict}: {means}, least {self.reference.least:.6g}"


_HOW = {
    "found": "a reference point at batch size",
    "interpolated": "between the reference points around batch size",
    "smaller": "compared with the smallest reference point, below it at batch size",
    "missing": "no reference point at or above batch size",
    "none": "no reference points at all for batch size",
    "not-converged": "too many runs did not converge at batch size",
}


def judge(
    points: Sequence[ReferencePoint],
    batch_size: int,
    values: Sequence[float | None],
    *,
    convention: Convention = CURRENT,
    slack: float = 0.0,
) -> ConvergenceOutcome:
    """Compare a submission's runs (epochs or samples to converge, ``None`` if a run did not) with ``points``.

    At a point's batch size they are compared with that point; between two, with their means and deviations interpolated
    linearly in the batch size, on ``2 N`` values; below the smallest, with the smallest, since a smaller batch can only
    need less; above the largest they fail, since there is no reference. Points that ``prune`` removes are ignored.
    ``slack`` is subtracted from the least mean (the official code allows llama31_405b one evaluation, 46,080).

    Raises ``ValueError`` for two points at one batch size, and for too few runs to compare.
    """
    used = prune(points, convention)
    if not used:
        return ConvergenceOutcome(False, "none", batch_size, None, None)
    drop = used[0].drop
    if len(values) <= 2 * drop:
        raise ValueError(f"{len(values)} runs, but a mean without {drop} on each side takes {2 * drop + 1} or more")
    mean = olympic_mean([None if value is None else float(value) for value in values], drop)
    if mean is None:
        return ConvergenceOutcome(False, "not-converged", batch_size, None, None)
    below = [point for point in used if point.batch_size <= batch_size]
    above = [point for point in used if point.batch_size >= batch_size]
    if not above:
        return ConvergenceOutcome(False, "missing", batch_size, mean, None)
    how: Literal["found", "interpolated", "smaller", "missing"]
    if below and below[-1] is not above[0]:
        how, reference = "interpolated", interpolate(below[-1], above[0], batch_size, len(values), convention)
    else:
        how, reference = "found" if below else "smaller", above[0].at(len(values), convention)
    passed = mean >= reference.least - slack
    if how == "smaller" and not passed:
        how = "missing"
    scale = max(1.0, reference.mean / mean) if passed else 1.0
    return ConvergenceOutcome(passed, how, batch_size, mean, reference, scale)


def interpolate(
    low: ReferencePoint, high: ReferencePoint, batch_size: int, runs: int, convention: Convention = CURRENT
) -> ConvergenceReference:
    """The reference between two points: mean and deviation linear in the batch size, resting on ``2 runs`` values."""
    first, second = low.at(runs, convention), high.at(runs, convention)
    share = (batch_size - low.batch_size) / (high.batch_size - low.batch_size)
    mean = first.mean + share * (second.mean - first.mean)
    spread = first.deviation + share * (second.deviation - first.deviation)
    return _reference(float(batch_size), mean, spread, 2 * runs, runs, convention)


def prune(points: Sequence[ReferencePoint], convention: Convention = CURRENT) -> list[ReferencePoint]:
    """The points that a submission is compared with, by batch size: those that make the comparison strictest.

    First the points below the batch size with the smallest mean are removed; then, walking up, every point whose mean
    is above the straight line between its neighbours; after a removal the walk checks the next point with the same left
    neighbour. This is the official walk, which never looks back, so the remaining points need not be convex.
    ``ValueError`` if two points have the same batch size, since the reference would be ambiguous.
    """
    ordered = sorted(points, key=lambda point: point.batch_size)
    if not ordered:
        return []
    for one, other in pairwise(ordered):
        if one.batch_size == other.batch_size:
            raise ValueError(f"two reference points at batch size {one.batch_size}")
    means = {point.batch_size: point.at(3, convention).mean for point in ordered}
    fastest = min(ordered, key=lambda point: means[point.batch_size])
    kept = [point for point in ordered if point.batch_size >= fastest.batch_size]
    i = 1
    while i < len(kept) - 1:
        low, here, high = (kept[i + step].batch_size for step in (-1, 0, 1))
        line = means[low] + (here - low) / (high - low) * (means[high] - means[low])
        if means[here] > line:
            del kept[i]
        else:
            i += 1
    return kept


def _reference(
    batch_size: float, mean: float, spread: float, count: int, runs: int, convention: Convention
) -> ConvergenceReference:
    compared = runs - 2 * convention.submission_drop
    if compared < 1 or count + compared < 3:
        raise ValueError(f"{runs} runs leave {compared} to compare with {count}")
    if not 0.0 < convention.alpha < 0.5:
        raise ValueError(f"an error rate of {convention.alpha}")
    t = t_quantile(convention.alpha, count + compared - 2)
    # An unreasonably large spread allows anything.
    least = max(mean + t * spread * math.sqrt(1 / count + 1 / compared), 0.0)
    return ConvergenceReference(batch_size, mean, spread, count, least, mean / least if least > 0 else math.inf)
