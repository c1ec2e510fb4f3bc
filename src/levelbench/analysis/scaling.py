"""How time to accuracy scales with the number of ranks: efficiencies relative to the smallest one, and laws.

There are two efficiencies, which differ if a scheme or a larger batch needs more samples for the same accuracy. Time
per epoch shows how fast ranks compute together; time to accuracy shows what a user gains. Both count cores, i.e. ranks
times threads per rank: a single process with all cores is no base for ranks with one core each.

Two laws are fitted to single runs, on logarithms (``measure.statistics.laws``). Amdahl's (1967): a share s of the base
time t(1) is not divided among the ranks, t(p) = t(1) (s + (1 - s) / p). The Universal Scalability Law (Gunther 1993):
besides contention s, each rank waits for each other one, k, so that t(p) = t(1) (1 + s (p - 1) + k p (p - 1)) / p is
least at p = sqrt((1 - s) / k). Runs that missed their target are censored; with weak scaling the batch grows with the
ranks, so that their time to accuracy also pays for the larger batch.

Published entries scale over accelerators instead of ranks, and are points without records (:func:`scaling_of_entries`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from levelbench.analysis.comparison import span_of
from levelbench.analysis.ties import estimate_to_target, jumps_of, widened
from levelbench.errors import UsageError
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
from levelbench.measure.statistics.laws import GrowthFit, fit_growth
from levelbench.measure.verdict import NOT_INTERLEAVED
from levelbench.records import Distribution, Record, RunGroup, RunSummary, comparable
from levelbench.records.caveats import ended
from levelbench.records.integrity import TRAINING_PHASES
from levelbench.records.ranks import Teamwork, straggler_lines, teamwork
from levelbench.records.selection import format_item

__all__ = ["BASE", "CROWDED", "Efficiency", "EntryRuns", "ScaledPoint", "Scaling", "ScalingLaws", "against"]
__all__ += ["fit_scaling", "scaling", "scaling_of_entries", "threads_of"]

_NO_TRAINING = ("prepare", "compile", "evaluate", "checkpoint")
_BOUNDS = {
    "communicate_share": (0.0, 1.0),
    "waiting_share": (0.0, 1.0),
    "overlap": (0.0, 1.0),
    "imbalance": (1.0, math.inf),
}
_EXACT, _MISFIT = 1e-5, 0.01
CROWDED = "threads outnumbered cores"
"""Why no efficiency is claimed."""
BASE = "the base of the others"
"""Why an efficiency of 1 has no interval."""


@dataclass(frozen=True)
class Efficiency:
    """A ratio with its interval, 1 if the speed-up equals the increase in cores; or why there is none."""

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class ScaledPoint:
    """Runs on one number of ranks, or of a published entry on so many accelerators, which has no ``group``.

    Times in seconds; ``n`` runs ended, ``arrived`` of them reached the target. ``teamwork`` has an item per run, and is
    empty for one process. ``scheme`` has the settings in which the compared schemes differ, and says whether scaling is
    weak, so that the batch grows with the ranks; it is empty for one process, which is the base of every scheme.
    """

    label: str
    ranks: int
    scheme: str
    group: RunGroup | None
    n: int
    arrived: int
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
    """Of each rank, as its framework reports; the most if runs differ."""
    level: float = 0.95
    several_threads: tuple[int, ...] = ()
    """The numbers of threads if runs of the point differ in them: no efficiency is claimed then."""

    @property
    def threads_said(self) -> str:
        """Such as "2", or "1 or 2" if runs differ."""
        return " or ".join(map(str, self.several_threads)) or str(self.threads)

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
class ScalingLaws:
    """Amdahl's and the Universal Scalability Law, fitted to ``n`` runs on the numbers of ranks in ``counts``.

    ``quantity`` is "epoch" or "accuracy": what took the time. ``base_s`` is the fitted time on one rank, ``measured_s``
    the measured one on ``least``, the smallest number. ``serial`` is Amdahl's share that is not divided.
    Both fitted ones are ``None`` if there is no loss to fit, where ``serial_interval`` may still bound the share.
    ``contention`` and ``coherency`` are those of the Universal Scalability Law, and ``peak`` is the number of ranks at
    which it is fastest, infinite if these times do not exclude that more are always faster, and ``None`` if they say
    nothing about it. What is ``None`` is explained by ``lacks``.
    """

    quantity: str
    scheme: str
    unit: str
    counts: tuple[int, ...]
    least: int
    measured_s: Estimate | None
    base_s: float | None
    serial: float | None
    serial_interval: Interval | None
    contention: float | None
    contention_interval: Interval | None
    coherency: float | None
    coherency_interval: Interval | None
    peak: float | None
    n: int
    censored: int
    lacks: tuple[str, ...]

    @property
    def most(self) -> float | None:
        """Amdahl's greatest speed-up over one rank, 1 / serial, or 1 if more are slower; ``None`` without a fit."""
        return None if self.serial is None else math.inf if self.serial <= 0 else max(1.0, 1 / self.serial)


