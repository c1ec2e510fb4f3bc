"""Scores a submission under a ruleset: the crossing of each run, then one figure from all of them.

A score is computed from the curves, never taken from the entry's own claims. Every crossing rule asks for the first
point at which some derived quality is at the target, so that quality is computed once, and the time for another target
is a lookup.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import msgspec

from levelbench.competition.entries import Inference, Submission, SubmittedCurve, SubmittedRun
from levelbench.competition.figures import (
    ANSWER_USD,
    ENERGY_J,
    FLAGS,
    LATENCY_S,
    PRICE_USD,
    QUANTILES,
    RATE_PER_S,
    BoardFigure,
    Bounds,
    EntryScore,
    RankedScenario,
    absent,
    aggregate,
    by_scenario,
    is_within,
    median_figure,
    scenario_of,
)
from levelbench.competition.rulesets import Aggregation, CostRules, InferenceRules, Ruleset, task_rules
from levelbench.errors import UsageError
from levelbench.measure.crossing import Climb, climb_of, sign_of
from levelbench.measure.statistics import expected_time_with_restarts, p_text, reaches_on_average, wilson
from levelbench.measure.statistics.early_stopping import least_queries
from levelbench.records.schema import Target
from levelbench.report.numbers import plural

LONGEST_S = 1e12
"""Thirty thousand years: no real time is longer, and sums of shorter ones are exact enough."""


def column_of(run: SubmittedRun, submission: Submission, target: Target) -> list[float] | None:
    """The qualities of ``run`` in the metric of ``target``; ``None`` if its curve lacks that metric or is broken."""
    curve = run.curve
    same = submission.target.metric == target.metric
    found = curve.quality if same else curve.others.get(target.metric)
    if found is None or len(found) != len(curve.time_s):
        return None
    # The sum catches NaN, which minimum and maximum may miss.
    possible = not found or (min(curve.time_s) >= -LONGEST_S and max(curve.time_s) <= LONGEST_S)
    return found if possible and math.isfinite(sum(curve.time_s)) else None


def crossing_of(submission: Submission, rules: Ruleset) -> str:
    """The rule that judges its runs: the ruleset's, but schedules of fixed length are judged at their end.

    Under ``confirmed`` such a schedule, which the entry calls ``final``, has a single evaluation that counts.
    """
    fixed = rules.crossing == "confirmed" and submission.crossing == "final"
    return "final" if fixed else rules.crossing


def first_arrival_s(curve: SubmittedCurve, target: Target) -> float | None:
    """Seconds to the first evaluation at the target, the rule of DAWNBench, MLPerf and AlgoPerf; ``None``: never."""
    return climb_of(curve.time_s, curve.quality, "first", target.direction).time_at(target.threshold)


def climbs_of(submission: Submission, target: Target, rule: str) -> list[Climb | None]:
    """Each run's climb in the metric of ``target``; ``None`` for a run that failed, has another metric or is broken."""
    found: list[Climb | None] = []
    for run in submission.runs:
        column = column_of(run, submission, target) if run.status == "done" else None
        found.append(climb_of(run.curve.time_s, column, rule, target.direction) if column is not None else None)
    return found


def thinned(steps: Sequence[tuple[float, float]], most: int, target: Target) -> Sequence[tuple[float, float]]:
    """At most ``most`` (3 or more) of the steps: the one at the target, the first, the last, and evenly spread others.

    Dropping a step makes the time for targets between it and the one before later, never earlier.
    """
    if len(steps) <= most:
        return steps
    sign = sign_of(target.direction)
    at = bisect_left(steps, sign * target.threshold, key=lambda step: sign * step[0])
    kept = _evenly(len(steps), most)
    if at == len(steps) or at in kept:
        return [steps[i] for i in kept]
    return [steps[i] for i in sorted((*kept, at))]


@lru_cache(maxsize=1024)
def _evenly(count: int, most: int) -> tuple[int, ...]:
    """At most ``most`` - 1 of ``count`` indices in order, including the first and the last."""
    return tuple(sorted({round(i * (count - 1) / (most - 2)) for i in range(most - 1)}))


FEWEST = 3
"""Fewer processes say little about what the next one will measure."""

