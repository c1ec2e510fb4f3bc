"""One group of runs as a side of a claim, or as a point of a scaling study, with everything that the records know.

What the record has is stated; what it cannot know (who tuned, the state of caches, the cost) stays unknown. An
environment has no schema, so ``tidied`` drops parts of another type. Only what its phases say is stated about a clock
policy.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import msgspec

from levelbench.analysis.ties import estimate_to_target
from levelbench.claims.view import (
    ClockView,
    CurveView,
    DataView,
    HardwareView,
    Operations,
    QualityView,
    RunView,
    ScalingPoint,
    Setup,
    Side,
    Split,
    TimingView,
    TuningView,
    WorkloadView,
)
from levelbench.measure.environment import machine_of, system_of
from levelbench.measure.policies import POLICIES, ClockPolicy, policy
from levelbench.measure.statistics import Estimate, estimate, estimate_signed
from levelbench.measure.timeline import Phase
from levelbench.records import Record, RunGroup, RunSummary, Specification
from levelbench.records.operations import peaks_of, use_of_operations
from levelbench.records.summary import COUNTED

__all__ = ["batch_of", "clock_of", "digest_of", "ends_of", "is_study", "mean_of", "mode_of", "points_of"]
__all__ += ["quality_of", "ranks_of", "rate_of", "run_side", "split_of", "spread", "tidied", "to_target", "whole"]
__all__ += ["workload_of"]

_CROSSINGS = ("first", "confirmed", "sustained", "final", "interpolated")


def clock_of(
    name: str | None, crossing: str | None, *, initialised_s: float = 0.0, fixed_time_s: float | None = None
) -> ClockView:
    """The view of a policy and a crossing rule; for an unknown clock, only its name.

    ``initialised_s`` are seconds of preparation that the policy left out, in which data may have been read.
    """
    known: Any = crossing if crossing in _CROSSINGS else None
    chosen = POLICIES.get(name or "")
    if chosen is None:
        return ClockView(policy=name, crossing=known, fixed_time_s=fixed_time_s)
    return ClockView(
        policy=chosen.name,
        whole=True,
        initialisation=_counts(chosen, Phase.PREPARE),
        compilation=_counts(chosen, Phase.COMPILE),
        data=_counts(chosen, Phase.DATA) if initialised_s <= 0 else None,
        evaluation=_counts(chosen, Phase.EVALUATE),
        checkpoints=_counts(chosen, Phase.CHECKPOINT),
        communication=_counts(chosen, Phase.COMMUNICATE),
        crossing=known,
        fixed_time_s=fixed_time_s,
    )


def _counts(chosen: ClockPolicy, phase: Phase) -> bool:
    return phase not in chosen.excluded and phase not in chosen.capped


_NUMBERS = ("cores_allowed", "cores_logical", "memory_bytes")


def tidied(environment: Mapping[str, object], device: str, ranks: int) -> dict[str, dict[str, object]]:
    """``machine``, ``accelerators`` (those that ``ranks`` used), ``git``, ``framework``: tables, possibly empty."""
    machine = _table(environment, "machine")
    kept = {name: value for name, value in machine.items() if name not in _NUMBERS or _is_count(value)}
    cpu = kept.pop("cpu", None)
    model = cpu.get("model") if isinstance(cpu, dict) else cpu
    if isinstance(model, str) and model:
        kept["cpu"] = model
    names = _table(environment, "accelerators").get("names")
    used = [str(name) for name in names][:ranks] if isinstance(names, list) else []
    return {
        "machine": kept,
        "accelerators": {"names": [] if device.partition(":")[0] == "cpu" else used},
        "git": _table(environment, "git"),
        "framework": _table(environment, "framework"),
    }


def _table(environment: Mapping[str, object], name: str) -> dict[str, object]:
    value = environment.get(name)
    return dict(value) if isinstance(value, dict) else {}


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def digest_of(environment: Mapping[str, object]) -> str:
    """The parts of an environment that a figure may depend on: machine, accelerators, libraries, threads."""
    names = _table(environment, "accelerators").get("names")
    safe = {"machine": _table(environment, "machine"), "accelerators": {"names": names}}
    machine = machine_of(safe) if isinstance(names, list) else str(safe["machine"].get("id", ""))
    parts = [machine, environment.get("libraries"), environment.get("threads")]
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:16]


_METHOD = "one monotonic clock from the first touch of the data to the end; phases that sum to it within 1 %"
_BEYOND = 1e100
_BATCH = ("global_batch_size", "batch", "batch_size", "batchSize")
_RATE = ("lr", "learning_rate", "opt_base_learning_rate")
_RATES = {"none": "the same at every number of ranks", "linear": "times the ranks", "sqrt": "times their square root"}
_REPORTED: dict[str, Literal["median", "mean", "single"]] = {
    "median": "median",
    "geometric mean": "mean",
    "single value": "single",
}


def run_side(group: RunGroup, records: Mapping[str, Record], name: str) -> Side:
    """The side of ``group``; ``records`` are the records of its runs by path."""
    specification, first = group.specification, group.runs[0]
    own = [records[run.path] for run in group.runs if run.path in records]
    # If some runs missed, no report of ours gives the time of the others as the time of the side.
    found = to_target(group) if group.reached == group.n else None
    framework = tidied(first.environment, first.device, 1)["framework"]
    setup = _setup(group)
    return Side(
        name=name,
        time_s=found.value if found else None,
        time_of="target",
        reported=_REPORTED.get(found.statistic) if found else None,
        runs_made=group.n,
        runs_reached=group.reached,
        interval=ends_of(found),
        runs=[_run(run, records.get(run.path)) for run in group.runs],
        framework=" ".join(str(each) for each in (specification.framework, framework.get("version")) if each),
        quality=quality_of(group, own),
        clock=clock_of(specification.clock, specification.crossing, initialised_s=_prepared(group)),
        data=_data(group, own),
        timing=TimingView(_METHOD, synchronised=True, deterministic=False),
        hardware=_hardware(group, own),
        operations=_operations(group),
        workload=workload_of(group),
        tuning=TuningView(),
        performance=setup,
        accuracy=setup,
        where=_folder(group),
    )


def to_target(group: RunGroup) -> Estimate | None:
    """The typical time of the runs that reached the target, as in our reports; ``None`` without a time above zero."""
    runs = [run for run in group.runs if run.time_to_accuracy_s is not None]
    times_s = [run.time_to_accuracy_s for run in runs if run.time_to_accuracy_s is not None]
    return estimate_to_target(times_s, runs) if times_s and min(times_s) > 0 else None


def spread(times_s: Sequence[float]) -> Estimate | None:
    """The typical time with its interval, as in our reports; ``None`` without a time above zero."""
    return estimate(times_s) if times_s and min(times_s) > 0 else None


def ends_of(found: Estimate | None) -> tuple[float, float] | None:
    """Both ends of an interval, if it has them."""
    if found is None or found.interval is None or not math.isfinite(found.interval.high):
        return None
    return found.interval.low, found.interval.high


def _folder(group: RunGroup) -> str:
    """The folder that contains all runs, or else the first of their files."""
    places = {run.path.rpartition("/")[0] for run in group.runs}
    return places.pop() if len(places) == 1 else group.runs[0].path


def _prepared(group: RunGroup) -> float:
    return max((run.excluded_s.get("prepare", 0.0) for run in group.runs), default=0.0)


def _run(run: RunSummary, record: Record | None) -> RunView:
    quality = run.quality.get(run.target.split)
    return RunView(
        time_s=run.time_to_accuracy_s,
        reached=run.reached,
        quality=quality if quality is not None and math.isfinite(quality) else None,
        seed=run.seed,
        failed=run.status == "failed",
        curve=None if record is None else _curve(run, record),
        specification=run.key,
        where=run.path,
    )


def _curve(run: RunSummary, record: Record) -> CurveView | None:
    """The evaluations up to the first one that is not finite, on the clock of the run's summary."""
    seconds = _on_clock(run.clock)
    kept = []
    for each in record.evaluations:
        quality = each.quality.get(run.target.split, math.nan)
        if not math.isfinite(quality):
            break
        kept.append((seconds(each.phases_ns), quality, each.epoch, each.samples))
    if not kept:
        return None
    time_s, qualities, epochs, samples = (list(column) for column in zip(*kept, strict=True))
    return CurveView(time_s, qualities, epochs, samples)


