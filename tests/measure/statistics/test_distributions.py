"""The distribution functions agree with scipy, over a grid far wider than their use; and Pearson's test of counts."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from levelbench.measure.statistics import (
    binomial_cdf,
    distributions,
    normal_cdf,
    normal_quantile,
    t_quantile,
    t_survival,
)
from levelbench.measure.statistics.distributions import (
    chi_squared_quantile,
    chi_squared_survival,
    chi_squared_test,
    f_survival,
    gamma_survival,
)

DOFS = [0.5, 1, 1.5, 2, 3, 4.7, 10, 33.3, 100, 1e3, 1e5, 1e7]
SHARES = [1e-8, 1e-3, 0.025, 0.3, 0.4999999, 0.6, 0.9, 0.975, 0.999, 1 - 1e-8]


@pytest.mark.parametrize("dof", DOFS)
def test_t_survival_is_scipys(dof):
    t = np.array([0.0, 1e-12, 1e-5, 0.1, 0.5, 1, 2, 5, 10, 50, 1e3])
    expected = stats.t.sf(t, dof)
    ours = np.array([t_survival(float(each), dof) for each in t])
    kept = expected > 1e-280
    np.testing.assert_allclose(ours[kept], expected[kept], rtol=1e-9)


@pytest.mark.parametrize("dof", DOFS)
def test_t_quantile_is_scipys(dof):
    np.testing.assert_allclose([t_quantile(p, dof) for p in SHARES], stats.t.ppf(SHARES, dof), rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("a", [0.1, 0.5, 1, 3, 50, 1e3, 1e6])
@pytest.mark.parametrize("b", [0.1, 0.5, 1, 3, 50, 1e3, 1e6])
def test_beta_cdf_is_scipys(a, b):
    x = np.array([0.0, 1e-9, 0.01, 0.2, 0.5, 0.8, 0.99, 1 - 1e-9, 1.0, a / (a + b), 0.99 * a / (a + b)])
    expected = special.betainc(a, b, x)
    ours = np.array([distributions._beta(a, b, float(each), 1 - float(each)) for each in x])
    kept = (expected > 1e-280) | (expected == 0)
    np.testing.assert_allclose(ours[kept], expected[kept], rtol=1e-9)


@pytest.mark.parametrize("n", [1, 2, 9, 30, 1000])
def test_binomial_cdf_is_scipys(n):
    for p in (0.01, 0.5, 0.93):
        for k in {-1, 0, n // 3, n // 2, n - 1, n}:
            assert binomial_cdf(k, n, p) == pytest.approx(stats.binom.cdf(k, n, p), rel=1e-9, abs=1e-300)


def test_normal_functions_are_scipys_in_both_tails():
    z = np.linspace(-30, 8, 200)
    np.testing.assert_allclose([normal_cdf(float(each)) for each in z], stats.norm.cdf(z), rtol=1e-9)
    np.testing.assert_allclose([normal_quantile(p) for p in SHARES], stats.norm.ppf(SHARES), rtol=1e-9)


@given(st.floats(1e-6, 1 - 1e-6), st.floats(0.5, 1e4))
def test_t_quantile_undoes_the_distribution_function(p, dof):
    assert t_survival(-t_quantile(p, dof), dof) == pytest.approx(p, rel=1e-9)


def test_t_is_normal_at_infinite_degrees_of_freedom():
    assert t_survival(1.96, math.inf) == normal_cdf(-1.96)
    assert t_quantile(0.975, math.inf) == pytest.approx(normal_quantile(0.975))


def test_infinite_t_values_have_no_tail():
    assert (t_survival(math.inf, 3), t_survival(-math.inf, 3)) == (0.0, 1.0)


@pytest.mark.parametrize("call", [lambda: t_survival(1, 0), lambda: t_quantile(1.0, 3)])
def test_arguments_outside_the_domain_are_refused(call):
    with pytest.raises(ValueError, match="must"):
        call()


@pytest.mark.parametrize("degrees", [1, 2, 3.5, 10, 99, 1000, 60_000])
def test_the_tail_agrees_with_scipy(degrees):
    stats = pytest.importorskip("scipy.stats", reason="SciPy is not installed")
    spread = np.sqrt(2 * degrees)
    for x in (0.01, 0.5 * degrees, degrees, degrees + spread, degrees + 5 * spread, degrees + 12 * spread):
        assert chi_squared_survival(x, degrees) == pytest.approx(stats.chi2.sf(x, degrees), rel=1e-9, abs=1e-300)


def test_two_degrees_of_freedom_are_an_exponential():
    assert chi_squared_survival(3.0, 2) == pytest.approx(np.exp(-1.5), rel=1e-14)


def test_the_ends_of_the_tail():
    assert gamma_survival(2.0, 0.0) == 1.0
    assert gamma_survival(2.0, np.inf) == 0.0
    with pytest.raises(ValueError, match="above zero"):
        gamma_survival(0.0, 1.0)


def test_pearsons_test_agrees_with_scipy():
    stats = pytest.importorskip("scipy.stats", reason="SciPy is not installed")
    observed, expected = [18, 22, 31, 29], [25, 25, 25, 25]
    found, theirs = chi_squared_test(observed, expected), stats.chisquare(observed, expected)
    assert (found.statistic, found.degrees) == (pytest.approx(theirs.statistic), 3)
    assert found.p_value == pytest.approx(theirs.pvalue, rel=1e-12)


def test_a_count_where_nothing_is_expected_cannot_be_by_chance():
    assert chi_squared_test([10, 9, 1], [10, 10, 0]).p_value == 0.0
    assert chi_squared_test([11, 9, 0], [10, 10, 0]).degrees == 1


@pytest.mark.parametrize("observed", [[10, 5], [10], [-1, 21]])
def test_counts_that_do_not_belong_together_are_refused(observed):
    with pytest.raises(ValueError, match="expected"):
        chi_squared_test(observed, [10, 10])


@pytest.mark.parametrize(("above", "below"), [(1, 1), (2, 30), (7, 3), (40, 200)])
def test_fishers_f_agrees_with_scipy(above, below):
    stats = pytest.importorskip("scipy.stats", reason="SciPy is not installed")
    for f in (1e-3, 0.3, 1.0, 2.5, 40.0):
        assert f_survival(f, above, below) == pytest.approx(stats.f.sf(f, above, below), rel=1e-10)
    assert (f_survival(0.0, above, below), f_survival(np.inf, above, below)) == (1.0, 0.0)


@pytest.mark.parametrize("degrees", [1, 2, 9, 250])
def test_the_quantile_of_chi_squared_agrees_with_scipy(degrees):
    stats = pytest.importorskip("scipy.stats", reason="SciPy is not installed")
    for p in (0.001, 0.025, 0.5, 0.975, 0.999):
        assert chi_squared_quantile(p, degrees) == pytest.approx(stats.chi2.ppf(p, degrees), rel=1e-9)
