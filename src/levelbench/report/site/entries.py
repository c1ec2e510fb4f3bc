"""One entry as the site shows it: its facts, its figures as text, its steps, and a name that is safe in a URL.

The one idea: nothing of a submission decides where a file is written: an entry's slug is made of the letters and
digits of its id and of a digest of the whole id, so it is the same in every build and that of no other entry.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from levelbench.measure.crossing import sign_of
from levelbench.records.rulesets.schema import Ruleset
from levelbench.records.schema import Target
from levelbench.records.submissions.figures import FLAGS, Column, Figure, Score
from levelbench.records.submissions.ranking import Ranked
from levelbench.records.submissions.rules.checking import Signed
from levelbench.records.submissions.scenarios import RankedScenario
from levelbench.records.submissions.schema import Submission
from levelbench.records.submissions.steps import Climb, thinned
from levelbench.report.numbers import ABSENT
from levelbench.report.site.brief import brief_interval, time_estimate
from levelbench.report.site.payload import (
    EntryPayload,
    FigurePayload,
    FindingCounts,
    Further,
    OriginFacts,
    PriceFacts,
)

__all__ = [
    "MOST_STEPS",
    "entry_payload",
    "figure_text",
    "further_of",
    "reached_text",
    "safe_url",
    "slug_of",
    "steps_json",
    "with_rank",
]

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


def reached_text(score: Score) -> str:
    """``5/5``; with Wilson's interval of the share where some did not arrive: ``3/5 [23 %, 88 %]``."""
    text = f"{score.reached}/{score.n}"
    if score.reached == score.n or score.reached_low is None or score.reached_high is None:
        return text
    return f"{text} [{score.reached_low * 100:.0f} %, {score.reached_high * 100:.0f} %]"


def figure_text(column: Column, figure: Figure, rounding: Rounding) -> str:
    """A figure with its unit and interval, as the rules round it.

    ``ceil-seconds`` is DAWNBench's board: hours, minutes and seconds rounded up, dollars with two decimals.

    >>> figure_text("time", Figure(4075.0000000004), "ceil-seconds")
    '1:07:55'
    >>> figure_text("time", Figure(3.4638), "significant"), figure_text("cost", Figure(3.4638), "ceil-seconds")
    ('3.46 s', '$3.46')
    >>> figure_text("cost", Figure(1e-9), "ceil-seconds"), figure_text("cost", Figure(1e-9), "significant")
    ('< $0.01', '$1e-9')
    >>> figure_text("throughput", Figure(5234.0, 5200.0, 5301.0), "significant")
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
    score: Score,
    rules: Ruleset,
    *,
    signed: Signed,
    climbs: Sequence[Climb | None] = (),
) -> EntryPayload:
    """The entry without what depends on the others (ranks, findings, doubts) and without its steps (``steps_json``)."""
    slug = slug_of(id)
    price, author = submission.price, submission.author
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
        origin=_origin(submission),
        times_s=list(score.times_s),
        best_quality=_best(climbs, score.target),
    )


def further_of(score: Score, apart: RankedScenario | None, rules: Ruleset) -> Further:
    """What the entry has of its own in a further scenario; ``apart``: which has a board apart."""
    return Further(
        scenario=apart,
        figures=_figures(score, rules),
        n=score.n,
        reached=score.reached,
        reached_text=reached_text(score),
        single_run=score.n == 1,
        flags=[FLAGS[flag] for flag in score.flags],
    )


def _figures(score: Score, rules: Ruleset) -> dict[str, FigurePayload]:
    measured: Column = "latency" if score.scenario is None else score.scenario.column
    columns: Sequence[Column] = ("time", "cost") if score.mode == "training" else (measured, "inference_cost")
    return {column: _figure(column, score.figure(column), rules.cost.rounding) for column in columns}


def _best(climbs: Sequence[Climb | None], target: Target) -> float | None:
    """The best quality that counts as reached in any run."""
    known = [climb.best[-1] for climb in climbs if climb is not None and climb.best]
    best = max((each for each in known if math.isfinite(each)), default=None)
    return None if best is None else best * sign_of(target.direction)


def with_rank(figure: FigurePayload, place: Ranked) -> FigurePayload:
    """The figure with its place among the others."""
    return FigurePayload(figure.value, figure.low, figure.high, place.rank, place.shared, figure.text, figure.note)


def _figure(column: Column, figure: Figure, rounding: Rounding) -> FigurePayload:
    return FigurePayload(
        figure.value, figure.low, figure.high, None, False, figure_text(column, figure, rounding), figure.how
    )


def _origin(submission: Submission) -> OriginFacts | None:
    origin = submission.origin
    return OriginFacts(origin.format, origin.file, list(origin.doubts)) if origin else None


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
        return b"[%s]" % (_pairs(len(steps)) % tuple(chain.from_iterable(steps))).encode()
    flat: list[float] = []
    for quality, time in steps:
        flat += [quality if abs(quality - threshold) <= close else float(f"{quality:.6g}"), float(f"{time:.7g}")]
    return msgspec.json.encode(flat)


@lru_cache(maxsize=64)
def _pairs(count: int) -> str:
    return ",".join(["%.6g,%.7g"] * count)