_MILLION, _HOUR_S = 1e6, 3600.0
_ANSWER_S = (1.0 / RATE_PER_S[1], 1.0 / RATE_PER_S[0])
"""How long an answer takes if many are given at once."""
ONE_BY_ONE = ("single-stream", "multi-stream", "dawnbench")
"""The scenarios in which each query has the whole system to itself: the next one is sent after the answer."""
STREAMS = ("single-stream", "multi-stream")
"""The scenarios with an early-stopping estimate in LoadGen."""
_SLACK, _DEVIATIONS = 0.05, 4.0
"""How far a server's answers per second may stay below the target rate: the end of a run takes time, and chance."""


_NOT_THIS = absent("its scenario is ranked by another figure")


def _in_scenario(
    submission: Submission,
    ruleset: Ruleset,
    rules: InferenceRules,
    target: Target,
    scenario: RankedScenario,
    chosen: Sequence[Inference],
) -> EntryScore:
    """Latency in seconds or answers per second, and US dollars per million answers, of the ``chosen`` measurements.

    Only the figure that ranks the ``scenario``, latency or throughput, has a value.
    """
    faults = [_fault(each, rules, target) for each in chosen]
    good = [each for each, fault in zip(chosen, faults, strict=True) if not fault]
    if good:
        figure, spent = _measured(good, scenario), _cost(submission, good, ruleset.cost)
    else:
        figure = spent = absent(next(fault for fault in faults if fault))
    share = wilson(len(good), len(chosen))
    return _plain(
        submission,
        ruleset,
        target,
        latency=_NOT_THIS if scenario.column == "throughput" else figure,
        throughput=figure if scenario.column == "throughput" else _NOT_THIS,
        inference_cost=spent,
        n=len(chosen),
        reached=len(good),
        reached_low=share.low,
        reached_high=share.high,
        flags=tuple(_flags(submission, chosen, good, target, rules.threshold)),
        scenario=scenario,
    )


_MISSING = {"latency": "no latency is stated", "throughput": "no throughput is stated"}


def _values(good: Sequence[Inference], scenario: RankedScenario) -> list[float]:
    """The figure that ranks the scenario, for each measurement that states a possible one.

    It is a latency, the target queries per second of a server, or the samples per second of a batch.
    """
    if scenario.column == "latency":
        return _possible(map(_latency, good), LATENCY_S)
    return _possible(
        [each.target_per_s if each.scenario == "server" else each.throughput_per_s for each in good], RATE_PER_S
    )


def lacks_estimate(found: Inference) -> str:
    """The flag of a measurement without the early-stopping estimate of its scenario; empty if it has or needs none.

    Only too few queries excuse that. The plain quantile is faster, so whoever left the estimate out would gain.
    """
    if found.scenario not in STREAMS or _estimate(found) is not None:
        return ""
    return "no-estimate" if found.queries < least_queries(QUANTILES[found.scenario]) else "estimate-left-out"


def _measured(good: Sequence[Inference], scenario: RankedScenario) -> BoardFigure:
    values = _values(good, scenario)
    if not values:
        return absent(_MISSING[scenario.column])
    if "estimate-left-out" in map(lacks_estimate, good):
        return absent(FLAGS["estimate-left-out"])
    found = median_figure(values, "measurement")
    if scenario.name == "server" and len(values) > 1 and min(values) == max(values):
        # The rate was chosen beforehand, so equal rates are not a spread of zero.
        how = f"target rate, kept by each of {len(values)} measurements"
        found = BoardFigure(found.value, how=how, sample=found.sample)
    return msgspec.structs.replace(found, how=f"{scenario.title}: {scenario.measure}, {found.how}")


def refusal(found: Inference, rules: InferenceRules, target: Target) -> str:
    """Why scoring does not rank a measurement in its scenario; empty if it does."""
    fault = _fault(found, rules, target)
    return fault or ("" if _values([found], scenario_of(found, rules)) else _MISSING[scenario_of(found, rules).column])


def _fault(found: Inference, rules: InferenceRules, target: Target) -> str:
    """Why a measurement does not count; empty if it does."""
    sign, least = sign_of(target.direction), rules.threshold
    if found.valid is False:
        return "not valid by the scenario's own rules"
    if least is not None and found.quality is None:
        return "the quality of the same answers is not stated"
    if least is not None and found.quality is not None and sign * found.quality < sign * least:
        return f"a quality of {found.quality:g}, where the rules require {least:g}"
    if found.scenario == "dawnbench":
        # It takes as long as one pass over all samples.
        return ""
    # Offline sends all samples in one query.
    had, what = (found.samples, "samples") if found.scenario == "offline" else (found.queries, "queries")
    if had < rules.least(found.scenario):
        return f"{had} {what}, where the rules require {rules.least(found.scenario)}"
    if found.duration_s < rules.least_duration_s:
        return f"{found.duration_s:g} s, where the rules require {rules.least_duration_s:g} s"
    return _server_fault(found, rules) if found.scenario == "server" else ""


