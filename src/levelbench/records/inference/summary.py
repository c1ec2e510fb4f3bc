"""What the records of inference say together: by framework latency, throughput, quality, cost and what broke a rule.

The replicate is the process, and a figure is never told without what it was measured under: the scenario
kept or not, the answers as good as they were or not, the audits passed or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from levelbench.measure.statistics import Estimate, Interval
from levelbench.measure.verdict import Verdict
from levelbench.records.inference.figures import (
    QUANTILES,
    Figure,
    latency_quantile,
    loadgen_estimate,
    mean_latency,
    measured,
    rate,
    score,
)
from levelbench.records.inference.files import InferenceRecord
from levelbench.records.inference.schema import (
    PHASES,
    Accuracy,
    Audit,
    InferenceArm,
    InferenceFacts,
    InferenceSpecification,
    PeakTrial,
)
from levelbench.records.judging import pair, planned_effect, told_doubts, verdicts

__all__ = ["Demand", "InferenceEntry", "InferenceSummary", "Kept", "Price", "summarise_inference"]

_MILLION = 1e6
_HOUR_S = 3600.0


@dataclass(frozen=True)
class Price:
    """US dollars an hour of the whole machine, and where that figure is from."""

    usd_per_hour: float
    source: str = ""


@dataclass(frozen=True)
class Demand:
    """What the answers have to be: at least ``share`` of the reference's quality, or a ``target`` where one is given.

    MLPerf's closed division asks for 0.99 (or 0.999) of what the reference reaches in float32.
    """

    share: float = 0.99
    target: float | None = None


@dataclass(frozen=True)
class Kept:
    """Whether the answers are as good as demanded; ``kept=None`` where nobody can tell, which ``reason`` explains."""

    kept: bool | None
    value: float | None = None
    least: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class InferenceEntry:
    """One arm. Latencies are in seconds, rates in samples a second, ``cost`` in US dollars for a million answers.

    ``status`` is the worst over the processes and ``reason`` says why it is not ``measured``. ``valid`` says whether
    each process kept the scenario's rules, and ``reasons`` what was broken and what to do. ``verdict`` is against the
    first arm.
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
    quality: Kept
    audits: tuple[Audit, ...]
    peaks: tuple[PeakTrial, ...]
    thinned: int = 1
    verdict: Verdict | None = None


@dataclass(frozen=True)
class InferenceSummary:
    """One entry an arm, in the order that was asked for; ``specification`` is that of the first."""

    specification: InferenceSpecification
    entries: tuple[InferenceEntry, ...]
    level: float
    margin: float
    price: Price | None
    demand: Demand
    suspect: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """``digits[mlp], single-stream``."""
        return f"{self.specification.title}, {self.specification.scenario.name}"


def summarise_inference(
    arms: Sequence[Sequence[InferenceRecord]],
    level: float = 0.95,
    margin: float = 0.02,
    price: Price | None = None,
    demand: Demand | None = None,
) -> InferenceSummary:
    """``arms[arm]`` holds whole records, one a process, of one specification; the first arm is the yardstick."""
    wanted = demand or Demand()
    entries = [_entry(records, level, price, wanted) for records in arms]
    scores = [
        {
            record.header.seed: found
            for record in records
            if (found := score(record, record.header.specification.scenario)) is not None
        }
        for records in arms
    ]
    effect = planned_effect(record for records in arms for record in records)
    pairs = {at: pair(scores[0], each, effect) for at, each in enumerate(scores) if at and each and scores[0]}
    for at, judged in verdicts(pairs, level, margin, "frameworks").items():
        entries[at] = replace(entries[at], verdict=judged)
    doubts: list[str] = []
    for records in arms:
        title = records[0].header.specification.arm.title
        doubts += told_doubts(title, [record.end.suspect for record in records if record.end is not None])
    specification = arms[0][0].header.specification
    return InferenceSummary(specification, tuple(entries), level, margin, price, wanted, tuple(doubts))


