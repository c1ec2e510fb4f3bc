"""Generalization: how models that were trained to a target do on data that nobody tuned them on, against others.

A recipe may be fast to its target at the price of everything else. DAWNBench's authors asked whether the models of
winning entries still classify fresh images and still transfer (Coleman et al. 2019, "Analysis of DAWNBench"); this asks
it of kept models. The unit is the model, so intervals are over runs: they say how another seed would do on *these*
examples, not how the same model would do on other examples. Qualities are shares, and differences are in percentage
points.

The models were scored elsewhere (``experiments/generalization.py``); here are plain functions of their scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

import numpy as np

from levelbench.errors import UsageError
from levelbench.measure.statistics import Estimate, estimate_signed, mean_difference, more_runs, settling_error
from levelbench.measure.verdict import LEAST_RUNS

__all__ = ["ArmScore", "CorruptionError", "Generalization", "QualityDifference", "QualityKind", "ScoredArm"]
__all__ += ["ScoredSet", "generalization"]

_POINTS = 100.0
_NO_SPREAD = 1e-9


class QualityKind(StrEnum):
    """How the quality of an arm compares with the baseline's; SAME means that the interval lies inside the margin."""

    BETTER = "BETTER"
    WORSE = "WORSE"
    SAME = "SAME"
    UNCLEAR = "UNCLEAR"


@dataclass(frozen=True)
class ScoredSet:
    """Data that models were scored on.

    ``kind`` is ``test`` for the task's own test split; ``made`` for a corruption of it, and ``corruption`` is then its
    kind; ``set`` for another set of the same classes; ``transfer`` for another task. ``what`` says in words what it is.
    """

    name: str
    kind: Literal["test", "made", "set", "transfer"]
    what: str
    examples: int
    corruption: str = ""


@dataclass(frozen=True)
class ScoredArm:
    """The models of one group of runs: their seeds, and their qualities, one row a set in the order of the sets."""

    label: str
    seeds: tuple[int, ...]
    scores: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class QualityDifference:
    """An arm minus the baseline, in points; above zero is better whatever the metric's direction.

    ``kind`` is ``None`` without a verdict, and ``reason`` says why. ``paired`` is true where both have the same seeds.
    ``runs_to_settle``, only for UNCLEAR, are additional runs of each arm, at 80 % power if the estimate were true.
    """

    points: Estimate | None
    kind: QualityKind | None
    paired: bool
    reason: str = ""
    runs_to_settle: int | None = None


@dataclass(frozen=True)
class ArmScore:
    """One arm on one set.

    ``quality`` is the mean over its models. ``fall`` is how many points lower it is than on the task's test split, and
    ``falls_more`` how many more than the baseline's; both are ``None`` for the test split and for transfer, where the
    classes are others. ``against`` is ``None`` for the baseline.
    """

    set: str
    label: str
    quality: Estimate
    fall: Estimate | None
    against: QualityDifference | None
    falls_more: Estimate | None


@dataclass(frozen=True)
class CorruptionError:
    """An arm's mean corruption error (Hendrycks & Dietterich 2019, section 4.1) relative to the baseline's mean.

    For each kind of corruption, an error summed over severities over that of the baseline, then the mean over kinds: 1
    is as many errors as the baseline. The interval is over the models of both, to first order (the delta method).
    """

    label: str
    relative: Estimate
    kinds: int


@dataclass(frozen=True)
class Generalization:
    """The answer. ``joint_level`` is that of each interval of a difference, so that all hold together at ``level``.

    ``margin`` is in points. The first of ``arms`` is the baseline. ``lacks`` says what is missing, and how to get it.
    """

    metric: str
    sets: tuple[ScoredSet, ...]
    arms: tuple[ScoredArm, ...]
    scores: tuple[ArmScore, ...]
    corruption_errors: tuple[CorruptionError, ...]
    margin: float
    level: float
    joint_level: float
    lacks: tuple[str, ...]

    def of(self, name: str) -> tuple[ArmScore, ...]:
        """The scores on the set of that name, the baseline's first."""
        return tuple(each for each in self.scores if each.set == name)


