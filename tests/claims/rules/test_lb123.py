"""LB123: the best of several runs, and how much luck there is in it."""

from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.claims.clean import changes, clean_claim, found, other_findings

from levelbench.claims.rules.lb123_best_of_n import expected_extreme, rule

REPORTED, MADE = "sides[0].reported", "sides[0].runs_made"
TIMES = [run.time_s for run in clean_claim().sides[0].runs]
QUALITIES = [run.quality for run in clean_claim().sides[0].runs]
FASTEST = {"sides[0].time_s": min(TIMES)}
ONE = {"sides[0].runs": clean_claim().sides[0].runs[:1]}

GUILTY = {
    "stated to be the best of five": ({REPORTED: "best", **FASTEST}, ("error", REPORTED)),
    "nobody says so, but it is the fastest run's": ({REPORTED: None, **FASTEST}, ("error", REPORTED)),
    "called the mean, but it is the fastest run's": (FASTEST, ("error", REPORTED)),
    "one of five, and it is not said which": (
        {REPORTED: "single", "sides[0].time_s": sorted(TIMES)[1]},
        ("warning", REPORTED),
    ),
    "the best of an unstated number": ({REPORTED: "best", MADE: None, **ONE}, ("warning", MADE)),
    "the best quality of five": (
        {"sides[0].time_s": None, REPORTED: None, "sides[0].quality.value": max(QUALITIES)},
        ("error", REPORTED),
    ),
    "seven runs were made and five are shown": ({MADE: 7}, ("warning", MADE)),
    "only the title says so, in other words": (
        {"title": "The lowest time of ten seeds", REPORTED: None, "sides[1].reported": None},
        ("warning", REPORTED),
    ),
    "only the title says so": (
        {"title": "1.3 times faster (best of 5)", REPORTED: None, "sides[1].reported": None},
        ("warning", REPORTED),
    ),
    "a rate that is the best of five": (
        {REPORTED: "best", "sides[0].time_s": None, "sides[0].quality.value": None},
        ("warning", REPORTED),
    ),
    "up to, of sides without a time": (
        {"title": "Up to 24 times the throughput", "sides[0].time_s": None, "sides[1].time_s": None},
        ("warning", "title"),
    ),
    "the fastest of many calls": ({REPORTED: "best", "sides[0].time_of": "call"}, ("warning", REPORTED)),
}
INNOCENT = {
    "up to, with a time and which it is": {"title": "Up to 1.3 times faster"},
    "the mean of five": {},
    "the median of five": {REPORTED: "median", "sides[0].time_s": sorted(TIMES)[2]},
    "one run and it says so": {REPORTED: "single", MADE: 1, **ONE},
    "the best of one": {REPORTED: "best", MADE: 1, **ONE},
    "five runs of one time, of which the best is the mean": {
        f"sides[0].runs[{at}].time_s": clean_claim().sides[0].time_s for at in range(5)
    },
    "fifty runs whose values are not given": {MADE: 50, "sides[0].runs": []},
}


PLANTED = "the figure is the best of five runs", {"sides[0].reported": "best"}
IN_RECORDS = "all runs that are selected are shown; those that are not are LB103's"


def test_a_single_run_does_not_say_that_there_was_but_one():
    planted = {REPORTED: "single", MADE: None, **ONE}
    assert found(rule, changes(clean_claim(), planted)) == [("not-stated", MADE)]


def test_the_luck_is_estimated_from_the_runs():
    (finding,) = rule.check(changes(clean_claim(), {REPORTED: "best", **FASTEST}))
    gain = 100 * (1 - min(TIMES) / fmean(TIMES))
    expected = 100 * 1.16296 * stdev(TIMES) / fmean(TIMES)
    assert f"the best is {gain:.3g} % from the mean of the 5 shown (30 s)" in finding.found
    assert f"{expected:.3g} % is expected by chance for the best of 5" in finding.found


def test_without_runs_the_luck_is_in_standard_deviations():
    (finding,) = rule.check(changes(clean_claim(), {REPORTED: "best", MADE: 10, "sides[0].runs": []}))
    assert "the best of 10 normal values is expected 1.54 standard deviations from their mean" in finding.found


@pytest.mark.parametrize(
    ("n", "expected"),
    [(1, 0.0), (2, 0.56419), (3, 0.84628), (5, 1.16296), (10, 1.53875), (20, 1.86748), (100, 2.50759)],
)
def test_the_expected_largest_of_n_is_that_of_the_tables(n, expected):
    # Harter, Expected values of normal order statistics, Biometrika 48 (1961), table 1
    assert expected_extreme(n) == pytest.approx(expected, abs=1e-5)


@given(st.integers(1, 100_000))
def test_more_runs_hold_more_luck(n):
    assert 0.0 <= expected_extreme(n) + 1e-9 < expected_extreme(2 * n) + 1e-9


def test_the_fault_alone_is_found_by_no_other_rule():
    assert other_findings(rule, changes(clean_claim(), {REPORTED: "best"})) == []


@pytest.mark.parametrize(
    "title",
    [
        "As much as 5x faster",
        "At best 5 times faster",
        "5x faster in the best case",
        "Peak speed-up of 5x",
        "Speedups reach 5x",
    ],
)
def test_the_best_of_several_cases_has_many_names(title):
    alone = {"sides[0].time_s": None, "sides[1].time_s": None, "title": title}
    assert found(rule, changes(clean_claim(), alone)) == [("warning", "title")]


def test_how_fast_it_could_be_at_most_is_no_best_case():
    title = "3.1 times faster, of a maximum speed-up of 4 by Amdahl's law"
    alone = {"sides[0].time_s": None, "sides[1].time_s": None, "title": title}
    assert found(rule, changes(clean_claim(), alone)) == []
