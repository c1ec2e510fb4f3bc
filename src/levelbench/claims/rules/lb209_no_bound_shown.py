"""LB209: a rate or a speed-up is shown, but not what would have been possible."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import guilty, not_stated, number, pairs, sides
from levelbench.claims.view import Claim
from levelbench.report.numbers import plural

_BOUNDED = ("speed-up", "throughput", "operations")
_EFFICIENCY = re.compile(
    r"(?:%|per ?cent) (?:of|below) (?:the |its |an? )?(?:\S+ )?(?:peak|roof\w*|perfect|linear|ideal|limit)\b|"
    r"\b(?:scaling|parallel) efficiency\b",
    re.IGNORECASE,
)
"""What gives the claim as a share of its limit."""
_RATE = re.compile(r"flop|\bt?ops\b", re.IGNORECASE)
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
    ranks = {point.ranks for point in claim.scaling}
    for pair in pairs(claim):
        if pair.comparison.base_kind == "one-process" and not claim.compositions:
            ranks |= {side.workload.ranks for side in (pair.new, pair.base) if side.workload.ranks is not None}
    if len(ranks) > 1:
        what = f"the limit of the scaling from {min(ranks):,} to {plural(max(ranks), 'rank')}"
        yield not_stated("bound", what, _DO, claim.where)
    rates = [(field, side, side.operations) for field, side in sides(claim) if side.operations.flops is not None]
    praised = {each.new for each in claim.comparisons} or {side.name for _, side, _ in rates}
    if any(rate.share_of_peak is not None for _, side, rate in rates if side.name in praised):
        return
    # A rate that is compared or in the title is claimed; a peak is the limit.
    if not claim.comparisons and not _RATE.search(claim.title):
        return
    for field, side, rate in rates:
        if rate.flops is not None and rate.share_of_peak is None and "peak" not in (rate.counted_as or "").lower():
            what = f"which share of the limit the {number(rate.flops)} FLOP/s of '{side.name}' are"
            yield not_stated(f"{field}.operations.share_of_peak", what, _DO, side.where)


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