def generalization(
    metric: str,
    sets: Sequence[ScoredSet],
    arms: Sequence[ScoredArm],
    *,
    direction: Literal["higher", "lower"] = "higher",
    margin: float = 0.5,
    level: float = 0.95,
) -> Generalization:
    """Compare every arm with the first on every set; qualities are shares from 0 to 1.

    The first set must be the task's test split, from which falls are counted. Raises ``UsageError`` for none, or for
    arms whose rows do not fit the sets, or whose scores are not shares.
    """
    _check(sets, arms, margin, level)
    sign = 1.0 if direction == "higher" else -1.0
    joint_level = 1.0 - (1.0 - level) / max(1, (len(arms) - 1) * len(sets))
    scores = []
    for at, each in enumerate(sets):
        for arm in arms:
            falls = sign * _POINTS * (np.array(arm.scores[0]) - arm.scores[at])
            comparable = each.kind in ("made", "set")
            against, more = None, None
            if arm is not arms[0]:
                base = arms[0]
                against = _difference(base, arm, at, sign, margin, joint_level)
                if comparable and min(len(base.seeds), len(arm.seeds)) >= LEAST_RUNS:
                    falls_base = sign * _POINTS * (np.array(base.scores[0]) - base.scores[at])
                    own, others, paired = _matched(base, arm, falls_base, falls)
                    more = _spread(mean_difference(own.tolist(), others.tolist(), joint_level, paired=paired))
            quality = _share(_mean(arm.scores[at], level))
            fall = _mean(falls.tolist(), level) if comparable else None
            scores.append(ArmScore(each.name, arm.label, quality, fall, against, more))
    errors = _corruption_errors(sets, arms, level) if direction == "higher" else ()
    lacks = tuple(_lacks(arms))
    return Generalization(metric, tuple(sets), tuple(arms), tuple(scores), errors, margin, level, joint_level, lacks)


def _check(sets: Sequence[ScoredSet], arms: Sequence[ScoredArm], margin: float, level: float) -> None:
    asked = "a comparison of models on other data"
    if not arms or not sets or sets[0].kind != "test":
        raise UsageError(asked, "there are no models, or no test split of the task", "give both, the test split first")
    if not (math.isfinite(margin) and margin > 0 and 0 < level < 1):
        raise UsageError(asked, f"a margin of {margin:g} points at the level {level:g}", "give both above zero")
    for arm in arms:
        if [len(row) for row in arm.scores] != [len(arm.seeds)] * len(sets) or not arm.seeds:
            raise UsageError(asked, f"{arm.label} has not one score of each model on each set", "score them all")
        if not all(0.0 <= score <= 1.0 for row in arm.scores for score in row):
            raise UsageError(asked, f"qualities of {arm.label} are not shares from 0 to 1", "use another metric")


def _mean(values: Sequence[float], level: float) -> Estimate:
    return _spread(estimate_signed(values, level))


def _share(found: Estimate) -> Estimate:
    """With its interval inside 0 to 1: that of a share has no other values, which t does not know."""
    inside = found.interval
    if inside is None:
        return found
    return replace(found, interval=replace(inside, low=max(0.0, inside.low), high=min(1.0, inside.high)))


def _spread(found: Estimate) -> Estimate:
    """Without its interval if the values are all the same: few examples have few possible scores."""
    known = found.interval is not None and found.interval.width > _NO_SPREAD
    return found if known else replace(found, interval=None)


def _matched(base: ScoredArm, arm: ScoredArm, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool]:
    """The values of both in the order of their seeds if these are the same, as they are otherwise; and whether."""
    paired = sorted(base.seeds) == sorted(arm.seeds) and len({*arm.seeds}) == len(arm.seeds)
    return (a[np.argsort(base.seeds)], b[np.argsort(arm.seeds)], True) if paired else (a, b, False)


