"""LB101: the time falls as ranks are added, but so does the quality, or the quality is not stated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import (
    ComparedPair,
    Level,
    beyond,
    direction_of,
    far_worse,
    guilty,
    level_of,
    misses,
    not_stated,
    number,
    pairs,
)
from levelbench.claims.view import Claim, QualityView, ScalingPoint
from levelbench.report.numbers import plural

_RERUN = "run every point to the target, with the same number of seeds as the smallest, and give its quality"
_FAR = "without intervals, and far worse than seeds make it"
_Indexed = tuple[int, ScalingPoint]


def _check(claim: Claim) -> Iterator[Diagnostic]:
    for name in dict.fromkeys(point.side for point in claim.scaling):
        side = claim.side(name)
        quality = QualityView() if side is None else side.quality
        points = [(at, point) for at, point in enumerate(claim.scaling) if point.side == name]
        points.sort(key=lambda each: (each[1].ranks, each[1].global_batch or 0))
        yield from _missed(points, quality, claim.read_from == "claim")
        yield from _fallen(points, quality)
        yield from _unsaid(name, points)
        if direction_of(quality) is None:
            yield from _unnamed(name, points)
    if not claim.scaling:
        for pair in pairs(claim):
            yield from _grown(pair)


def _label(point: ScalingPoint) -> str:
    batch = "" if point.global_batch is None else f" and a global batch of {point.global_batch:,}"
    return f"'{point.side}' on {plural(point.ranks, 'rank')}{batch}"


def _lost(point: ScalingPoint, quality: QualityView) -> bool:
    if point.reached is not None:
        return not point.reached
    return misses(quality, level_of(quality, point))


def _without_speed(point: ScalingPoint) -> bool:
    """Whether it is said not to have reached the target, and has no speed that could count."""
    return point.reached is False and point.time_s is None and point.throughput is None


def _missed(points: list[_Indexed], quality: QualityView, written: bool) -> Iterator[Diagnostic]:
    # Runs of a store say nothing of how they are shown.
    shown = written and any(point.reached for _, point in points)
    for at, point in points:
        if not _lost(point, quality) or (shown and _without_speed(point)):
            continue
        level = level_of(quality, point)
        got = "" if level is None else f" (quality {level.text})"
        goal = "its target" if quality.target is None else f"its target of {number(quality.target, 4)}"
        found = f"{_label(point)} did not reach {goal}{got}, but is given as a point of the scaling study"
        do = f"remove the point or show it as not reached; else {_RERUN}"
        yield guilty(f"scaling[{at}].reached", found, do, point.where)


def _fallen(points: list[_Indexed], quality: QualityView) -> Iterator[Diagnostic]:
    """Compare every point with the smallest one that has a quality."""
    known = [(at, point, level) for at, point in points if (level := level_of(quality, point)) is not None]
    if not known:
        return
    _, smallest, first = known[0]
    for at, point, level in known[1:]:
        fallen = beyond(first, level)
        if fallen is False or _lost(point, quality):
            continue
        found = f"the quality of {_label(point)} is {level.text}, of {_label(smallest)} {first.text}"
        field = f"scaling[{at}].quality"
        if fallen is None and far_worse(first, level):
            yield guilty(field, f"{found}: {_FAR}", _RERUN, point.where, "warning")
        elif fallen is None:
            what = f"the interval of a quality that falls as it scales ({found})"
            yield not_stated(field, what, "give the quality of every point with its interval", point.where)
        else:
            kept = "; the target is still reached" if point.reached else ""
            found = f"{found}: the intervals do not overlap{kept}"
            yield guilty(field, found, _RERUN, point.where, "warning" if point.reached else "error")


def _unsaid(name: str, points: list[_Indexed]) -> Iterator[Diagnostic]:
    silent = [(at, point) for at, point in points if point.reached is None and point.quality is None]
    if not silent:
        return
    at, point = silent[0]
    ranks = ", ".join(str(each.ranks) for _, each in silent)
    what = f"whether '{name}' reached its target on {ranks} ranks, and with what quality"
    yield not_stated(f"scaling[{at}].reached", what, _RERUN, point.where)


def _unnamed(name: str, points: list[_Indexed]) -> Iterator[Diagnostic]:
    """A quality that changes as it scales, of which nobody knows whether higher is better."""
    known = [(at, point) for at, point in points if point.quality is not None and point.reached is None]
    if len({point.quality for _, point in known}) < 2:
        return
    (_, first), (at, last) = known[0], known[-1]
    what = f"the metric of the quality of '{name}', {number(first.quality or 0.0, 4)} on {plural(first.ranks, 'rank')}"
    what += f" and {number(last.quality or 0.0, 4)} on {last.ranks:,}: whether it gets worse"
    yield not_stated(f"scaling[{at}].quality", what, "name the side's quality.metric, or its direction", last.where)


def _grown(pair: ComparedPair) -> Iterator[Diagnostic]:
    """A comparison is a scaling study of two points where its new side has more ranks or a larger batch."""
    new, base = pair.new.workload, pair.base.workload
    more_ranks = new.ranks is not None and base.ranks is not None and new.ranks > base.ranks
    more_batch = new.global_batch is not None and base.global_batch is not None and new.global_batch > base.global_batch
    same = all(
        getattr(pair.new.quality, name) == getattr(pair.base.quality, name) for name in ("metric", "split", "target")
    )
    if not (more_ranks or more_batch) or not same or direction_of(pair.new.quality) is None:
        return
    level, first = level_of(pair.new.quality), level_of(pair.base.quality)
    if level is None or first is None:
        return
    fallen = beyond(first, level)
    if fallen is False or (fallen is None and not far_worse(first, level)):
        return
    grew = f"from {base.ranks} to {new.ranks} ranks" if more_ranks else ""
    if more_batch:
        grew += f"{' and ' if grew else ''}from a batch of {base.global_batch:,} to {new.global_batch:,}"
    kept = _keeps(pair.new.quality, level)
    found = f"{grew} the quality goes from {first.text} to {level.text}"
    found += ", and the intervals do not overlap" if fallen else f": {_FAR}"
    found += "; the target is still reached" if kept else ""
    field = f"{pair.new_field}.quality.value"
    yield guilty(field, found, _RERUN, pair.where, "error" if fallen and not kept else "warning")


def _keeps(quality: QualityView, level: Level) -> bool:
    sign = direction_of(quality)
    return sign is not None and quality.target is not None and level.value >= sign * quality.target


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
