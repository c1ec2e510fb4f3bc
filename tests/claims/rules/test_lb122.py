"""LB122: test data that stopped, tuned, or was looked at again and again."""

from pathlib import Path

from tests.claims.clean import changes, clean_claim, other_findings
from tests.claims.run_store import write_runs

from levelbench.claims.rules.lb122_stopped_on_test_data import rule

Q = "sides[0].quality"

GUILTY = {
    "the best epoch by the test data": (
        {f"{Q}.stopping_split": "test", "sides[0].time_of": "run"},
        ("error", f"{Q}.stopping_split"),
    ),
    "a time to a target on the test data": ({f"{Q}.stopping_split": "test"}, ("warning", f"{Q}.stopping_split")),
    "tuned on the test data": ({f"{Q}.tuning_split": "test"}, ("error", f"{Q}.tuning_split")),
    "evaluated on the test data after each epoch": ({f"{Q}.test_looks": 12}, ("warning", f"{Q}.test_looks")),
}
INNOCENT = {
    "tuned and stopped on a validation split": {},
    "the test data was never opened": {f"{Q}.test_looks": 0, f"{Q}.split": "validation"},
    "stopped by the training loss": {f"{Q}.stopping_split": "train"},
    "nothing was tuned, so no data did": {f"{Q}.tuning_split": None, "sides[0].tuning.trials": 0},
    "a validation figure that says nothing of the test data": {f"{Q}.split": "validation", f"{Q}.test_looks": None},
}
UNSTATED = {
    "what stopped it": ({f"{Q}.stopping_split": None}, f"{Q}.stopping_split"),
    "how often the test data was looked at": ({f"{Q}.test_looks": None}, f"{Q}.test_looks"),
    "what the trials were judged on": ({f"{Q}.tuning_split": None}, f"{Q}.tuning_split"),
}


PLANTED = "the settings were chosen on the test data", {"sides[0].quality.tuning_split": "test"}


def planted_in(store: Path) -> str:
    write_runs(store, looks=True)
    return "digits"


IN_RECORDS = "the test data is evaluated after every epoch", planted_in


def test_the_looks_are_counted_on_the_curve_where_they_are_not_stated():
    planted = {f"{Q}.stopping_split": "test", f"{Q}.test_looks": None, "sides[0].time_of": "run"}
    (finding,) = rule.check(changes(clean_claim(), planted))
    assert "looked at 12 times in a run" in finding.found


def test_the_fault_alone_is_found_by_no_other_rule():
    planted = {f"sides[{at}].quality.tuning_split": "test" for at in range(2)}
    assert other_findings(rule, changes(clean_claim(), planted)) == []