@dataclass(frozen=True)
class EntryRuns:
    """The runs of a published entry on ``count`` accelerators: seconds to the target, of an epoch, until given up."""

    label: str
    count: int
    times_s: tuple[float, ...]
    epochs_s: tuple[float, ...]
    given_up_s: tuple[float, ...] = ()


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
    laws: tuple[ScalingLaws, ...] = ()
    """For each scheme, of the time of an epoch and of the time to accuracy."""
    base: str = ""
    """What the efficiencies are relative to, with its absolute times."""


def scaling(title: str, groups: Sequence[RunGroup], records: Sequence[Record], level: float = 0.95) -> Scaling:
    """The points of ``groups``, one per number of ranks and scheme, with the records of their runs."""
    by_path = {str(record.path): record for record in records}
    ordered = sorted(groups, key=_ranks)
    bases = [_base(group, ordered) for group in ordered]
    names = _short_names(ordered)
    points = tuple(
        replace(_point(group, base, by_path, level), scheme=names[_series(group)])
        for group, base in zip(ordered, bases, strict=True)
    )
    crowded = list(dict.fromkeys(str(point.ranks) for point in points if point.crowded))
    warnings = []
    if crowded:
        warnings.append(
            f"on {', '.join(crowded)} ranks there were more threads than cores: their times say nothing about scaling, "
            "and no efficiency is claimed"
        )
    for group, base in zip(ordered, bases, strict=True):
        warnings += [f"{group.label} against {base.label}: {each}" for each in against(base, group)]
    for point in points:
        warnings += straggler_lines(point.label, point.teamwork)
    at = dict(zip(map(id, ordered), points, strict=True))
    answers = [_answer(at[id(base)], point) for base, point in zip(bases, points, strict=True) if at[id(base)] != point]
    laws = _laws_of_groups(ordered, points, by_path, level)
    return Scaling(
        title, points, level, tuple(warnings), tuple(filter(None, answers)), laws, _base_line(points, "rank")
    )


def scaling_of_entries(title: str, entries: Sequence[EntryRuns], level: float = 0.95) -> Scaling:
    """The points of published entries of one series, relative to the smallest one."""
    ordered = sorted(entries, key=lambda entry: entry.count)
    base = ordered[0]

    def efficiency(name: str, entry: EntryRuns) -> Efficiency:
        before, after = getattr(base, name), getattr(entry, name)
        if entry is base:
            return Efficiency(1.0, reason=BASE)
        if name == "times_s" and (entry.given_up_s or base.given_up_s):
            return Efficiency(None, reason="runs missed the target")
        return _ratio(before, after, base.count / entry.count, "", level)

    points = tuple(
        ScaledPoint(
            label=entry.label,
            ranks=entry.count,
            scheme="" if entry is base else "entries",
            group=None,
            n=len(entry.times_s) + len(entry.given_up_s),
            arrived=len(entry.times_s),
            reached=wilson(len(entry.times_s), len(entry.times_s) + len(entry.given_up_s), level),
            time_to_accuracy_s=_estimate(entry.times_s, level),
            epoch_s=_estimate(entry.epochs_s, level),
            samples_to_target=None,
            teamwork=(),
            per_epoch=efficiency("epochs_s", entry),
            to_accuracy=efficiency("times_s", entry),
            crowded=False,
            threads=1,
            level=level,
        )
        for entry in ordered
    )
    epochs: dict[int, list[float]] = {}
    times: dict[int, list[float]] = {}
    given_up: dict[int, list[float]] = {}
    for entry in ordered:
        epochs.setdefault(entry.count, []).extend(entry.epochs_s)
        times.setdefault(entry.count, []).extend(entry.times_s)
        given_up.setdefault(entry.count, []).extend(entry.given_up_s)
    laws = (
        fit_scaling("epoch", epochs, unit="accelerator", level=level),
        fit_scaling("accuracy", times, given_up, unit="accelerator", level=level),
    )
    said = "entries are made at different times by whoever submits them: an efficiency may be that of later code"
    return Scaling(title, points, level, (said,), (), laws, _base_line(points, "accelerator"))


