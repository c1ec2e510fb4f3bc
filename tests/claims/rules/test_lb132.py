"""LB132: a baseline that had less care, is years old, or comes from nowhere."""

from pathlib import Path

import pytest
from tests.claims.clean import changes, clean_claim, found, other_findings
from tests.claims.run_store import specification, write_runs

from levelbench.claims.rules.lb132_baseline_untuned_or_old import rule
from levelbench.records import key_of
from levelbench.records.searches import Search, SearchedSide

BASE = "sides[1]"
OLD = {f"{BASE}.year": 2021, "standards": []}
UNSAID = {f"sides[{at}].tuning.budget_equal": None for at in (0, 1)}
NEWER = {"sides[2]": {"name": "newer", "year": 2025, "source": "an entry", "tuned": True}}

GUILTY = {
    "the baseline was not tuned": ({f"{BASE}.tuned": False}, ("error", f"{BASE}.tuned")),
    "the baseline was not tuned and the new side had trials": (
        {f"{BASE}.tuned": False, "sides[0].tuned": None},
        ("error", f"{BASE}.tuned"),
    ),
    "the budgets are said to differ": (
        {f"{BASE}.tuning.budget_equal": False, f"{BASE}.tuning.trials": None},
        ("warning", f"{BASE}.tuning.budget_equal"),
    ),
    "the new side had far more trials": (
        {**UNSAID, f"{BASE}.tuning.trials": 4},
        ("warning", f"{BASE}.tuning.trials"),
    ),
    "the new side had trials and the baseline none": (
        {**UNSAID, f"{BASE}.tuning.trials": 0},
        ("warning", f"{BASE}.tuning.trials"),
    ),
    "the baseline is old": (OLD, ("warning", f"{BASE}.year")),
    "the baseline is old and nobody stated a comparison": ({**OLD, "comparisons": []}, ("warning", f"{BASE}.year")),
    "the source is no source": ({f"{BASE}.source": "unpublished"}, ("warning", f"{BASE}.source")),
    "the source is empty": ({f"{BASE}.source": " "}, ("warning", f"{BASE}.source")),
}
INNOCENT = {
    "neither side was tuned": {
        f"{BASE}.tuned": False,
        "sides[0].tuned": False,
        "sides[0].tuning.trials": None,
    },
    "the baseline had more trials": {**UNSAID, f"{BASE}.tuning.trials": 90, "sides[0].tuning.budget_equal": False},
    "the new side had twice the trials": {**UNSAID, f"{BASE}.tuning.trials": 12},
    "fewer trials in an equal budget": {f"{BASE}.tuning.trials": 3},
    "the baseline is of two years before": {**OLD, f"{BASE}.year": 2024},
    "an old baseline beside a newer entry of the task": {f"{BASE}.year": 2021},
    "an old baseline beside a newer one": {
        **OLD,
        **NEWER,
        "comparisons[1]": {"new": "new", "base": "newer", "of": "target"},
    },
    "a speed-up over one process of itself": {**OLD, f"{BASE}.source": None, "comparisons[0].base_kind": "one-process"},
    "the same specification on an older machine": {**OLD, f"{BASE}.performance.specification": "sha256:new"},
    "a source that begins like none": {f"{BASE}.source": "Nonesuch et al. (2025)"},
    "an untuned side that is nobody's baseline": {
        "comparisons": [],
        f"{BASE}.baseline": None,
        f"{BASE}.tuned": False,
    },
}


PLANTED = "the baseline was not tuned", {"sides[1].tuned": False}


def planted_in(store: Path) -> str:
    specs = [specification(settings={"lr": rate}) for rate in (0.05, 0.1)]
    sides = []
    for at, (spec, trials) in enumerate(zip(specs, (2, 20), strict=True)):
        write_runs(store, spec=spec, start=at)
        tried = [f"{at:04x}{number:04x}" for number in range(trials)]
        sides.append(SearchedSide(f"side {at}", ["lr=log(0.01,1)"], tried, 2.0 * trials, key_of(spec)))
    search = Search("digits", "random", 0, 20, None, [1, 2, 3], sides)
    path = search.path_in(store, "one")
    path.parent.mkdir()
    path.write_bytes(search.as_text())
    return "digits"


IN_RECORDS = "the settings of the base were found in 2 trials, those of the other side in 20", planted_in


OTHER = {"comparisons[0].base_kind": "other-system"}


def test_the_same_program_in_another_setting_needs_no_source():
    assert found(rule, changes(clean_claim(), {f"{BASE}.source": None, f"{BASE}.year": None})) == []


def test_the_speed_of_a_step_has_nothing_to_tune():
    unsaid = {f"{BASE}.{name}": None for name in ("tuned", "tuning.trials", "reference")}
    step = {**unsaid, "comparisons[0].of": "step"}
    assert found(rule, changes(clean_claim(), step)) == []


@pytest.mark.parametrize(
    ("unknown", "field"),
    [
        ({f"{BASE}.source": None, **OTHER}, f"{BASE}.source"),
        ({f"{BASE}.year": None, f"{BASE}.runs": [], **OTHER}, f"{BASE}.year"),
        ({f"{BASE}.tuned": False, "sides[0].tuned": None, "sides[0].tuning.trials": None}, "sides[0].tuned"),
        (
            {f"{BASE}.tuned": None, f"{BASE}.tuning.trials": None, f"{BASE}.reference": None},
            f"{BASE}.tuned",
        ),
    ],
    ids=["the source", "the year of figures that were taken over", "the tuning of the other", "the tuning"],
)
def test_what_would_decide_is_asked_for(unknown, field):
    assert found(rule, changes(clean_claim(), unknown)) == [("not-stated", field)]


def test_the_finding_holds_both_efforts():
    (finding,) = rule.check(changes(clean_claim(), {**UNSAID, f"{BASE}.tuning.trials": 4}))
    assert finding.found == "'new' had 24 trials of tuning and 'base' 4"


def test_the_fault_alone_is_found_by_no_other_rule():
    assert other_findings(rule, changes(clean_claim(), {f"{BASE}.tuned": False})) == []


def test_a_program_whose_overhead_is_measured_is_asked_for_no_tuning():
    base = {
        f"{BASE}.tuned": None,
        f"{BASE}.tuning.trials": None,
        f"{BASE}.source": None,
        "sides[0].tuning.trials": None,
    }
    base |= {f"{BASE}.reference": None, "comparisons[0].base_kind": "other-system"} | UNSAID
    assert found(rule, changes(clean_claim(), {**base, "title": "2 % faster than the native framework"})) != []
    assert found(rule, changes(clean_claim(), {**base, "title": "Adds 0.1 % to the time of a run"})) == []
