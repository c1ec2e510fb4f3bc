"""The checks of an entry: what a rule finds, and what it looks at.

A finding names the file and field, what was found there and what to do. An ``error`` keeps an entry off the board, a
``warning`` is for its reviewer, a ``note`` is information. A rule is a function of a ``CheckedEntry`` and yields
findings; it opens no files and is independent of other rules.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cached_property, partial, partialmethod
from importlib import resources
from types import MappingProxyType
from typing import Literal

import msgspec
from msgspec import Struct

from levelbench.competition.entries import Setting, Submission, day_of
from levelbench.competition.rulesets import Ruleset, TaskRules, task_rules
from levelbench.competition.scoring import climbs_of, crossing_of
from levelbench.measure.crossing import RULES, Climb
from levelbench.records.schema import Target

Severity = Literal["error", "warning", "note"]
_ORDER = {"error": 0, "warning": 1, "note": 2}


class FindingCode(Struct, frozen=True, forbid_unknown_fields=True):
    """The meaning of a code, and its remedy if that is always the same; ``imported``: the remedy for an import."""

    means: str
    do: str = ""
    imported: str = ""


_CODES = msgspec.convert(
    tomllib.loads(resources.files(__package__).joinpath("codes.toml").read_text("utf-8")), dict[str, FindingCode]
)
CODES: Mapping[str, str] = MappingProxyType({name: code.means for name, code in _CODES.items()})
"""The meaning of each code. Codes are never reused."""


class EntryFinding(Struct, frozen=True, order=True):
    """One finding: ``file`` relative to the leaderboard, ``field`` as in ``runs[2].seed``."""

    code: str
    severity: Severity
    file: str
    field: str
    found: str
    do: str


def finding(severity: Severity, code: str, file: str, field: str, found: str, do: str = "") -> EntryFinding:
    """A finding of that severity; ``do`` is the remedy, by default the code's own."""
    return EntryFinding(code, severity, file, field, found, do or _CODES[code].do)


error, warning, note = partial(finding, "error"), partial(finding, "warning"), partial(finding, "note")


def worst(findings: Iterable[EntryFinding]) -> Severity | None:
    """The most serious severity among them; ``None`` if there are no findings."""
    return min((each.severity for each in findings), key=_ORDER.__getitem__, default=None)


def ordered(findings: Iterable[EntryFinding]) -> list[EntryFinding]:
    """By file, errors first, then by code and field."""
    return sorted(findings, key=lambda each: (each.file, _ORDER[each.severity], each.code, each.field))


CEILING = "ceiling.flop_s"
"""Measured floating-point operations per second of the whole system, in its fastest precision."""
CEILING_OF = "ceiling.record"
"""The record and precision of that measurement."""
FLOPS = "flops_per_sample"
"""Floating-point operations per sample, a multiply-add counting as 2: of a training step, or of an answer."""
STEP = 3.0
"""The cost of a training step in forward passes: one forward, one each for activation and weight gradients."""


class MachineLimits(Struct, frozen=True):
    """What is known about an entry apart from its own statements; ``None`` is unknown.

    ``flop_s`` is the peak operations per second of ``machine``. ``flops_per_sample`` is the cost of ``network``, which
    the entry's model is taken for (``certain``: it is the recipe that the entry names), and ``samples_per_epoch`` the
    size of the task's training data. ``fast`` is how many times fewer multiplications a fast algorithm may need: 1 for
    a network without convolutions. ``fixed_length`` says whether the recipe's schedule ends where its runs do.
    ``recipe`` holds the settings of the task's recipe that the entry names, as in levelbench ``version``; empty: the
    task has no recipe of that name. ``recipes`` are the names of all recipes of the task, if it is installed, and
    ``rollouts`` says whether their epochs are rollouts, whose size follows from settings.
    """

    flop_s: float | None = None
    machine: str = ""
    flops_per_sample: float | None = None
    network: str = ""
    certain: bool = False
    fast: float = 4.0
    fixed_length: bool = False
    samples_per_epoch: int | None = None
    recipe: Mapping[str, Setting] | None = None
    version: str = ""
    recipes: frozenset[str] | None = None
    rollouts: bool = False


