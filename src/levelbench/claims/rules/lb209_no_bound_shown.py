"""LB209: a rate or a speed-up is shown, and not what would have been possible."""

from __future__ import annotations

from collections.abc import Iterator

from levelbench.claims.rule import Finding, Rule
from levelbench.claims.rules._common import guilty, not_stated, number, plural, sides
from levelbench.claims.view import Claim

__all__ = ["rule"]

_CODE = "LB209"
_BOUNDED = ("speed-up", "throughput", "operations")
_DO = "show the limit beside it: linear scaling or Amdahl's bound, the roof of the machine, the peak of the precision"


def _check(claim: Claim) -> Iterator[Finding]:
    for at, figure in enumerate(claim.figures):
        if figure.bound_shown is False and figure.y in _BOUNDED:
            found = f"'{figure.what}' shows {figure.y} without a limit to hold it against"
            yield guilty(_CODE, f"figures[{at}].bound_shown", found, _DO, figure.where or claim.where, "warning")
    if claim.bound or any(figure.bound_shown for figure in claim.figures):
        return
    if any(figure.bound_shown is False and figure.y in _BOUNDED for figure in claim.figures):
        return
    yield from _stated(claim)


def _stated(claim: Claim) -> Iterator[Finding]:
    """What has a limit, in a claim that gives none."""
    ranks = sorted({point.ranks for point in claim.scaling})
    if len(ranks) > 1:
        what = f"the limit of the scaling from {ranks[0]:,} to {plural(ranks[-1], 'rank')}"
        yield not_stated(_CODE, "bound", what, _DO, claim.where)
    for field, side in sides(claim):
        rate = side.operations
        if rate.flops is not None and rate.share_of_peak is None:
            what = f"which share of the limit the {number(rate.flops)} FLOP/s of '{side.name}' are"
            yield not_stated(_CODE, f"{field}.operations.share_of_peak", what, _DO, side.where)


rule = Rule(
    code=_CODE,
    name="no-bound-shown",
    way=0,
    why="Beside its limit a figure shows how good it is; alone it shows only that it is a number.",
    point=(
        "Ten teraflops are splendid or a scandal, depending on whether the machine could do twelve or a thousand. A "
        "speed-up curve without the line of ideal scaling climbs as steeply as the axes are chosen."
    ),
    practice=(
        "Give a limit with every rate and speed-up: linear scaling, Amdahl's bound with the measured serial share, the "
        "roof of the machine (peak and bandwidth, measured rather than from a data sheet), and the share of it reached."
    ),
    bad="A figure of the speed-up from 1 to 64 GPUs, axes from 0 to 40.",
    good="Speed-up 37 of at most 46 on 64 GPUs (Amdahl's bound with 0.6 % serial), drawn with both lines.",
    source="Hoefler & Belli, SC15, rule 11",
    reads=("bound", "figures[].bound_shown", "figures[].y", "scaling[].ranks", "sides[].operations.share_of_peak"),
    blind="Whether the limit is the right one: a roof for a precision that was not used is no limit.",
    check=_check,
)
