"""Composition: whether optimisations that speed up training one by one also do so together (DAWNBench's open question).

If they compose, the speed-up of the combination is the product of the single speed-ups. On logarithms a product is a
sum, so every question about a factorial experiment is one contrast of its arms. Measured over predicted time is
COMPOSABLE if its whole interval lies inside the margin, SUB-MULTIPLICATIVE if all of it lies above 1 (they gain less
together), SUPER-MULTIPLICATIVE if below (they gain more), else UNCLEAR, with the number of runs that would settle it.

If all arms have the same seeds, a contrast is formed seed by seed and tested by Student's t, which needs no equal
variances and removes the luck of the seeds; else Welch's approximation is used. A run that never reached its target
took longer than its limit. That bounds a contrast on one side and leaves the other side open; nothing is imputed or
dropped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from levelbench.analysis.comparison import check_comparable, span_of
from levelbench.analysis.ties import beyond_ties, jumps_of
from levelbench.errors import IncomparableError, UsageError
from levelbench.measure.design import Span, schedule_of
from levelbench.measure.environment import same_machine
from levelbench.measure.statistics import more_runs, resolution_of, settling_error, t_quantile
from levelbench.measure.statistics.compare import rounding_variance
from levelbench.measure.verdict import LEAST_RUNS, NOT_INTERLEAVED, Verdict, VerdictKind, verdict
from levelbench.records import RunGroup, RunSummary

__all__ = ["Composition", "CompositionKind", "Contrast", "Effect", "FactorArm", "SingleFactor", "cells_of"]
__all__ += ["compose", "contrast", "designs", "horizon_of", "one_at_a_time"]

Logs = NDArray[np.float64]


@dataclass(frozen=True)
class FactorArm:
    """The runs of one arm by seed: the factors that were ``on``, and the seconds to the target.

    ``times`` has ``None`` for a run that missed, and ``given_up`` has, in the same order, how long each of these had
    tried: infinite for one that could never have arrived. ``failed`` says that no run of the arm finished.
    """

    on: frozenset[str]
    times: tuple[float | None, ...]
    given_up: tuple[float, ...]
    seeds: tuple[int, ...]
    label: str = ""
    failed: bool = False
    spans: tuple[Span, ...] | None = None
    """When each run started and ended, if known."""
    runs: tuple[RunSummary, ...] = ()
    """The runs themselves, if known."""

    @property
    def reached(self) -> int:
        """How many of the runs reached the target."""
        return sum(time is not None for time in self.times)

    def logs(self, horizon: float) -> tuple[Logs, Logs]:
        """Lower and upper bounds of the log times, shape (n,); ``horizon`` stands for an infinite time."""
        given_up = iter(self.given_up)
        low = [min(next(given_up), horizon) if time is None else time for time in self.times]
        high = [math.inf if time is None else time for time in self.times]
        with np.errstate(divide="ignore"):
            return np.log(np.array(low)), np.log(np.array(high))


@dataclass(frozen=True)
class Contrast:
    """A ratio with its interval; ``None`` if unknown, with the ``reason``.

    ``deviation`` is the standard deviation of the logarithm from one run of each arm, for planning.
    """

    ratio: float | None
    low: float | None
    high: float | None
    n: int
    level: float
    deviation: float | None = None
    method: str = ""
    reason: str = ""


def horizon_of(cells: Sequence[FactorArm]) -> float:
    """The longest time that any run took or was given: a lower bound for a run that could never arrive."""
    known = [time for cell in cells for time in (*cell.times, *cell.given_up) if time is not None]
    return max(filter(math.isfinite, known), default=math.inf)


def contrast(cells: Sequence[FactorArm], coefficients: Sequence[float], level: float = 0.95) -> Contrast:
    """The product of the arms' times, each to the power of its coefficient: 1 and -1 give a ratio of two arms.

    There is no interval if an arm has fewer than three runs, or if two arms did not take turns. ``ValueError`` unless
    there is one coefficient per cell.
    """
    used = [(cell, c) for cell, c in zip(cells, coefficients, strict=True) if c]
    n = min((len(cell.times) for cell, _ in used), default=0)
    if n == 0 or any(cell.failed for cell, _ in used):
        return Contrast(None, None, None, n, level, reason="an arm has no run, or all runs of one failed")
    horizon = horizon_of(cells)
    bounds = [cell.logs(horizon) for cell, _ in used]
    # The lower bound of the contrast has short times where the coefficient is positive, long ones where it is negative.
    small = [low if c > 0 else high for (low, high), (_, c) in zip(bounds, used, strict=True)]
    large = [high if c > 0 else low for (low, high), (_, c) in zip(bounds, used, strict=True)]
    weights = [c for _, c in used]
    paired = len({cell.seeds for cell, _ in used}) == 1
    method = "Student's t of each seed's contrast" if paired else "Welch's t of the contrast"
    below, above = (_interval(side, weights, level, paired) for side in (small, large))
    apart = any(_apart(one, other, paired=paired) for (one, _), (other, _) in combinations(used, 2))
    missed = sum(len(cell.times) - cell.reached for cell, _ in used)
    reason = f"{missed} run{'s' * (missed != 1)} never reached the target: a bound from one side" if missed else ""
    if missed and below is None and above is None:
        reason = f"{missed} run{'s' * (missed != 1)} never reached the target: no bound from either side"
    if n < LEAST_RUNS:
        reason = reason or f"too few runs: an interval needs at least {LEAST_RUNS} of each arm"
    elif apart:
        reason = "; ".join(filter(None, (reason, NOT_INTERLEAVED)))
    known = n >= LEAST_RUNS and not apart
    return Contrast(
        ratio=_power(below[0]) if below and not missed else None,
        low=_power(below[1]) if below and known else None,
        high=_power(above[2]) if above and known else None,
        n=n,
        level=level,
        deviation=below[3] if below and not missed and known else None,
        method=method,
        reason=reason,
    )


def _interval(
    logs: Sequence[Logs], weights: Sequence[float], level: float, paired: bool
) -> tuple[float, float, float, float] | None:
    """Mean, bounds, and the deviation of one run of each arm; ``None`` if a logarithm is not finite."""
    if not all(np.isfinite(each).all() for each in logs):
        return None
    mean = math.fsum(c * float(each.mean()) for each, c in zip(logs, weights, strict=True))
    if min(map(len, logs)) < 2:
        return mean, mean, mean, 0.0
    # No run is known more precisely than the resolution of the clock.
    step = resolution_of(*(np.exp(each).tolist() for each in logs))
    floors = [c * c * rounding_variance(np.exp(each), step) for each, c in zip(logs, weights, strict=True)]
    if paired:
        together = np.sum([c * each for each, c in zip(logs, weights, strict=True)], axis=0)
        parts, sizes = [max(float(together.var(ddof=1)), math.fsum(floors))], [len(together)]
    else:
        spreads = [c * c * float(each.var(ddof=1)) for each, c in zip(logs, weights, strict=True)]
        parts = [max(spread, floor) for spread, floor in zip(spreads, floors, strict=True)]
        sizes = [len(each) for each in logs]
    shares = [part / size for part, size in zip(parts, sizes, strict=True)]
    variance = math.fsum(shares)
    # Sums of equal numbers differ in the last digit: that is not a spread.
    if variance < 1e-24 * (1.0 + mean * mean):
        return mean, mean, mean, 0.0
    dof = 1.0 / math.fsum((s / variance) ** 2 / (size - 1) for s, size in zip(shares, sizes, strict=True))
    reach = t_quantile(0.5 + 0.5 * level, dof) * math.sqrt(variance)
    return mean, mean - reach, mean + reach, math.sqrt(math.fsum(parts))


def _power(logarithm: float) -> float:
    return math.exp(min(max(logarithm, -700.0), 700.0))


Value = int | float | str | bool


class CompositionKind(StrEnum):
    """The possible answers."""

    COMPOSABLE = "COMPOSABLE"
    SUB_MULTIPLICATIVE = "SUB-MULTIPLICATIVE"
    SUPER_MULTIPLICATIVE = "SUPER-MULTIPLICATIVE"
    UNCLEAR = "UNCLEAR"


@dataclass(frozen=True)
class SingleFactor:
    """The effect of a single factor: the arm with it alone compared with the arm with none."""

    factor: str
    verdict: Verdict


@dataclass(frozen=True)
class Effect:
    """A main effect or an interaction, averaged over all arms.

    For two factors, ``found.ratio`` is the effect of one with the other on, over its effect with the other off.
    """

    factors: tuple[str, ...]
    found: Contrast


@dataclass(frozen=True)
class Composition:
    """The answer. ``predicted`` and ``together`` are times with all factors on over times with none.

    ``against`` has a verdict for each of ``cells`` compared with the cell without factors, and ``None`` for that cell.
    ``departure`` is measured over predicted time. ``effects`` exist for a full factorial design; their intervals hold
    jointly at ``level``. ``runs_to_settle`` is the number of additional runs per arm.
    """

    factors: tuple[str, ...]
    cells: tuple[FactorArm, ...]
    against: tuple[Verdict | None, ...]
    alone: tuple[SingleFactor, ...]
    predicted: float | None
    together: Verdict
    departure: Contrast
    kind: CompositionKind
    effects: tuple[Effect, ...]
    margin: float
    level: float
    runs_to_settle: int | None
    reason: str

    def lines(self) -> list[str]:
        """The answer in words, for a terminal."""
        names = " x ".join(self.factors)
        reached = sum(cell.reached for cell in self.cells), sum(len(cell.times) for cell in self.cells)
        parts = [f"{self.kind}  {names}: {_ratio_text(self.departure, 'measured/predicted time')}"]
        parts.append(f"n = {self.departure.n} per arm")
        parts += [text for text in (self.reason,) if text]
        if self.runs_to_settle is not None:
            more = self.runs_to_settle
            parts.append(f"about {more:,} more run{'s' * (more != 1)} per arm to settle it")
        lines = ["  ".join(parts)]
        if self.predicted is not None and self.together.ratio is not None:
            lines.append(
                f"  speed-up of all together: {1 / self.together.ratio:.3g} measured, {1 / self.predicted:.3g} is the "
                "product of the single ones"
            )
        if reached[0] < reached[1]:
            lines.append(f"  {reached[0]} of {reached[1]} runs reached the target; the others count as longer times")
        return lines


def designs(factors: Sequence[str]) -> list[frozenset[str]]:
    """The full factorial design: every subset of the factors, none first, all last."""
    return [frozenset(chosen) for size in range(len(factors) + 1) for chosen in combinations(factors, size)]


def one_at_a_time(factors: Sequence[str]) -> list[frozenset[str]]:
    """None, each alone, all: the fewest arms that show whether the factors compose."""
    every = frozenset(factors)
    return list(dict.fromkeys([frozenset[str](), *(frozenset([each]) for each in factors), every]))


def cells_of(groups: Sequence[RunGroup], off: Mapping[str, Value]) -> list[FactorArm]:
    """Each group as a cell: a factor is on if its setting differs from its value in ``off``.

    :raises IncomparableError: if the groups differ in more than the factors, or two of them have the same factors on.
    """
    cells: dict[frozenset[str], FactorArm] = {}
    first = groups[0].specification
    for group in groups:
        specification = group.specification
        other = {name: value for name, value in specification.settings.items() if name not in off}
        same = {name: value for name, value in first.settings.items() if name not in off}
        on = frozenset(name for name, value in off.items() if specification.settings.get(name) != value)
        parts = (specification.recipe, specification.framework, specification.device)
        if other != same or parts != (first.recipe, first.framework, first.device) or on in cells:
            raise IncomparableError(
                f"the composition of {', '.join(off)}",
                f"{group.label} differs from {groups[0].label} in other settings too, "
                "or has the same factors on as another group",
                "choose runs of one recipe that differ only in the factors",
            )
        cells[on] = _cell(group, on)
    return list(cells.values())


def compose(
    groups: Sequence[RunGroup],
    off: Mapping[str, Value],
    *,
    margin: float = 0.1,
    level: float = 0.95,
    across_machines: bool = False,
) -> Composition:
    """Analyse the runs of a factorial experiment; ``off`` names the factors, each with its value when switched off.

    :raises UsageError: for fewer than two factors, or if the arm with none, all or one of them alone is missing.
    :raises IncomparableError: if the groups cannot be compared, or ran on several machines.
    """
    if len(off) < 2:
        raise UsageError(
            f"the composition of {', '.join(off) or 'nothing'}", "it takes two factors", "name another factor"
        )
    cells = {cell.on: cell for cell in cells_of(groups, off)}
    if lacking := [each for each in one_at_a_time(tuple(off)) if each not in cells]:
        named = "; ".join(", ".join(sorted(each)) or "none of them" for each in lacking)
        raise UsageError(f"the composition of {', '.join(off)}", f"there are no runs with {named}", "run these too")
    for group in groups[1:]:
        check_comparable(groups[0], group)
    runs = [run for group in groups for run in group.runs]
    if not across_machines and any(not same_machine(runs[0].environment, run.environment) for run in runs[1:]):
        raise IncomparableError(
            f"the composition of {', '.join(off)}", "the runs are from several machines", "give --across-machines"
        )
    return _composed(cells, tuple(off), margin, level)


def _composed(
    cells: Mapping[frozenset[str], FactorArm], factors: tuple[str, ...], margin: float, level: float
) -> Composition:
    none, every = cells[frozenset()], cells[frozenset(factors)]
    singles = [cells[frozenset([each])] for each in factors]
    against = {on: _verdict(none, cell, margin, level) for on, cell in cells.items() if on}
    alone = tuple(SingleFactor(name, against[frozenset([name])]) for name in factors)
    corners = [every, *singles, none]
    departure = contrast(corners, [1.0, *([-1.0] * len(singles)), len(singles) - 1.0], level)
    ratios = [each.verdict.ratio for each in alone]
    sure, more = _kind(departure, margin, level)
    departure, ties = _widened(departure, none, [every, *singles], [1.0, *([-1.0] * len(singles))])
    kind, _ = _kind(departure, margin, level)
    if kind is sure:
        ties = ""
    complete = all(each.reached == len(each.times) for each in corners)
    shown = [each for each in designs(factors) if each in cells]
    return Composition(
        factors=factors,
        cells=tuple(cells[each] for each in shown),
        against=tuple(against.get(each) for each in shown),
        alone=alone,
        predicted=math.prod(each for each in ratios if each) if complete and None not in ratios else None,
        together=against[every.on],
        departure=departure,
        kind=kind,
        effects=_effects(cells, factors, level),
        margin=margin,
        level=level,
        runs_to_settle=more,
        reason=ties or departure.reason,
    )


def _effects(cells: Mapping[frozenset[str], FactorArm], factors: tuple[str, ...], level: float) -> tuple[Effect, ...]:
    """Main effects and two-factor interactions of a full factorial, at Bonferroni's level, so that all hold jointly."""
    corners = designs(factors)
    if not all(each in cells for each in corners):
        return ()
    subsets = [each for size in (1, 2) for each in combinations(factors, size)]
    shared = 1 - (1 - level) / len(subsets)
    found = []
    for subset in subsets:
        scale = 2.0 ** (len(subset) - len(factors))
        signs = [scale * (-1.0) ** sum(name not in corner for name in subset) for corner in corners]
        effect = contrast([cells[each] for each in corners], signs, shared)
        others = [(cells[each], sign) for each, sign in zip(corners, signs, strict=True) if each]
        effect, _ = _widened(effect, cells[frozenset()], *zip(*others, strict=True))
        found.append(Effect(subset, effect))
    return tuple(found)


