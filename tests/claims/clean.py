"""One clean, complete claim on which no rule fires, and a way to change exactly one thing in it.

The figures belong together: the times are those of the curves, the rates follow from the operations, the intervals
from the runs. Recipe "new" differs from "base" in its input pipeline alone.
"""

from __future__ import annotations

import math
import re
from functools import cache
from statistics import stdev
from typing import Any

import msgspec
from msgspec.structs import replace
from tests.claims.clean_side import (
    AT,
    BATCH,
    CONFIRMED,
    FLOPS_PER_SAMPLE,
    IMAGES,
    QUALITIES,
    SOURCE,
    side,
    t_interval,
)

from levelbench.claims.rule import Diagnostic, Rule
from levelbench.claims.rules import all_rules
from levelbench.claims.view import (
    Claim,
    ComparisonView,
    CompositionView,
    FigureView,
    ScalingPoint,
    Side,
    StandardView,
    Summarised,
)
from levelbench.measure.statistics import harmonic_mean, welch_log_ratio

__all__ = ["FLOPS_PER_SAMPLE", "QUALITIES", "changed", "changes", "clean_claim", "found", "other_findings"]


def comparison(new: Side, base: Side) -> ComparisonView:
    new_s, base_s = ([each.time_s for each in one.runs] for one in (new, base))
    log = welch_log_ratio(new_s, base_s)
    pooled = math.sqrt((stdev(new_s) ** 2 + stdev(base_s) ** 2) / 2)
    return ComparisonView(
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


def figures() -> list[FigureView]:
    return [
        FigureView("quality by samples", "samples", "quality", joined=True, interpolable=True, curves_cut=False),
        FigureView("quality by time", "time", "quality", joined=True, interpolable=True, curves_cut=False),
        FigureView("speed-up by ranks", "ranks", "speed-up", joined=False, interpolable=False, bound_shown=True),
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
            CompositionView(
                {"decoding ahead": 1.2, "pinned memory": 1.15}, claimed=1.3, measured=1.3, quality_kept=True
            )
        ],
        standards=[
            StandardView(
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


def other_findings(rule: Rule, claim: Claim) -> list[Diagnostic]:
    """What all other rules that exist find: nothing, where only the rule's own fault was planted."""
    return [each for other in all_rules() if other.code != rule.code for each in other.check(claim)]
