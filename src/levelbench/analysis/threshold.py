"""Thresholds: how the answer depends on the target, by reading the same curves at a sweep of targets.

A ranking at one target is a ranking at that target: a recipe that is fast to 93 % may be slow to 94 % and never see
95 %. Each arm is read at each target under its crossing rule, and at one target under every rule, since a curve that
crosses a target and falls back has several times to it. If an arm does not get to a target, either its runs trained to
their end without it, or they stopped (at their own target, at a budget) and whether they would is unknown.

The knee of an arm is Kneedle's (Satopää et al. 2011) on its time to each quality: beyond it, quality gets expensive.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np

from levelbench.analysis.comparison import Comparison, compare_all
from levelbench.analysis.targets import kneedle, nice_step
from levelbench.analysis.ties import BETWEEN, estimate_counted
from levelbench.errors import UsageError
from levelbench.measure.crossing import Climb, climb_of, sign_of
from levelbench.measure.policies import policy
from levelbench.measure.statistics import Estimate, kaplan_meier, wilson
from levelbench.records import Record, group_runs, summarise
from levelbench.records.schema import Target

__all__ = ["SHOWN_RULES", "Limit", "Order", "RankFlip", "TargetVerdicts", "ThresholdCell", "ThresholdSweep"]
__all__ += ["TimedArm", "TimedCurve", "curve_of", "default_targets", "sweep", "verdicts_at"]

SHOWN_RULES = ("first", "interpolated", "confirmed", "sustained")
"""The rules that are shown side by side."""
MOST_TARGETS, MOST_ARMS, MOST_FLIPS = 100, 2000, 1000
_DEFAULT_TARGETS = 8
_KNEE_POINTS = 8
_GRID, _COARSE_GRID, _MANY = 400, 100, 1000
"""Qualities at which a knee is looked for, and from how many runs on there are fewer of them."""

Ended = Literal["target", "budget", "end", "unknown", "failed"]


@dataclass(frozen=True)
class TimedCurve:
    """One run: its quality at each evaluation, and the seconds until then, on the clock of the analysis.

    ``ended`` says why it has no more evaluations: it was stopped at its own ``target`` or by a ``budget``, its training
    was over (``end``), it ``failed``, or nobody says (``unknown``). A run that failed reaches nothing.
    """

    time_s: tuple[float, ...]
    quality: tuple[float, ...]
    ended: Ended

    def climb(self, rule: str, direction: str) -> Climb:
        """The curve as a crossing rule sees it."""
        whole = self.ended != "failed"
        return climb_of(self.time_s if whole else (), self.quality if whole else (), rule, direction)

    def given_up_s(self, rule: str) -> float:
        """How long it tried; infinite if it could not have arrived later."""
        hopeless = self.ended == "failed" or (rule == "final" and self.ended == "end")
        return math.inf if hopeless or not self.time_s else self.time_s[-1]

    @cached_property
    def still_climbing(self) -> bool:
        """Whether its last evaluation may not be all that it can do."""
        return self.ended in ("target", "budget")


@dataclass(frozen=True)
class TimedArm:
    """The runs of one recipe or entry, under its own crossing ``rule``."""

    label: str
    curves: tuple[TimedCurve, ...]
    rule: str


@dataclass(frozen=True)
class ThresholdCell:
    """One arm at one target under one rule: how many runs reached it, and the time (seconds) if half of them did.

    The time is a geometric mean if all runs reached the target, with room for late evaluations in its interval, else
    Kaplan and Meier's median. Of the runs that did not reach it, ``stopped`` might have, had they gone on.
    """

    reached: int
    n: int
    time_s: Estimate | None
    stopped: int


@dataclass(frozen=True)
class Limit:
    """How far an arm gets: the highest targets that ``all`` and ``any`` of its runs reached under its rule.

    ``stopped`` runs might have got further; if there are none, more than ``any`` was out of reach for all ``n`` runs,
    and ``chance`` is the upper bound of the share of runs that get there. ``knee`` is (quality, seconds) of the median
    curve; ``None`` with a ``reason``.
    """

    label: str
    n: int
    all: float | None
    any: float | None
    stopped: int
    chance: float
    knee: tuple[float, float] | None
    reason: str


@dataclass(frozen=True)
class Order:
    """The ranking at one target: labels of the arms that have a time, the fastest first.

    ``pairs`` of arms have a known order here and at the reference, and ``turned`` of them another one there. An arm
    that trained to its end without arriving comes after those that arrive; of one that stopped nothing is known.
    """

    target: float
    ranking: tuple[str, ...]
    pairs: int
    turned: int


@dataclass(frozen=True)
class RankFlip:
    """Two arms that change places between neighbouring targets ``low`` and ``high`` (in the order of difficulty).

    ``before`` and ``after`` are the ratios of their times, ``second`` over ``first``; infinite or 0 if only one of them
    still arrives.
    """

    first: str
    second: str
    low: float
    high: float
    before: float
    after: float


@dataclass(frozen=True)
class ThresholdSweep:
    """The answer: ``cells[arm][target]`` under each arm's own rule, ``crossings[arm][rule]`` at ``reference``."""

    arms: tuple[TimedArm, ...]
    targets: tuple[float, ...]
    reference: float
    cells: tuple[tuple[ThresholdCell, ...], ...]
    crossings: tuple[tuple[ThresholdCell, ...], ...]
    limits: tuple[Limit, ...]
    orders: tuple[Order, ...]
    flips: tuple[RankFlip, ...]
    level: float


