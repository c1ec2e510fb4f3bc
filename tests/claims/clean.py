"""One clean, complete claim on which no rule fires, and a way to change exactly one thing in it.

The figures belong together: the times are those of the curves, the rates follow from the operations, the intervals
from the runs. Recipe "new" differs from "base" in its input pipeline alone.
"""

from __future__ import annotations

import math
import re
from functools import cache
from statistics import fmean, stdev
from typing import Any

import msgspec
from msgspec.structs import replace

from levelbench.claims.rule import Finding, Rule
from levelbench.claims.rules import all_rules
from levelbench.claims.view import (
    Claim,
    ClockView,
    Comparison,
    Composition,
    CurveView,
    DataView,
    Figure,
    HardwareView,
    Operations,
    QualityView,
    RunView,
    ScalingPoint,
    Setup,
    Side,
    Standard,
    Summarised,
    TimingView,
    TuningView,
    WorkloadView,
)
from levelbench.measure.statistics import arithmetic_mean, harmonic_mean, t_quantile, welch_log_ratio

TARGET = 0.94
SEEDS = (1, 2, 3, 4, 5)
CONFIRMED = 9  # index of the evaluation at which the target counts: the second in a row
IMAGES = 50_000
BATCH = 500
FLOPS_PER_SAMPLE = 2.8e10
QUALITIES = (0.52, 0.68, 0.77, 0.83, 0.87, 0.90, 0.92, 0.932, 0.9422, 0.9430, 0.9434, 0.9436)
SLOWER = (1.000, 1.021, 0.984, 1.009, 0.991)  # how the runs of a side differ
SOURCE = "https://example.org/recipes"
AT = "commit 4f1c2aa"


def run(name: str, seed: int, epoch_s: float) -> RunView:
    """Twelve epochs, each with its evaluation; the target is kept from the ninth on, so confirmed at the tenth."""
    slower = SLOWER[seed - 1]
    time_s = [round(epoch_s * slower * (1.0 + 0.004 * math.sin(e * seed)) * e, 4) for e in range(1, 13)]
    quality = [round(value + 0.0015 * math.sin(seed * (e + 1)), 5) for e, value in enumerate(QUALITIES)]
    samples = [IMAGES * e for e in range(1, 13)]
    curve = CurveView(time_s, quality, epoch=[float(e) for e in range(1, 13)], samples=samples)
    return RunView(
        time_s=time_s[CONFIRMED],
        reached=True,
        quality=quality[-1],
        seed=seed,
        curve=curve,
        specification=f"sha256:{name}",
        where=f"{name}/{seed}.jsonl",
    )


