"""The figures of a board: its columns and scenarios, which values are possible, and how runs become one figure.

Competitions treat a run that never reaches the target differently: for DAWNBench it is not an entry, for MLPerf it is
the slowest run (once), for ours it takes infinitely long. How long it tried does not matter, so stopping a bad run
early gains nothing.

Figures are ranked by value, so a wide interval gains nothing. Where the rules ask for a test, each pair is compared by
the verdict's own test of the runs, with Holm's correction over all pairs: this says which neighbours are
distinguishable, and which ranks an entry could have. What has too few runs for a test has no rank.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import islice, pairwise
from statistics import median
from types import MappingProxyType
from typing import Literal

import msgspec
import numpy as np
from msgspec import Struct

from levelbench.competition.entries import Inference, day_of
from levelbench.competition.rulesets import Aggregation, InferenceRules
from levelbench.competition.rulesets.scores import window_median
from levelbench.measure.statistics import (
    arithmetic_mean,
    holm,
    mean_interval,
    median_interval,
    olympic_mean,
    t_quantile,
)
from levelbench.measure.statistics.intervals import median_interval_ranks
from levelbench.measure.verdict import LEAST_RUNS, slower_p
from levelbench.records.schema import Target
from levelbench.report.numbers import plural

QUANTILES = {"single-stream": 0.9, "multi-stream": 0.99, "server": 0.99}
"""The quantile of each scenario's latency (LoadGen's defaults); ``dawnbench`` is a mean, ``offline`` has none."""

MOST_SCENARIOS = 50
"""The most scenarios in which one entry is ranked: authors choose bounds and queries, and could choose endlessly many.
"""

_OF_THROUGHPUT = frozenset({"server", "offline"})


class RankedScenario(Struct, frozen=True, gc=False):
    """A scenario; for ``server`` with the latency bound in seconds, for ``multi-stream`` with the samples per query.

    ``None``: the scenario has no such condition, or it is not stated.
    """

    name: str
    bound_s: float | None = None
    samples: int | None = None

    @property
    def column(self) -> Literal["latency", "throughput"]:
        """The column that ranks its measurements: LoadGen's own figure of the scenario."""
        return "throughput" if self.name in _OF_THROUGHPUT else "latency"

    @property
    def title(self) -> str:
        """The scenario with its condition.

        >>> RankedScenario("server", 0.015).title, RankedScenario("multi-stream", samples=8).title
        ('server within 15 ms', 'multi-stream, 8 samples a query')
        """
        if self.bound_s is not None:
            return f"{self.name} within {' '.join(_bound(self.bound_s))}"
        if self.samples is not None:
            return f"{self.name}, {plural(self.samples, 'sample')} a query"
        return self.name

    @property
    def words(self) -> str:
        """The title and the figure that is ranked.

        >>> RankedScenario("single-stream").words, RankedScenario("server", 0.015).words
        ('single-stream, 90th percentile', 'server within 15 ms, queries a second')
        """
        return f"{self.title}, {self.measure}"

    @property
    def measure(self) -> str:
        """What the scenario measures: a percentile or mean of latency, or queries or samples per second."""
        if self.name == "server":
            return "queries a second"
        if self.name == "offline":
            return "samples a second"
        return f"{QUANTILES[self.name] * 100:g}th percentile" if self.name in QUANTILES else "mean"

    @property
    def slug(self) -> str:
        """The scenario with its condition as part of a file name: ``server-15ms``, ``multi-stream-8``.

        It has only lower-case letters, digits, dots and dashes, and is short, whatever bound is stated.

        >>> RankedScenario("server", 1e-9).slug, RankedScenario("server", 1e300).slug
        ('server-1ns', 'server-1e300s')
        """
        condition = "" if self.bound_s is None else f"-{''.join(_bound(self.bound_s))}".replace("+", "")
        return self.name + (condition if self.samples is None else f"-{self.samples}")


def _bound(seconds: float) -> tuple[str, str]:
    """A latency bound with its unit: milliseconds, unless they would need an exponent."""
    if 1e-7 <= seconds < 1e3:
        return f"{1e3 * seconds:g}", "ms"
    return (f"{1e9 * seconds:g}", "ns") if seconds < 1.0 else (f"{seconds:g}", "s")