def curve_of(record: Record, clock: str) -> TimedCurve:
    """The curve of a run that ended, on the split of its target and on ``clock``."""
    target, end = record.header.specification.target, record.end
    stopped = (end.stopped_by or "") if end else ""
    ended: Ended = "end"
    if end is None or record.status != "done":
        ended = "failed"
    elif stopped == "target reached":
        ended = "target"
    elif stopped.startswith("budget"):
        ended = "budget"
    elif stopped in ("its program ended", "its log ends"):
        # Whether its training was over then, only its program knew.
        ended = "unknown"
    score = policy(clock).score
    return TimedCurve(
        tuple(score(each.phases_ns).seconds for each in record.evaluations),
        tuple(each.quality.get(target.split, math.nan) for each in record.evaluations),
        ended,
    )


def default_targets(arms: Sequence[TimedArm], target: Target) -> tuple[float, ...]:
    """Round targets where the curves spend their evaluations, with the target itself; the easiest first.

    They are evenly spread over the best qualities so far of all evaluations, so that they lie close together where
    progress is slow. Curves that never move have no others than the target.
    """
    sign = sign_of(target.direction)
    seen = [
        best
        for arm in arms
        for curve in arm.curves
        for best in np.maximum.accumulate(
            [-math.inf if math.isnan(q) else sign * q for q in curve.quality] or [-math.inf]
        )
        if math.isfinite(best)
    ]
    if not seen:
        return (target.threshold,)
    ordered = np.sort(seen)
    span = float(ordered[-1] - np.quantile(ordered, 0.1)) or float(ordered[-1] - ordered[0])
    if not span:
        return (target.threshold,)
    step = nice_step(span / 50.0)
    digits = max(0, 1 - math.floor(math.log10(step)))
    chosen = np.quantile(ordered, np.linspace(0.1, 1.0, _DEFAULT_TARGETS))
    found = {round(sign * math.floor(each / step + 1e-9) * step, digits) for each in chosen.tolist()}
    return tuple(sorted({*found, target.threshold}, key=lambda each: sign * each))


