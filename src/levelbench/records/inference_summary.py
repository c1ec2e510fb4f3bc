"""Summarises records of inference: latency, throughput, quality, cost and broken rules by framework.

The replicate is the process. Figures always come with their conditions: whether the scenario's rules were kept, whether
the answers were still good enough, and whether the audits passed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.measure.statistics import Estimate, Interval, estimate
from levelbench.measure.statistics.early_stopping import least_queries, nearest_rank, stream_estimate
from levelbench.measure.statistics.intervals import quantile_interval_ranks, values_needed
from levelbench.measure.verdict import Verdict
from levelbench.records.doubts import process_doubts
from levelbench.records.figures import (
    Figure,
    figure_of,
    measured,
    pair,
    planned_effect,
    rate,
    starts_of,
    verdicts,
)
from levelbench.records.inference import (
    PHASES,
    WRONG_ANSWERS,
    Accuracy,
    Audit,
    InferenceArm,
    InferenceFacts,
    InferenceRecord,
    InferenceSpecification,
    PeakTrial,
    ScenarioSettings,
)

__all__ = ["QUANTILES", "Demand", "InferenceEntry", "InferenceSummary", "KeptQuality", "Price", "latency_quantile"]
__all__ += ["loadgen_estimate", "score", "scored_by", "summarise_inference"]

QUANTILES = (0.5, 0.9, 0.99, 0.999)
Values = NDArray[np.float64]
_MILLION = 1e6
_HOUR_S = 3600.0


@dataclass(frozen=True)
class Price:
    """US dollars per hour for the whole machine, and the source of that figure."""

    usd_per_hour: float
    source: str = ""


@dataclass(frozen=True)
class Demand:
    """The quality that the answers need: ``target`` if given, else ``share`` of the reference's quality.

    MLPerf's closed division asks for 0.99 (or 0.999) of what the reference reaches in float32.
    """

    share: float = 0.99
    target: float | None = None


@dataclass(frozen=True)
class KeptQuality:
    """Whether the answers are as good as demanded; if that is unknown, ``kept`` is ``None`` and ``reason`` says why."""

    kept: bool | None
    value: float | None = None
    least: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class InferenceEntry:
    """One arm. Latencies are in seconds, rates in samples per second, ``cost`` in US dollars for a million answers.

    Of a generation it also has quantiles of the time to the first token and of the time of each token after it, and
    ``token_rate``, the tokens made a second.

    ``status`` is the worst over the processes; ``reason`` says why it is not ``measured``. ``valid`` says whether all
    processes kept the scenario's rules; ``reasons`` says which were broken, and what to do. ``verdict`` compares with
    the first arm.
    """

    arm: InferenceArm
    status: str
    reason: str
    facts: InferenceFacts
    processes: int
    queries: tuple[int, ...]
    quantiles: tuple[tuple[float, Figure], ...]
    estimate: Figure
    mean: Figure
    throughput: Figure
    target_rate: Figure
    lateness: Figure
    memory: Figure
    phases: tuple[tuple[str, Figure], ...]
    cost: Estimate | None
    valid: bool
    reasons: tuple[str, ...]
    accuracy: Accuracy | None
    quality: KeptQuality
    audits: tuple[Audit, ...]
    peaks: tuple[PeakTrial, ...]
    thinned: int = 1
    verdict: Verdict | None = None
    first_token: tuple[tuple[float, Figure], ...] = ()
    per_token: tuple[tuple[float, Figure], ...] = ()
    token_rate: Figure | None = None


@dataclass(frozen=True)
class InferenceSummary:
    """One entry per arm, in the order given; ``specification`` is that of the first."""

    specification: InferenceSpecification
    entries: tuple[InferenceEntry, ...]
    level: float
    margin: float
    price: Price | None
    demand: Demand
    suspect: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """``digits[mlp], single-stream``, or ``code-lm[gpt], single-stream, 32 tokens``."""
        wanted = self.specification.generation
        tokens = "" if wanted is None else f", {wanted.tokens} tokens"
        return f"{self.specification.title}, {self.specification.scenario.name}{tokens}"


def summarise_inference(
    arms: Sequence[Sequence[InferenceRecord]],
    level: float = 0.95,
    margin: float = 0.02,
    price: Price | None = None,
    demand: Demand | None = None,
) -> InferenceSummary:
    """``arms[arm]`` holds complete records of one specification, one per process; the first arm is the baseline."""
    wanted = demand or Demand()
    entries = [_entry(records, level, price, wanted) for records in arms]
    scores = [
        {
            record.header.seed: found
            for record in records
            if not _wrong(record) and (found := score(record, record.header.specification.scenario)) is not None
        }
        for records in arms
    ]
    effect = planned_effect(record for records in arms for record in records)
    starts = [starts_of(records) for records in arms]
    pairs = {
        at: pair(scores[0], each, effect, (starts[0], starts[at]))
        for at, each in enumerate(scores)
        if at and each and scores[0]
    }
    for at, judged in verdicts(pairs, level, margin, "frameworks").items():
        entries[at] = replace(entries[at], verdict=judged)
    titles = [records[0].header.specification.arm.title for records in arms]
    doubts = process_doubts(titles, arms)
    specification = arms[0][0].header.specification
    return InferenceSummary(specification, tuple(entries), level, margin, price, wanted, tuple(doubts))


def _wrong(record: InferenceRecord) -> str:
    """Why its times are none of answers: no wrong answer is shown as a time."""
    reasons = record.driven.reasons if record.driven is not None else ()
    return next((each for each in reasons if each.startswith(WRONG_ANSWERS)), "")


def _entry(place: Sequence[InferenceRecord], level: float, price: Price | None, demand: Demand) -> InferenceEntry:
    records = sorted(place, key=lambda each: each.header.seed)
    specification = records[0].header.specification
    scenario = specification.scenario
    wrong = next(filter(None, map(_wrong, records)), "")
    latencies = {each.header.seed: each.latencies_s for each in records if len(each.latencies_s) and not wrong}
    driven = {each.header.seed: each.driven for each in records if each.driven is not None}
    late = {each.header.seed: each.seconds("lateness") for each in records if "lateness" in each.samples}
    outcomes = [each.outcome for each in records if each.outcome is not None]
    worst = next((each for each in outcomes if each.status != "measured"), None)
    rates = {seed: each.throughput_per_s for seed, each in driven.items() if each.throughput_per_s and not wrong}
    targets = {seed: each.target_per_s for seed, each in driven.items() if each.target_per_s}
    means = {seed: float(np.mean(each)) for seed, each in latencies.items()}
    readings = [(each.header.seed, each.measurements) for each in records]
    throughput = rate(rates, "samples/s", level=level)
    accuracy = _accuracy(records)
    return InferenceEntry(
        arm=specification.arm,
        status=worst.status if worst is not None else "wrong" if wrong else "measured",
        reason=worst.reason if worst is not None else wrong,
        facts=records[0].facts,
        processes=len(records),
        queries=tuple(each.queries for each in driven.values()),
        quantiles=tuple((q, latency_quantile(latencies, q, level)) for q in QUANTILES),
        estimate=loadgen_estimate(latencies, scenario),
        mean=figure_of(means, "s", level=level, reason="no latency was taken"),
        throughput=throughput,
        target_rate=rate(targets, "queries/s", level=level),
        lateness=latency_quantile(late, 0.99, level) if late else Figure({}, None, "the scenario has no schedule"),
        memory=measured(readings, "peak_memory", "B", level),
        phases=tuple((name, measured(readings, f"phase/{name}", "s", level)) for name in PHASES),
        cost=_cost(throughput.estimate, price),
        valid=worst is None and len(driven) == len(records) and all(each.valid for each in driven.values()),
        reasons=tuple(dict.fromkeys(reason for each in driven.values() for reason in each.reasons)),
        accuracy=accuracy,
        quality=_kept(accuracy, specification, demand),
        audits=_audits(records),
        peaks=tuple(trial for each in records for trial in each.peaks),
        thinned=max((each.thinned for each in driven.values()), default=1),
        **_generated(records, rates, level),
    )


def _generated(records: Sequence[InferenceRecord], rates: Mapping[int, float], level: float) -> dict[str, Any]:
    """The figures that only a generation has."""
    wanted = records[0].header.specification.generation
    if wanted is None:
        return {}
    found: dict[str, Any] = {
        "token_rate": rate({seed: each * wanted.tokens for seed, each in rates.items()}, "tokens/s", level=level)
    }
    for name in ("first_token", "per_token"):
        values = {each.header.seed: each.seconds(name) for each in records if name in each.samples}
        found[name] = tuple((q, latency_quantile(values, q, level)) for q in QUANTILES)
    return found


def _cost(throughput: Estimate | None, price: Price | None) -> Estimate | None:
    """US dollars for a million answers: the price of the time that they need at the measured throughput."""
    if throughput is None or price is None:
        return None
    of = price.usd_per_hour / _HOUR_S * _MILLION
    inside = throughput.interval
    interval = None if inside is None else Interval(of / inside.high, of / inside.low, inside.level, inside.method)
    return Estimate(of / throughput.value, interval, throughput.n, throughput.statistic)


def _accuracy(records: Sequence[InferenceRecord]) -> Accuracy | None:
    """That of the process with the worst answers; they only differ if the framework is not deterministic."""
    found = [each.accuracy for each in records if each.accuracy is not None]
    valued = [each for each in found if each.value is not None]
    if not valued:
        return found[0] if found else None
    worst = min if valued[0].direction == "higher" else max
    return worst(valued, key=lambda each: each.value or 0.0)


def _kept(accuracy: Accuracy | None, specification: InferenceSpecification, demand: Demand) -> KeptQuality:
    if accuracy is None or accuracy.value is None:
        return KeptQuality(None, reason=accuracy.reason if accuracy is not None else "the answers were not scored")
    reference = specification.model.quality
    higher = accuracy.direction == "higher"
    if demand.target is not None:
        least = demand.target
    elif reference is not None:
        least = reference * demand.share if higher else reference / demand.share
    else:
        return KeptQuality(None, accuracy.value, reason="there is no reference: give --target-accuracy")
    good = accuracy.value >= least if higher else accuracy.value <= least
    return KeptQuality(good, accuracy.value, least)


def _audits(records: Sequence[InferenceRecord]) -> tuple[Audit, ...]:
    """Each audit once, with its worst outcome over the processes: failed, then undecided, then passed."""
    order = {False: 0, None: 1, True: 2}
    found: dict[str, Audit] = {}
    for record in records:
        for each in record.audits:
            if each.name not in found or order[each.passed] < order[found[each.name].passed]:
                found[each.name] = each
    return tuple(found.values())


def latency_quantile(latencies: Mapping[int, Values], q: float, level: float = 0.95) -> Figure:
    """The ``q`` quantile of latencies in seconds, given by process.

    It has no estimate if a process has fewer values than an exact interval of that quantile needs.
    """
    if not latencies:
        return Figure({}, None, "no latency was taken", "s")
    fewest, needed = min(map(len, latencies.values())), values_needed(q, level)
    if fewest < needed and not (q == 0.5 and fewest):
        return Figure({}, None, f"p{q * 100:g} needs {needed:,} queries in a process, and there were {fewest:,}")
    ordered = {seed: np.sort(values) for seed, values in latencies.items()}
    values = {seed: nearest_rank(each, q) for seed, each in ordered.items()}
    if len(values) > 1:
        return Figure(values, estimate(list(values.values()), level))
    ((seed, own),) = ordered.items()
    ranks = quantile_interval_ranks(len(own), q, level)
    inside = None
    if ranks is not None:
        inside = Interval(float(own[ranks[0] - 1]), float(own[ranks[1] - 1]), level, "exact order statistics")
    return Figure(values, Estimate(values[seed], inside, len(own), f"quantile {q:g}"))


def loadgen_estimate(latencies: Mapping[int, Values], scenario: ScenarioSettings) -> Figure:
    """The largest of the processes' early-stopping estimates of the scenario's quantile, as in LoadGen, in seconds.

    Each estimate is an upper bound for the quantile of its own process. A middle one would not be a bound for all:
    processes differ by more than the margin between an estimate and its quantile.
    """
    if scenario.name not in ("single-stream", "multi-stream"):
        return Figure({}, None, f"LoadGen makes none for {scenario.name}")
    q = scenario.quantile
    found = {seed: stream_estimate(values, q).value for seed, values in latencies.items()}
    values = {seed: value for seed, value in found.items() if value is not None}
    if not values or len(values) < len(found):
        fewest = min(map(len, latencies.values()), default=0)
        return Figure({}, None, f"it needs {least_queries(q):,} queries in a process, and there were {fewest:,}")
    return Figure(values, Estimate(max(values.values()), None, len(values), "largest"))


def scored_by(scenario: ScenarioSettings) -> str:
    """What the verdict compares, in words."""
    if scenario.name == "offline":
        return "the time a sample, 1 / throughput"
    if scenario.find_peak:
        return "1 / the highest rate that keeps the bound"
    if scenario.name == "dawnbench":
        return "the mean latency"
    return f"the {scenario.quantile * 100:g}th percentile of latency"


def score(record: InferenceRecord, scenario: ScenarioSettings) -> float | None:
    """The figure that :func:`scored_by` names, of one process, in seconds; ``None`` if it was not measured."""
    driven, latencies = record.driven, record.latencies_s
    if driven is None or not len(latencies):
        return None
    if scenario.name == "offline":
        return 1.0 / driven.throughput_per_s if driven.throughput_per_s else None
    if scenario.find_peak:
        return 1.0 / driven.target_per_s if driven.target_per_s else None
    if scenario.name == "dawnbench":
        return float(np.mean(latencies))
    return nearest_rank(np.sort(latencies), scenario.quantile)
