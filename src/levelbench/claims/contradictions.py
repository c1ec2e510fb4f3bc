"""What a claim says of itself that cannot be: figures that exclude each other, whatever they were measured with.

Only certain contradictions count. Figures are rounded, means and intervals are computed in many ways, and a comparison
in pairs may be far more precise than its sides, so each check is as strict as the most lenient honest author allows.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator
from decimal import Decimal

from levelbench.claims.rules._common import ComparedPair, number, pairs
from levelbench.claims.view import Claim, Side

__all__ = ["contradictions"]

_ROUNDED = 1.1
"""The factor by which a ratio may differ from that of two rounded figures, or of other means of the same runs."""
_FASTER = re.compile(
    r"(?<![\d.,–-])(?<!to )(?<!or )(?P<ratio>\d{1,6}(?:\.\d+)?) ?(?:x|times)"
    r" (?:as fast|faster|the (?:speed|throughput)|less time|(?:the )?speed-?up)\b",
    re.IGNORECASE,
)
"""A speed-up in words, and no range of several."""
_NEAR = 0.01
"""The share by which a figure may lie outside of an interval, or beside the figure that its runs make."""
_TIGHT = 0.25
"""An interval narrower than this share of a standard error follows from its runs by no method at any level."""
_NARROWER = 0.4
"""The interval of a ratio may have this share of the width that its sides leave it: at a lower level, by another t."""


def contradictions(claim: Claim) -> list[str]:
    """Figures of a claim that exclude each other, each as a reason to refuse it.

    Those of records are left to the gate of comparisons. Intervals and runs are looked at where an author wrote them.
    """
    written = claim.read_from == "claim"
    found = [text for side in claim.sides for text in _of_side(side)] if written else []
    for pair in pairs(claim) if claim.read_from != "records" else ():
        found += _of_ratio(pair)
        found += _of_comparison(pair) if written else ()
    return found + (_of_title(claim) if written else [])


def _of_title(claim: Claim) -> list[str]:
    """The one speed-up that the title names against the ratio of the one comparison, or of its sides' times."""
    named, rows = [each["ratio"] for each in _FASTER.finditer(claim.title)], list(pairs(claim))
    if len(named) != 1 or len(rows) != 1:
        return []
    (pair,) = rows
    new, base, ratio = pair.new.time_s, pair.base.time_s, pair.comparison.ratio
    part = pair.comparison.of in ("kernel", "quality", "cost", "operations") or pair.comparison.claimed_for == "part"
    if ratio is None and new and base and _of_whole_times(pair):
        ratio = base / new
    if part or not ratio or 1 / _ROUNDED <= float(named[0]) / ratio <= _ROUNDED:
        return []
    of = f"'{pair.new.name}' to '{pair.base.name}'"
    return [f"refuse: the title says {named[0]} times, but the ratio of {of} is {number(ratio)}"]


def _of_ratio(pair: ComparedPair) -> Iterator[str]:
    """A ratio, and the time behind it, against the figures of the sides."""
    compared = pair.comparison
    ratio, costs = compared.ratio, compared.of == "cost"
    if compared.of == "throughput" and compared.claimed_for != "part":
        yield from _of_rates(pair)
    if not _of_whole_times(pair) and not (costs and compared.claimed_for != "part"):
        return
    names = f"'{pair.new.name}' against '{pair.base.name}'"
    new, base = ((each.cost_usd if costs else each.time_s) for each in (pair.new, pair.base))
    behind_s = None if costs else compared.base_time_s
    if behind_s and base and not 1 / _ROUNDED <= behind_s / base <= _ROUNDED:
        yield f"refuse: {names}: base_time_s is {number(behind_s, 4)} s, but the base takes {number(base, 4)} s"
    base = base or behind_s
    if not new or not base or ratio is None or 1 / _ROUNDED <= ratio / (base / new) <= _ROUNDED:
        return
    values = " and ".join(f"{number(each, 4)} {'USD' if costs else 's'}" for each in (new, base))
    text = f"refuse: {names}: the ratio is {number(ratio)}, but the figures are {values}: {number(base / new)}"
    upside_down = 1 / _ROUNDED <= ratio * base / new <= _ROUNDED
    yield f"{text} (a ratio is base over new)" if upside_down else text


def _of_rates(pair: ComparedPair) -> Iterator[str]:
    """A ratio against the rates of its sides, of which the new one is the numerator."""
    ratio, new, base = pair.comparison.ratio, pair.new.throughput, pair.base.throughput
    if ratio and new and base and not 1 / _ROUNDED <= ratio / (new / base) <= _ROUNDED:
        rates = f"{number(new, 4)} and {number(base, 4)} a second"
        names = f"'{pair.new.name}' against '{pair.base.name}'"
        yield f"refuse: {names}: the ratio is {number(ratio)}, but the rates are {rates}: {number(new / base)}"


def _of_whole_times(pair: ComparedPair) -> bool:
    """Whether the comparison is of the very times that its sides state."""
    compared = pair.comparison
    times_of = {each for each in (compared.of, pair.new.time_of, pair.base.time_of) if each is not None}
    other = compared.of in ("throughput", "quality", "operations", "cost") or len(times_of) > 1
    return compared.claimed_for != "part" and not other