def sweep(
    arms: Sequence[TimedArm],
    targets: Iterable[float],
    reference: float,
    direction: str = "higher",
    level: float = 0.95,
) -> ThresholdSweep:
    """Read ``arms`` at each of ``targets``; the rules side by side, and rankings compared, at ``reference``.

    Raises ``UsageError`` for no arm, two of one label, or a target that is not a number.
    """
    sign = sign_of(direction)
    ordered = tuple(sorted({*targets, reference}, key=lambda each: sign * each))
    asked = f"a sweep over {len(ordered)} targets"
    if not arms or not all(arm.curves for arm in arms):
        raise UsageError(asked, "there is no run to read", "run something first: levelbench run")
    if len({arm.label for arm in arms}) < len(arms):
        raise UsageError(asked, "two arms have one name", "give each arm a name of its own")
    if not all(map(math.isfinite, ordered)):
        raise UsageError(asked, "a target is not a finite number", "give qualities, such as 0.9,0.92,0.94")
    if len(ordered) > MOST_TARGETS:
        raise UsageError(asked, f"that is more than {MOST_TARGETS}", "name fewer")
    if len(arms) > MOST_ARMS:
        raise UsageError(asked, f"there are {len(arms):,} arms", f"select {MOST_ARMS:,} or fewer")
    cells, crossings, limits = [], [], []
    for arm in arms:
        by_rule = {rule: [curve.climb(rule, direction) for curve in arm.curves] for rule in {*SHOWN_RULES, arm.rule}}
        climbs = by_rule[arm.rule]
        cells.append(tuple(_cell(arm, climbs, arm.rule, each, sign, level) for each in ordered))
        crossings.append(tuple(_cell(arm, by_rule[rule], rule, reference, sign, level) for rule in SHOWN_RULES))
        limits.append(_limit(arm, climbs, sign, level))
    out = [limit.stopped == 0 for limit in limits]
    times = [np.array([_time(*pair) for pair in zip(column, out, strict=True)]) for column in zip(*cells, strict=True)]
    return ThresholdSweep(
        arms=tuple(arms),
        targets=ordered,
        reference=reference,
        cells=tuple(cells),
        crossings=tuple(crossings),
        limits=tuple(limits),
        orders=_orders(arms, ordered, reference, times),
        flips=_flips(arms, ordered, times),
        level=level,
    )


def _cell(arm: TimedArm, climbs: Sequence[Climb], rule: str, target: float, sign: float, level: float) -> ThresholdCell:
    times = [climb.time_at(target) for climb in climbs]
    known = [time for time in times if time is not None]
    missed = [curve for curve, time in zip(arm.curves, times, strict=True) if time is None]
    n, found = len(times), None
    if known and len(known) == n:
        curves = () if rule in BETWEEN else arm.curves
        counted = [bisect_left(curve.time_s, time) + 1 for curve, time in zip(curves, known, strict=False)]
        found = estimate_counted(known, counted, level) if min(known) > 0 else None
    elif known:
        given_up = [curve.given_up_s(rule) for curve in missed]
        median = kaplan_meier([*known, *given_up], [True] * len(known) + [False] * len(given_up)).median(level)
        found = median if math.isfinite(median.value) else None
    return ThresholdCell(len(known), n, found, sum(_may_go_on(curve, sign) for curve in missed))


def _time(cell: ThresholdCell, trained_out: bool) -> float:
    """The time for a ranking: infinite if the arm does not get there, not a number if it stopped and nobody knows."""
    if cell.time_s is not None:
        return cell.time_s.value
    return math.inf if trained_out else math.nan


def _limit(arm: TimedArm, climbs: Sequence[Climb], sign: float, level: float) -> Limit:
    tops = [climb.best[-1] if climb.best else -math.inf for climb in climbs]
    lowest, highest = (sign * each if math.isfinite(each) else None for each in (min(tops), max(tops)))
    stopped = sum(_may_go_on(curve, sign) for curve in arm.curves)
    knee, reason = _knee(climbs, sign)
    chance = wilson(0, len(climbs), level).high
    return Limit(arm.label, len(climbs), lowest, highest, stopped, chance, knee, reason)


def _may_go_on(curve: TimedCurve, sign: float) -> bool:
    """Whether it might have got further: it was stopped, or it ends at its best value and nobody says why it ended."""
    best = max((sign * each for each in curve.quality if not math.isnan(each)), default=math.inf)
    at_its_best = curve.ended == "unknown" and bool(curve.quality) and sign * curve.quality[-1] == best
    return curve.still_climbing or at_its_best


