"""How often the intervals of the analyses hold the truth, and how their time grows with the number of runs.

    python benchmarks/analysis.py --coverage                    # each scenario 1,000 times, about 20 minutes
    python benchmarks/analysis.py --coverage --trials 100 --only batch
    python benchmarks/analysis.py --runs 1000,10000,100000      # seconds, and the exponent of their growth
    python benchmarks/evidence.py measure docs/evidence/analyses.md coverage    # and keep the table

Runs are made up in memory, from laws whose truth is known; reading records is not in the times: benchmarks/records.py
measures that. **held** is how often an interval holds the truth, or all intervals of a row that are joint do; **found**
how often an interval excludes that there is no effect: the power or, where there is none, the share of false findings.
``--coverage`` ends with 1 if a row holds less often than its level says, at a simultaneous binomial bound.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from itertools import count
from statistics import NormalDist
from zlib import crc32

import msgspec
import numpy as np

from levelbench.analysis.batch_size import study_batch_size
from levelbench.analysis.comparison import compare
from levelbench.analysis.composition import CompositionKind, compose, lesions
from levelbench.analysis.factorial import designs, fraction, lesion, one_at_a_time
from levelbench.analysis.scaling import EntryRuns, fit_scaling, scaling, scaling_of_entries
from levelbench.analysis.stability import by_machine, stability
from levelbench.analysis.threshold import TimedArm, TimedCurve, sweep
from levelbench.analysis.trajectory import trajectories
from levelbench.analysis.utilisation import peak_share
from levelbench.analysis.why import OperatorShares, Why, explain
from levelbench.measure.statistics import amdahl_bound, wilson
from levelbench.measure.statistics.distributions import binomial_cdf
from levelbench.measure.verdict import Verdict, VerdictKind
from levelbench.records import Distribution, Record, RunGroup, RunSummary, Specification
from levelbench.records.schema import End, Evaluation, Header, Source, Target

Random = np.random.Generator
LEVEL = 0.95

# Made-up runs.

TARGET = Target("top1", 0.9)
SPECIFICATION = Specification("digits", "mlp", "numpy", "cpu", {}, TARGET, "confirmed", "wall", "1 epoch", 9.0)
START = datetime(2026, 1, 1, tzinfo=UTC)
IDS = count()


def made_run(time_s: float | None, samples: int = 1000, seed: int = 0, **replaced: object) -> RunSummary:
    """A run that reached the target in ``time_s``, one third of it forward, the rest backward; or that missed.

    Runs start by seed, a second apart, and those of one seed in any order, so that arms take turns.
    """
    reached, known, number = time_s is not None, time_s or 1.0, next(IDS)
    start = START + timedelta(seconds=seed, microseconds=crc32(str(number).encode()) % 1_000_000)
    base = RunSummary(
        id=f"{number:08x}",
        key="k",
        task="digits",
        recipe="mlp",
        framework="numpy",
        device="cpu",
        settings={},
        seed=seed,
        status="done",
        reached=reached,
        target=TARGET,
        crossing="confirmed",
        clock="wall",
        time_to_accuracy_s=time_s,
        given_up_s=None if reached else 5.0,
        excluded_s={},
        epochs_to_target=samples / 100 if reached else None,
        samples_to_target=samples if reached else None,
        steps_to_target=samples // 10 if reached else None,
        time_per_step_s=0.001,
        phases_s={"forward": known / 3, "backward": 2 * known / 3},
        quality={"validation": 0.95, "test": 0.94},
        peak_memory_bytes=None,
        energy_j=None,
        energy_method=None,
        energy_reason="none",
        environment={"machine": {"id": "m1"}},
        started=start.isoformat(timespec="microseconds"),
        wall_s=known,
        error=None,
        suspect=[],
        path="p",
        synthetic=False,
    )
    return msgspec.structs.replace(base, **replaced)


def made_group(label: str, runs: Iterable[RunSummary], **replaced: object) -> RunGroup:
    """A group of such runs, with parts of its specification replaced."""
    return RunGroup(label, label, msgspec.structs.replace(SPECIFICATION, **replaced), tuple(runs))


# What is simulated. A judgement is whether all statements of a trial were true, and the share of effects found.

Said = tuple[float | None, float | None, float, float | None]
"""The ends of an interval (``None``: open), the truth, and the value without an effect (``None``: nothing to find)."""
Judgement = tuple[bool, float | None]
Judgements = dict[str, Judgement]
Trial = Callable[[Random], Judgements]


def judged(said: Iterable[Said]) -> Judgement:
    """Of intervals that hold jointly; where there is no effect, one that excludes this is a false finding."""
    bounds = [
        (-math.inf if low is None else low, math.inf if high is None else high, *rest) for low, high, *rest in said
    ]
    found = [
        (truth != nothing, not low <= nothing <= high) for low, high, truth, nothing in bounds if nothing is not None
    ]
    real = [each for effect, each in found if effect]
    share = sum(real) / len(real) if real else float(any(each for _, each in found)) if found else None
    return all(low <= truth <= high for low, high, truth, _ in bounds), share


FACTORS = {"a": 0, "b": 0, "c": 0, "d": 0, "e": 0}
GAINS = {"a": 0.7, "b": 0.9, "c": 1.2, "d": 1.0, "e": 0.8}
TOGETHER = {("a", "c"): 1.3}
"""What two factors do beyond their product."""


def planted(on: frozenset[str]) -> float:
    """Seconds with these factors."""
    pairs = (factor for pair, factor in TOGETHER.items() if set(pair) <= on)
    return 10.0 * math.prod(GAINS[each] for each in on) * math.prod(pairs)


def nothing(on: frozenset[str]) -> float:
    """Seconds if no factor does anything."""
    return 10.0


def effect_of(subset: Sequence[str]) -> float:
    """The planted effect: of a single factor averaged over the others, of which half are on."""
    if len(subset) > 1:
        return TOGETHER.get(tuple(subset), 1.0)
    return GAINS[subset[0]] * math.prod(factor**0.5 for pair, factor in TOGETHER.items() if subset[0] in pair)


def fractional() -> list[frozenset[str]]:
    """The arms of a fraction of five factors, with none and each alone."""
    return list(dict.fromkeys([*one_at_a_time(tuple(FACTORS)), *fraction(tuple(FACTORS)).arms]))


def experiment(
    arms: Iterable[frozenset[str]],
    seconds: Callable[[frozenset[str]], float] = planted,
    seed: int | Random = 0,
    *,
    spread: float = 0.03,
    samples_spread: float = 0.0,
    budget: float = math.inf,
    n: int = 5,
    names: Sequence[str] = tuple(FACTORS),
    late: float = 0.0,
) -> list[RunGroup]:
    """``n`` runs of each arm, with seeds whose luck they share; those that take longer than ``budget`` miss.

    Half of what a factor does is in the samples, half in the time for one. ``late``: this share of the runs with the
    first factor on needs an eleventh evaluation, which a cheaper step makes up for on average.
    """
    rng = np.random.default_rng(seed)
    luck, groups = np.exp(rng.normal(0, 0.3, n)), []
    for on in arms:
        settings = {name: int(name in on) for name in names}
        counts = 1e6 * np.sqrt(seconds(on) / 10) * luck * np.exp(rng.normal(0, samples_spread, n))
        times = counts * 1e-5 * np.sqrt(seconds(on) / 10) * np.exp(rng.normal(0, spread, n))
        more: dict[str, object] = {}
        needed = np.full(n, 10)
        if late and names[0] in on:
            needed = 10 + (rng.random(n) < late)
            counts, times = counts * needed / 10, times * needed / 10 * 1.1**-late
        runs = []
        for at, (time_s, samples, evaluations) in enumerate(zip(times, counts, needed.tolist(), strict=True)):
            more = {"settings": settings, "evaluations": evaluations if late else 0}
            if time_s > budget:
                more |= {"given_up_s": budget, "samples_to_target": None}
            runs.append(made_run(float(time_s) if time_s <= budget else None, round(samples), at, **more))
        groups.append(made_group("+".join(sorted(on)) or "none", runs, settings=settings))
    return groups


def true_verdict(found: Verdict, truth: float) -> Judgement:
    """Whether a verdict is not false of the true ratio."""
    right = {
        VerdictKind.FASTER: truth < 1,
        VerdictKind.SLOWER: truth > 1,
        VerdictKind.SAME: abs(math.log(truth)) <= math.log1p(found.margin),
    }.get(found.kind, True)
    return right, float(found.kind is not VerdictKind.UNCLEAR)


def lesion_trial(rng: Random, seconds: Callable[[frozenset[str]], float] = planted, **how: float) -> Judgements:
    """Three factors, all but one each."""
    names, every = ("a", "b", "c"), frozenset("abc")
    groups = experiment(lesion(names), seconds, rng, names=names, spread=0.1, **how)
    said, kinds = [], []
    for each in lesions(groups, {name: FACTORS[name] for name in names}).against:
        truth = seconds(every) / seconds(every - {each.factor})
        said.append((each.verdict.low, each.verdict.high, truth, 1.0))
        kinds.append(true_verdict(each.verdict, truth))
    right, clear = zip(*kinds, strict=True)
    return {"gains, jointly": judged(said), "verdicts, jointly": (all(right), sum(clear) / len(clear))}


def composition_trial(
    rng: Random,
    arms: Sequence[frozenset[str]],
    seconds: Callable[[frozenset[str]], float] = planted,
    **how: float,
) -> Judgements:
    """Effects and interactions, the departure of the combination from the product, and the answer."""
    names = sorted(frozenset().union(*arms))
    groups = experiment(arms, seconds, rng, names=names, samples_spread=0.05, **{"spread": 0.1, **how})
    found = compose(groups, {name: FACTORS[name] for name in names})
    none = seconds is nothing
    truths = {each.factors: 1.0 if none else effect_of(each.factors) for each in found.effects}
    said = [(each.found.low, each.found.high, truths[each.factors], 1.0) for each in found.effects]
    judgements = {"effects and interactions, jointly": judged(said)}
    if "budget" not in how and "late" not in how:
        halves = [(each, truths[each.factors] ** 0.5) for each in found.effects if each.split is not None]
        judgements["samples of these, jointly"] = judged(
            (each.split.samples.low, each.split.samples.high, truth, 1.0) for each, truth in halves
        )
        judgements["time per sample of these, jointly"] = judged(
            (each.split.per_sample.low, each.split.per_sample.high, truth, 1.0) for each, truth in halves
        )
    departure = 1.0 if none else math.prod(v for pair, v in TOGETHER.items() if set(pair) <= set(names))
    judgements["measured over predicted time"] = judged([(found.departure.low, found.departure.high, departure, 1.0)])
    right = {
        CompositionKind.COMPOSABLE: abs(math.log(departure)) <= math.log1p(found.margin),
        CompositionKind.SUB_MULTIPLICATIVE: departure > 1,
        CompositionKind.SUPER_MULTIPLICATIVE: departure < 1,
    }.get(found.kind, True)
    judgements["answer"] = (right, float(found.kind is not CompositionKind.UNCLEAR))
    return judgements


SIZES = (32, 64, 128, 256, 512, 1024, 2048)
CRITICAL = 300.0


def drawn(
    rng: Random, critical: float = CRITICAL, runs: int = 5, deviation: float = 0.2, sizes: Sequence[int] = SIZES
) -> dict[int, list[int | None]]:
    """Samples to target by batch size that follow the law of the critical size."""
    return {
        size: [round(1e4 * (1 + size / critical) * math.exp(deviation * rng.standard_normal())) for _ in range(runs)]
        for size in sizes
    }


def batch_groups(
    found: Mapping[int, Sequence[int | None]],
    rate: Callable[[int], float] = lambda size: 0.01 * size,
    per_s: Callable[[int], float] = lambda size: 1000.0,
    every: Callable[[int], int] | None = None,
    **replaced: object,
) -> list[RunGroup]:
    """Groups of runs by batch size, from their samples to target, at ``per_s`` samples a second.

    Evaluated each ``every`` samples, a run reaches the target at the next evaluation, and counts at the one after it.
    """
    made = []
    for size, exact in found.items():
        step = every(size) if every else 0
        first = [each and -(-each // step) * step if step else each for each in exact]
        samples = [each and each + step for each in first]
        settings = {"batch": size, "lr": rate(size), **replaced.get("settings", {})}
        rest = {name: value for name, value in replaced.items() if name != "settings"}
        runs = [
            made_run(
                None if each is None else each / per_s(size),
                each or 1000,
                seed,
                steps_to_target=None if each is None else round(each / size),
                samples_between=[at - step, at] if step and at else [],
                settings=settings,
                **rest,
            )
            for seed, (each, at) in enumerate(zip(samples, first, strict=True))
        ]
        made.append(made_group(f"digits[batch={size}]", runs, settings=settings))
    return made


def capped(
    samples: Mapping[int, Sequence[int | None]],
    cap: int | None = None,
    every: Callable[[int], int] | None = None,
) -> tuple[list[RunGroup], dict[str, tuple[int, int]]]:
    """Groups of these runs, those that need more than ``cap`` samples given up there; what these had seen by then."""
    kept = {size: [None if cap and each > cap else each for each in of] for size, of in samples.items()}
    groups = batch_groups(kept, every=every)
    seen = {
        run.id: (cap or 0, round((cap or 0) / group.specification.settings["batch"]))
        for group in groups
        for run in group.runs
        if not run.reached
    }
    return groups, seen


def batch_trial(
    rng: Random,
    cap: int | None = None,
    critical: float = CRITICAL,
    every: Callable[[int], int] | None = None,
    **how: object,
) -> Judgements:
    """The critical batch size, infinite where batches of every size need the same samples."""
    found = study_batch_size(*capped(drawn(rng, critical, **how), cap, every)).critical
    if found is not None and found.interval is None:
        return {}
    interval = (math.inf, math.inf) if found is None else (found.interval.low, found.interval.high)
    return {"critical batch size": judged([(*interval, critical, math.inf)])}


def each_epoch(size: int) -> int:
    """Samples between evaluations, most of what the smallest batches need."""
    return 8000


def each_20_steps(size: int) -> int:
    """Samples between evaluations, which grow with the batch."""
    return 20 * size


def stability_group(
    times: Sequence[float | None],
    samples: Sequence[int] | None = None,
    day: Sequence[int] | None = None,
    seeds: Sequence[int] | None = None,
    label: str = "digits",
) -> RunGroup:
    """Runs in order, ``None`` for one that was given up after 5 s; those that repeat a seed count as repeats."""
    samples, seeds = samples or [1000] * len(times), seeds or range(len(times))
    starts = [START + timedelta(days=day[at] if day else 0, seconds=at) for at in range(len(times))]
    runs = [
        made_run(time_s, of, seed, started=start.isoformat())
        for time_s, of, seed, start in zip(times, samples, seeds, starts, strict=True)
    ]
    first: dict[int, RunSummary] = {}
    for each in runs:
        first.setdefault(each.seed, each)
    counted = [each for each in runs if first[each.seed] is each]
    return replace(made_group(label, counted), repeats=tuple(each for each in runs if each not in counted))


def components_trial(
    rng: Random, seeds: int, days: int, of_seed: float, of_day: float, missing: float = 0.0, drift: float = 0.0
) -> Judgements:
    """Seeds that are run again on several days: deviations over that from run to run, and the drift within a day."""
    rest = 0.1
    seed, session = np.tile(np.arange(seeds), days), np.repeat(np.arange(days), seeds)
    logs = of_seed * rng.standard_normal(seeds)[seed] + of_day * rng.standard_normal(days)[session]
    # Seeds come in another order every day, or the drift could not be told from them.
    order = np.concatenate([day * seeds + rng.permutation(seeds) for day in range(days)])
    logs = logs[order] + rest * rng.standard_normal(seeds * days) + drift * np.tile(np.arange(seeds), days)
    times = [None if gone else math.exp(each) for each, gone in zip(logs, rng.random(len(logs)) < missing, strict=True)]
    found = stability(stability_group(times, day=session[order].tolist(), seeds=seed[order].tolist()))
    parts = {part.source: part for part in found.parts}
    judgements = {}
    for source, true in (("seed", of_seed), ("session", of_day)):
        if ratio := parts[source].ratio:
            judgements[f"{source} over run to run"] = judged([(ratio.low, ratio.high, true / rest, 0.0)])
    if (slope := parts["order"].slope) and not missing:
        judgements["drift"] = judged([(slope.interval.low, slope.interval.high, drift, 0.0)])
    return judgements


def session_trial(rng: Random, n: int, cap: float = math.inf) -> Judgements:
    """One session; runs that take longer than ``cap`` are given up there."""
    of_samples, of_time, most = 0.2, 0.1, 5.0
    spread = math.hypot(of_samples, of_time)
    samples = np.exp(of_samples * rng.standard_normal(n))
    times = samples * np.exp(of_time * rng.standard_normal(n)) * (most / cap if cap < math.inf else 1.0)
    missed = times > most if cap < math.inf else np.zeros(n, bool)
    found = stability(
        stability_group(
            [None if gone else each for each, gone in zip(times.tolist(), missed.tolist(), strict=True)],
            np.rint(1e6 * samples).astype(int).tolist(),
        )
    )
    judgements: Judgements = {}
    # Runs are given up where a log-normal time exceeds the cap: its mean below there is known.
    reach, normal = math.log(cap) / spread if cap < math.inf else math.inf, NormalDist()
    share = normal.cdf(reach) if cap < math.inf else 1.0
    below = math.exp(spread**2 / 2) * (normal.cdf(reach - spread) if cap < math.inf else 1.0) / share
    restarts = (below + min(cap, 1e9) * (1 - share) / share) * (most / cap if cap < math.inf else 1.0)
    if cap < math.inf:
        judgements["share that arrives"] = judged([(found.share.low, found.share.high, share, None)])
    if found.restarts is not None and (interval := found.restarts.interval):
        judgements["expected time with restarts"] = judged([(interval.low, interval.high, restarts, None)])
    if cap < math.inf:
        return judgements
    parts = {part.source: part for part in found.parts}
    for source, true in (("samples to target", of_samples), ("time per sample", of_time)):
        interval = parts[source].interval
        judgements[f"deviation of {source}"] = judged([(interval.low, interval.high, true, None)])
    if slope := parts["order"].slope:
        judgements["drift"] = judged([(slope.interval.low, slope.interval.high, 0.0, 0.0)])
    variation = found.variation.interval
    if variation is not None:
        judgements["coefficient of variation"] = judged(
            [(variation.low, variation.high, math.sqrt(math.expm1(spread**2)), None)]
        )
    return judgements


PHASES = {"data": (0.2, 0.3), "forward": (1.0, 0.8), "backward": (2.0, 1.0)}
"""Microseconds a sample on both sides."""
SHARES = {"Conv": (0.6, 0.3), "Relu": (0.3, 0.5)}
"""Of the forward pass."""


def attributable(
    rng: Random, n: int, paired: bool, same: bool = False, cap: float = math.inf, exact: bool = False
) -> Callable[[], Why]:
    """The attribution of ``n`` runs a side, to be asked for; ``exact`` profiles have no error."""
    luck, groups, profiles = rng.normal(0, 0.3, n), [], []
    for side in (0, 0) if same else (0, 1):
        own = luck if paired else rng.normal(0, 0.3, n)
        samples = np.rint(np.exp(math.log(1e6) + own + rng.normal(0, 0.05, n)))
        table = np.exp(rng.normal(np.log([1e-6 * each[side] for each in PHASES.values()]), 0.15, (n, len(PHASES))))
        runs = []
        for at, (count_, row) in enumerate(zip(samples.tolist(), (table * samples[:, None]).tolist(), strict=True)):
            phases, time_s = dict(zip(PHASES, row, strict=True)), math.fsum(row)
            seed = at if paired else at + n * len(groups)
            if time_s <= cap:
                runs.append(made_run(time_s, int(count_), seed, phases_s=phases))
            else:
                runs.append(made_run(None, 1, seed, given_up_s=cap))
        groups.append(made_group("ab"[len(groups)], runs))
        error = rng.normal(0, 0.0 if exact else 0.02, (len(SHARES), 4))
        drawn_ = {name: (each[side] + row).tolist() for (name, each), row in zip(SHARES.items(), error, strict=True)}
        profiles.append(OperatorShares(drawn_, {}))
    return partial(explain, *groups, profiles=(profiles[0], profiles[1]))


@cache
def attribution(paired: bool, cap: float) -> dict[tuple[str, str], float]:
    """The true factors: those of so many runs that their error does not count, geometric means over several draws."""
    rng = np.random.default_rng(0)
    found = [attributable(rng, 2000, paired, cap=cap, exact=True)().factors for _ in range(10)]
    whole = {(each.within, each.name): [] for each in found[0]}
    for factors in found:
        for each in factors:
            whole[each.within, each.name].append(each.log_ratio)
    return {name: math.exp(math.fsum(logs) / len(logs)) for name, logs in whole.items()}


def why_trial(rng: Random, n: int, paired: bool, same: bool = False, cap: float = math.inf) -> Judgements:
    """Every factor by itself, as they are stated; of sides that do not differ, all are 1."""
    found, judgements = attributable(rng, n, paired, same, cap)(), {}
    truths = {} if same else attribution(paired, cap)
    for each in found.factors:
        if each.interval is not None:
            truth = truths.get((each.within, each.name), 1.0)
            judgements[each.name] = judged([(each.interval.low, each.interval.high, truth, 1.0)])
    return judgements


RANKS = (1, 2, 4, 8, 16)


def law_times(
    rng: Random,
    contention: float,
    coherency: float = 0.0,
    *,
    runs: int = 4,
    base: float = 20.0,
    deviation: float = 0.05,
    ranks: Sequence[int] = RANKS,
) -> dict[int, list[float]]:
    """Seconds by number of ranks that follow the Universal Scalability Law; without coherency, Amdahl's."""
    return {
        p: (
            base
            * (1 / amdahl_bound(p, contention) + coherency * (p - 1))
            * np.exp(deviation * rng.standard_normal(runs))
        ).tolist()
        for p in ranks
    }


