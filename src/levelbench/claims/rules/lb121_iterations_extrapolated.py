"""LB121: a few iterations were timed and multiplied, without training to the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import guilty, not_stated, percent, sides
from levelbench.claims.view import Claim, ScalingPoint, Side
from levelbench.report.numbers import plural

_DO = "train to the target, or claim only the time of an iteration, not a time to accuracy"


def _check(claim: Claim) -> Iterator[Diagnostic]:
    for field, side in sides(claim):
        if side.time_s is not None and side.time_of in {"target", "run"}:
            yield from _short_side(f"{field}.workload.iterations_measured", side)
    for at, point in enumerate(claim.scaling):
        side_of = claim.side(point.side)
        yield from _point(f"scaling[{at}]", point, None if side_of is None else side_of.time_of)


def _part(measured: int | None, needed: int | None) -> str:
    """``" (200 iterations of 45,000, 0.44 %)"``, or nothing if one of them is unknown."""
    if measured is None or not needed:
        return ""
    return f" ({plural(measured, 'iteration')} of {needed:,}, {percent(measured / needed)})"


def _short(measured: int | None, needed: int | None) -> bool:
    return measured is not None and needed is not None and measured < needed


def _short_side(field: str, side: Side) -> Iterator[Diagnostic]:
    measured, needed = side.workload.iterations_measured, side.workload.iterations_to_target
    if _short(measured, needed):
        found = f"the time of '{side.name}' is for a whole training that was not done{_part(measured, needed)}"
        yield guilty(field, found, _DO, side.where)


def _point(field: str, point: ScalingPoint, time_of: str | None) -> Iterator[Diagnostic]:
    measured, needed = point.iterations_measured, point.iterations_to_target
    label = f"'{point.side}' on {plural(point.ranks, 'rank')}"
    if point.extrapolated:
        found = f"the time of {label} is extrapolated{_part(measured, needed)}: stated, but still not measured"
        yield guilty(f"{field}.extrapolated", found, _DO, point.where, "warning")
        return
    # The time of a step or an epoch may well come from a few of them.
    of_part = point.fixed_time or time_of in {"step", "epoch", "call"}
    if point.time_s is None or point.extrapolated is False or point.reached or of_part:
        return
    if not _short(measured, needed):
        if measured is None or needed is None:
            what = f"whether the time of {label} was measured to the end or extrapolated from a few iterations"
            yield not_stated(f"{field}.extrapolated", what, _DO, point.where)
    elif time_of is None:
        what = f"whether the time of {label} is for an iteration or for the whole{_part(measured, needed)}"
        yield not_stated(f"{field}.iterations_measured", what, _DO, point.where)
    else:
        found = f"the time of {label} is for a whole training that was not done{_part(measured, needed)}"
        yield guilty(f"{field}.iterations_measured", found, _DO, point.where)


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
