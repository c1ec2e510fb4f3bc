"""LB103: runs that are not counted, and tuning that is not stated."""

from pathlib import Path

import pytest
from tests.claims.clean import changes, clean_claim, found, other_findings
from tests.claims.run_store import write_run, write_runs

from levelbench.claims.rules.lb103_tuning_hidden import rule
from levelbench.claims.view import Uncounted

SAME = Uncounted("seeds 6 to 8, not reached", runs=3, hours=0.05, same_specification=True, where="runs/")
SEARCH = Uncounted("other learning rates", runs=400, hours=30.0, where="runs/")
NO_TRIALS = {f"sides[{at}].tuning.{name}": None for at in range(2) for name in ("trials", "hours", "usd")}

GUILTY = {
    "runs of the specification are left out": ({"uncounted[0]": SAME}, [("error", "uncounted[0]")]),
    "more runs with other settings than the trials that are stated": (
        {"uncounted[0]": SEARCH},
        [("warning", "uncounted[0]")],
    ),
    "a search where none is stated": (
        {"sides[0].tuning.trials": 0, "sides[1].tuning.trials": 0, "uncounted[0]": Uncounted("a sweep", runs=9)},
        [("warning", "uncounted[0]")],
    ),
    "both": (
        {"uncounted[0]": SEARCH, "uncounted[1]": SAME},
        [("error", "uncounted[1]"), ("warning", "uncounted[0]")],
    ),
}
INNOCENT = {
    "as many runs with other settings as trials are stated": {"uncounted[0]": Uncounted("the sweep", runs=48)},
    "a place was looked at and holds none": {"uncounted[0]": Uncounted("other runs", runs=0, same_specification=True)},
    "nothing was tuned": {"sides[0].tuning.trials": 0, "sides[0].tuning.hours": None, "sides[0].tuning.usd": None},
    "the cost of tuning in hours alone": {"sides[0].tuning.usd": None},
}
UNSTATED = {
    "the number of trials": ({"sides[0].tuning.trials": None}, "sides[0].tuning.trials"),
    "what the trials cost": (
        {"sides[0].tuning.hours": None, "sides[0].tuning.usd": None},
        "sides[0].tuning.hours",
    ),
}


PLANTED = (
    "three runs of the same specification are left out",
    {"uncounted[0]": Uncounted("3 done", 3, hours=0.03, same_specification=True)},
)


def planted_in(store: Path) -> str:
    write_runs(store)
    for at, seed in enumerate((7, 8)):
        write_run(store / "more", seed, minute=20 + at)
    return f"{(store / 'digits').resolve()}/"


IN_RECORDS = "two more runs of the specification lie in the store", planted_in


def test_a_side_that_claims_nothing_is_not_asked():
    nothing = {f"sides[0].{name}": None for name in ("time_s", "quality.value", "cost_usd", "tuning.trials")}
    planted = {"comparisons": [], **nothing}
    assert found(rule, changes(clean_claim(), planted)) == []


@pytest.mark.parametrize(
    "figure",
    [{"sides[0].time_of": "step"}, {"sides[0].clock.policy": "mlperf"}],
    ids=["a step's time", "a time by rules that limit the search"],
)
def test_a_figure_that_no_search_improves_is_not_asked_for_trials(figure):
    assert found(rule, changes(clean_claim(), {"sides[0].tuning.trials": None, **figure})) == []


def test_a_baseline_is_not_asked_how_often_it_was_tried():
    assert found(rule, changes(clean_claim(), {"sides[1].tuning.trials": None})) == []


def test_the_hours_of_the_search_are_named_with_those_that_are_shown():
    (finding,) = rule.check(changes(clean_claim(), {"uncounted[0]": SEARCH}))
    assert "400 runs (30 h, besides the 5.76 min of those that are shown)" in finding.found
    assert "only 48 trials of tuning" in finding.found


def test_the_fault_alone_is_found_by_no_other_rule():
    assert other_findings(rule, changes(clean_claim(), {"uncounted[0]": SAME})) == []
    assert other_findings(rule, changes(clean_claim(), NO_TRIALS)) == []


def test_the_time_of_a_training_with_its_quality_is_asked_for_trials():
    one = {**NO_TRIALS, "comparisons": [], "sides[0].time_of": "run", "sides[0].cost_usd": None}
    assert ("not-stated", "sides[0].tuning.trials") in found(rule, changes(clean_claim(), one))
    call = {**one, "sides[0].time_of": "call"}
    assert ("not-stated", "sides[0].tuning.trials") not in found(rule, changes(clean_claim(), call))
