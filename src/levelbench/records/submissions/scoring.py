"""What a ruleset makes of a submission: the crossing of each run, then one figure from all of them.

The one idea: a score is computed from the curves, never taken from what an entry says of itself, and a run that never
arrived stays in: as never, as the slowest, or as the reason why there is no figure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from levelbench.errors import UsageError
from levelbench.measure.crossing import sign_of
from levelbench.measure.statistics import expected_time_with_restarts, wilson
from levelbench.records.rulesets.registry import task_rules
from levelbench.records.rulesets.schema import Aggregation, Ruleset, TaskRules
from levelbench.records.schema import Target
from levelbench.records.submissions.aggregation import Times, aggregate
from levelbench.records.submissions.figures import Figure, Score, absent
from levelbench.records.submissions.latencies import Inferred, inference_figures
from levelbench.records.submissions.possible import PRICE_USD, is_within
from levelbench.records.submissions.schema import Submission, SubmittedRun
from levelbench.records.submissions.steps import Climb, climbs_of, column_of, crossing_of

__all__ = ["aggregation_words", "score", "sweep", "target_of"]

_HOUR_S = 3600.0


def aggregation_words(rules: Aggregation) -> str:
    """How runs become one figure, as a sentence."""
    if rules.rule == "first-run":
        return "The crossing of one run."
    if rules.rule == "olympic":
        return (
            f"The mean of {rules.runs} runs without the {rules.drop} fastest and the {rules.drop} slowest; "
            f"up to {rules.drop} that never arrive count as slowest.{_windows_words(rules)}"
        )
    if rules.best_of > 1:
        return (
            f"The median over the studies of the fastest of {rules.best_of} runs each, {rules.runs} runs or more; "
            "a study that never arrives counts as never, and the interval is part of the ranking."
        )
    return (
        f"The median of all runs, {rules.runs} or more; those that never arrive count as never, "
        "and the interval is part of the ranking: 95 %, of five runs the smallest to the largest (93.75 %)."
    )


def _windows_words(rules: Aggregation) -> str:
    if rules.windows is None:
        return ""
    which = {"lower": "the faster", "upper": "the slower", "mean": "the mean"}[rules.windows]
    return (
        f" Of more runs the median over all windows of {rules.runs} in the order of their start counts, "
        f"of two in the middle {which}."
    )


def target_of(submission: Submission, rules: Ruleset, threshold: float | None = None) -> Target | None:
    """What the submission is scored against: the rules' target, at ``threshold`` if given; ``None``: no such task."""
    task = task_rules(rules, submission.task)
    if task is None:
        return None
    return task.target if threshold is None else msgspec.structs.replace(task.target, threshold=threshold)


def score(
    submission: Submission,
    ruleset: Ruleset,
    *,
    threshold: float | None = None,
    climbs: Sequence[Climb | None] | None = None,
) -> Score:
    """The figures of ``submission`` under ``ruleset``, or at another ``threshold`` on the target's scale.

    A submission of training has no figure in the columns of inference, and the other way round; one whose task the
    rules do not have has none at all. Of inference it is the score in the first scenario of the rules that it has, with
    those in each other as ``further``. Nothing in a submission makes this raise; a threshold that is no number does
    (``UsageError``). ``climbs`` are ``climbs_of`` the submission under the ruleset's crossing rule, from whoever has
    them already.
    """
    if threshold is not None and math.isnan(threshold):
        raise UsageError("a target crossing", "the threshold is not a number", "give the quality to reach")
    task = task_rules(ruleset, submission.task)
    if task is None:
        return _unscored(submission, ruleset, f"{ruleset.id} has no task {submission.task!r}")
    target = task.target if threshold is None else msgspec.structs.replace(task.target, threshold=threshold)
    return _scored(submission, ruleset, task, target, threshold, climbs)


def _scored(
    submission: Submission,
    ruleset: Ruleset,
    task: TaskRules,
    target: Target,
    threshold: float | None,
    climbs: Sequence[Climb | None] | None,
) -> Score:
    if submission.mode == "training":
        return _training(submission, ruleset, task, target, climbs)
    if task.inference is None:
        return _unscored(submission, ruleset, f"{ruleset.id} has no inference for this task")
    inferred = inference_figures(submission, task.inference, ruleset.cost, target, threshold)
    first, *further = [_of_inference(submission, ruleset, task.task, target, each) for each in inferred]
    return msgspec.structs.replace(first, further=tuple(further))


def sweep(submission: Submission, ruleset: Ruleset, thresholds: Sequence[float]) -> list[Figure]:
    """The time at each of ``thresholds``: what a ranking at another target is made of."""
    target, climbs = target_of(submission, ruleset), None
    if target is not None and submission.mode == "training":
        climbs = climbs_of(submission, target, crossing_of(submission, ruleset))
    return [score(submission, ruleset, threshold=threshold, climbs=climbs).time for threshold in thresholds]


