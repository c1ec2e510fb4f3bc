"""LB207: means are given, but the values behind them are withheld."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import guilty, not_stated, sides
from levelbench.claims.view import Claim, Side, Summarised
from levelbench.report.numbers import plural

_DO = "publish the value of every run with its seed and settings, so that others can summarise them differently"
_OF_SEVERAL = ("median", "mean", "olympic")


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
    """Sides whose figure is a summary of runs that are not shown: said to be, or of several runs."""
    made, kind = side.runs_made, side.reported
    if side.time_s is None and side.quality.value is None:
        return
    if made is None:
        hidden = kind in _OF_SEVERAL and len(side.runs) < 2
    else:
        hidden = made > 1 and (kind is None or kind in (*_OF_SEVERAL, "best")) and len(side.runs) < made
    if not hidden:
        return
    shown = "none" if not side.runs else f"only {len(side.runs)}"
    runs = "runs" if made is None else f"{made:,} runs"
    what = f"the values of the {runs} of '{side.name}', whose {kind or 'figure'} is given; {shown} of them shown"
    yield not_stated(f"{field}.runs", what, _DO, side.where)


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
