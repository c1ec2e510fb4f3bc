"""Draws for stochastic rounding: uniform, apart for different keys, the same everywhere."""

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from levelbench.distributed.compression.arrays import Key, uniform

LIKE = np.zeros(1, np.float64)


def test_each_framework_draws_the_same_bits(framework):
    like = framework.array(np.zeros(1, np.float32))
    found = framework.host(uniform(1000, like, Key(3, 1, 7)))
    np.testing.assert_array_equal(found, uniform(1000, np.zeros(1, np.float32), Key(3, 1, 7)))
    assert found.dtype == np.float32


@pytest.mark.parametrize("key", [Key(), Key(1, 0, 1), Key(0, 5, 1234567)])
def test_draws_are_uniform_in_the_open_interval(key):
    draws = uniform(20_000, LIKE, key)
    assert draws.min() > 0
    assert draws.max() < 1
    assert stats.kstest(draws, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(draws[1:], draws[:-1])[0, 1]) < 4 / np.sqrt(20_000)


def test_draws_of_different_keys_are_independent():
    keys = [Key(0, 0, 1), Key(1, 0, 1), Key(0, 1, 1), Key(0, 0, 2), Key(0, 0, 1, 1), Key(0, 0, 1, 0, 1)]
    for first, second in combinations([uniform(10_000, LIKE, key) for key in keys], 2):
        assert abs(np.corrcoef(first, second)[0, 1]) < 4 / np.sqrt(10_000)
        # Nor are they the same numbers in another order.
        assert np.intersect1d(first, second).size < 50
