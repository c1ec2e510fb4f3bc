"""What evaluations may add to a time, or to a ratio of times, although few runs, or none, show it.

Quality is measured at evaluations, so a run that needs another one takes a jump longer. If few of n runs are late, the
interval of the times says little about how many of all are: up to Clopper and Pearson's bound. How late a run is, is
known from few as well: one that misses an evaluation is taken to miss the next one with probability one half, so it
needs two more on average.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from levelbench.measure.statistics import Estimate, Interval, estimate, estimate_signed, geometric_mean, kaplan_meier
from levelbench.measure.statistics.distributions import binomial_cdf
from levelbench.measure.verdict import Verdict, VerdictKind
from levelbench.records import RunGroup, RunSummary

__all__ = ["BETWEEN", "Jumps", "beyond_ties", "estimate_counted", "estimate_to_target", "jumps_of", "time_estimate"]
__all__ += ["unseen_share", "widened"]

BETWEEN = ("final", "interpolated")
"""Crossing rules whose times do not jump from evaluation to evaluation."""
_FEW = 4
"""The interval of the times has seen enough late runs where more than one run in so many is late."""
_MORE = 2
"""How many more evaluations a late run needs on average, where too few of them are seen to tell."""


@dataclass(frozen=True)
class Jumps:
    """What evaluations add to log(b / a) beyond what they usually add, pair by pair, 0 for most.

    Above 0 is a late run of ``b``, or an early one of ``a``. Without common seeds there are as many as the smaller arm
    has runs, of which as large a share is late as of each arm. If runs ``missed``, how late they are is unknown.
    ``centers`` has log(b / a) without the late and without the early pairs, where known.
    """

    added: tuple[float, ...]
    step: float
    paired: bool
    missed: bool
    centers: tuple[float | None, float | None]

    def late(self, way: int) -> list[float]:
        """The sizes of the jumps that way: 1 for those of a late ``b``, -1 for an early one."""
        return [abs(each) for each in self.added if each * way > 0]

    def size(self, way: int) -> float:
        """What a jump that way is taken to add to log(b / a): the mean of those seen and of one of two evaluations."""
        late = self.late(way)
        return math.fsum([self.step, *late]) / (1 + len(late))

    def bound(self, way: int, level: float) -> float | None:
        """The most that jumps that way add to log(b / a) on average; ``None`` if the interval of the times knows."""
        late, n = self.late(way), len(self.added)
        if len(late) > n / _FEW and not self.missed:
            return None
        return unseen_share(n, level, len(late)) * self.size(way)

    def reason(self, way: int, level: float) -> str:
        """Why ties decide nothing, in words."""
        seen, n, what = len(self.late(way)), len(self.added), "pairs" if self.paired else "runs"
        share = f"{100 * unseen_share(n, level, seen):.0f} %"
        if seen:
            return f"{seen} of {n} {what} differ{'s' * (seen == 1)} by an evaluation, and up to {share} of all may"
        return f"all {what} tie at an evaluation, and up to {share} may differ by one or more"


def beyond_ties(found: Verdict, a: Sequence[RunSummary], b: Sequence[RunSummary]) -> Verdict:
    """The verdict, its interval widened by evaluations that too few runs show; UNCLEAR if the interval then says so."""
    jumps = jumps_of(a, b)
    if jumps is None or found.ratio is None:
        return found
    first, limit, middle = found.kind, math.log1p(found.margin), math.log(found.ratio)
    if first is VerdictKind.UNCLEAR and found.runs_to_settle is not None:
        more = _to_settle(found, middle, jumps, limit)
        # No number is known where runs differ by an evaluation as often as they do here.
        why = jumps.reason(1 if middle < 0 else -1, found.level) if more is None else ""
        found = replace(found, runs_to_settle=more, reason=", ".join(filter(None, (found.reason, why))))
    for way in (1, -1):
        bound, center = jumps.bound(way, found.level), jumps.centers[way == -1]
        if bound is None:
            continue
        center = middle if center is None else center
        edge = math.exp(center + way * bound)
        if way == 1 and found.high is not None:
            found = replace(found, high=max(found.high, edge))
        elif way == -1 and found.low is not None:
            found = replace(found, low=min(found.low, edge))
        allowed = (limit if first is VerdictKind.SAME else 0.0) - way * center
        decides = {VerdictKind.SAME: True, VerdictKind.FASTER: way == 1, VerdictKind.SLOWER: way == -1}
        if decides.get(first) and bound > allowed:
            n, seen = len(jumps.added), len(jumps.late(way))
            more = _to_bound(max(0.0, allowed / jumps.size(way)), n, found.level, seen)
            found = replace(found, kind=VerdictKind.UNCLEAR, runs_to_settle=more, reason=jumps.reason(way, found.level))
    return found


def _to_settle(found: Verdict, center: float, jumps: Jumps, limit: float) -> int | None:
    """How many more runs settle it if ties remain: as many as the times need, and as leave late runs no room."""
    n, same = len(jumps.added), abs(center) < limit
    ways = (1, -1) if same else (1 if center < 0 else -1,)
    needed: list[int | None] = [found.runs_to_settle]
    for way in ways:
        if jumps.bound(way, found.level) is not None:
            room = limit - way * center if same else abs(center)
            needed.append(_to_bound(max(0.0, room / jumps.size(way)), n, found.level, len(jumps.late(way))))
    return None if None in needed else max(each for each in needed if each is not None)


def widened(ratio: float, interval: Interval, jumps: Jumps | None, part: float = 1.0) -> Interval:
    """The interval of a ratio b / a, with room for jumps that few runs show, of which ``part`` counts in it."""
    low, high = interval.low, interval.high
    for way in (1, -1):
        bound = None if jumps is None else jumps.bound(way, interval.level)
        if bound is not None:
            edge = ratio * math.exp(way * part * bound)
            low, high = min(low, edge), max(high, edge)
    return replace(interval, low=low, high=high)


def estimate_to_target(values: Sequence[float], runs: Sequence[RunSummary], level: float = 0.95) -> Estimate:
    """The geometric mean of what ``runs`` took to the target, one value each: times, samples, steps, energies.

    As :func:`estimate_counted`, where the runs tell at which evaluation they arrived.
    """
    counted = [run.evaluations for run in runs if run.reached and run.evaluations]
    known = len(counted) == len(runs) and runs[0].crossing not in BETWEEN
    return estimate_counted(values, counted if known else None, level)


def estimate_counted(values: Sequence[float], counted: Sequence[int] | None, level: float = 0.95) -> Estimate:
    """The geometric mean of ``values``, of which each was known only at the evaluation of that number in ``counted``.

    Its interval has room for late evaluations that few of the runs show, as verdicts have. The values must be above
    zero (``ValueError``). The range of a few runs claims no level and stays as it is.
    """
    found = estimate(values, level)
    if found.interval is None or found.interval.is_range or not counted:
        return found
    one, step = (math.fsum(math.log1p(more / each) for each in counted) / len(counted) for more in (1, _MORE))
    jumps = Jumps(tuple(_beyond(list(map(math.log, counted)), one)), step, False, False, (None, None))
    low, high = found.interval.low, found.interval.high
    for way in (1, -1):
        bound = jumps.bound(way, level)
        usual = [value for value, each in zip(values, jumps.added, strict=True) if each * way <= 0]
        if bound is not None:
            edge = geometric_mean(usual) * math.exp(way * bound)
            low, high = min(low, edge), max(high, edge)
    if (low, high) == (found.interval.low, found.interval.high):
        return found
    method = f"{found.interval.method}, with room for late evaluations"
    return replace(found, interval=Interval(low, high, level, method))


def time_estimate(group: RunGroup, beside: Sequence[RunGroup] = ()) -> Estimate | None:
    """The group's time to accuracy in seconds; ``None`` if fewer than half of the runs support a median.

    The geometric mean if every run reached the target, in this group and in those of the same task in ``beside``; else
    all have a median, so that the same statistic is shown for all. Runs that gave up are censored at that time (Kaplan
    & Meier 1958), runs that could never arrive at infinity; none is imputed or dropped.
    """
    reached, given_up = [run for run in group.runs if run.time_to_accuracy_s is not None], group.given_up()
    times = [time for time in group.times() if time is not None]
    if not times:
        return None
    task = group.specification.task
    if not given_up and not any(each.given_up() for each in beside if each.specification.task == task):
        return estimate_to_target(times, reached) if min(times) > 0.0 else estimate_signed(times)
    observed = [True] * len(times) + [False] * len(given_up)
    found = kaplan_meier([*times, *given_up], observed).median()
    return found if math.isfinite(found.value) else None


def jumps_of(a: Sequence[RunSummary], b: Sequence[RunSummary]) -> Jumps | None:
    """The jumps of ``b`` against ``a``; ``None`` where evaluations are not what makes times differ, or are not known.

    Runs with equal losses are the same computation, which ties under every seed, as runs of a fixed length do. A run
    that was given up is late if it had been evaluated as often as is usual, and says nothing if it had not. One that
    failed or never could have arrived says nothing of the others.
    """
    if [run.seed for run in a] == [run.seed for run in b]:
        whole = [(x, y) for x, y in zip(a, b, strict=True) if _tells(x) and _tells(y)]
        a, b = [x for x, _ in whole], [y for _, y in whole]
    else:
        a, b = ([run for run in arm if _tells(run)] for arm in (a, b))
    both = (*a, *b)
    if not a or not b or a[0].crossing in BETWEEN or not all(run.evaluations for run in both):
        return None
    if not _known(a) or not _known(b):
        return None
    # An evaluation is a larger part of the runs of the arm that needs fewer.
    one = min(math.fsum(math.log1p(1 / run.evaluations) for run in arm) / len(arm) for arm in (a, b))
    step = max(math.fsum(math.log1p(_MORE / run.evaluations) for run in arm) / len(arm) for arm in (a, b))
    missed = not all(run.reached for run in both)
    paired = [run.seed for run in a] == [run.seed for run in b]
    if paired:
        pairs = list(zip(a, b, strict=True))
        if all(x.losses_digest and x.losses_digest == y.losses_digest for x, y in pairs):
            return None
        added = _beyond([math.log(_needed(y) / _needed(x)) for x, y in pairs], one)
        centers = [
            _center([pair for pair, each in zip(pairs, added, strict=True) if each * way <= 0]) for way in (1, -1)
        ]
        return Jumps(tuple(added), step, paired, missed, (centers[0], centers[1]))
    of_a, of_b = (_beyond([math.log(_needed(run)) for run in arm], one) for arm in (a, b))
    kept = [
        [
            [run for run, each in zip(arm, beyond, strict=True) if sign * each * way <= 0]
            for arm, beyond, sign in ((a, of_a, -1), (b, of_b, 1))
        ]
        for way in (1, -1)
    ]
    n = min(len(a), len(b))
    seen = [each for arm, sign in ((of_b, 1), (of_a, -1)) for each in _largest([sign * each for each in arm], n)]
    added = [*sorted(seen, key=abs, reverse=True), *[0.0] * n][:n]
    return Jumps(tuple(added), step, paired, missed, (_apart(*kept[0]), _apart(*kept[1])))


def _largest(jumps: Sequence[float], n: int) -> list[float]:
    """The largest jumps of an arm either way, as many as the same share of ``n`` runs."""
    found = []
    for way in (1, -1):
        late = sorted((each for each in jumps if each * way > 0), key=abs, reverse=True)
        found += late[: math.ceil(len(late) * n / len(jumps))]
    return found


def _tells(run: RunSummary) -> bool:
    return run.status != "failed" and not run.hopeless


def unseen_share(n: int, level: float, seen: int = 0) -> float:
    """The largest share of all pairs that differ, if ``seen`` of ``n`` do (Clopper and Pearson's one-sided bound)."""
    if not seen:
        return -math.expm1(math.log1p(-level) / n)
    low, high = seen / n, 1.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if binomial_cdf(seen, n, middle) > 1 - level else (low, middle)
    return high


def _needed(run: RunSummary) -> int:
    return run.evaluations + (0 if run.reached else _MORE)


def _known(arm: Sequence[RunSummary]) -> bool:
    """Whether some runs arrived, and the others were evaluated as often as is usual for these."""
    arrived = [run.evaluations for run in arm if run.reached]
    return bool(arrived) and all(run.reached or run.evaluations >= median(arrived) for run in arm)


def _beyond(logs: Sequence[float], one: float) -> list[float]:
    """What each is beyond the median, 0 within half an evaluation."""
    usual = median(logs)
    return [each - usual if abs(each - usual) > one / 2 else 0.0 for each in logs]


def _center(pairs: Sequence[tuple[RunSummary, RunSummary]]) -> float | None:
    """The mean of log(b / a) over the pairs that arrived."""
    times = [(x.time_to_accuracy_s, y.time_to_accuracy_s) for x, y in pairs]
    logs = [math.log(y / x) for x, y in times if x and y]
    return math.fsum(logs) / len(logs) if logs else None


def _apart(a: Sequence[RunSummary], b: Sequence[RunSummary]) -> float | None:
    """The difference of the mean logarithms of the runs that arrived."""
    logs = [[math.log(run.time_to_accuracy_s) for run in arm if run.time_to_accuracy_s] for arm in (a, b)]
    return math.fsum(logs[1]) / len(logs[1]) - math.fsum(logs[0]) / len(logs[0]) if all(logs) else None


def _to_bound(share: float, n: int, level: float, seen: int) -> int | None:
    """How many more pairs, of which as large a share differs, bring the bound down to ``share``; ``None``: none do."""
    if unseen_share(n, level, seen) <= share:
        return 0
    if not share > seen / n:
        return None
    if not seen:
        return math.ceil(math.log(1 - level) / math.log(1 - share)) - n
    counts = (n * factor for factor in range(2, 51))
    return next((count - n for count in counts if unseen_share(count, level, seen * count // n) <= share), None)