def _server_fault(found: Inference, rules: InferenceRules) -> str:
    """Why the server may not have kept its rate within the bound; empty if it did."""
    bound = found.latency_bound_s if rules.latency_bound_s is None else rules.latency_bound_s
    if found.target_per_s is None or bound is None:
        return "the rate is not stated" if found.target_per_s is None else "the latency bound is not stated"
    late = quantile_of(found, QUANTILES["server"])
    if late is None and not (found.valid and (found.latency_bound_s or math.inf) <= bound):
        return f"it is not stated that 99 % were within {bound:g} s"
    if late is not None and late > bound:
        return f"99 % within {late:g} s, where the bound is {bound:g} s"
    answered = found.throughput_per_s
    if answered is None:
        answered = found.queries / found.duration_s if found.duration_s > 0 else 0.0
    # Random arrivals vary by the square root of their number.
    least = found.target_per_s * (1.0 - _SLACK - _DEVIATIONS / math.sqrt(max(found.queries, 1)))
    return f"{answered:g} answers a second, target {found.target_per_s:g}" if answered < least else ""


def _flags(
    submission: Submission, chosen: Sequence[Inference], good: Sequence[Inference], target: Target, least: float | None
) -> list[str]:
    sign = sign_of(target.direction)
    stated = [each.quality for each in chosen if each.quality is not None]
    found = {
        "single-run": len(chosen) == 1,
        "few-processes": 1 < len(chosen) < FEWEST,
        "preprocessing-on-clock": any("preprocessing" in each.includes for each in chosen),
        "quality-missing": len(stated) < len(chosen),
        "quality-too-low": least is not None and any(sign * quality < sign * least for quality in stated),
        **{flag: flag in map(lacks_estimate, good) for flag in ("no-estimate", "estimate-left-out")},
        "cost-stated": submission.price is None and any(each.cost_usd is not None for each in good),
    }
    return [flag for flag, holds in found.items() if holds]


def _estimate(found: Inference) -> float | None:
    """The early-stopping estimate, if it is for the scenario's own quantile."""
    wanted = QUANTILES[found.scenario]
    return found.estimate_s if found.estimate_quantile in (None, wanted) else None


def _latency(found: Inference) -> float | None:
    if found.scenario == "dawnbench":
        return found.mean_latency_s
    estimate = _estimate(found)
    return quantile_of(found, QUANTILES[found.scenario]) if estimate is None else estimate


def quantile_of(found: Inference, wanted: float | None) -> float | None:
    """The stated latency at the quantile ``wanted``, whether its name is written "0.9" or "0.90"."""
    for name, value in found.quantiles_s.items():
        with suppress(ValueError):
            if float(name) == wanted:
                return value
    return None


def _possible(values: Iterable[float | None], bounds: Bounds) -> list[float]:
    """The values that are stated and possible."""
    return [value for value in values if value is not None and is_within(value, bounds)]


def _cost(submission: Submission, good: Sequence[Inference], rules: CostRules) -> BoardFigure:
    """US dollars per million answers: the price by answers per hour, or the author's figure if there is no price."""
    price = submission.price
    if price is not None and price.on_demand is False and rules.on_demand_only:
        return absent("the price is not an on-demand price, and the rules require one")
    if price is None:
        stated = _possible((each.cost_usd for each in good), ANSWER_USD)
        if not stated:
            return absent("no price is stated")
        found = median_figure([cost * _MILLION for cost in stated], "measurement")
        return msgspec.structs.replace(found, how=f"per million answers, as stated by the author, {found.how}")
    if not is_within(price.usd_per_hour, PRICE_USD):
        return absent("impossible price")
    seconds = _possible(map(_seconds_an_answer, good), _ANSWER_S)
    if not seconds:
        return absent("neither a latency nor a throughput is stated")
    found = median_figure(seconds, "measurement")
    how = f"per million answers, {found.how}, at {price.usd_per_hour:g} USD an hour"
    return found.times(price.usd_per_hour / _HOUR_S * _MILLION, how)


