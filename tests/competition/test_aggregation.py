"""From the times of several runs to one figure: small boards computed by hand."""

import math

import numpy as np
import pytest
from tests.competition.scored import MEDIAN, MLPERF, OURS, a_run, submission, under

from levelbench.competition.scoring import score


def test_the_olympic_mean_leaves_out_the_fastest_and_the_slowest():
    found = score(submission([a_run(each) for each in (10.0, 20.0, 30.0, 40.0, 90.0)]), MLPERF)
    assert found.time.value == 30.0
    # Kept 20, 30, 40; winsorised 20, 20, 30, 40, 40 with s = 10; t(2) = 4.302653.
    assert found.time.high - 30.0 == pytest.approx(4.302653 * 10 / (0.6 * math.sqrt(5)), rel=1e-6)
    assert found.time.low == 0.0


def test_one_miss_in_an_olympic_mean_is_the_slowest_run_and_two_are_none():
    times = [10.0, 20.0, 30.0, 40.0]
    assert score(submission(map(a_run, [*times, None])), MLPERF).time.value == 30.0
    found = score(submission(map(a_run, [*times[:3], None, None])), MLPERF)
    assert found.time.value is None
    assert found.time.how == "2 of 5 runs did not reach the target, and 1 may"
    assert (found.reached, found.n) == (3, 5)


def test_an_olympic_mean_wants_its_number_of_runs():
    assert "4 runs, where the rules require 5" in score(submission(map(a_run, [1.0, 2.0, 3.0, 4.0])), MLPERF).time.how