def _knee(climbs: Sequence[Climb], sign: float) -> tuple[tuple[float, float] | None, str]:
    """Where quality gets expensive: the knee of the median time to each quality that half of the runs reach."""
    grid = np.unique(np.concatenate([np.asarray(climb.best, dtype=np.float64) for climb in climbs]))
    most = _GRID if len(climbs) <= _MANY else _COARSE_GRID
    grid = grid[:: max(1, len(grid) // most)]
    times = np.full((len(climbs), len(grid)), math.inf)
    for row, climb in zip(times, climbs, strict=True):
        at = np.searchsorted(climb.best, grid)
        known = at < len(climb.best)
        row[known] = np.asarray(climb.time_s, dtype=np.float64)[at[known]]
    # Runs that never get there come last.
    median = np.sort(times, axis=0)[(len(climbs) - 1) // 2]
    points = [(time, quality) for time, quality in zip(median.tolist(), grid.tolist(), strict=True) if time < math.inf]
    rising = [point for at, point in enumerate(points) if at == 0 or point[0] > points[at - 1][0]]
    if len(rising) < _KNEE_POINTS:
        return (
            None,
            f"its median curve has {len(rising)} step{'s' * (len(rising) != 1)}, and a knee takes {_KNEE_POINTS}",
        )
    x, best = (np.array(each) for each in zip(*rising, strict=True))
    found = kneedle(x, best)
    return (None, found) if isinstance(found, str) else ((sign * float(best[found]), float(x[found])), "")


_Times = np.ndarray[tuple[int], np.dtype[np.float64]]
_Pairs = np.ndarray[tuple[int, int], np.dtype[np.int8]]


def _pairs(times: _Times) -> _Pairs:
    """For each pair of arms, 1 if the first is faster, -1 if the second is; 0 if they are in no known order."""
    found: _Pairs = (times[:, None] < times[None, :]).astype(np.int8) - (times[:, None] > times[None, :])
    return np.triu(found)


def _orders(
    arms: Sequence[TimedArm], targets: Sequence[float], reference: float, times: Sequence[_Times]
) -> tuple[Order, ...]:
    home, found = _pairs(times[list(targets).index(reference)]), []
    for target, here in zip(targets, times, strict=True):
        ranked = [arms[at].label for at in np.argsort(here, kind="stable").tolist() if math.isfinite(here[at])]
        both = _pairs(here) * home
        found.append(Order(target, tuple(ranked), int((both != 0).sum()), int((both < 0).sum())))
    return tuple(found)


def _flips(arms: Sequence[TimedArm], targets: Sequence[float], times: Sequence[_Times]) -> tuple[RankFlip, ...]:
    """Pairs in another order at the next target: those of which both arrive at both first, the fastest arms first."""
    found = []
    for at, (here, there) in enumerate(pairwise(times)):
        before, after = here.tolist(), there.tolist()
        for a, b in np.argwhere(_pairs(here) * _pairs(there) < 0).tolist():
            ratios = _ratio(before[a], before[b]), _ratio(after[a], after[b])
            flip = RankFlip(arms[a].label, arms[b].label, targets[at], targets[at + 1], *ratios)
            found.append(((0 in ratios or math.inf in ratios), min(before[a], before[b]), at, flip))
    return tuple(flip for *_, flip in sorted(found, key=lambda each: each[:3])[:MOST_FLIPS])


def _ratio(a: float, b: float) -> float:
    if math.isinf(a):
        return 0.0
    return math.inf if math.isinf(b) else b / a


@dataclass(frozen=True)
class TargetVerdicts:
    """The comparisons of each arm with the first one at one target, and why others could not be made."""

    target: float
    comparisons: tuple[Comparison, ...]
    refusals: tuple[str, ...]


def verdicts_at(
    records: Sequence[Record],
    targets: Sequence[float],
    *,
    margin: float = 0.02,
    level: float = 0.95,
    across_machines: bool = False,
    clock: str | None = None,
    crossing: str | None = None,
) -> tuple[TargetVerdicts, ...]:
    """Verdicts at each target, through the gate of every comparison; all hold jointly at ``level`` (Bonferroni).

    The baseline is the arm of the first record. ``clock`` and ``crossing`` replace the runs' own.
    """
    groups = group_runs([summarise(record, clock=clock, crossing=crossing) for record in records])
    places = {(group.key, group.source_digest): (at, group.label) for at, group in enumerate(groups)}
    shared, found = 1.0 - (1.0 - level) / len(targets), []
    for target in targets:
        # Runs that stopped at other targets have one here, so the labels of their own views tell them apart.
        read = group_runs([summarise(record, clock=clock, crossing=crossing, threshold=target) for record in records])
        read.sort(key=lambda group: places[group.key, group.source_digest])
        named = [replace(group, label=places[group.key, group.source_digest][1]) for group in read]
        comparisons, refusals = compare_all(named, margin, shared, across_machines=across_machines)
        found.append(TargetVerdicts(target, tuple(comparisons), tuple(refusals)))
    return tuple(found)