def _difference(
    base: ScoredArm, arm: ScoredArm, at: int, sign: float, margin: float, level: float
) -> QualityDifference:
    a, b, paired = _matched(base, arm, *(sign * _POINTS * np.array(each.scores[at]) for each in (base, arm)))
    fewest = min(len(a), len(b))
    if fewest < 2:
        return QualityDifference(None, None, False, f"one model is no sample: make {LEAST_RUNS} or more of each")
    points = _spread(mean_difference(a.tolist(), b.tolist(), level, paired=paired))
    if fewest < LEAST_RUNS:
        reason = f"a verdict needs {LEAST_RUNS} models of each"
        return QualityDifference(points, None, paired, reason)
    inside = points.interval
    if inside is None:
        return QualityDifference(points, None, paired, "all differ alike, to the last example: there is no spread")
    if inside.low >= -margin and inside.high <= margin:
        return QualityDifference(points, QualityKind.SAME, paired)
    if inside.low > 0 or inside.high < 0:
        return QualityDifference(points, QualityKind.BETTER if inside.low > 0 else QualityKind.WORSE, paired)
    error = settling_error(points.value, margin, level)
    # Pairs are as variable as the differences between them, so one of two arms carries all of it.
    spreads = (float((b - a).std(ddof=1)), 0.0) if paired else (float(a.std(ddof=1)), float(b.std(ddof=1)))
    more = more_runs(spreads[0], len(a), spreads[1], len(b), error, level)
    return QualityDifference(points, QualityKind.UNCLEAR, paired, runs_to_settle=more)


def _corruption_errors(
    sets: Sequence[ScoredSet], arms: Sequence[ScoredArm], level: float
) -> tuple[CorruptionError, ...]:
    """Of each arm but the baseline; none without a corruption, or if the baseline makes no error on one."""
    kinds: dict[str, list[int]] = {}
    for at, each in enumerate(sets):
        if each.kind == "made":
            kinds.setdefault(each.corruption, []).append(at)
    if not kinds:
        return ()

    def errors_of(arm: ScoredArm) -> np.ndarray:
        return np.array(
            [np.sum([1.0 - np.array(arm.scores[at]) for at in places], axis=0) for places in kinds.values()]
        )

    own = errors_of(arms[0])
    base = own.mean(axis=1, keepdims=True)
    if base.min() <= 0:
        return ()
    found = []
    for arm in arms[1:]:
        errors = errors_of(arm)
        relative = (errors / base).mean(axis=0)
        # What a model of the baseline with more errors takes from the ratio.
        taken = (errors.mean(axis=1, keepdims=True) * own / base**2).mean(axis=0)
        own_mean = _mean(relative.tolist(), level)
        inside = None
        if min(len(relative), len(taken)) > 1:
            x, y, paired = _matched(arms[0], arm, taken, relative)
            inside = _spread(mean_difference(x.tolist(), y.tolist(), level, paired=paired)).interval
        if inside is not None:
            inside = replace(inside, low=inside.low + own_mean.value, high=inside.high + own_mean.value)
        found.append(CorruptionError(arm.label, replace(own_mean, interval=inside), len(kinds)))
    return tuple(found)


def _lacks(arms: Sequence[ScoredArm]) -> list[str]:
    found = []
    for arm in arms:
        if len(arm.seeds) == 1:
            found.append(
                f"{arm.label} has one model, which has no spread: make more (levelbench run -n 5 --keep-model)"
            )
        elif len(arm.seeds) < LEAST_RUNS:
            found.append(f"{arm.label} has {len(arm.seeds)} models: no verdict on fewer than {LEAST_RUNS}")
    if len(arms) == 1:
        found.append("there is nothing to compare with: name the runs of a model that was not optimised for time first")
    return found
