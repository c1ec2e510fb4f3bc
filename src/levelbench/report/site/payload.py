"""What the page's script reads: one leaderboard's facts and entries, as a script that carries nothing but data.

The one idea: a page opens from a folder, where a script may not fetch a file but may be one. So the data are JSON
inside one call, ``window.levelbench.board({...});``, in which no character can end a script or a line. Every text is
as the author gave it: whoever shows it escapes it (``textContent``).

What an entry's own page gets differs in two ways, so that a board of ten thousand is not rendered again when one entry
comes: its :class:`BoardPayload` has no entries, and its figures have no rank (``None``), since both change with others.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

import msgspec
from msgspec import Struct, field, structs

from levelbench.records.schema import Target
from levelbench.records.submissions.figures import COLUMNS, Column

__all__ = [
    "BOARD_SCHEMA",
    "COLUMNS",
    "BoardPayload",
    "Column",
    "EntryPayload",
    "FigurePayload",
    "FindingCounts",
    "Leader",
    "NotShown",
    "OriginFacts",
    "PriceFacts",
    "RulesetFacts",
    "SiteFacts",
    "TaskCard",
    "script",
]

BOARD_SCHEMA = 1


# The collector need not follow what can be in no cycle (``gc=False``): a board has a hundred thousand of these.
class FigurePayload(Struct, gc=False):
    """One figure: seconds (``time``, ``latency``), US dollars (``cost``) or those per million answers.

    ``text`` is how it is printed (a dash without a value); ``note`` says how it was made, or why it is not there.
    ``rank`` counts from 1 (``None``: unranked, or an entry's own page); ``shared`` says that others have it too ("3=").
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

    ``steps`` has for each run ``[quality, time_s]`` pairs, both getting better and later: from ``time_s`` on, the
    quality counts as reached under the ruleset's crossing rule. The time of a run at any target is therefore the first
    pair at it or beyond, none if there is none. A run that failed has no pair.

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
    steps: list[list[tuple[float, float]]]


class RulesetFacts(Struct):
    """The rules of this board. ``aggregation`` is a sentence; rule, runs and drop are what it is made of."""

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


class BoardPayload(Struct):
    """One task under one ruleset. ``progress`` has ``[date, value, index of the entry]`` for each record, oldest first.

    ``modes`` are those that an entry has. ``page``, ``data`` and ``slug`` say where this board is, relative to the
    site's root. ``generated`` is the ISO day on which its content last changed.
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


class Leader(Struct):
    """The first of one column: who, what, how much."""

    column: Column
    model: str
    author: str
    text: str
    page: str


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


class NotShown(Struct):
    """A file that is on no board, and why: one line a finding, each saying what was found and what to do."""

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
    feed: str = ""
    """Where the feed of new entries is, relative to the root; empty if there is none."""


_UNSAFE = {b"<": b"\\u003c", b">": b"\\u003e", b"&": b"\\u0026"}
_UNSAFE |= {"\u2028".encode(): b"\\u2028", "\u2029".encode(): b"\\u2029"}


def script(payload: BoardPayload, steps: Mapping[str, bytes] = MappingProxyType({})) -> bytes:
    """The payload as the text of a script (UTF-8) that is safe in its own file and between ``<script>`` tags.

    ``steps`` are entries' steps by id, as JSON already, in place of those in the payload. Figures that are not finite
    become ``null``. The five characters that could end a script or a line occur in JSON only inside strings, where an
    escape means the same.
    """
    if steps:
        # The field is written as it is: a list and its JSON are the same to whoever reads the script.
        raw: Any = {id: msgspec.Raw(text) for id, text in steps.items()}
        whole = [structs.replace(each, steps=raw.get(each.id, each.steps)) for each in payload.entries]
        payload = structs.replace(payload, entries=whole)
    text = msgspec.json.encode(payload)
    for character, escape in _UNSAFE.items():
        text = text.replace(character, escape)
    return b"window.levelbench.board(" + text + b");\n"