def law_trial(
    rng: Random, contention: float, coherency: float = 0.0, cap: float = math.inf, **how: object
) -> Judgements:
    """Both laws; from eight ranks on, or where a run is slow, runs longer than ``cap`` are given up."""
    drawn_ = law_times(rng, contention, coherency, **how)
    times = {p: [each for each in of if each <= cap] for p, of in drawn_.items()}
    found = fit_scaling("accuracy", times, {p: [cap for each in of if each > cap] for p, of in drawn_.items()})
    judgements = {}
    if found.serial_interval is not None and not coherency:
        judgements["Amdahl's serial share"] = judged(
            [(found.serial_interval.low, found.serial_interval.high, contention, 0.0)]
        )
    for name, interval, truth in (
        ("contention", found.contention_interval, contention),
        ("coherency", found.coherency_interval, coherency),
    ):
        if interval is not None:
            judgements[name] = judged([(interval.low, interval.high, truth, 0.0)])
    return judgements


def efficiency_trial(rng: Random, serial: float, runs: int) -> Judgements:
    """The efficiency of eight ranks."""
    times = law_times(rng, serial, runs=runs, deviation=0.1, ranks=(1, 8))
    entries = [EntryRuns(str(p), p, tuple(of), tuple(of)) for p, of in times.items()]
    found = scaling_of_entries("t", entries).points[1].to_accuracy
    return {"efficiency": judged([(found.low, found.high, amdahl_bound(8, serial) / 8, 1.0)])}


