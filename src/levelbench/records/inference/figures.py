"""The figures of an arm over its processes: quantiles, LoadGen's estimate, throughput, the quality of the answers.

Each process gives one value a figure and the interval is over the processes; of a single process the
interval is its own, from order statistics. Percentiles are LoadGen's, ``sorted[floor(n * q)]``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from levelbench.measure.statistics import Estimate, Interval, estimate
from levelbench.measure.statistics.early_stopping import least_queries, nearest_rank, stream_estimate
from levelbench.measure.statistics.intervals import quantile_interval_ranks, values_needed
from levelbench.records.inference.files import InferenceRecord
from levelbench.records.inference.schema import ScenarioSettings

__all__ = ["QUANTILES", "Figure", "latency_quantile", "loadgen_estimate", "mean_latency", "measured", "rate"]
__all__ += ["score", "scored_by"]

QUANTILES = (0.5, 0.9, 0.99, 0.999)
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Figure:
    """One value a process by its number, and an estimate over them; ``reason`` says why there is none."""

    values: Mapping[int, float]
    estimate: Estimate | None
    reason: str = ""


def latency_quantile(latencies: Mapping[int, Values], q: float, level: float = 0.95) -> Figure:
    """The ``q`` quantile of latencies in seconds, by process.

    There is none where a process has fewer values than an exact interval of that quantile needs.
    """
    if not latencies:
        return Figure({}, None, "no latency was taken")
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
    """LoadGen's early-stopping estimate of the scenario's quantile, by process, in seconds; of several the largest.

    Each says of its own process that the quantile is not above it; what is in the middle of several says nothing of
    them all, for processes differ by more than their estimates are above their quantiles.
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


def mean_latency(latencies: Mapping[int, Values], level: float = 0.95) -> Figure:
    """The mean latency in seconds, by process."""
    values = {seed: float(np.mean(each)) for seed, each in latencies.items() if len(each)}
    return Figure(values, estimate(list(values.values()), level) if values else None, "no latency was taken")


def rate(values: Mapping[int, float], level: float = 0.95, reason: str = "it was not measured") -> Figure:
    """A rate, whose typical value is the inverse of that of the times."""
    if not values:
        return Figure({}, None, reason)
    times = estimate([1.0 / value for value in values.values()], level)
    inside = times.interval
    # Inverted, the ends change places.
    interval = None if inside is None else Interval(1.0 / inside.high, 1.0 / inside.low, level, inside.method)
    return Figure(values, Estimate(1.0 / times.value, interval, times.n, times.statistic))


def measured(records: Sequence[InferenceRecord], name: str, level: float = 0.95) -> Figure:
    """A measurement of that name, such as ``peak_memory``, by process."""
    found = [(record.header.seed, record.measurements[name]) for record in records if name in record.measurements]
    values = {seed: each.value for seed, each in found if each.value is not None}
    reason = next((each.reason for _, each in found if each.reason), "it was not measured")
    positive = [value for value in values.values() if value > 0]
    if not positive or len(positive) < len(values):
        return Figure(values, None, reason if not values else "it was too small to be seen")
    return Figure(values, estimate(positive, level))


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
    """What :func:`scored_by` says, of one process, in seconds; lower is better. ``None`` where it was not measured."""
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
