"""What ``levelbench board check --lint`` adds: the linter's findings on every entry, in the form of the check's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from levelbench.records.submissions.rules import Finding

__all__ = ["lint_findings"]


def lint_findings(place: Path) -> list[Finding]:
    """Findings on the leaderboard at ``place``, or on one entry; of a file that cannot be read there are none.

    An error of the linter is a warning here and its warning a note: an entry may be shown with either, beside its
    figure, and a reviewer decides. What is wrong with a file is the check's own to say.
    """
    from levelbench.claims.beside import beside_entry
    from levelbench.errors import LevelbenchError
    from levelbench.records.rulesets.registry import folder_rulesets
    from levelbench.records.submissions.reading import read_submission
    from levelbench.records.submissions.rules import Finding
    from levelbench.records.submissions.rules.checking import submission_files

    whole = place.is_dir()
    found: list[Finding] = []
    try:
        rules = folder_rulesets(place) if whole else None
        paths = list(submission_files(place, [])) if whole else [place]
    except LevelbenchError:
        return []
    for path in paths:
        file = path.relative_to(place).as_posix() if whole else path.name
        try:
            beside = beside_entry(read_submission(path), file, rules)
        except LevelbenchError:
            continue
        for each in beside.lines:
            found.append(
                Finding(
                    each.code,
                    "warning" if each.severity == "error" else "note",
                    file,
                    each.field,
                    f"{each.name}: {each.found}",
                    each.do,
                )
            )
    return found