def scenarios() -> dict[str, Trial]:
    """Everything that is simulated, by its name."""
    full = designs(("a", "b", "c"))
    return {
        "lesion, 3 factors": lesion_trial,
        "lesion, no effect": partial(lesion_trial, seconds=nothing),
        "lesion, slow runs given up": partial(lesion_trial, budget=11.0),
        "lesion, no effect, slow runs given up": partial(lesion_trial, seconds=nothing, budget=12.0),
        "full design, 3 factors": partial(composition_trial, arms=full),
        "full design, 3 runs an arm": partial(composition_trial, arms=full, n=3),
        "full design, no effect": partial(composition_trial, arms=full, seconds=nothing),
        "full design, slow runs given up": partial(composition_trial, arms=full, budget=11.0),
        "full design, no effect, slow runs given up": partial(
            composition_trial, arms=full, seconds=nothing, budget=15.0
        ),
        "full design, no effect, late evaluations": partial(
            composition_trial, arms=full, seconds=nothing, late=0.15, spread=0.01
        ),
        "fraction, 5 factors": partial(composition_trial, arms=fractional()),
        "fraction, no effect": partial(composition_trial, arms=fractional(), seconds=nothing),
        "fraction, slow runs given up": partial(composition_trial, arms=fractional(), budget=11.0),
        "batch size, all arrive": batch_trial,
        "batch size, a third given up": partial(batch_trial, cap=50_000),
        "batch size, 3 sizes, 3 runs": partial(batch_trial, sizes=(32, 256, 2048), runs=3),
        "batch size, 3 sizes, 3 runs, a third given up": partial(
            batch_trial, sizes=(32, 256, 2048), runs=3, cap=50_000
        ),
        "batch size, evaluated each 8,000 samples": partial(batch_trial, every=each_epoch, deviation=0.1),
        "batch size, evaluated each 20 steps": partial(batch_trial, every=each_20_steps, deviation=0.1),
        "batch size, evaluated each 8,000 samples, a third given up": partial(
            batch_trial, every=each_epoch, deviation=0.1, cap=48_000
        ),
        "batch size, evaluated each 8,000 samples, no effect": partial(
            batch_trial, every=each_epoch, critical=math.inf
        ),
        "batch size, no effect": partial(batch_trial, critical=math.inf),
        "batch size, no effect, a third given up": partial(batch_trial, critical=math.inf, cap=11_000),
        "stability, 12 seeds on 4 days": partial(components_trial, seeds=12, days=4, of_seed=0.3, of_day=0.1),
        "stability, 5 seeds on 3 days": partial(components_trial, seeds=5, days=3, of_seed=0.2, of_day=0.1),
        "stability, a fifth missed": partial(components_trial, seeds=10, days=3, of_seed=0.1, of_day=0.05, missing=0.2),
        "stability, no effect": partial(components_trial, seeds=8, days=3, of_seed=0.0, of_day=0.0),
        "stability, drift": partial(components_trial, seeds=8, days=3, of_seed=0.1, of_day=0.1, drift=0.05),
        "stability, one session of 5": partial(session_trial, n=5),
        "stability, one session of 20": partial(session_trial, n=20),
        "stability, 10 runs, a quarter given up": partial(session_trial, n=10, cap=1.15),
        "stability, 30 runs, a quarter given up": partial(session_trial, n=30, cap=1.15),
        "attribution, pairs": partial(why_trial, n=6, paired=True),
        "attribution, other seeds": partial(why_trial, n=6, paired=False),
        "attribution, 3 pairs": partial(why_trial, n=3, paired=True),
        "attribution, other seeds, 3 runs a side": partial(why_trial, n=3, paired=False),
        "attribution, no effect": partial(why_trial, n=6, paired=True, same=True),
        "attribution, no effect, other seeds": partial(why_trial, n=6, paired=False, same=True),
        "attribution, other seeds, slow runs given up": partial(why_trial, n=8, paired=False, cap=4.0),
        "attribution, pairs, slow runs given up": partial(why_trial, n=8, paired=True, cap=4.0),
        "scaling, Amdahl": partial(law_trial, contention=0.2, deviation=0.2),
        "scaling, Amdahl, slow runs given up": partial(law_trial, contention=0.2, deviation=0.2, cap=8.0),
        "scaling, Amdahl, 3 numbers of ranks, 3 runs": partial(law_trial, contention=0.1, ranks=(1, 2, 4), runs=3),
        "scaling, no effect": partial(law_trial, contention=0.0),
        "scaling, Universal Scalability Law": partial(law_trial, contention=0.05, coherency=0.005),
        "scaling, Universal, slow runs given up": partial(
            law_trial, contention=0.05, coherency=0.01, deviation=0.2, cap=12.0
        ),
        "scaling, efficiency": partial(efficiency_trial, serial=0.05, runs=5),
        "scaling, efficiency, no effect": partial(efficiency_trial, serial=0.0, runs=3),
    }


