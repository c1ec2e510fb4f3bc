"""The rules that an entry is held to: what a rule finds, and what it looks at.

A finding says which file and field, what is there and what to do. An ``error`` keeps an entry off the board, a
``warning`` is for its reviewer, a ``note`` is told. A rule is a function of a ``CheckedEntry`` and yields findings; it
opens nothing and knows no other rule.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from levelbench.competition.entries import Submission, day_of
from levelbench.competition.rulesets import Ruleset, TaskRules, task_rules
from levelbench.competition.scoring import Climb, climbs_of
from levelbench.measure.crossing import RULES

if TYPE_CHECKING:
    from levelbench.competition.checks.ceilings import MachineLimits


Severity = Literal["error", "warning", "note"]
_ORDER = {"error": 0, "warning": 1, "note": 2}

CODES = MappingProxyType(
    {
        "B101": "the file cannot be read, or is not JSON",
        "B102": "the file is beyond a limit: size, depth, number of runs or of points",
        "B103": "a schema that this version does not read",
        "B104": "a key is there twice",
        "B105": "a field is missing, unknown or of another type",
        "B110": "no ruleset has that id",
        "B111": "the ruleset does not have the task",
        "B112": "the target is not the ruleset's",
        "B113": "the mode does not fit what the entry holds",
        "B114": "the file is not in the folder of its task and mode",
        "B115": "two files have names that some systems take for one",
        "B116": "the file's name has characters that a web address needs escapes for",
        "B117": "a date is not an ISO day",
        "B118": "a date is in the future",
        "B119": "the entry is older than one of its runs",
        "B120": "the entry is older than its ruleset",
        "B121": "a required field is blank",
        "B122": "no way to reach the author is given",
        "B123": "the ruleset has no such division",
        "B124": "the clock is not stated, or not the ruleset's",
        "B125": "the runs were judged by another crossing rule than the ruleset's",
        "B126": "not all runs of the group were submitted",
        "B127": "the entry was read from another system's file, as its author says",
        "B128": "runs do not state when they started",
        "B130": "columns of a curve differ in length",
        "B131": "the time of a curve does not increase, or is negative",
        "B132": "epochs or samples of a curve go back",
        "B133": "a quality is off its scale",
        "B134": "a curve is empty",
        "B135": "a curve is not the one that its digest was made of",
        "B136": "a curve has no digest",
        "B137": "a number is not finite",
        "B138": "the quality falls below the target again after it counted as reached",
        "B139": "samples and epochs of a curve do not fit together",
        "B140": "too few runs reached the target for a score",
        "B141": "a run's curve contradicts whether it reached the target",
        "B142": "a run's curve contradicts its time to the target",
        "B143": "a failed run claims to have reached the target",
        "B144": "a run that missed the target gave up before others arrived",
        "B145": "the runs are judged at their last evaluation",
        "B146": "runs that are judged at their end do not end at one place",
        "B147": "impossible time: below a microsecond, or above ten years",
        "B148": "impossible peak memory",
        "B149": "the runs are not in the order that decides the score: of their start, or of their studies",
        "B150": "fewer runs than the ruleset asks for",
        "B151": "more runs than the ruleset allows",
        "B152": "two runs have one seed",
        "B153": "a run does not state its seed",
        "B154": "one run is there twice",
        "B155": "a run was marked as doubtful when it was made",
        "B156": "the phases of a run do not sum to its time",
        "B157": "the clock of a run leaves out what the ruleset's does not",
        "B158": "energy is impossible, or has no method",
        "B159": "runs do not state their phases, so their clock cannot be checked",
        "B160": "no price, and so no cost",
        "B161": "the price has no source",
        "B162": "the price has no day, or an impossible one",
        "B163": "the price is not for on-demand use, or does not say so",
        "B164": "impossible price",
        "B165": "the price was read long before or after the entry was submitted",
        "B166": "a price lower than that of any machine",
        "B169": "a recipe of the closed division changes what it may not",
        "B170": "no link to the code",
        "B171": "the link to the code names no version",
        "B172": "a link is not http or https",
        "B173": "the code had uncommitted changes",
        "B174": "a commit is not a hexadecimal digest",
        "B175": "the data has no checksums",
        "B176": "a digest is not a SHA-256",
        "B177": "the runs were made on synthetic data",
        "B178": "a run has no digest of its record",
        "B179": "a record is missing, or is not the one that the entry was made of",
        "B180": "the software is not stated",
        "B181": "the tuning effort is not stated",
        "B182": "tuning took a negative time or sum",
        "B183": "a run differs from its record",
        "B184": "records of the same group are not in the entry",
        "B190": "faster than the machine's ceiling allows",
        "B200": "the ruleset does not have the scenario for this task",
        "B201": "too few queries, or too short a time",
        "B202": "quantiles do not rise, or have no quantile's name",
        "B203": "the mean does not lie where the quantiles say",
        "B204": "the quality is missing, off its scale, or not kept",
        "B205": "impossible latency, duration or rate",
        "B206": "impossible cost, or one that does not follow from price and latency",
        "B207": "the queries did not fit into the time",
        "B213": "the estimate's quantile is not stated, or is above it",
        "B208": "the throughput does not fit the samples and the time",
        "B209": "the server scenario lacks a rate or bound, or does not keep it",
        "B210": "a measurement calls itself invalid",
        "B211": "the batch is not 1",
        "B212": "neither latency nor throughput",
        "B214": "an audit of a measurement failed",
        "B215": "a measurement was not audited, or an audit could not tell",
        "B216": "a measurement is not ranked in its scenario",
        "B220": "text has characters that hide or steer other text",
        "B221": "text looks like markup or a script",
        "B222": "a name mixes letters of scripts that look alike",
        "B230": "the signature does not verify",
        "B231": "the signature cannot be checked here",
        "B232": "the signed author has no key in authors.toml",
        "B233": "signed with the key of another author",
        "B234": "an author with a key did not sign",
        "B235": "the key that the entry names is not the one that signed",
        "B236": "a signature without an entry",
        "B237": "the author's name looks like that of another author",
        "B238": "the entry names a key but has no signature",
        "B240": "two entries are the same",
        "B241": "two entries share a run",
        "B242": "two curves are nearly the same",
        "B243": "two measurements of inference are the same",
        "B244": "two entries name one run in different records",
        "B250": "a link, which is not followed",
        "B251": "a file that does not belong in a leaderboard",
        "B252": "a file of the leaderboard itself cannot be read",
        "B253": "a folder of the leaderboard is marked as a built site",
        "B254": "the leaderboard has no entry",
        "B255": "board.toml has a key that nothing reads",
        "B260": "not comparable with most entries of the board: other data, split, labels, inputs or quality code",
        "B261": "doubtful compared with most entries of the board: other code loads the data, or another task file",
        "B262": "the file of the task differs from that of most entries of the board",
    }
)
"""What each code means. Codes are never used again for something else."""


class EntryFinding(Struct, frozen=True, order=True):
    """One thing that is wrong: ``file`` relative to the leaderboard, ``field`` as in ``runs[2].seed``."""

    code: str
    severity: Severity
    file: str
    field: str
    found: str
    do: str


def error(code: str, file: str, field: str, found: str, do: str) -> EntryFinding:
    """A finding that keeps the entry off the board."""
    return EntryFinding(code, "error", file, field, found, do)


def warning(code: str, file: str, field: str, found: str, do: str) -> EntryFinding:
    """A finding that a reviewer should look at."""
    return EntryFinding(code, "warning", file, field, found, do)


def note(code: str, file: str, field: str, found: str, do: str) -> EntryFinding:
    """A finding that is only told."""
    return EntryFinding(code, "note", file, field, found, do)


def worst(findings: Iterable[EntryFinding]) -> Severity | None:
    """The gravest severity among them; ``None`` if there is no finding."""
    return min((each.severity for each in findings), key=_ORDER.__getitem__, default=None)


def ordered(findings: Iterable[EntryFinding]) -> list[EntryFinding]:
    """By file, errors first, then by code and field."""
    return sorted(findings, key=lambda each: (each.file, _ORDER[each.severity], each.code, each.field))


_SYSTEMS = frozenset({"dawnbench", "mlperf", "algoperf"})
"""Whose files are read into entries, by the beginning of their format; rules of theirs have names that begin so too."""
_SHA_256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class CheckedEntry:
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
    limits: Callable[[Submission], MachineLimits] | None = field(default=None, repr=False)

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
    def aside(self) -> MachineLimits | None:
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

    def error(self, code: str, field: str, found: str, do: str) -> EntryFinding:
        """A finding about this file that keeps it off the board."""
        return error(code, self.file, field, found, do)

    def warning(self, code: str, field: str, found: str, do: str) -> EntryFinding:
        """A finding about this file for its reviewer."""
        return warning(code, self.file, field, found, do)

    def note(self, code: str, field: str, found: str, do: str) -> EntryFinding:
        """A finding about this file that is only told."""
        return note(code, self.file, field, found, do)


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
