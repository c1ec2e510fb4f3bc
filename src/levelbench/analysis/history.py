"""One measure over the revisions of a repository, and where it changed permanently.

A point is a revision: the geometric mean over its processes or runs. Variation between revisions that is not a change
(the session, the layout of a binary, the state of the machine) is variation between points, so the points, not the
processes, decide whether something changed.

Changes are found by the E-divisive scheme (Matteson and James 2014, section 3; in benchmarking: Daly and others 2020),
with the F statistic of two means on logarithms instead of the energy statistic. The best split of all segments is
tested by permutations within the segments, and the search ends at the first split that is not significant. The
probability of finding one change too many is at most 1 - level, however long the history is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec import structs

from levelbench.analysis.ties import estimate_to_target, jumps_of, widened
from levelbench.measure.environment import machine_of
from levelbench.measure.statistics import Estimate, Interval, estimate, geometric_mean, mean_difference, t_quantile
from levelbench.records.commands import CommandRecord
from levelbench.records.schema import key_of
from levelbench.records.summary import RunGroup, RunSummary, labels_of

__all__ = ["Change", "History", "Revision", "change_points", "histories_of_commands", "histories_of_runs"]

LEAST_POINTS = 8
"""With fewer points, a change of three in a row cannot be significant at 5 %."""
_LEAST_SEGMENT = 2
_PERMUTATIONS = 1999


@dataclass(frozen=True)
class Revision:
    """A revision: its ``commit``, ``edit`` if the folder had uncommitted changes, and one time per process or run.

    ``missed`` counts runs without a time, because they failed or did not reach the target. They bias the mean of the
    others, so no changes are searched for in a history that has any. ``runs`` has the runs of the times, if they are
    times of runs.
    """

    commit: str
    edit: str
    label: str
    started: str
    times_s: tuple[float, ...]
    missed: int = 0
    runs: tuple[RunSummary, ...] = ()

    @property
    def name(self) -> str:
        """The commit's first ten digits, with a plus if there were uncommitted changes."""
        return self.commit[:10] + ("+" if self.edit else "")

    def estimate(self, level: float) -> Estimate | None:
        """The typical time, if there is one; of runs with room for late evaluations in its interval."""
        if not self.times_s or self.missed:
            return None
        return estimate_to_target(self.times_s, self.runs, level) if self.runs else estimate(self.times_s, level)


@dataclass(frozen=True)
class Change:
    """From index ``at`` on, the times are ``ratio`` times those since the previous change.

    ``interval`` is Student's, with the variance of the revisions between changes, and of runs with room for late
    evaluations that few of them show. The position was chosen from the same points, so the interval is slightly too
    narrow for a small change. Where revisions repeat the same computations, ``seeds`` is how many there are.
    """

    at: int
    ratio: float
    interval: Interval
    seeds: int | None = None


@dataclass(frozen=True)
class History:
    """One command, or the runs of one specification, on one machine.

    Points are in the order of their commits, or of measurement if git knows none of them here (``by_measurement``).
    Those ``placed`` by their time come after the one that was measured last before. ``why_none`` says why no changes
    were searched for.
    """

    name: str
    measure: str
    machine: str
    points: tuple[Revision, ...]
    changes: tuple[Change, ...]
    why_none: str = ""
    by_measurement: bool = False
    placed: tuple[str, ...] = ()


def change_points(values: Sequence[float], level: float = 0.95, seed: int = 0) -> list[int]:
    """The indices at which the level of a series of positive ``values`` changes: each begins a new segment.

    A segment has at least two values.
    """
    logs = np.log(np.asarray(values, float))
    cuts: list[int] = []
    draw = np.random.default_rng(seed)
    while True:
        edges = [0, *cuts, len(logs)]
        segments = [slice(*each) for each in pairwise(edges)]
        found = [(*_best_split(logs[None, each]), each.start) for each in segments]
        score, split, start = max(
            ((float(each[0][0]), int(each[1][0]), each[2]) for each in found), default=(0.0, 0, 0)
        )
        if score <= 0:
            return cuts
        permuted = np.zeros(_PERMUTATIONS)
        for each in segments:
            shuffled = draw.permuted(np.tile(logs[each], (_PERMUTATIONS, 1)), axis=1)
            permuted = np.maximum(permuted, _best_split(shuffled)[0])
        # Equal arrangements differ in the last digits.
        if 1 + int((permuted >= score * (1 - 1e-9)).sum()) > (1 - level) * (1 + _PERMUTATIONS):
            return cuts
        cuts = sorted([*cuts, start + split])


