"""LB201: a ratio is claimed without an absolute figure behind it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import guilty, not_stated, number
from levelbench.claims.view import Claim, ComparisonView, ScalingPoint, Side

_DO = "give the time of the base in seconds, on which hardware, and whether it is the best serial one"


def _check(claim: Claim) -> Iterator[Diagnostic]:
    without: dict[tuple[str, str | None], list[tuple[str, ComparisonView]]] = {}
    for at, comparison in enumerate(claim.comparisons):
        if comparison.ratio is not None and comparison.of != "quality":
            if _has_base(claim, comparison, claim.side(comparison.base)):
                yield from _of_ranks(claim, comparison, f"comparisons[{at}]")
            else:
                of_base = without.setdefault((comparison.base, comparison.of), [])
                of_base.append((f"comparisons[{at}]", comparison))
    # One figure of the base answers for all ratios to it.
    for (field, comparison), *others in without.values():
        ratio = (
            f"the ratio of '{comparison.new}' to '{comparison.base}' is said to be {number(comparison.ratio or 0.0)}"
        )
        more = f" (and {len(others)} more to it)" if others else ""
        found = f"{ratio}{more}, but no absolute figure of the latter is given"
        yield guilty(f"{field}.base_time_s", found, _DO, comparison.where or claim.where, "warning")
    yield from _drawn(claim)


def _of_ranks(claim: Claim, comparison: ComparisonView, field: str) -> Iterator[Diagnostic]:
    base, new = claim.side(comparison.base), claim.side(comparison.new)
    where = comparison.where or claim.where
    if comparison.base_kind is None and base is not None and new is not None and _ranks(new) > _ranks(base):
        what = f"whether '{comparison.base}', with {_ranks(base)} of {_ranks(new)} ranks, is serial or one process"
        do = "say whether the base is the best serial program or the parallel one with a single process"
        yield not_stated(f"{field}.base_kind", what, do, where)


def _has_base(claim: Claim, comparison: ComparisonView, base: Side | None) -> bool:
    """Whether there is an absolute figure of what is compared: in the comparison, its base or its scaling."""
    if comparison.base_time_s is not None:
        return True
    if base is None:
        return False
    if comparison.of == "cost":
        return base.cost_usd is not None
    if comparison.of == "operations":
        return base.operations.to_target is not None or base.operations.flops is not None
    if base.throughput is not None and comparison.of in (None, "throughput"):
        return True
    if base.time_s is not None and comparison.of in (None, "throughput", *_TIMES.get(base.time_of or "", ())):
        return True
    return any(point.side == base.name and _is_absolute(point) for point in claim.scaling)


_TIMES: dict[str, tuple[str, ...]] = {
    "": ("target", "run", "epoch", "step", "kernel", "latency"),
    "target": ("target", "run"),
    "run": ("target", "run", "latency"),
    "epoch": ("epoch",),
    "step": ("step",),
    "call": ("latency", "kernel", "step"),
}
"""The kinds of comparison that a side's time is the base of, by the kind of the time."""


def _ranks(side: Side) -> int:
    return side.workload.ranks or 1


def _is_absolute(point: ScalingPoint) -> bool:
    return point.time_s is not None or point.throughput is not None


def _drawn(claim: Claim) -> Iterator[Diagnostic]:
    """A figure of speed-ups without the time on one rank."""
    if any(_is_absolute(point) for point in claim.scaling) or any(side.time_s is not None for side in claim.sides):
        return
    if any(each.base_time_s is not None for each in claim.comparisons):
        return
    for at, figure in enumerate(claim.figures):
        if figure.y == "speed-up":
            found = f"'{figure.what}' shows speed-ups, but no time or rate is given for any point"
            yield guilty(f"figures[{at}].y", found, _DO, figure.where or claim.where, "warning")


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