def _kind(found: Contrast, margin: float, level: float) -> tuple[CompositionKind, int | None]:
    """The verdict, and if it is unclear, how many more runs per arm would settle it."""
    low, high = found.low or 0.0, math.inf if found.high is None else found.high
    if low >= 1 / (1 + margin) and high <= 1 + margin:
        return CompositionKind.COMPOSABLE, None
    if low > 1:
        return CompositionKind.SUB_MULTIPLICATIVE, None
    if high < 1:
        return CompositionKind.SUPER_MULTIPLICATIVE, None
    if found.ratio is None or found.deviation is None:
        return CompositionKind.UNCLEAR, None
    error = settling_error(math.log(found.ratio), math.log1p(margin), level)
    return CompositionKind.UNCLEAR, more_runs(found.deviation, found.n, 0.0, found.n, error, level)


def _verdict(a: FactorArm, b: FactorArm, margin: float, level: float) -> Verdict:
    if a.failed or b.failed:
        why = f"all runs of {(a if a.failed else b).label} failed"
        return Verdict(VerdictKind.UNCLEAR, None, None, None, len(a.times), len(b.times), margin, level, None, why)
    known = all(time > 0 for time in (*a.given_up, *b.given_up))
    found = verdict(
        a.times,
        b.times,
        margin=margin,
        level=level,
        paired=a.seeds == b.seeds,
        censored_at_a=a.given_up if known else None,
        censored_at_b=b.given_up if known else None,
        spans_a=a.spans,
        spans_b=b.spans,
    )
    return beyond_ties(found, a.runs, b.runs) if a.runs and b.runs else found


