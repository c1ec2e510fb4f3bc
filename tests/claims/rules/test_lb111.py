"""LB111: a batch that grows with the ranks, taken for strong scaling."""

import pytest
from tests.claims.clean import changes, clean_claim, found, other_findings

from levelbench.claims.rules.lb111_weak_for_strong import rule

LAST = "scaling[2]"
GROWS = {"scaling[0].global_batch": 125, "scaling[1].global_batch": 250}
WEAK = {**GROWS, "scaling_mode": "weak"}
RATES = {f"scaling[{at}].reached": None for at in range(3)} | {f"scaling[{at}].time_s": None for at in range(3)}
STEPS = {"scaling[0].iterations_to_target": 2000, f"{LAST}.iterations_to_target": 1000}
TWO = {
    "scaling": [],
    "scaling_mode": None,
    "comparisons[0].of": "throughput",
    "sides[0].workload.ranks": 8,
    "sides[0].workload.global_batch": 1000,
}

GUILTY = {
    "the batch grows and it is called strong": (GROWS, ("error", f"{LAST}.global_batch")),
    "the batch grows and nobody says so": (
        {**GROWS, "scaling[0].reached": None, "scaling_mode": None},
        ("warning", f"{LAST}.global_batch"),
    ),
    "the batch of one point is unknown and grows between the others": (
        {**GROWS, "scaling[1].global_batch": None},
        ("error", f"{LAST}.global_batch"),
    ),
    "the rate grows and the target takes more samples": (
        {**WEAK, **RATES, **STEPS},
        ("warning", f"{LAST}.iterations_to_target"),
    ),
    "two sizes of machine are compared by their rates": (TWO, ("warning", "sides[0].workload.global_batch")),
    "two sizes of machine are compared by their rates, as strong scaling": (
        {**TWO, "scaling_mode": "strong"},
        ("error", "sides[0].workload.global_batch"),
    ),
}
INNOCENT = {
    "the batch grows and it is called weak": WEAK,
    "the batch grows and the times are to the target": {**GROWS, "scaling_mode": None},
    "the batch stays and nobody says so": {"scaling_mode": None},
    "micro-batches shrink as ranks are added": {f"scaling[{at}].learning_rate": None for at in range(3)},
    "the batch shrinks": {"scaling[0].global_batch": 1000},
    "batches are swept on one number of ranks": {
        **GROWS,
        **{f"scaling[{at}].ranks": 4 for at in range(3)},
    },
    "weak scaling whose times to the target have the iterations in them": {
        **WEAK,
        **{f"scaling[{at}].iterations_to_target": None for at in range(3)},
    },
    "the target takes no more samples": {
        **WEAK,
        **RATES,
        "scaling[0].iterations_to_target": 4000,
        "scaling[1].iterations_to_target": 2000,
        f"{LAST}.iterations_to_target": 1000,
    },
    "the learning rate follows a rule": {**WEAK, f"{LAST}.learning_rate": None},
    "two sizes of machine are compared by their times to the target": {**TWO, "comparisons[0].of": "target"},
    "two sizes of machine with one batch": {**TWO, "sides[0].workload.global_batch": 500},
    "two sizes of machine, said to be weak scaling": {**TWO, "scaling_mode": "weak"},
}


PLANTED = "the batch grows with the ranks of a strong scaling", {"scaling[2].global_batch": 2000}
IN_RECORDS = "a record says whether its scaling is weak, and its time is to the target"


@pytest.mark.parametrize(
    ("unknown", "field"),
    [
        ({f"scaling[{at}].global_batch": None for at in range(3)}, "scaling[0].global_batch"),
        ({**WEAK, **RATES, f"{LAST}.iterations_to_target": None}, f"{LAST}.iterations_to_target"),
        (
            {**WEAK, "sides[0].workload.learning_rate_rule": None, f"{LAST}.learning_rate": None},
            f"{LAST}.learning_rate",
        ),
        (
            {**TWO, "sides[1].workload.global_batch": None, "sides[1].workload.ranks": 1},
            "sides[0].workload.global_batch",
        ),
    ],
    ids=["the batches", "the iterations to the target", "the learning rate", "the batch of a comparison"],
)
def test_what_would_decide_is_asked_for(unknown, field):
    assert found(rule, changes(clean_claim(), unknown)) == [("not-stated", field)]


def test_the_finding_says_how_much_sooner_the_target_comes():
    """Four times the batch and half the iterations are twice the samples."""
    (finding,) = rule.check(changes(clean_claim(), {**WEAK, **RATES, **STEPS}))
    assert "the rate of 'new' grows 3.48 times" in finding.found
    assert "takes 2 times the samples: it comes 1.74 times as soon" in finding.found


def test_the_fault_alone_is_found_by_no_other_rule():
    assert other_findings(rule, changes(clean_claim(), GROWS)) == []
