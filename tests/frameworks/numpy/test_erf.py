import numpy as np
import pytest


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_erf_is_within_a_few_units_in_the_last_place(dtype, run):
    special = pytest.importorskip("scipy.special")
    tiny = np.logspace(-300 if dtype is np.float64 else -30, 0, 5000)
    x = np.concatenate([np.linspace(-7, 7, 40001), tiny, -tiny]).astype(dtype)
    exact = special.erf(x.astype(np.float64))
    apart = np.abs(run("Erf", x).astype(np.float64) - exact) / np.spacing(
        np.abs(exact.astype(dtype)) + np.finfo(dtype).tiny
    )
    assert apart.max() < (3 if dtype is np.float64 else 6)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_erf_of_special_values(dtype, run):
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30], dtype)
    found = run("Erf", x)
    np.testing.assert_array_equal(found, np.array([np.nan, 1, -1, 0, 0, 1], dtype))
    assert np.signbit(found[4])
