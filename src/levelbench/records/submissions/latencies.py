"""Latency and cost of inference from the measurements of an entry.

The one idea: each scenario asks another question (a mean, a 90th percentile, a 99th), so a column compares one of
them: the first that the rules name. A measurement counts if its answers keep the quality that the rules want.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from levelbench.measure.crossing import sign_of
from levelbench.records.rulesets.schema import CostRules, InferenceRules
from levelbench.records.schema import Target
from levelbench.records.submissions.aggregation import median_figure
from levelbench.records.submissions.figures import Figure, absent
from levelbench.records.submissions.schema import Inference, Submission
from levelbench.records.submissions.steps import LONGEST_S

__all__ = ["QUANTILES", "Inferred", "inference_figures"]

QUANTILES = {"single-stream": 0.9, "multi-stream": 0.99, "server": 0.99}
"""The quantile of each scenario's latency (LoadGen's defaults); ``dawnbench`` is a mean, ``offline`` has none."""

FEWEST = 3
"""Fewer processes than these tell little of what the next one will measure."""

_MILLION, _HOUR_S = 1e6, 3600.0


class Inferred(Struct, frozen=True):
    """Both figures, how many measurements of the scenario there are and how many count, and what to know of them."""

    latency: Figure
    cost: Figure
    n: int
    counted: int
    flags: tuple[str, ...]


def inference_figures(
    submission: Submission, rules: InferenceRules, cost: CostRules, target: Target, threshold: float | None = None
) -> Inferred:
    """Latency in seconds and US dollars per million answers, under the scenario that the rules name first.

    ``threshold`` replaces the quality that the rules keep.
    """
    scenario = rules.scenarios[0] if rules.scenarios else ""
    chosen = [each for each in submission.inference if each.scenario == scenario]
    if not chosen:
        others = ", ".join(sorted({each.scenario for each in submission.inference})) or "nothing"
        figure = absent(f"the column compares {scenario}; this entry measured {others}")
        return Inferred(figure, figure, 0, 0, ("other-scenario",) if submission.inference else ())
    least = rules.threshold if threshold is None else threshold
    faults = [_fault(each, rules, target, least) for each in chosen]
    good = [each for each, fault in zip(chosen, faults, strict=True) if not fault]
    flags = _flags(submission, chosen, good, target, least)
    if not good:
        figure = absent(next(fault for fault in faults if fault))
        return Inferred(figure, figure, len(chosen), 0, tuple(flags))
    latencies = _possible(_latency(each) for each in good)
    latency = median_figure(latencies, "measurement") if latencies else absent("no latency is stated")
    if latency.value is not None:
        latency = Figure(latency.value, latency.low, latency.high, f"{_words(scenario)}, {latency.how}")
    return Inferred(latency, _cost(submission, good, cost, flags), len(chosen), len(good), tuple(flags))


def _fault(found: Inference, rules: InferenceRules, target: Target, least: float | None) -> str:
    """Why a measurement does not count; empty if it does."""
    sign = sign_of(target.direction)
    if found.valid is False:
        return "not valid by the scenario's own rules"
    if least is not None and found.quality is None:
        return "the quality of the same answers is not stated"
    if least is not None and found.quality is not None and sign * found.quality < sign * least:
        return f"a quality of {found.quality:g}, where the rules keep {least:g}"
    if found.queries < (least_queries := rules.least(found.scenario)):
        return f"{found.queries} queries, where the rules want {least_queries}"
    if found.duration_s < rules.least_duration_s:
        return f"{found.duration_s:g} s, where the rules want {rules.least_duration_s:g} s"
    return ""


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
        "no-estimate": any(each.scenario in QUANTILES and _estimate(each) is None for each in good),
        "cost-stated": submission.price is None and any(each.cost_usd is not None for each in good),
    }
    return [flag for flag, holds in found.items() if holds]


def _words(scenario: str) -> str:
    if scenario not in QUANTILES:
        return f"{scenario}: mean"
    return f"{scenario}: {QUANTILES[scenario] * 100:g}th percentile"


def _estimate(found: Inference) -> float | None:
    """The early-stopping estimate, if it is of the scenario's own quantile."""
    wanted = QUANTILES[found.scenario]
    return found.estimate_s if found.estimate_quantile in (None, wanted) else None


def _latency(found: Inference) -> float | None:
    if found.scenario == "offline":
        return None
    if found.scenario == "dawnbench":
        return found.mean_latency_s
    estimate = _estimate(found)
    if estimate is not None:
        return estimate
    wanted = QUANTILES[found.scenario]
    return next((value for name, value in found.quantiles_s.items() if _number(name) == wanted), None)


def _possible(values: Iterable[float | None]) -> list[float]:
    """Those that are there and could be a figure at all."""
    return [value for value in values if value is not None and 0.0 <= value <= LONGEST_S]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _cost(submission: Submission, good: Sequence[Inference], rules: CostRules, flags: list[str]) -> Figure:
    """US dollars per million answers: price by answers an hour; without a price what the author states."""
    price = submission.price
    if price is not None and price.on_demand is False and rules.on_demand_only:
        return absent("the price is not an on-demand price, and the rules want one")
    if price is None:
        stated = _possible(each.cost_usd and each.cost_usd * _MILLION for each in good)
        if not stated:
            return absent("no price is stated")
        found = median_figure(stated, "measurement")
        return Figure(found.value, found.low, found.high, f"per million answers, as the author states it, {found.how}")
    seconds = _possible(_seconds_an_answer(each) for each in good)
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
