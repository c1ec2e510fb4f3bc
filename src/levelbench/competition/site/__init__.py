"""The leaderboard as a static site, which opens from a disk: what it shows of a board, its entries and itself.

Every text is as the author gave it, and whoever shows it escapes it. Nothing of a submission decides where a file is
written: an entry's slug is made of the letters and digits of its id and of a digest of the whole id.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from bisect import bisect_left
from collections.abc import Sequence
from itertools import chain
from typing import Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field

from levelbench.competition.entries import Submission
from levelbench.competition.figures import FLAGS, BoardFigure, Column, EntryScore, RankedScenario
from levelbench.competition.leaderboard import Signed
from levelbench.competition.rulesets import InferenceRules, Ruleset
from levelbench.competition.scoring import Climb, thinned
from levelbench.measure.crossing import sign_of
from levelbench.records.schema import Target
from levelbench.report.numbers import ABSENT, TIME, choose_unit, number, with_interval

_LEAST, _MOST = 1e-6, 1e15
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


class NotShown(Struct):
    """A file that is on no board, or is to be looked at, and why: a line a finding, what was found and what to do."""

    file: str
    reasons: list[str]


MOST_STEPS = 16
"""The most pairs of a run's steps that the page gets: a board of ten thousand entries of five runs is 20 MB of them."""
Rounding = Literal["ceil-seconds", "significant"]

_LONGEST_SLUG = 80
_DIGEST_BYTES = 16
_LONGEST_URL = 2000
_SHORT_BYTES = 20
"""What a pair of a quality and a time needs in the digits that are enough."""
_HALF_A_CENT = 0.005
_CLOCK_NOISE = 6
"""Decimals of a second that count before rounding up: hours times 3600 misses a whole second by less."""


def slug_of(text: str) -> str:
    """A name for files and URLs: lower-case ASCII letters, digits and hyphens, and 128 bits of a digest of ``text``.

    So many since whoever sends an entry chooses its id: of fewer bits somebody finds two texts with the same ones.
    """
    readable = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_LONGEST_SLUG].strip("-")
    raw = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:_DIGEST_BYTES]
    digest = base64.b32encode(raw).decode("ascii").rstrip("=").lower()
    return f"{readable}-{digest}" if readable else digest


def safe_url(text: str | None) -> str | None:
    """``text`` if it is a link to follow: http or https, with a host and without a password; else ``None``."""
    if not text or len(text) > _LONGEST_URL or not text.isprintable() or " " in text:
        return None
    try:
        parts = urlsplit(text)
        named = bool(parts.hostname) and parts.username is None
    except ValueError:
        return None
    return text if parts.scheme in ("http", "https") and named else None


def reached_text(score: EntryScore) -> str:
    """``5/5``; with Wilson's interval of the share where some did not arrive: ``3/5 [23 %, 88 %]``."""
    text = f"{score.reached}/{score.n}"
    if score.reached == score.n or score.reached_low is None or score.reached_high is None:
        return text
    return f"{text} [{score.reached_low * 100:.0f} %, {score.reached_high * 100:.0f} %]"


def figure_text(column: Column, figure: BoardFigure, rounding: Rounding) -> str:
    """A figure with its unit and interval, as the rules round it.

    ``ceil-seconds`` is DAWNBench's board: hours, minutes and seconds rounded up, dollars with two decimals.

    >>> figure_text("time", BoardFigure(4075.0000000004), "ceil-seconds")
    '1:07:55'
    >>> figure = BoardFigure(3.4638)
    >>> figure_text("time", figure, "significant"), figure_text("cost", figure, "ceil-seconds")
    ('3.46 s', '$3.46')
    >>> figure_text("cost", BoardFigure(1e-9), "ceil-seconds"), figure_text("cost", BoardFigure(1e-9), "significant")
    ('< $0.01', '$1e-9')
    >>> figure_text("throughput", BoardFigure(5234.0, 5200.0, 5301.0), "significant")
    '5,234/s [5,200, 5,301]'
    """
    value = figure.value
    if value is None or not math.isfinite(value):
        return ABSENT
    if rounding == "ceil-seconds" and column == "time":
        minutes, seconds = divmod(math.ceil(round(value, _CLOCK_NOISE)), 60)
        return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"
    if rounding == "ceil-seconds" and column == "cost":
        return "< $0.01" if 0.0 < value < _HALF_A_CENT else f"${value:,.2f}"
    if column == "throughput":
        head, bracket, tail = brief_interval(value, figure.low, figure.high).partition(" [")
        return f"{head}/s{bracket}{tail}"
    if column in ("time", "latency"):
        return time_estimate(value, figure.low, figure.high)
    return f"${brief_interval(value, figure.low, figure.high)}"