@dataclass(frozen=True)
class Outcome:
    """How often a statement of a scenario held among ``given``, the trials that made it, and how often it found."""

    name: str
    held: int
    given: int
    found: float | None

    def below(self, rows: int) -> bool:
        """Whether it holds less often than the level explains in one of so many rows, at 95 %."""
        return binomial_cdf(self.held, self.given, LEVEL) < 0.05 / rows

    def cells(self, trials: int) -> tuple[str, ...]:
        """A row of the table."""
        share = wilson(self.held, self.given)
        held = f"{100 * self.held / self.given:.1f} [{100 * share.low:.1f}, {100 * share.high:.1f}]"
        found = "–" if self.found is None else f"{100 * self.found:.1f}"
        return self.name, f"{100 * LEVEL:g}", held, found, f"{100 * self.given / trials:.1f}"


def simulate(name: str, trials: int) -> list[Outcome]:
    """All trials of a scenario."""
    rng, trial = np.random.default_rng([24, *name.encode()]), scenarios()[name]
    kept: dict[str, list[Judgement]] = {}
    for _ in range(trials):
        for what, judgement in trial(rng).items():
            kept.setdefault(what, []).append(judgement)
    outcomes = []
    for what, judgements in kept.items():
        found = [share for _, share in judgements if share is not None]
        outcomes.append(
            Outcome(
                f"{name}: {what}",
                sum(held for held, _ in judgements),
                len(judgements),
                sum(found) / len(found) if found else None,
            )
        )
    return outcomes


