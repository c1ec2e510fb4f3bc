"""What several rules share: pairs of sides, findings in one form, printed numbers, the quality of a side.

``guilty`` needs evidence, ``not_stated`` a missing fact; no helper turns the second into the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from levelbench.claims.rule import Diagnostic, Severity
from levelbench.claims.view import Claim, ComparisonView, QualityView, ScalingPoint, Side
from levelbench.records.schema import better_of, scale_of

__all__ = ["TRAINING_TIMES", "ComparedPair", "Level", "beyond", "claimed", "compared", "direction_of", "guilty"]
__all__ += ["is_training", "is_training_rate", "level_of", "misses", "not_stated", "number", "of_another"]
__all__ += ["pairs", "percent", "quality_is_claimed", "seconds", "sides", "times"]


class ComparedPair(NamedTuple):
    """One comparison with both of its sides. ``field``, ``new_field`` and ``base_field`` are paths in the claim."""

    comparison: ComparisonView
    new: Side
    base: Side
    field: str
    new_field: str
    base_field: str

    @property
    def where(self) -> str:
        """The place of the comparison, or else of its new side."""
        return self.comparison.where or self.new.where


def sides(claim: Claim) -> Iterator[tuple[str, Side]]:
    """Every side with its path in the claim: ``("sides[0]", side)``."""
    for at, side in enumerate(claim.sides):
        yield f"sides[{at}]", side


def pairs(claim: Claim) -> Iterator[ComparedPair]:
    """The sides of every comparison, except one that names a missing side.

    If no comparison is stated and exactly one of several sides is called the baseline, each other side is compared with
    it, as a reader would. Only the sides of such a comparison are known.
    """
    if not claim.comparisons and len(claim.sides) < 2:
        return
    paths = {side.name: path for path, side in sides(claim)}
    for at, comparison in enumerate(claim.comparisons):
        new, base = claim.side(comparison.new), claim.side(comparison.base)
        if new is not None and base is not None:
            yield ComparedPair(comparison, new, base, f"comparisons[{at}]", paths[new.name], paths[base.name])
    if claim.comparisons:
        return
    baselines = [side for side in claim.sides if side.baseline]
    if len(baselines) == 1:
        base = baselines[0]
        for path, side in sides(claim):
            if side is not base:
                yield ComparedPair(ComparisonView(side.name, base.name), side, base, path, path, paths[base.name])


def claimed(claim: Claim) -> Iterator[tuple[str, Side]]:
    """The sides whose own figures are claimed: all but those that others are only compared with."""
    rows = list(pairs(claim))
    opponents = {pair.base.name for pair in rows} - {pair.new.name for pair in rows}
    return ((path, side) for path, side in sides(claim) if side.name not in opponents)


def compared(claim: Claim) -> frozenset[str]:
    """The names of sides of which a ratio is claimed, rather than their own figures; what both share then cancels."""
    return frozenset(side.name for pair in pairs(claim) for side in (pair.new, pair.base))


def quality_is_claimed(claim: Claim, side: Side) -> bool:
    """Whether the claim is about how good the side is, and not only about how fast."""
    if side.time_s is None and not claim.comparisons:
        return True
    return any(each.of == "quality" and side.name in (each.new, each.base) for each in claim.comparisons)


def of_another(pair: ComparedPair) -> bool:
    """Whether the base is somebody else's system, and not the same program in another setting."""
    if pair.comparison.base_kind is not None:
        return pair.comparison.base_kind == "other-system"
    ours, theirs = ((side.framework or "").lower().split() for side in (pair.new, pair.base))
    return bool(ours and theirs and ours[0] != theirs[0])


def guilty(field: str, found: str, do: str, where: str = "", severity: Severity = "error") -> Diagnostic:
    """A finding based on evidence, which ``found`` states with its numbers. The rule adds its code."""
    return Diagnostic("", severity, found, do, field, where)


def not_stated(field: str, what: str, do: str, where: str = "") -> Diagnostic:
    """A missing fact that would decide: ``what`` names it ("the split of the quality of 'a'")."""
    return Diagnostic("", "not-stated", f"not stated: {what}", do, field, where)


def number(value: float, digits: int = 3) -> str:
    """A number with ``digits`` significant digits, without an exponent from a thousandth to a million."""
    if value != value or value in (float("inf"), float("-inf")):
        return str(value)
    if isinstance(value, int) or (float(value).is_integer() and abs(value) < 1e6):
        return f"{int(value):,}" if abs(value) < 1e15 else f"{value:.{digits}g}"
    if 1e-3 <= abs(value) < 1e6:
        rounded = float(f"{value:.{digits}g}")
        return f"{rounded:,.0f}" if abs(rounded) >= 10**digits else f"{rounded:g}"
    return f"{value:.{digits}g}"


