"""Composition: whether optimisations that speed up training one by one also do so together (DAWNBench's open question).

If they compose, the speed-up of the combination is the product of the single speed-ups. On logarithms a product is a
sum, so every question about a factorial experiment is one contrast of its arms. Measured over predicted time is
COMPOSABLE if its whole interval lies inside the margin, SUB-MULTIPLICATIVE if all of it lies above 1 (they gain less
together), SUPER-MULTIPLICATIVE if below (they gain more), else UNCLEAR, with the number of runs that would settle it.

Every ratio of times is also split into statistical efficiency, the samples to the target, and hardware efficiency, the
time per sample: the two ratios multiply to that of the times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import combinations

from levelbench.analysis.comparison import check_comparable, span_of
from levelbench.analysis.contrasts import Contrast, FactorArm, apart, contrast
from levelbench.analysis.factorial import Fraction, designs, fraction, lesion, one_at_a_time
from levelbench.analysis.ties import beyond_ties, jumps_of
from levelbench.errors import IncomparableError, UsageError
from levelbench.measure.environment import same_machine
from levelbench.measure.statistics import more_runs, settling_error
from levelbench.measure.verdict import Verdict, VerdictKind, verdict
from levelbench.records import RunGroup, RunSummary, Specification
from levelbench.records.selection import format_item, parse_item

__all__ = ["Composition", "CompositionKind", "Effect", "Efficiencies", "Lesion", "SingleFactor", "cells_of"]
__all__ += ["compose", "factor_value", "lesions"]

Value = int | float | str | bool
LEAST_FRACTION, MOST_FRACTION = 5, 11
"""Numbers of factors for which :func:`levelbench.analysis.factorial.fraction` has a design."""


class CompositionKind(StrEnum):
    """The possible answers."""

    COMPOSABLE = "COMPOSABLE"
    SUB_MULTIPLICATIVE = "SUB-MULTIPLICATIVE"
    SUPER_MULTIPLICATIVE = "SUPER-MULTIPLICATIVE"
    UNCLEAR = "UNCLEAR"


@dataclass(frozen=True)
class Efficiencies:
    """A ratio of times split into statistical efficiency (samples to the target) and hardware efficiency (time each).

    Both ratios multiply to that of the times. Without a ratio, ``reason`` says why.
    """

    samples: Contrast
    per_sample: Contrast

    @property
    def reason(self) -> str:
        """Why there is no split; empty if there is one."""
        return "" if self.samples.ratio is not None else self.samples.reason


@dataclass(frozen=True)
class SingleFactor:
    """The effect of a single factor: the arm with it alone compared with the arm with none."""

    factor: str
    verdict: Verdict
    split: Efficiencies | None = None


@dataclass(frozen=True)
class Effect:
    """A main effect or an interaction, averaged over all arms.

    For two factors, ``found.ratio`` is the effect of one with the other on, over its effect with the other off.
    ``aliases`` are the effects that the design cannot tell from this one: ``found`` is that of their product.
    """

    factors: tuple[str, ...]
    found: Contrast
    aliases: tuple[tuple[str, ...], ...] = ()
    split: Efficiencies | None = None


@dataclass(frozen=True)
class Lesion:
    """What each factor gains where all others are on: the arm with all compared with the arms that lack one.

    ``against`` has the verdict on ``cells[0]``, with all factors, against each of the others; the levels of all hold
    jointly. ``values`` has the values of each factor: off, then those when on.
    """

    factors: tuple[str, ...]
    cells: tuple[FactorArm, ...]
    against: tuple[SingleFactor, ...]
    margin: float
    level: float
    values: Mapping[str, tuple[Value, ...]]

    @property
    def unclear(self) -> bool:
        """Whether no verdict is clear."""
        return all(each.verdict.kind is VerdictKind.UNCLEAR for each in self.against)

    def lines(self) -> list[str]:
        """One sentence for each factor."""
        return [
            f"{each.verdict.kind}  all against all but {each.factor}: {_verdict_ratio(each.verdict)}"
            + (f"; {each.verdict.reason}" if each.verdict.reason else "")
            for each in self.against
        ]


@dataclass(frozen=True)
class Composition:
    """The answer. ``predicted`` and ``together`` are times with all factors on over times with none.

    ``against`` has a verdict for each of ``cells`` compared with the cell without factors, and ``None`` for that cell.
    ``departure`` is measured over predicted time. ``effects`` exist for a full factorial design; their intervals hold
    jointly at ``level``. ``runs_to_settle`` is the number of additional runs per arm. ``values`` has the values of each
    factor: off, then those when on.
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
    values: Mapping[str, tuple[Value, ...]]
    design: str = "full"
    """The name of the design, with the resolution and the generators of a fraction."""

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
        if self.design not in ("full", "one"):
            lines.append(f"  design: {self.design}; aliased effects cannot be told apart, and are given as one")
        if reached[0] < reached[1]:
            lines.append(f"  {reached[0]} of {reached[1]} runs reached the target; the others count as longer times")
        return lines