def coverage(trials: int, only: str, jobs: int | None) -> int:
    """Print the table of coverage; 1 if a row holds too rarely."""
    names, outcomes = [name for name in scenarios() if only in name], []
    columns = ("scenario: statement", "level, %", "held, % [95 %]", "found, %", "made, %")
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    with ProcessPoolExecutor(jobs) as pool:
        for each in pool.map(partial(simulate, trials=trials), names):
            outcomes += each
            print("\n".join(f"| {' | '.join(one.cells(trials))} |" for one in each), flush=True)
    below = [each.name for each in outcomes if each.below(len(outcomes))]
    print(f"\n{len(outcomes)} rows of {trials} trials; below their level: {'; '.join(below) or 'none'}")
    return int(bool(below))


# How long the analyses take.

TARGETS = (0.9, 0.92, 0.94, 0.95, 0.96)
EVALUATIONS = 50
Work = Callable[[], object]


def scaled_point(
    ranks: int,
    times: Sequence[float | None],
    epoch_s: float = 1.0,
    threads: int = 1,
    scheme: str = "all-reduce",
    cores: int = 64,
    grows: str = "strong",
    **team_facts: object,
) -> tuple[RunGroup, list[Record]]:
    """A group of runs on so many ranks, and their records."""
    team = Distribution(ranks, scheme, {}, "process", "gloo", grows) if ranks > 1 else None
    specification = msgspec.structs.replace(SPECIFICATION, distribution=team)
    environment = {"machine": {"id": "m1", "cores_allowed": cores}, "framework": {"threads": threads}}
    label, key = f"digits[ranks={ranks}]", f"k{ranks}{scheme}{grows.removeprefix('strong')}"
    more = {"distribution": team, "environment": environment}
    runs = [made_run(time_s, seed=at, path=f"{key}-{at}", **more) for at, time_s in enumerate(times)]
    phases = {"forward": round(4e9 * epoch_s), "evaluate": 9_000_000_000}
    evaluations = (Evaluation(13_000_000_000, 40, 4.0, 400, {"validation": 0.9}, 1.0, phases),)
    end = End("done", 1, {}, environment_after={"team": team_facts})
    source = Source("", "", "")
    records = [
        Record(
            each.path,
            Header(1, "i", "k", each.seed, "", specification, {}, source, ""),
            evaluations,
            {},
            (),
            end,
            "done",
        )
        for each in runs
    ]
    return RunGroup(label, key, specification, tuple(runs)), records


