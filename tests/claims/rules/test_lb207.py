"""LB207: summaries without the values behind them."""

import pytest
from tests.claims.clean import changes, clean_claim, found, other_findings

from levelbench.claims.rules.lb207_summaries_only import rule

S = "summaries[0]"
KEPT = {f"{S}.raw_available": False}
SILENT = {f"{S}.raw_available": None, "sides[0].runs": [], "sides[1].runs": []}
REPORTED = {"summaries": [], "sides[0].reported": "median", "sides[0].runs_made": 50, "sides[0].runs": []}

GUILTY = {
    "the values are kept": KEPT,
    "of a summary of nobody knows how many": {**KEPT, f"{S}.n": None},
    "of a median too": {**KEPT, f"{S}.by": "median"},
}
INNOCENT = {
    "nobody says, and the runs are in the claim": {f"{S}.raw_available": None},
    "one value is its own summary": {**KEPT, f"{S}.n": 1},
    "a single run is reported": {**REPORTED, "sides[0].reported": "single", "sides[0].runs_made": 1},
    "all runs are reported": {**REPORTED, "sides[0].reported": "all"},
    "a median whose runs are all there": {"summaries": [], "sides[0].reported": "median"},
}
UNKNOWN = {
    "nobody says, and there are no runs": (SILENT, f"{S}.raw_available"),
    "a median of fifty, and none is shown": (REPORTED, "sides[0].runs"),
    "the best of fifty, and it alone is shown": (
        {**REPORTED, "sides[0].reported": "best", "sides[0].runs": [{"time_s": 29.0}]},
        "sides[0].runs",
    ),
}


FINDING = "warning", f"{S}.raw_available"

PLANTED = "the values behind a mean are not to be had", {"summaries[0].raw_available": False}
IN_RECORDS = "every run is there"


@pytest.mark.parametrize(("planted", "field"), UNKNOWN.values(), ids=UNKNOWN)
def test_where_the_values_are_is_asked_for(planted, field):
    assert found(rule, changes(clean_claim(), planted)) == [("not-stated", field)]


def test_no_other_rule_fires_on_its_fault():
    assert other_findings(rule, changes(clean_claim(), KEPT)) == []