def _widened(
    found: Contrast, none: FactorArm, others: Sequence[FactorArm], coefficients: Sequence[float]
) -> tuple[Contrast, str]:
    """The contrast with an interval that allows for late evaluations of ``others`` which few runs show; and why.

    Each arm may differ from that with none by some evaluations, in the share of runs that so few cannot exclude.
    """
    if found.ratio is None or not all(arm.runs for arm in (none, *others)):
        return found, ""
    added, why = {1: 0.0, -1: 0.0}, ""
    for arm, coefficient in zip(others, coefficients, strict=True):
        jumps = jumps_of(none.runs, arm.runs)
        for way in (1, -1):
            bound = None if jumps is None else jumps.bound(way, found.level)
            if jumps is not None and bound is not None and coefficient:
                added[way if coefficient > 0 else -way] += abs(coefficient) * bound
                why = why or jumps.reason(way, found.level)
    low = None if found.low is None else min(found.low, found.ratio * math.exp(-added[-1]))
    high = None if found.high is None else max(found.high, found.ratio * math.exp(added[1]))
    return replace(found, low=low, high=high), why if (low, high) != (found.low, found.high) else ""


def _apart(a: FactorArm, b: FactorArm, *, paired: bool) -> bool:
    """Whether two arms are known not to have taken turns."""
    return a.spans is not None and b.spans is not None and schedule_of(a.spans, b.spans, paired=paired) is not None