def _best_split(rows: np.ndarray[Any, np.dtype[np.float64]]) -> tuple[Any, Any]:
    """The largest F statistic of two means over all splits of each row, and the number of values before that split."""
    count = rows.shape[1]
    sizes = np.arange(_LEAST_SEGMENT, count - _LEAST_SEGMENT + 1)
    if not len(sizes):
        return np.zeros(len(rows)), np.zeros(len(rows), int)
    centred = rows - rows.mean(1, keepdims=True)
    sums = np.cumsum(centred, 1)[:, sizes - 1]
    between = sums**2 * count / (sizes * (count - sizes))
    within = np.maximum((centred**2).sum(1, keepdims=True) - between, np.finfo(float).tiny)
    scores = between / within * (count - 2)
    best = scores.argmax(1)
    return scores[np.arange(len(rows)), best], sizes[best]


Order = Callable[[Collection[str]], Mapping[str, int]]
"""The place of each commit that is known among the others."""


def _unknown(_: Collection[str]) -> Mapping[str, int]:
    return {}


def histories_of_commands(
    records: Iterable[CommandRecord], level: float = 0.95, order: Order = _unknown
) -> tuple[list[History], int]:
    """A history of the wall time of each command on each machine, and the number of processes without a known commit.

    Times of failed or interrupted processes do not count. A second copy of a command (``A`` against ``A``) is left out.
    """
    found: dict[tuple[str, str], list[CommandRecord]] = {}
    for record in records:
        own = record.header.specification
        failed = record.outcome is None or record.outcome.reason
        if record.status == "done" and not failed and not own.copy:
            alike = structs.replace(own, label="", revision="", source="", timeout_s=None)
            found.setdefault((key_of(alike), machine_of(record.header.environment)), []).append(record)
    measured = [
        (
            (members[0].header.specification.command, machine),
            [
                (each.header.environment, each.header.specification.label, each.header.started, _wall_s(each), None)
                for each in members
            ],
        )
        for (_, machine), members in found.items()
    ]
    return _histories(measured, "wall time", level, order)


def histories_of_runs(
    groups: Sequence[RunGroup], level: float = 0.95, order: Order = _unknown
) -> tuple[list[History], int]:
    """A history of the time to accuracy by specification and machine, and the number of runs without a commit."""
    known = {group.key: group for group in groups}
    kinds, chosen = [each.specification for each in known.values()], [each.chosen for each in known.values()]
    labels = dict(zip(known, labels_of(kinds, chosen=chosen), strict=True))
    found: dict[tuple[str, str], list[_Measured]] = {}
    for group in groups:
        for run in (*group.runs, *group.repeats):
            measured = run.environment, "", run.started, run.time_to_accuracy_s, run
            found.setdefault((labels[group.key], machine_of(run.environment)), []).append(measured)
    return _histories(found.items(), "time to accuracy", level, order)


_Measured = tuple[Mapping[str, Any], str, str, float | None, RunSummary | None]
"""Environment, label, start and time of a process or run, and the run."""


def _histories(
    found: Iterable[tuple[tuple[str, str], Sequence[_Measured]]], measure: str, level: float, order: Order
) -> tuple[list[History], int]:
    histories, unknown = [], 0
    for (name, machine), measured in found:
        points: dict[tuple[str, str], Revision] = {}
        for environment, label, started, time_s, run in sorted(measured, key=lambda each: each[2]):
            source = environment.get("git") or {}
            if not (commit := source.get("commit")):
                unknown += 1
                continue
            which = commit, source.get("changes") or ""
            point = points.get(which) or Revision(*which, label, started, ())
            points[which] = replace(
                point,
                label=point.label or label,
                times_s=(*point.times_s, *(() if time_s is None else (time_s,))),
                missed=point.missed + (time_s is None),
                runs=(*point.runs, *(() if time_s is None or run is None else (run,))),
            )
        if points:
            in_order, commits = list(points.values()), {each.commit for each in points.values()}
            known = order(commits) if len(commits) > 1 else dict.fromkeys(commits, 0)
            placed = tuple(each.name for each in in_order if known and each.commit not in known)
            in_order = _in_order(in_order, known) if known else in_order
            history = _history(name, measure, machine, tuple(in_order), level)
            histories.append(replace(history, by_measurement=not known, placed=placed))
    return histories, unknown


