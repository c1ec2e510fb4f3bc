"""The leaderboard as a static site that opens from disk: the data of a board, its entries and itself.

Texts are as the authors gave them and are escaped when shown. Nothing in a submission decides where a file is written:
an entry's slug consists of the letters and digits of its id and of a digest of the whole id.
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
from levelbench.competition.figures import (
    ALPHA,
    COLUMNS,
    FLAGS,
    BoardFigure,
    Column,
    EntryScore,
    RankedScenario,
)
from levelbench.competition.leaderboard import Signed
from levelbench.competition.rulesets import InferenceRules, RankedBy, Ruleset
from levelbench.competition.scoring import thinned
from levelbench.measure.crossing import Climb, sign_of
from levelbench.measure.statistics.values import p_text
from levelbench.records.schema import Target
from levelbench.report.numbers import ABSENT, ENERGY, TIME, Unit, choose_unit, number, with_interval

_LEAST, _MOST = 1e-6, 1e15
BOARD_SCHEMA = 1


# The garbage collector may skip these acyclic objects (``gc=False``): a board has a hundred thousand of them.
class FigurePayload(Struct, gc=False, omit_defaults=True):
    """One figure: seconds (``time``, ``latency``), US dollars (``cost``) or per million answers, joules, or a number.

    ``text`` is its printed form (a dash without a value); ``note`` says how it was made, or why it is missing. ``rank``
    counts from 1 within the division (``None``: unranked, or an entry's own page); ``shared``: another value is equal
    ("3="). ``best``, ``worst``, ``p_above`` and ``why`` are as in ``Placing``; ``sample`` is dropped once ranks exist.
    """

    value: float | None
    low: float | None
    high: float | None
    rank: int | None
    shared: bool
    text: str
    note: str
    best: int | None = None
    worst: int | None = None
    p_above: float | None = None
    why: str = ""
    sample: tuple[float | None, ...] = ()

    @property
    def reason(self) -> str:
        """Why it has no value, or no rank; empty if it has one."""
        return self.note if self.value is None else self.why

    @property
    def ranks(self) -> str:
        """The ranks that the tests leave open: ``1 to 3``, or only ``2``; empty without tests."""
        if self.best is None or self.worst is None:
            return ""
        return str(self.best) if self.best == self.worst else f"{self.best} to {self.worst}"

    @property
    def against(self) -> str:
        """How it compares with the one above it by the test; empty without one."""
        if self.p_above is None:
            return ""
        apart = "distinguishable" if self.p_above < ALPHA else "not distinguishable"
        return f"{apart} from the one above, {p_text(self.p_above)}"


class PriceFacts(Struct, gc=False):
    """US dollars per hour of the whole system, the source of the price and when it was read."""

    usd_per_hour: float
    source: str | None = None
    read_on: str | None = None


class FindingCounts(Struct, gc=False):
    """The number of findings of each severity."""

    errors: int = 0
    warnings: int = 0


class OriginFacts(Struct, gc=False):
    """The foreign file that an entry was read from, and the doubts about it."""

    format: str
    file: str
    doubts: list[str] = field(default_factory=list)


class EntryPayload(Struct, gc=False):
    """One entry. ``slug`` is safe in URLs and file names; ``page`` is relative to the site's root.

    ``steps`` has for each run a flat list of pairs of quality and time in seconds, both increasing towards better and
    later: from that time on, the quality counts as reached under the ruleset's crossing rule. So the time of a run at
    any target is that of the first pair at or beyond it, if any. A failed run has no pairs.

    The time of the entry at another target, as ``figures["time"]`` has it at its own, follows
    ``ruleset.aggregation_rule``: ``median``: the usual median if all runs arrive; else the value of rank ceil(n / 2)
    with the missing runs last, none if that is a missing one. ``olympic``: see ``ruleset.drop``. ``first-run``: the
    first run. ``mean-test`` has no figure at other targets.
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
    division: str
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
    """A summary of the linter's remarks: the codes of its rules, or that it found nothing; empty: it did not run."""
    times_s: list[float | None] = []
    """When each run reached the target, in order; ``None`` if it did not. Empty for inference."""
    best_quality: float | None = None
    """The best quality that counts as reached in any run, ``None`` if none does: then no curve can be drawn."""
    steps: list[list[float]] = []
    doubts: list[str] = []
    """Why its figures may not be comparable with those of other entries: shown next to its rank."""
    machine: str = ""
    """The mark of the machine that its records describe, equal for equal machines; empty: none is described."""
    rerun: str = ""
    """How the organiser's re-run of this very file ended, with ratios, date and machine; empty: there was none."""
    private: str = ""
    """How the organiser scored it on a private test set, or that nobody did; empty: the rules have none."""
    differs: dict[str, str] = {}
    """What sets it apart from the board's other entries of its author and model; all of its traits before ranking."""


class RulesetFacts(Struct):
    """The rules of this board. ``aggregation`` is a sentence; its parts are as in ``Aggregation``."""

    id: str
    name: str
    version: str
    date: str
    source: str
    clock: str
    crossing: str
    aggregation: str
    aggregation_rule: Literal["first-run", "olympic", "median", "mean-test"]
    runs: int
    drop: int
    rounding: Literal["ceil-seconds", "significant"]
    best_of: int = 1
    windows: Literal["lower", "upper", "mean"] | None = None
    by_test: bool = False
    ranked_by: RankedBy = "time"
    deadline: str = ""
    machine: str = ""
    """The machine that every entry has to run on, in words; empty: any."""
    divisions: list[str] = field(default_factory=lambda: ["closed", "open"])
    """In the order of a board. Entries are ranked within their division, since its rules affect who can be first."""
    frozen: str = ""
    """The day on which the round was frozen; empty: it is open."""


class BoardPayload(Struct):
    """One task under one ruleset. ``progress`` has ``[date, value, index of the entry]`` for each record, oldest first.

    Its inference is of the first scenario in the rules; each other one has a separate board with ``scenario`` set.
    Records are per division. ``modes`` are those of its entries. ``page``, ``data`` and ``slug`` locate this board,
    relative to the site's root; ``steps`` locates the entries' steps if they are too large for ``data``. ``generated``
    is the ISO day of the build. ``compared`` names the latency or throughput in the column ("single-stream, 90th
    percentile"), empty if the rules have no inference.
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
    """What a separate board compares, shown instead of the target."""
    unit: str = ""
    """What the rules call the quality in print; empty: the metric's own name."""

    def columns(self) -> list[Column]:
        """All columns, first the one that the rules rank training by."""
        return sorted(COLUMNS, key=lambda each: each != self.ruleset.ranked_by)

    def divisions(self) -> list[str]:
        """The divisions with entries: those that only imports may have, then those of the rules in their order."""
        present, own = {entry.division for entry in self.entries}, self.ruleset.divisions
        return [*sorted(present.difference(own)), *(each for each in own if each in present)]


class Leader(Struct):
    """The first entry of one column and its figure; ``division`` is empty if all entries are in one."""

    column: Column
    model: str
    author: str
    text: str
    page: str
    division: str = ""
    standing: str = ""
    """What the figure rests on, and how many others share the rank."""


class NotShown(Struct):
    """A file that is on no board, or needs a look, and why: a line per finding, what was found and what to do."""

    file: str
    reasons: list[str]


MOST_STEPS = 16
"""The most steps per run that the page gets: ten thousand entries of five runs are then 20 MB."""
Rounding = Literal["ceil-seconds", "significant"]

_LONGEST_SLUG = 80
_DIGEST_BYTES = 16
_LONGEST_URL = 2000
_SHORT_BYTES = 20
"""The bytes of a pair of quality and time with just enough digits."""
_HALF_A_CENT = 0.005
_CLOCK_NOISE = 6
"""Decimals of a second that count when rounding up: hours times 3600 miss a whole second by less."""


def slug_of(text: str) -> str:
    """A name for files and URLs: lower-case ASCII letters, digits and hyphens, and a 128-bit digest of ``text``.

    The submitter chooses the id: with fewer bits somebody could find two texts with the same digest.
    """
    readable = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_LONGEST_SLUG].strip("-")
    raw = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:_DIGEST_BYTES]
    digest = base64.b32encode(raw).decode("ascii").rstrip("=").lower()
    return f"{readable}-{digest}" if readable else digest


