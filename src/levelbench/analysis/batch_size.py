"""Batch size: samples to the target x time per sample = time to accuracy, at each size, and how far it pays.

A larger batch gives more samples a second until the machine is full, and from some size on needs more samples for the
same quality. The size around which that begins is the critical batch size B_crit of McCandlish et al. (2018,
arXiv:1812.06162): samples E and steps S to the target lie on (S / S_min - 1) (E / E_min - 1) = 1, which is the same as
E(B) = E_min (1 + B / B_crit) and S(B) = S_min (1 + B_crit / B), with B_crit = E_min / S_min. It is fitted to single
runs on logarithms (``measure.statistics.laws``). When a run reached the target is known up to its evaluations: between
the last one below the target and the next one. The second evaluation that confirms it adds samples that depend on how
often runs are evaluated, not on the batch size, so that a law through those would have another E_min or B_crit. A run
that was given up is censored at the samples that it had seen; one that diverged or failed would never have arrived, so
it is outside of the law and only counts in the share that reaches the target.

The gradient noise scale B_simple = tr(covariance) / |gradient|^2, which their theory predicts the critical size from,
is measured apart (the observer ``noise``), since it costs many gradients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from levelbench.analysis.scaling import against, threads_of
from levelbench.analysis.ties import estimate_to_target, jumps_of, widened
from levelbench.errors import UsageError
from levelbench.measure.environment import same_machine
from levelbench.measure.statistics import (
    CensoredTimes,
    Estimate,
    Interval,
    estimate,
    geometric_mean,
    kaplan_meier,
    time_ratio,
    welch_log_ratio,
    wilson,
)
from levelbench.measure.statistics.laws import GrowthFit, fit_growth
from levelbench.records import Record, RunGroup, RunSummary
from levelbench.records.searches import Search, effort_behind

__all__ = ["RULES", "BatchSizeStudy", "BatchSizes", "CriticalBatch", "LearningRateTrial", "NoiseScale", "TunedRate"]
__all__ += ["choose_rate", "noise_scale", "scaled_rate", "seen_samples", "study_batch_size"]

RULES = {"linear": 1.0, "sqrt": 0.5, "none": 0.0}
"""Rules that scale a learning rate with the batch size, by their exponents."""
_NEAR = 0.01
_CUT = 0.05
_MISFIT = 0.01
_LAST_SHARE = 0.5
_COARSE = 0.25
"""Of the samples to the target: evaluations that are further apart are said to be."""
_PARTS = ": if a step is of several parts (gradient accumulation), call run.step once a batch, with all of its examples"
"""What a program can do whose steps are smaller than its batches."""
Settings = dict[str, int | float | str | bool]


@dataclass(frozen=True)
class BatchSizes:
    """The runs at one batch ``size``, the examples of a step over all ranks.

    ``mean_size`` is what a step had on average (the last batch of an epoch may be smaller). Samples, steps, samples a
    second and time (seconds, on the clock of the runs) are geometric means if every run reached the target, so that
    time is samples over samples a second, else Kaplan and Meier's medians; ``None`` if too few did. ``diverged`` runs
    could not have reached it.
    """

    size: int
    mean_size: float
    rate: float | None
    group: RunGroup
    share: Interval
    diverged: int
    samples: Estimate | None
    steps: Estimate | None
    samples_per_s: Estimate | None
    time_s: Estimate | None

    @property
    def converges(self) -> bool:
        """Whether at least half of the runs reached the target."""
        return self.group.reached >= _LAST_SHARE * self.group.n > 0

    @property
    def ended_early(self) -> bool:
        """Whether most of the runs missed, and some of them ended at a budget while they could still arrive."""
        missed = [run for run in self.group.runs if not run.reached]
        open_ = any(run.status == "done" and not run.hopeless and not run.trained_out for run in missed)
        return open_ and not self.converges


@dataclass(frozen=True)
class CriticalBatch:
    """The critical batch ``size`` with its interval; an end of 0 or infinity says that the runs do not bound it.

    ``samples`` is E_min, what small batches need; ``steps`` is S_min, what large ones need, both without the evaluation
    that confirms the target.
    """

    size: float
    interval: Interval | None
    samples: float
    steps: float
    fit: GrowthFit

    @property
    def misfits(self) -> bool:
        """Whether the samples do not follow the law."""
        return self.fit.misfit is not None and self.fit.misfit < _MISFIT

    def samples_at(self, size: float) -> float:
        """Samples to the target at a batch size, by the law."""
        return self.fit.at([size])


@dataclass(frozen=True)
class NoiseScale:
    """The gradient noise scale over training: of each run, the sum of tr(covariance) over that of |gradient|^2.

    ``curve`` has (samples seen, noise scale) at each evaluation of the first run, where the gradient was large enough.
    """

    value: Estimate | None
    size: int
    curve: tuple[tuple[float, float], ...]
    reason: str = ""


@dataclass(frozen=True)
class LearningRateTrial:
    """One run that tried a learning rate: samples to the target, infinite if it missed, and its last quality."""

    size: int
    rate: float
    samples: float
    quality: float


@dataclass(frozen=True)
class TunedRate:
    """The rate that was chosen at one size, from ``trials``. ``edge``: it was the least or greatest that was tried."""

    size: int
    rate: float
    trials: tuple[LearningRateTrial, ...]
    edge: bool


@dataclass(frozen=True)
class BatchSizeStudy:
    """The answer: a point for each size, smallest first. What is ``None`` has its reason in ``lacks``.

    ``largest`` is the largest size that still converges. ``rule`` says how the learning rate depends on the size.
    """

    title: str
    points: tuple[BatchSizes, ...]
    largest: BatchSizes | None
    fastest: BatchSizes | None
    critical: CriticalBatch | None
    rule: str
    tuned: tuple[TunedRate, ...]
    noise: NoiseScale | None
    caveats: tuple[str, ...]
    lacks: tuple[str, ...]
    level: float

    def answers(self) -> list[str]:
        """Sentences: the fastest size, the largest that converges, the critical size, the noise scale, the rule."""
        found = [*_fastest_line(self), *_largest_line(self)]
        if self.critical is not None:
            at = self.critical
            known = "" if at.interval is None else f" {_span(at.interval)}"
            censored = f", {at.fit.censored} of them censored" if at.fit.censored else ""
            apart = f", which do not follow its law (lack of fit p = {at.fit.misfit:.2g})" if at.misfits else ""
            found.append(
                f"critical batch size: {at.size:.3g}{known} ({self.level * 100:g} %, profile likelihood, "
                f"{at.fit.n} runs{censored}{apart}): small batches need {at.samples:.3g} samples, large ones "
                f"{at.steps:.3g} steps, and twice the least of both at the critical size"
            )
        if self.noise is not None and self.noise.value is not None:
            value = self.noise.value
            said = "" if value.interval is None else f" [{value.interval.low:.3g}, {value.interval.high:.3g}]"
            found.append(
                f"gradient noise scale: {value.value:.3g}{said} examples, over training at batch size "
                f"{self.noise.size} (n = {value.n}, measured apart)"
            )
        return [*found, f"learning rate: {self.rule}"]


def scaled_rate(rule: str, rate: float, size: int, base: int) -> float:
    """The rate at ``size`` by a rule of ``RULES``, where it is ``rate`` at ``base``; four significant digits."""
    return float(f"{rate * (size / base) ** RULES[rule]:.4g}")


def choose_rate(trials: Sequence[LearningRateTrial], higher: bool = True) -> TunedRate:
    """The rate of the trial at one size that took the fewest samples or, if none arrived, came closest."""
    sign = -1.0 if higher else 1.0
    qualities = [sign * each.quality if math.isfinite(each.quality) else math.inf for each in trials]
    best, _ = min(zip(trials, qualities, strict=True), key=lambda pair: (pair[0].samples, pair[1]))
    rates = sorted({each.rate for each in trials})
    return TunedRate(best.size, best.rate, tuple(trials), len(rates) > 1 and best.rate in (rates[0], rates[-1]))


def seen_samples(records: Sequence[Record]) -> dict[str, tuple[int, int]]:
    """The examples that each run had seen at its last evaluation, and the steps that it had made, by its id."""
    last = {record.header.id: record.evaluations[-1] for record in records if record.evaluations}
    return {name: (each.samples, each.step) for name, each in last.items()}


def noise_scale(runs: Sequence[Sequence[tuple[float, float, float]]], size: int, level: float = 0.95) -> NoiseScale:
    """The noise scale of ``runs`` at batch ``size``, each of (samples, tr(covariance), |gradient|^2) by evaluation.

    Sums over a run come before the ratio: the ratio at one evaluation is as noisy as the gradient there, and biased.
    """
    ratios = []
    for run in runs:
        trace, square = sum(row[1] for row in run), sum(row[2] for row in run)
        if trace > 0 and square > 0:
            ratios.append(trace / square)
    curve = tuple((samples, trace / square) for samples, trace, square in (runs[0] if runs else ()) if square > 0)
    if len(ratios) < len(runs) or not runs:
        lost = f"{len(runs) - len(ratios)} of {len(runs)} runs have gradients that cannot be told from their noise"
        why = lost if runs else "no run measured it"
        return NoiseScale(None, size, curve, f"no gradient noise scale: {why} (--noise 3, or a smaller batch size)")
    return NoiseScale(estimate(ratios, level), size, curve)


def study_batch_size(
    groups: Sequence[RunGroup],
    seen: Mapping[str, tuple[int, int]] | None = None,
    *,
    batch: str = "batch",
    rate: str = "lr",
    rule: str | None = None,
    tuned: Sequence[TunedRate] = (),
    searches: Sequence[Search] = (),
    noise: NoiseScale | None = None,
    level: float = 0.95,
) -> BatchSizeStudy:
    """Analyse ``groups``, which differ in the settings ``batch`` and ``rate`` alone.

    ``seen`` has how far runs without a time had come, by id (:func:`seen_samples`). Of several groups of one
    size, the one with the most runs counts, then the one that takes the fewest samples. ``rule`` says how the rate was
    scaled; by default it is read from the groups and the ``searches`` that chose their rates.

    Raises ``UsageError`` for groups of several tasks, targets, machines or other settings, and for a single size.
    """
    seen = seen or {}
    _require_one_study(groups, batch, rate)
    by_size: dict[int, list[RunGroup]] = {}
    for group in groups:
        if group.n:
            by_size.setdefault(_size(group, batch), []).append(group)
    what = groups[0].specification.task if groups else "runs"
    if len(by_size) < 2:
        found = f"all runs have {batch}={next(iter(by_size))}" if by_size else "none has ended"
        do = f"make runs at several sizes: levelbench analyze batch-size {what} --sizes 32,64,128,256"
        if groups and groups[0].specification.scored_by is not None:
            do = f"run the program itself at several sizes, with the size as its setting {batch}"
        raise UsageError(f"how {what} depends on the batch size", found, do)
    caveats, chosen = [], []
    for size, several in sorted(by_size.items()):
        chosen.append(max(several, key=lambda group: (group.n, group.reached, -_typical(group))))
        if len(several) > 1:
            caveats.append(
                f"batch size {size} has runs at {len(several)} learning rates, of which {chosen[-1].label} counts: "
                "if it was chosen by these very runs, it looks better than it is"
            )
    points = [_point(group, batch, rate, seen, level) for group in chosen]
    base = chosen[0]
    caveats += dict.fromkeys(
        sentence for group in chosen[1:] for sentence in against(base, group) if f"{batch}" not in sentence
    )
    caveats += _cut_lines(points)
    critical, lacks = _critical(points, seen, level)
    converging = [point for point in points if point.converges]
    timed = [point for point in points if point.time_s is not None and point.converges]
    specification = base.specification
    return BatchSizeStudy(
        title=f"Batch size of {specification.task}[recipe={specification.recipe}] on {specification.framework}",
        points=tuple(points),
        largest=converging[-1] if converging else None,
        fastest=min(timed, key=lambda point: point.time_s.value if point.time_s else math.inf) if timed else None,
        critical=critical,
        rule=rule or _rule_of(points, rate, searches),
        tuned=tuple(tuned),
        noise=noise,
        caveats=tuple(caveats),
        lacks=(*lacks, *([noise.reason] if noise is not None and noise.reason else [])),
        level=level,
    )


def _require_one_study(groups: Sequence[RunGroup], batch: str, rate: str) -> None:
    asked = "how runs depend on the batch size"
    without = [group.label for group in groups if not isinstance(group.specification.settings.get(batch), int)]
    if without:
        do = f"name the setting that is the batch size (--batch-setting), or select runs with {batch}"
        raise UsageError(asked, f"{without[0]} has no setting {batch!r} that is a whole number", do)
    teams = [group.specification.distribution for group in groups]
    facts: dict[str, set[str]] = {
        "tasks": {group.specification.task for group in groups},
        "recipes": {group.specification.recipe for group in groups},
        "frameworks": {group.specification.framework for group in groups},
        "devices": {group.specification.device for group in groups},
        "targets": {f"{group.specification.target.threshold:g}" for group in groups},
        "crossing rules": {group.specification.crossing for group in groups},
        "clocks": {group.specification.clock for group in groups},
        "sources": {group.source_digest for group in groups},
        # More ranks compute more samples a second at one size, so that a curve over both shows neither.
        "numbers of ranks": {str(team.ranks if team else 1) for team in teams},
        "schemes": {team.scheme if team else "none" for team in teams},
        "intervals between evaluations": {group.specification.evaluate_every for group in groups},
    }
    for name, several in facts.items():
        if len(several) > 1:
            listed = ", ".join(sorted(each[:12] for each in several))
            do = "read all at one: --target, --crossing, --clock" if name[0] in "tc" and name != "tasks" else ""
            do = "select those of one, or see what ranks do: levelbench analyze scaling" if "ranks" in name else do
            raise UsageError(asked, f"the runs have {len(several)} {name}: {listed}", do or "select those of one")
    others = [
        {name: value for name, value in group.specification.settings.items() if name not in (batch, rate)}
        | ({} if team is None else team.words())
        for group, team in zip(groups, teams, strict=True)
    ]
    for name in dict.fromkeys(name for each in others for name in each):
        values = {str(each.get(name)) for each in others}
        if len(values) > 1:
            found = f"they also differ in {name}: {', '.join(sorted(values))}"
            do = f"select those of one: {groups[0].specification.task}[{name}={min(values)}]"
            raise UsageError(asked, found, do)
    runs = [run for group in groups for run in (*group.runs, *group.repeats)]
    if any(not same_machine(runs[0].environment, run.environment) for run in runs[1:]):
        do = "select those of one machine, for example by naming its store"
        raise UsageError(asked, "they were made on several machines, whose samples a second differ", do)
    if len({threads_of(group) for group in groups if group.n}) > 1:
        raise UsageError(asked, "they had different numbers of threads", "make them again with one number of threads")


def _size(group: RunGroup, batch: str) -> int:
    """The examples of a step, over all ranks."""
    size, team = int(group.specification.settings[batch]), group.specification.distribution
    return size * team.ranks if team is not None and team.scaling == "weak" else size


def _typical(group: RunGroup) -> float:
    found = [float(run.samples_to_target) for run in group.runs if run.samples_to_target]
    return geometric_mean(found) if found else math.inf


def _point(group: RunGroup, batch: str, rate: str, seen: Mapping[str, tuple[int, int]], level: float) -> BatchSizes:
    arrived = [run for run in group.runs if run.reached and run.samples_to_target and run.time_to_accuracy_s]
    missed = [run for run in group.runs if not run.reached]
    steps = [
        run.samples_to_target / run.steps_to_target for run in arrived if run.samples_to_target and run.steps_to_target
    ]
    size, value = _size(group, batch), group.specification.settings.get(rate)
    speeds = [(run.samples_to_target or 0) / (run.time_to_accuracy_s or 1.0) for run in arrived]
    came = [seen.get(run.id, (0, 0)) for run in missed]
    speeds += [
        samples / run.given_up_s for run, (samples, _) in zip(missed, came, strict=True) if samples and run.given_up_s
    ]
    steps += [samples / made for samples, made in came if samples and made]

    def censored(values: Sequence[float], bounds: Sequence[float]) -> Estimate | None:
        if not values:
            return None
        if not missed:
            return estimate_to_target(values, arrived, level)
        every = [*values, *bounds]
        median = kaplan_meier(every, [True] * len(values) + [False] * len(bounds)).median(level)
        return median if math.isfinite(median.value) else None

    mean_size = geometric_mean(steps) if steps else float(size)
    bounds = [math.inf if run.hopeless else float(at) for run, (at, _) in zip(missed, came, strict=True)]
    return BatchSizes(
        size=size,
        mean_size=mean_size,
        rate=None if value is None or isinstance(value, str) else float(value),
        group=group,
        share=wilson(group.reached, group.n, level),
        diverged=sum(run.hopeless for run in missed),
        samples=censored([float(run.samples_to_target or 0) for run in arrived], bounds),
        steps=censored([float(run.steps_to_target or 0) for run in arrived], [each / mean_size for each in bounds])
        if steps
        else None,
        samples_per_s=estimate(speeds, level) if speeds else None,
        time_s=censored([run.time_to_accuracy_s or 0.0 for run in arrived], group.given_up()),
    )


def _critical(
    points: Sequence[BatchSizes], seen: Mapping[str, tuple[int, int]], level: float
) -> tuple[CriticalBatch | None, list[str]]:
    """The critical batch size from every run that the law describes; what is missing, and how to get it."""
    values: list[float] = []
    above: list[float] = []
    sizes: list[list[float]] = []
    hidden: list[bool] = []
    lacks, unknown, diverged = [], 0, 0
    for point in points:
        for run in point.group.runs:
            without, found = _between(run, seen)
            diverged += run.hopeless
            unknown += found <= 0 and not run.hopeless
            if found > 0 and not run.hopeless:
                values.append(found)
                above.append(without)
                sizes.append([point.mean_size])
                hidden.append(not run.reached)
    if unknown:
        lacks.append(f"left out of the critical size, as they do not say how many samples are too few: {unknown} runs")
    known = [point for point in points if point.group.reached]
    more, by_program = points[0].group.to_repeat, points[0].group.specification.scored_by is not None
    if diverged:
        lacks.append(
            f"{diverged} run{'s' * (diverged > 1)} diverged, failed or had a fixed length: outside of the law of the "
            "critical size, which is for runs that get there"
        )
    if all(point.group.specification.crossing == "final" for point in points):
        lacks.append(
            "runs that are judged at their end take the same samples at every batch size: for a critical size, take a "
            "recipe that stops at its target (a constant rate), or read them with --crossing confirmed"
        )
        return None, lacks
    if len({point.mean_size for point in known}) < 2 or not values:
        return None, [*lacks, *([_one_size(points, known)] if values or not unknown else [])]
    fit = fit_growth(values, sizes, hidden, level, above=above)
    if fit.rates[0] <= 0.0:
        largest = max(point.mean_size for point in known)
        bound = fit.intervals[0]
        low = (
            f"it is above {1 / bound.high:.3g}" if bound is not None and 0 < bound.high < math.inf else "it is unknown"
        )
        lacks.append(
            f"samples to the target do not grow up to a batch size of {largest:.4g}, so the critical size has no "
            f"estimate ({low}, {level * 100:g} %): try larger sizes"
        )
        return None, [*lacks, *_evaluation_lines(values, above, hidden)]
    interval, arrived = fit.intervals[0], fit.n - fit.censored
    if interval is None and not (fit.deviation < 1e-5 and arrived > 2):
        lacks.append(f"{arrived} runs are too few for a critical batch size: make more runs of each size ({more})")
        return None, [*lacks, *_evaluation_lines(values, above, hidden)]
    if interval is None:
        lacks.append(f"the critical batch size has no interval: all runs lie exactly on one curve; make more ({more})")
    else:
        interval = Interval(
            1 / interval.high if interval.high > 0 else math.inf,
            1 / interval.low if interval.low > 0 else math.inf,
            level,
            interval.method,
        )
        if fit.bracketed and interval.low <= 0.0 and math.isinf(interval.high):
            lacks.append(
                f"these runs bound the critical batch size on no side, so it has no estimate: make more ({more})"
            )
            return None, [*lacks, *_evaluation_lines(values, above, hidden)]
        if math.isinf(interval.high):
            lacks.append("the critical batch size has no upper bound: the samples hardly grow; try larger sizes")
        if interval.low <= 0.0:
            lacks.append("the critical batch size has no lower bound: even small batches need more; try smaller sizes")
    if min(point.group.n for point in points) < 2:
        lacks.append(f"a size with one run cannot tell luck from size: make more runs of each ({more})")
    means = [point.mean_size for point in known]
    if len(means) == 2:
        only = "two sizes fit every critical size exactly"
        if len(points) > len(known):
            only = "runs reached the target at two sizes alone, which fit every critical size"
        lacks.append(f"{only}, so the law is not tested: add sizes" + " (--sizes)" * (not by_program))
    if not min(means) <= 1 / fit.rates[0] <= max(means):
        tried = "were tried" if len(known) == len(points) else "reached the target"
        lacks.append(f"the critical batch size is outside the sizes that {tried}, {known[0].size} to {known[-1].size}")
    critical = CriticalBatch(1 / fit.rates[0], interval, fit.base, fit.base * fit.rates[0], fit)
    return critical, [*lacks, *_fit_lines(critical), *_evaluation_lines(values, above, hidden)]


def _one_size(points: Sequence[BatchSizes], known: Sequence[BatchSizes]) -> str:
    """Why there is no critical size if all runs that reached the target had as many examples a step."""
    by_program = points[0].group.specification.scored_by is not None
    if len(known) > 1:
        listed = " and ".join(str(point.size) for point in known)
        same = f"batch sizes {listed} all have {known[0].mean_size:.4g} examples a step"
        return f"{same}, so there is no critical batch size{_PARTS if by_program else ''}"
    reached = f"runs of one batch size ({known[0].size}) alone" if known else "no run"
    do = "give them more time (--epochs), another rate (--tune 5), or judge by another target (--target)"
    if by_program:
        do = "let the program run for longer or at another rate, or judge by another target (--target)"
    tried = sum(point.group.n for point in points)
    return f"{reached} of {tried} reached the target, so there is no critical batch size: {do}"


def _between(run: RunSummary, seen: Mapping[str, tuple[int, int]]) -> tuple[float, float]:
    """The samples between which the run reached the target, or those that it had seen without; 0 if not known."""
    known = [float(each) for each in run.samples_between]
    if run.reached:
        return (known[0], known[1]) if len(known) == 2 else (float(run.samples_to_target or 0),) * 2
    # Evaluations at the target that nothing confirmed do not say that it takes more samples than that.
    had = float(seen.get(run.id, (0, 0))[0])
    return (0.0, min(had, known[0]) if known else had)


def _evaluation_lines(values: Sequence[float], above: Sequence[float], hidden: Sequence[bool]) -> list[str]:
    """Whether evaluations are so far apart that they decide how well the critical size is known."""
    shares = sorted((high - low) / high for high, low, missed in zip(values, above, hidden, strict=True) if not missed)
    middle = shares[len(shares) // 2]
    if middle < _COARSE:
        return []
    return [
        f"the last {middle * 100:.0f} % of the samples to the target (median) lie between two evaluations: evaluate "
        "more often (--every) for a narrower interval of the critical size, which allows for that"
    ]


def _fit_lines(critical: CriticalBatch) -> list[str]:
    """Whether the samples follow the law, if they do not or nobody knows."""
    if critical.misfits:
        return [
            f"samples do not follow the law of the critical size (lack of fit p = {critical.fit.misfit:.2g}): its "
            "interval is too narrow. A rate that suits one size alone does that (--tune 5)"
        ]
    if critical.fit.misfit is None and critical.fit.censored:
        return [
            "whether samples follow the law of the critical size was not tested: at no size did several runs all reach "
            "the target; give them more time (--epochs)"
        ]
    return []


def _rule_of(points: Sequence[BatchSizes], name: str, searches: Sequence[Search]) -> str:
    """How the rate, the setting ``name``, depends on the size, in words; rates that a search chose follow no rule."""
    rates = [point.rate for point in points]
    spaces = [(search, [word for side in search.sides for word in side.space]) for search in searches]
    over = [search for search, words in spaces if any(word.startswith(f"{name}=") for word in words)]
    if any(rate is None or rate <= 0 for rate in rates):
        return "not a setting of these runs"
    known = [(point.size, float(rate or 0.0)) for point, rate in zip(points, rates, strict=True)]
    tried = {point.size: found.trials for point in points if (found := effort_behind(point.group.key, over))}
    if tried:
        return "; ".join(
            f"{rate:g} at {each}, " + (f"tuned ({tried[each]} trials)" if each in tried else "not tuned")
            for each, rate in known
        )
    size, first = known[0]
    for rule, power in RULES.items():
        if all(abs(rate / (first * (each / size) ** power) - 1) < _NEAR for each, rate in known):
            return f"{first:g} at every size" if rule == "none" else f"{rule} in the batch size, {first:g} at {size}"
    return "one for each size, by no rule: " + ", ".join(f"{rate:g} at {each}" for each, rate in known)


def _cut_lines(points: Sequence[BatchSizes]) -> list[str]:
    cut = [point for point in points if point.mean_size < (1 - _CUT) * point.size]
    if not cut:
        return []
    listed = ", ".join(f"{point.mean_size:.4g} at {point.size}" for point in cut)
    if points[0].group.specification.scored_by is not None:
        return [f"steps had fewer examples than the batch size: {listed} on average{_PARTS}"]
    found = [f"steps had fewer examples than the batch size, since an epoch ends with a rest: {listed} on average"]
    for a, b in pairwise(points):
        if b.mean_size < 1.05 * a.mean_size:
            found.append(
                f"batch sizes {a.size} and {b.size} hardly differ in the examples of a step: an epoch has no more"
            )
    return found


def _fastest_line(study: BatchSizeStudy) -> list[str]:
    best, base = study.fastest, study.points[0]
    if best is None or best.time_s is None:
        return []
    said = f"shortest time to the target: {best.time_s.value:.3g} s at batch size {best.size}"
    alike = _not_separated(study, best)
    if alike:
        return [f"{said}; {alike}"]
    if best is base or base.time_s is None or not (base.samples and best.samples):
        return [said]
    more = best.samples.value / base.samples.value
    said += f", against {base.time_s.value:.3g} s at {base.size}: {more:.3g} times the samples"
    if not (best.samples_per_s and base.samples_per_s):
        return [said]
    # Where some missed, these are medians and a mean, which need not multiply.
    return [f"{said} at {best.samples_per_s.value / base.samples_per_s.value:.3g} times as many a second"]


def _not_separated(study: BatchSizeStudy, best: BatchSizes) -> str:
    """Sizes that may be as fast, or why none is tested.

    By Welch's tests on logarithms or, where runs missed the target, by the ratio of censored times, at a level by
    Bonferroni; with room for late evaluations that few runs show.
    """
    others = [point for point in study.points if point is not best and point.group.reached]
    if not others:
        return ""
    times = {point.size: [each for each in point.group.times() if each is not None] for point in [best, *others]}
    if any(point.group.n < 2 for point in [best, *others]):
        return f"one run of a size is too few to say that another is slower ({best.group.to_repeat})"
    level = 1 - (1 - study.level) / len(others)

    def longer(point: BatchSizes) -> bool:
        missed = [tuple(each for each in side.group.given_up() if each > 0) for side in (best, point)]
        jumps = jumps_of(best.group.runs, point.group.runs)
        if not any(missed) and min(len(times[best.size]), len(times[point.size])) > 1:
            ratio = welch_log_ratio(times[best.size], times[point.size], level)
            return widened(ratio.ratio, ratio.interval, jumps).low > 1.0
        a, b = (CensoredTimes(tuple(times[side.size]), up) for side, up in zip((best, point), missed, strict=True))
        found = time_ratio(a, b, level)
        return found is not None and widened(found.ratio, found.interval, jumps).low > 1.0

    alike = [point.size for point in others if not longer(point)]
    return f"not clearly shorter than at {', '.join(map(str, alike))}: make more runs" if alike else ""


def _largest_line(study: BatchSizeStudy) -> list[str]:
    largest, last = study.largest, study.points[-1]
    short = [str(point.size) for point in study.points if point.ended_early]
    early = (
        f"; at {', '.join(short)} runs ended at a budget before their epochs did, and might converge" if short else ""
    )
    if largest is None:
        return [f"at no batch size does half of the runs reach the target{early}"]
    said = f"the largest batch size that still converges: {largest.size}, where {_reached(largest)} reach the target"
    below = [
        str(point.size)
        for point in study.points
        if point.size < largest.size and not point.converges and not point.ended_early
    ]
    odd = f"; smaller ones do not: {', '.join(below)}" if below else ""
    if largest is last:
        return [f"{said}; the limit is beyond the sizes that were tried{odd}{early}"]
    beyond = study.points[study.points.index(largest) + 1]
    return [f"{said}, and {_reached(beyond)} at {beyond.size}{odd}{early}"]


def _reached(point: BatchSizes) -> str:
    return f"{point.group.reached}/{point.group.n} [{point.share.low * 100:.0f}, {point.share.high * 100:.0f} %]"


def _span(interval: Interval) -> str:
    return f"[{interval.low:.3g}, {interval.high:.3g}]".replace("inf]", "without bound]")