_SYSTEMS = frozenset({"dawnbench", "mlperf", "algoperf", "speedrun"})
"""Systems whose files can be imported, by the beginning of the format; the names of their rules begin the same way."""
_SHA_256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class CheckedEntry:
    """An entry with its context. ``file`` is relative to the leaderboard, empty if it is in none.

    ``records`` maps SHA-256 to the names of available record files; ``None``: no comparison with records. ``raw`` are
    the bytes that it was read from, if any. ``limits`` returns what is known about an entry's machine and network.
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
        """The ruleset that the entry names, if known."""
        return self.known.get(self.submission.ruleset)

    @cached_property
    def task(self) -> TaskRules | None:
        """The rules for the entry's task in that ruleset."""
        return task_rules(self.rules, self.submission.task) if self.rules else None

    @property
    def imported(self) -> bool:
        """Whether it was read from a file of the system whose rules these are, which says less than a record.

        Under other rules an origin, which is only the author's claim, excuses nothing.
        """
        origin = self.submission.origin
        system = origin.format.partition("-")[0] if origin is not None else ""
        return system in _SYSTEMS and self.rules is not None and self.rules.name.partition("-")[0] == system

    def advice(self, ours: str, other: str) -> str:
        """The remedy: ``ours`` names a tool of levelbench, which does not help if another system made the runs."""
        return ours if self.submission.origin is None else other

    @cached_property
    def crossing(self) -> str:
        """The rule that judges the entry: its ruleset's, but a schedule of fixed length is judged at its end."""
        if self.rules is not None:
            return crossing_of(self.submission, self.rules)
        stated = self.submission.crossing
        return stated if stated is not None and stated in RULES else "first"

    @cached_property
    def known_facts(self) -> MachineLimits | None:
        """What is known apart from the entry's own statements; ``None`` without ``limits``."""
        return None if self.limits is None else self.limits(self.submission)

    @cached_property
    def climbs(self) -> list[Climb | None]:
        """Each run as the crossing rule sees it; ``None`` for a run that failed or whose curve is broken."""
        # The line into the first evaluation at the target ends at the first crossing.
        rule = "first" if self.crossing == "interpolated" else self.crossing
        return climbs_of(self.submission, self.submission.target, rule)

    @cached_property
    def times(self) -> list[float | None]:
        """Seconds at which each run reached the entry's target, computed from its curve; ``None``: it did not."""
        threshold = self.submission.target.threshold
        if math.isnan(threshold):
            return [None] * len(self.submission.runs)
        return [None if climb is None else climb.time_at(threshold) for climb in self.climbs]

    def finding(self, severity: Severity, code: str, field: str, found: str, do: str = "") -> EntryFinding:
        """A finding about this file; imports may have a remedy of their own."""
        remedy = self.advice(_CODES[code].do, _CODES[code].imported or _CODES[code].do)
        return finding(severity, code, self.file, field, found, do or remedy)

    error = partialmethod(finding, "error")
    warning = partialmethod(finding, "warning")
    note = partialmethod(finding, "note")


def nodes_used(submission: Submission) -> int:
    """How many nodes could take part: of a run that levelbench made, at most one for each of its ranks."""
    nodes, ranks = submission.hardware.nodes or 1, submission.settings.get("ranks", 1)
    ours = submission.origin is None and "recipe" in submission.settings
    return min(nodes, ranks) if ours and isinstance(ranks, int) and ranks > 0 else nodes


def instant_of(text: str) -> datetime | None:
    """The instant that ``text`` names with day, time and zone; ``None`` for anything else."""
    if len(text) <= len("2026-01-31") or day_of(text[:10]) is None:
        return None
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return None
    return instant if instant.tzinfo is not None else None


def unlike_scale(target: Target, value: float) -> str:
    """How a quality lies off the scale of ``target``, in words; empty if it lies on the scale."""
    low, high = target.ends
    on_scale = math.isfinite(value) and low <= value <= high
    return "" if on_scale else f"{value:.10g}, on a scale {target.scale}"


def is_sha256(text: str) -> bool:
    """Whether ``text`` is 64 lower-case hexadecimal digits."""
    return _SHA_256.fullmatch(text) is not None


def shown(text: str, most: int = 60) -> str:
    """``text`` in quotes, cut to ``most`` characters, with unprintable characters escaped."""
    cut = text if len(text) <= most else f"{text[: most - 3]}..."
    return repr(cut) if cut.isprintable() else ascii(cut)
