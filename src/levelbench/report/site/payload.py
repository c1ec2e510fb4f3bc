"""What the site shows of a board, its entries and itself.

The one idea: every text is as the author gave it, and whoever shows it escapes it.

What an entry's own page gets differs in two ways: its :class:`BoardPayload` has no entries, and its figures have no
rank (``None``). So its page changes with nobody else's figures.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from levelbench.records.rulesets.schema import InferenceRules
from levelbench.records.schema import Target
from levelbench.records.submissions.figures import COLUMNS, MORE_IS_BETTER, Column
from levelbench.records.submissions.scenarios import RankedScenario

__all__ = [
    "BOARD_SCHEMA",
    "COLUMNS",
    "DIVISIONS",
    "MORE_IS_BETTER",
    "BoardPayload",
    "Column",
    "EntryPayload",
    "FigurePayload",
    "FindingCounts",
    "Further",
    "Leader",
    "NotShown",
    "OriginFacts",
    "PriceFacts",
    "RulesetFacts",
    "SiteFacts",
    "TaskCard",
]

BOARD_SCHEMA = 1
DIVISIONS: tuple[Literal["closed", "open"], ...] = ("closed", "open")
"""In the order of a board. Entries are ranked within theirs: what another may change would decide who is first."""


# The collector need not follow what can be in no cycle (``gc=False``): a board has a hundred thousand of these.
class FigurePayload(Struct, gc=False):
    """One figure: seconds (``time``, ``latency``), answers a second, US dollars (``cost``) or per million answers.

    ``text`` is how it is printed (a dash without a value); ``note`` says how it was made, or why it is not there.
    ``rank`` counts from 1 within the division (``None``: unranked, or an entry's own page); ``shared`` says that others
    have it too ("3=").
    """

    value: float | None
    low: float | None
    high: float | None
    rank: int | None
    shared: bool
    text: str
    note: str


class PriceFacts(Struct, gc=False):
    """US dollars an hour of the whole system, where that is from and when it was read."""

    usd_per_hour: float
    source: str | None = None
    read_on: str | None = None


class FindingCounts(Struct, gc=False):
    """How many findings of each severity the check has."""

    errors: int = 0
    warnings: int = 0


class OriginFacts(Struct, gc=False):
    """Which other system's file an entry was read from, and what is doubtful in it."""

    format: str
    file: str
    doubts: list[str] = field(default_factory=list)


class EntryPayload(Struct, gc=False):
    """One entry. ``slug`` is safe in a URL and a file's name; ``page`` is relative to the site's root.

    ``steps`` has for each run pairs of quality and time in seconds, one after another in one list, both getting better
    and later: from the time on, the quality counts as reached under the ruleset's crossing rule. The time of a run at
    any target is therefore that of the first pair at it or beyond, none if there is none. One that failed has no pair.

    The time of the entry at another target, as ``figures["time"]`` has it at its own, by ``ruleset.aggregation_rule``:
    ``median``: the usual median if all runs arrive; else the value of rank ceil(n / 2) with the runs that do not arrive
    behind all others, none if that is one of them. ``olympic``: see ``ruleset.drop``. ``first-run``: the first run.
    """

    id: str
    slug: str
    page: str
    model: str
    author: str
    organisation: str
    framework: str
    hardware: str
    date: str
    division: Literal["closed", "open"]
    mode: Literal["training", "inference"]
    code_url: str | None
    price: PriceFacts | None
    signed: Literal["signed", "unsigned", "wrong"]
    figures: dict[str, FigurePayload]
    n: int
    reached: int
    reached_text: str
    single_run: bool
    expected_with_restarts_s: float | None
    best_s: float | None
    flags: list[str]
    findings: FindingCounts
    origin: OriginFacts | None
    lint: str = ""
    """What the linter says, in short: codes of its rules, or that it found nothing; empty: it was not asked."""
    times_s: list[float | None] = []
    """When each run reached the target, in its order; ``None`` for one that did not. None of an entry of inference."""
    best_quality: float | None = None
    """The best that counts as reached in any run, ``None`` where nothing does: no curve can be drawn then."""
    steps: list[list[float]] = []
    doubts: list[str] = []
    """Why its figures may not be comparable with those of the other entries: shown beside its rank."""


class Further(Struct, array_like=True, gc=False):
    """What an entry of inference has of its own in a further scenario: which has a board apart if any, and its figures.

    The rest is as in ``EntryPayload``, and the same in all of its scenarios.
    """

    scenario: RankedScenario | None
    figures: dict[str, FigurePayload]
    n: int
    reached: int
    reached_text: str
    single_run: bool
    flags: list[str]


class RulesetFacts(Struct):
    """The rules of this board. ``aggregation`` is a sentence; what it is made of is as in ``Aggregation``."""

    id: str
    name: str
    version: str
    date: str
    source: str
    clock: str
    crossing: str
    aggregation: str
    aggregation_rule: Literal["first-run", "olympic", "median"]
    runs: int
    drop: int
    rounding: Literal["ceil-seconds", "significant"]
    best_of: int = 1
    windows: Literal["lower", "upper", "mean"] | None = None


class BoardPayload(Struct):
    """One task under one ruleset. ``progress`` has ``[date, value, index of the entry]`` for each record, oldest first.

    Its inference is of the scenario that the rules name first; each other one has a board of its own, ``scenario``.
    A record is one of its division. ``modes`` are those that an entry has. ``page``, ``data`` and ``slug`` say where
    this board is, relative to the site's root, ``steps`` where the entries' steps are if they are too many to be in
    ``data``. ``generated`` is the ISO day on which it was built. ``compared`` says in short which latency
    or throughput the column has ("single-stream, 90th percentile"), empty where the rules have no inference.
    """

    schema: int
    title: str
    generated: str
    slug: str
    page: str
    data: str
    ruleset: RulesetFacts
    task: str
    task_title: str
    target: Target
    modes: list[Literal["training", "inference"]]
    entries: list[EntryPayload]
    progress: dict[str, list[tuple[str, float, int]]]
    steps: str = ""
    inference: InferenceRules | None = None
    compared: str = ""
    scenario: RankedScenario | None = None
    about: str = ""
    """What a board that is apart compares, in place of the target."""

    def divisions(self) -> list[str]:
        """Those that an entry is in."""
        present = {entry.division for entry in self.entries}
        return [division for division in DIVISIONS if division in present]


class Leader(Struct):
    """The first of one column: who, what, how much; ``division`` is empty where all entries are in one."""

    column: Column
    model: str
    author: str
    text: str
    page: str
    division: str = ""
    standing: str = ""
    """What the figure rests on and with how many it shares the rank."""


class TaskCard(Struct):
    """One board as the index shows it."""

    slug: str
    page: str
    task: str
    title: str
    target: Target
    ruleset: RulesetFacts
    modes: list[Literal["training", "inference"]]
    entries: int
    newest: str
    leaders: list[Leader]
    about: str = ""
    """What the board compares, in place of the target; empty: the target says it."""


class NotShown(Struct):
    """A file that is on no board, or is to be looked at, and why: a line a finding, what was found and what to do."""

    file: str
    reasons: list[str]


class SiteFacts(Struct):
    """The whole site: its title, where it will be (``""``: anywhere), what made it and what it does not show."""

    title: str
    generated: str
    url: str
    version: str
    entries: int
    not_shown: list[NotShown] = field(default_factory=list)
    near: list[NotShown] = field(default_factory=list)
    feed: str = ""
    """Where the feed of new entries is, relative to the root; empty if there is none."""
