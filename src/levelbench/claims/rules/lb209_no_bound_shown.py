"""LB209: a rate or a speed-up is shown, but not what would have been possible."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import guilty, not_stated, number, sides
from levelbench.claims.view import Claim
from levelbench.report.numbers import plural

_BOUNDED = ("speed-up", "throughput", "operations")
_EFFICIENCY = re.compile(
    r"(?:%|per ?cent) (?:of|below) (?:the |its |an? )?(?:\S+ )?(?:peak|roof\w*|perfect|linear|ideal|limit)\b|"
    r"\b(?:scaling|parallel) efficiency\b",
    re.IGNORECASE,
)
"""What gives the claim as a share of its limit."""
_DO = "show the limit with it: linear scaling or Amdahl's bound, the roof of the machine, the peak of the precision"


def _check(claim: Claim) -> Iterator[Diagnostic]:
    for at, figure in enumerate(claim.figures):
        if figure.bound_shown is False and figure.y in _BOUNDED:
            found = f"'{figure.what}' shows {figure.y} without a limit to compare it with"
            yield guilty(f"figures[{at}].bound_shown", found, _DO, figure.where or claim.where, "warning")
    if claim.bound or _EFFICIENCY.search(claim.title) or any(figure.bound_shown for figure in claim.figures):
        return
    if any(figure.bound_shown is False and figure.y in _BOUNDED for figure in claim.figures):
        return
    yield from _stated(claim)


def _stated(claim: Claim) -> Iterator[Diagnostic]:
    """Figures that have a limit, in a claim that gives none."""
    ranks = sorted({point.ranks for point in claim.scaling})
    if len(ranks) > 1:
        what = f"the limit of the scaling from {ranks[0]:,} to {plural(ranks[-1], 'rank')}"
        yield not_stated("bound", what, _DO, claim.where)
    for field, side in sides(claim):
        rate = side.operations
        if rate.flops is not None and rate.share_of_peak is None:
            what = f"which share of the limit the {number(rate.flops)} FLOP/s of '{side.name}' are"
            yield not_stated(f"{field}.operations.share_of_peak", what, _DO, side.where)


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