def cells_of(groups: Sequence[RunGroup], off: Mapping[str, Value]) -> list[FactorArm]:
    """Each group as a cell: a factor is on if its value differs from that in ``off``.

    The off value of ``scheme`` may have settings in brackets (``all-reduce[overlap=false]``): only these are looked at.

    :raises IncomparableError: if the groups differ in more than the factors, or two of them have the same factors on.
    """
    cells: dict[frozenset[str], FactorArm] = {}
    first: dict[Value | None, Specification] = {}
    for group in groups:
        specification = group.specification
        on = frozenset(name for name, value in off.items() if not _is_off(specification, name, value))
        scheme = _shown_value(specification, "scheme", off.get("scheme"))
        others = groups[0].specification, first.setdefault(scheme, specification)
        if not all(_same_otherwise(specification, each, off) for each in others) or on in cells:
            raise IncomparableError(
                f"the composition of {', '.join(off)}",
                f"{group.label} differs from {groups[0].label} in other settings too, "
                "or has the same factors on as another group",
                "choose runs of one recipe that differ only in the factors",
            )
        cells[on] = _cell(group, on)
    return list(cells.values())


def factor_value(specification: Specification, name: str) -> Value | None:
    """What a run has for a factor: a setting, the framework, the device or a word of its team; ``None`` if nothing."""
    if name in specification.settings:
        return specification.settings[name]
    if name in ("framework", "device"):
        return str(getattr(specification, name))
    return specification.team().get(name)


def _is_off(specification: Specification, name: str, off: Value) -> bool:
    """Whether a factor has its off value; a scheme has if it has the settings that the value names."""
    team = specification.distribution
    if name != "scheme" or team is None:
        return factor_value(specification, name) == off
    scheme, named = parse_item(str(off))
    return scheme == team.scheme and named.items() <= team.settings.items()


def _shown_value(specification: Specification, name: str, off: Value | None) -> Value | None:
    """What a run has for a factor; for a scheme as in the off value, also the settings that this names."""
    team = specification.distribution
    if name != "scheme" or team is None or off is None:
        return factor_value(specification, name)
    scheme, named = parse_item(str(off))
    told = {each: value for each, value in team.settings.items() if each in named and scheme == team.scheme}
    return format_item(team.scheme, told)


def _same_otherwise(one: Specification, other: Specification, off: Mapping[str, Value]) -> bool:
    """Whether two specifications differ in nothing but factors.

    A run of one rank has no scheme: if the ranks are a factor, the words of its team are not compared. If the scheme
    is, its settings belong to it: they are compared only where the scheme is the same.
    """
    alone = "ranks" in off and None in (one.distribution, other.distribution)
    schemes = [_shown_value(each, "scheme", off.get("scheme")) for each in (one, other)]
    switched = "scheme" in off and schemes[0] != schemes[1]

    def rest(each: Specification) -> dict[str, Value]:
        parts = {name: str(getattr(each, name)) for name in ("recipe", "framework", "device")}
        whole: dict[str, Value] = {**each.settings, **parts, **({} if alone else each.team())}
        return {
            name: value
            for name, value in whole.items()
            if name not in off and not (switched and name.startswith("scheme."))
        }

    return rest(one) == rest(other)


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
    _require_arms(f"the composition of {', '.join(off)}", cells, off, one_at_a_time(tuple(off)))
    _check_together(groups, off, across_machines)
    return _composed(cells, _values(groups, off), margin, level)


def _values(groups: Sequence[RunGroup], off: Mapping[str, Value]) -> dict[str, tuple[Value, ...]]:
    """The values of each factor in the groups: that when off, then the others."""
    found = {}
    for name, value in off.items():
        shown = (group.specification for group in groups if not _is_off(group.specification, name, value))
        own = (_shown_value(each, name, value) for each in shown)
        # A team's words are not there in an arm of one process.
        found[name] = tuple(dict.fromkeys([value, *(each for each in own if each is not None)]))
    return found


def _require_arms(
    asked: str, cells: Mapping[frozenset[str], FactorArm], off: Mapping[str, Value], arms: Sequence[frozenset[str]]
) -> None:
    """Raise ``UsageError`` for a factor that never varies, and for arms without runs."""
    for name, value in off.items():
        if len({name in on for on in cells}) == 1:
            state = "on" if all(name in on for on in cells) else "off"
            do = (
                f"add runs with {name}={value}" if state == "on" else f"add runs with another value than {name}={value}"
            )
            raise UsageError(asked, f"{name} is {state} in all runs, so it never varies", f"{do}, or leave it out")
    if lacking := [each for each in arms if each not in cells]:
        named = "; ".join(", ".join(sorted(each)) or "none of them" for each in lacking)
        raise UsageError(asked, f"there are no runs with {named}", "run these too")