def _on_clock(clock: str) -> Callable[[Mapping[str, int]], float]:
    chosen = policy(clock)
    if not chosen.excluded and not chosen.capped:
        return lambda phases_ns: sum(phases_ns.values()) * 1e-9
    return lambda phases_ns: chosen.score(phases_ns).seconds


def split_of(name: str) -> Split | None:
    """A split's name in the view; ``None`` for another split, whose use is unknown."""
    word = name.lower().partition(".")[0]
    if word in ("train", "training"):
        return "train"
    if word in ("validation", "valid", "val", "dev"):
        return "validation"
    return "test" if word in ("test", "testing") else None


def quality_of(group: RunGroup, records: Sequence[Record] = ()) -> QualityView:
    """The quality on the target's split, over the finished runs."""
    target = group.specification.target
    values = [run.quality.get(target.split, math.nan) for run in group.runs if run.status == "done"]
    found = mean_of(values)
    inside = found.interval if found else None
    split = split_of(target.split)
    if group.specification.scored_by:
        # A program reports what it likes: its name may say of what.
        split = next(filter(None, map(split_of, re.split(r"[\W_]+", target.metric))), split)
    return QualityView(
        metric=target.metric,
        value=found.value if found else None,
        low=inside.low if inside else None,
        high=inside.high if inside else None,
        target=target.threshold,
        direction=target.direction,
        split=split,
        stopping_split=split,
        test_looks=_looks(records, split),
    )


