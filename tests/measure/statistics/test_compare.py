"""Comparing two samples, and a sample with a target."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from levelbench.errors import UnknownNameError
from levelbench.measure.statistics import reaches_on_average, welch_log_ratio

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
