"""Stability: how much the runs of one specification vary, whether they arrive at all, and where the spread comes from.

A coefficient of variation alone is that of the survivors: a recipe that reaches its target in two of three runs can
look steadier than one that always does. So it never stands without the share of runs that reached the target, its
interval, and the expected time of someone who starts again after a miss. Two things that every claim needs follow from
the spread: how many runs show a difference of a given size, and by how much the best of several runs overstates the
typical one.

The spread is split in two ways. Every run gives the first: time = samples to the target x time per sample, the luck of
the seed and the speed of the machine. The second needs seeds that were run again, or several sessions: how much seeds,
sessions and the order of runs add (``measure.statistics.components``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from msgspec import structs

from levelbench.analysis.comparison import span_of
from levelbench.analysis.ties import unseen_share
from levelbench.errors import UsageError
from levelbench.measure.design import sessions_of
from levelbench.measure.environment import same_machine, states_machine
from levelbench.measure.statistics import (
    Estimate,
    Interval,
    KaplanMeier,
    best_of,
    deviation_interval,
    expected_time_with_restarts,
    kaplan_meier,
    normal_minimum,
    restarts_interval,
    runs_needed_t,
    variation,
    wilson,
)
from levelbench.measure.statistics.components import variance_parts
from levelbench.records import RunGroup, RunSummary
from levelbench.records.summary import one_a_seed

__all__ = ["EFFECTS", "BestOf", "Needed", "SpreadPart", "Stability", "by_machine", "stability"]

EFFECTS = (0.01, 0.02, 0.05, 0.1, 0.2)
"""The claims of which the number of runs is given."""
_CHOICES = (2, 3, 5, 10, 20)
_UNKNOWN_DRIFT = 1.0
"""Change of the log from run to run: an interval beyond it on both sides says nothing."""
_MOST_RUNS = 1000
"""Components are computed from the earliest runs where there are more."""
_ONE, _FEW = 1, 3


@dataclass(frozen=True)
class Needed:
    """Runs of each arm that show a difference of ``effect`` (0.05 is 5 %) with a power of 80 %, at the level given.

    ``low`` and ``high`` are the numbers at the ends of the interval of the coefficient of variation.
    """

    effect: float
    runs: int
    low: int | None
    high: int | None


@dataclass(frozen=True)
class BestOf:
    """What the best of ``count`` runs that reached the target takes, over the typical (geometric mean) time.

    ``expected`` is for log-normal times, exact with its interval. ``seen`` is the mean over all choices of so many of
    the runs, whatever their distribution; ``None`` for more than there are.
    """

    count: int
    expected: float
    low: float
    high: float
    seen: float | None

    @property
    def overstated(self) -> float:
        """By how much a claim of the best run overstates the speed: typical over best, minus 1."""
        return 1.0 / self.expected - 1.0


@dataclass(frozen=True)
class SpreadPart:
    """One source of the spread of log times: its ``deviation``, and its ``share`` of the variance where shares add up.

    ``ratio`` is the exact interval of the deviation over that from run to run, for a source that is a factor;
    ``slope`` the change from one run of a session to the next, for the order. ``reason`` says what is missing.
    """

    source: str
    deviation: float | None = None
    interval: Interval | None = None
    share: float | None = None
    ratio: Interval | None = None
    slope: Estimate | None = None
    reason: str = ""


@dataclass(frozen=True)
class Stability:
    """The answer for one group of runs; times in seconds. What is ``None`` has its reason in ``lacks``.

    ``share`` is Wilson's interval of the share that reaches the target. ``variation`` is of the ``reached`` runs alone.
    ``curve`` counts runs that missed as censored, those that could never arrive at infinity. So it does the
    ``trained_out`` runs, whose epochs were done: no share of runs can reach the target that did not. ``restarts`` is
    the expected time if runs that miss are started again.
    """

    label: str
    n: int
    reached: int
    unfinished: int
    trained_out: int
    share: Interval
    variation: Estimate | None
    curve: KaplanMeier
    restarts: Estimate | None
    best_s: float | None
    needed: tuple[Needed, ...]
    best_of: tuple[BestOf, ...]
    parts: tuple[SpreadPart, ...]
    lacks: tuple[str, ...]
    level: float


def by_machine(groups: Sequence[RunGroup]) -> list[RunGroup]:
    """``groups``, those with runs on several machines split by machine: such times have no one spread.

    Of a seed that ran on several machines, one run counts on each. Runs that do not say where they ran, as those of
    imported logs, stay together.
    """
    found = []
    for group in groups:
        machines: list[list[RunSummary]] = []
        for run in (*group.runs, *group.repeats):
            own = next((each for each in machines if _together(each[0], run)), None)
            machines.append([run]) if own is None else own.append(run)
        # A command that asked for all of them may have gone on on another machine.
        none_missing = len({run.seed for run in group.runs}) >= max(run.planned_runs for run in group.runs)
        for at, runs in enumerate(machines, 1):
            label = group.label if len(machines) == 1 else f"{group.label} on machine {at} of {len(machines)}"
            left = tuple(each for each in group.unfinished if _together(runs[0], each))
            if len(machines) > 1 and none_missing:
                here = len({run.seed for run in runs})
                runs = [structs.replace(run, planned_runs=min(run.planned_runs, here), whole=True) for run in runs]
            counted, repeats = one_a_seed(runs)
            found.append(replace(group, label=label, runs=counted, unfinished=left, repeats=repeats))
    return found


def _together(one: RunSummary, other: RunSummary) -> bool:
    unknown = not (states_machine(one.environment) or states_machine(other.environment))
    return unknown or same_machine(one.environment, other.environment)


def stability(group: RunGroup, *, effects: Sequence[float] = EFFECTS, level: float = 0.95) -> Stability:
    """Analyse the runs of one group; raises ``UsageError`` if none has ended, or for an impossible effect."""
    if not group.runs:
        raise UsageError(f"the stability of {group.label}", "none of its runs has ended", "run it: levelbench run")
    for effect in effects:
        if not (math.isfinite(effect) and effect > 0):
            raise UsageError(f"a claim of {effect:g}", "it is not above zero", "give a share: 0.05 is 5 per cent")
    times = [run.time_to_accuracy_s for run in group.runs if run.time_to_accuracy_s is not None]
    missed = [run for run in group.runs if run.time_to_accuracy_s is None]
    given_up = [math.inf if run.hopeless or run.trained_out else run.given_up_s or 0.0 for run in missed]
    costs = [run.given_up_s or 0.0 for run in missed]
    usable = len(times) > _ONE and min(times) > 0
    logs = np.log(times) if usable else np.empty(0)
    deviation = float(logs.std(ddof=1)) if usable else 0.0
    known = usable and deviation > 1e-12
    interval = deviation_interval(logs.tolist(), level) if known and len(times) >= _FEW else None
    restarts = None
    if times and min(times) > 0:
        expected = expected_time_with_restarts(times, costs)
        inside = restarts_interval(times, costs, level, unseen_s=_miss_s(group.runs))
        restarts = Estimate(expected, inside, group.n, "mean with restarts")
    return Stability(
        label=group.label,
        n=group.n,
        reached=len(times),
        unfinished=len(group.unfinished),
        trained_out=sum(run.trained_out and not run.hopeless for run in missed),
        share=wilson(len(times), group.n, level),
        variation=variation(times, level) if known else None,
        curve=kaplan_meier([*times, *given_up], [True] * len(times) + [False] * len(given_up)),
        restarts=restarts,
        best_s=min(times, default=None),
        needed=tuple(_needed(each, deviation, interval, level) for each in effects) if known else (),
        best_of=_best_of(logs, deviation, interval) if known else (),
        parts=_parts(group, level) if known else (),
        lacks=tuple(_lacks(group, times, known, level)),
        level=level,
    )


def _miss_s(runs: Sequence[RunSummary]) -> float | None:
    """What a run that misses its target takes until its budget is over, a mean; ``None`` if no budget is known."""
    found = []
    for run in runs:
        time_s = run.time_to_accuracy_s
        if time_s is None:
            continue
        ends = [] if run.budget_s is None else [run.budget_s]
        if run.budget_epochs and run.epochs_to_target:
            ends.append(time_s * run.budget_epochs / run.epochs_to_target)
        if run.budget_samples and run.samples_to_target:
            ends.append(time_s * run.budget_samples / run.samples_to_target)
        if ends:
            found.append(min(ends))
    return math.fsum(found) / len(found) if found else None


def _needed(effect: float, deviation: float, interval: Interval | None, level: float) -> Needed:
    def runs(spread: float) -> int:
        return runs_needed_t(spread, math.log1p(effect), 1.0 - level)

    ends = (None, None) if interval is None else (runs(interval.low), runs(interval.high))
    return Needed(effect, runs(deviation), *ends)


def _best_of(logs: np.ndarray, deviation: float, interval: Interval | None) -> tuple[BestOf, ...]:
    if interval is None:
        return ()
    mean, values, found = float(logs.mean()), logs.tolist(), []
    for count in _CHOICES:
        least = normal_minimum(count)
        expected, low, high = (math.exp(least * each) for each in (deviation, interval.high, interval.low))
        seen = math.exp(best_of(values, count) - mean) if count <= len(values) else None
        found.append(BestOf(count, expected, low, high, seen))
    return tuple(found)


def _parts(group: RunGroup, level: float) -> tuple[SpreadPart, ...]:
    """Where the spread comes from; nothing for fewer than three runs that reached the target."""
    arrived = [run for run in group.runs if run.time_to_accuracy_s]
    if len(arrived) < _FEW:
        return ()
    return (*_of_product(arrived, level), *_of_factors([*arrived, *_again(group)], level))


def _again(group: RunGroup) -> list[RunSummary]:
    return [run for run in group.repeats if run.time_to_accuracy_s]


def _logs(runs: Sequence[RunSummary]) -> np.ndarray:
    return np.log([run.time_to_accuracy_s or math.nan for run in runs])


def _of_product(runs: Sequence[RunSummary], level: float) -> list[SpreadPart]:
    """Time = samples x time per sample; each share is its covariance with the time, so that both add up to 1."""
    logs = _logs(runs)
    samples = [run.samples_to_target or 0 for run in runs]
    if min(samples) <= 0:
        return [SpreadPart("samples to target", reason="the runs do not count samples")]
    of_samples = np.log(samples)
    variance, found = float(logs.var(ddof=1)), []
    for source, part in (("samples to target", of_samples), ("time per sample", logs - of_samples)):
        spread = float(part.std(ddof=1))
        interval = deviation_interval(part.tolist(), level) if spread > 1e-12 else None
        share = float(np.cov(part, logs)[0, 1]) / variance if interval else 0.0
        found.append(SpreadPart(source, spread if interval else 0.0, interval, share))
    return found


def _of_factors(runs: Sequence[RunSummary], level: float) -> list[SpreadPart]:
    """Seed, session, order and the rest."""
    runs = sorted(runs, key=lambda run: run.started)[:_MOST_RUNS]
    sessions = sessions_of([span_of(run) for run in runs])
    of_run = {at: number for number, each in enumerate(sessions) for at in each}
    place = {at: float(index) for each in sessions for index, at in enumerate(each)}
    places = range(len(runs))
    factors = {"seed": [run.seed for run in runs], "session": [of_run[at] for at in places]}
    found = variance_parts(_logs(runs).tolist(), factors, {"order": [place[at] for at in places]}, level)
    alone = len(sessions) == len(runs)
    missing = {
        "seed": "no seed was run twice: run the same seeds into another --store and name both",
        "session": "each run is a session of its own: make several in a row, six hours or more after the others"
        if alone
        else "all runs are of one session: run again after six hours or more",
    }
    parts = []
    for each in found.factors:
        if each.variance is None or each.ratio is None:
            untold = "the runs are too few to tell it from the rest"
            known = each.levels < 2 or each.levels == len(runs)
            parts.append(SpreadPart(each.factor, reason=missing[each.factor] if known else each.reason or untold))
            continue
        ends = (math.sqrt(each.ratio.low), math.sqrt(each.ratio.high))
        parts.append(SpreadPart(each.factor, math.sqrt(each.variance), ratio=Interval(*ends, level, each.ratio.method)))
    slope = found.slopes.get("order")
    if slope and slope.interval and slope.interval.low < -_UNKNOWN_DRIFT and slope.interval.high > _UNKNOWN_DRIFT:
        slope = None
    parts.append(SpreadPart("order", slope=slope, reason="" if slope else "the runs are too few to show a drift"))
    if found.rest is not None and any(part.ratio is not None for part in parts):
        parts.append(SpreadPart("run to run", math.sqrt(found.rest)))
    return parts


def _lacks(group: RunGroup, times: Sequence[float], known: bool, level: float) -> list[str]:
    """What is missing, and how to get it."""
    found, name, missed = [], group.label, group.n - len(times)
    how = "levelbench run -n 5" if group.specification.scored_by is None else group.to_repeat
    if not times:
        most = wilson(0, group.n, level).high
        would = f"{most:.{0 if most > 0.01 else 2}%}"
        found.append(
            f"no run of {name} reached the target ({group.n} tried; at most {would} would): give it more time "
            "(--epochs, --budget) or judge by another target (--target)"
        )
    elif len(times) == 1:
        found.append(f"one run of {name} reached the target, and one has no spread: make more ({how})")
    elif not known:
        why = "the times are all the same" if min(times) > 0 else "a time is zero"
        found.append(
            f"{name}: {why}, so there is no spread to analyse: the target is too easy, or the clock too coarse"
        )
    elif len(times) < _FEW:
        found.append(f"two runs of {name} give a spread without an interval: make more ({how})")
    elif variation(times, level).interval is None:
        found.append(
            f"the variation of {name} has no interval: its times are far from log-normal (outliers, two modes)"
        )
    if not all(states_machine(run.environment) for run in group.runs):
        found.append(
            f"doubt: runs of {name} do not say on which machine they ran: if on several, their times vary for that, too"
        )
    arrived = [run for run in group.runs if run.reached]
    counts = {run.evaluations for run in arrived if run.crossing not in ("final", "interpolated")}
    if known and len(counts) == 1 and 0 not in counts:
        late = unseen_share(len(arrived), level)
        found.append(
            f"all {len(arrived)} runs of {name} that reached the target did at evaluation {counts.pop()}: up to "
            f"{late:.0%} of all may need another one, which the variation, the claims and the best runs leave out; "
            "evaluate more often (--every)"
        )
    if missed and times:
        found.append(
            f"{missed} of {group.n} runs of {name} missed the target: its variation, claims and best runs are those of "
            "the others"
        )
    # The gate has a doubt about interrupted runs.
    if running := sum(run.status == "running" for run in group.unfinished):
        found.append(f"{running} run{'s' * (running > 1)} of {name} {'are' if running > 1 else 'is'} still running")
    return found