def _in_order(points: Sequence[Revision], known: Mapping[str, int]) -> list[Revision]:
    """In the order of the ``known`` commits; each other one after the known one that was measured last before it."""

    def place(point: Revision) -> tuple[int, bool, bool, str]:
        if point.commit in known:
            return known[point.commit], False, point.edit != "", point.started
        before = [each for each in points if each.commit in known and each.started < point.started]
        last = max(before, key=lambda each: each.started, default=None)
        return -1 if last is None else known[last.commit], True, False, point.started

    return sorted(points, key=place)


def _wall_s(record: CommandRecord) -> float | None:
    wall = record.measurements.get("wall")
    return None if wall is None else wall.value


def _history(name: str, measure: str, machine: str, points: tuple[Revision, ...], level: float) -> History:
    if len(points) < LEAST_POINTS:
        why = f"finding changes takes at least {LEAST_POINTS} revisions"
        return History(name, measure, machine, points, (), why)
    if any(each.missed for each in points):
        return History(name, measure, machine, points, (), "some of its runs have no time")
    logs = np.log([geometric_mean(each.times_s) for each in points])
    edges = [0, *change_points(np.exp(logs).tolist(), level), len(points)]
    segments = [logs[slice(*each)] for each in pairwise(edges)]
    dof = len(logs) - len(segments)
    deviation = math.sqrt(sum(float(((each - each.mean()) ** 2).sum()) for each in segments) / dof)
    changes = []
    for start, at, end in zip(edges, edges[1:], edges[2:], strict=False):
        before, after = logs[start:at], logs[at:end]
        difference = float(after.mean() - before.mean())
        half = t_quantile((1 + level) / 2, dof) * deviation * math.sqrt(1 / len(before) + 1 / len(after))
        ends = math.exp(difference - half), math.exp(difference + half)
        interval = Interval(*ends, level, "Student's t on logarithms, pooled over the segments")
        change = Change(at, math.exp(difference), interval)
        changes.append(_widened(change, points[start:at], points[at:end]))
    return History(name, measure, machine, points, tuple(changes))


def _widened(change: Change, before: Sequence[Revision], after: Sequence[Revision]) -> Change:
    """With room for late evaluations, and for other seeds.

    Revisions often repeat the same seeds, whose runs are the same computations until the code changes what they
    compute: they tell of few runs, however many revisions there are.
    """
    sides: list[dict[tuple[int, str], list[RunSummary]]] = [{}, {}]
    for side, points in zip(sides, (before, after), strict=True):
        for run in (run for point in points for run in point.runs):
            side.setdefault((run.seed, run.losses_digest or run.qualities_digest or run.id), []).append(run)
    if not all(sides) or sides[0].keys() == sides[1].keys():
        return change
    a, b = ([runs[0] for _, runs in sorted(side.items())] for side in sides)
    interval = widened(change.ratio, change.interval, jumps_of(a, b))
    fewest, repeated = min(map(len, sides)), any(len(runs) > 1 for side in sides for runs in side.values())
    if repeated and fewest > 1:
        first, second = (
            [math.fsum(math.log(run.time_to_accuracy_s or 1.0) for run in runs) / len(runs) for runs in side.values()]
            for side in sides
        )
        of_seeds = mean_difference(first, second, interval.level).interval
        if of_seeds is not None:
            low, high = min(interval.low, math.exp(of_seeds.low)), max(interval.high, math.exp(of_seeds.high))
            interval = replace(interval, low=low, high=high)
    return replace(change, interval=interval, seeds=fewest if repeated else None)
