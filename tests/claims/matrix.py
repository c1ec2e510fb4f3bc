"""The confusion matrix of the linter: which rules fire at which planted fault; ``python -m tests.claims.matrix``."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pathlib import Path

from tests.claims.clean import changes, clean_claim

from levelbench.claims.lint import findings_of
from levelbench.claims.reading.records import read_runs
from levelbench.claims.rule import Diagnostic
from levelbench.claims.rules import shipped_rules
from levelbench.records import Store

__all__ = ["ALSO", "ALSO_IN_RECORDS", "CASES", "IN_CLAIM", "IN_RECORDS", "PAGE", "fired", "found_in_claim"]
__all__ += ["found_in_records", "page"]

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "lint-matrix.md"

HEAD = """\
# Which rule fires at which fault

Exactly one fault is planted for each rule in a claim that is clean and complete, and, where a record can have it, in a
store of clean runs as `levelbench run` leaves them. A row is what was planted, a column what fired as an error or a
warning: ● where it should, ○ where another rule fires as well, for the reason given below. The tables are written by
`python -m tests.claims.matrix` from the rules' tests, and a test holds them to the rules.

A matrix says that each rule sees the fault it was made for and keeps quiet at the others'. It does not say how often
real claims have such faults, or in which other shapes: for that see [lint-results.md](../evidence/lint-results.md).
"""

CASES = {each.code: vars(import_module(f"tests.claims.rules.test_{each.code.lower()}")) for each in shipped_rules()}
"""By rule what its test has: guilty and innocent cases, and the fault to plant."""
IN_CLAIM = {code: case["PLANTED"] for code, case in CASES.items()}
"""By rule: the fault in words, and what it changes in the clean claim."""
IN_RECORDS = {code: case["IN_RECORDS"] for code, case in CASES.items() if not isinstance(case["IN_RECORDS"], str)}
"""By rule: the fault in words, and what writes a store with it and says what to select there."""
NOT_IN_RECORDS = {code: case["IN_RECORDS"] for code, case in CASES.items() if isinstance(case["IN_RECORDS"], str)}
"""By rule: why no record can have its fault."""
ALSO: dict[tuple[str, str], str] = {}
ALSO_IN_RECORDS: dict[tuple[str, str], str] = {}
"""(what was planted, what else fires): the reason why it must."""


@cache
def found_in_claim(code: str) -> tuple[Diagnostic, ...]:
    """Errors and warnings at the fault of ``code`` in the clean claim."""
    found = findings_of(changes(clean_claim(), IN_CLAIM[code][1]))
    return tuple(each for each in found if each.severity != "not-stated")


@cache
def found_in_records(code: str) -> tuple[Diagnostic, ...]:
    """Errors and warnings at a store with the fault of ``code``."""
    with tempfile.TemporaryDirectory() as folder:
        claims = read_runs(IN_RECORDS[code][1](Path(folder)), Store(folder))
        found = [each for one in claims for each in findings_of(one)]
    return tuple(each for each in found if each.severity != "not-stated")


def fired(found: Iterable[Diagnostic]) -> set[str]:
    """The rules behind findings."""
    return {each.code for each in found}


def page() -> str:
    """The whole page."""
    codes = [rule.code for rule in shipped_rules()]
    in_claim = {code: fired(found_in_claim(code)) for code in codes}
    in_records = {code: fired(found_in_records(code)) for code in IN_RECORDS}
    lines = [HEAD, "## In a claim", "", *_table(codes, in_claim, codes), "", *_also(ALSO)]
    lines += ["| rule | what was planted |", "|---|---|"]
    lines += [f"| {_link(code)} | {IN_CLAIM[code][0]} |" for code in codes]
    lines += ["", "## In record files", "", *_table(list(IN_RECORDS), in_records, list(IN_RECORDS)), ""]
    lines += [*_also(ALSO_IN_RECORDS), "| rule | what was planted |", "|---|---|"]
    lines += [f"| {_link(code)} | {words} |" for code, (words, _) in IN_RECORDS.items()]
    lines += ["", "The other faults no record of ours can have:", ""]
    lines += [f"- {_link(code)}: {reason}." for code, reason in NOT_IN_RECORDS.items()]
    return "\n".join([*lines, ""])


def _link(code: str) -> str:
    return f"[{code}](rules/{code}.md)"


def _table(rows: list[str], hits: dict[str, set[str]], columns: list[str]) -> list[str]:
    """Columns by the digits of their codes: 31 of them fit on a page."""
    short = [code.removeprefix("LB") for code in columns]
    lines = [f"| planted | {' | '.join(short)} |", f"|---|{':-:|' * len(short)}"]
    for row in rows:
        marks = [("●" if row == column else "○") if column in hits[row] else "" for column in columns]
        lines.append(f"| {row} | {' | '.join(marks)} |")
    return lines


def _also(reasons: dict[tuple[str, str], str]) -> list[str]:
    found = [f"- {planted} planted, {fired} fires too: {reason}." for (planted, fired), reason in reasons.items()]
    if not found:
        return ["Nothing lies off the diagonal.", ""]
    return ["Off the diagonal:", "", *found, ""]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
