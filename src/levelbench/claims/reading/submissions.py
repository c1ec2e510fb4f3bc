"""Entries of a leaderboard as claims: ours, DAWNBench's, and what was made of MLPerf's logs.

The one idea: an entry's figure is computed from its curves under its own rules, as the leaderboard does it; what its
author says of it besides is taken as stated, and what the format has no place for is not stated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from levelbench.claims.reading.clocks import clock_of
from levelbench.claims.reading.entry_parts import (
    data_of,
    hardware_of,
    is_ours,
    options_of,
    runs_of,
    setup_of,
    workload_of,
)
from levelbench.claims.reading.inference_sides import inference_claim
from levelbench.claims.reading.run_sides import mean_of, split_of
from levelbench.claims.view import Claim, QualityView, Side, Summarised, TimingView, TuningView
from levelbench.competition.entries import Submission
from levelbench.competition.exchange.dawnbench import read_entry
from levelbench.competition.figures import EntryScore
from levelbench.competition.reading import read_bytes, read_submission
from levelbench.competition.rulesets.registry import Ruleset, rulesets
from levelbench.competition.scoring import score
from levelbench.errors import RecordError

__all__ = ["entry_kind", "read_submission_file", "submission_claim"]

_CLOCK = "the clock of the competition: stated by the author, one figure an evaluation"
_OURS = "one monotonic clock; phases that sum to it within 1 %"
_LOG = "time stamps of a log, from run_start to run_stop"
_REPORTED: dict[str, Literal["olympic", "median", "single"]] = {
    "olympic": "olympic",
    "median": "median",
    "first-run": "single",
}


def read_submission_file(path: str | Path, rules: Mapping[str, Ruleset] | None = None) -> list[Claim]:
    """The claim in one file: a submission, or an entry of DAWNBench's with its curve beside it.

    ``rules`` are the rulesets that entries may name, by id: those that ship, if none are given. Raises ``RecordError``
    for whatever is neither.
    """
    path = Path(path)
    entry = read_entry(path) if entry_kind(path) == "dawnbench" else read_submission(path)
    return [submission_claim(entry, str(path), rules)]


def entry_kind(path: Path) -> Literal["dawnbench", "submission"] | None:
    """Which entry the JSON file at ``path`` has the keys of; ``None`` for another object.

    What is no JSON is taken for a submission, whose reader says what is wrong with it.
    """
    try:
        found = msgspec.json.decode(read_bytes(path).removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, RecordError):
        return "submission"
    if not isinstance(found, dict):
        return None
    if {"author", "hardware", "timestamp"} <= found.keys() and "schema" not in found:
        return "dawnbench"
    return "submission" if {"ruleset", "task"} & found.keys() and "hardware" in found else None


@cache
def _shipped() -> dict[str, Ruleset]:
    return {each.id: each for each in rulesets()}


def submission_claim(
    entry: Submission, where: str, rulesets_by_id: Mapping[str, Ruleset] | None = None, read_from: str = ""
) -> Claim:
    """The claim that ``entry`` makes; ``where`` is what findings name as their place."""
    origin = entry.origin.format if entry.origin else ""
    read_from = read_from or ("dawnbench" if origin == "dawnbench" else "submission")
    title = f"{entry.task}: {entry.model} on {entry.hardware.description}, {entry.author.name}"
    if entry.mode == "inference":
        return inference_claim(entry, title, where, read_from)
    # A ruleset that nobody here has: the entry is read, and has no figure.
    rules = (_shipped() if rulesets_by_id is None else rulesets_by_id).get(entry.ruleset)
    scored = score(entry, rules) if rules else None
    side = _side(entry, rules, scored, where)
    return Claim(
        title=title,
        sides=[side],
        task=entry.task,
        read_from=read_from,
        summaries=_summaries(scored, rules, side),
        where=where,
    )


def _side(entry: Submission, rules: Ruleset | None, scored: EntryScore | None, where: str) -> Side:
    interval = None
    if scored and scored.time.low is not None and scored.time.high is not None and math.isfinite(scored.time.high):
        interval = scored.time.low, scored.time.high
    origin = entry.origin.format if entry.origin else ""
    prepared = 0.0 if origin else max((run.excluded_s.get("prepare", 0.0) for run in entry.runs), default=0.0)
    several = len(entry.runs) > 1
    setup = setup_of(entry)
    return Side(
        name=entry.model,
        time_s=scored.time.value if scored else None,
        time_of="target",
        reported=_REPORTED.get(rules.aggregation.rule) if rules else None,
        runs_made=len(entry.runs) if is_ours(entry) else None,
        runs_reached=scored.reached if scored and (several or is_ours(entry)) else None,
        interval=interval,
        runs=runs_of(entry, scored.times_s if scored else (), where),
        framework=entry.framework if entry.framework != "not stated" else None,
        year=_year(entry.submitted),
        source=entry.code.url,
        cost_usd=scored.cost.value if scored else None,
        quality=_quality(entry),
        clock=clock_of(
            entry.clock or (rules.clock if rules else None),
            entry.crossing or (rules.crossing if rules else None),
            initialised_s=prepared,
        ),
        data=data_of(entry),
        timing=TimingView(method=_LOG if origin.startswith("mlperf") else _OURS if is_ours(entry) else None),
        hardware=hardware_of(entry),
        workload=workload_of(entry),
        tuning=TuningView(entry.tuning.trials, entry.tuning.hours, entry.tuning.usd),
        performance=setup,
        accuracy=setup,
        where=where,
    )


def _year(day: str) -> int | None:
    return int(day[:4]) if day[:4].isascii() and day[:4].isdigit() else None


def _quality(entry: Submission) -> QualityView:
    """What the curves end with: on the target's split, which is the one that stopped them."""
    ends = [run.curve.quality[-1] for run in entry.runs if run.curve.quality and run.status == "done"]
    found = mean_of(ends)
    inside = found.interval if found else None
    split = split_of(entry.target.split)
    tested = any("test" in run.test_quality for run in entry.runs)
    return QualityView(
        metric=entry.target.metric,
        value=found.value if found else None,
        low=inside.low if inside else None,
        high=inside.high if inside else None,
        target=entry.target.threshold,
        direction=entry.target.direction,
        split=split,
        stopping_split=split,
        test_looks=1 if tested and split != "test" else None,
        signature=_text(options_of(entry).get("signature")),
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _summaries(scored: EntryScore | None, rules: Ruleset | None, side: Side) -> list[Summarised]:
    """How several runs became one figure."""
    if scored is None or rules is None or scored.n < 2 or scored.time.value is None:
        return []
    by: Literal["olympic", "median"] | None = None
    if rules.aggregation.rule in ("olympic", "median"):
        by = "olympic" if rules.aggregation.rule == "olympic" else "median"
    return [
        Summarised(
            what=f"time to accuracy of {side.name}",
            of="times",
            by=by,
            n=scored.n,
            value=scored.time.value,
            interval=side.interval,
            interval_by=_how(scored.time.how) if side.interval else None,
            deterministic=False,
            raw_available=True,
            where=side.where,
        )
    ]


def _how(words: str) -> str:
    """What the figure says of its interval, after the first comma or semicolon."""
    return words.rpartition("; ")[2]