def _training(
    submission: Submission,
    rules: Ruleset,
    task: TaskRules,
    target: Target,
    climbs: Sequence[Climb | None] | None,
) -> Score:
    flags = _claims(submission, rules, target)
    crossing = crossing_of(submission, rules)
    climbs = climbs_of(submission, target, crossing) if climbs is None else climbs
    columns = [column_of(run, submission, target) for run in submission.runs]
    if None in columns:
        flags.append("broken-curve" if submission.target.metric == target.metric else "other-metric")
    times = _times(submission.runs, columns, climbs, target)
    n, reached = len(times.seconds), sum(time is not None for time in times.seconds)
    flags += _flags_of_runs(submission, times, rules.aggregation, reached, crossing == "final" != rules.crossing)
    if rules.crossing == "first":
        flags += _flags_of_curves(submission.runs, columns, target)
    time = aggregate(times, rules.aggregation)
    cost = _cost(submission, rules, time, flags)
    share = wilson(reached, n) if n else None
    arrived = [each for each in times.seconds if each is not None]
    return Score(
        ruleset=rules.id,
        task=task.task,
        mode="training",
        target=target,
        time=time,
        cost=cost,
        latency=_NOT_INFERENCE,
        inference_cost=_NOT_INFERENCE,
        n=n,
        reached=reached,
        reached_low=share.low if share else None,
        reached_high=share.high if share else None,
        times_s=times.seconds,
        best_s=min(arrived, default=None),
        expected_with_restarts_s=expected_time_with_restarts(arrived, times.spent_s) if arrived and n > 1 else None,
        flags=tuple(flags),
    )


def _of_inference(submission: Submission, rules: Ruleset, task: str, target: Target, found: Inferred) -> Score:
    share = wilson(found.counted, found.n) if found.n else None
    return Score(
        ruleset=rules.id,
        task=task,
        mode="inference",
        target=target,
        time=_NOT_TRAINING,
        cost=_NOT_TRAINING,
        latency=found.latency,
        inference_cost=found.cost,
        n=found.n,
        reached=found.counted,
        reached_low=share.low if share else None,
        reached_high=share.high if share else None,
        times_s=(),
        best_s=None,
        expected_with_restarts_s=None,
        flags=(*_claims(submission, rules, target), *found.flags),
        throughput=found.throughput,
        scenario=found.scenario,
    )


_NOT_INFERENCE = absent("an entry of training")
_NOT_TRAINING = absent("an entry of inference")


def _unscored(submission: Submission, rules: Ruleset, reason: str) -> Score:
    figure = absent(reason)
    n = len(submission.runs if submission.mode == "training" else submission.inference)
    return Score(
        ruleset=rules.id,
        task=submission.task,
        mode=submission.mode,
        target=submission.target,
        time=figure if submission.mode == "training" else _NOT_TRAINING,
        cost=figure if submission.mode == "training" else _NOT_TRAINING,
        latency=figure if submission.mode == "inference" else _NOT_INFERENCE,
        inference_cost=figure if submission.mode == "inference" else _NOT_INFERENCE,
        n=n,
        reached=0,
        reached_low=None,
        reached_high=None,
        times_s=(),
        best_s=None,
        expected_with_restarts_s=None,
        flags=(),
    )


def _times(
    runs: Sequence[SubmittedRun],
    columns: Sequence[list[float] | None],
    climbs: Sequence[Climb | None],
    target: Target,
) -> Times:
    """When each run arrived; for those that did not, how long they tried."""
    seconds: list[float | None] = []
    spent = []
    for run, column, climb in zip(runs, columns, climbs, strict=True):
        found = None if climb is None else climb.time_at(target.threshold)
        seconds.append(found)
        if found is not None:
            continue
        spent.append(run.curve.time_s[-1] if column else 0.0)
    return Times(tuple(seconds), tuple(spent))


def _cost(submission: Submission, rules: Ruleset, time: Figure, flags: list[str]) -> Figure:
    """US dollars: the time at the price of the whole system."""
    price = submission.price
    if price is None:
        return absent("no price is stated")
    if price.on_demand is False and rules.cost.on_demand_only:
        return absent("the price is not an on-demand price, and the rules want one")
    if time.value is None:
        return absent(time.how)
    if not is_within(price.usd_per_hour, PRICE_USD):
        return absent("the price is no possible one")
    return time.times(price.usd_per_hour / _HOUR_S, f"{time.how}, at {price.usd_per_hour:g} USD an hour")


def _claims(submission: Submission, rules: Ruleset, target: Target) -> list[str]:
    """What an entry says of itself that the rules have otherwise."""
    price = submission.price
    found = {
        "other-rules": submission.ruleset != rules.id,
        "other-clock": submission.mode == "training" and submission.clock not in (None, rules.clock),
        "other-split": submission.target.split != target.split,
        "synthetic-data": bool(submission.provenance.synthetic),
        "price-missing": price is None,
        "price-not-on-demand": price is not None and price.on_demand is False,
        "price-without-source": price is not None and not price.source and rules.cost.source_required,
    }
    return [flag for flag, holds in found.items() if holds]


def _flags_of_runs(submission: Submission, times: Times, rules: Aggregation, reached: int, at_end: bool) -> list[str]:
    n = len(times.seconds)
    found = {
        "single-run": n == 1,
        "not-reached": reached == 0,
        "censored": 0 < reached < n,
        "failed-runs": any(run.status == "failed" for run in submission.runs),
        "judged-at-end": at_end,
        "suspect-runs": any(run.suspect for run in submission.runs),
        "too-few-runs": n < rules.runs,
        "extra-runs": n > rules.runs and rules.rule == "first-run",
    }
    return [flag for flag, holds in found.items() if holds]


def _flags_of_curves(runs: Sequence[SubmittedRun], columns: Sequence[list[float] | None], target: Target) -> list[str]:
    """What the rule of the first crossing cannot see: whether the quality stayed."""
    sign = sign_of(target.direction)
    ends = falls = False
    for run, column in zip(runs, columns, strict=True):
        at = [sign * quality >= sign * target.threshold for quality in column or ()]
        if run.status == "done" and True in at:
            ends = ends or at.index(True) == len(at) - 1
            falls = falls or False in at[at.index(True) :]
    return ["stops-at-target"] * ends + ["falls-back"] * falls
