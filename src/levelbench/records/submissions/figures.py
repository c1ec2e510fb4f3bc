"""What a score is made of: four figures, how many runs arrived, and what a reader should know before believing it.

The one idea: a figure is a value with its interval and the words for how it was made, or no value and the reason; so
whoever prints it needs to know no rule.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal

from msgspec import Struct

from levelbench.records.schema import Target
from levelbench.records.submissions.scenarios import RankedScenario

__all__ = ["COLUMNS", "FLAGS", "MORE_IS_BETTER", "Column", "Figure", "Score", "absent"]

Column = Literal["time", "cost", "latency", "throughput", "inference_cost"]
COLUMNS: tuple[Column, ...] = ("time", "cost", "latency", "throughput", "inference_cost")
"""Training has the first two; inference the last, and latency or throughput, whichever its scenario is about."""
MORE_IS_BETTER: frozenset[Column] = frozenset({"throughput"})
"""In every other column less is better."""

FLAGS = MappingProxyType(
    {
        "single-run": "single run: nothing is known of its spread",
        "few-processes": "fewer than three processes: little is known of its spread",
        "preprocessing-on-clock": "making the network's inputs of raw examples is on the clock",
        "not-reached": "no run reached the target",
        "judged-at-end": "judged at its last evaluation alone, as a schedule of fixed length",
        "other-scenario": "measured in a scenario that the rules do not rank",
        "further-scenarios": "measurements of scenarios that the rules do not rank, or of too many, are shown alone",
        "censored": "some runs did not reach the target; they count as never, not as slow",
        "failed-runs": "some runs failed",
        "too-few-runs": "fewer runs than the rules want",
        "extra-runs": "more runs than the rules score; the first are scored",
        "broken-curve": "the columns of a curve differ in length, or a time is impossible; the run counts as failed",
        "stops-at-target": "the curve ends where it crosses the target: nobody knows whether it stayed there",
        "falls-back": "the quality falls below the target again after the crossing",
        "other-clock": "timed on another clock than the rules'",
        "other-rules": "made for another ruleset",
        "other-metric": "its quality is another metric than the rules'",
        "other-split": "evaluated on another split than the rules'",
        "synthetic-data": "trained on synthetic data",
        "suspect-runs": "some runs are marked suspect by the tool that made them",
        "price-missing": "no price is stated",
        "price-not-on-demand": "the price is not an on-demand price",
        "price-without-source": "the price has no source",
        "cost-stated": "the cost is the author's statement: there is no price to compute it from",
        "no-estimate": "too few queries for the scenario's own estimate; the plain quantile stands in for it",
        "quality-missing": "the quality of the same answers is not stated",
        "quality-too-low": "the quality of the answers is below what the rules keep",
    }
)
"""Each flag with its sentence."""


class Figure(Struct, frozen=True, gc=False):
    """One figure: seconds, US dollars, answers a second, or (``inference_cost``) US dollars per million answers.

    ``low`` and ``high`` are a 95 % interval (of fewer than six runs one of the level that ``how`` says), both ``None``
    where the sample allows none; a bound may be infinite.
    ``how`` says how the value was made, or why there is none.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    how: str = ""

    def times(self, factor: float, how: str = "") -> Figure:
        """The same with value and bounds multiplied by ``factor`` above zero."""
        value, low, high = (None if each is None else each * factor for each in (self.value, self.low, self.high))
        return Figure(value, low, high, how or self.how)


def absent(reason: str) -> Figure:
    """No figure, and why."""
    return Figure(None, how=reason)


class Score(Struct, frozen=True):
    """What the rules make of one submission. Times in seconds, each run's ``None`` where it did not arrive.

    ``reached`` of ``n`` runs arrived (of inference: measurements that count), with the bounds of Wilson's 95 % interval
    of that share. ``expected_with_restarts_s`` is there from two runs on: what it takes until one succeeds if those
    that miss are started again. ``flags`` are keys of ``FLAGS``.
    """

    ruleset: str
    task: str
    mode: Literal["training", "inference"]
    target: Target
    time: Figure
    cost: Figure
    latency: Figure
    inference_cost: Figure
    n: int
    reached: int
    reached_low: float | None
    reached_high: float | None
    times_s: tuple[float | None, ...]
    best_s: float | None
    expected_with_restarts_s: float | None
    flags: tuple[str, ...]
    throughput: Figure = absent("ranked by another figure")
    scenario: RankedScenario | None = None
    """What an entry of inference is ranked in; ``None``: in none."""
    further: tuple[Score, ...] = ()
    """Its scores in the further scenarios that it measured."""

    def in_scenarios(self) -> tuple[Score, ...]:
        """One score a scenario: this and the further ones; of training this alone."""
        return (self, *self.further)

    def figure(self, column: Column) -> Figure:
        """The figure of that column."""
        return {
            "time": self.time,
            "cost": self.cost,
            "latency": self.latency,
            "throughput": self.throughput,
            "inference_cost": self.inference_cost,
        }[column]
