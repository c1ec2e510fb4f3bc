"""What a scenario leaves behind: every raw latency, and what LoadGen's definitions make of them.

The latencies are kept and the figures are computed from them, each by the definition that the field uses. If a run is
not valid, every reason is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from levelbench.measure.scenarios.contract import DawnBench, Offline, Scenario, Server, Setting
from levelbench.measure.statistics.early_stopping import (
    BoundTest,
    StreamEstimate,
    bound_test,
    nearest_rank,
    stream_estimate,
)
from levelbench.measure.statistics.intervals import quantile_interval_ranks
from levelbench.measure.statistics.values import Estimate, Interval

QUANTILES: Final = (0.5, 0.9, 0.95, 0.97, 0.99, 0.999)
"""The quantiles that LoadGen reports."""

EVERY_SAMPLE: Final = "every sample once"
"""Why a run ends that asks for each sample of the set."""

Nanoseconds = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Raw:
    """What the driver saw, in nanoseconds from the start of the run.

    ``scheduled_ns``, ``issued_ns`` and ``done_ns`` have shape (queries,); ``answered_ns`` shape (samples,), in order of
    the answers; ``indices`` shape (queries, samples per query).
    """

    scheduled_ns: Nanoseconds
    issued_ns: Nanoseconds
    done_ns: Nanoseconds
    indices: NDArray[np.int64]
    ended_by: str
    warmup_queries: int = 0
    warmup_s: float = 0.0
    answered_ns: Nanoseconds | None = None


@dataclass(frozen=True, eq=False)
class ScenarioResult:
    """One run of one scenario. Times in seconds, raw ones in nanoseconds.

    ``latencies_ns`` has one value a query in order of issue; in the offline scenario one a sample. ``lateness_ns`` is
    how long after its schedule each query was issued (zero without a schedule); it is part of a server's latency.
    ``quantiles`` are LoadGen's order statistics with exact intervals (``None`` for too few values), which hold for
    independent latencies. ``early`` is the early-stopping statistic, ``None`` if the scenario has none. ``rates`` are
    by name, in queries (offline: samples) a second. The warm-up was not on the clock.
    """

    scenario: str
    settings: Mapping[str, Setting]
    latencies_ns: Nanoseconds
    lateness_ns: Nanoseconds
    indices: NDArray[np.int64]
    duration_s: float
    queries: int
    samples: int
    ended_by: str
    warmup_queries: int
    warmup_s: float
    valid: bool
    reasons: tuple[str, ...]
    mean_latency_s: float
    quantiles: Mapping[float, Estimate]
    early: StreamEstimate | BoundTest | None
    rates: Mapping[str, float]
    throughput_per_s: float
    target_per_s: float | None = None
    seed: int | None = field(default=None)

    @property
    def estimate_s(self) -> float | None:
        """The early-stopping estimate in seconds: single- and multi-stream's result; else ``None``."""
        value = self.early.value if isinstance(self.early, StreamEstimate) else None
        return None if value is None else value * 1e-9

    def lateness_s(self, quantile: float) -> float:
        """How late queries were issued, in seconds: LoadGen's order statistic of ``quantile``. Zero is on time."""
        return nearest_rank(np.sort(self.lateness_ns), quantile) * 1e-9


def judge(scenario: Scenario, raw: Raw, seed: int | None = None) -> ScenarioResult:
    """The figures of a run, and whether it is valid."""
    queries, samples = len(raw.done_ns), int(raw.indices.size)
    offline = isinstance(scenario, Offline)
    answered = raw.answered_ns if offline and raw.answered_ns is not None else raw.done_ns
    latencies = answered - (raw.scheduled_ns[0] if offline else raw.scheduled_ns)
    ordered = np.sort(latencies)
    early = _early(scenario, ordered)
    reasons = _reasons(scenario, raw, ordered, early, samples)
    rates = _rates(scenario, raw, latencies, samples)
    return ScenarioResult(
        scenario=scenario.name,
        settings=scenario.settings(),
        latencies_ns=_read_only(latencies),
        lateness_ns=_read_only(raw.issued_ns - raw.scheduled_ns),
        indices=_read_only(raw.indices),
        duration_s=float(raw.done_ns.max()) * 1e-9,
        queries=queries,
        samples=samples,
        ended_by=raw.ended_by,
        warmup_queries=raw.warmup_queries,
        warmup_s=raw.warmup_s,
        valid=not reasons,
        reasons=reasons,
        mean_latency_s=float(latencies.mean()) * 1e-9,
        quantiles={quantile: _quantile(ordered, quantile) for quantile in QUANTILES},
        early=early,
        rates=rates,
        throughput_per_s=next(iter(rates.values()), 0.0),
        target_per_s=scenario.qps if isinstance(scenario, Server) else None,
        seed=seed,
    )