def _seconds_an_answer(found: Inference) -> float | None:
    """How long one answer occupies the system: the mean latency if it works on one at a time."""
    if found.scenario in ("dawnbench", "single-stream") and found.mean_latency_s is not None:
        return found.mean_latency_s
    if found.throughput_per_s is not None and found.throughput_per_s > 0:
        return 1.0 / found.throughput_per_s
    return found.duration_s / found.samples if found.samples and found.duration_s > 0 else None


def aggregation_words(rules: Aggregation) -> str:
    """How runs become one figure, as a sentence."""
    if rules.rule == "first-run":
        return "The crossing of one run."
    if rules.rule == "olympic":
        words = (
            f"The mean of {rules.runs} runs without the {rules.drop} fastest and the {rules.drop} slowest; "
            f"up to {rules.drop} that never reach the target count as slowest."
        )
        if rules.windows is None:
            return words
        which = {"lower": "the faster", "upper": "the slower", "mean": "the mean"}[rules.windows]
        return (
            f"{words} With more runs, the median over all windows of {rules.runs} in the order of their start counts; "
            f"of two middle windows, {which}."
        )
    if rules.rule == "mean-test":
        return (
            f"The mean of all runs, {rules.runs} or more, if the mean of their final qualities is at the target by a "
            f"one-sided t test with p < {rules.level:g}; single runs may miss it, and a failed run leaves no figure."
        )
    if rules.best_of > 1:
        return (
            f"The median over studies of the fastest of {rules.best_of} runs each, {rules.runs} runs or more; "
            "a study that never reaches the target counts as never."
        )
    return (
        f"The median of all runs, {rules.runs} or more; those that never reach the target count as never, "
        "and the interval is the median's: 95 %, or for five runs the smallest to the largest (93.75 %)."
    )


def target_of(submission: Submission, rules: Ruleset, threshold: float | None = None) -> Target | None:
    """The target for scoring: that of the rules, at ``threshold`` if given; ``None``: the rules lack the task."""
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
) -> EntryScore:
    """The figures of ``submission`` under ``ruleset``, or at another ``threshold`` on the target's scale.

    A training submission has no figures in the columns of inference and vice versa; if the rules do not have its task,
    it has none at all. For inference this is the score in the first scenario of the rules that it has, with the other
    scenarios as ``further``. Nothing in a submission makes this raise; a NaN threshold does (``UsageError``).
    ``climbs`` are ``climbs_of`` the submission under the ruleset's crossing rule, if the caller has them already.
    """
    if threshold is not None and math.isnan(threshold):
        raise UsageError("a target crossing", "the threshold is not a number", "give the quality to reach")
    task = task_rules(ruleset, submission.task)
    if task is None:
        return _unscored(submission, ruleset, f"{ruleset.id} has no task {submission.task!r}")
    target = task.target if threshold is None else msgspec.structs.replace(task.target, threshold=threshold)
    if submission.mode == "training":
        return _training(submission, ruleset, target, climbs)
    if task.inference is None:
        return _unscored(submission, ruleset, f"{ruleset.id} has no inference for this task")
    return _inference(submission, ruleset, task.inference, target, threshold)


def sweep(submission: Submission, ruleset: Ruleset, thresholds: Sequence[float]) -> list[BoardFigure]:
    """The time at each of ``thresholds``, for rankings at other targets."""
    target, climbs = target_of(submission, ruleset), None
    if target is not None and submission.mode == "training":
        climbs = climbs_of(submission, target, crossing_of(submission, ruleset))
    return [score(submission, ruleset, threshold=threshold, climbs=climbs).time for threshold in thresholds]


