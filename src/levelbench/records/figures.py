"""Figures over processes, one value per process, and the verdicts of comparing them.

The process is the replicate. Values within one process vary less than those of different processes, so they are never
pooled: each process gives one value, and the interval is over the processes.

In several comparisons FASTER and SLOWER must survive Holm's correction for their number. With repeated looks
(``--until-clear``) the intervals are wider accordingly, and the correction is Bonferroni's, which holds at every
look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeVar

from levelbench.measure.sequential import seen_at_looks
from levelbench.measure.statistics import (
    Estimate,
    Interval,
    estimate,
    estimate_median,
    estimate_signed,
    geometric_mean,
    holm,
    p_text,
    paired_log_ratio,
    welch_log_ratio,
)
from levelbench.measure.verdict import CLOCK_STEP_S, LEAST_RUNS, Verdict, VerdictKind, verdict
from levelbench.records.schema import Measurement, instant_s

__all__ = ["ABOVE", "PAIRS_NEED", "ArmTotal", "CeilingShare", "Figure", "Pair", "exceeded", "figure_of", "judged"]
__all__ += ["largest_ceilings", "measured", "pair", "planned_effect", "rate", "share_of", "total_of"]
__all__ += ["arm_differences", "verdicts", "worst_status"]


@dataclass(frozen=True)
class Figure:
    """A figure in ``unit``; ``values`` maps the number of each process to its value.

    If ``estimate`` is ``None``, ``reason`` says why. ``method`` says how the values were measured.
    """

    values: Mapping[int, float]
    estimate: Estimate | None
    reason: str = ""
    unit: str = ""
    method: str = ""


def figure_of(
    values: Mapping[int, float],
    unit: str,
    *,
    level: float = 0.95,
    reason: str = "it was not measured",
    method: str = "",
    signed: bool | None = None,
) -> Figure:
    """The figure of ``values``; if there are none, one with ``reason``.

    A difference (``signed``) is estimated by its mean; a cost, which is positive, by a median or geometric mean, and by
    a median if some are zero. By default, a negative value makes it a difference.
    """
    if not values:
        return Figure({}, None, reason, unit, method)
    least = min(values.values())
    if signed is None:
        signed = least < 0
    # Zero has no logarithm: a processor time below the kernel's tick, an error of exact results.
    choose = estimate_signed if signed else estimate if least > 0 else estimate_median
    return Figure(values, choose(list(values.values()), level), "", unit, method)


def rate(
    values: Mapping[int, float],
    unit: str,
    *,
    level: float = 0.95,
    reason: str = "it was not measured",
    method: str = "",
) -> Figure:
    """The figure of a rate: the inverse of the estimate of its times."""
    if not values:
        return Figure({}, None, reason, unit, method)
    times = estimate([1.0 / value for value in values.values()], level)
    inside = times.interval
    # Inverting swaps the ends; the median and the geometric mean of the inverse are the inverse of theirs.
    interval = None if inside is None else Interval(1.0 / inside.high, 1.0 / inside.low, level, inside.method)
    found = Estimate(1.0 / times.value, interval, times.n, times.statistic)
    return Figure(values, found, "", unit, method)


def measured(found: Iterable[tuple[int, Mapping[str, Measurement]]], name: str, unit: str, level: float) -> Figure:
    """The figure of the measurement ``name``, such as ``peak_memory``; ``found`` has those of each process."""
    own = [(seed, measurements[name]) for seed, measurements in found if name in measurements]
    values = {seed: each.value for seed, each in own if each.value is not None}
    methods = dict.fromkeys(each.method for _, each in own if each.method)
    reason = next((each.reason for _, each in own if each.reason), "it was not measured")
    return figure_of(values, unit, level=level, reason=reason, method=", ".join(methods))


_WORST = ("failed", "wrong", "refused", "unsupported", "unchecked", "skipped")
ABOVE = 1.1
"""How far above a ceiling a result may lie, as far as a ceiling can be measured."""

PAIRS_NEED = 5
"""Processes from which pairs are compared: with fewer, the wider t interval costs more than pairing gains."""


class _PlannedHeader(Protocol):
    @property
    def planned_effect(self) -> float | None: ...


class _Planned(Protocol):
    @property
    def header(self) -> _PlannedHeader: ...


class _StartedHeader(Protocol):
    @property
    def seed(self) -> int: ...
    @property
    def started(self) -> str: ...


class _Started(Protocol):
    @property
    def header(self) -> _StartedHeader: ...


@dataclass(frozen=True)
class CeilingShare:
    """The least time that the ceilings allow, as a share of the time taken; ``bound`` is the ceiling that limits it."""

    value: float
    bound: Literal["compute", "memory"]

    @property
    def is_possible(self) -> bool:
        """Whether it is at most 1, as far as a ceiling can be measured."""
        return self.value <= ABOVE


class Judged(Protocol):
    """One case on one arm: what a verdict needs of it."""

    @property
    def status(self) -> str: ...
    @property
    def times_s(self) -> Mapping[int, float]: ...
    @property
    def share(self) -> CeilingShare | None: ...
    @property
    def verdict(self) -> Verdict | None: ...


J = TypeVar("J", bound=Judged)


@dataclass(frozen=True)
class ArmTotal:
    """An arm compared with the first over the ``compared`` cases that both measured.

    ``verdict`` compares geometric means over these cases, one per process; ``kinds`` counts the verdicts of cases.
    """

    arm: str
    counts: Mapping[str, int]
    compared: int = 0
    verdict: Verdict | None = None
    kinds: Mapping[str, int] | None = None


@dataclass(frozen=True)
class Pair:
    """Times of two arms, one per process; ``paired`` if processes of the same number are compared, which share ``by``.

    ``effect`` is the effect that repeated looks were planned for, if there were any. ``starts`` are when the processes
    of each arm started, in seconds: arms that did not take turns get no verdict.
    """

    a: list[float]
    b: list[float]
    paired: bool
    effect: float | None = None
    starts: tuple[list[float], list[float]] | None = None
    by: str = "seed"

    @property
    def p_value(self) -> float:
        """The p value of both taking the same time; 1 if there are too few values for a test."""
        if min(len(self.a), len(self.b)) < LEAST_RUNS:
            return 1.0
        return (paired_log_ratio if self.paired else welch_log_ratio)(self.a, self.b, resolution=CLOCK_STEP_S).p_value

    def verdict(self, margin: float, level: float) -> Verdict:
        """The verdict of the second compared with the first."""

        def judge(count: int | None, at: float) -> Verdict:
            spans = [None, None] if self.starts is None else [[(s, s) for s in each[:count]] for each in self.starts]
            return verdict(
                self.a[:count],
                self.b[:count],
                margin=margin,
                level=at,
                paired=self.paired,
                spans_a=spans[0],
                spans_b=spans[1],
                resolution=CLOCK_STEP_S,
                paired_by=self.by,
            )

        if self.effect is None:
            return judge(None, level)
        return seen_at_looks(judge, min(len(self.a), len(self.b)), self.effect, level)


Starts = Mapping[int, float]
"""When each process of an arm started, by its number, in seconds since 1970."""


def starts_of(records: Iterable[_Started]) -> Starts:
    """When the processes of one arm started; 0 for a start that cannot be read."""
    return {each.header.seed: instant_s(each.header.started) or 0.0 for each in records}


def pair(
    a: Mapping[int, float],
    b: Mapping[int, float],
    effect: float | None = None,
    starts: tuple[Starts, Starts] | None = None,
    by: str = "seed",
) -> Pair:
    """The pair of two arms, given as times by the number of the process in ascending order; the rest as in ``Pair``."""
    paired = a.keys() == b.keys() and len(a) >= PAIRS_NEED
    found = None if starts is None else ([starts[0][seed] for seed in a], [starts[1][seed] for seed in b])
    return Pair(list(a.values()), list(b.values()), paired, effect, found, by)


def planned_effect(records: Iterable[_Planned]) -> float | None:
    """The smallest effect that looks at ``records`` were planned for; ``None`` if there was only one look."""
    return min((effect for each in records if (effect := each.header.planned_effect)), default=None)


def verdicts(pairs: Mapping[int, Pair], level: float, margin: float, what: str = "problems") -> dict[int, Verdict]:
    """The verdict of each pair, corrected for their number; ``what`` names them in the reason."""
    adjusted = dict(zip(pairs, holm([each.p_value for each in pairs.values()]), strict=True))
    found = {}
    for at, each in pairs.items():
        judged = each.verdict(margin, level)
        if judged.kind not in (VerdictKind.FASTER, VerdictKind.SLOWER):
            survives = True
        elif each.effect is None:
            survives = adjusted[at] <= 1 - level
        else:
            survives = each.verdict(margin, 1 - (1 - level) / len(pairs)).kind == judged.kind
        if not survives:
            method = "Holm" if each.effect is None else "Bonferroni"
            reason = f"{judged.kind} alone, but not among {len(pairs)} {what} ({method})"
            if each.effect is None and each.p_value > 1 - level:
                # Stretches of runs were compared, and the runs themselves do not differ enough.
                reason = f"{judged.reason}: {judged.kind} by stretches, but not one by one ({p_text(each.p_value)})"
            judged = replace(judged, kind=VerdictKind.UNCLEAR, reason=reason)
        found[at] = judged
    return found


def largest_ceilings(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The largest ceiling of each kind: what was reached once can be reached."""
    best: dict[str, Any] = {"flop_s": {}, "bandwidth_b_s": {}}
    for each in found:
        for kind, limits in best.items():
            for name, limit in each.get(kind, {}).items():
                if name not in limits or limit["value"] > limits[name]["value"]:
                    limits[name] = limit
    return best