def entry_payload(
    id: str,
    submission: Submission,
    score: EntryScore,
    rules: Ruleset,
    *,
    signed: Signed,
    climbs: Sequence[Climb | None] = (),
) -> EntryPayload:
    """The entry without what depends on the others (ranks, findings, doubts) and without its steps (``steps_json``)."""
    slug = slug_of(id)
    price, author, origin = submission.price, submission.author, submission.origin
    climbed = [climb.best[-1] for climb in climbs if climb is not None and climb.best]
    best = max((each for each in climbed if math.isfinite(each)), default=None)
    return EntryPayload(
        id=id,
        slug=slug,
        page=f"entries/{slug}.html",
        model=submission.model,
        author=author.name,
        organisation=author.organisation or "",
        framework=submission.framework,
        hardware=submission.hardware.description,
        date=submission.submitted,
        division=submission.division,
        mode=submission.mode,
        code_url=safe_url(submission.code.url),
        price=PriceFacts(price.usd_per_hour, price.source, price.read_on) if price else None,
        signed=signed,
        figures=_figures(score, rules),
        n=score.n,
        reached=score.reached,
        reached_text=reached_text(score),
        single_run=score.n == 1,
        expected_with_restarts_s=score.expected_with_restarts_s,
        best_s=score.best_s,
        flags=[FLAGS[flag] for flag in score.flags],
        findings=FindingCounts(),
        origin=OriginFacts(origin.format, origin.file, list(origin.doubts)) if origin else None,
        times_s=list(score.times_s),
        best_quality=None if best is None else best * sign_of(score.target.direction),
    )


def _figures(score: EntryScore, rules: Ruleset) -> dict[str, FigurePayload]:
    measured: Column = "latency" if score.scenario is None else score.scenario.column
    columns: Sequence[Column] = ("time", "cost") if score.mode == "training" else (measured, "inference_cost")
    rounding, figures = rules.cost.rounding, ((column, score.figure(column)) for column in columns)
    return {
        column: FigurePayload(
            each.value, each.low, each.high, None, False, figure_text(column, each, rounding), each.how
        )
        for column, each in figures
    }


def steps_json(climbs: Sequence[Climb | None], target: Target) -> bytes:
    """The steps of each run in its order as ``EntryPayload`` has them, in JSON; none of a run that has no climb."""
    return b"[%s]" % b",".join(_run_json(climb, target) if climb is not None else b"[]" for climb in climbs)


def _run_json(climb: Climb, target: Target) -> bytes:
    """Six digits of a quality are enough to draw, if they are on the same side of the target; seven of a time."""
    climbed = climb.steps()
    if climbed and not math.isfinite(climbed[-1][0]):
        climbed.pop()
    if not climbed:
        return b"[]"
    steps, threshold = thinned(climbed, MOST_STEPS, target), target.threshold
    close = 1e-5 * max(1.0, abs(threshold))
    # Qualities are in order: if none is close, those beside the target are not.
    at = bisect_left(steps, climb.sign * threshold, key=lambda step: climb.sign * step[0])
    if all(abs(quality - threshold) > close for quality, _ in steps[max(0, at - 1) : at + 1]):
        # Figures that were given with few digits need not be printed again, which takes longest.
        short = msgspec.json.encode(list(chain.from_iterable(steps)))
        if len(short) <= _SHORT_BYTES * len(steps):
            return short
        pairs = ",".join(["%.6g,%.7g"] * len(steps))
        return b"[%s]" % (pairs % tuple(chain.from_iterable(steps))).encode()
    flat: list[float] = []
    for quality, time in steps:
        flat += [quality if abs(quality - threshold) <= close else float(f"{quality:.6g}"), float(f"{time:.7g}")]
    return msgspec.json.encode(flat)


def brief(value: float, digits: int = 3) -> str:
    """``number``, with an exponent below a millionth and from a thousand million millions on.

    >>> brief(1234.5), brief(1e-300), brief(2.078e-7), brief(1e300)
    ('1,234', '1e-300', '2.08e-7', '1e300')
    """
    return _scientific(value, digits) if _is_long(value) else number(value, digits)


def brief_interval(value: float, low: float | None, high: float | None) -> str:
    """``value [low, high]`` by the same rule; ``brief`` without an interval.

    >>> brief_interval(2.5e-9, 2e-9, 3e-9), brief_interval(0.9123, 0.8513, 0.9812)
    ('2.5e-9 [2e-9, 3e-9]', '0.91 [0.85, 0.98]')
    """
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return brief(value)
    if not any(map(_is_long, (value, low, high))):
        return with_interval(value, low, high)
    return f"{_end(value)} [{_end(low)}, {_end(high)}]"


def time_estimate(value: float, low: float | None, high: float | None) -> str:
    """Seconds in the unit that suits the value, with the interval in the same."""
    unit = choose_unit([value], TIME)
    low, high = (None if each is None else each / unit.size for each in (low, high))
    head, bracket, tail = brief_interval(value / unit.size, low, high).partition(" [")
    return f"{head} {unit.symbol}{bracket}{tail}"


def time_text(seconds: float) -> str:
    """Seconds in their unit, three significant digits.

    >>> time_text(0.0123), time_text(1e-300)
    ('12.3 ms', '1e-291 ns')
    """
    return time_estimate(seconds, None, None)


def _is_long(value: float) -> bool:
    return math.isfinite(value) and value != 0.0 and not _LEAST <= abs(value) < _MOST


def _end(value: float) -> str:
    return _scientific(value, 3) if _is_long(value) else number(value)


def _scientific(value: float, digits: int) -> str:
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    short = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{short}e{int(exponent)}"
