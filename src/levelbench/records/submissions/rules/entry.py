"""What a rule looks at: the submission, its rules, where its file lies, and which day it is.

The one idea: a rule is a function of this and yields findings; it opens nothing and knows no other rule.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cached_property
from typing import TYPE_CHECKING

from levelbench.measure.crossing import RULES
from levelbench.records.rulesets.registry import task_rules
from levelbench.records.rulesets.schema import Ruleset, TaskRules
from levelbench.records.submissions.rules.findings import Finding, error, note, warning
from levelbench.records.submissions.schema import Submission
from levelbench.records.submissions.steps import Climb, climbs_of

if TYPE_CHECKING:
    from levelbench.records.submissions.rules.ceilings import Limits

__all__ = ["Entry", "day_of", "instant_of", "is_sha256", "shown"]

_SYSTEMS = frozenset({"dawnbench", "mlperf", "algoperf"})
"""Whose files are read into entries, by the beginning of their format; rules of theirs have names that begin so too."""
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_SHA_256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Entry:
    """``file`` is relative to the leaderboard, empty for a submission of no leaderboard yet.

    ``records`` maps SHA-256 to the names of the record files at hand; ``None``: there are none to compare with. ``raw``
    are the bytes that it was read from, where it was. ``limits`` says what is known of an entry's machine and network.
    """

    submission: Submission
    today: date
    known: Mapping[str, Ruleset]
    file: str = ""
    records: Mapping[str, str] | None = field(default=None, repr=False)
    raw: bytes | None = field(default=None, repr=False)
    limits: Callable[[Submission], Limits] | None = field(default=None, repr=False)

    @cached_property
    def rules(self) -> Ruleset | None:
        """The ruleset that the entry names, if it is known."""
        return self.known.get(self.submission.ruleset)

    @cached_property
    def task(self) -> TaskRules | None:
        """What that ruleset says of the entry's task."""
        return task_rules(self.rules, self.submission.task) if self.rules else None

    @property
    def imported(self) -> bool:
        """Whether it was read from a file of the system whose rules these are, which says less than a record.

        Under other rules an origin, which is the author's own word, excuses nothing.
        """
        origin = self.submission.origin
        system = origin.format.partition("-")[0] if origin is not None else ""
        return system in _SYSTEMS and self.rules is not None and self.rules.name.partition("-")[0] == system

    def advice(self, ours: str, other: str) -> str:
        """What to do: ``ours`` names what levelbench has for it, which is no help where another system ran."""
        return ours if self.submission.origin is None else other

    @cached_property
    def crossing(self) -> str:
        """The rule that the entry is judged by: its ruleset's, but that a schedule of fixed length is at its end."""
        if self.rules is None:
            stated = self.submission.crossing
            return stated if stated is not None and stated in RULES else "first"
        fixed = self.rules.crossing == "confirmed" and self.submission.crossing == "final"
        return "final" if fixed else self.rules.crossing

    @cached_property
    def aside(self) -> Limits | None:
        """What is known beside what the entry states; ``None`` where nobody was asked."""
        return None if self.limits is None else self.limits(self.submission)

    @cached_property
    def climbs(self) -> list[Climb | None]:
        """Each run as the crossing rule sees it; ``None`` for one that failed or whose curve is broken."""
        # Where the line into the first evaluation at the target ends is where the first crossing is.
        rule = "first" if self.crossing == "interpolated" else self.crossing
        return climbs_of(self.submission, self.submission.target, rule)

    @cached_property
    def times(self) -> list[float | None]:
        """Seconds at which each run reached the entry's target, computed from its curve; ``None``: it did not."""
        threshold = self.submission.target.threshold
        if math.isnan(threshold):
            return [None] * len(self.submission.runs)
        return [None if climb is None else climb.time_at(threshold) for climb in self.climbs]

    def error(self, code: str, field: str, found: str, do: str) -> Finding:
        """A finding about this file that keeps it off the board."""
        return error(code, self.file, field, found, do)

    def warning(self, code: str, field: str, found: str, do: str) -> Finding:
        """A finding about this file for its reviewer."""
        return warning(code, self.file, field, found, do)

    def note(self, code: str, field: str, found: str, do: str) -> Finding:
        """A finding about this file that is only told."""
        return note(code, self.file, field, found, do)


def day_of(text: str) -> date | None:
    """The day that ``text`` (``2026-01-31``) names; ``None`` if it names none."""
    if _DAY.fullmatch(text) is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def instant_of(text: str) -> datetime | None:
    """The instant that ``text`` names with its day, time and zone; ``None`` for anything else."""
    if len(text) <= len("2026-01-31") or day_of(text[:10]) is None:
        return None
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return None
    return instant if instant.tzinfo is not None else None


def is_sha256(text: str) -> bool:
    """Whether ``text`` is 64 hexadecimal digits in lower case."""
    return _SHA_256.fullmatch(text) is not None


def shown(text: str, most: int = 60) -> str:
    """``text`` in quotes, cut to ``most`` characters, with escapes for what cannot be seen."""
    cut = text if len(text) <= most else f"{text[: most - 3]}..."
    return repr(cut) if cut.isprintable() else ascii(cut)
