"""LB123: several runs were made and the best is reported; the more runs, the luckier it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import fmean, median, stdev

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import (
    claimed,
    direction_of,
    guilty,
    not_stated,
    number,
    percent,
    seconds,
    sides,
)
from levelbench.claims.rules._runs import side_qualities
from levelbench.claims.view import Claim, Side
from levelbench.measure.statistics.distributions import normal_cdf
from levelbench.report.numbers import plural

__all__ = ["expected_extreme", "rule"]

_DO = "report the median or mean of all runs with its interval, and add the best if you like"
_BEST = re.compile(
    r"\b(?:best|fastest|quickest)[- ](?:of|run|seed|trial|attempt|out of)\b|"
    r"\b(?:best|fastest|lowest|highest|smallest|largest|minimum|maximum) (?:\w+ ){0,2}(?:of|out of|from|among|over|in) "
    r"(?:\w+ ){1,2}(?:runs|seeds|trials|attempts|repetitions|tries)\b",
    re.IGNORECASE,
)
_UP_TO = re.compile(
    r"\b(?:up ?to|as (?:much|high) as|at (?:best|most)) (?:an? )?[\d.,]+ ?(?:x\b|times|%|-?fold)|"
    r"\b(?:peak|max(?:imum|imal)?|best[- ]case) (?:\w+ )?speed-?ups?\b(?! (?:possible|allowed|by))|"
    r"\bin the best case\b|\bspeed-?ups? (?:can )?reach(?:es|ing)?\b",
    re.IGNORECASE,
)
_LIMIT = re.compile(r"\bamdahl|\btheor|\bbound|\blimit|\bideal\b", re.IGNORECASE)
"""What speaks of how fast it could be at most, not of how fast it was at best."""
_SAME = 1e-3
"""A claimed figure is a run's if they agree within printed rounding, and the runs differ by far more."""


@cache
def expected_extreme(n: int) -> float:
    """The expected distance of the largest of ``n`` normal values from their mean, in standard deviations.

    E = int_0^inf (1 - F(x)^n - (1 - F(x))^n) dx with F the normal distribution function (David & Nagaraja, Order
    Statistics, 2003, section 3.1), by the trapezoidal rule; the smallest lies as far below.
    """
    step, most = 0.01, 9.0
    heights = (1.0 - (1.0 - (upper := normal_cdf(-step * at))) ** n - upper**n for at in range(1, int(most / step)))
    return step * (sum(heights) + 0.5 * (1.0 - 2.0 * 0.5**n))


def _check(claim: Claim) -> Iterator[Diagnostic]:
    said = _BEST.search(claim.title)
    if said is not None and all(side.reported is None for _, side in sides(claim)):
        found = f"the claim says '{said[0]}', and no side says which of its runs the figure is"
        yield guilty(
            "sides[0].reported", found, f'state reported = "best", or which it is; {_DO}', claim.where, "warning"
        )
    upto = None if _LIMIT.search(claim.title) else _UP_TO.search(claim.title)
    if upto is not None and not any(side.time_s is not None and side.reported for _, side in sides(claim)):
        found = f"the claim says '{upto[0]}': the best of several cases, which says nothing of the others"
        yield guilty("title", found, "give the median or all of the cases, and their number", claim.where, "warning")
    asked = {side.name for _, side in claimed(claim)}
    for field, side in sides(claim):
        n = _made(side)
        if side.time_s is None and side.quality.value is None:
            # Its figure is a rate or a ratio, of which no runs can be shown.
            if side.reported == "best" and upto is None:
                of = "an unstated number of runs" if n is None else plural(n, "run")
                found = f"what is given for '{side.name}' is the best of {of}"
                yield guilty(f"{field}.reported", found, _DO, side.where, "warning")
            continue
        if n is None:
            what = f"how many runs of '{side.name}' were made for the given figure"
            if side.reported == "best":
                found = f"the figure of '{side.name}' is the best of an unstated number of runs"
                yield guilty(f"{field}.runs_made", found, f"give the number; {_DO}", side.where, "warning")
            elif _may_be_chosen(side) and side.name in asked:
                yield not_stated(f"{field}.runs_made", what, _DO, side.where)
        elif n > 1:
            yield from _chosen(field, side, n)
            yield from _some(field, side, n)


