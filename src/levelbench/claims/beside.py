"""What the linter says beside a figure, as plain lines for whoever shows the figure and knows nothing of rules.

The one idea: a report, a leaderboard's page and its check show the same lines, made once from the same claim; what is
not stated is counted there and never listed, for it is no fault.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from msgspec import Struct

from levelbench.claims.lint import findings_of
from levelbench.claims.reading.entries import submission_claim
from levelbench.claims.rule import Severity
from levelbench.claims.rules import all_rules
from levelbench.claims.view import Claim
from levelbench.records import Record
from levelbench.records.rows import Row
from levelbench.records.rulesets.schema import Ruleset
from levelbench.records.submissions.schema import Submission

__all__ = ["Beside", "Line", "beside_entry", "beside_runs"]

_INDEXED = re.compile(r"(sides|comparisons|scaling)\[(\d{1,6})\]")


class Line(Struct, frozen=True):
    """One error or warning: the rule's code and name, its page in the documentation, what was found, what to do.

    ``side`` is the row that it belongs beside: a group's label, an entry's model; empty for the claim as a whole.
    """

    code: str
    name: str
    severity: Severity
    found: str
    do: str
    field: str
    side: str
    page: str


class Beside(Struct, frozen=True):
    """What is said of one claim. ``title`` names it, ``sides`` are the labels of its figures.

    ``not_stated`` counts the facts that are missing.
    """

    title: str
    task: str | None
    sides: list[str]
    lines: list[Line]
    not_stated: int

    def words(self, side: str | None = None) -> str:
        """In short, as a column of a table has it: ``"LB110, LB122"``, of one side or of all, or that there is none."""
        codes = dict.fromkeys(each.code for each in self.lines if side is None or each.side in ("", side))
        return ", ".join(codes) or "nothing found"


def beside_entry(entry: Submission, where: str, rulesets: Mapping[str, Ruleset] | None = None) -> Beside:
    """What the linter says of an entry of a leaderboard, whose rules are among ``rulesets`` (else those that ship)."""
    return _beside(submission_claim(entry, where, rulesets))


def beside_runs(records: Iterable[Record], rows: Sequence[Row] = ()) -> list[Beside]:
    """What it says of the groups of a report; ``rows`` are all runs of the store, for those that are not counted."""
    # A site asks of entries alone.
    from levelbench.claims.reading.records import claims_of

    return [_beside(claim) for claim in claims_of(records, rows)]


def _beside(claim: Claim) -> Beside:
    names = _names()
    found = findings_of(claim)
    lines = [
        Line(
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
    return Beside(claim.title, claim.task, [side.name for side in claim.sides], lines, len(found) - len(lines))


@cache
def _names() -> dict[str, str]:
    return {rule.code: rule.name for rule in all_rules()}


def _side_of(claim: Claim, field: str) -> str:
    """The side that a field belongs to: of a comparison its new side, of a point of scaling its own."""
    if not (match := _INDEXED.match(field)):
        return ""
    name, at = match[1], int(match[2])
    if name == "sides" and at < len(claim.sides):
        return claim.sides[at].name
    if name == "comparisons" and at < len(claim.comparisons):
        return claim.comparisons[at].new
    return claim.scaling[at].side if name == "scaling" and at < len(claim.scaling) else ""
