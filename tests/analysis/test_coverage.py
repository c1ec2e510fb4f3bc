"""Intervals of the analyses hold the truth: few trials here, 1,000 in docs/evidence/analyses.md."""

import pytest
from benchmarks.analysis import ANALYSES, Outcome, judged, scenarios, simulate

TRIALS = 8


@pytest.mark.slow
@pytest.mark.parametrize("name", scenarios())
def test_intervals_hold_the_truth_as_often_as_they_say(name):
    outcomes = simulate(name, TRIALS)
    assert outcomes
    # As if one in a thousand of the rows of all scenarios might be below by chance.
    assert [each for each in outcomes if each.below(50 * 150)] == []


def test_of_intervals_that_hold_jointly_one_that_misses_is_a_miss():
    assert judged([(0.5, 0.9, 0.8, 1.0), (1.1, None, 1.2, 1.0)]) == (True, 1.0)
    assert judged([(0.5, 0.9, 0.8, 1.0), (None, 1.1, 1.2, 1.0)]) == (False, 0.5)
    assert judged([(0.9, 1.1, 1.0, 1.0), (1.1, 1.2, 1.0, 1.0)]) == (False, 1.0)
    assert judged([(0.9, 1.1, 1.0, None)]) == (True, None)


def test_a_row_is_below_its_level_only_beyond_chance():
    assert not Outcome("x", 935, 1000, None).below(1000)
    assert Outcome("x", 910, 1000, None).below(1000)


@pytest.mark.slow
@pytest.mark.parametrize("name", ANALYSES)
def test_every_analysis_that_is_timed_analyses_made_up_runs(name):
    assert ANALYSES[name](200)() is not None