def _early(scenario: Scenario, ordered: Nanoseconds) -> StreamEstimate | BoundTest | None:
    if isinstance(scenario, Server):
        return bound_test(ordered, round(scenario.bound_s * 1e9), scenario.quantile)
    return None if scenario.percentile is None else stream_estimate(ordered, scenario.percentile)


def _reasons(
    scenario: Scenario, raw: Raw, ordered: Nanoseconds, early: StreamEstimate | BoundTest | None, samples: int
) -> tuple[str, ...]:
    """Why the run is not valid: by LoadGen's four conditions, and because DAWNBench's needs every sample."""
    found = []
    lasted = _lasted_ns(scenario, raw, ordered) * 1e-9
    if lasted < scenario.min_duration_s:
        found.append(f"it lasted {lasted:.4g} s, but {scenario.min_duration_s:g} s are required")
    if len(raw.done_ns) < scenario.min_queries:
        found.append(f"{len(raw.done_ns)} queries, but {scenario.min_queries} are required")
    if isinstance(scenario, Offline) and samples < (scenario.min_samples or 0):
        found.append(f"{samples} samples, but {scenario.min_samples} are required")
    if isinstance(scenario, DawnBench) and raw.ended_by != EVERY_SAMPLE:
        found.append(f"not every sample was asked for: {raw.ended_by}, ended it")
    if isinstance(scenario, Server):
        at_quantile = nearest_rank(ordered, scenario.quantile) * 1e-9
        if at_quantile > scenario.bound_s:
            found.append(f"the {scenario.quantile:g} quantile is {at_quantile:.4g} s, over {scenario.bound_s:g} s")
    if isinstance(early, BoundTest) and not early.passed:
        found.append(f"early stopping: {early.late} of {early.queries} late; {early.more} more on time are needed")
    if isinstance(early, StreamEstimate) and not early.passed:
        found.append(f"early stopping: {early.queries} queries, but {early.needed} are needed")
    return tuple(found)


def _lasted_ns(scenario: Scenario, raw: Raw, ordered: Nanoseconds) -> int:
    """The time that the minimum duration applies to: the last answer (offline), arrival (server) or issue (others)."""
    if isinstance(scenario, Offline):
        return int(ordered[-1])
    return int((raw.scheduled_ns if isinstance(scenario, Server) else raw.issued_ns)[-1])


def _rates(scenario: Scenario, raw: Raw, latencies: Nanoseconds, samples: int) -> dict[str, float]:
    """Queries (offline: samples) a second by LoadGen's definitions, the scenario's own first.

    n queries span n - 1 gaps, so a rate over the time of the last issue or answer counts n - 1.
    """
    queries = len(raw.done_ns)
    if isinstance(scenario, Offline):
        return _positive({"samples": (samples, int(latencies.max()))})
    if isinstance(scenario, Server):
        done, arrived = int(raw.done_ns[-1]), int(raw.scheduled_ns[-1])
        return _positive({"completed": (queries - 1, done), "scheduled": (queries - 1, arrived)})
    gaps, alone = (queries - 1, int(raw.issued_ns[-1])), (queries, int(latencies.sum()))
    stream = _positive({"with driver": gaps, "without driver": alone})
    return {name: rate * scenario.stride for name, rate in stream.items()}


def _positive(shares: Mapping[str, tuple[int, int]]) -> dict[str, float]:
    """Counts over nanoseconds as rates a second, without meaningless ones."""
    return {name: count / ns * 1e9 for name, (count, ns) in shares.items() if count > 0 and ns > 0}


def _quantile(ordered: Nanoseconds, quantile: float) -> Estimate:
    """LoadGen's percentile in seconds, with its exact interval if there are enough values."""
    ranks = quantile_interval_ranks(len(ordered), quantile)
    interval = None
    if ranks is not None:
        low, high = (float(ordered[rank - 1]) * 1e-9 for rank in ranks)
        interval = Interval(low, high, 0.95, "exact order statistics")
    return Estimate(nearest_rank(ordered, quantile) * 1e-9, interval, len(ordered), f"quantile {quantile:g}")


def _read_only(values: NDArray[np.int64]) -> NDArray[np.int64]:
    values = np.ascontiguousarray(values, dtype=np.int64)
    values.flags.writeable = False
    return values