def fit_scaling(
    quantity: str,
    times: Mapping[int, Sequence[float]],
    given_up: Mapping[int, Sequence[float]] | None = None,
    *,
    scheme: str = "",
    unit: str = "rank",
    crowded: Sequence[int] = (),
    level: float = 0.95,
) -> ScalingLaws:
    """Both laws through the ``times`` in seconds by number of ranks, and those at which runs were ``given_up``.

    ``crowded`` are numbers of ranks that are left out, because threads outnumbered cores. Raises ``UsageError`` for a
    time that is not positive.
    """
    if wrong := [(count, time) for count, several in times.items() for time in several if not 0 < time < math.inf]:
        count, time = wrong[0]
        found = f"a run on {count} {unit}{'s' * (count > 1)} took {time:g} s"
        raise UsageError("a law of scaling", found, "leave that run out, or measure it with a finer clock")
    pairs = [(count, time, False) for count, several in times.items() for time in several]
    pairs += [(count, time, True) for count, several in (given_up or {}).items() for time in several if time > 0]
    counts = tuple(sorted({count for count, _, missed in pairs if not missed}))
    lacks: list[str] = []
    amdahl = usl = None
    what = "an epoch" if quantity == "epoch" else "time to accuracy"
    if len(counts) < 2:
        found = f"on {counts[0]} {unit}{'s' * (counts[0] > 1)} alone" if counts else f"on no number of {unit}s"
        do = "measure others (levelbench scale --ranks 1,2,4)"
        if crowded:
            found += f", apart from those on {', '.join(map(str, crowded))}, where threads outnumbered cores"
            do = "measure no more ranks times threads than there are cores (OMP_NUM_THREADS=1)"
        lacks.append(f"no law of {what}: runs reached the target {found}; {do}")
    else:
        work = [count * time for count, time, _ in pairs]
        missed = [each for *_, each in pairs]
        amdahl = fit_growth(work, [[count - 1.0] for count, *_ in pairs], missed, level)
        if len(counts) > 2:
            usl = fit_growth(work, [[count - 1.0, count * (count - 1.0)] for count, *_ in pairs], missed, level)
        else:
            lacks.append(f"the Universal Scalability Law of {what} has three parameters, and two numbers of {unit}s")
        if amdahl.intervals[0] is None:
            known = amdahl.n - amdahl.censored
            same = amdahl.deviation < _EXACT and known > 2
            few = (
                f"{known} runs that reached the target are too few" if amdahl.censored else f"{known} runs are too few"
            )
            why = "the times lie exactly on it" if same else few
            lacks.append(f"Amdahl's law of {what} has no interval: {why}; make more runs of each point (-n 5)")
        if amdahl.rates[0] > 1:
            lacks.append(f"more {unit}s make {what} longer, which Amdahl's law cannot say: its serial share is above 1")
        if amdahl.rates[0] <= 0:
            inside = amdahl.intervals[0]
            most = f" (the serial share is at most {inside.high:.2g})" if inside and math.isfinite(inside.high) else ""
            lacks.append(f"{what} falls at least in proportion to the {unit}s: the laws have no loss to fit{most}")
        if amdahl.misfit is not None and amdahl.misfit < _MISFIT:
            lacks.append(
                f"Amdahl's law does not fit {what} (lack of fit p = {amdahl.misfit:.2g}): its interval is too narrow"
            )
        if counts[0] > 1:
            lacks.append(f"nothing was measured on one {unit}: the base of {what} is extrapolated from {counts[0]}")
    # A law without a loss says that t(p) = t(1) / p, which its base was averaged for, and bounds nothing.
    lossy = None if amdahl is None or amdahl.rates[0] <= 0 else amdahl
    usl = None if usl is not None and not any(usl.rates) else usl
    first = counts[0] if counts else 0
    peak, said = (None, "") if usl is None else _peak(usl, what, unit)
    lacks += [said] if said else []
    if usl is not None and usl.intervals[0] is None and not said:
        why = (
            "the times lie exactly on it"
            if usl.n - usl.censored > 3
            else "as many runs as it has parameters fit always"
        )
        lacks.append(
            f"the Universal Scalability Law of {what} has no interval: {why}; make more runs of each point (-n 5)"
        )
    return ScalingLaws(
        quantity=quantity,
        scheme=scheme,
        unit=unit,
        counts=counts,
        least=first,
        measured_s=_estimate(times[first], level) if counts else None,
        base_s=lossy.base if lossy else None,
        serial=lossy.rates[0] if lossy else None,
        serial_interval=amdahl.intervals[0] if amdahl else None,
        contention=usl.rates[0] if usl else None,
        contention_interval=usl.intervals[0] if usl else None,
        coherency=usl.rates[1] if usl else None,
        coherency_interval=usl.intervals[1] if usl else None,
        peak=peak,
        n=len(pairs),
        censored=sum(missed for *_, missed in pairs),
        lacks=tuple(lacks),
    )