def _check_together(groups: Sequence[RunGroup], off: Mapping[str, Value], across_machines: bool) -> None:
    """Raise what the gate refuses, and ``IncomparableError`` for runs of several machines."""
    for group in groups[1:]:
        check_comparable(groups[0], group)
    runs = [run for group in groups for run in (*group.runs, *group.repeats)]
    if not across_machines and any(not same_machine(runs[0].environment, run.environment) for run in runs[1:]):
        raise IncomparableError(
            f"the composition of {', '.join(off)}", "the runs are from several machines", "give --across-machines"
        )


def lesions(
    groups: Sequence[RunGroup],
    off: Mapping[str, Value],
    *,
    margin: float = 0.1,
    level: float = 0.95,
    across_machines: bool = False,
) -> Lesion:
    """What each factor gains where all others are on, from runs with all factors and with all but one.

    :raises UsageError: for fewer than two factors, or if an arm is missing.
    :raises IncomparableError: as :func:`compose`.
    """
    factors, asked = tuple(off), f"the lesion of {', '.join(off) or 'nothing'}"
    if len(factors) < 2:
        raise UsageError(asked, "it takes two factors", "name another factor")
    cells = {cell.on: cell for cell in cells_of(groups, off)}
    _require_arms(asked, cells, off, lesion(factors))
    _check_together(groups, off, across_machines)
    shared, every = 1 - (1 - level) / len(factors), cells[frozenset(factors)]
    against = []
    for name in factors:
        lacks = cells[frozenset(factors) - {name}]
        split = _split([every, lacks], [1.0, -1.0], lacks, shared)
        against.append(SingleFactor(name, _verdict(lacks, every, margin, shared), split))
    chosen = tuple(cells[each] for each in lesion(factors))
    return Lesion(factors, chosen, tuple(against), margin, level, _values(groups, off))


def _composed(
    cells: Mapping[frozenset[str], FactorArm], values: Mapping[str, tuple[Value, ...]], margin: float, level: float
) -> Composition:
    factors = tuple(values)
    none, every = cells[frozenset()], cells[frozenset(factors)]
    singles = [cells[frozenset([each])] for each in factors]
    against = {on: _verdict(none, cell, margin, level) for on, cell in cells.items() if on}
    alone = tuple(
        SingleFactor(
            name, against[frozenset([name])], _split([cells[frozenset([name])], none], [1.0, -1.0], none, level)
        )
        for name in factors
    )
    corners = [every, *singles, none]
    departure = contrast(corners, [1.0, *([-1.0] * len(singles)), len(singles) - 1.0], level)
    ratios = [each.verdict.ratio for each in alone]
    sure, more = _kind(departure, margin, level)
    departure, ties = _widened(departure, corners, [1.0, *([-1.0] * len(singles)), len(singles) - 1.0], none)
    kind, _ = _kind(departure, margin, level)
    if kind is sure:
        ties = ""
    complete = all(each.reached == len(each.times) for each in corners)
    shown = [each for each in designs(factors) if each in cells]
    chosen = _fraction_of(cells, factors)
    return Composition(
        factors=factors,
        cells=tuple(cells[each] for each in shown),
        against=tuple(against.get(each) for each in shown),
        alone=alone,
        predicted=math.prod(each for each in ratios if each) if complete and None not in ratios else None,
        together=against[every.on],
        departure=departure,
        kind=kind,
        effects=_effects(cells, factors, level) if chosen is None else _aliased_effects(cells, chosen, level),
        margin=margin,
        level=level,
        runs_to_settle=more,
        reason=ties or departure.reason,
        values=values,
        design=_design_name(len(shown), factors, chosen),
    )


def _fraction_of(cells: Mapping[frozenset[str], FactorArm], factors: tuple[str, ...]) -> Fraction | None:
    """The fraction that was run; ``None`` for a full design, or for one without all of its arms."""
    if len(cells) == 2 ** len(factors) or not LEAST_FRACTION <= len(factors) <= MOST_FRACTION:
        return None
    found = fraction(factors)
    return found if all(arm in cells for arm in found.arms) else None


def _design_name(count: int, factors: tuple[str, ...], chosen: Fraction | None) -> str:
    if chosen is not None:
        return f"{chosen.name} ({', '.join(chosen.generators)}), and none and each alone"
    return "full" if count == 2 ** len(factors) else "one"