def _cell(group: RunGroup, on: frozenset[str]) -> FactorArm:
    if not group.runs:
        raise IncomparableError(f"the composition with {group.label}", "none of its runs has finished", "run it")
    runs = sorted(group.runs, key=lambda run: (run.seed, run.started))
    return FactorArm(
        on=on,
        times=tuple(run.time_to_accuracy_s for run in runs),
        given_up=tuple(_tried(run) for run in runs if run.time_to_accuracy_s is None),
        seeds=tuple(run.seed for run in runs),
        label=group.label,
        failed=all(run.status == "failed" for run in runs),
        spans=tuple(span_of(run) for run in runs),
        runs=tuple(runs),
    )


def _tried(run: RunSummary) -> float:
    """How long a run that missed had tried; infinite if it could never have arrived."""
    return math.inf if run.hopeless or run.status == "failed" else run.given_up_s or 0.0


def _ratio_text(found: Contrast, name: str) -> str:
    if found.ratio is not None and found.low is not None and found.high is not None:
        return f"{name} = {found.ratio:.3g} [{found.low:.3g}, {found.high:.3g}]"
    if found.low is not None:
        return f"{name} above {found.low:.3g}"
    if found.high is not None:
        return f"{name} below {found.high:.3g}"
    return name if found.ratio is None else f"{name} = {found.ratio:.3g}"
