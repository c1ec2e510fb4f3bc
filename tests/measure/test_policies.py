"""Clock policies: views over the same totals, with what they left out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.errors import UnknownNameError
from levelbench.measure.policies import POLICIES, policy
from levelbench.measure.timeline import Phase

S = 10**9
TOTALS = {
    "prepare": 100 * S,
    "compile": 30 * S,
    "data": 5 * S,
    "forward": 40 * S,
    "backward": 80 * S,
    "update": 10 * S,
    "evaluate": 20 * S,
    "checkpoint": 4 * S,
    "other": 1 * S,
}
ANY_TOTALS = st.dictionaries(st.sampled_from([phase.label for phase in Phase]), st.integers(0, 10**14))


@pytest.mark.parametrize(
    ("name", "seconds", "excluded"),
    [
        ("wall", 290.0, {}),
        ("dawnbench", 266.0, {"evaluate": 20.0, "checkpoint": 4.0}),
        ("mlperf", 160.0, {"prepare": 100.0, "compile": 30.0}),
        ("algoperf", 165.0, {"prepare": 100.0, "evaluate": 20.0, "checkpoint": 4.0, "other": 1.0}),
    ],
)
def test_scores_of_totals_computed_by_hand(name, seconds, excluded):
    score = policy(name).score(TOTALS)
    assert score.seconds == pytest.approx(seconds)
    assert score.excluded_s == pytest.approx(excluded)


def test_mlperf_leaves_out_thirty_minutes_of_initialisation_and_no_more():
    score = policy("mlperf").score({"prepare": 1500 * S, "compile": 500 * S, "forward": 10 * S})
    assert score.excluded_s == pytest.approx({"prepare": 1500.0, "compile": 300.0})
    assert score.seconds == pytest.approx(210.0)


def test_mlperf_counts_compilation_when_preparing_used_up_the_cap():
    score = policy("mlperf").score({"prepare": 2000 * S, "compile": 500 * S})
    assert score.excluded_s == pytest.approx({"prepare": 1800.0})
    assert score.seconds == pytest.approx(700.0)


@pytest.mark.parametrize("name", POLICIES)
@given(totals=ANY_TOTALS)
def test_score_and_what_was_left_out_sum_to_the_wall_time(name, totals):
    score = POLICIES[name].score(totals)
    wall_s = sum(totals.values()) * 1e-9
    assert score.seconds + sum(score.excluded_s.values()) == pytest.approx(wall_s, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("name", POLICIES)
@given(totals=ANY_TOTALS)
def test_no_policy_leaves_out_more_than_a_phase_took(name, totals):
    score = POLICIES[name].score(totals)
    assert score.seconds >= -1e-6
    assert all(0 < seconds <= totals[phase] * 1e-9 for phase, seconds in score.excluded_s.items())


def test_a_name_that_is_no_phase_counts():
    assert policy("dawnbench").score({"forward": S, "warmdown": S}).seconds == pytest.approx(2.0)


def test_nothing_that_took_no_time_is_listed_as_left_out():
    assert policy("dawnbench").score({"forward": S}).excluded_s == {}


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_names_its_source(name):
    assert POLICIES[name].name == name
    assert POLICIES[name].source


def test_an_unknown_policy_is_answered_with_the_nearest():
    with pytest.raises(UnknownNameError, match="close: dawnbench"):
        policy("dawnbech")
