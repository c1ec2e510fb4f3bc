"""Latency, throughput and cost of inference from the measurements of an entry.

The one idea: each scenario asks another question (a mean, a 90th percentile, a rate), so an entry is ranked in each of
the rules' that it measured, by that one's measurements alone. One counts if its answers keep the quality that the rules
want.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

from levelbench.measure.crossing import sign_of
from levelbench.records.rulesets.schema import CostRules, InferenceRules
from levelbench.records.schema import Target
from levelbench.records.submissions.aggregation import median_figure
from levelbench.records.submissions.figures import Figure, absent
from levelbench.records.submissions.possible import (
    ANSWER_USD,
    LATENCY_S,
    PRICE_USD,
    RATE_PER_S,
    Bounds,
    is_within,
)
from levelbench.records.submissions.scenarios import QUANTILES, RankedScenario, by_scenario, scenario_of
from levelbench.records.submissions.schema import Inference, Submission

__all__ = ["ONE_BY_ONE", "QUANTILES", "Inferred", "inference_figures", "refusal"]

FEWEST = 3
"""Fewer processes than these tell little of what the next one will measure."""

_MILLION, _HOUR_S = 1e6, 3600.0
_ANSWER_S = (1.0 / RATE_PER_S[1], 1.0 / RATE_PER_S[0])
"""How long an answer takes where many are given at once."""
ONE_BY_ONE = ("single-stream", "multi-stream", "dawnbench")
"""The scenarios in which a query has the whole system: the next one comes when it is answered."""
_STREAMS = ("single-stream", "multi-stream")
"""The scenarios that LoadGen's early stopping has an estimate for."""
_SLACK, _DEVIATIONS = 0.05, 4.0
"""How far a server's answers a second may stay behind the rate that was asked: what ending a run takes, and chance."""


class Inferred(Struct, frozen=True):
    """Of one scenario: figures, how many measurements are compared and how many of them count, what to know of them.

    Of ``latency`` and ``throughput`` the one that the ``scenario`` is not about has no value.
    """

    latency: Figure
    throughput: Figure
    cost: Figure
    scenario: RankedScenario | None
    n: int
    counted: int
    flags: tuple[str, ...]


def inference_figures(
    submission: Submission, rules: InferenceRules, cost: CostRules, target: Target, threshold: float | None = None
) -> list[Inferred]:
    """Latency in seconds or answers a second, and US dollars per million answers, in each scenario that is ranked.

    They are as ``by_scenario`` has them; where there is none, one without a scenario says why. ``threshold`` replaces
    the quality that the rules keep.
    """
    groups = by_scenario(submission.inference, rules)
    if not groups:
        others = ", ".join(sorted({each.scenario for each in submission.inference})) or "nothing"
        figure = absent(
            f"the rules compare {', '.join(rules.scenarios) or 'no scenario'}; this entry measured {others}"
        )
        flags = ("other-scenario",) if submission.inference else ()
        return [Inferred(figure, _NOT_THIS, figure, None, 0, 0, flags)]
    rules = rules if threshold is None else msgspec.structs.replace(rules, threshold=threshold)
    further = ("further-scenarios",) * (sum(map(len, groups.values())) < len(submission.inference))
    found = [_in_scenario(submission, *group, rules, cost, target) for group in groups.items()]
    return [msgspec.structs.replace(each, flags=(*further, *each.flags)) for each in found]


def _in_scenario(
    submission: Submission,
    scenario: RankedScenario,
    chosen: Sequence[Inference],
    rules: InferenceRules,
    cost: CostRules,
    target: Target,
) -> Inferred:
    least = rules.threshold
    faults = [_fault(each, rules, target, least) for each in chosen]
    good = [each for each, fault in zip(chosen, faults, strict=True) if not fault]
    found = _flags(submission, chosen, good, target, least)
    if good:
        figure, spent = _measured(good, scenario), _cost(submission, good, cost)
    else:
        figure = spent = absent(next(fault for fault in faults if fault))
    latency, throughput = (_NOT_THIS, figure) if scenario.column == "throughput" else (figure, _NOT_THIS)
    return Inferred(latency, throughput, spent, scenario, len(chosen), len(good), tuple(found))


_NOT_THIS = absent("its scenario is about another figure")


_MISSING = {"latency": "no latency is stated", "throughput": "no throughput is stated"}


def _values(good: Sequence[Inference], scenario: RankedScenario) -> list[float]:
    """What the scenario is about, of each measurement that states it."""
    if scenario.column == "latency":
        return _possible(map(_latency, good), LATENCY_S)
    return _possible(map(_rate, good), RATE_PER_S)


def _measured(good: Sequence[Inference], scenario: RankedScenario) -> Figure:
    """The figure that the scenario is about."""
    values = _values(good, scenario)
    if not values:
        return absent(_MISSING[scenario.column])
    found = median_figure(values, "measurement")
    if scenario.name == "server" and len(values) > 1 and min(values) == max(values):
        # The rate was chosen beforehand: that all of them kept it is no spread of zero.
        found = Figure(found.value, how=f"asked of and kept by each of {len(values)} measurements")
    return msgspec.structs.replace(found, how=f"{scenario.title}: {scenario.measure}, {found.how}")


