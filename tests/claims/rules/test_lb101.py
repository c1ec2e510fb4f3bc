"""LB101: a point of scaling without its target, or whose quality falls as ranks or batch grow."""

from pathlib import Path

from tests.claims.clean import changes, clean_claim, found, other_findings
from tests.claims.run_store import QUALITIES_SHORT, specification, team, write_runs

from levelbench.claims.rules.lb101_accuracy_ignored_when_scaling import rule

BIG = "scaling[2]"
LOSES = {f"{BIG}.quality": 0.931, f"{BIG}.quality_low": 0.929, f"{BIG}.quality_high": 0.933}
NO_SCALING = {"scaling": [], "sides[0].workload.ranks": 4, "sides[1].workload.ranks": 1}
NEW_LOSES = {"sides[0].quality.value": 0.931, "sides[0].quality.low": 0.929, "sides[0].quality.high": 0.933}
LOSS = {
    "sides[0].quality.metric": "validation loss",
    "sides[0].quality.direction": None,
    "sides[0].quality.target": None,
    **{f"scaling[{at}].reached": None for at in range(3)},
}

GUILTY = {
    "a point did not reach the target": ({f"{BIG}.reached": False}, ("error", f"{BIG}.reached")),
    "nobody says that it did not, the quality does": (
        {f"{BIG}.reached": None, **LOSES},
        ("error", f"{BIG}.reached"),
    ),
    "the quality falls beyond its interval": (
        {f"{BIG}.reached": None, **LOSES, "sides[0].quality.target": None},
        ("error", f"{BIG}.quality"),
    ),
    "only the smallest point has an interval and the quality falls below it": (
        {f"{BIG}.reached": None, **LOSES, f"{BIG}.quality_low": None, "sides[0].quality.target": None},
        ("error", f"{BIG}.quality"),
    ),
    "the target is kept but the quality falls beyond its interval": (
        {f"{BIG}.quality": 0.9405, f"{BIG}.quality_low": 0.9402, f"{BIG}.quality_high": 0.9408},
        ("warning", f"{BIG}.quality"),
    ),
    "a loss rises beyond its interval": (
        {**LOSS, "scaling[1].quality": 0.99, "scaling[1].quality_low": 0.98, "scaling[1].quality_high": 1.0},
        ("error", "scaling[1].quality"),
    ),
    "a comparison of four ranks with one loses quality": (
        {**NO_SCALING, **NEW_LOSES},
        ("error", "sides[0].quality.value"),
    ),
    "a comparison of two batches loses quality and misses the target": (
        {"scaling": [], "sides[0].workload.global_batch": 8000, **NEW_LOSES},
        ("error", "sides[0].quality.value"),
    ),
}
INNOCENT = {
    "a point is shown as not reached, without a speed, beside those that reached the target": {
        f"{BIG}.reached": False,
        f"{BIG}.time_s": None,
        f"{BIG}.throughput": None,
    },
    "the quality falls within its interval": {f"{BIG}.quality": 0.9429},
    "the quality rises beyond its interval": {
        f"{BIG}.quality": 0.951,
        f"{BIG}.quality_low": 0.950,
        f"{BIG}.quality_high": 0.952,
    },
    "the quality is not given but the target is reached": {f"scaling[{at}].quality": None for at in range(3)},
    "a loss falls beyond its interval": {
        **LOSS,
        "scaling[1].quality": 0.90,
        "scaling[1].quality_low": 0.89,
        "scaling[1].quality_high": 0.91,
    },
    "there is no scaling and the sides are of one size": {"scaling": [], **NEW_LOSES},
    "a larger side loses quality on another metric": {
        **NO_SCALING,
        **NEW_LOSES,
        "sides[0].quality.metric": "top-1 of the reassessed labels",
    },
}
UNSTATED = {
    "whether more of the metric is better": (
        {**LOSS, "sides[0].quality.metric": "score", f"{BIG}.quality": 0.90},
        f"{BIG}.quality",
    ),
}


PLANTED = "the largest point did not reach its target", {"scaling[2].reached": False}


def planted_in(store: Path) -> str:
    write_runs(store)
    write_runs(store, start=20, spec=specification(distribution=team(4)), qualities=QUALITIES_SHORT, epoch_s=0.6)
    return "digits"


IN_RECORDS = "the runs of 4 ranks never reach the target", planted_in


def test_a_side_that_says_nothing_of_its_quality_is_asked_once():
    silent = {f"scaling[{at}].{name}": None for at in range(3) for name in ("reached", "quality")}
    (finding,) = rule.check(changes(clean_claim(), silent))
    assert (finding.severity, finding.field) == ("not-stated", "scaling[0].reached")
    assert "on 1, 2, 4 ranks" in finding.found


def test_a_fall_without_any_interval_is_not_guilt():
    bare = {f"scaling[{at}].{name}": None for at in range(3) for name in ("quality_low", "quality_high", "reached")}
    level = {"scaling[0].quality": 0.943, "scaling[1].quality": 0.943, f"{BIG}.quality": 0.9425}
    claim = changes(clean_claim(), {**bare, **level})
    assert found(rule, claim) == [("not-stated", f"{BIG}.quality")]


def test_the_finding_holds_both_qualities_and_the_target():
    (finding,) = rule.check(changes(clean_claim(), {f"{BIG}.reached": False, **LOSES}))
    assert "on 4 ranks" in finding.found
    assert "target of 0.94 (quality 0.931 [0.929, 0.933])" in finding.found


def test_the_fault_alone_is_found_by_no_other_rule():
    assert other_findings(rule, changes(clean_claim(), {f"{BIG}.reached": False})) == []
