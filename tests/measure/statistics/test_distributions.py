"""The distribution functions agree with scipy, over a grid far wider than their use."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from levelbench.measure.statistics import (
    beta_cdf,
    binomial_cdf,
    normal_cdf,
    normal_quantile,
    t_cdf,
    t_quantile,
    t_survival,
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
    ours = np.array([beta_cdf(float(each), a, b) for each in x])
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
    assert t_cdf(t_quantile(p, dof), dof) == pytest.approx(p, rel=1e-9)


def test_t_is_normal_at_infinite_degrees_of_freedom():
    assert t_survival(1.96, math.inf) == normal_cdf(-1.96)
    assert t_quantile(0.975, math.inf) == pytest.approx(normal_quantile(0.975))


def test_infinite_t_values_have_no_tail():
    assert (t_survival(math.inf, 3), t_survival(-math.inf, 3)) == (0.0, 1.0)


@pytest.mark.parametrize("call", [lambda: beta_cdf(0.5, 0, 1), lambda: t_survival(1, 0), lambda: t_quantile(1.0, 3)])
def test_arguments_outside_the_domain_are_refused(call):
    with pytest.raises(ValueError, match="must"):
        call()