def share_of(
    flops: float | None, moved: float | None, time_s: float, dtype: str, ceilings: Mapping[str, Any]
) -> CeilingShare | None:
    """The least time that the ceilings allow as a share of ``time_s``; ``None`` if a cost or ceiling is unknown.

    Also ``None`` for what is faster than main memory, whose ceiling is the only one of a benchmark: its data is in a
    cache, under another roof (``levelbench analyze roofline`` measures those).
    """
    if flops is None or moved is None or time_s <= 0:
        return None
    limits = {
        "compute": (flops, ceilings.get("flop_s", {}).get(dtype)),
        "memory": (moved, ceilings.get("bandwidth_b_s", {}).get("triad")),
    }
    if any(amount and limit is None for amount, limit in limits.values()):
        return None
    least = {name: amount / limit["value"] if amount and limit else 0.0 for name, (amount, limit) in limits.items()}
    bound: Literal["compute", "memory"] = "compute" if least["compute"] >= least["memory"] else "memory"
    if least[bound] <= 0 or (bound == "memory" and least[bound] > time_s):
        return None
    return CeilingShare(least[bound] / time_s, bound)


def worst_status(outcomes: Sequence[tuple[str, str]], measured: int) -> tuple[str, str]:
    """The worst of the processes' outcomes (status and reason), ``measured`` of which have times.

    A case that only some processes skipped counts as measured, with a reason that says so.
    """
    for worst in _WORST:
        found = [reason for status, reason in outcomes if status == worst]
        if found and worst == "skipped" and measured:
            return "measured", f"skipped in {len(found)} of {len(outcomes)} processes: {found[0]}"
        if found:
            return worst, found[0]
    return ("measured", "") if outcomes else ("skipped", "no process got this far")