def t_interval(values: list[float]) -> tuple[float, float]:
    half = t_quantile(0.975, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return fmean(values) - half, fmean(values) + half


def side(name: str, epoch_s: float, **more: Any) -> Side:
    runs = [run(name, seed, epoch_s) for seed in SEEDS]
    run_s = [each.time_s for each in runs]
    time_s = arithmetic_mean(run_s)
    samples = IMAGES * (CONFIRMED + 1)
    flops = FLOPS_PER_SAMPLE * samples / time_s
    qualities = [each.quality for each in runs]
    low, high = t_interval(qualities)
    setup = Setup(
        specification=f"sha256:{name}",
        commit="4f1c2aa",
        dirty=False,
        environment="sha256:9b1d",
        seeds=list(SEEDS),
        options={"batch": BATCH, "learning_rate": 0.4, "precision": "bfloat16"},
    )
    return Side(
        name=name,
        time_s=time_s,
        time_of="target",
        reported="mean",
        runs_made=5,
        runs_reached=5,
        interval=t_interval(run_s),
        runs=runs,
        framework="torch 2.13",
        year=2026,
        source=f"{SOURCE}/{name}",
        reference=True,
        tuned=True,
        cost_usd=time_s / 3600 * 16.39,
        quality=quality_of(fmean(qualities), low, high),
        clock=clock(),
        data=DataView("CIFAR-10", synthetic=False, in_memory=False, cold=True, stall_share=0.02, checksums=True),
        timing=TimingView("monotonic clock, whole run", True, True, deterministic=False, interleaved=True),
        hardware=hardware(),
        operations=operations(flops, FLOPS_PER_SAMPLE * samples),
        workload=workload(samples),
        tuning=TuningView(trials=24, hours=1.5, usd=24.6, budget_equal=True),
        performance=setup,
        accuracy=setup,
        where=f"{name}/",
        **more,
    )


def quality_of(value: float, low: float, high: float) -> QualityView:
    return QualityView(
        metric="top-1 accuracy",
        value=value,
        low=low,
        high=high,
        target=TARGET,
        direction="higher",
        split="test",
        stopping_split="validation",
        tuning_split="validation",
        test_looks=1,
        standard=0.94,
    )


def clock() -> ClockView:
    return ClockView(
        policy="wall",
        whole=True,
        initialisation=True,
        compilation=True,
        data=True,
        evaluation=True,
        checkpoints=True,
        communication=True,
        crossing="confirmed",
    )


def hardware() -> HardwareView:
    """Half of a p4d.24xlarge, whose eight accelerators are 32.77 USD an hour."""
    return HardwareView(
        description="4 x NVIDIA A100-SXM4-40GB",
        nodes=1,
        accelerators=4,
        accelerator="NVIDIA A100-SXM4-40GB",
        processor="Intel Xeon Platinum 8275CL",
        cores=24,
        threads_used=24,
        release_year=2020,
        peak_flops={"float32": 4 * 19.5e12, "tf32": 4 * 156e12, "bfloat16": 4 * 312e12, "float16": 4 * 312e12},
        bandwidth=4 * 1.555e12,
        power_w=4 * 400.0,
        price_per_hour=16.39,
        price_source="AWS on-demand, us-east-1, 2026-11-01",
    )


def operations(flops: float, to_target: float) -> Operations:
    return Operations(
        flops=flops,
        counted_as="2 a multiply-add, without recomputation",
        precisions={"bfloat16": 1.0},
        mixed=False,
        share_of_peak=flops / (4 * 312e12),
        to_target=to_target,
    )


def workload(samples: int) -> WorkloadView:
    return WorkloadView(
        global_batch=BATCH,
        ranks=4,
        input_size=32 * 32 * 3,
        flops_per_sample=FLOPS_PER_SAMPLE,
        iterations_measured=samples // BATCH,
        iterations_to_target=samples // BATCH,
        samples_to_target=float(samples),
        learning_rate=0.4,
        learning_rate_rule="the same at every number of ranks",
    )


def comparison(new: Side, base: Side) -> Comparison:
    new_s, base_s = ([each.time_s for each in one.runs] for one in (new, base))
    log = welch_log_ratio(new_s, base_s)
    pooled = math.sqrt((stdev(new_s) ** 2 + stdev(base_s) ** 2) / 2)
    return Comparison(
        new="new",
        base="base",
        of="target",
        ratio=log.ratio,
        interval=(log.interval.low, log.interval.high),
        part_share=1.0,
        claimed_for="whole",
        base_time_s=base.time_s,
        base_kind="same-scale",
        p_value=log.p_value,
        effect=(base.time_s - new.time_s) / pooled,
        test="Welch's t on the logarithms of the times",
        normality_checked=True,
        quality_compared=True,
        performance_compared=True,
        where=AT,
    )


def scaling(new: Side) -> list[ScalingPoint]:
    """Strong scaling: the same global batch and learning rate, the quality within its interval."""
    points = []
    for ranks, factor, lift in ((1, 3.48, 0.0002), (2, 1.83, -0.0001), (4, 1.0, 0.0)):
        points.append(
            ScalingPoint(
                side="new",
                ranks=ranks,
                time_s=factor * new.time_s,
                throughput=IMAGES * (CONFIRMED + 1) / (factor * new.time_s),
                global_batch=BATCH,
                reached=True,
                quality=new.quality.value + lift,
                quality_low=new.quality.low + lift,
                quality_high=new.quality.high + lift,
                iterations_measured=new.workload.iterations_measured,
                iterations_to_target=new.workload.iterations_to_target,
                extrapolated=False,
                fixed_time=False,
                learning_rate=0.4,
                where=f"ranks-{ranks}/",
            )
        )
    return points


def summaries(new: Side) -> list[Summarised]:
    run_s = [each.time_s for each in new.runs]
    rates = [IMAGES * (CONFIRMED + 1) / time_s for time_s in run_s]
    harmonic = harmonic_mean(rates)
    low, high = t_interval(run_s)
    same: dict[str, Any] = {"n": 5, "normality_checked": True, "deterministic": False, "raw_available": True}
    samples = IMAGES * (CONFIRMED + 1)
    return [
        Summarised(
            "time to accuracy", "times", "arithmetic", value=new.time_s, interval=(low, high), interval_by="t", **same
        ),
        Summarised(
            "throughput",
            "rates",
            "harmonic",
            value=harmonic,
            interval=(samples / high, samples / low),
            interval_by="t",
            **same,
        ),
    ]


def figures() -> list[Figure]:
    return [
        Figure("quality by samples", "samples", "quality", joined=True, interpolable=True, curves_cut=False),
        Figure("quality by time", "time", "quality", joined=True, interpolable=True, curves_cut=False),
        Figure("speed-up by ranks", "ranks", "speed-up", joined=False, interpolable=False, bound_shown=True),
    ]


@cache
def clean_claim() -> Claim:
    """All stated and all sound. Claims are frozen; what is in their lists is not to be changed in place."""
    new, base = side("new", 3.0), side("base", 3.9, baseline=True)
    return Claim(
        title="A new input pipeline reaches 94 % of CIFAR-10 sooner",
        sides=[new, base],
        task="cifar10",
        comparisons=[comparison(new, base)],
        scaling=scaling(new),
        scaling_mode="strong",
        summaries=summaries(new),
        figures=figures(),
        compositions=[
            Composition({"decoding ahead": 1.2, "pinned memory": 1.15}, claimed=1.3, measured=1.3, quality_kept=True)
        ],
        standards=[
            Standard(
                name="last year's entry",
                time_s=60.0,
                quality=0.9405,
                cost_usd=0.9,
                year=2025,
                source=SOURCE,
                input_size=32 * 32 * 3,
                flops_per_sample=FLOPS_PER_SAMPLE,
                global_batch=BATCH,
            )
        ],
        bound="linear scaling, and the time of an epoch with the input already there",
        where="claim.toml",
    )


def changed(claim: Claim, path: str, value: Any) -> Claim:
    """``claim`` with what is at ``path`` replaced: ``changed(claim, "sides[0].quality.split", "train")``.

    A part of a path is a field, a key of a dict, or an index; an index one beyond the end of a list adds to it. An
    unknown field, or a value that the schema does not allow, is an error, so that no test plants what cannot be.
    """
    keys = [int(index) if index else name for name, index in re.findall(r"(\w+)|\[(\d+)\]", path)]
    done = _set(claim, keys, value)
    return msgspec.convert(msgspec.to_builtins(done), Claim)


def _set(whole: Any, keys: list[str | int], value: Any) -> Any:
    if not keys:
        return value
    key, rest = keys[0], keys[1:]
    if isinstance(whole, msgspec.Struct):
        return replace(whole, **{str(key): _set(getattr(whole, str(key)), rest, value)})
    if isinstance(whole, dict):
        return {**whole, key: _set(whole.get(key), rest, value)}
    assert isinstance(key, int), f"{key!r} is not an index"
    return [*whole[:key], _set(whole[key] if key < len(whole) else None, rest, value), *whole[key + 1 :]]


def changes(claim: Claim, by_path: dict[str, Any]) -> Claim:
    """``changed`` for several paths, in order."""
    for path, value in by_path.items():
        claim = changed(claim, path, value)
    return claim


def found(rule: Rule, claim: Claim) -> list[tuple[str, str]]:
    """(severity, field) of what one rule finds; every finding carries the rule's code and its three parts."""
    findings = list(rule.check(claim))
    for each in findings:
        assert each.code == rule.code
        assert each.found
        assert each.do
    return [(each.severity, each.field) for each in findings]


def other_findings(rule: Rule, claim: Claim) -> list[Finding]:
    """What all other rules that exist find: nothing, where only the rule's own fault was planted."""
    return [each for other in all_rules() if other.code != rule.code for each in other.check(claim)]
