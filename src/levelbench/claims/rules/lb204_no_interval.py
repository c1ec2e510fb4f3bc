"""LB204: a figure that varies from run to run is given as if it did not."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import (
    far_worse,
    guilty,
    level_of,
    not_stated,
    number,
    pairs,
    percent,
    seconds,
    sides,
)
from levelbench.claims.rules._runs import sample_of, side_rates, side_times
from levelbench.claims.view import Claim, Side, Summarised
from levelbench.measure.statistics import wilson
from levelbench.report.numbers import plural

_DO = "give a confidence interval with its method, from runs repeated whole; or show that the figure cannot vary"
_ALL = "give the expected time with restarts, or an interval that counts runs that miss, with the share that reached it"
_COUNTS_ALL = re.compile(r"restart|kaplan|surviv|censor", re.IGNORECASE)
_SAYS_ALL = re.compile(r"\bexpected time|kaplan[- ]meier", re.IGNORECASE)
_SAME = 1e-6
"""Runs whose times agree to six digits are no evidence of variation."""


def _check(claim: Claim) -> Iterator[Diagnostic]:
    said: list[list[float]] = []
    for field, side in sides(claim):
        if side.time_s is None:
            yield from _rated(claim, side, field)
            continue
        found = list(_some_arrive(claim, side, field))
        if not found and side.interval is None and side.timing.deterministic is not True:
            found = list(_timed(claim, side, field))
        if any(each.severity != "not-stated" for each in found):
            said += [side_times(side), side_rates(side)]
        yield from found
    for at, summary in enumerate(claim.summaries):
        unsure = summary.interval is None and summary.deterministic is not True and summary.n != 1
        # It has already been reported for the same runs.
        if unsure and sample_of(claim, summary) not in said:
            yield from _summarised(claim, summary, f"summaries[{at}]")
    yield from _compared(claim)
    yield from _qualities(claim)


def _some_arrive(claim: Claim, side: Side, field: str) -> Iterator[Diagnostic]:
    """A time to a target that not all runs reach is only the time of the lucky ones, and so is its interval."""
    made, reached = _made_and_reached(side)
    if side.time_of != "target" or not made or not reached or reached >= made:
        return
    counted = _counts_those_that_miss(side, made, reached)
    if counted or _SAYS_ALL.search(claim.title) or any(_COUNTS_ALL.search(each.what) for each in claim.summaries):
        return
    if counted is None:
        what = f"whether the median of '{side.name}' counts the {plural(made - reached, 'run')} that missed the target"
        yield not_stated(f"{field}.runs", what, _ALL, side.where)
        return
    share = wilson(reached, made)
    given = seconds(side.time_s or 0.0)
    if side.interval is not None:
        given += f" [{seconds(side.interval[0])}, {seconds(side.interval[1])}]"
    found = (
        f"{reached:,} of {plural(made, 'run')} of '{side.name}' reach the target ({percent(reached / made)}, 95 % "
        f"interval {percent(share.low)} to {percent(share.high)}), but {given} is given as if every run did"
    )
    yield guilty(f"{field}.runs_reached", found, _ALL, side.where, "warning")


def _made_and_reached(side: Side) -> tuple[int | None, int | None]:
    """How many runs were made and arrived, as stated, or else as the runs listed show if one of them did not."""
    missed = sum(run.failed or run.reached is False for run in side.runs)
    if side.runs_reached is not None or not missed:
        return side.runs_made, side.runs_reached
    return len(side.runs), len(side.runs) - missed


def _counts_those_that_miss(side: Side, made: int, reached: int) -> bool | None:
    """Whether its figure is a median over all runs, or its interval is open: runs that miss are in both.

    ``None`` if it may be, but no runs are listed.
    """
    if side.interval is not None and math.isinf(side.interval[1]):
        return True
    arrived = sorted(each.time_s for each in side.runs if each.reached and each.time_s is not None)
    if side.reported != "median" or side.interval is None or 2 * reached <= made:
        return False
    return not math.isclose(median(arrived), side.time_s or 0.0, rel_tol=1e-3) if arrived else None


def _timed(claim: Claim, side: Side, field: str) -> Iterator[Diagnostic]:
    values = side_times(side)
    if len(values) > 1 and max(values) - min(values) > _SAME * max(values):
        found = (
            f"the {len(values)} runs of '{side.name}' take from {seconds(min(values))} to {seconds(max(values))}, and "
            f"{seconds(side.time_s or 0.0)} is given without an interval"
        )
        yield guilty(f"{field}.interval", found, _DO, side.where, "warning")
    elif side.timing.deterministic is False:
        found = f"the {seconds(side.time_s or 0.0)} of '{side.name}' vary from run to run, but no interval is given"
        yield guilty(f"{field}.interval", found, _DO, side.where, "warning")
    elif _of_one_run(side) and _is_compared(claim, side):
        found = f"the {seconds(side.time_s or 0.0)} of '{side.name}' are of one run, which may be luck"
        yield guilty(f"{field}.runs_made", found, _DO, side.where, "warning")
    elif not any(_is_of(summary, side) for summary in claim.summaries):
        what = f"an interval of the {seconds(side.time_s or 0.0)} of '{side.name}', or that they do not vary"
        if side.runs_made is None and len(values) < 2:
            what = f"of how many runs the {seconds(side.time_s or 0.0)} of '{side.name}' are, and their interval"
        yield not_stated(f"{field}.interval", what, _DO, side.where)


def _has_speed(side: Side) -> bool:
    return side.time_s is not None or side.throughput is not None


def _rated(claim: Claim, side: Side, field: str) -> Iterator[Diagnostic]:
    """A rate without a time; its interval is one of a time or of a ratio, which it has not."""
    if side.throughput is None or side.timing.deterministic is True or side_times(side):
        return
    rate = f"the {number(side.throughput, 4)} a second of '{side.name}'"
    if _of_one_run(side) and _is_compared(claim, side):
        yield guilty(f"{field}.runs_made", f"{rate} are of one run, which may be luck", _DO, side.where, "warning")
    else:
        what = f"an interval of {rate}" if side.runs_made else f"of how many runs {rate} are, and their interval"
        yield not_stated(f"{field}.throughput", what, _DO, side.where)


def _is_compared(claim: Claim, side: Side) -> bool:
    """Whether a ratio is claimed of it that has no interval, or is implied by the speeds of both sides."""
    for each in claim.comparisons:
        if each.interval is None and side.name in (each.new, each.base):
            others = (claim.side(name) for name in (each.new, each.base))
            if each.ratio is not None or all(other is not None and _has_speed(other) for other in others):
                return True
    return False


def _of_one_run(side: Side) -> bool:
    """Whether its figure is of one run, and no others are known to have been made."""
    return side.runs_made == 1 or (side.runs_made is None and side.reported == "single")


def _is_of(summary: Summarised, side: Side) -> bool:
    """Whether the summary is the side's time, and so is judged in its place."""
    value = summary.value
    return summary.of == "times" and value is not None and abs(value - (side.time_s or 0.0)) <= 1e-3 * abs(value)