def _training(
    submission: Submission, rules: Ruleset, target: Target, climbs: Sequence[Climb | None] | None
) -> EntryScore:
    flags = _claims(submission, rules, target)
    crossing = crossing_of(submission, rules)
    climbs = climbs_of(submission, target, crossing) if climbs is None else climbs
    columns = [column_of(run, submission, target) for run in submission.runs]
    if None in columns:
        flags.append("broken-curve" if submission.target.metric == target.metric else "other-metric")
    times = [None if climb is None else climb.time_at(target.threshold) for climb in climbs]
    # How long the runs that missed the target tried.
    tried = zip(submission.runs, columns, times, strict=True)
    spent = [run.curve.time_s[-1] if column else 0.0 for run, column, time in tried if time is None]
    n, arrived = len(times), [time for time in times if time is not None]
    reached, by_mean = len(arrived), rules.aggregation.rule == "mean-test"
    flags += _flags_of_runs(submission, rules.aggregation, reached, crossing == "final" != rules.crossing)
    if rules.crossing == "first":
        flags += _flags_of_curves(submission.runs, columns, target)
    fault, said = judged_mean(submission, rules, target)
    needed = _ends(submission) if by_mean else times
    time = absent(fault) if fault else _with_words(aggregate(needed, rules.aggregation), said)
    ranked = {rules.ranked_by}.difference(("time", "cost"))
    more = {*ranked, *(["energy"] if any(run.energy_j is not None for run in submission.runs) else [])}
    other = dict.fromkeys(more, absent(fault))
    if not fault:
        other = {what: _with_words(_other_figure(submission, rules, target, needed, what), said) for what in more}
    cost = _training_cost(submission, rules, time)
    share = wilson(reached, n) if n else None
    return _plain(
        submission,
        rules,
        target,
        time=time,
        cost=cost,
        n=n,
        reached=reached,
        reached_low=share.low if share else None,
        reached_high=share.high if share else None,
        times_s=tuple(times),
        best_s=min(arrived, default=None),
        expected_with_restarts_s=(
            expected_time_with_restarts(arrived, spent) if arrived and n > 1 and not by_mean else None
        ),
        flags=tuple(flags),
        **other,
    )


_LARGEST_QUALITY = 1e100


def judged_mean(submission: Submission, rules: Ruleset, target: Target) -> tuple[str, str]:
    """Why the mean final quality of the runs is not at the target under ``mean-test``, or else how sure it is.

    Both are empty under another rule. A run that failed has no final quality, so that there is no mean.
    """
    level, n = rules.aggregation.level, len(submission.runs)
    if rules.aggregation.rule != "mean-test" or level is None or not n:
        return "", ""
    columns = [column_of(run, submission, target) if run.status == "done" else None for run in submission.runs]
    ends = [column[-1] for column in columns if column and abs(column[-1]) <= _LARGEST_QUALITY]
    if len(ends) < n:
        return f"{n - len(ends)} of {plural(n, 'run')} failed: the mean is over all runs", ""
    found = reaches_on_average(ends, target.threshold, target.direction, level)
    if found.p_value is None:
        return "one run: a test of the mean needs two", ""
    said = f"mean final {target.metric} {found.mean:.6g}"
    if found.reached:
        return "", f"{said}, {p_text(found.p_value)}"
    # Digits enough to tell the p value from the level.
    return f"{said}, p = {found.p_value:.3g}; the rules require {target.threshold:g} with p < {level:g}", ""


def _ends(submission: Submission) -> list[float | None]:
    """How long each run took to its last evaluation; ``None`` for one that failed."""
    return [run.curve.time_s[-1] if run.status == "done" and run.curve.time_s else None for run in submission.runs]


def _with_words(figure: BoardFigure, said: str) -> BoardFigure:
    return msgspec.structs.replace(figure, how=f"{figure.how}; {said}") if said else figure


def _other_figure(
    submission: Submission, rules: Ruleset, target: Target, needed: Sequence[float | None], what: str
) -> BoardFigure:
    """The samples, steps or joules that the runs needed; ``needed`` has their seconds, ``None`` for never.

    A record has one total of its energy, so what a run uses after the target counts as well.
    """
    crossing, values = crossing_of(submission, rules), list[float | None]()
    arrived = [run for run, time_s in zip(submission.runs, needed, strict=True) if time_s is not None]
    methods = {(run.energy_method or "").strip() for run in arrived}
    for at, (run, time_s) in enumerate(zip(submission.runs, needed, strict=True)):
        value: float | None = None
        if time_s is not None and what == "energy":
            value = run.energy_j
        elif time_s is not None:
            stated = run.curve.steps if what == "steps" else run.curve.samples
            column = column_of(run, submission, target)
            if stated is not None and column is not None and len(stated) == len(column):
                by_mean = rules.aggregation.rule == "mean-test"
                climb = climb_of(stated, column, crossing, target.direction)
                value = stated[-1] if by_mean else climb.time_at(target.threshold)
        if time_s is not None and value is None:
            return absent(f"runs[{at}] does not state its {what}")
        if value is not None and not is_within(value, ENERGY_J if what == "energy" else (1.0, LONGEST_S * 1e6)):
            return absent(f"runs[{at}] has an impossible number of {'joules' if what == 'energy' else what}")
        values.append(value)
    if what != "energy" or not methods:
        return aggregate(values, rules.aggregation)
    if "" in methods or len(methods) > 1:
        return absent("its runs do not state how energy was measured, or measured it by different methods")
    return _with_words(aggregate(values, rules.aggregation), f"of whole runs, by {methods.pop()}")


