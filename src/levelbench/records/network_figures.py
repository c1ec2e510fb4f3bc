"""The figures of a case on an arm, each with its interval over the processes, or with the reason why there is none.

Each process gives one value a figure (its median latency, its 99th percentile, its peak memory), and what
is shown is an estimate over these. Values of one process agree with each other and not with the next one, so they are
not pooled, but where there is a single process, whose own interval holds for itself alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from levelbench.measure.statistics import Estimate, Interval, arithmetic_mean, estimate, estimate_signed
from levelbench.measure.statistics.intervals import quantile_estimate, values_needed
from levelbench.records.networks import PHASES, NetworkRecord

__all__ = ["QUANTILES", "Figure", "Quantile", "latency_quantiles", "memory", "overhead", "phases", "throughput"]

QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True)
class Figure:
    """A figure in ``unit`` over the processes; ``values`` holds one a process, by its number.

    ``estimate`` is ``None`` where there is none, and ``reason`` says why. ``method`` says how each value was got.
    """

    unit: str
    values: Mapping[int, float]
    estimate: Estimate | None
    method: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Quantile:
    """The ``q`` quantile of the latency in seconds; ``reason`` says why there is no estimate, where there is none."""

    q: float
    estimate: Estimate | None
    reason: str = ""


def latency_quantiles(samples: Mapping[int, Sequence[float]], level: float = 0.95) -> tuple[Quantile, ...]:
    """The quantiles of ``QUANTILES``, of raw latencies by process."""
    return tuple(_quantile(q, samples, level) for q in QUANTILES)


def _quantile(q: float, samples: Mapping[int, Sequence[float]], level: float) -> Quantile:
    if not samples:
        return Quantile(q, None, "no latency was taken")
    if q == 0.5 and (len(samples) > 1 or len(next(iter(samples.values()))) < values_needed(q, level)):
        # A median needs no interval of its own to be one value of its process.
        return Quantile(q, estimate([float(np.median(values)) for values in samples.values()], level))
    own = [quantile_estimate(values, q, level) for values in samples.values()]
    found = [each for each in own if each is not None]
    if len(found) < len(own):
        fewest = min(len(values) for values in samples.values())
        return Quantile(q, None, f"not enough samples: {fewest} in a process, {values_needed(q, level)} are needed")
    return Quantile(q, found[0] if len(found) == 1 else estimate([each.value for each in found], level))


def throughput(samples: Mapping[int, Sequence[float]], batch: int, level: float = 0.95) -> Figure:
    """Samples a second: the batch by the mean latency, so the harmonic mean of the rates within a process."""
    times = {seed: arithmetic_mean(values) for seed, values in samples.items()}
    if not times:
        return Figure("samples/s", {}, None, reason="no latency was taken")
    found = estimate(list(times.values()), level)
    # Inverted, the ends change places; the median and the geometric mean invert with their values.
    inside = found.interval
    interval = None if inside is None else Interval(batch / inside.high, batch / inside.low, level, inside.method)
    rates = {seed: batch / value for seed, value in times.items()}
    method = "batch / mean latency, a process"
    return Figure("samples/s", rates, Estimate(batch / found.value, interval, found.n, found.statistic), method)


def memory(records: Sequence[NetworkRecord], level: float = 0.95) -> Figure:
    """Peak memory in bytes; without a value where no process had one, with the reason that was recorded."""
    return _measured(records, "peak_memory", "B", level)


def phases(records: Sequence[NetworkRecord], level: float = 0.95) -> dict[str, Figure]:
    """Seconds of each phase of ``PHASES``, then ``compile`` and ``cold_start``.

    ``compile`` is the first call less a warm one (the process's median), never below zero; ``cold_start`` the sum of
    all phases: from a Python that runs to the first result.
    """
    found = {name: _measured(records, f"phase/{name}", "s", level) for name in PHASES}
    compiled, cold = {}, {}
    for record in records:
        seed = record.header.seed
        spent = [found[name].values.get(seed) for name in PHASES]
        known = [each for each in spent if each is not None]
        if len(known) == len(PHASES):
            cold[seed] = sum(known)
        warm = record.samples.get("latency")
        if seed in found["first"].values and warm is not None and len(warm):
            compiled[seed] = max(0.0, found["first"].values[seed] - float(np.median(warm)))
    why = "no warm call was timed"
    found["compile"] = _figure(compiled, "s", "first call - median of warm ones", why, level, estimate_signed)
    found["cold_start"] = _figure(cold, "s", " + ".join(PHASES), "a phase is missing", level, estimate)
    return found


def overhead(records: Sequence[NetworkRecord], level: float = 0.95) -> tuple[Figure, Figure]:
    """The framework's overhead in seconds and as a share of the whole, paired by process.

    It is the median of the whole less the sum over operators of their medians. The operators are timed one at a time,
    with a clock around each, so it is below zero where the framework does better with the whole than with its parts.
    """
    seconds, shares = {}, {}
    for record in records:
        whole = record.samples.get("latency")
        if record.operators and whole is not None and len(whole):
            median = float(np.median(whole))
            parts = sum(float(np.median(each.times_s)) for each in record.operators)
            seconds[record.header.seed] = median - parts
            shares[record.header.seed] = (median - parts) / median
    method = "median of the whole - sum of the operators' medians"
    outcomes = [record.outcome for record in records if record.outcome is not None]
    reason = next((each.operators_reason for each in outcomes if each.operators_reason), "no operator was timed")
    return (
        _figure(seconds, "s", method, reason, level, estimate_signed),
        _figure(shares, "1", method, reason, level, estimate_signed),
    )


def _measured(records: Sequence[NetworkRecord], name: str, unit: str, level: float) -> Figure:
    found = [(record.header.seed, record.measurements[name]) for record in records if name in record.measurements]
    values = {seed: each.value for seed, each in found if each.value is not None}
    methods = dict.fromkeys(each.method for _, each in found if each.method)
    reasons = dict.fromkeys(each.reason for _, each in found if each.reason)
    reason = next(iter(reasons), None) or "it was not measured"
    choose = estimate if all(value > 0 for value in values.values()) else estimate_signed
    return _figure(values, unit, ", ".join(each for each in methods if each), reason, level, choose)


def _figure(
    values: Mapping[int, float], unit: str, method: str, reason: str, level: float, choose: Callable[..., Estimate]
) -> Figure:
    """Over the processes: a difference has a mean, any other cost a median or geometric mean, as latencies have."""
    if not values:
        return Figure(unit, {}, None, method, reason)
    return Figure(unit, values, choose(list(values.values()), level), method)