def _entry(place: Sequence[InferenceRecord], level: float, price: Price | None, demand: Demand) -> InferenceEntry:
    records = sorted(place, key=lambda each: each.header.seed)
    specification = records[0].header.specification
    scenario = specification.scenario
    latencies = {each.header.seed: each.latencies_s for each in records if len(each.latencies_s)}
    driven = {each.header.seed: each.driven for each in records if each.driven is not None}
    late = {each.header.seed: each.seconds("lateness") for each in records if "lateness" in each.samples}
    outcomes = [each.outcome for each in records if each.outcome is not None]
    worst = next((each for each in outcomes if each.status != "measured"), None)
    throughput = rate({seed: each.throughput_per_s for seed, each in driven.items() if each.throughput_per_s}, level)
    accuracy = _accuracy(records)
    return InferenceEntry(
        arm=specification.arm,
        status=worst.status if worst is not None else "measured",
        reason=worst.reason if worst is not None else "",
        facts=records[0].facts,
        processes=len(records),
        queries=tuple(each.queries for each in driven.values()),
        quantiles=tuple((q, latency_quantile(latencies, q, level)) for q in QUANTILES),
        estimate=loadgen_estimate(latencies, scenario),
        mean=mean_latency(latencies, level),
        throughput=throughput,
        target_rate=rate({seed: each.target_per_s for seed, each in driven.items() if each.target_per_s}, level),
        lateness=latency_quantile(late, 0.99, level) if late else Figure({}, None, "the scenario has no schedule"),
        memory=measured(records, "peak_memory", level),
        phases=tuple((name, measured(records, f"phase/{name}", level)) for name in PHASES),
        cost=_cost(throughput.estimate, price),
        valid=worst is None and len(driven) == len(records) and all(each.valid for each in driven.values()),
        reasons=tuple(dict.fromkeys(reason for each in driven.values() for reason in each.reasons)),
        accuracy=accuracy,
        quality=_kept(accuracy, specification, demand),
        audits=_audits(records),
        peaks=tuple(trial for each in records for trial in each.peaks),
        thinned=max((each.thinned for each in driven.values()), default=1),
    )


def _cost(throughput: Estimate | None, price: Price | None) -> Estimate | None:
    """US dollars for a million answers: the price of the time that they take at the measured throughput."""
    if throughput is None or price is None:
        return None
    of = price.usd_per_hour / _HOUR_S * _MILLION
    inside = throughput.interval
    interval = None if inside is None else Interval(of / inside.high, of / inside.low, inside.level, inside.method)
    return Estimate(of / throughput.value, interval, throughput.n, throughput.statistic)


def _accuracy(records: Sequence[InferenceRecord]) -> Accuracy | None:
    """That of the process whose answers were worst: equal in all of them, unless the framework is not repeatable."""
    found = [each.accuracy for each in records if each.accuracy is not None]
    valued = [each for each in found if each.value is not None]
    if not valued:
        return found[0] if found else None
    worst = min if valued[0].direction == "higher" else max
    return worst(valued, key=lambda each: each.value or 0.0)


def _kept(accuracy: Accuracy | None, specification: InferenceSpecification, demand: Demand) -> Kept:
    if accuracy is None or accuracy.value is None:
        return Kept(None, reason=accuracy.reason if accuracy is not None else "the answers were not judged")
    reference = specification.model.quality
    higher = accuracy.direction == "higher"
    if demand.target is not None:
        least = demand.target
    elif reference is not None:
        least = reference * demand.share if higher else reference / demand.share
    else:
        return Kept(None, accuracy.value, reason="there is no reference: give --target-accuracy")
    good = accuracy.value >= least if higher else accuracy.value <= least
    return Kept(good, accuracy.value, least)


def _audits(records: Sequence[InferenceRecord]) -> tuple[Audit, ...]:
    """Each audit once: as it failed, where it failed in any process; else as it could not tell; else as it passed."""
    order = {False: 0, None: 1, True: 2}
    found: dict[str, Audit] = {}
    for record in records:
        for each in record.audits:
            if each.name not in found or order[each.passed] < order[found[each.name].passed]:
                found[each.name] = each
    return tuple(found.values())
