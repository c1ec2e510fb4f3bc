"""LB105: the speed-up of a part claimed for the whole, with Amdahl's bound."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.claims.clean import changes, clean_claim, found, other_findings

from levelbench.claims.rules.lb105_kernels_only import rule

C = "comparisons[0]"
CLOCK = "sides[0].clock"
KERNEL = {f"{C}.of": "kernel", f"{C}.ratio": 5.0, f"{C}.interval": (4.9, 5.1), f"{C}.part_share": 0.3}
CHANGE_OF_PART = {f"{C}.part_share": 0.2, f"{C}.claimed_for": "whole"}

GUILTY = {
    "a kernel's ratio is claimed for the whole": (KERNEL, ("error", f"{C}.claimed_for")),
    "a ratio of the whole that the part's share does not allow": (
        {**CHANGE_OF_PART, f"{C}.ratio": 1.4},
        ("error", f"{C}.claimed_for"),
    ),
    "only parts of the run are timed": (
        {f"{CLOCK}.whole": False, f"{CLOCK}.part_share": 0.6},
        ("warning", f"{CLOCK}.whole"),
    ),
    "communication is left out on several ranks": (
        {f"{CLOCK}.communication": False},
        ("error", f"{CLOCK}.communication"),
    ),
}
INNOCENT = {
    "a kernel's ratio is claimed for the kernel": {**KERNEL, f"{C}.claimed_for": "part"},
    "for the kernel, and nobody knows its share": {**KERNEL, f"{C}.claimed_for": "part", f"{C}.part_share": None},
    "a kernel that is the whole": {**KERNEL, f"{C}.part_share": 1.0},
    "the whole became slower by a change of a part": {**CHANGE_OF_PART, f"{C}.ratio": 0.9},
    "the whole gains what its part allows": {**CHANGE_OF_PART, f"{C}.ratio": 1.24},
    "a clock without communication on one rank": {
        f"{CLOCK}.communication": False,
        "sides[0].workload.ranks": 1,
        "scaling": [],
    },
    "parts of a call of inference": {f"{CLOCK}.whole": False, "sides[0].time_of": "call"},
    "the policy says what is timed": {f"{CLOCK}.whole": None},
}


PLANTED = "a kernel's ratio is claimed for the whole", {"comparisons[0].of": "kernel", "comparisons[0].part_share": 0.1}
IN_RECORDS = "a record times whole runs and no kernel"


def test_what_is_missing_is_asked_for():
    silent = {**KERNEL, f"{C}.claimed_for": None, f"{C}.part_share": None}
    assert found(rule, changes(clean_claim(), silent)) == [
        ("not-stated", f"{C}.claimed_for"),
        ("not-stated", f"{C}.part_share"),
    ]


def test_a_step_may_be_a_part_and_a_run_is_whole_by_its_name():
    silent = {f"{CLOCK}.whole": None, f"{CLOCK}.policy": None}
    assert found(rule, changes(clean_claim(), {**silent, "sides[0].time_of": "step"})) == [
        ("not-stated", f"{CLOCK}.whole")
    ]
    assert found(rule, changes(clean_claim(), {**silent, "sides[0].time_of": "run"})) == []


def test_amdahls_bound_is_printed():
    (finding,) = rule.check(changes(clean_claim(), KERNEL))
    # 1 / (0.7 + 0.3 / 5) and 1 / 0.7
    assert "a ratio of 5 of a part is claimed for the whole" in finding.found
    assert "the part takes 30 % of the time, so by Amdahl's law the whole gains 1.32 times" in finding.found
    assert "never more than 1.43 times" in finding.found


@given(share=st.floats(), ratio=st.floats())
def test_no_share_and_no_ratio_is_too_odd(share, ratio):
    odd = replace(changes(clean_claim(), KERNEL).comparisons[0], part_share=share, ratio=ratio)
    severities = [severity for severity, _ in found(rule, replace(clean_claim(), comparisons=[odd]))]
    assert severities in ([], ["error"], ["error", "not-stated"])


def test_the_fault_alone_is_found_by_no_other_rule():
    # A measured ratio between 1.25 and 1.43 is of the whole, so that no figure but the kernel's changes.
    planted = {f"{C}.of": "kernel", f"{C}.part_share": 0.3}
    assert other_findings(rule, changes(clean_claim(), planted)) == []
    assert other_findings(rule, changes(clean_claim(), {f"{CLOCK}.whole": False})) == []