@pytest.mark.parametrize(
    ("times", "level"), [((10.0, 20.0, 40.0), "75 %"), ((69.0, 90.0, 200.0, 210.0, 290.0), "93.75 %")]
)
def test_a_median_of_few_runs_has_their_range_at_the_level_that_it_has(times, level):
    found = score(submission(map(a_run, times)), MEDIAN).time
    assert (found.low, found.value, found.high) == (times[0], sorted(times)[len(times) // 2], times[-1])
    assert f"{level} interval" in found.how


def test_the_range_of_five_runs_holds_the_median_as_often_as_it_says():
    rng = np.random.default_rng(5)
    runs = np.exp(rng.normal(size=(20_000, 5)))
    held = np.mean((runs.min(axis=1) <= 1.0) & (runs.max(axis=1) >= 1.0))
    assert held == pytest.approx(0.9375, abs=0.005)


def test_a_median_of_six_runs_has_the_interval_of_their_range():
    found = score(submission(map(a_run, [1.0, 2.0, 3.0, 5.0, 8.0, 13.0])), MEDIAN)
    assert (found.time.low, found.time.value, found.time.high) == (1.0, 4.0, 13.0)


def test_a_single_run_is_a_point_and_says_so():
    found = score(submission([a_run(10.0)]), MEDIAN)
    assert (found.time.value, found.time.low, found.expected_with_restarts_s) == (10.0, None, None)
    assert "single-run" in found.flags


def test_ending_runs_that_look_bad_early_gains_nothing():
    early = [a_run(None, given_up_s=1.5) for _ in range(9)]
    assert score(submission([a_run(5.0), *early]), MEDIAN).time.how == "no median: 1 of 10 runs reached the target"
    some = [a_run(each) for each in (10.0, 20.0, 30.0, 40.0)]
    stopped = score(submission([*some, a_run(None, given_up_s=1.5), a_run(None, given_up_s=1.5)]), MEDIAN)
    patient = score(submission([*some, a_run(None), a_run(None)]), MEDIAN)
    assert stopped.time == patient.time
    assert (stopped.time.low, stopped.time.value, stopped.time.high) == (10.0, 35.0, math.inf)


def test_a_run_that_misses_is_never_and_never_left_out():
    found = score(submission(map(a_run, [10.0, 20.0, 30.0, None, None])), MEDIAN)
    assert found.time.value == 30.0
    assert (found.reached, found.best_s) == (3, 10.0)
    # 60 s of runs that arrived and twice 100 s of runs that did not, for three arrivals.
    assert found.expected_with_restarts_s == pytest.approx(260 / 3)
    assert "censored" in found.flags


def test_fewer_arrivals_than_half_have_no_median():
    found = score(submission(map(a_run, [10.0, 20.0, None, None, None])), MEDIAN)
    assert found.time.value is None
    assert found.time.how == "no median: 2 of 5 runs reached the target"


def test_a_failed_run_has_not_arrived_whatever_its_curve_says():
    found = score(submission([a_run(10.0), a_run(11.0), a_run(5.0, status="failed")]), MEDIAN)
    assert found.times_s == (10.0, 11.0, None)
    assert "failed-runs" in found.flags


def test_wilsons_interval_is_the_published_one_of_33_in_50():
    found = score(submission(map(a_run, [27.98] * 33 + [None] * 17)), MEDIAN)
    assert (round(found.reached_low, 2), round(found.reached_high, 2)) == (0.52, 0.78)


STUDIES = under(OURS, rule="median", runs=6, best_of=2)


def test_of_each_study_the_fastest_trial_counts():
    found = score(submission(map(a_run, [9.0, 5.0, None, 7.0, 6.0, 8.0])), STUDIES).time
    assert (found.low, found.value, found.high) == (5.0, 6.0, 7.0)
    assert found.how.startswith("median of 3 best-of-2 runs")


def test_a_study_of_which_no_trial_arrives_is_never():
    assert score(submission(map(a_run, [9.0, 5.0, None, None, 6.0, 8.0])), STUDIES).time.value == 6.0
    missed = score(submission(map(a_run, [9.0, 5.0, None, None, None, None])), STUDIES).time
    assert (missed.value, missed.how) == (None, "no median: 1 of 3 best-of-2 runs reached the target")


def test_runs_that_make_no_whole_studies_have_no_median():
    found = score(submission(map(a_run, [9.0, 5.0, 7.0])), STUDIES).time
    assert found.how == "3 runs, where the rules require studies of 2"


def windowed(even="upper"):
    """Rules that score windows of three runs of more."""
    return under(OURS, rule="olympic", runs=3, drop=1, windows=even)


# Windows of three: 5 9 6, 9 6 7, 6 7 8, 7 8 4, of which the runs in the middle take 6, 7, 7 and 7 s.
MORE = [5.0, 9.0, 6.0, 7.0, 8.0, 4.0]


def test_of_more_runs_than_are_asked_for_the_window_in_the_middle_counts():
    found = score(submission(map(a_run, MORE)), windowed()).time
    assert found.value == 7.0
    assert found.how.startswith("median (upper) of the 4 windows of 3 among 6 runs: Olympic mean of 3 runs")


def test_without_windows_all_runs_are_in_the_one_mean():
    plain = under(OURS, rule="olympic", runs=3, drop=1)
    assert score(submission(map(a_run, MORE)), plain).time.value == (5 + 6 + 7 + 8) / 4


@pytest.mark.parametrize(("even", "value"), [("lower", 2.0), ("upper", 3.0), ("mean", 2.5)])
def test_of_an_even_number_of_windows_the_rules_say_which(even, value):
    found = score(submission(map(a_run, [1.0, 2.0, 3.0, 4.0])), windowed(even)).time
    assert found.value == value


def test_the_interval_of_a_window_is_that_of_its_own_runs():
    rules = under(OURS, rule="olympic", runs=5, drop=1, windows="upper")
    six = score(submission(map(a_run, [10.0, 20.0, 30.0, 40.0, 90.0, 50.0])), rules).time
    last = score(submission(map(a_run, [20.0, 30.0, 40.0, 90.0, 50.0])), rules).time
    assert (six.value, six.low, six.high) == (40.0, last.low, last.high)


def test_a_mean_of_two_windows_has_the_interval_that_holds_both_of_theirs():
    rules, times = under(OURS, rule="olympic", runs=5, drop=1, windows="mean"), [50.0, 60.0, 70.0, 80.0, 90.0, 55.0]
    six = score(submission(map(a_run, times)), rules).time
    first, last = (score(submission(map(a_run, each)), rules).time for each in (times[:5], times[1:]))
    assert six.value == (first.value + last.value) / 2
    assert (six.low, six.high) == (min(first.low, last.low), max(first.high, last.high))


def test_a_window_in_the_middle_with_too_many_misses_has_no_score():
    times = [1.0, 2.0, 3.0, None, None, 1.0]
    assert score(submission(map(a_run, times)), windowed("lower")).time.value == 3.0
    missed = score(submission(map(a_run, times)), windowed("upper")).time
    assert (missed.value, missed.how.endswith("in that window more than 1 did not reach the target")) == (None, True)


def test_as_many_runs_as_are_asked_for_have_one_window():
    assert score(submission(map(a_run, [1.0, 2.0, 9.0])), windowed()).time.value == 2.0