def _of_comparison(pair: ComparedPair) -> Iterator[str]:
    """The interval of a ratio against the ratio, and against the intervals of the sides."""
    compared, (new, base) = pair.comparison, (pair.new.interval, pair.base.interval)
    names = f"'{pair.new.name}' against '{pair.base.name}'"
    if compared.interval is None:
        return
    shown = _shown(compared.interval)
    if compared.ratio is not None and not _within(compared.ratio, compared.interval):
        yield f"refuse: {names}: the ratio {number(compared.ratio)} lies outside of its interval {shown}"
    widths = [_log_width(each) for each in (new, base, compared.interval)]
    # Intervals of medians and of means of the same runs may differ by any factor.
    of_means = pair.new.reported == pair.base.reported == "mean" and _of_whole_times(pair)
    if not of_means or any(each is None for each in widths):
        return
    # Of two variables that vary together, the difference varies at least by the difference of their deviations.
    of_new, of_base, of_ratio = (each or 0.0 for each in widths)
    apart = False in (pair.new.timing.interleaved, pair.base.timing.interleaved)
    least = max(of_new, of_base) if apart else abs(of_new - of_base)
    if of_ratio < _NARROWER * least:
        sides = " and ".join(_shown(each) for each in (new, base) if each)
        yield f"refuse: {names}: the interval {shown} of the ratio cannot follow from {sides} s"


def _of_side(side: Side) -> Iterator[str]:
    """A side's figure, interval and counts against each other and against its runs."""
    name, made, reached = f"'{side.name}'", side.runs_made, side.runs_reached
    if made is not None and made < len(side.runs):
        yield f"refuse: {name}: runs_made is {made}, but {len(side.runs)} runs are listed"
    if made is not None and reached is not None and reached > made:
        yield f"refuse: {name}: runs_reached is {reached}, of {made} runs made"
    all_listed = bool(side.runs) and made == len(side.runs)
    stated = [run.reached for run in side.runs if run.reached is not None]
    if all_listed and reached is not None and not sum(stated) <= reached <= len(side.runs) - stated.count(False):
        yield f"refuse: {name}: runs_reached is {reached}, but {sum(stated)} of the runs listed reached the target"
    low, value, high = side.quality.low, side.quality.value, side.quality.high
    if low is not None and high is not None and low > high:
        yield f"refuse: {name}: the interval of its quality goes down from {number(low, 4)} to {number(high, 4)}"
    elif value is not None and side.reported != "best":
        bounds = (-math.inf if low is None else low, math.inf if high is None else high)
        if not _within(value, bounds):
            yield f"refuse: {name}: the quality {number(value, 4)} lies outside of its interval {_shown(bounds)}"
    # The best of several runs need not lie within the interval of all of them.
    around_s = None if side.reported == "best" else side.interval
    if side.time_s is not None and around_s is not None and not _within(side.time_s, around_s):
        yield f"refuse: {name}: {number(side.time_s, 4)} s lies outside of its interval {_shown(around_s)} s"
    times_s = [run.time_s for run in side.runs if run.time_s and run.reached is not False and not run.failed]
    if not all_listed or len(times_s) < len(side.runs) or side.time_of not in (None, "target", "run"):
        return
    possible = _possible_s(side.reported, sorted(times_s))
    if side.time_s is not None and not _within(side.time_s, possible, max(map(_half_unit, times_s))):
        called = {None: "the figure of", "all": "the figure of", "single": "the single run of"}
        what = called.get(side.reported, f"the {side.reported} of")
        makes = number(possible[0], 4) if possible[0] == possible[1] else _shown(possible)
        yield f"refuse: {name}: {number(side.time_s, 4)} s is not {what} its {len(times_s)} runs: {makes} s"
    if side.interval is None or side.reported in ("best", "single") or len(times_s) < 3:
        return
    middle = statistics.median(times_s)
    # Of the two spreads the smaller one, so that an outlier does not make a robust interval too narrow.
    robust = 1.4826 * statistics.median(abs(each - middle) for each in times_s)
    error_s = min(statistics.stdev(times_s), robust) / math.sqrt(len(times_s))
    if (side.interval[1] - side.interval[0]) / 2 + sum(map(_half_unit, side.interval)) < _TIGHT * error_s:
        runs = f"{len(times_s)} runs from {number(min(times_s), 4)} to {number(max(times_s), 4)} s"
        yield f"refuse: {name}: the interval {_shown(side.interval)} s is too narrow for {runs}"


def _possible_s(reported: str | None, times_s: list[float]) -> tuple[float, float]:
    """The lowest and highest figure that is called so, of all runs in order; a mean is of any kind."""
    n = len(times_s)
    if reported == "best":
        return times_s[0], times_s[0]
    if reported == "median":
        return times_s[(n - 1) // 2], times_s[n // 2]
    if reported in ("mean", "olympic"):
        kept = times_s[1:-1] if reported == "olympic" and n > 2 else times_s
        return statistics.harmonic_mean(kept), statistics.fmean(kept)
    return times_s[0], times_s[-1]


def _within(value: float, interval: tuple[float, float], rounded: float = 0.0) -> bool:
    """Whether a figure lies within bounds, each of the three rounded to the digits that it has."""
    low, high = interval
    slack = (rounded or max(_half_unit(low), _half_unit(high))) + _half_unit(value)
    return low - slack - _NEAR * abs(low) <= value <= high + slack + _NEAR * abs(high)


def _half_unit(value: float) -> float:
    """Half a unit of the last digit that a figure is written with, up to that of ones and a tenth of the figure."""
    exponent = Decimal(f"{value:.12g}").as_tuple().exponent
    unit = 10.0 ** min(exponent, 0) if isinstance(exponent, int) else 0.0
    return min(0.5 * unit, (_ROUNDED - 1) * abs(value))


def _log_width(interval: tuple[float, float] | None) -> float | None:
    """Half the width of an interval on a logarithmic scale; ``None`` if there is none or it includes zero."""
    return None if interval is None or interval[0] <= 0 else math.log(interval[1] / interval[0]) / 2


def _shown(interval: tuple[float, float]) -> str:
    return f"[{number(interval[0], 4)}, {number(interval[1], 4)}]"