def times(ratio: float) -> str:
    """A ratio: ``"1.62 times"``."""
    return f"{number(ratio)} times"


def percent(share: float) -> str:
    """A share from 0 to 1, in per cent."""
    return f"{number(100 * share)} %"


def seconds(value: float) -> str:
    """A time in the most readable unit."""
    for limit, unit, name in ((7200, 3600, "h"), (120, 60, "min"), (1, 1, "s"), (1e-3, 1e-3, "ms")):
        if abs(value) >= limit:
            return f"{number(value / unit)} {name}"
    return f"{number(value / 1e-6)} µs" if value else "0 s"


TRAINING_TIMES = ("target", "epoch", "step", "run")
"""The values of ``time_of`` for a side that trains; ``call`` is inference or a single operator."""


class Level(NamedTuple):
    """A quality with its interval, signed so that higher is better; without an interval, all three are equal.

    ``top`` is what a perfect result has, if the metric is a share: 1, or 100 in per cent.
    """

    value: float
    low: float
    high: float
    has_interval: bool
    text: str
    top: float | None = None


def direction_of(quality: QualityView) -> float | None:
    """1 if higher is better, -1 if lower is; ``None`` if neither a direction nor the metric's name says."""
    if quality.direction is not None:
        return 1.0 if quality.direction == "higher" else -1.0
    better = better_of(quality.metric or "")
    return None if better is None else 1.0 if better == "higher" else -1.0


def level_of(quality: QualityView, point: ScalingPoint | None = None) -> Level | None:
    """The quality of a scaling point, or else of the side itself, on the side's metric."""
    sign = direction_of(quality)
    if point is None:
        value, low, high = quality.value, quality.low, quality.high
    else:
        value, low, high = point.quality, point.quality_low, point.quality_high
    if sign is None or value is None:
        return None
    share = sign > 0 and value >= 0 and scale_of(quality.metric or "") == (0.0, 1.0)
    top = (1.0 if value <= 1 else 100.0) if share else None
    if low is None or high is None:
        return Level(sign * value, sign * value, sign * value, False, number(value, 4), top)
    text = f"{number(value, 4)} [{number(low, 4)}, {number(high, 4)}]"
    return Level(sign * value, min(sign * low, sign * high), max(sign * low, sign * high), True, text, top)


def beyond(first: Level, later: Level) -> bool | None:
    """Whether ``later`` is worse by more than the intervals; ``None`` if it is worse and neither has one."""
    if later.value >= first.value:
        return False
    if not first.has_interval and not later.has_interval:
        return None
    return later.high < first.low


_FAR_LOWER, _FAR_HIGHER = 0.05, 0.25
"""Shares of a quality by which no seed makes it worse: of an accuracy that falls, of an error or loss that rises."""
_FAR_POINTS = 0.02
"""Of an accuracy near the top, seeds alone can make a quarter more errors; not so if that is two points."""


def far_worse(first: Level, later: Level) -> bool:
    """Whether ``later`` is so much worse that it needs no interval to tell; levels are negative if lower is better."""
    far, gap = _FAR_LOWER if first.value > 0 else _FAR_HIGHER, first.value - later.value
    if first.top is not None and gap >= _FAR_POINTS * first.top and gap > _FAR_HIGHER * (first.top - first.value):
        return True
    return gap > far * abs(first.value)


def misses(quality: QualityView, level: Level | None) -> bool:
    """Whether even the better end of the interval is worse than the side's target."""
    sign = direction_of(quality)
    if sign is None or level is None or quality.target is None:
        return False
    return level.high < sign * quality.target


def is_training(side: Side) -> bool:
    """Whether the time of a side is a training time: of a run, an epoch, a step, or to a target."""
    return side.time_of in TRAINING_TIMES


_TRAINS = re.compile(r"(?<![a-z])(?:pre-?)?train(?:s|ed|ers?|ing)?(?![a-z])", re.IGNORECASE)


def is_training_rate(claim: Claim, side: Side) -> bool:
    """Whether its figure is a rate without a time, and the claim's words are about training."""
    if side.throughput is None or side.time_s is not None or side.time_of not in (None, *TRAINING_TIMES):
        return False
    return side.time_of is not None or any(_TRAINS.search(text) for text in (claim.title, side.name))