def _aliased_effects(cells: Mapping[frozenset[str], FactorArm], chosen: Fraction, level: float) -> tuple[Effect, ...]:
    """The effects that a fraction tells apart, at Bonferroni's level."""
    effects, arms = chosen.effects(), chosen.arms
    shared, in_turns = 1 - (1 - level) / len(effects), not apart([cells[arm] for arm in arms])
    found = []
    for subset, aliases in effects:
        scale = 2.0 ** len(subset) / len(arms)
        signs = [scale * chosen.sign(subset, arm) for arm in arms]
        corners = [cells[arm] for arm in arms]
        found.append(_effect(subset, corners, signs, cells[frozenset()], shared, in_turns, aliases))
    return tuple(found)


def _effect(
    subset: tuple[str, ...],
    corners: Sequence[FactorArm],
    signs: Sequence[float],
    none: FactorArm,
    level: float,
    in_turns: bool,
    aliases: tuple[tuple[str, ...], ...] = (),
) -> Effect:
    effect, _ = _widened(contrast(corners, signs, level, in_turns=in_turns), corners, signs, none)
    return Effect(subset, effect, aliases, _split(corners, signs, none, level, in_turns))


def _split(
    cells: Sequence[FactorArm],
    coefficients: Sequence[float],
    base: FactorArm,
    level: float,
    in_turns: bool | None = None,
) -> Efficiencies:
    """The same contrast of the samples to the target, and of the time per sample.

    An evaluation more is a jump of the samples as of the times, and none of the time per sample.
    """
    counts = [tuple(run.samples_to_target or 0 for run in cell.runs) for cell in cells]
    if any(
        cell.reached < len(cell.times) or not each or not min(each) for cell, each in zip(cells, counts, strict=True)
    ):
        why = "not every run reached the target, or counts its samples"
        lacking = Contrast(None, None, None, min(len(cell.times) for cell in cells), level, reason=why)
        return Efficiencies(lacking, lacking)
    samples, per_sample = [], []
    for cell, each in zip(cells, counts, strict=True):
        rates = [(time or 0.0) / count for time, count in zip(cell.times, each, strict=True)]
        samples.append(replace(cell, times=tuple(map(float, each)), given_up=()))
        per_sample.append(replace(cell, times=tuple(rates), given_up=()))
    of_samples, of_each = (contrast(each, coefficients, level, in_turns=in_turns) for each in (samples, per_sample))
    return Efficiencies(_widened(of_samples, cells, coefficients, base)[0], of_each)


def _effects(cells: Mapping[frozenset[str], FactorArm], factors: tuple[str, ...], level: float) -> tuple[Effect, ...]:
    """Main effects and two-factor interactions of a full factorial, at Bonferroni's level, so that all hold jointly."""
    corners = designs(factors)
    if not all(each in cells for each in corners):
        return ()
    subsets = [each for size in (1, 2) for each in combinations(factors, size)]
    shared, in_turns = 1 - (1 - level) / len(subsets), not apart([cells[each] for each in corners])
    found = []
    for subset in subsets:
        scale = 2.0 ** (len(subset) - len(factors))
        signs = [scale * (-1.0) ** sum(name not in corner for name in subset) for corner in corners]
        arms = [cells[each] for each in corners]
        found.append(_effect(subset, arms, signs, cells[frozenset()], shared, in_turns))
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
    found: Contrast, cells: Sequence[FactorArm], coefficients: Sequence[float], base: FactorArm
) -> tuple[Contrast, str]:
    """The contrast with an interval that allows for late evaluations of ``cells`` which few runs show; and why.

    Each arm may differ from ``base`` by some evaluations, in the share of runs that so few cannot exclude.
    """
    if found.ratio is None or not all(arm.runs for arm in (base, *cells)):
        return found, ""
    added, why = {1: 0.0, -1: 0.0}, ""
    for arm, coefficient in zip(cells, coefficients, strict=True):
        jumps = None if arm.on == base.on else jumps_of(base.runs, arm.runs)
        for way in (1, -1):
            bound = None if jumps is None else jumps.bound(way, found.level)
            if jumps is not None and bound is not None and coefficient:
                added[way if coefficient > 0 else -way] += abs(coefficient) * bound
                why = why or jumps.reason(way, found.level)
    low = None if found.low is None else min(found.low, found.ratio * math.exp(-added[-1]))
    high = None if found.high is None else max(found.high, found.ratio * math.exp(added[1]))
    return replace(found, low=low, high=high), why if (low, high) != (found.low, found.high) else ""


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


def _verdict_ratio(found: Verdict) -> str:
    bound = Contrast(found.ratio, found.low, found.high, found.n_a, found.level)
    return _ratio_text(bound, "time with it over time without it")


def _ratio_text(found: Contrast, name: str) -> str:
    if found.ratio is not None and found.low is not None and found.high is not None:
        return f"{name} = {found.ratio:.3g} [{found.low:.3g}, {found.high:.3g}]"
    if found.low is not None:
        return f"{name} above {found.low:.3g}"
    if found.high is not None:
        return f"{name} below {found.high:.3g}"
    return name if found.ratio is None else f"{name} = {found.ratio:.3g}"
