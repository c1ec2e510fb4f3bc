"""LB302: a baseline that does not reach what it is known for."""

from pathlib import Path

import pytest
from tests.claims.clean import changes, clean_claim, found, other_findings
from tests.claims.run_store import QUALITIES_SHORT, specification, write_runs

from levelbench.claims.rules.lb302_reference_not_verified import rule

BASE = "sides[1]"
LOW = {f"{BASE}.quality.value": 0.91, f"{BASE}.quality.low": 0.905, f"{BASE}.quality.high": 0.915}
UNSAID = {f"{BASE}.reference": None}
LOSS = {
    f"{BASE}.quality.metric": "perplexity",
    f"{BASE}.quality.direction": None,
    f"{BASE}.quality.low": None,
    f"{BASE}.quality.high": None,
    f"{BASE}.quality.standard": 18.0,
}

GUILTY = {
    "the baseline is not verified": ({f"{BASE}.reference": False}, ("warning", f"{BASE}.reference")),
    "the baseline is below what is usual": ({**LOW, **UNSAID}, ("error", f"{BASE}.quality.value")),
    "a verified reference is below what is usual": (LOW, ("error", f"{BASE}.quality.value")),
    "a verified reference that is no baseline is below what is usual": (
        {**LOW, "comparisons": [], f"{BASE}.baseline": None},
        ("error", f"{BASE}.quality.value"),
    ),
    "no run of the baseline reached the target": ({f"{BASE}.runs_reached": 0}, ("error", f"{BASE}.quality.value")),
    "the accuracy leaves half as many errors again, with no interval": (
        {f"{BASE}.quality.value": 0.91, f"{BASE}.quality.low": None, f"{BASE}.quality.high": None, **UNSAID},
        ("error", f"{BASE}.quality.value"),
    ),
    "the perplexity is far above what is usual": (
        {**LOSS, f"{BASE}.quality.value": 24.0},
        ("error", f"{BASE}.quality.value"),
    ),
}
INNOCENT = {
    "the usual quality is within the interval": {**LOW, f"{BASE}.quality.high": 0.941},
    "nobody says so, and the figures show it": UNSAID,
    "the new side is below what is usual": {
        "sides[0].reference": None,
        "sides[0].quality.value": 0.91,
        "sides[0].quality.low": 0.905,
        "sides[0].quality.high": 0.915,
    },
    "the perplexity is below what is usual": {**LOSS, f"{BASE}.quality.value": 17.2},
    "some runs of the baseline missed the target": {f"{BASE}.runs_reached": 4},
    "a kernel is compared": {f"{BASE}.reference": False, "comparisons[0].of": "kernel"},
    "the new side is not verified": {"sides[0].reference": False},
}


PLANTED = "the baseline is not a verified reference", {"sides[1].reference": False}


def planted_in(store: Path) -> str:
    write_runs(store, qualities=QUALITIES_SHORT)
    write_runs(store, start=20, spec=specification(framework="torch"))
    return "digits"


IN_RECORDS = "no run of the base reaches the target", planted_in


OWN_RERUN = {f"{BASE}.quality.standard": None, f"{BASE}.source": None, "comparisons[0].base_kind": "other-system"}


@pytest.mark.parametrize("unknown", [OWN_RERUN, {f"{BASE}.quality.value": None}], ids=["usual quality", "own quality"])
def test_a_baseline_of_which_nobody_says_whether_it_is_right_is_asked_for(unknown):
    claim = changes(clean_claim(), {**UNSAID, **unknown})
    assert found(rule, claim) == [("not-stated", f"{BASE}.reference")]


A_LITTLE_ABOVE = {
    "metric": "perplexity",
    "direction": None,
    "standard": 18.0,
    "value": 18.05,
    "low": None,
    "high": None,
}


@pytest.mark.parametrize("reference", [True, None])
@pytest.mark.parametrize(
    "quality", [{"value": 0.9395, "low": None, "high": None}, A_LITTLE_ABOVE], ids=["accuracy", "perplexity"]
)
def test_the_interval_of_a_quality_a_little_below_the_usual_one_is_asked_for(reference, quality):
    stated = {f"{BASE}.quality.{name}": value for name, value in quality.items()}
    (finding,) = rule.check(changes(clean_claim(), {f"{BASE}.reference": reference, **stated}))
    assert (finding.severity, finding.field) == ("not-stated", f"{BASE}.quality.value")
    assert "the interval of a quality below the usual one" in finding.found


def test_the_finding_holds_the_quality_and_the_usual_one():
    (finding,) = rule.check(changes(clean_claim(), LOW))
    assert "its top-1 accuracy is 0.91 [0.905, 0.915], where 0.94 is usual" in finding.found


def test_the_fault_alone_is_found_by_no_other_rule():
    assert other_findings(rule, changes(clean_claim(), {f"{BASE}.reference": False})) == []
