"""LB207: means are given, but the values behind them are withheld."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import guilty, not_stated, sides
from levelbench.claims.view import Claim, Side, Summarised
from levelbench.report.numbers import plural

_DO = "publish the value of every run with its seed and settings, so that others can summarise them differently"
_SUMMARIES = ("best", "median", "mean", "olympic")


def _check(claim: Claim) -> Iterator[Diagnostic]:
    most = max((len(side.runs) for side in claim.sides), default=0)
    for at, summary in enumerate(claim.summaries):
        if summary.n != 1:
            yield from _summarised(claim, summary, f"summaries[{at}]", most)
    if not claim.summaries:
        for field, side in sides(claim):
            yield from _reported(side, field)


def _summarised(claim: Claim, summary: Summarised, field: str, most: int) -> Iterator[Diagnostic]:
    where = summary.where or claim.where
    of = "several values" if summary.n is None else plural(summary.n, "value")
    if summary.raw_available is False:
        found = f"the '{summary.what}' summarises {of}, which are not available"
        yield guilty(f"{field}.raw_available", found, _DO, where, "warning")
    elif summary.raw_available is None and most < (summary.n or 2):
        yield not_stated(f"{field}.raw_available", f"where the {of} behind '{summary.what}' are", _DO, where)


def _reported(side: Side, field: str) -> Iterator[Diagnostic]:
    """Sides whose figure is a summary of runs that are not shown."""
    made = side.runs_made
    if side.reported in _SUMMARIES and made is not None and made > 1 and len(side.runs) < made:
        shown = "none" if not side.runs else f"only {len(side.runs)}"
        what = (
            f"the values of the {made:,} runs of '{side.name}', whose {side.reported} is given; {shown} of them shown"
        )
        yield not_stated(f"{field}.runs", what, _DO, side.where)


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