def _may_be_chosen(side: Side) -> bool:
    """Whether it may be one of several. A mean, and what has an interval, is not; of other times LB204 asks."""
    if side.reported == "single":
        return True
    return side.reported is None and side.time_s is None and side.quality.low is None


def _made(side: Side) -> int | None:
    """The number of runs, which a single shown run does not reveal."""
    if side.runs_made is not None:
        return max(side.runs_made, len(side.runs))
    return len(side.runs) if len(side.runs) > 1 else None


def _values(side: Side) -> tuple[list[float], float | None, float]:
    """The runs' values, the claimed one, and the sign that makes smaller better; for times, or else for qualities."""
    if side.time_s is not None:
        # The time of a run that missed the target is not a time to the target.
        to_target = side.time_of == "target"
        done = [run for run in side.runs if not run.failed and not (to_target and run.reached is False)]
        return [run.time_s for run in done if run.time_s is not None], side.time_s, 1.0
    return side_qualities(side), side.quality.value, -(direction_of(side.quality) or 0.0)


def _is_best(side: Side) -> bool:
    """Whether the claimed figure is that of the best shown run, and not their mean or median."""
    values, claimed, sign = _values(side)
    if len(values) < 2 or claimed is None or not sign or min(values) == max(values):
        return False
    near = min(_SAME * abs(claimed), 0.05 * (max(values) - min(values)))
    best = min(values, key=lambda value: sign * value)
    return abs(best - claimed) <= near and all(abs(usual(values) - claimed) > near for usual in (fmean, median))


def _bias(side: Side, n: int) -> str:
    """How much luck is in the best of ``n``: from the shown runs, or in standard deviations."""
    values, _, sign = _values(side)
    extreme = expected_extreme(n)
    if len(values) < 2 or not sign:
        return f"the best of {n:,} normal values is expected {number(extreme)} standard deviations from their mean"
    mean, spread = fmean(values), stdev(values)
    gain, expected = (
        abs(value / mean) if mean else 0.0 for value in (mean - min(values, key=lambda v: sign * v), extreme * spread)
    )
    shown = seconds(mean) if side.time_s is not None else number(mean, 4)
    luck = f"the best is {percent(gain)} from the mean of the {len(values):,} shown ({shown})"
    return f"{luck}; {percent(expected)} is expected by chance for the best of {n:,} (normal, same spread)"


def _chosen(field: str, side: Side, n: int) -> Iterator[Diagnostic]:
    single = side.reported == "single"
    if not (single or side.reported == "best" or _is_best(side)):
        return
    stated = "" if side.reported in {"best", "single", None} else f", though called the {side.reported}"
    if single and not _is_best(side):
        found = f"the figure of '{side.name}' is from one of {plural(n, 'run')}, without saying which: {_bias(side, n)}"
        yield guilty(f"{field}.reported", found, _DO, side.where, "warning")
        return
    found = f"the figure of '{side.name}' is the best of {plural(n, 'run')}{stated}: {_bias(side, n)}"
    # The fastest of many calls is a usual, if partial, figure for a call; for a training it is luck.
    mild = side.time_of in {"call", "step"}
    yield guilty(f"{field}.reported", found, _DO, side.where, "warning" if mild else "error")


def _some(field: str, side: Side, n: int) -> Iterator[Diagnostic]:
    """A mean over fewer runs than were made is a selection too."""
    if side.reported in {"best", "single"} or not 0 < len(side.runs) < n:
        return
    found = f"{plural(n, 'run')} of '{side.name}' were made and {len(side.runs):,} are shown"
    do = "show all runs, including those that failed or missed the target"
    yield guilty(f"{field}.runs_made", found, do, side.where, "warning")


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
