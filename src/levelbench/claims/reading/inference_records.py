"""Claims from records of inference: the processes of one framework are the runs of a side.

The replicate is the process, a latency is the one by which the scenario is judged, and quality comes from the timed
answers themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from levelbench.claims.reading.run_sides import digest_of, ends_of, mean_of, split_of, spread, tidied, whole
from levelbench.claims.view import (
    Claim,
    ClockView,
    ComparisonView,
    DataView,
    HardwareView,
    QualityView,
    RunView,
    Setup,
    Side,
    TimingView,
    WorkloadView,
)
from levelbench.errors import LevelbenchError
from levelbench.measure.environment import system_of
from levelbench.measure.statistics import Estimate
from levelbench.records.inference import InferenceRecord
from levelbench.records.inference_summary import score, scored_by

__all__ = ["read_inference_files"]

_METHOD = "one monotonic clock, from each query to its answer"


def read_inference_files(paths: Iterable[Path], problems: list[LevelbenchError] | None = None) -> list[Claim]:
    """A claim for each network, data and scenario, with a side for each framework that measured it.

    ``problems`` collects what cannot be read; without it, the first such file is an error. Unfinished processes are
    left out.
    """
    groups: dict[bytes, dict[str, list[InferenceRecord]]] = {}
    for path in paths:
        try:
            record = InferenceRecord.read(path)
        except LevelbenchError as error:
            if problems is None:
                raise
            problems.append(error)
            continue
        specification = record.header.specification
        if record.status == "done" and score(record, specification.scenario) is not None:
            asked = [
                *(specification.model, specification.data, specification.scenario),
                *(specification.preprocessing, specification.generation),
            ]
            arms = groups.setdefault(msgspec.json.encode(asked, order="sorted"), {})
            arms.setdefault(specification.arm.title, []).append(record)
    return [_claim(arms) for arms in groups.values()]


def _claim(arms: dict[str, list[InferenceRecord]]) -> Claim:
    sides = [_side(name, records) for name, records in arms.items()]
    first = next(iter(arms.values()))[0].header.specification
    base = sides[0]
    comparisons = [
        ComparisonView(
            new=side.name,
            base=base.name,
            of="latency",
            ratio=base.time_s / side.time_s if base.time_s and side.time_s else None,
            base_time_s=base.time_s,
            base_kind="same-scale",
            quality_compared=side.quality.value is not None and base.quality.value is not None,
            performance_compared=True,
            where=side.where,
        )
        for side in sides[1:]
    ]
    tokens = "" if first.generation is None else f", {first.generation.tokens} tokens"
    title = f"{first.title}: {scored_by(first.scenario)} of {first.scenario.name}{tokens}"
    return Claim(
        title=title, sides=sides, task=first.model.task or None, read_from="records", comparisons=comparisons,
        where=base.where,
    )  # fmt: skip


def _side(name: str, records: Sequence[InferenceRecord]) -> Side:
    first = records[0]
    specification, facts = first.header.specification, first.facts
    times_s = [found for each in records if (found := score(each, specification.scenario)) is not None]
    figure = spread(times_s)
    setup = Setup(
        specification=first.header.key,
        environment=digest_of(first.header.environment),
        seeds=sorted({each.header.seed for each in records}),
        options={
            key: value for key, value in specification.model.settings.items() if isinstance(value, int | float | str)
        },
    )
    return Side(
        name=name,
        time_s=figure.value if figure else None,
        time_of="call",
        reported=None if figure is None else "median" if figure.statistic == "median" else "mean",
        runs_made=len(records),
        interval=ends_of(figure),
        runs=[_run(each, time_s) for each, time_s in zip(records, times_s, strict=False)],
        framework=" ".join(str(each) for each in (specification.arm.framework, facts.framework.get("version")) if each),
        quality=_quality(records),
        clock=ClockView(policy=facts.clock or None, whole=True, data=specification.preprocessing == "in"),
        data=DataView(specification.data.name, facts.synthetic, checksums=True if facts.checksums else None),
        timing=TimingView(_METHOD, synchronised=True, warmup=bool(facts.warmup) or None, deterministic=False),
        hardware=_hardware(first),
        workload=WorkloadView(global_batch=specification.scenario.batch),
        performance=setup,
        accuracy=setup,
        where=str(first.path),
    )


def _run(record: InferenceRecord, time_s: float) -> RunView:
    value = record.accuracy.value if record.accuracy else None
    return RunView(
        time_s=time_s,
        quality=value if value is not None and math.isfinite(value) else None,
        seed=record.header.seed,
        specification=record.header.key,
        where=str(record.path),
    )


def _quality(records: Sequence[InferenceRecord]) -> QualityView:
    """The quality of the answers of all processes; each opened the split once."""
    known = [each.accuracy for each in records if each.accuracy is not None and each.accuracy.value is not None]
    if not known:
        return QualityView()
    found: Estimate | None = mean_of([each.value for each in known if each.value is not None])
    inside = found.interval if found else None
    split = split_of(known[0].split)
    return QualityView(
        metric=known[0].metric or None,
        value=found.value if found else None,
        low=inside.low if inside else None,
        high=inside.high if inside else None,
        direction=known[0].direction,
        split=split,
        test_looks=1 if split == "test" else None,
    )


def _hardware(record: InferenceRecord) -> HardwareView:
    device = record.header.specification.arm.device
    environment = tidied(record.header.environment, device, 1)
    if not (environment["machine"].get("cpu") or environment["accelerators"]["names"]):
        return HardwareView()
    stated = system_of(environment, device)
    return HardwareView(
        description=stated.description,
        nodes=1,
        accelerators=stated.accelerators,
        accelerator=stated.accelerator,
        processor=stated.processor,
        cores=stated.cores,
        threads_used=whole(record.header.specification.arm.threads) or None,
    )
