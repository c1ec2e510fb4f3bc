"""LB201: a ratio is claimed, and nobody can tell what of."""

from __future__ import annotations

from collections.abc import Iterator

from levelbench.claims.rule import Finding, Rule
from levelbench.claims.rules._common import guilty, not_stated, number
from levelbench.claims.view import Claim, Comparison, ScalingPoint, Side

__all__ = ["rule"]

_CODE = "LB201"
_DO = "give the time of the base in seconds, on which hardware, and whether it is the best serial one"


def _check(claim: Claim) -> Iterator[Finding]:
    for at, comparison in enumerate(claim.comparisons):
        if comparison.ratio is not None and comparison.of != "quality":
            yield from _compared(claim, comparison, f"comparisons[{at}]")
    yield from _drawn(claim)


def _compared(claim: Claim, comparison: Comparison, field: str) -> Iterator[Finding]:
    base, new = claim.side(comparison.base), claim.side(comparison.new)
    where = comparison.where or claim.where
    if not _has_base(claim, comparison, base):
        of = f"'{comparison.new}' to '{comparison.base}'"
        ratio = number(comparison.ratio or 0.0)
        found = f"the ratio of {of} is said to be {ratio}, and no absolute figure of the latter is given"
        yield guilty(_CODE, f"{field}.base_time_s", found, _DO, where, "warning")
    elif comparison.base_kind is None and base is not None and new is not None and _ranks(new) > _ranks(base):
        what = f"whether '{comparison.base}', with {_ranks(base)} of {_ranks(new)} ranks, is serial or one process"
        do = "say whether the base is the best serial program or the parallel one with a single process"
        yield not_stated(_CODE, f"{field}.base_kind", what, do, where)


def _has_base(claim: Claim, comparison: Comparison, base: Side | None) -> bool:
    """Whether an absolute figure of what is compared stands anywhere: in the comparison, its base, its scaling."""
    if comparison.base_time_s is not None:
        return True
    if base is None:
        return False
    if comparison.of == "cost":
        return base.cost_usd is not None
    if comparison.of == "operations":
        return base.operations.to_target is not None or base.operations.flops is not None
    if base.time_s is not None and comparison.of in (None, "throughput", *_TIMES.get(base.time_of or "", ())):
        return True
    return any(point.side == base.name and _is_absolute(point) for point in claim.scaling)


_TIMES: dict[str, tuple[str, ...]] = {
    "": ("target", "epoch", "step", "kernel", "latency"),
    "target": ("target",),
    "run": ("target",),
    "epoch": ("epoch",),
    "step": ("step",),
    "call": ("latency", "kernel", "step"),
}
"""Which comparisons the time of a side is the base of, by what it is the time of."""


def _ranks(side: Side) -> int:
    return side.workload.ranks or 1


def _is_absolute(point: ScalingPoint) -> bool:
    return point.time_s is not None or point.throughput is not None


def _drawn(claim: Claim) -> Iterator[Finding]:
    """A figure of speed-ups whose one-rank time is nowhere."""
    if any(_is_absolute(point) for point in claim.scaling) or any(side.time_s is not None for side in claim.sides):
        return
    if any(each.base_time_s is not None for each in claim.comparisons):
        return
    for at, figure in enumerate(claim.figures):
        if figure.y == "speed-up":
            points = number(len(claim.scaling))
            found = f"'{figure.what}' shows speed-ups, and none of its {points} points has a time or a rate"
            yield guilty(_CODE, f"figures[{at}].y", found, _DO, figure.where or claim.where, "warning")


rule = Rule(
    code=_CODE,
    name="speed-up-without-base",
    way=0,
    why="A ratio says how far, and not from where: a slow base makes any speed-up.",
    point=(
        "A slow program scales beautifully, and everything is fast beside a base that nobody tuned. Whoever gives the "
        "ratio alone never has to say how long anything took."
    ),
    practice=(
        "Give the base's absolute time (or rate, or cost) with the ratio, the hardware that it ran on, and whether it "
        "is the best serial program or the parallel one with a single process; those can differ by a large factor."
    ),
    bad="Our trainer is 37 times faster on 64 GPUs.",
    good="64 GPUs take 61 s to the target, 37 times less than the 2,260 s of the best program on one GPU.",
    source="Hoefler & Belli, SC15, rule 1",
    reads=(
        "comparisons[].ratio",
        "comparisons[].base_time_s",
        "comparisons[].base_kind",
        "sides[].time_s",
        "scaling[].time_s",
        "figures[].y",
    ),
    blind="Whether the base could be faster, and whether the ratio is that of the times that are given.",
    check=_check,
)
