"""Quantiles: exact intervals from order statistics, and none where there are too few values for one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from levelbench.measure.statistics.intervals import (
    median_interval_ranks,
    quantile_estimate,
    quantile_interval_ranks,
    values_needed,
)

LEVELS = st.sampled_from([0.9, 0.95, 0.99])
QUANTILES = st.sampled_from([0.1, 0.5, 0.9, 0.95, 0.99])


@pytest.mark.parametrize(("q", "needed"), [(0.5, 6), (0.9, 36), (0.99, 368)])
def test_the_least_number_of_values_is_known(q, needed):
    assert values_needed(q) == needed
    assert quantile_interval_ranks(needed, q) is not None
    assert quantile_interval_ranks(needed - 1, q) is None


@given(n=st.integers(1, 3000), q=QUANTILES, level=LEVELS)
def test_the_ranks_cover_the_quantile_and_none_nearer_would(n, q, level):
    ranks = quantile_interval_ranks(n, q, level)
    if ranks is None:
        assert n < values_needed(q, level)
        return
    low, high = ranks
    tail = (1 - level) / 2 + 1e-9
    assert stats.binom.cdf(low - 1, n, q) <= tail
    assert stats.binom.sf(high - 1, n, q) <= tail
    assert stats.binom.cdf(low, n, q) > tail - 2e-9
    assert stats.binom.sf(high - 2, n, q) > tail - 2e-9


@given(n=st.integers(6, 1000))
def test_of_the_median_the_ranks_are_those_of_the_medians_own_interval(n):
    assert quantile_interval_ranks(n, 0.5) == median_interval_ranks(n)


def test_the_estimate_is_a_value_that_was_measured_and_lies_in_its_interval():
    values = np.random.default_rng(1).exponential(size=500).tolist()
    found = quantile_estimate(values, 0.99)
    assert found.value in values
    assert found.value in found.interval
    assert found.value == pytest.approx(np.quantile(values, 0.99, method="inverted_cdf"))
    assert found.statistic == "quantile 0.99"


def test_too_few_values_have_no_estimate():
    assert quantile_estimate(range(1, 368), 0.99) is None


@pytest.mark.parametrize("q", [0.0, 1.0, -1.0, float("nan")])
def test_a_quantile_lies_between_zero_and_one(q):
    with pytest.raises(ValueError, match="quantile"):
        quantile_interval_ranks(10, q)