def log_normal(runs: int, seed: int = 0, typical: float = 1.0) -> list[float | None]:
    """Times of so many runs, of which one in ten missed the target."""
    times = typical * np.exp(0.1 * np.random.default_rng(seed).standard_normal(runs))
    return [None if at % 10 == 9 else each for at, each in enumerate(times.tolist())]


def of_stability(runs: int) -> Work:
    """Of one group."""
    group = made_group("a", [made_run(each, seed=at) for at, each in enumerate(log_normal(runs))])
    return lambda: [stability(each) for each in by_machine([group])]


def of_threshold(runs: int) -> Work:
    """Of one arm, whose runs have a curve each."""
    rng, times = np.random.default_rng(runs), tuple(map(float, range(1, EVALUATIONS + 1)))
    rise = 0.97 * (1 - np.exp(-np.arange(1, EVALUATIONS + 1) / 8))
    curves = (tuple((rise + 0.005 * rng.standard_normal(EVALUATIONS)).tolist()) for _ in range(runs))
    arm = TimedArm("made-up", tuple(TimedCurve(times, curve, "end") for curve in curves), "confirmed")
    return lambda: sweep([arm], TARGETS, 0.94)


def of_comparison(runs: int) -> Work:
    """Of two groups with the same seeds."""
    a, b = (
        made_group(name, [made_run(each, seed=at) for at, each in enumerate(log_normal(runs // 2, place))])
        for place, name in enumerate("ab")
    )
    return lambda: compare(a, b)


def of_attribution(runs: int, paired: bool) -> Work:
    """Of two groups."""
    return attributable(np.random.default_rng(0), runs // 2, paired, cap=5.0)


def of_trajectories(runs: int) -> Work:
    """Of the losses of pairs at ten evaluations."""
    rng, target = np.random.default_rng(0), TARGET
    sides = []
    for _ in range(2):
        losses = np.exp(rng.normal(0, 0.1, (runs // 2, 10))).tolist()
        sides.append(
            {
                seed: [Evaluation(at, at, 1.0 * at, 100 * at, {}, loss, {}) for at, loss in enumerate(row, 1)]
                for seed, row in enumerate(losses)
            }
        )
    return lambda: trajectories(*sides, target)


def of_composition(runs: int, arms: Sequence[frozenset[str]]) -> Work:
    """Of a design; some runs are given up."""
    names = sorted(frozenset().union(*arms))
    groups = experiment(arms, n=runs // len(arms), names=names, budget=15.0)
    analyse = lesions if frozenset() not in arms else compose
    return lambda: analyse(groups, {name: FACTORS[name] for name in names})


def of_batch_size(runs: int) -> Work:
    """Of seven sizes; some runs are given up."""
    samples = drawn(np.random.default_rng(0), runs=runs // len(SIZES))
    groups, seen = capped(samples, 50_000)
    return lambda: study_batch_size(groups, seen)


def of_scaling(runs: int) -> Work:
    """Of five numbers of ranks."""
    points = [scaled_point(p, log_normal(runs // len(RANKS), p, 20 / p + 1), 1 / p) for p in RANKS]
    groups, records = [group for group, _ in points], [each for _, several in points for each in several]
    return lambda: scaling("t", groups, records)


def of_utilisation(runs: int) -> Work:
    """Of one group's examples a second."""
    rates = [1000 / each for each in log_normal(runs) if each]
    return lambda: peak_share("a", rates, 1e9, 1e13)


ANALYSES: dict[str, Callable[[int], Work]] = {
    "stability": of_stability,
    "threshold": of_threshold,
    "comparison": of_comparison,
    "attribution, pairs": partial(of_attribution, paired=True),
    "attribution, other seeds": partial(of_attribution, paired=False),
    "trajectories": of_trajectories,
    "composition, full design of 3 factors": partial(of_composition, arms=designs(("a", "b", "c"))),
    "composition, fraction of 5 factors": partial(of_composition, arms=fractional()),
    "lesion of 3 factors": partial(of_composition, arms=lesion(("a", "b", "c"))),
    "batch size": of_batch_size,
    "scaling": of_scaling,
    "utilisation": of_utilisation,
}


def seconds(work: Work) -> float:
    """Processor seconds of one call, which other programs do not change much."""
    start = time.process_time()
    work()
    return time.process_time() - start


def durations(counts: Sequence[int], only: str) -> int:
    """Print the time of each analysis by number of runs, and the exponent of its growth at the end."""
    columns = ["analysis", *(f"{runs:,} runs, s" for runs in counts), "exponent"]
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for name, prepare in ANALYSES.items():
        if only in name:
            took = [seconds(prepare(runs)) for runs in counts]
            growth = "–"
            if len(took) > 1:
                growth = f"{math.log(took[-1] / took[-2]) / math.log(counts[-1] / counts[-2]):.2f}"
            print(f"| {' | '.join([name, *(f'{each:.3f}' for each in took), growth])} |", flush=True)
    return 0


def main() -> int:
    """Print one of the two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--coverage", action="store_true", help="how often intervals hold the truth, instead of times")
    parser.add_argument("--runs", default="1000,10000,100000")
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--only", default="", help="only rows with this text in their name")
    parser.add_argument("--jobs", type=int, default=None, help="processes (default: one a core)")
    given = parser.parse_args()
    if given.coverage:
        return coverage(given.trials, given.only, given.jobs)
    return durations([int(word) for word in given.runs.split(",")], given.only)


if __name__ == "__main__":
    sys.exit(main())
