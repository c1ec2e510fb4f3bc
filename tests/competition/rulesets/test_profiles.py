"""AlgoPerf's scoring by hand: misses are infinite, the area is exact, the published grid is within half a step."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelbench.competition.rulesets.scores import (
    exact_score,
    geometric_speedup,
    grid_score,
    profile,
    ratios,
    scores,
    with_held_out,
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


def test_a_missed_variant_makes_its_base_a_miss():
    base = {"a": {"x": 10.0, "y": 10.0}, "b": {"x": 12.0, "y": 12.0}}
    assert with_held_out(base, {"x-tanh": ("x", {"a": INF, "b": 12.0})})["a"] == {"x": INF, "y": 10.0}


def test_beyond_four_times_the_best_is_a_miss_and_exactly_four_is_not():
    base = {"a": {"x": 10.0}, "b": {"x": 40.0}, "c": {"x": 40.1}}
    assert {name: own["x"] for name, own in with_held_out(base, {}).items()} == {"a": 10.0, "b": 40.0, "c": INF}


def test_a_variant_counts_as_missed_where_its_base_was_before_its_best_is_taken():
    """a is fastest on the variant but missed the base: its 1 s is no best that others are held against."""
    base = {"a": {"x": INF}, "b": {"x": 10.0}}
    assert with_held_out(base, {"v": ("x", {"a": 1.0, "b": 9.0})})["b"]["x"] == 10.0


def test_a_speedup_is_the_geometric_mean_of_ratios_and_a_miss_counts_as_the_budget_and_a_second():
    a, b = {"x": 10.0, "y": 10.0}, {"x": 20.0, "y": INF}
    assert geometric_speedup(a, b, {"x": 100, "y": 79}) == pytest.approx(math.sqrt(2 * 8))
    assert geometric_speedup(b, a, {"x": 100, "y": 79}) == pytest.approx(1 / 4)
    assert geometric_speedup(a, a, {"x": 100, "y": 79}) == 1.0


@pytest.mark.parametrize(
    "times", [{"a": {"x": 1.0}, "b": {"y": 1.0}}, {"a": {"x": 0.0}}, {"a": {"x": math.nan}}, {"a": {}}]
)
def test_times_that_make_no_profile_are_an_error(times):
    with pytest.raises(UsageError):
        ratios(times)