def _peak(usl: GrowthFit, what: str, unit: str) -> tuple[float | None, str]:
    """``ScalingLaws.peak`` of the Universal Scalability Law, and what it lacks."""
    (contention, coherency), bounds = usl.rates, usl.intervals[1]
    # Three numbers of ranks with one run each fit exactly whatever happened.
    exact = usl.deviation < _EXACT and usl.n - usl.censored > 3
    if coherency <= 0:
        return math.inf, ""
    if bounds is None and not exact:
        return None, f"on how many {unit}s {what} is shortest is unknown: coherency has no interval (-n 5)"
    if bounds is not None and bounds.low <= 0:
        return math.inf, (
            f"no number of {unit}s is known from which on {what} gets longer: coherency may be zero; measure more "
            f"{unit}s, or more runs of each (-n 5)"
        )
    return max(1.0, math.sqrt(max(0.0, 1 - contention) / coherency)), ""


def _laws_of_groups(
    ordered: Sequence[RunGroup], points: Sequence[ScaledPoint], records: Mapping[str, Record], level: float
) -> tuple[ScalingLaws, ...]:
    """Two for each scheme, over its points and the single process, without those that were crowded."""
    own = [
        (group, point)
        for group, point in zip(ordered, points, strict=True)
        if not point.crowded and not point.several_threads
    ]
    # More threads per rank are more cores: the laws count cores then.
    threads = {point.threads for _, point in own}
    unit = "rank" if len(threads) < 2 else "core"
    found = []
    for scheme in dict.fromkeys(point.scheme for point in points if point.scheme):
        epochs: dict[int, list[float]] = {}
        times: dict[int, list[float]] = {}
        given_up: dict[int, list[float]] = {}
        for group, point in own:
            if point.scheme in ("", scheme):
                count = point.ranks * (point.threads if len(threads) > 1 else 1)
                epochs.setdefault(count, []).extend(_epochs_s(group, records))
                times.setdefault(count, []).extend(_times(group.runs))
                given_up.setdefault(count, []).extend(each for each in group.given_up() if math.isfinite(each))
        crowded = sorted({point.ranks for point in points if point.crowded and point.scheme == scheme})
        fit = partial(fit_scaling, scheme=scheme, unit=unit, crowded=crowded, level=level)
        found += [fit("epoch", epochs), fit("accuracy", times, given_up)]
    return tuple(found)


def _base_line(points: Sequence[ScaledPoint], unit: str) -> str:
    """The absolute base: without it, an efficiency can be that of a slow start (SC15, rule 1)."""
    if not points:
        return ""
    base = points[0]
    words = [f"{base.ranks} {unit}{'s' * (base.ranks > 1)}"]
    if base.threads > 1:
        words.append(f"{base.threads_said} threads each")
    said = [
        f"{estimate_.value:.4g} s {what}"
        for what, estimate_ in (("to accuracy", base.time_to_accuracy_s), ("an epoch", base.epoch_s))
        if estimate_ is not None
    ]
    return f"base: {base.label} on {', '.join(words)}: {', '.join(said) or 'no time'} (n = {base.n})"


