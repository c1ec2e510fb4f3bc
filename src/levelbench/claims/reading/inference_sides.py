"""Measurements of inference as sides of a claim.

The one idea: each scenario asks another question, so each measurement is a side of its own, and its latency is the one
that its scenario is judged by.
"""

from __future__ import annotations

from levelbench.claims.reading.entry_parts import data_of, hardware_of, setup_of
from levelbench.claims.view import Claim, ClockView, QualityView, Side, Summarised, TuningView, WorkloadView
from levelbench.competition.entries import Inference, Submission
from levelbench.competition.scoring import QUANTILES

__all__ = ["inference_claim"]


def inference_claim(entry: Submission, title: str, where: str, read_from: str) -> Claim:
    """The claim of an entry of inference, with one side a measurement."""
    sides = [_side(entry, each, at, where) for at, each in enumerate(entry.inference)]
    summaries = [
        each
        for side, found in zip(sides, entry.inference, strict=True)
        for each in [_summary(side, found)]
        if each is not None
    ]
    return Claim(title=title, sides=sides, task=entry.task, read_from=read_from, summaries=summaries, where=where)


def _side(entry: Submission, found: Inference, at: int, where: str) -> Side:
    several = len(entry.inference) > 1
    setup = setup_of(entry)
    return Side(
        name=f"{entry.model} ({found.scenario}{f', {at + 1}' if several else ''})",
        time_s=_latency(found),
        time_of="call",
        framework=entry.framework,
        year=int(entry.submitted[:4]) if entry.submitted[:4].isascii() and entry.submitted[:4].isdigit() else None,
        source=entry.code.url,
        cost_usd=found.cost_usd,
        quality=QualityView(
            metric=entry.target.metric,
            value=found.quality,
            target=entry.target.threshold,
            direction=entry.target.direction,
            split=None,
        ),
        clock=ClockView(data="preprocessing" in found.includes if found.includes else None),
        data=data_of(entry),
        hardware=hardware_of(entry),
        workload=WorkloadView(global_batch=found.batch),
        tuning=TuningView(entry.tuning.trials, entry.tuning.hours, entry.tuning.usd),
        performance=setup,
        accuracy=setup,
        where=where,
    )


def _latency(found: Inference) -> float | None:
    """Seconds: the mean where the scenario is a mean, else the quantile that it asks for."""
    if found.scenario in ("dawnbench", "offline"):
        return found.mean_latency_s
    return found.estimate_s if found.estimate_s is not None else found.quantiles_s.get(str(QUANTILES[found.scenario]))


def _summary(side: Side, found: Inference) -> Summarised | None:
    if side.time_s is None or found.scenario != "dawnbench":
        return None
    return Summarised(
        what=f"latency of {side.name}",
        of="times",
        by="arithmetic",
        n=found.queries or None,
        value=side.time_s,
        where=side.where,
    )
