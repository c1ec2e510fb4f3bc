"""Groups of runs that differ in their number of ranks alone, as points of a scaling study.

The one idea: a point is a group of whole runs to the target, so it knows whether it arrived, with which quality and
after how many iterations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from levelbench.claims.reading.run_sides import quality_of, ranks_of, rate_of, spread, times_of, workload_of
from levelbench.claims.view import ScalingPoint
from levelbench.records import RunGroup, Specification

__all__ = ["is_study", "mode_of", "points_of"]


def is_study(groups: Sequence[RunGroup]) -> bool:
    """Whether the groups are one recipe on at least two numbers of ranks, each once, the smallest first or not."""
    ranks = [ranks_of(group) for group in groups]
    if len(set(ranks)) != len(ranks) or len(ranks) < 2:
        return False
    teams = [group.specification.distribution for group in groups]
    schemes = {msgspec.json.encode(msgspec.structs.replace(team, ranks=0)) for team in teams if team is not None}
    return len(schemes) == 1 and len({_rest(group.specification) for group in groups}) == 1


def _rest(specification: Specification) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(specification, distribution=None), order="sorted")


def mode_of(groups: Sequence[RunGroup]) -> Literal["strong", "weak"] | None:
    """What the runs of several ranks say: whether the batch grew with them."""
    teams = [group.specification.distribution for group in groups]
    modes = {team.scaling for team in teams if team is not None and team.ranks > 1}
    return modes.pop() if len(modes) == 1 else None


def points_of(groups: Sequence[RunGroup], side: str) -> list[ScalingPoint]:
    """One point a group, the smallest first."""
    return [_point(group, side) for group in sorted(groups, key=ranks_of)]


def _point(group: RunGroup, side: str) -> ScalingPoint:
    quality, workload, found = quality_of(group), workload_of(group), spread(times_of(group))
    rates = [
        run.samples_to_target / run.time_to_accuracy_s
        for run in group.runs
        if run.samples_to_target and run.time_to_accuracy_s
    ]
    return ScalingPoint(
        side=side,
        ranks=ranks_of(group),
        time_s=found.value if found else None,
        throughput=len(rates) / math.fsum(1.0 / rate for rate in rates) if rates else None,
        global_batch=workload.global_batch,
        reached=group.reached == group.n,
        quality=quality.value,
        quality_low=quality.low,
        quality_high=quality.high,
        iterations_measured=workload.iterations_measured,
        iterations_to_target=workload.iterations_to_target,
        extrapolated=False,
        fixed_time=_fixed(group),
        learning_rate=_rate(group),
        where=group.runs[0].path,
    )


def _fixed(group: RunGroup) -> bool:
    """Whether a budget in seconds, and nothing that the run did, ended every run."""
    return group.specification.budget_s is not None and group.reached == 0


def _rate(group: RunGroup) -> float | None:
    """The learning rate that was used: the recipe's, times what the ranks make of it."""
    rate, distribution = rate_of(group.specification.settings), group.specification.distribution
    if rate is None or distribution is None or distribution.scaling != "weak":
        return rate
    factors = {"none": 1.0, "linear": float(distribution.ranks), "sqrt": math.sqrt(distribution.ranks)}
    return rate * factors[distribution.lr_scale]