def mean_of(values: Sequence[float]) -> Estimate | None:
    """The mean of the finite values, with its interval; values whose square overflows are left out."""
    kept = [value for value in values if abs(value) < _BEYOND]
    if not kept:
        return None
    found = estimate_signed(kept)
    # A mean of equal values may be rounded below them, and so below a target that each of them reaches.
    value = min(max(found.value, min(kept)), max(kept))
    inside = found.interval
    if value == found.value and (inside is None or value in inside):
        return found
    if inside is not None:
        inside = replace(inside, low=min(inside.low, value), high=max(inside.high, value))
    return replace(found, value=value, interval=inside)


def _looks(records: Sequence[Record], split: Split | None) -> int | None:
    """The largest number of evaluations of the test data in a run; ``None`` if no record says."""
    counts = []
    for record in records:
        seen = sum(split == "test" or "test" in each.quality for each in record.evaluations)
        if record.end is not None and "test" in record.end.quality and not seen:
            seen = 1
        counts.append(seen)
    return max(counts, default=None)


def _data(group: RunGroup, records: Sequence[Record]) -> DataView:
    facts = next((record.end.dataset for record in records if record.end and record.end.dataset), None)
    waits = [
        run.phases_s.get("data", 0.0) / total for run in group.runs if (total := math.fsum(run.phases_s.values())) > 0
    ]
    return DataView(
        name=facts.name if facts else None,
        synthetic=any(run.synthetic for run in group.runs) if facts else None,
        in_memory=None if _prepared(group) > 0 else False,
        cold=_cold(group.runs),
        stall_share=math.fsum(waits) / len(waits) if waits else None,
        checksums=bool(facts.checksums) if facts else None,
    )