def _summarised(claim: Claim, summary: Summarised, field: str) -> Iterator[Diagnostic]:
    where = summary.where or claim.where
    of = "several values" if summary.n is None else plural(summary.n, "value")
    value = "" if summary.value is None else f" ({number(summary.value, 4)})"
    if summary.deterministic is False:
        found = f"the '{summary.what}'{value} varies, but its {of} have no interval"
        yield guilty(f"{field}.interval", found, _DO, where, "warning")
    else:
        what = f"an interval of the '{summary.what}'{value} of {of}, or that it does not vary"
        yield not_stated(f"{field}.interval", what, _DO, where)


def _compared(claim: Claim) -> Iterator[Diagnostic]:
    """Ratios whose sides have no times, so that they have not been judged above."""
    for at, comparison in enumerate(claim.comparisons):
        if comparison.ratio is None or comparison.interval is not None or comparison.of == "operations":
            continue
        both = [side for side in map(claim.side, (comparison.new, comparison.base)) if side is not None]
        if any(_has_speed(side) or side.timing.deterministic is True for side in both):
            continue
        what = f"an interval of the {number(comparison.ratio)} times of '{comparison.new}'"
        yield not_stated(f"comparisons[{at}].interval", what, _DO, comparison.where or claim.where)


def _qualities(claim: Claim) -> Iterator[Diagnostic]:
    """Qualities of one run each whose difference another seed could make or undo."""
    for pair in pairs(claim):
        new, base = pair.new.quality, pair.base.quality
        ours, theirs = level_of(new), level_of(base)
        if pair.comparison.of != "quality" or pair.comparison.interval is not None or not ours or not theirs:
            continue
        if not _of_one_run(pair.new) or not _of_one_run(pair.base) or ours.has_interval or theirs.has_interval:
            continue
        if far_worse(ours, theirs) or far_worse(theirs, ours):
            continue
        found = f"the {ours.text} of '{pair.new.name}' and the {theirs.text} of '{pair.base.name}' are of one run each"
        yield guilty(f"{pair.new_field}.quality.low", f"{found}, which may be luck", _DO, pair.where, "warning")


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
