import math
from dataclasses import replace

import numpy as np
import pytest

from levelbench.analysis.contrasts import FactorArm, contrast


def cell(*times, on=(), given_up=(), seeds=None, **more):
    return FactorArm(frozenset(on), times, tuple(given_up), tuple(seeds or range(len(times))), **more)


def test_a_contrast_of_two_arms_is_the_paired_ratio_of_times():
    stats = pytest.importorskip("scipy.stats", reason="SciPy is not installed")
    a, b = (3.0, 4.0, 5.0, 4.5), (2.0, 2.5, 3.9, 2.8)
    found = contrast([cell(*b), cell(*a)], [1, -1])
    wanted = stats.ttest_rel(np.log(b), np.log(a)).confidence_interval()
    assert (found.low, found.high) == (pytest.approx(math.exp(wanted.low)), pytest.approx(math.exp(wanted.high)))
    assert found.ratio == pytest.approx(math.exp(np.mean(np.log(b) - np.log(a))))


def test_arms_of_other_seeds_are_compared_by_welchs_interval():
    stats = pytest.importorskip("scipy.stats", reason="SciPy is not installed")
    a, b = (3.0, 4.0, 5.0, 4.5), (2.0, 2.5, 3.9)
    found = contrast([cell(*b, seeds=(7, 8, 9)), cell(*a)], [1, -1])
    wanted = stats.ttest_ind(np.log(b), np.log(a), equal_var=False).confidence_interval()
    assert (found.low, found.high) == (pytest.approx(math.exp(wanted.low)), pytest.approx(math.exp(wanted.high)))
    assert "Welch" in found.method


def test_what_the_seeds_share_cancels():
    luck = np.array([1.0123457, 3.1234567, 0.5345678, 2.0765432])
    found = contrast([cell(*(2 * luck)), cell(*luck)], [1, -1])
    assert (found.low, found.ratio, found.high) == (pytest.approx(2), pytest.approx(2), pytest.approx(2))


def test_a_run_that_missed_in_an_arm_that_counts_for_leaves_the_upper_side_open():
    found = contrast([cell(9.0, 8.0, None, given_up=[10.0]), cell(1.0, 1.1, 0.9)], [1, -1])
    assert found.ratio is None
    assert found.high is None
    assert 1 < found.low < 9
    assert "1 run never reached" in found.reason


def test_a_run_that_missed_in_an_arm_that_counts_against_leaves_the_lower_side_open():
    found = contrast([cell(1.0, 1.1, 0.9), cell(9.0, 8.0, None, given_up=[10.0])], [1, -1])
    assert found.low is None
    assert found.high < 1


def test_runs_that_missed_on_both_sides_bound_nothing():
    found = contrast([cell(1.0, None, given_up=[5.0]), cell(1.0, None, given_up=[5.0])], [1, -1])
    assert (found.low, found.ratio, found.high) == (None, None, None)
    assert "no bound" in found.reason


def test_an_endless_time_counts_as_longer_than_any_other():
    never = contrast([cell(2.0, None, given_up=[math.inf]), cell(1.0, 7.0)], [1, -1])
    late = contrast([cell(2.0, None, given_up=[7.0]), cell(1.0, 7.0)], [1, -1])
    assert never.low == pytest.approx(late.low)


def test_who_tried_for_no_time_bounds_nothing():
    assert contrast([cell(2.0, None, given_up=[0.0]), cell(1.0, 1.0)], [1, -1]).low is None


def test_one_run_an_arm_gives_a_ratio_and_no_interval():
    found = contrast([cell(2.0), cell(1.0)], [1, -1])
    assert (found.ratio, found.low, found.high) == (pytest.approx(2), None, None)
    assert "at least 3 of each arm" in found.reason


def test_an_arm_of_which_all_runs_failed_tells_nothing():
    found = contrast([cell(None, None, given_up=[math.inf] * 2, failed=True), cell(1.0, 2.0)], [1, -1])
    assert found.ratio is None
    assert "failed" in found.reason


def test_the_interval_covers_as_often_as_its_level_says():
    generator = np.random.default_rng(0)
    hits = 0
    for _ in range(500):
        arms = [cell(*np.exp(generator.normal(0, sd, 5))) for sd in (0.05, 0.2, 0.1, 0.3)]
        found = contrast(arms, [1, -1, -1, 1], 0.9)
        hits += found.low <= 1 <= found.high
    # 450 of 500 and four standard deviations.
    assert 423 <= hits <= 477


def test_two_runs_an_arm_give_no_interval_however_alike_they_are():
    found = contrast([cell(0.6, 1.2), cell(0.5, 1.0)], [1, -1])
    assert (found.low, found.high) == (None, None)


def test_times_that_were_read_in_coarse_steps_leave_an_interval():
    found = contrast([cell(0.6, 0.6, 0.6), cell(0.5, 0.5, 0.5)], [1, -1])
    assert found.low < 1.0 < found.high


def test_arms_that_did_not_take_turns_give_no_interval():
    one, other = (cell(*times) for times in ((2.01, 2.02, 2.03), (1.01, 1.02, 1.03)))
    together = [replace(one, spans=((0, 1), (20, 21), (40, 41))), replace(other, spans=((10, 11), (30, 31), (50, 51)))]
    apart = [replace(one, spans=((0, 1), (2, 3), (4, 5))), replace(other, spans=((60, 61), (62, 63), (64, 65)))]
    assert contrast(together, [1, -1]).low > 1.9
    found = contrast(apart, [1, -1])
    assert (found.low, found.high) == (None, None)
    assert found.ratio == pytest.approx(1.98, rel=0.01)
    assert "not interleaved" in found.reason
