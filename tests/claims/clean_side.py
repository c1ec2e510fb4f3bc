"""One side of the clean claim: its runs, and all that is stated of how they were made."""

from __future__ import annotations

import math
from statistics import fmean, stdev
from typing import Any

from levelbench.claims.view import (
    ClockView,
    CurveView,
    DataView,
    HardwareView,
    Operations,
    QualityView,
    RunView,
    Setup,
    Side,
    TimingView,
    TuningView,
    WorkloadView,
)
from levelbench.measure.statistics import arithmetic_mean, t_quantile

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