def ranks_of(group: RunGroup) -> int:
    """The number of processes that trained together."""
    distribution = group.specification.distribution
    return distribution.ranks if distribution else 1


def whole(value: object) -> int | None:
    """The value if it is a whole number of zero or more, else ``None``."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def batch_of(settings: Mapping[str, object]) -> int | None:
    """The batch in the settings, under the names that recipes and other systems use."""
    return next((found for name in _BATCH if (found := whole(settings.get(name))) is not None), None)


def rate_of(settings: Mapping[str, object]) -> float | None:
    """The learning rate in the settings, if it is a single number."""
    for name in _RATE:
        value = settings.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    return None


def workload_of(group: RunGroup) -> WorkloadView:
    """The size of a step, and the average number of steps to the target."""
    specification, distribution = group.specification, group.specification.distribution
    batch, ranks = batch_of(specification.settings), ranks_of(group)
    weak = distribution is not None and distribution.scaling == "weak"
    accumulated = whole(specification.settings.get("accumulate")) or 1
    steps = [run.steps_to_target for run in group.runs if run.steps_to_target is not None]
    samples = [float(run.samples_to_target) for run in group.runs if run.samples_to_target is not None]
    typical = round(math.fsum(steps) / len(steps)) if steps else None
    return WorkloadView(
        global_batch=None if batch is None else batch * accumulated * (ranks if weak else 1),
        ranks=ranks,
        iterations_measured=typical,
        iterations_to_target=typical,
        samples_to_target=math.fsum(samples) / len(samples) if samples else None,
        flops_per_sample=sum(group.runs[0].operations_per_example.values()) or None,
        learning_rate=rate_of(specification.settings),
        learning_rate_rule=_RATES[distribution.lr_scale] if distribution else None,
    )


def _hardware(group: RunGroup, records: Sequence[Record]) -> HardwareView:
    first, ranks = group.runs[0], ranks_of(group)
    environment = tidied(first.environment, first.device, ranks)
    if not (environment["machine"].get("cpu") or environment["accelerators"]["names"]):
        return HardwareView()
    stated = system_of(environment, first.device)
    threads = whole(environment["framework"].get("threads"))
    teams = [record.end.environment_after.get("team") for record in records if record.end]
    hosts = [team.get("ranks_by_host") for team in teams if isinstance(team, dict)]
    return HardwareView(
        description=stated.description,
        nodes=max((len(each) for each in hosts if isinstance(each, list)), default=1),
        accelerators=stated.accelerators,
        accelerator=stated.accelerator,
        processor=stated.processor,
        cores=stated.cores,
        threads_used=threads * ranks if threads else None,
    )


def _operations(group: RunGroup) -> Operations:
    """Operations to the target on average, and their rate as a share of a measured peak where there is one.

    Without a peak no rate is stated: a record claims none.
    """
    peaks = peaks_of(group.runs[0])
    found = [use for run in group.runs if (use := use_of_operations(run, peaks)) is not None]
    if not found or group.reached < group.n:
        return Operations()
    to_target = math.fsum(use.to_target for use in found) / len(found)
    stated = Operations(counted_as=COUNTED, precisions=dict(found[0].shares), mixed=len(found[0].shares) > 1)
    stated = msgspec.structs.replace(stated, to_target=to_target)
    shares = [use.utilisation for use in found if use.utilisation is not None]
    if len(shares) < len(found):
        return stated
    # Rates over equal work, and their shares, have a harmonic mean.
    rate, share = (len(found) / math.fsum(1.0 / each for each in of) for of in ([use.flop_s for use in found], shares))
    return msgspec.structs.replace(stated, flops=rate, share_of_peak=share)


def _cold(runs: Sequence[RunSummary]) -> bool | None:
    """Whether most of what each run read came from a disk; ``None`` where that was not measured, or nothing was read.

    What is not read by calls or maps of this process, such as a dataset inside an imported module's memory, is unseen.
    """
    read = [(run.read_from_disk_bytes, run.read_from_cache_bytes) for run in runs]
    if any(disk is None or cache is None or disk + cache <= 0 for disk, cache in read):
        return None
    return all((disk or 0.0) > (cache or 0.0) for disk, cache in read)


def _setup(group: RunGroup) -> Setup:
    """The options of all runs: one value if they agree, else all values."""
    git = [tidied(run.environment, run.device, 1)["git"] for run in group.runs]
    dirty = [each["dirty"] for each in git if isinstance(each.get("dirty"), bool)]
    distribution = group.specification.distribution
    return Setup(
        specification=group.key,
        commit=_agreed(each.get("commit") for each in git),
        dirty=any(dirty) if dirty else None,
        environment=_agreed(digest_of(run.environment) for run in group.runs),
        seeds=sorted({run.seed for run in group.runs}),
        options={**group.specification.settings, **(distribution.words() if distribution else {})},
    )


def _agreed(values: Iterable[object]) -> str | None:
    found = list(dict.fromkeys(str(value) for value in values if value))
    return " and ".join(found) if found else None


def is_study(groups: Sequence[RunGroup]) -> bool:
    """Whether the groups are one recipe on at least two numbers of ranks, each once, in any order."""
    ranks = [ranks_of(group) for group in groups]
    if len(set(ranks)) != len(ranks) or len(ranks) < 2:
        return False
    teams = [group.specification.distribution for group in groups]
    schemes = {msgspec.json.encode(msgspec.structs.replace(team, ranks=0)) for team in teams if team is not None}
    return len(schemes) == 1 and len({_rest(group.specification) for group in groups}) == 1


def _rest(specification: Specification) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(specification, distribution=None), order="sorted")


def mode_of(groups: Sequence[RunGroup]) -> Literal["strong", "weak"] | None:
    """The scaling mode of the runs of several ranks: whether the batch grew with the ranks."""
    teams = [group.specification.distribution for group in groups]
    modes = {team.scaling for team in teams if team is not None and team.ranks > 1}
    return modes.pop() if len(modes) == 1 else None


def points_of(groups: Sequence[RunGroup], side: str) -> list[ScalingPoint]:
    """One point per group, smallest first."""
    return [_point(group, side) for group in sorted(groups, key=ranks_of)]


def _point(group: RunGroup, side: str) -> ScalingPoint:
    quality, workload, found = quality_of(group), workload_of(group), to_target(group)
    rates = [
        run.samples_to_target / run.time_to_accuracy_s
        for run in group.runs
        if run.samples_to_target and run.time_to_accuracy_s
    ]
    return ScalingPoint(
        side=side,
        ranks=ranks_of(group),
        time_s=found.value if found else None,
        throughput=len(rates) / math.fsum(1.0 / rate for rate in rates) if rates else None,
        global_batch=workload.global_batch,
        reached=group.reached == group.n,
        quality=quality.value,
        quality_low=quality.low,
        quality_high=quality.high,
        iterations_measured=workload.iterations_measured,
        iterations_to_target=workload.iterations_to_target,
        extrapolated=False,
        fixed_time=_fixed(group),
        learning_rate=_rate(group),
        where=group.runs[0].path,
    )


def _fixed(group: RunGroup) -> bool:
    """Whether every run was ended by a budget in seconds, whatever it had done."""
    return group.specification.budget_s is not None and group.reached == 0


def _rate(group: RunGroup) -> float | None:
    """The learning rate that was used: the recipe's, times the factor for the ranks."""
    rate, distribution = rate_of(group.specification.settings), group.specification.distribution
    if rate is None or distribution is None or distribution.scaling != "weak":
        return rate
    factors = {"none": 1.0, "linear": float(distribution.ranks), "sqrt": math.sqrt(distribution.ranks)}
    return rate * factors[distribution.lr_scale]
