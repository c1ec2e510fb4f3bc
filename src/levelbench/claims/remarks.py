"""The linter's remarks about figures in a report or site: an entry of a leaderboard, the groups of a report.

Only errors and warnings are shown; missing facts are counted but not listed, since they are not faults.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache

from levelbench.claims.lint import findings_of
from levelbench.claims.rules import all_rules
from levelbench.claims.view import Claim
from levelbench.records import Record
from levelbench.records.searches import Search
from levelbench.records.store import Row
from levelbench.report.remarks import Remark, Remarks

__all__ = ["remarks_on_claim", "remarks_on_runs"]

_INDEXED = re.compile(r"(sides|comparisons|scaling)\[(\d{1,6})\]")


def remarks_on_runs(
    records: Iterable[Record], rows: Sequence[Row] = (), searches: Sequence[Search] = ()
) -> list[Remarks]:
    """The remarks about the groups of a report; ``rows`` are all runs in the store, to find uncounted ones.

    ``searches`` are those that may have chosen settings.
    """
    # A site has only entries.
    from levelbench.claims.reading.records import claims_of

    return [remarks_on_claim(claim) for claim in claims_of(records, rows, searches=searches)]


def remarks_on_claim(claim: Claim) -> Remarks:
    """The linter's remarks about one claim."""
    names = _names()
    found = findings_of(claim)
    lines = [
        Remark(
            code=each.code,
            name=names[each.code],
            severity=each.severity,
            found=each.found,
            do=each.do,
            field=each.field,
            side=_side_of(claim, each.field),
            page=f"rules/{each.code}.md",
        )
        for each in found
        if each.severity != "not-stated"
    ]
    return Remarks(claim.title, claim.task, [side.name for side in claim.sides], lines, len(found) - len(lines))


@cache
def _names() -> dict[str, str]:
    return {rule.code: rule.name for rule in all_rules()}


def _side_of(claim: Claim, field: str) -> str:
    """The side that a field belongs to: for a comparison its new side, for a scaling point its own."""
    if not (match := _INDEXED.match(field)):
        return ""
    name, at = match[1], int(match[2])
    if name == "sides" and at < len(claim.sides):
        return claim.sides[at].name
    if name == "comparisons" and at < len(claim.comparisons):
        return claim.comparisons[at].new
    return claim.scaling[at].side if name == "scaling" and at < len(claim.scaling) else ""