def scenario_of(found: Inference, rules: InferenceRules) -> RankedScenario:
    """The scenario that a measurement is ranked in; the rules' latency bound, if any, replaces the stated one.

    Bounds that agree to six digits are the same.
    """
    if found.scenario == "server":
        return _server(found.latency_bound_s if rules.latency_bound_s is None else rules.latency_bound_s)
    if found.scenario == "multi-stream" and found.queries and found.samples % found.queries == 0:
        return RankedScenario("multi-stream", samples=found.samples // found.queries)
    return RankedScenario(found.scenario)


def _server(bound_s: float | None) -> RankedScenario:
    return RankedScenario("server", None if bound_s is None else float(f"{bound_s:.6g}"))


def by_scenario(measured: Sequence[Inference], rules: InferenceRules) -> dict[RankedScenario, list[Inference]]:
    """The scenarios in which an entry is ranked, each with its measurements: in the order of the rules, then as stated.

    Measurements in scenarios that the rules lack, or beyond ``MOST_SCENARIOS``, are left out.
    """
    found: dict[RankedScenario, list[Inference]] = {}
    for name in rules.scenarios:
        for each in measured:
            if each.scenario == name:
                found.setdefault(scenario_of(each, rules), []).append(each)
    return dict(islice(found.items(), MOST_SCENARIOS))


def own_scenario(rules: InferenceRules | None) -> RankedScenario | None:
    """The scenario on the task's main board, next to training: the first of the rules, without a condition."""
    if rules is None or not rules.scenarios:
        return None
    first = rules.scenarios[0]
    return _server(rules.latency_bound_s) if first == "server" else RankedScenario(first)


def is_apart(scenario: RankedScenario | None, rules: InferenceRules | None) -> bool:
    """Whether entries ranked in ``scenario`` have a separate board."""
    return scenario is not None and scenario != own_scenario(rules)


Bounds = tuple[float, float]

ENERGY_J: Bounds = (1e-9, 1e18)
"""Joules of a run: a microwatt for a millisecond, to a gigawatt for thirty years."""
PRICE_USD: Bounds = (1e-6, 1e7)
"""US dollars per hour: below a millionth, a year costs less than a cent; ten million rent millions of accelerators."""
PRICE_WORDS = "0.000001 to 10,000,000 US dollars an hour"
FLOOR_USD = 0.001
"""Per hour: several times less than the smallest machine for rent costs."""
RUN_S: Bounds = (1e-6, 3.2e8)
"""One microsecond to ten years: no run takes less, or more."""
LATENCY_S: Bounds = (1e-9, 3.2e8)
"""A nanosecond, a few clock cycles of a processor, to ten years."""
RATE_PER_S: Bounds = (1e-9, 1e15)
"""Answers per second: one in thirty years, to more than any machine's operations per second."""
ANSWER_USD: Bounds = (1e-18, 1e9)
"""US dollars per answer: from the cheapest machine at a billion answers per second to more than anybody pays."""


def is_within(value: float, bounds: Bounds) -> bool:
    """Whether ``value`` lies within ``bounds``; NaN does not.

    >>> is_within(1e-300, PRICE_USD), is_within(3.06, PRICE_USD), is_within(1e300, PRICE_USD)
    (False, True, False)
    """
    return bounds[0] <= value <= bounds[1]


Column = Literal["time", "cost", "samples", "steps", "energy", "latency", "throughput", "inference_cost"]
COLUMNS: tuple[Column, ...] = ("time", "cost", "samples", "steps", "energy", "latency", "throughput", "inference_cost")
"""Training has time and cost, energy if its runs state it, and samples or steps if the rules rank by it.

Inference has the last, and latency or throughput depending on the scenario.
"""
OF_TRAINING: frozenset[Column] = frozenset({"time", "cost", "samples", "steps", "energy"})
MORE_IS_BETTER: frozenset[Column] = frozenset({"throughput"})
"""In all other columns less is better."""

FLAGS = MappingProxyType(
    {
        "single-run": "single run: nothing is known about its spread",
        "few-processes": "fewer than three processes: little is known about its spread",
        "preprocessing-on-clock": "preprocessing raw examples into the network's inputs is on the clock",
        "not-reached": "no run reached the target",
        "judged-at-end": "judged only at its last evaluation, as a schedule of fixed length",
        "other-scenario": "measured in a scenario that the rules do not rank",
        "further-scenarios": "measurements in scenarios that are not ranked, or are too many, are only shown",
        "censored": "some runs did not reach the target; they count as never, not as slow",
        "failed-runs": "some runs failed",
        "too-few-runs": "fewer runs than the rules want",
        "extra-runs": "more runs than the rules score; the first are scored",
        "broken-curve": "the columns of a curve differ in length, or a time is impossible; the run counts as failed",
        "stops-at-target": "the curve ends where it crosses the target: whether it stayed there is unknown",
        "falls-back": "the quality falls below the target again after the crossing",
        "other-clock": "timed on a clock other than that of the rules",
        "other-rules": "made for another ruleset",
        "other-metric": "its quality metric is not that of the rules",
        "other-split": "evaluated on a split other than that of the rules",
        "synthetic-data": "trained on synthetic data",
        "suspect-runs": "some runs have doubts from the tool that made them",
        "price-missing": "no price is stated",
        "price-not-on-demand": "the price is not an on-demand price",
        "price-without-source": "the price has no source",
        "cost-stated": "the cost is stated by the author: there is no price to compute it from",
        "no-estimate": "too few queries for the scenario's own estimate; the plain quantile is used instead",
        "estimate-left-out": "the scenario's own estimate is not stated, although there are enough queries for it",
        "quality-missing": "the quality of the same answers is not stated",
        "quality-too-low": "the quality of the answers is below what the rules require",
    }
)
"""The sentence for each flag."""


class BoardFigure(Struct, frozen=True, gc=False):
    """One figure: seconds, US dollars, samples, steps, joules, answers per second, or dollars per million answers.

    ``low`` and ``high`` are a 95 % interval (with fewer than six runs, one of the level stated in ``how``), both
    ``None`` if the sample allows none; a bound may be infinite. ``how`` says how the value was made, or why there is
    none. ``sample`` has what the value is made of, one figure per run, ``None`` for a run that missed the target.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    how: str = ""
    sample: tuple[float | None, ...] = ()

    def times(self, factor: float, how: str = "") -> BoardFigure:
        """The same figure with value, bounds and sample multiplied by ``factor``, which is above zero."""
        value, low, high, *sample = (
            None if each is None else each * factor for each in (self.value, self.low, self.high, *self.sample)
        )
        return BoardFigure(value, low, high, how or self.how, tuple(sample))


def absent(reason: str) -> BoardFigure:
    """A missing figure with the reason."""
    return BoardFigure(None, how=reason)


class EntryScore(Struct, frozen=True, kw_only=True):
    """The score of one submission under the rules. Times are in seconds; a run's is ``None`` if it missed the target.

    ``reached`` of ``n`` runs reached the target (for inference: measurements that count), with the bounds of Wilson's
    95 % interval of that share. ``expected_with_restarts_s`` exists for two or more runs: the expected time until one
    succeeds if runs that miss are restarted. ``flags`` are keys of ``FLAGS``.
    """

    ruleset: str
    task: str
    mode: Literal["training", "inference"]
    target: Target
    n: int
    time: BoardFigure = absent("an entry of inference")
    cost: BoardFigure = absent("an entry of inference")
    samples: BoardFigure = absent("the rules do not rank by it")
    steps: BoardFigure = absent("the rules do not rank by it")
    energy: BoardFigure = absent("its runs do not state it")
    latency: BoardFigure = absent("an entry of training")
    inference_cost: BoardFigure = absent("an entry of training")
    throughput: BoardFigure = absent("ranked by another figure")
    reached: int = 0
    reached_low: float | None = None
    reached_high: float | None = None
    times_s: tuple[float | None, ...] = ()
    best_s: float | None = None
    expected_with_restarts_s: float | None = None
    flags: tuple[str, ...] = ()
    scenario: RankedScenario | None = None
    """The scenario in which an inference entry is ranked; ``None``: none."""
    further: tuple[EntryScore, ...] = ()
    """Its scores in the other scenarios that it measured."""

    def in_scenarios(self) -> tuple[EntryScore, ...]:
        """One score per scenario: this one and the further ones; for training only this one."""
        return (self, *self.further)

    def figure(self, column: Column) -> BoardFigure:
        """The figure in that column."""
        found: BoardFigure = getattr(self, column)
        return found


_LEVEL = 0.95


def aggregate(seconds: Sequence[float | None], rules: Aggregation) -> BoardFigure:
    """The figure of an entry's runs under ``rules``, or a missing one with the reason.

    ``seconds`` are the times to the target (or samples, ...) in the entry's order, ``None`` for a run that missed it.
    For ``mean-test`` they are those of whole runs, ``None`` for a run that failed; the test itself is the caller's.
    """
    if not seconds:
        return absent("it has no runs")
    if rules.rule == "first-run":
        first = seconds[0]
        return absent("the run did not reach the target") if first is None else BoardFigure(first, how="one run")
    if rules.rule == "median":
        return _median(seconds, rules.best_of)
    if rules.rule == "mean-test":
        return _mean(seconds)
    found = _olympic(seconds, rules)
    return found if found.value is None else msgspec.structs.replace(found, sample=tuple(seconds))


def _mean(values: Sequence[float | None]) -> BoardFigure:
    """The arithmetic mean of all runs with Student's interval; none if a run failed, since a mean leaves none out."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return absent(f"{len(values) - len(known)} of {plural(len(values), 'run')} failed: the mean is over all runs")
    if len(known) < 2:
        return absent("one run: a mean needs two")
    found, how = mean_interval(known, _LEVEL), f"mean of {len(known)} runs; 95 % interval by Student's t"
    return BoardFigure(arithmetic_mean(known), max(0.0, found.low), found.high, how, tuple(known))


def _olympic(seconds: Sequence[float | None], rules: Aggregation) -> BoardFigure:
    """MLPerf's score; with more runs than required, that of the median window, if the rules have windows."""
    n = len(seconds)
    if n < rules.runs or (n > rules.runs and rules.exact_runs):
        return absent(f"{n} runs, where the rules require {rules.runs}")
    if n == rules.runs or rules.windows is None:
        return _trimmed(seconds, rules.drop)
    found = window_median(seconds, rules.runs, drop=rules.drop, even=rules.windows)
    count = len(found.scores_s)
    of = f"median ({rules.windows}) of the {count} windows of {rules.runs} among {n} runs"
    if found.score_s is None:
        return absent(f"{of}: in that window more than {rules.drop} did not reach the target")
    if found.window is None:
        between = [_trimmed(seconds[at : at + rules.runs], rules.drop) for at in found.middle]
        lows = [each.low for each in between if each.low is not None]
        highs = [each.high for each in between if each.high is not None]
        how = f"{of}, which lies between two"
        if not (lows and highs):
            return BoardFigure(found.score_s, how=how)
        how += "; from the lowest to the highest end of their 95 % intervals"
        return BoardFigure(found.score_s, min(lows), max(highs), how)
    inside = _trimmed(seconds[found.window : found.window + rules.runs], rules.drop)
    return msgspec.structs.replace(inside, how=f"{of}: {inside.how}")


def _trimmed(seconds: Sequence[float | None], drop: int) -> BoardFigure:
    """The Olympic mean, with the interval of a trimmed mean (Tukey & McLaughlin 1963), which MLPerf does not print.

    It uses t with h - 1 degrees of freedom for the h runs kept, and the standard deviation of the sample in which each
    dropped run counts as the nearest one kept.
    """
    n, missed = len(seconds), sum(time is None for time in seconds)
    mean = olympic_mean(seconds, drop)
    if mean is None:
        return absent(f"{missed} of {n} runs did not reach the target, and {drop} may")
    how = f"Olympic mean of {n} runs, {drop} left out at each end"
    kept = sorted(math.inf if time is None else time for time in seconds)[drop : n - drop]
    if len(kept) < 2:
        return BoardFigure(mean, how=how)
    winsorised = [kept[0]] * drop + kept + [kept[-1]] * drop
    spread = float(np.std(winsorised, ddof=1)) / ((1.0 - 2.0 * drop / n) * math.sqrt(n))
    reach = t_quantile(0.5 + 0.5 * _LEVEL, len(kept) - 1) * spread
    how += "; 95 % interval of a trimmed mean"
    return BoardFigure(mean, max(0.0, mean - reach), mean + reach, how)


def _median(seconds: Sequence[float | None], best_of: int) -> BoardFigure:
    """The median of all runs, or of the fastest of each ``best_of`` runs (never, if none of them arrived)."""
    if len(seconds) % best_of:
        return absent(f"{len(seconds)} runs, where the rules require studies of {best_of}")
    studies = [seconds[first : first + best_of] for first in range(0, len(seconds), best_of)]
    bests = [min((time for time in study if time is not None), default=None) for study in studies]
    what = "run" if best_of == 1 else f"best-of-{best_of} run"
    arrived = [time for time in bests if time is not None]
    n = len(bests)
    if len(arrived) == n:
        return median_figure(arrived, what)
    if not arrived:
        return absent("no run reached the target")
    if 2 * len(arrived) <= n:
        return absent(f"no median: {len(arrived)} of {n} {what}s reached the target")
    ordered = sorted(math.inf if time is None else time for time in bests)
    value, how = float(median(ordered)), f"median of {n} {what}s, {len(arrived)} reached the target, the others never"
    ranks = median_interval_ranks(n, _LEVEL)
    if ranks is not None:
        how += "; exact 95 % interval"
        return BoardFigure(value, ordered[ranks[0] - 1], ordered[ranks[1] - 1], how, tuple(bests))
    # The median exceeds the smallest of n values with probability 1 - 2^-n; nothing is known about its upper end.
    how += f"; from the smallest on, {100.0 * (1.0 - 0.5**n):.4g} % interval"
    return BoardFigure(value, ordered[0], math.inf, how, tuple(bests))


def median_figure(values: Sequence[float], what: str) -> BoardFigure:
    """The median of values above zero, with the interval that their number allows; ``what`` names one of them.

    From six values on the exact 95 % interval of order statistics; below that, from the smallest to the largest value,
    with the level 1 - 2^(1-n) that their number allows, 93.75 % for five. It is the median's own interval, whatever the
    distribution; a mean next to the median of partly missing runs would reward ending a slow run. A single value has no
    interval.
    """
    n, sample = len(values), tuple(values)
    if n == 1:
        return BoardFigure(values[0], how=f"one {what}", sample=sample)
    value, how = float(median(values)), f"median of {n} {what}s"
    interval = median_interval(values, _LEVEL)
    if interval is not None:
        return BoardFigure(value, interval.low, interval.high, f"{how}; exact 95 % interval", sample)
    how += f"; from the smallest to the largest, {100.0 * (1.0 - 0.5 ** (n - 1)):.4g} % interval"
    return BoardFigure(value, min(values), max(values), how, sample)


MOST_PAIRED = 100
"""In a larger table only neighbours are tested, since the number of pairs grows with the square."""
ALPHA = 0.05
"""How often a table may call equal entries distinguishable."""


class Placing(Struct, frozen=True, gc=False):
    """The place of one figure: ``rank`` from 1 by value, ``None`` if it has none; ``shared``: another value is equal.

    ``best`` and ``worst`` are the ranks that the tests leave open, ``None`` if not every pair was tested. ``p_above``
    is the p value, after Holm's correction, of the test against the figure above it; ``None``: there was no test.
    ``why`` says why there is a value but no rank.
    """

    rank: int | None
    shared: bool = False
    best: int | None = None
    worst: int | None = None
    p_above: float | None = None
    why: str = ""


def rank(figures: Sequence[BoardFigure], *, by_test: bool) -> list[Placing]:
    """The place of each figure of one column, in the given order. Less is better, equal values share a rank.

    Figures of three runs or more are compared in pairs by the verdict's test of their samples. A figure is
    distinguishable from one above it if it is slower by that test as well, with a p value below 5 % after Holm's
    correction over all tests of the column. ``by_test``: figures of fewer runs have no rank. Otherwise they have one,
    and the ranks that the tests leave open to others allow for them to be anywhere.
    """
    known = sorted(
        (value, index)
        for index, each in enumerate(figures)
        if (value := each.value) is not None and not math.isnan(value)
    )
    found = [Placing(None) for _ in figures]
    if by_test:
        for _, index in known:
            n = len(figures[index].sample)
            if n < LEAST_RUNS:
                found[index] = Placing(None, why=f"no rank: a test needs {LEAST_RUNS} runs, it has {n}")
        known = [each for each in known if not found[each[1]].why]
    times, place = Counter(value for value, _ in known), 0
    for at, (value, index) in enumerate(known):
        place = at + 1 if at == 0 or value != known[at - 1][0] else place
        found[index] = Placing(place, times[value] > 1)
    order_of = [index for _, index in known]
    testable = [index for index in order_of if len(figures[index].sample) >= LEAST_RUNS]
    above = dict(pairwise(order_of))
    neighbours = {after for before, after in pairwise(testable) if above[before] == after}
    rest = len(known) - len(testable)
    for index, tested in zip(testable, _tested([figures[each] for each in testable]), strict=True):
        found[index] = msgspec.structs.replace(
            tested,
            rank=found[index].rank,
            shared=found[index].shared,
            worst=None if tested.worst is None else tested.worst + rest,
            p_above=tested.p_above if index in neighbours else None,
        )
    return found


def _tested(figures: Sequence[BoardFigure]) -> list[Placing]:
    """What the tests say about figures in the order of their values."""
    n = len(figures)
    paired = n <= MOST_PAIRED
    pairs = [(a, b) for b in range(n) for a in range(0 if paired else max(0, b - 1), b)]
    # What is not slower by value is not slower, whatever the test says of the means.
    p_values = [
        1.0 if figures[a].value == figures[b].value else slower_p(figures[a].sample, figures[b].sample)
        for a, b in pairs
    ]
    adjusted = dict(zip(pairs, holm(p_values), strict=True))
    apart = [pair for pair, p_value in adjusted.items() if p_value < ALPHA]
    before, behind = Counter(b for _, b in apart), Counter(a for a, _ in apart)
    return [
        Placing(
            None,
            best=1 + before[at] if paired else None,
            worst=n - behind[at] if paired else None,
            p_above=adjusted[at - 1, at] if at else None,
        )
        for at in range(n)
    ]


def order(figures: Sequence[BoardFigure], ranks: Sequence[Placing], names: Sequence[str]) -> list[int]:
    """The indices in the order of a board: by rank, then by value, then by name; unranked figures last."""
    keys = [
        (math.inf if place.rank is None else place.rank, math.inf if each.value is None else each.value, name, index)
        for index, (place, each, name) in enumerate(zip(ranks, figures, names, strict=True))
    ]
    return [index for *_, index in sorted(keys)]


def progress(entries: Sequence[tuple[str, float | None]]) -> list[tuple[str, float, int]]:
    """The record over time: ``(day, value, index)`` for each entry that was better than all before it, oldest first.

    ``entries`` are the ISO day of submission and the value of each, ``None`` without one. Only the best of a day can be
    a record. An entry without a valid day holds no record, since nobody knows what came before it.
    """
    best_of: dict[str, tuple[float, int]] = {}
    for index, (day, value) in enumerate(entries):
        if value is not None and (day not in best_of or value < best_of[day][0]):
            best_of[day] = (value, index)
    best, found = math.inf, []
    for day, (value, index) in sorted(best_of.items()):
        if value < best and day_of(day) is not None:
            best = value
            found.append((day, value, index))
    return found
