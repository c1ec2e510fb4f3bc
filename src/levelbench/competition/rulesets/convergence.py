"""MLPerf's reference convergence points (RCP): whether a submission converged faster than its batch size can explain.

A time to accuracy can be won by machines or by training on less, and only the first is wanted. So the
epochs that a submission needed are compared with those of reference runs at its batch size, and a mean below what a
one-sided t test at 5 % allows is refused (``m_min = mu + t(0.05) s sqrt(1/n_ref + 1/n_sub)``; the official code finds
the same figure by bisection to 1e-4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from msgspec import Struct

from levelbench.measure.statistics.distributions import t_quantile
from levelbench.measure.statistics.means import arithmetic_mean, olympic_mean
from levelbench.measure.statistics.values import positive


class Convention(Struct, frozen=True):
    """How the spread of reference runs is taken; the official code has changed it, so it is a parameter.

    ``deviation``: the standard deviation of the ``full`` list, or of the ``olympic`` one, from which the ``drop``
    fastest and slowest are left out, as from the mean. ``ddof`` is subtracted from the count of values in the variance.
    ``submission_drop`` is how many runs on each side the test takes off a submission's count: the official code always
    says 1, also where the score drops 4.
    """

    deviation: Literal["full", "olympic"] = "full"
    ddof: Literal[0, 1] = 0
    alpha: float = 0.05
    submission_drop: int = 1


CURRENT = Convention()
"""As the official code has it since 31 July 2024: the population standard deviation of the full list."""
RULES_EXAMPLE = Convention(deviation="olympic")
"""As the worked example in the rules has it, and the code had until then: of the list without its ends."""


class ReferencePoint(Struct, frozen=True):
    """Reference runs at one batch size: what each needed to converge, in epochs or samples, in any order."""

    batch_size: int
    values: tuple[float, ...]
    drop: int = 1

    def at(self, runs: int, convention: Convention = CURRENT) -> ConvergenceReference:
        """What a submission of ``runs`` runs at this batch size is compared with.

        Raises ``ValueError`` for values that are not finite and above zero, or too few to drop ``drop`` on each side.
        """
        ordered = sorted(positive(self.values, 2 * self.drop + 1 + convention.ddof).tolist())
        kept = ordered[self.drop : len(ordered) - self.drop]
        mean = arithmetic_mean(kept)
        spread = _deviation(kept if convention.deviation == "olympic" else ordered, convention.ddof)
        return _reference(float(self.batch_size), mean, spread, len(kept), runs, convention)


class ConvergenceReference(Struct, frozen=True):
    """What a submission at ``batch_size`` is compared with: the Olympic ``mean`` and ``deviation`` of reference runs.

    ``count`` values stand behind it. A submission's mean below ``least`` is refused; ``max_speedup`` is
    ``mean / least``. With a deviation of zero nothing below the mean is allowed.
    """

    batch_size: float
    mean: float
    deviation: float
    count: int
    least: float
    max_speedup: float


class ConvergenceOutcome(Struct, frozen=True):
    """What came of a comparison. ``how`` says with what the submission was compared.

    ``found``: its batch size has a point. ``interpolated``: between two. ``smaller``: it is below the smallest point
    and was compared with that. ``missing``: above the largest, or below the smallest and faster than it allows.
    ``none``: there are no points. ``not-converged``: more runs failed than may be dropped. ``scale`` multiplies the
    score: a submission that passes below the reference mean is brought back to it (``mean / submission mean``), else 1.
    """

    passed: bool
    how: Literal["found", "interpolated", "smaller", "missing", "none", "not-converged"]
    batch_size: int
    submission_mean: float | None
    reference: ConvergenceReference | None
    scale: float = 1.0
    bypassed: bool = False

    def __str__(self) -> str:
        verdict = "passed" if self.passed else "failed"
        if self.bypassed:
            verdict += " (bypassed: a review must look at it)"
        if self.reference is None or self.submission_mean is None:
            return f"{verdict}: {_HOW[self.how]} {self.batch_size}"
        return (
            f"{verdict}: {_HOW[self.how]} {self.batch_size}: mean {self.submission_mean:.6g}, reference "
            f"{self.reference.mean:.6g}, least {self.reference.least:.6g}"
        )


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
    pruned: bool = True,
    slack: float = 0.0,
    bypass: bool = False,
) -> ConvergenceOutcome:
    """Compare a submission's runs (epochs or samples to converge, ``None`` for one that did not) with ``points``.

    At a point's batch size they are compared with it; between two, with their means and deviations interpolated
    linearly in the batch size, on ``2 N`` values; below the smallest, with the smallest: a smaller batch only needs
    less; above the largest they fail, since nobody knows. ``pruned`` leaves out the points that ``prune`` does.
    ``slack`` is subtracted from the least mean (the official code allows llama31_405b one evaluation, 46,080).
    ``bypass`` lets what failed for speed or for a missing point through, and says so.

    Raises ``ValueError`` for two points at one batch size, and for too few runs to compare.
    """
    used = prune(points, convention) if pruned else _by_batch_size(points)
    if not used:
        return ConvergenceOutcome(False, "none", batch_size, None, None)
    mean = olympic_mean([None if value is None else float(value) for value in values], used[0].drop)
    if mean is None:
        return ConvergenceOutcome(False, "not-converged", batch_size, None, None)
    reference, how = _reference_for(used, batch_size, len(values), convention)
    if reference is None:
        return ConvergenceOutcome(bypass, "missing", batch_size, mean, None, bypassed=bypass)
    passed = mean >= reference.least - slack
    if how == "smaller" and not passed:
        how = "missing"
    scale = max(1.0, reference.mean / mean)
    return ConvergenceOutcome(
        passed or bypass, how, batch_size, mean, reference, scale if passed else 1.0, bypass and not passed
    )


def _reference_for(
    points: Sequence[ReferencePoint], batch_size: int, runs: int, convention: Convention
) -> tuple[ConvergenceReference | None, Literal["found", "interpolated", "smaller", "missing"]]:
    exact = next((point for point in points if point.batch_size == batch_size), None)
    if exact is not None:
        return exact.at(runs, convention), "found"
    below = [point for point in points if point.batch_size < batch_size]
    above = [point for point in points if point.batch_size > batch_size]
    if not above:
        return None, "missing"
    if not below:
        return above[0].at(runs, convention), "smaller"
    return interpolate(below[-1], above[0], batch_size, runs, convention), "interpolated"


def interpolate(
    low: ReferencePoint, high: ReferencePoint, batch_size: int, runs: int, convention: Convention = CURRENT
) -> ConvergenceReference:
    """The reference between two points: mean and deviation linear in the batch size, as of ``2 runs`` values."""
    first, second = low.at(runs, convention), high.at(runs, convention)
    share = (batch_size - low.batch_size) / (high.batch_size - low.batch_size)
    mean = first.mean + share * (second.mean - first.mean)
    spread = first.deviation + share * (second.deviation - first.deviation)
    return _reference(float(batch_size), mean, spread, 2 * runs, runs, convention)


def prune(points: Sequence[ReferencePoint], convention: Convention = CURRENT) -> list[ReferencePoint]:
    """The points that a submission is compared with, by batch size: those that make the comparison strictest.

    First those below the batch size with the smallest mean go, then, walking up, every point whose mean is above the
    straight line between its neighbours; after one goes the walk looks at its successor with the same left neighbour.
    This is the official walk, which never looks back, so what is left need not be convex.
    """
    ordered = _by_batch_size(points)
    if not ordered:
        return []
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


def _by_batch_size(points: Sequence[ReferencePoint]) -> list[ReferencePoint]:
    """In order of batch size; ``ValueError`` where two have one batch size, for then neither is the reference."""
    ordered = sorted(points, key=lambda point: point.batch_size)
    for one, other in pairwise(ordered):
        if one.batch_size == other.batch_size:
            raise ValueError(f"two reference points at batch size {one.batch_size}")
    return ordered


def _deviation(values: Sequence[float], ddof: int) -> float:
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - ddof))


def _reference(
    batch_size: float, mean: float, spread: float, count: int, runs: int, convention: Convention
) -> ConvergenceReference:
    compared = runs - 2 * convention.submission_drop
    if compared < 1 or count + compared < 3:
        raise ValueError(f"{runs} runs leave {compared} to compare with {count}")
    if not 0.0 < convention.alpha < 0.5:
        raise ValueError(f"an error rate of {convention.alpha}")
    t = t_quantile(convention.alpha, count + compared - 2)
    # A spread beyond all reason allows anything.
    least = max(mean + t * spread * math.sqrt(1 / count + 1 / compared), 0.0)
    return ConvergenceReference(batch_size, mean, spread, count, least, mean / least if least > 0 else math.inf)