def safe_url(text: str | None) -> str | None:
    """``text`` if it is a safe link: http or https, with a host and without a password; else ``None``."""
    if not text or len(text) > _LONGEST_URL or not text.isprintable() or " " in text:
        return None
    try:
        parts = urlsplit(text)
        named = bool(parts.hostname) and parts.username is None
    except ValueError:
        return None
    return text if parts.scheme in ("http", "https") and named else None


def reached_text(score: EntryScore) -> str:
    """``5/5``; if some runs missed the target, with Wilson's interval of the share: ``3/5 [23 %, 88 %]``."""
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
    >>> figure_text("steps", BoardFigure(4680.0), "significant"), figure_text("energy", BoardFigure(5e4), "significant")
    ('4,680 steps', '50 kJ')
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
        return time_text(value, figure.low, figure.high)
    if column in ("samples", "steps", "energy"):
        return _in_units(value, figure.low, figure.high, ENERGY if column == "energy" else (Unit(column),))
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
    """The entry without its steps (``steps_json``) and without what depends on others (ranks, findings, doubts)."""
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
        machine=machine_mark(submission),
        differs=_traits(submission),
    )


def machine_mark(submission: Submission) -> str:
    """The first digits of the machine's mark in the entry's environment; empty if there is none."""
    return submission.provenance.environment.get("machine.id", "")[:6]


