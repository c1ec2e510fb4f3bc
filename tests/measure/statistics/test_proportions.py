"""Shares of runs that reach a target."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from levelbench.measure.statistics import fisher_exact, holm, wilson


@pytest.mark.parametrize(("k", "low", "high"), [(33, 0.52, 0.78), (30, 0.46, 0.72)])
def test_the_published_cifar10_reach_shares_have_their_published_intervals(k, low, high):
    found = wilson(k, 50)
    assert (round(found.low, 2), round(found.high, 2)) == (low, high)


@given(st.integers(1, 200), st.data())
def test_wilson_is_scipys(n, data):
    k = data.draw(st.integers(0, n))
    theirs = stats.binomtest(k, n).proportion_ci(method="wilson")
    ours = wilson(k, n)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), rel=1e-9, abs=1e-12)


def test_wilson_has_a_width_at_both_ends():
    assert wilson(0, 5).low == 0.0
    assert wilson(0, 5).high > 0.4
    assert wilson(5, 5).high == 1.0


@given(st.integers(1, 25), st.integers(1, 25), st.data())
def test_fisher_exact_is_scipys(n_a, n_b, data):
    k_a, k_b = data.draw(st.integers(0, n_a)), data.draw(st.integers(0, n_b))
    theirs = stats.fisher_exact([[k_a, n_a - k_a], [k_b, n_b - k_b]]).pvalue
    assert fisher_exact(k_a, n_a, k_b, n_b) == pytest.approx(theirs, rel=1e-6)


def test_fisher_exact_knows_the_lady_tasting_tea():
    assert fisher_exact(4, 4, 0, 4) == pytest.approx(2 / 70)


@pytest.mark.parametrize(("k", "n"), [(1, 0), (-1, 3), (4, 3)])
def test_what_is_no_share_is_refused(k, n):
    with pytest.raises(ValueError, match="not a share"):
        wilson(k, n)


def test_holm_steps_down_and_keeps_the_order():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.6, 0.7]) == [1.0, 1.0]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_lies_between_the_raw_and_bonferronis_values(p_values):
    for raw, adjusted in zip(p_values, holm(p_values), strict=True):
        assert raw <= adjusted <= min(1.0, len(p_values) * raw)
    assert min(holm(p_values)) == pytest.approx(min(1.0, len(p_values) * min(p_values)))


def test_holm_refuses_what_is_no_probability():
    with pytest.raises(ValueError, match="between 0 and 1"):
        holm([1.5])
