"""AlgoPerf's scoring by hand: misses are infinite, the area is exact, the published grid is within half a step."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelbench.competition.rulesets.scores import (
    exact_score,
    grid_score,
    profile,
    ratios,
    scores,
    workload_time,
)
from levelbench.errors import UsageError

INF = math.inf


@pytest.mark.parametrize(
    ("studies", "time_s"),
    [
        ([[5, 3], [9, 4], [8, INF]], 4),
        ([[INF, INF], [7, 6], [5, 4]], 6),
        ([[INF], [INF], [4]], INF),
        ([[3], [5]], 4),
        ([[3], [INF]], INF),
        ([[7]], 7),
    ],
)
def test_the_median_over_studies_of_the_best_trial_counts_misses_as_never(studies, time_s):
    assert workload_time(studies) == time_s


@pytest.mark.parametrize("studies", [[], [[]], [[1], []]])
def test_a_study_without_trials_is_an_error(studies):
    with pytest.raises(UsageError, match="no trials"):
        workload_time(studies)


def test_a_ratio_is_a_time_over_the_best_and_a_miss_stays_one():
    times = {"a": {"x": 10, "y": 40, "z": INF}, "b": {"x": 20, "y": 20, "z": INF}}
    assert ratios(times) == {"a": {"x": 1, "y": 2, "z": INF}, "b": {"x": 2, "y": 1, "z": INF}}


def test_a_score_is_the_area_under_the_profile_by_hand():
    """Ratios 1, 2.5, 4 and a miss: (1 + 1/2 + 0 + 0) / 4."""
    own = {"w": 1, "x": 2.5, "y": 4, "z": INF}
    assert exact_score(own) == 0.375
    assert [profile(own, tau) for tau in (1, 2.4, 2.5, 4)] == [0.25, 0.25, 0.5, 0.75]


def test_best_everywhere_is_one_and_nowhere_is_zero():
    assert scores({"a": {"x": 1, "y": 1}, "b": {"x": 5, "y": INF}}) == {"a": 1.0, "b": 0.0}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(1, 6) | st.just(INF), min_size=1, max_size=9))
def test_the_grid_is_within_half_a_step_of_the_area(values):
    own = {str(at): each for at, each in enumerate(values)}
    assert abs(grid_score(own) - exact_score(own)) <= 0.5 / 99 + 1e-12


def test_the_grid_is_the_trapezoid_of_numpy():
    numpy = pytest.importorskip("numpy")
    own = {"w": 1.0, "x": 1.7, "y": 3.99, "z": INF}
    taus = numpy.linspace(1, 4, 100)
    heights = [profile(own, tau) for tau in taus]
    assert grid_score(own) == pytest.approx(numpy.trapezoid(heights, taus) / 3, abs=1e-12)


def test_the_score_depends_on_who_else_takes_part():
    alone = scores({"a": {"x": 20}})["a"]
    beside = scores({"a": {"x": 20}, "b": {"x": 10}})["a"]
    assert (alone, beside) == (1.0, pytest.approx(2 / 3))


@pytest.mark.parametrize(
    "times", [{"a": {"x": 1.0}, "b": {"y": 1.0}}, {"a": {"x": 0.0}}, {"a": {"x": math.nan}}, {"a": {}}]
)
def test_times_that_make_no_profile_are_an_error(times):
    with pytest.raises(UsageError):
        ratios(times)
