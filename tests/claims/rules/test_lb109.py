"""LB109: inputs and batches far over what the task needs, without a gain."""

import pytest
from tests.claims.clean import FLOPS_PER_SAMPLE, changes, clean_claim, found, other_findings

from levelbench.claims.rules.lb109_huge_inputs import rule

WORK = "sides[0].workload"
LARGE = {f"{WORK}.input_size": 16 * 3072}
HEAVY = {f"{WORK}.flops_per_sample": 5 * FLOPS_PER_SAMPLE}
BAD = {"sides[0].quality.value": 0.9403, "sides[0].quality.low": 0.94, "sides[0].quality.high": 0.9406}
DEAR = {"sides[0].cost_usd": 2.0}
BETTER = {"sides[0].quality.value": 0.952, "sides[0].quality.low": 0.95, "sides[0].quality.high": 0.954}
BY_BASE = {"standards": [], "comparisons[0].of": "throughput", **BAD, **LARGE, "sides[0].cost_usd": 2.0}

GUILTY = {
    "larger samples for the same quality at a higher cost": (
        {**LARGE, **BAD, **DEAR},
        ("error", f"{WORK}.input_size"),
    ),
    "more operations a sample for the same quality at a higher cost": (
        {**HEAVY, **BAD, **DEAR},
        ("error", f"{WORK}.flops_per_sample"),
    ),
    "a better quality that is within its interval": (
        {**LARGE, **DEAR, "sides[0].quality.value": 0.941, "sides[0].quality.low": 0.939},
        ("error", f"{WORK}.input_size"),
    ),
    "no cost is known and the quality is no better": (
        {**LARGE, **BAD, "sides[0].cost_usd": None, "sides[0].time_s": None},
        ("warning", f"{WORK}.input_size"),
    ),
    "no cost is known and the time is longer": (
        {**LARGE, **BAD, "sides[0].cost_usd": None, "sides[0].time_s": 90.0},
        ("error", f"{WORK}.input_size"),
    ),
    "far larger than the baseline's, without a standard": (BY_BASE, ("error", f"{WORK}.input_size")),
    "a batch far over the standard that takes longer": (
        {f"{WORK}.global_batch": 8000, **BAD, **DEAR},
        ("error", f"{WORK}.global_batch"),
    ),
}
INNOCENT = {
    "a batch that grows with the ranks, compared by its quality": {
        **BY_BASE,
        f"{WORK}.input_size": 3072,
        f"{WORK}.global_batch": 8192,
        f"{WORK}.ranks": 256,
        "sides[1].workload.global_batch": 256,
        "sides[1].workload.ranks": 8,
    },
    "three times the operations": {f"{WORK}.flops_per_sample": 3 * FLOPS_PER_SAMPLE, **BAD, **DEAR},
    "larger samples that gain quality at a higher cost": {**LARGE, **BETTER, **DEAR},
    "larger samples that are cheaper": {**LARGE, **BAD},
    "large samples, as another known entry has them": {
        **LARGE,
        **BAD,
        **DEAR,
        "standards[1]": {"name": "high resolution", "input_size": 8 * 3072, "quality": 0.95},
    },
    "far larger than the baseline's, and slower to the target, which is what is compared": {
        **BY_BASE,
        "comparisons[0].of": "target",
    },
    "a large batch that reaches the target sooner": {f"{WORK}.global_batch": 8000},
    "sizes that nobody states": {f"{WORK}.{name}": None for name in ("input_size", "flops_per_sample", "global_batch")},
    "small samples": {f"{WORK}.input_size": 300, **BAD, **DEAR},
}


PLANTED = (
    "images of 224 x 224 where 32 x 32 is usual, for no better result",
    {
        "sides[0].workload.input_size": 224 * 224 * 3,
        "standards[0].time_s": None,
        "standards[0].cost_usd": None,
        "standards[0].quality": 0.95,
    },
)
IN_RECORDS = "a record holds no size of a sample, and in a comparison to the target a large batch has to pay off"


@pytest.mark.parametrize(
    "unknown",
    [
        {**DEAR, "sides[0].quality.value": None},
        {**DEAR, "standards[0].quality": None},
        {**BETTER, "standards[0].cost_usd": None, "standards[0].time_s": None},
    ],
    ids=["its own quality", "the standard's quality", "what the better quality costs"],
)
def test_a_gain_that_cannot_be_judged_is_asked_for(unknown):
    assert found(rule, changes(clean_claim(), {**LARGE, **unknown})) == [("not-stated", f"{WORK}.input_size")]


def test_a_teraflop_a_sample_without_any_standard_wants_an_argument():
    alone = {"standards": [], "sides[1].workload.flops_per_sample": None, "sides[1].workload.input_size": None}
    claim = changes(clean_claim(), {**alone, f"{WORK}.flops_per_sample": 2e12})
    assert found(rule, claim) == [("not-stated", "standards")]


def test_the_finding_holds_the_size_the_factor_the_quality_and_the_cost():
    (finding,) = rule.check(changes(clean_claim(), {**LARGE, **BAD, **DEAR}))
    assert "16 times those of 'last year's entry'" in finding.found
    assert "quality 0.9403 against 0.9405" in finding.found
    assert "222 % of the cost" in finding.found


def test_the_fault_alone_is_found_by_no_other_rule():
    assert other_findings(rule, changes(clean_claim(), {**LARGE, **BAD, **DEAR})) == []


def test_what_a_batch_gains_in_time_is_asked_for_where_no_time_is_given():
    untimed = {f"{WORK}.global_batch": 8000, **BAD, "sides[0].cost_usd": None, "sides[0].time_s": None}
    assert found(rule, changes(clean_claim(), untimed)) == [("not-stated", f"{WORK}.global_batch")]
