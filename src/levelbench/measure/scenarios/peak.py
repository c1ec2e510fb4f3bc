"""Finds the largest rate of arrivals that a server still answers in bound.

Every trial is a whole server run with the same seed, so its arrivals are the same ones on another scale,
and more load is harder for the same reasons; the answer is a bracket with its width said, not a point.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from levelbench.errors import CheckFailedError, UsageError
from levelbench.measure.clocks import HOST, Clock
from levelbench.measure.scenarios.contract import Answering, Server, SystemUnderTest
from levelbench.measure.scenarios.draws import Seeds
from levelbench.measure.scenarios.driving import run_scenario
from levelbench.measure.scenarios.result import ScenarioResult
from levelbench.measure.statistics.early_stopping import BoundTest, least_queries

_MOST_STEPS: Final = 10


@dataclass(frozen=True)
class RateTrial:
    """One rate that was tried, and whether its run was valid."""

    qps: float
    valid: bool
    reasons: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Peak:
    """The largest rate that passed, the run that showed it, and the least rate above it that failed."""

    qps: float
    failed_qps: float
    result: ScenarioResult
    trials: tuple[RateTrial, ...]
    tolerance: float


def find_peak(
    server: Server,
    sut: Answering | SystemUnderTest,
    *,
    samples: int,
    seed: int | Seeds = 0,
    clock: Clock = HOST,
    tolerance: float = 0.05,
    progress: Callable[[RateTrial], None] | None = None,
) -> Peak:
    """Bisect the rate of ``server``, from ``server.qps``, until pass and fail are within ``1 + tolerance``.

    The rate is doubled while runs are valid and halved while they are not, then bisected on the logarithm. Each run has
    the queries at least that early stopping needs, so that none fails for want of them. No rate is tried twice, so on a
    noisy machine the bracket is as good as the runs at its two ends.
    Raises ``CheckFailedError`` if no rate passes or none fails within ten halvings or doublings (a factor of 1024), or
    a limit of the scenario ends a run before it has as many queries as that takes: fewer a second take longer.
    """
    if not tolerance > 0:
        raise UsageError(f"find the peak within {tolerance}", "a bracket has a width", "give a tolerance such as 0.05")
    trials: list[RateTrial] = []
    server = replace(server, min_queries=max(server.min_queries, least_queries(server.quantile)))

    def runs(qps: float) -> ScenarioResult:
        result = run_scenario(replace(server, qps=qps), sut, samples=samples, seed=seed, clock=clock)
        trials.append(RateTrial(qps, result.valid, result.reasons))
        if progress is not None:
            progress(trials[-1])
        return result

    best, high = _bracket(server.qps, runs, trials)
    while high > (1.0 + tolerance) * _rate_of(best):
        middle = math.sqrt(high * _rate_of(best))
        result = runs(middle)
        if result.valid:
            best = result
        else:
            high = middle
    return Peak(_rate_of(best), high, best, tuple(trials), tolerance)


def _rate_of(result: ScenarioResult) -> float:
    """The rate that a server run was made at."""
    return result.target_per_s or 0.0


def _refuse_limited(result: ScenarioResult) -> None:
    """A run within its bound that a limit cut short gets no longer at a lower rate."""
    early = result.early
    if result.valid or not isinstance(early, BoundTest) or not result.ended_by.startswith(("the most", "the longest")):
        return
    if early.late <= (1.0 - early.quantile) * early.queries:
        raise CheckFailedError(
            "find the peak rate of a server",
            f"at {_rate_of(result):g} a second {result.ended_by}, ended it with {early.queries} queries in bound, "
            f"and {early.queries + early.more} are needed",
            "let a run last longer, or have more queries: max_duration_s, max_queries",
        )


def _bracket(
    qps: float, runs: Callable[[float], ScenarioResult], trials: list[RateTrial]
) -> tuple[ScenarioResult, float]:
    """A run that is valid, and a rate above it that is not."""
    first = runs(qps)
    _refuse_limited(first)
    last, factor = first, 2.0 if first.valid else 0.5
    for _ in range(_MOST_STEPS):
        qps *= factor
        result = runs(qps)
        if result.valid != first.valid:
            return (last, qps) if first.valid else (result, qps / factor)
        last = result
        _refuse_limited(result)
    raise CheckFailedError(
        "find the peak rate of a server",
        f"every rate from {trials[0].qps:g} to {trials[-1].qps:g} a second {'passed' if first.valid else 'failed'}"
        + (f": {'; '.join(last.reasons)}" if last.reasons else ""),
        "look at the reasons: the bound may be below the latency of a single query, or a minimum out of reach",
    )
