"""Bitwise repeatability over many runs, and where it is lost."""

import numpy as np
import pytest

from levelbench.errors import UsageError
from levelbench.operators.probes import repeatability

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


def test_a_deterministic_operator_repeats_itself_bit_for_bit():
    found = repeatability(lambda x: x @ x.T, [X], runs=100)
    assert (found.identical, found.bitwise, found.ulp) == (100, True, 0)
    assert found.variance[0].max() == 0


def test_the_variance_map_shows_where_it_differs():
    random = np.random.default_rng(1)

    def noisy(x):
        y = x.copy()
        y[1, 2] += random.normal() * np.float32(0.1)
        return y

    found = repeatability(noisy, [X], runs=400)
    (variance,) = found.variance
    assert not found.bitwise
    assert variance[1, 2] == pytest.approx(0.01, rel=0.3)
    assert np.count_nonzero(variance) == 1


def test_one_ulp_in_one_run_is_found():
    calls = iter(range(100))

    def once(x):
        return np.nextafter(x, np.float32(np.inf)) if next(calls) == 57 else x

    found = repeatability(once, [X], runs=100)
    assert (found.identical, found.ulp) == (99, 1)


def test_repeatability_needs_two_runs():
    with pytest.raises(UsageError, match="at least 2"):
        repeatability(lambda x: x, [X], runs=1)


def test_an_omitted_output_has_no_variance():
    assert repeatability(lambda x: (x, None), [X], runs=3).variance[1] is None


def test_it_is_json():
    assert repeatability(lambda x: x, [X], runs=3).to_dict()["identical"] == 3