def _inference(
    submission: Submission, ruleset: Ruleset, rules: InferenceRules, target: Target, threshold: float | None
) -> EntryScore:
    """The score in each ranked scenario, in the order of ``by_scenario``: the first one, the others as ``further``.

    ``threshold`` replaces the quality that the rules require.
    """
    groups, claims = by_scenario(submission.inference, rules), _claims(submission, ruleset, target)
    if not groups:
        others = ", ".join(sorted({each.scenario for each in submission.inference})) or "nothing"
        ranked = ", ".join(rules.scenarios) or "no scenario"
        figure = absent(f"the rules compare {ranked}; this entry measured {others}")
        flags = (*claims, *(("other-scenario",) if submission.inference else ()))
        figures = {"latency": figure, "throughput": _NOT_THIS, "inference_cost": figure}
        return _plain(submission, ruleset, target, n=0, flags=flags, **figures)
    rules = rules if threshold is None else msgspec.structs.replace(rules, threshold=threshold)
    if sum(map(len, groups.values())) < len(submission.inference):
        claims.append("further-scenarios")
    scores = [_in_scenario(submission, ruleset, rules, target, *group) for group in groups.items()]
    first, *further = (msgspec.structs.replace(each, flags=(*claims, *each.flags)) for each in scores)
    return msgspec.structs.replace(first, further=tuple(further))


def _plain(submission: Submission, rules: Ruleset, target: Target, **found: Any) -> EntryScore:
    task = task_rules(rules, submission.task)
    name = submission.task if task is None else task.task
    return EntryScore(ruleset=rules.id, task=name, mode=submission.mode, target=target, **found)


def _unscored(submission: Submission, rules: Ruleset, reason: str) -> EntryScore:
    training, figure = submission.mode == "training", absent(reason)
    columns = ("time", "cost") if training else ("latency", "inference_cost")
    n = len(submission.runs if training else submission.inference)
    return _plain(submission, rules, submission.target, n=n, **dict.fromkeys(columns, figure))


def _training_cost(submission: Submission, rules: Ruleset, time: BoardFigure) -> BoardFigure:
    price = submission.price
    if price is None:
        return absent("no price is stated")
    if price.on_demand is False and rules.cost.on_demand_only:
        return absent("the price is not an on-demand price, and the rules require one")
    if time.value is None:
        return absent(time.how)
    if not is_within(price.usd_per_hour, PRICE_USD):
        return absent("impossible price")
    return time.times(price.usd_per_hour / _HOUR_S, f"{time.how}, at {price.usd_per_hour:g} USD an hour")


def _claims(submission: Submission, rules: Ruleset, target: Target) -> list[str]:
    """Flags for what an entry states differently from the rules."""
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


def _flags_of_runs(submission: Submission, rules: Aggregation, reached: int, at_end: bool) -> list[str]:
    n = len(submission.runs)
    found = {
        "single-run": n == 1,
        "not-reached": reached == 0,
        "censored": 0 < reached < n and rules.rule != "mean-test",
        "failed-runs": any(run.status == "failed" for run in submission.runs),
        "judged-at-end": at_end,
        "suspect-runs": any(run.suspect for run in submission.runs),
        "too-few-runs": n < rules.runs,
        "extra-runs": n > rules.runs and rules.rule == "first-run",
    }
    return [flag for flag, holds in found.items() if holds]


def _flags_of_curves(runs: Sequence[SubmittedRun], columns: Sequence[list[float] | None], target: Target) -> list[str]:
    """What the first-crossing rule cannot see: whether the quality stayed at the target."""
    sign = sign_of(target.direction)
    ends = falls = False
    for run, column in zip(runs, columns, strict=True):
        at = [sign * quality >= sign * target.threshold for quality in column or ()]
        if run.status == "done" and True in at:
            ends = ends or at.index(True) == len(at) - 1
            falls = falls or False in at[at.index(True) :]
    return ["stops-at-target"] * ends + ["falls-back"] * falls
