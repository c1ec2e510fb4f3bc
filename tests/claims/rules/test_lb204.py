"""LB204: figures that vary, without an interval."""

from pathlib import Path

import pytest
from tests.claims.clean import changes, clean_claim, found, other_findings
from tests.claims.run_store import SEEDS, write_runs

from levelbench.claims.rules.lb204_no_interval import rule

SIDE = {"sides[0].interval": None}
ALONE = {**SIDE, "sides[0].runs": [], "summaries": []}

GUILTY = {
    "the runs differ": (SIDE, ("warning", "sides[0].interval")),
    "it is said to vary": (ALONE, ("warning", "sides[0].interval")),
    "a summary of what varies": ({"summaries[0].interval": None}, ("warning", "summaries[0].interval")),
    "a summary of nobody knows how many": (
        {"summaries[1].interval": None, "summaries[1].n": None},
        ("warning", "summaries[1].interval"),
    ),
}
GUILTY["a ratio of one run"] = (
    {**ALONE, "sides[0].timing.deterministic": None, "sides[0].runs_made": 1, "comparisons[0].interval": None},
    ("warning", "sides[0].runs_made"),
)
BOTH_RATES = {
    f"sides[{at}].{name}": value
    for at in (0, 1)
    for name, value in {"time_s": None, "interval": None, "runs": [], "runs_made": 1, "throughput": 390.0}.items()
} | {f"sides[{at}].timing.deterministic": None for at in (0, 1)}
GUILTY["two rates of one run each"] = (
    {**BOTH_RATES, "summaries": [], "comparisons[0].interval": None, "comparisons[0].ratio": None},
    [("warning", "sides[0].runs_made"), ("warning", "sides[1].runs_made")],
)
SOME = {"sides[0].interval": None, "sides[0].runs_made": 50, "sides[0].runs_reached": 33}
GUILTY["not all runs arrive"] = ({**SOME, "sides[0].timing.deterministic": True}, ("warning", "sides[0].runs_reached"))
GUILTY["not all runs arrive, and the interval is of those that do"] = (
    {**SOME, "sides[0].interval": (29.0, 31.0), "sides[0].reported": "mean"},
    ("warning", "sides[0].runs_reached"),
)
RESTARTS = {"what": "time to expect with restarts", "of": "times", "value": 45.0, "deterministic": True}
UNSTATED = {
    "a rate of an unknown number of runs": (
        {
            **ALONE,
            "sides[0].time_s": None,
            "sides[0].interval": None,
            "sides[0].runs": [],
            "sides[0].throughput": 390.0,
        },
        "sides[0].throughput",
    ),
    "not all runs arrive, and the median may count them": (
        {**SOME, "sides[0].runs": [], "sides[0].reported": "median", "sides[0].interval": (29.0, 60.0)},
        "sides[0].runs",
    ),
}
INNOCENT = {
    "not all runs arrive, and the interval is open": {**SOME, "sides[0].interval": (29.0, float("inf"))},
    "not all runs arrive, and the time with restarts is given": {
        **SOME,
        **ALONE,
        "summaries": [RESTARTS],
        "sides[0].timing.deterministic": True,
    },
    "not all runs arrive, and the time is called an expected one": {
        **SOME,
        "title": "94 %: expected time 61 s",
        "sides[0].interval": (48.0, 90.0),
    },
    "a deterministic time": {**ALONE, "sides[0].timing.deterministic": True},
    "a deterministic summary": {"summaries[0].interval": None, "summaries[0].deterministic": True},
    "a summary of one value": {"summaries[0].interval": None, "summaries[0].n": 1},
    "no time is claimed": {**ALONE, "sides[0].time_s": None},
    "the ratio's interval is missing, those of its sides are there": {"comparisons[0].interval": None},
}
UNKNOWN = {
    "a single run": ({**ALONE, "sides[0].timing.deterministic": None}, "sides[0].interval"),
    "a summary of what may vary": (
        {"summaries[0].interval": None, "summaries[0].deterministic": None},
        "summaries[0].interval",
    ),
    "a ratio whose sides have no times": (
        {"comparisons[0].interval": None, "sides[0].time_s": None, "sides[1].time_s": None},
        "comparisons[0].interval",
    ),
}


PLANTED = "the mean time has no interval", {"sides[0].interval": None}


def planted_in(store: Path) -> str:
    write_runs(store, seeds=SEEDS[:1])
    return "digits"


IN_RECORDS = "there is one run", planted_in


@pytest.mark.parametrize(("planted", "field"), UNKNOWN.values(), ids=UNKNOWN)
def test_whether_it_varies_is_asked_for(planted, field):
    assert found(rule, changes(clean_claim(), planted)) == [("not-stated", field)]


def test_the_finding_gives_the_spread():
    (finding,) = rule.check(changes(clean_claim(), SIDE))
    assert "5 runs of 'new' take from 29." in finding.found


def test_the_share_that_arrives_has_its_interval():
    (finding,) = rule.check(changes(clean_claim(), SOME))
    assert "33 of 50 runs of 'new' reach the target (66 %, 95 % interval 52.2 % to 77.6 %)" in finding.found


def test_a_summary_of_runs_that_were_judged_already_is_not_judged_again():
    assert found(rule, changes(clean_claim(), {**SIDE, "summaries[0].interval": None})) == [
        ("warning", "sides[0].interval")
    ]


def test_no_other_rule_fires_on_its_fault():
    assert other_findings(rule, changes(clean_claim(), SIDE)) == []