def _traits(submission: Submission) -> dict[str, str]:
    """What may set an entry apart from others of its author and model."""
    traits = {
        "hardware": submission.hardware.description,
        "framework": submission.framework,
        **{name: str(value)[:60] for name, value in submission.settings.items()},
        "commit": (submission.code.commit or "")[:10],
        "code": (submission.provenance.source_digest or "")[:10],
        "version": submission.provenance.version or "",
    }
    return {name: text for name, text in traits.items() if text}


def _figures(score: EntryScore, rules: Ruleset) -> dict[str, FigurePayload]:
    measured: Column = "latency" if score.scenario is None else score.scenario.column
    columns: Sequence[Column] = (measured, "inference_cost")
    if score.mode == "training":
        columns = tuple(dict.fromkeys((rules.ranked_by, "time", "cost")))
        if score.energy.value is not None and "energy" not in columns:
            columns = (*columns, "energy")
    rounding, figures = rules.cost.rounding, ((column, score.figure(column)) for column in columns)
    return {
        column: FigurePayload(
            *(each.value, each.low, each.high, None, False, figure_text(column, each, rounding), each.how),
            sample=each.sample,
        )
        for column, each in figures
    }


def steps_json(climbs: Sequence[Climb | None], target: Target) -> bytes:
    """The steps of each run, in the form of ``EntryPayload``, as JSON; empty for a run without a climb."""
    return b"[%s]" % b",".join(_run_json(climb, target) if climb is not None else b"[]" for climb in climbs)


def _run_json(climb: Climb, target: Target) -> bytes:
    """Six digits of a quality suffice to draw it if they keep it on its side of the target; seven of a time."""
    climbed = climb.steps()
    if climbed and not math.isfinite(climbed[-1][0]):
        climbed.pop()
    if not climbed:
        return b"[]"
    steps, threshold = thinned(climbed, MOST_STEPS, target), target.threshold
    close = 1e-5 * max(1.0, abs(threshold))
    # Qualities are sorted: if those next to the target are not close to it, none is.
    at = bisect_left(steps, climb.sign * threshold, key=lambda step: climb.sign * step[0])
    if all(abs(quality - threshold) > close for quality, _ in steps[max(0, at - 1) : at + 1]):
        # Figures with few digits need no formatting, which is the slowest part.
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
    """``number``, with an exponent below a millionth and from 1e15 on.

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


def time_text(seconds: float, low: float | None = None, high: float | None = None) -> str:
    """Seconds in the unit that suits them, three significant digits; an interval in the same unit.

    >>> time_text(0.0123), time_text(1e-300)
    ('12.3 ms', '1e-291 ns')
    """
    return _in_units(seconds, low, high, TIME)


def _in_units(value: float, low: float | None, high: float | None, units: tuple[Unit, ...]) -> str:
    unit = choose_unit([value], units)
    low, high = (None if each is None else each / unit.size for each in (low, high))
    head, bracket, tail = brief_interval(value / unit.size, low, high).partition(" [")
    return f"{head} {unit.symbol}{bracket}{tail}"


def _is_long(value: float) -> bool:
    return math.isfinite(value) and value != 0.0 and not _LEAST <= abs(value) < _MOST


def _end(value: float) -> str:
    return _scientific(value, 3) if _is_long(value) else number(value)


def _scientific(value: float, digits: int) -> str:
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    short = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{short}e{int(exponent)}"
