"""Drives an answering network through a scenario, and records what the driver saw.

Scenarios, draws and rules are those of :mod:`levelbench.measure.scenarios`; what is here turns settings
of a record into one of them and its result into events of a record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import CheckFailedError
from levelbench.measure.clocks import Clock
from levelbench.measure.scenarios import (
    DawnBench,
    MultiStream,
    Offline,
    Scenario,
    ScenarioResult,
    Server,
    SingleStream,
    run_scenario,
)
from levelbench.measure.scenarios.peak import RateTrial, find_peak
from levelbench.measure.statistics.early_stopping import nearest_rank
from levelbench.networks.inference import Answerer
from levelbench.records.inference import MOST_LATENCIES, Driven, PeakTrial, ScenarioSettings

__all__ = ["drive", "scenario_of"]

_TIMEOUT_S = 600.0
_ALONE = 662


class Adds(Protocol):
    """A record that is being written."""

    def add(self, event: Any) -> None:
        """Write one line."""

    def add_ns(self, name: str, values: NDArray[np.int64]) -> None:
        """Write raw values in nanoseconds."""


def scenario_of(settings: ScenarioSettings, qps: float | None = None) -> Scenario:
    """The scenario that the settings describe; ``qps`` in place of theirs."""
    # A rate that is looked for is low where the network is slow, and has to have its queries all the same.
    most_s = None if settings.find_peak else settings.most_s
    common: dict[str, Any] = {"max_duration_s": most_s, "timeout_s": _TIMEOUT_S, "warmup_queries": 0}
    least: dict[str, Any] = {"min_duration_s": settings.duration_s, "min_queries": settings.queries}
    match settings.name:
        case "single-stream":
            return SingleStream(quantile=settings.quantile, **least, **common)
        case "multi-stream":
            per_query = settings.samples_per_query
            return MultiStream(samples_per_query=per_query, quantile=settings.quantile, **least, **common)
        case "server":
            return Server(
                qps=qps or settings.qps or 1.0,
                bound_s=settings.bound_s or 1.0,
                quantile=settings.quantile,
                workers=settings.workers,
                **least,
                **common,
            )
        case "offline":
            # Its one query is as long as it has to be; the rate that says how long is found off the clock.
            common["warmup_queries"] = 1
            duration = settings.duration_s
            return Offline(
                batch=settings.batch, min_samples=settings.queries or None, min_duration_s=duration, **common
            )
        case _:
            return DawnBench(**common)


def drive(
    settings: ScenarioSettings,
    answerer: Answerer,
    samples: int,
    seed: int,
    record: Adds,
    clock: Clock,
    say: Callable[[str], None] = lambda words: None,
) -> ScenarioResult:
    """Run the scenario over the first ``samples`` samples and record raw values and what the driver says.

    ``say`` is told each rate that is tried where the highest is looked for.
    """
    if settings.find_peak:
        result = _peak(settings, answerer, samples, seed, record, clock, say)
    else:
        result = run_scenario(scenario_of(settings), answerer, samples=samples, seed=seed, clock=clock)
    latencies, thinned = _thinned(result.latencies_ns)
    record.add_ns("latency", latencies)
    if settings.name == "server":
        record.add_ns("lateness", _thinned(result.lateness_ns)[0])
    record.add(
        Driven(
            queries=result.queries,
            samples=result.samples,
            duration_s=result.duration_s,
            latencies=len(result.latencies_ns),
            valid=result.valid,
            reasons=list(result.reasons),
            ended_by=result.ended_by,
            throughput_per_s=result.throughput_per_s or None,
            target_per_s=result.target_per_s,
            thinned=thinned,
        )
    )
    return result


def _peak(
    settings: ScenarioSettings,
    answerer: Answerer,
    samples: int,
    seed: int,
    record: Adds,
    clock: Clock,
    say: Callable[[str], None],
) -> ScenarioResult:
    """The run at the highest rate that keeps the bound, each one that was tried recorded."""
    bound_s = settings.bound_s or 1.0
    alone = DawnBench(max_queries=_ALONE, timeout_s=_TIMEOUT_S, warmup_queries=0)
    waited = run_scenario(alone, answerer, samples=samples, seed=seed, clock=clock)
    longest = nearest_rank(np.sort(waited.latencies_ns), settings.quantile) * 1e-9
    if longest > bound_s:
        # No rate is low enough then, and to find that out by halving it takes twice as long each time.
        raise CheckFailedError(
            f"the highest rate within {bound_s:g} s",
            f"the {settings.quantile:g} quantile of {waited.queries} queries that wait for nobody is {longest:.4g} s",
            "give a longer --bound, or a machine that does nothing else",
        )
    # Half of what the workers can do if they never wait.
    scenario = scenario_of(settings, 0.5 * settings.workers / waited.mean_latency_s)
    assert isinstance(scenario, Server)

    def tell(trial: RateTrial) -> None:
        record.add(PeakTrial(trial.qps, trial.valid))
        say(f"queries, {trial.qps:.4g} a second {'kept' if trial.valid else 'did not keep'} the bound")

    return find_peak(scenario, answerer, samples=samples, seed=seed, clock=clock, progress=tell).result


def _thinned(values: NDArray[np.int64], most: int = MOST_LATENCIES) -> tuple[NDArray[np.int64], int]:
    """All values in order where there are no more than ``most``; else every k-th in order of size, from the middle."""
    every = -(-len(values) // most)
    if every <= 1:
        return values, 1
    return np.sort(values)[every // 2 :: every], every