def _answer(base: ScaledPoint, point: ScaledPoint) -> str:
    """Empty where no efficiency is known."""
    found = point.to_accuracy
    if found.value is None or not point.ranks > base.ranks:
        return ""
    more = point.ranks * point.threads / (base.ranks * base.threads)
    times = f"{1 / (found.value * more):.3g}"
    if found.low is None or found.high is None:
        return f"{point.label} takes {times} times as long to the target as {base.label} (no interval: {found.reason})"
    low, high = (1 / (each * more) if each else math.inf for each in (found.high, found.low))
    if high < 1:
        answer = "sooner than"
    elif low > 1:
        answer = "later than"
    else:
        answer = "neither clearly sooner nor clearly later than"
    return (
        f"{point.label} reaches the target {answer} {base.label}: it takes {times} [{low:.3g}, {high:.3g}] times as "
        "long"
    )


def against(base: RunGroup, group: RunGroup) -> list[str]:
    """What speaks against a ratio of ``group`` to ``base``, according to the gate, without doubts about single runs.

    Those are reported with the other figures of the run's group.
    """
    if group is base or not base.runs or not group.runs:
        return []
    # There is no verdict here that an option could ask for, so other machines are a doubt.
    gate = comparable(base, group, across_machines=True)
    found = [each.sentence for each in gate.caveats if each.weight != "note" and each.subject != "doubts"]
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
    return next(each for each in ordered if _series(each) in ("", _series(group)))


def _series(group: RunGroup) -> str:
    """The scheme with its settings, and how the batch and the rate grow with the ranks; empty for one process."""
    team = group.specification.distribution
    return "" if team is None else _series_of(team, team.settings)


def _series_of(team: Distribution, settings: Mapping[str, int | float | str | bool]) -> str:
    scheme = format_item(team.scheme, settings)
    rate = "" if team.lr_scale == "none" else f", {team.lr_scale} rate"
    return scheme if team.scaling == "strong" else f"{scheme}, weak scaling{rate}"


def _short_names(groups: Sequence[RunGroup]) -> dict[str, str]:
    """A name for each series: of the settings of its scheme it has only those in which these series differ."""
    names = {"": ""}
    teams = [team for group in groups if (team := group.specification.distribution) is not None]
    for team in teams:
        others = [each.settings for each in teams if each.scheme == team.scheme]
        told = {name: value for name, value in team.settings.items() if any(each.get(name) != value for each in others)}
        names[_series_of(team, team.settings)] = _series_of(team, told)
    return names


def threads_of(group: RunGroup) -> int:
    """Of each process, as its framework reports; 1 if none does, the most if runs differ."""
    return max(_thread_counts(group), default=1)


def _thread_counts(group: RunGroup) -> list[int]:
    return sorted({int(run.environment.get("framework", {}).get("threads") or 1) for run in group.runs})


def _several_threads(group: RunGroup) -> tuple[int, ...]:
    counts = _thread_counts(group)
    return tuple(counts) if len(counts) > 1 else ()


def _crowded(group: RunGroup, records: Mapping[str, Record]) -> bool:
    """Whether the ranks report shared cores, or have more threads than their machine has cores."""
    threads = threads_of(group)
    for run in group.runs:
        record = records.get(run.path)
        team = record.end.environment_after.get("team", {}) if record and record.end else {}
        cores = team.get("cores_by_host") or [run.environment.get("machine", {}).get("cores_allowed")]
        ranks = team.get("ranks_by_host") or [_ranks(group)]
        if team.get("crowded") or any(
            count * threads > owned for count, owned in zip(ranks, cores, strict=False) if owned
        ):
            return True
    return False


