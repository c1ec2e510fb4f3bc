"""Comparing two samples, and planning how many runs that takes."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from levelbench.errors import UnknownNameError
from levelbench.measure.statistics import (
    more_runs,
    normal_cdf,
    reaches_on_average,
    runs_needed,
    runs_needed_t,
    settling_error,
    t_quantile,
    welch_log_ratio,
)

samples = st.lists(st.floats(0.1, 10), min_size=2, max_size=5)


@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), min_size=2, max_size=5))
def test_welch_on_logarithms_is_scipys(both):
    a, b = zip(*both, strict=True)
    assume(np.ptp(a) > 1e-3 and np.ptp(b) > 1e-3)
    ours = welch_log_ratio(a, b, resolution=0.0)
    theirs = stats.ttest_ind(np.log(b), np.log(a), equal_var=False)
    interval = theirs.confidence_interval(0.95)
    assert ours.p_value == pytest.approx(theirs.pvalue, rel=1e-8, abs=1e-12)
    assert ours.dof == pytest.approx(theirs.df, rel=1e-9)
    assert np.log([ours.interval.low, ours.interval.high]) == pytest.approx([interval.low, interval.high], abs=1e-8)


@given(samples, samples)
def test_a_smaller_arm_does_not_make_the_interval_narrower_than_scipys(a, b):
    assume(np.ptp(a) > 1e-3 and np.ptp(b) > 1e-3)
    ours = welch_log_ratio(a, b, resolution=0.0).interval
    theirs = stats.ttest_ind(np.log(b), np.log(a), equal_var=False).confidence_interval(0.95)
    assert math.log(ours.low) <= theirs.low + 1e-8
    assert math.log(ours.high) >= theirs.high - 1e-8


@given(samples, samples)
def test_exchanging_the_arms_inverts_the_ratio(a, b):
    forth, back = welch_log_ratio(a, b), welch_log_ratio(b, a)
    assert forth.ratio * back.ratio == pytest.approx(1.0)
    assert forth.interval.low * back.interval.high == pytest.approx(1.0)


def test_constant_samples_have_a_point_for_an_interval():
    found = welch_log_ratio([0.3] * 3, [0.6] * 4, resolution=0.0)
    assert found.ratio == pytest.approx(2.0)
    assert found.interval.low == found.interval.high
    assert found.p_value == 0.0
    assert welch_log_ratio([0.3] * 3, [0.3] * 4, resolution=0.0).p_value == 1.0


@pytest.mark.parametrize(("a", "b"), [([1.0], [1.0, 2.0]), ([1.0, 0.0], [1.0, 2.0])])
def test_too_few_or_impossible_times_are_refused(a, b):
    with pytest.raises(ValueError, match="values"):
        welch_log_ratio(a, b)


@pytest.mark.parametrize(("direction", "alternative"), [("higher", "greater"), ("lower", "less")])
def test_reaching_on_average_is_a_one_sided_t_test(direction, alternative):
    qualities = [0.941, 0.939, 0.9405, 0.942, 0.9399]
    ours = reaches_on_average(qualities, 0.94, direction)
    assert ours.p_value == pytest.approx(stats.ttest_1samp(qualities, 0.94, alternative=alternative).pvalue, rel=1e-9)
    assert ours.reached == (ours.p_value < 0.05)


def test_a_single_run_reaches_nothing_on_average():
    found = reaches_on_average([0.99], 0.9)
    assert (found.p_value, found.reached, found.n) == (None, False, 1)


def test_equal_qualities_at_the_target_reach_it():
    assert reaches_on_average([0.97] * 3, 0.97).reached
    assert not reaches_on_average([0.96] * 3, 0.97).reached
    assert reaches_on_average([3.28] * 3, 3.28, "lower").reached


def test_a_direction_that_does_not_exist_is_refused():
    with pytest.raises(UnknownNameError):
        reaches_on_average([1.0, 2.0], 1.0, "upward")


@pytest.mark.parametrize(
    ("cv", "effect", "n"), [(0.02, 0.02, 16), (0.02, 0.05, 3), (0.05, 0.02, 99), (0.05, 0.05, 16), (0.05, 0.1, 4)]
)
def test_runs_needed_are_those_of_the_published_table(cv, effect, n):
    assert runs_needed(cv, effect) == n


@given(st.floats(0.001, 0.3), st.floats(0.01, 0.5))
def test_the_t_version_asks_for_no_fewer_runs_and_few_more(cv, effect):
    assert runs_needed(cv, effect) <= runs_needed_t(cv, effect) <= runs_needed(cv, effect) + 3


@pytest.mark.parametrize(("cv", "effect", "n"), [(0.05, 0.05, 17), (0.05, 0.1, 6), (0.02, 0.05, 4), (0.1, 0.05, 64)])
def test_the_t_version_is_the_power_analysis_by_the_noncentral_t(cv, effect, n):
    """Runs by scipy.stats.nct at a power of 0.8."""
    assert runs_needed_t(cv, effect) == n


def test_without_noise_two_runs_are_enough():
    assert runs_needed(0.0, 0.1) == 2


@pytest.mark.parametrize(("cv", "effect"), [(-0.1, 0.1), (math.nan, 0.1), (0.1, 0.0)])
def test_impossible_plans_are_refused(cv, effect):
    with pytest.raises(ValueError, match="must be"):
        runs_needed(cv, effect)


def test_a_difference_is_settled_at_the_error_of_the_classic_formula():
    assert settling_error(0.1, 0.0) == pytest.approx(0.1 / (1.959964 + 0.841621), rel=1e-6)


@given(st.floats(0.0, 0.019))
def test_sameness_is_settled_with_the_power_asked_for(distance):
    error = settling_error(distance, 0.02)
    z = 1.959964
    same = normal_cdf((0.02 - distance) / error - z) + normal_cdf((0.02 + distance) / error - z) - 1
    different = normal_cdf(distance / error - z)
    assert max(same, different) == pytest.approx(0.8, abs=1e-4)


@given(st.floats(0.001, 0.2), st.floats(0.001, 0.2), st.integers(2, 30), st.integers(2, 30), st.floats(0.001, 0.05))
def test_more_runs_are_the_fewest_that_bring_the_error_down(s_a, s_b, n_a, n_b, error):
    more = more_runs(s_a, n_a, s_b, n_b, error)

    def reached(extra, slack=1e-12):
        return math.sqrt(s_a**2 / (n_a + extra) + s_b**2 / (n_b + extra)) <= error * (1 + slack)

    assert reached(more)
    # One run of the answer is the correction for the t distribution, and it is never below one.
    assert more <= 2 or not reached(more - 2, -1e-12)


def test_no_number_of_runs_gives_an_error_of_zero():
    assert more_runs(0.1, 5, 0.1, 5, 0.0) is None
    assert more_runs(0.1, 5, 0.1, 5, 1e-9) is None


@pytest.mark.parametrize(("cv", "effect"), [(0.02, 0.02), (0.05, 0.05), (0.03, 0.02)])
def test_planned_runs_have_the_planned_power(cv, effect):
    n = runs_needed_t(cv, effect)
    random = np.random.default_rng(11)
    a = random.normal(1.0, cv, (20_000, n))
    b = random.normal(1.0 + effect, cv, (20_000, n))
    t = (b.mean(1) - a.mean(1)) / np.sqrt((a.var(1, ddof=1) + b.var(1, ddof=1)) / n)
    power = (np.abs(t) > t_quantile(0.975, 2 * n - 2)).mean()
    assert 0.78 < power < 0.84
