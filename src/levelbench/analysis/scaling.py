"""How time to accuracy scales with the number of ranks: points, and efficiencies relative to the smallest one.

There are two efficiencies, which differ if a scheme or a larger batch needs more samples for the same accuracy. Time
per epoch shows how fast ranks compute together; time to accuracy shows what a user gains. Both count cores, i.e. ranks
times threads per rank: a single process with all cores is no base for ranks with one core each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from levelbench.analysis.comparison import span_of
from levelbench.measure.design import schedule_of
from levelbench.measure.statistics import (
    Estimate,
    Interval,
    estimate,
    estimate_signed,
    geometric_mean,
    welch_log_ratio,
    wilson,
)
from levelbench.measure.verdict import NOT_INTERLEAVED
from levelbench.records import Record, RunGroup, RunSummary, comparable
from levelbench.records.caveats import ended
from levelbench.records.ranks import Teamwork, teamwork

__all__ = ["CROWDED", "Efficiency", "ScaledPoint", "Scaling", "against", "scaling", "threads_of"]

_TRAINING = ("data", "forward", "backward", "communicate", "update")
_BOUNDS = {
    "communicate_share": (0.0, 1.0),
    "waiting_share": (0.0, 1.0),
    "overlap": (0.0, 1.0),
    "imbalance": (1.0, math.inf),
}
CROWDED = "threads outnumbered cores"
"""Why no efficiency is claimed."""


@dataclass(frozen=True)
class Efficiency:
    """A ratio with its interval, 1 if the speed-up equals the increase in cores; or why there is none."""

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class ScaledPoint:
    """Runs on one number of ranks. Times in seconds; ``teamwork`` has an item per run, and is empty for one process."""

    label: str
    ranks: int
    group: RunGroup
    reached: Interval
    time_to_accuracy_s: Estimate | None
    epoch_s: Estimate | None
    samples_to_target: Estimate | None
    teamwork: tuple[Teamwork, ...]
    per_epoch: Efficiency
    to_accuracy: Efficiency
    crowded: bool
    """Whether threads outnumbered cores: no efficiency is claimed then."""
    threads: int
    """Of each rank, as its framework reports."""
    level: float = 0.95

    def team(self, name: str) -> Estimate | None:
        """A figure of :class:`Teamwork` over the runs."""
        values = [value for each in self.teamwork if (value := getattr(each, name)) is not None]
        if not values:
            return None
        found = estimate_signed(values, self.level)
        if found.interval is None:
            return found
        # A t interval of few runs ignores the bounds of the quantity itself.
        least, most = _BOUNDS.get(name, (0.0, math.inf))
        inside = replace(found.interval, low=max(least, found.interval.low), high=min(most, found.interval.high))
        return replace(found, interval=inside)


@dataclass(frozen=True)
class Scaling:
    """The points of one task and recipe, smallest first.

    Efficiencies are relative to the smallest point of the same scheme; a single process belongs to every scheme.
    """

    title: str
    points: tuple[ScaledPoint, ...]
    level: float
    warnings: tuple[str, ...]
    answers: tuple[str, ...] = ()
    """A sentence a point: whether it reaches the target sooner than its base."""


def scaling(title: str, groups: Sequence[RunGroup], records: Sequence[Record], level: float = 0.95) -> Scaling:
    """The points of ``groups``, one per number of ranks and scheme, with the records of their runs."""
    by_path = {str(record.path): record for record in records}
    ordered = sorted(groups, key=_ranks)
    bases = [_base(group, ordered) for group in ordered]
    points = tuple(_point(group, base, by_path, level) for group, base in zip(ordered, bases, strict=True))
    crowded = list(dict.fromkeys(str(point.ranks) for point in points if point.crowded))
    warnings = []
    if crowded:
        warnings.append(
            f"on {', '.join(crowded)} ranks there were more threads than cores: their times say nothing about scaling, "
            "and no efficiency is claimed"
        )
    for group, base in zip(ordered, bases, strict=True):
        warnings += [f"{group.label} against {base.label}: {each}" for each in against(base, group)]
    at = dict(zip(map(id, ordered), points, strict=True))
    answers = [_answer(at[id(base)], point) for base, point in zip(bases, points, strict=True) if at[id(base)] != point]
    return Scaling(title, points, level, tuple(warnings), tuple(filter(None, answers)))


def _answer(base: ScaledPoint, point: ScaledPoint) -> str:
    """Empty where no efficiency is known."""
    found = point.to_accuracy
    if found.value is None or not point.ranks > base.ranks:
        return ""
    more = point.ranks * point.threads / (base.ranks * base.threads)
    times = f"{1 / (found.value * more):.3g}"
    low, high = (1 / (each * more) if each else None for each in (found.high, found.low))
    if low is not None and high is not None:
        times += f" [{low:.3g}, {high:.3g}]"
    if high is not None and high < 1:
        answer = "sooner than"
    elif low is not None and low > 1:
        answer = "later than"
    else:
        answer = "neither clearly sooner nor clearly later than"
    return f"{point.label} reaches the target {answer} {base.label}: it takes {times} times as long"


def against(base: RunGroup, group: RunGroup) -> list[str]:
    """What speaks against a ratio of ``group`` to ``base``, according to the gate, without doubts about single runs.

    Those are reported with the other figures of the run's group.
    """
    if group is base or not base.runs or not group.runs:
        return []
    found = [
        each.sentence for each in comparable(base, group).caveats if each.weight != "note" and each.subject != "doubts"
    ]
    return [*found, NOT_INTERLEAVED] if _apart(base, group) else found


def _apart(base: RunGroup, group: RunGroup) -> bool:
    """Whether the runs of the two did not take turns, so that the machine may have changed in between."""
    a, b = ended(base), ended(group)
    paired = [run.seed for run in a] == [run.seed for run in b]
    return schedule_of([span_of(run) for run in a], [span_of(run) for run in b], paired=paired) is not None


def _ranks(group: RunGroup) -> int:
    distribution = group.specification.distribution
    return distribution.ranks if distribution else 1


def _base(group: RunGroup, ordered: Sequence[RunGroup]) -> RunGroup:
    scheme = group.specification.distribution
    return next(
        each
        for each in ordered
        if (team := each.specification.distribution) is None
        or (scheme is not None and (team.scheme, team.settings) == (scheme.scheme, scheme.settings))
    )


def threads_of(group: RunGroup) -> int:
    """Of each process, as its framework reports; 1 if none does."""
    return max((int(run.environment.get("framework", {}).get("threads") or 1) for run in group.runs), default=1)


def _crowded(group: RunGroup, records: Mapping[str, Record]) -> bool:
    """Whether the ranks report shared cores, or have more threads than their machine has cores."""
    for run in group.runs:
        record = records.get(run.path)
        team = record.end.environment_after.get("team", {}) if record and record.end else {}
        cores = team.get("cores_by_host") or [run.environment.get("machine", {}).get("cores_allowed")]
        ranks = team.get("ranks_by_host") or [_ranks(group)]
        if team.get("crowded") or any(
            count * threads_of(group) > owned for count, owned in zip(ranks, cores, strict=False) if owned
        ):
            return True
    return False


def _point(group: RunGroup, base: RunGroup, records: Mapping[str, Record], level: float) -> ScaledPoint:
    crowded = _ranks(group) > 1 and _crowded(group, records)
    times = [run.time_to_accuracy_s for run in group.runs if run.time_to_accuracy_s is not None]
    samples = [float(run.samples_to_target) for run in group.runs if run.samples_to_target]
    views = [teamwork(records[run.path]) for run in group.runs if run.path in records]
    return ScaledPoint(
        label=group.label,
        ranks=_ranks(group),
        group=group,
        reached=wilson(group.reached, group.n, level),
        time_to_accuracy_s=estimate(times, level) if times else None,
        epoch_s=_estimate(_epochs_s(group, records), level),
        samples_to_target=_estimate(samples, level),
        teamwork=tuple(each for each in views if each is not None),
        per_epoch=_efficiency(_epochs_s(base, records), _epochs_s(group, records), base, group, crowded, level),
        to_accuracy=_to_accuracy(base, group, crowded, level),
        crowded=crowded,
        threads=threads_of(group),
        level=level,
    )


def _epochs_s(group: RunGroup, records: Mapping[str, Record]) -> list[float]:
    """Seconds of training alone per epoch, one value per run."""
    found = []
    for run in group.runs:
        record = records.get(run.path)
        if record is None or not record.evaluations or record.status != "done":
            continue
        last = record.evaluations[-1]
        if last.epoch > 0:
            found.append(sum(last.phases_ns.get(name, 0) for name in _TRAINING) * 1e-9 / last.epoch)
    return found


def _to_accuracy(base: RunGroup, group: RunGroup, crowded: bool, level: float) -> Efficiency:
    for each in (base, group):
        missed = each.n - each.reached
        if missed:
            return Efficiency(None, reason=f"{missed} of {each.n} runs of {each.label} missed the target")
    return _efficiency(_times(base.runs), _times(group.runs), base, group, crowded, level)


def _times(runs: Sequence[RunSummary]) -> list[float]:
    return [run.time_to_accuracy_s for run in runs if run.time_to_accuracy_s is not None]


def _efficiency(
    before: Sequence[float], after: Sequence[float], base: RunGroup, group: RunGroup, crowded: bool, level: float
) -> Efficiency:
    """Speed-up over the increase in cores: (t_base · c_base) / (t · c)."""
    if group is base:
        return Efficiency(1.0, reason="the base of the others")
    if crowded:
        return Efficiency(None, reason=CROWDED)
    if not before or not after:
        return Efficiency(None, reason="no run has finished")
    more = _ranks(base) * threads_of(base) / (_ranks(group) * threads_of(group))
    one, apart = min(len(before), len(after)) < 2, _apart(base, group)
    if one or apart:
        ratio = geometric_mean(before) / geometric_mean(after)
        return Efficiency(ratio * more, reason=NOT_INTERLEAVED if apart else "one run has no spread")
    found = welch_log_ratio(after, before, level)
    return Efficiency(found.ratio * more, found.interval.low * more, found.interval.high * more)


def _estimate(values: Sequence[float], level: float) -> Estimate | None:
    return estimate(values, level) if values else None
