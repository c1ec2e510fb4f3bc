"""What ``levelbench board check`` adds of the linter: its findings on an entry, in the form of the check's own.

The one idea: an entry that misleads may be shown, beside its figure, and a reviewer decides; so what the linter calls
an error is a warning here, and never keeps an entry off the board.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from levelbench.claims.remarks import remarks_on_entry
from levelbench.errors import LevelbenchError
from levelbench.records.submissions.rules.findings import Finding, note, warning

if TYPE_CHECKING:
    from levelbench.records.rulesets.schema import Ruleset
    from levelbench.records.submissions.schema import Submission

__all__ = ["all_of_linter", "worst_of_linter"]


def worst_of_linter(entry: Submission, file: str, known: Mapping[str, Ruleset]) -> list[Finding]:
    """What the linter calls an error in ``entry``, as warnings about ``file``; ``known`` are the rulesets by id."""
    return [each for each in _findings(entry, file, known) if each.severity == "warning"]


def all_of_linter(entry: Submission, file: str, known: Mapping[str, Ruleset]) -> list[Finding]:
    """The same, and its warnings as notes."""
    return list(_findings(entry, file, known))


def _findings(entry: Submission, file: str, known: Mapping[str, Ruleset]) -> Iterator[Finding]:
    try:
        lines = remarks_on_entry(entry, file, known).lines
    except LevelbenchError:
        # No claim can be made of it; what is wrong with it is the check's own to say.
        return
    for each in lines:
        made = warning if each.severity == "error" else note
        yield made(each.code, file, each.field, f"{each.name}: {each.found}", each.do)