def judged(
    columns: Sequence[Sequence[J]],
    starts: Sequence[Sequence[Starts]],
    level: float,
    margin: float,
    what: str = "problems",
    effect: float | None = None,
    by: str = "seed",
) -> list[list[J]]:
    """The entries of each arm with their verdicts compared with the first arm's, corrected for their number.

    ``starts`` are, by arm and entry, when its processes started; ``effect`` and ``by`` are as in ``Pair``.
    """
    first, *others = columns
    found = [list(first)]
    for arm, column in enumerate(others, 1):
        pairs = {
            at: pair(a.times_s, b.times_s, effect, (starts[0][at], starts[arm][at]), by)
            for at, (a, b) in enumerate(zip(first, column, strict=True))
            if a.status == b.status == "measured" and a.times_s and b.times_s
        }
        own = verdicts(pairs, level, margin, what)
        found.append([replace(entry, verdict=own.get(at)) for at, entry in enumerate(column)])  # type: ignore[type-var]
    return found


def total_of(
    arm: str,
    first: Sequence[Judged],
    column: Sequence[Judged],
    starts: tuple[Starts, Starts],
    level: float,
    margin: float,
    effect: float | None = None,
) -> ArmTotal:
    """An arm's ``column`` of entries compared with the first arm's over all cases; ``starts`` are those of both."""
    counts = dict(Counter(entry.status for entry in column))
    if column is first:
        return ArmTotal(arm, counts)
    kinds = dict(Counter(str(entry.verdict.kind) for entry in column if entry.verdict is not None))
    shared = [(a, b) for a, b in zip(first, column, strict=True) if a.status == b.status == "measured"]
    seeds: list[int] = max((sorted(a.times_s.keys() & b.times_s.keys()) for a, b in shared), key=len, default=[])
    both = [(a, b) for a, b in shared if set(seeds) <= a.times_s.keys() & b.times_s.keys()]
    if not seeds:
        return ArmTotal(arm, counts, kinds=kinds)
    means_a = {seed: geometric_mean([a.times_s[seed] for a, _ in both]) for seed in seeds}
    means_b = {seed: geometric_mean([b.times_s[seed] for _, b in both]) for seed in seeds}
    return ArmTotal(arm, counts, len(both), pair(means_a, means_b, effect, starts).verdict(margin, level), kinds)


def arm_differences(
    titles: Sequence[str], threads: Sequence[int | None], starts: Sequence[Sequence[float]], do: str = "use --fresh"
) -> list[str]:
    """Doubts about arms with different numbers of threads, or measured at different times (``starts``, in seconds).

    ``do`` says what to do about the latter.
    """
    found = []
    if len({each for each in threads if each is not None}) > 1:
        each = ", ".join(f"{title} {n}" for title, n in zip(titles, threads, strict=True) if n is not None)
        found.append(f"the frameworks use different numbers of threads ({each}): limit the cores instead (taskset)")
    first = sorted(starts[0])
    for title, own in zip(titles[1:], starts[1:], strict=True):
        mine = sorted(own)
        if min(len(mine), len(first)) > 1 and (mine[-1] < first[0] or first[-1] < mine[0]):
            found.append(f"{title} and {titles[0]} were measured one after the other, not in turns: {do}")
    return found


def exceeded(columns: Sequence[Sequence[Judged]]) -> list[str]:
    """The doubt about a compute ceiling that results exceed."""
    shares = [entry.share for column in columns for entry in column if entry.share is not None]
    above = [share.value for share in shares if share.bound == "compute" and not share.is_possible]
    if not above:
        return []
    found = f"{len(above)} results lie above the measured ceiling, by up to {max(above):.1f} times"
    return [f"{found}: it was measured while the machine was busy; measure again with --fresh"]
