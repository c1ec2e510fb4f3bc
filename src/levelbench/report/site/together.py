"""What comes of comparing the entries of a leaderboard: which one another takes the place of, and which are marked.

The one idea: it depends on all entries, so nothing of it is kept with one; an entry that cannot be shown is compared
with none, so whoever sends a broken one takes nobody's place.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from levelbench.records.submissions.rules import Finding
from levelbench.records.submissions.rules.checking import curves_of
from levelbench.records.submissions.rules.rivals import Compared, Rivals
from levelbench.report.site.intake import line
from levelbench.report.site.payload import NotShown
from levelbench.report.site.state import Entry

__all__ = ["Together"]


class Together:
    """The entries of one leaderboard, in the order in which they are added; then what comes of them."""

    def __init__(self) -> None:
        self._rivals = Rivals()
        self._told: dict[str, list[Finding]] = {}

    def add(self, file: str, entry: Entry) -> None:
        """The entry in ``file``."""
        if entry.trace is not None and entry.payload is not None:
            self._tell(self._rivals.add(entry.trace, file))

    def compare(self, paths: Mapping[str, str], compared: Compared) -> None:
        """Compare the curves of all; none is read again for what is in ``compared`` already (see ``Rivals.near``)."""
        self._tell(list(self._rivals.near(curves_of(paths), compared)))

    def _tell(self, found: list[Finding]) -> None:
        for each in found:
            self._told.setdefault(each.file, []).append(each)

    def lost(self, file: str) -> list[Finding]:
        """Why the entry is not shown: another takes its place."""
        told = self._told.get(file)
        return [each for each in told if each.severity == "error"] if told else []

    def near(self) -> list[NotShown]:
        """The files of which something is to be looked at, each with what that is."""
        lines = {file: [line(each) for each in told if each.severity != "error"] for file, told in self._told.items()}
        return [NotShown(file, said) for file, said in sorted(lines.items()) if said]

    def marked(self, file: str, entry: Entry) -> Entry:
        """The entry with that among its warnings."""
        further = sum(each.severity == "warning" for each in self._told.get(file, ()))
        if entry.payload is None or not further:
            return entry
        counts = entry.payload.findings
        counts = msgspec.structs.replace(counts, warnings=counts.warnings + further)
        return msgspec.structs.replace(entry, payload=msgspec.structs.replace(entry.payload, findings=counts))

    def warnings(self) -> int:
        """How many there are."""
        return sum(each.severity == "warning" for told in self._told.values() for each in told)