def refusal(found: Inference, rules: InferenceRules, target: Target) -> str:
    """Why the ranking of its scenario does not take a measurement, as scoring has it; empty if it does."""
    fault = _fault(found, rules, target, rules.threshold)
    return fault or ("" if _values([found], scenario_of(found, rules)) else _MISSING[scenario_of(found, rules).column])


def _fault(found: Inference, rules: InferenceRules, target: Target, least: float | None) -> str:
    """Why a measurement does not count; empty if it does."""
    sign = sign_of(target.direction)
    if found.valid is False:
        return "not valid by the scenario's own rules"
    if least is not None and found.quality is None:
        return "the quality of the same answers is not stated"
    if least is not None and found.quality is not None and sign * found.quality < sign * least:
        return f"a quality of {found.quality:g}, where the rules keep {least:g}"
    if found.scenario == "dawnbench":
        # As long as one pass takes: every sample once.
        return ""
    # Offline asks one query of all samples.
    had, what = (found.samples, "samples") if found.scenario == "offline" else (found.queries, "queries")
    if had < rules.least(found.scenario):
        return f"{had} {what}, where the rules want {rules.least(found.scenario)}"
    if found.duration_s < rules.least_duration_s:
        return f"{found.duration_s:g} s, where the rules want {rules.least_duration_s:g} s"
    return _server_fault(found, rules) if found.scenario == "server" else ""


def _server_fault(found: Inference, rules: InferenceRules) -> str:
    """Why it is not known that the server kept its rate within the bound; empty if it is."""
    bound = found.latency_bound_s if rules.latency_bound_s is None else rules.latency_bound_s
    if found.target_per_s is None or bound is None:
        return "the rate is not stated" if found.target_per_s is None else "the latency bound is not stated"
    late = _quantile(found, QUANTILES["server"])
    if late is None and not (found.valid and (found.latency_bound_s or math.inf) <= bound):
        return f"nobody says that 99 % were within {bound:g} s"
    if late is not None and late > bound:
        return f"99 % within {late:g} s, where the bound is {bound:g} s"
    answered = found.throughput_per_s
    if answered is None:
        answered = found.queries / found.duration_s if found.duration_s > 0 else 0.0
    # As many arrivals as come by chance vary by one in the root of their number.
    least = found.target_per_s * (1.0 - _SLACK - _DEVIATIONS / math.sqrt(max(found.queries, 1)))
    return f"{answered:g} answers a second, asked {found.target_per_s:g}" if answered < least else ""


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
        "no-estimate": any(each.scenario in _STREAMS and _estimate(each) is None for each in good),
        "cost-stated": submission.price is None and any(each.cost_usd is not None for each in good),
    }
    return [flag for flag, holds in found.items() if holds]


def _estimate(found: Inference) -> float | None:
    """The early-stopping estimate, if it is of the scenario's own quantile."""
    wanted = QUANTILES[found.scenario]
    return found.estimate_s if found.estimate_quantile in (None, wanted) else None


def _latency(found: Inference) -> float | None:
    if found.scenario == "dawnbench":
        return found.mean_latency_s
    estimate = _estimate(found)
    return _quantile(found, QUANTILES[found.scenario]) if estimate is None else estimate


def _quantile(found: Inference, wanted: float) -> float | None:
    return next((value for name, value in found.quantiles_s.items() if _number(name) == wanted), None)


def _rate(found: Inference) -> float | None:
    """Queries a second that a server was asked and kept, samples a second of a batch."""
    return found.target_per_s if found.scenario == "server" else found.throughput_per_s


def _possible(values: Iterable[float | None], bounds: Bounds) -> list[float]:
    """Those that are there and could be true at all."""
    return [value for value in values if value is not None and is_within(value, bounds)]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _cost(submission: Submission, good: Sequence[Inference], rules: CostRules) -> Figure:
    """US dollars per million answers: price by answers an hour; without a price what the author states."""
    price = submission.price
    if price is not None and price.on_demand is False and rules.on_demand_only:
        return absent("the price is not an on-demand price, and the rules want one")
    if price is None:
        stated = _possible((each.cost_usd for each in good), ANSWER_USD)
        if not stated:
            return absent("no price is stated")
        found = median_figure([cost * _MILLION for cost in stated], "measurement")
        return Figure(found.value, found.low, found.high, f"per million answers, as the author states it, {found.how}")
    if not is_within(price.usd_per_hour, PRICE_USD):
        return absent("the price is no possible one")
    seconds = _possible(map(_seconds_an_answer, good), _ANSWER_S)
    if not seconds:
        return absent("neither a latency nor a throughput is stated")
    found = median_figure(seconds, "measurement")
    how = f"per million answers, {found.how}, at {price.usd_per_hour:g} USD an hour"
    return found.times(price.usd_per_hour / _HOUR_S * _MILLION, how)


def _seconds_an_answer(found: Inference) -> float | None:
    """How long the system is taken by one answer: the mean latency where it works on one at a time."""
    if found.scenario in ("dawnbench", "single-stream") and found.mean_latency_s is not None:
        return found.mean_latency_s
    if found.throughput_per_s is not None and found.throughput_per_s > 0:
        return 1.0 / found.throughput_per_s
    return found.duration_s / found.samples if found.samples and found.duration_s > 0 else None
