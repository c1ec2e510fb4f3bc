"""Early stopping of MLPerf Inference: its published constants, its meaning, and that it keeps its promise."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.measure.statistics.early_stopping import (
    allowed_late,
    bound_test,
    least_queries,
    nearest_rank,
    queries_needed,
    stream_estimate,
)

TABLE = {
    0.9: {0: 44, 1: 64, 2: 81, 3: 97, 5: 127, 10: 197},
    0.95: {0: 90, 1: 130, 2: 165, 3: 198, 5: 259, 10: 398},
    0.97: {0: 152, 1: 219, 2: 277, 3: 332, 5: 433, 10: 667},
    0.99: {0: 459, 1: 662, 2: 838, 3: 1001, 5: 1307, 10: 2010},
    0.999: {0: 4603, 1: 6636, 2: 8403, 3: 10042, 5: 13105, 10: 20140},
}


@pytest.mark.parametrize(
    ("quantile", "late", "needed"), [(quantile, *row) for quantile, rows in TABLE.items() for row in rows.items()]
)
def test_the_queries_needed_are_those_of_the_rules(quantile, late, needed):
    assert queries_needed(late, quantile) == needed


@pytest.mark.parametrize(("quantile", "needed"), [(0.9, 64), (0.99, 662), (0.999, 6636)])
def test_an_estimate_needs_one_query_that_may_be_late(quantile, needed):
    assert least_queries(quantile) == needed
    assert stream_estimate(np.arange(needed - 1), quantile).value is None
    assert stream_estimate(np.arange(needed), quantile).value == needed - 1


@pytest.mark.parametrize(("queries", "quantile", "discarded"), [(2287, 0.9, 194), (2274, 0.99, 10), (700, 0.9, 50)])
def test_loadgens_own_runs_discard_what_ours_does(queries, quantile, discarded):
    found = stream_estimate(np.arange(queries), quantile)
    assert found.discarded == discarded
    assert found.value == queries - 1 - discarded


@pytest.mark.parametrize(
    ("queries", "late", "more"), [(445, 0, 14), (387, 0, 72), (100, 0, 359), (459, 0, 0), (459, 1, 203), (662, 1, 0)]
)
def test_a_server_is_told_how_many_more_queries_it_needs(queries, late, more):
    latencies = [2.0] * late + [1.0] * (queries - late)
    found = bound_test(latencies, 1.0, 0.99)
    assert (found.late, found.more, found.passed) == (late, more, more == 0)


def test_a_latency_of_exactly_the_bound_is_not_late():
    assert bound_test([10] * 500, 10, 0.99).late == 0
    assert bound_test([11] * 500, 10, 0.99).late == 500


def test_more_than_a_thousand_late_queries_are_counted_as_few_are():
    needed = queries_needed(5000, 0.99)
    assert allowed_late(needed, 0.99) == 5000
    assert allowed_late(needed - 1, 0.99) == 4999


@given(st.integers(1, 20_000), st.sampled_from([0.5, 0.9, 0.97, 0.99]))
def test_what_a_number_of_queries_allows_is_the_most_that_needs_no_more(queries, quantile):
    late = allowed_late(queries, quantile)
    if late is None:
        assert queries < queries_needed(0, quantile)
    else:
        assert queries_needed(late, quantile) <= queries < queries_needed(late + 1, quantile)


def test_a_tolerance_loosens_what_has_to_be_proved():
    assert queries_needed(0, 0.99, tolerance=0.01) == queries_needed(0, 0.98) < queries_needed(0, 0.99)


@pytest.mark.parametrize(
    ("queries", "quantile", "late"), [(10**7, 0.99, 99_268), (10**7, 0.9, 997_793), (10**6, 0.999, 926)]
)
def test_ten_million_queries_are_judged_at_once(queries, quantile, late):
    # By scipy 1.17 the binomial's distribution function is under 0.01 there and over it one further.
    began = time.process_time()
    assert allowed_late(queries, quantile) == late
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(("quantile", "queries"), [(0.9, 64), (0.9, 500), (0.99, 700)])
def test_the_estimate_is_below_the_true_quantile_in_one_run_of_a_hundred_at_most(quantile, queries):
    runs = 4000
    draws = np.sort(np.random.default_rng(1).random((runs, queries)), axis=1)
    late = allowed_late(queries, quantile)
    too_low = float((draws[:, queries - late] < quantile).mean())
    assert too_low <= 0.01 + 3 * np.sqrt(0.01 * 0.99 / runs)


def test_the_estimate_is_not_needlessly_far_above_the_quantile():
    draws = np.sort(np.random.default_rng(2).random((500, 5000)), axis=1)
    late = allowed_late(5000, 0.9)
    assert 0.9 < float(np.median(draws[:, 5000 - late])) < 0.912


@pytest.mark.parametrize(("n", "quantile", "index"), [(10, 0.9, 9), (10, 0.5, 5), (100, 0.99, 99), (1, 0.999, 0)])
def test_a_percentile_is_the_value_at_the_floor_of_n_times_p(n, quantile, index):
    assert nearest_rank(np.arange(n), quantile) == index


@pytest.mark.parametrize(
    "call",
    [
        lambda: queries_needed(-1, 0.9),
        lambda: queries_needed(0, 1.0),
        lambda: queries_needed(0, 0.9, confidence=1.0),
        lambda: queries_needed(0, 0.9, tolerance=0.95),
        lambda: nearest_rank([], 0.5),
    ],
)
def test_what_means_nothing_is_refused(call):
    with pytest.raises(ValueError, match=r"between 0 and 1|below zero|one or more"):
        call()