def _point(group: RunGroup, base: RunGroup, records: Mapping[str, Record], level: float) -> ScaledPoint:
    crowded = _ranks(group) > 1 and _crowded(group, records)
    timed = [run for run in group.runs if run.time_to_accuracy_s is not None]
    counted = [run for run in group.runs if run.samples_to_target]
    views = [teamwork(records[run.path]) for run in group.runs if run.path in records]
    return ScaledPoint(
        label=group.label,
        ranks=_ranks(group),
        scheme=_series(group),
        group=group,
        n=group.n,
        arrived=group.reached,
        reached=wilson(group.reached, group.n, level),
        time_to_accuracy_s=estimate_to_target(_times(timed), timed, level) if timed else None,
        epoch_s=_estimate(_epochs_s(group, records), level),
        samples_to_target=estimate_to_target([float(run.samples_to_target or 0) for run in counted], counted, level)
        if counted
        else None,
        teamwork=tuple(each for each in views if each is not None),
        per_epoch=_efficiency(_epochs_s(base, records), _epochs_s(group, records), base, group, crowded, level),
        to_accuracy=_to_accuracy(base, group, crowded, level),
        crowded=crowded,
        threads=threads_of(group),
        level=level,
        several_threads=_several_threads(group),
    )


def _epochs_s(group: RunGroup, records: Mapping[str, Record]) -> list[float]:
    """Seconds of training alone per epoch, one value per run.

    A program names the phases that it likes: all of its time that is not named as something else is training.
    """
    found = []
    by_program = group.specification.scored_by is not None
    for run in group.runs:
        record = records.get(run.path)
        if record is None or not record.evaluations or record.status != "done":
            continue
        last = record.evaluations[-1]
        own = last.phases_ns.keys() - {*_NO_TRAINING} if by_program else TRAINING_PHASES
        spent_ns = sum(last.phases_ns.get(name, 0) for name in own)
        if last.epoch > 0 and spent_ns > 0:
            found.append(spent_ns * 1e-9 / last.epoch)
    return found


def _to_accuracy(base: RunGroup, group: RunGroup, crowded: bool, level: float) -> Efficiency:
    for each in (base, group):
        missed = each.n - each.reached
        if missed:
            return Efficiency(None, reason=f"{missed} of {each.n} runs of {each.label} missed the target")
    found = _efficiency(_times(base.runs), _times(group.runs), base, group, crowded, level)
    if found.value is None or found.low is None or found.high is None:
        return found
    # The efficiency is a ratio of the base's times and these, times how many more cores there are.
    known = widened(found.value, Interval(found.low, found.high, level, ""), jumps_of(group.runs, base.runs))
    return replace(found, low=known.low, high=known.high)


def _times(runs: Sequence[RunSummary]) -> list[float]:
    return [run.time_to_accuracy_s for run in runs if run.time_to_accuracy_s is not None]


def _efficiency(
    before: Sequence[float], after: Sequence[float], base: RunGroup, group: RunGroup, crowded: bool, level: float
) -> Efficiency:
    """Speed-up over the increase in cores: (t_base · c_base) / (t · c)."""
    if group is base:
        return Efficiency(1.0, reason=BASE)
    if crowded:
        return Efficiency(None, reason=CROWDED)
    if not before or not after:
        return Efficiency(None, reason="no run has finished")
    for each in (base, group):
        if counts := _several_threads(each):
            said = " or ".join(map(str, counts))
            return Efficiency(
                None, reason=f"runs of {each.label} have {said} threads each, so cores are not comparable"
            )
    more = _ranks(base) * threads_of(base) / (_ranks(group) * threads_of(group))
    return _ratio(before, after, more, NOT_INTERLEAVED if _apart(base, group) else "", level)


def _ratio(before: Sequence[float], after: Sequence[float], more: float, apart: str, level: float) -> Efficiency:
    """The ratio of times, times ``more``; without an interval for ``apart`` or a single run."""
    if not before or not after:
        return Efficiency(None, reason="no run has finished")
    if apart or min(len(before), len(after)) < 2:
        ratio = geometric_mean(before) / geometric_mean(after)
        return Efficiency(ratio * more, reason=apart or "one run has no spread")
    found = welch_log_ratio(after, before, level)
    return Efficiency(found.ratio * more, found.interval.low * more, found.interval.high * more)


def _estimate(values: Sequence[float], level: float) -> Estimate | None:
    return estimate(values, level) if values else None
