"""Intervals of one sample: of means, of quantiles by order statistics, and of shares of runs."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from levelbench.measure.statistics import (
    Interval,
    deviation_interval,
    estimate,
    estimate_signed,
    fisher_exact,
    holm,
    log_mean_interval,
    mean_interval,
    median_interval,
    median_interval_ranks,
    variation,
    wilson,
)
from levelbench.measure.statistics.intervals import (
    quantile_estimate,
    quantile_interval_ranks,
    values_needed,
)


def ranks_by_counting(n, level=0.95):
    """The same ranks from whole binomial coefficients, by brute force."""
    best = None
    for low in range(1, n // 2 + 1):
        outside = 2 * sum(math.comb(n, i) for i in range(low))
        if 1 - outside / 2**n >= level:
            best = (low, n + 1 - low)
    return best


@pytest.mark.parametrize(
    ("n", "ranks"), [(5, None), (6, (1, 6)), (8, (1, 8)), (9, (2, 8)), (10, (2, 9)), (20, (6, 15)), (1, None)]
)
def test_exact_ranks_are_those_of_the_binomial_tables(n, ranks):
    assert median_interval_ranks(n) == ranks


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.99])
def test_exact_ranks_equal_a_count_of_binomial_coefficients(level):
    for n in range(1, 120):
        assert median_interval_ranks(n, level) == ranks_by_counting(n, level)


def test_median_interval_takes_the_ranked_values():
    assert median_interval([5, 1, 4, 2, 3, 6, 9, 8, 7]) == Interval(2.0, 8.0, 0.95, "exact order statistics")
    assert median_interval([1, 2, 3, 4, 5]) is None


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40))
def test_mean_interval_is_scipys(values):
    ours = mean_interval(values)
    n = len(values)
    reach = stats.t.ppf(0.975, n - 1) * np.std(values, ddof=1) / math.sqrt(n)
    assert ours.low == pytest.approx(np.mean(values) - reach, rel=1e-9, abs=1e-6)
    assert ours.high == pytest.approx(np.mean(values) + reach, rel=1e-9, abs=1e-6)


def test_log_mean_interval_is_the_mean_interval_of_logarithms():
    logs = mean_interval(np.log([1.0, 2.0, 4.0]).tolist())
    assert log_mean_interval([1.0, 2.0, 4.0]).low == pytest.approx(math.exp(logs.low))


def test_estimate_is_the_geometric_mean_with_students_interval_from_six_values():
    values = [3.0, 1.0, 2.0, 5.0, 4.0, 6.0]
    found = estimate(values)
    assert found.value == pytest.approx(stats.gmean(values))
    assert (found.n, found.statistic) == (6, "geometric mean")
    logs = log_mean_interval(values)
    assert (found.interval.low, found.interval.high) == pytest.approx((logs.low, logs.high))


def test_estimate_of_two_to_five_values_shows_the_extremes_at_the_level_that_they_have():
    found = estimate([4.0, 1.0])
    assert found.value == pytest.approx(2.0)
    assert (found.interval.low, found.interval.high) == (1.0, 4.0)
    assert (found.interval.level, found.interval.method) == (0.5, "lowest to highest")


def test_estimate_trims_nothing_so_that_the_ratio_of_two_is_the_ratio_of_their_geometric_means():
    values = [1.00, 1.01, 0.99, 1.02, 0.98, 1.005, 0.995, 4.0]
    assert estimate(values).value == pytest.approx(stats.gmean(values))


def test_whole_numbers_of_which_most_are_equal_have_an_interval_of_some_width():
    found = estimate([5, 5, 5, 5, 5, 3, 4, 6, 6])
    assert found.interval.low < found.value < found.interval.high


def test_estimate_of_one_value_has_no_interval():
    found = estimate([7.0])
    assert (found.value, found.interval, found.n) == (7.0, None, 1)


def test_estimate_signed_takes_values_below_zero():
    found = estimate_signed([-1.0, 1.0])
    assert (found.value, found.statistic) == (0.0, "mean")
    assert estimate_signed([-1.0]).interval is None


@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [1.0, float("inf")], [1.0, -1.0]])
def test_estimate_refuses_what_is_no_sample_of_costs(values):
    with pytest.raises(ValueError, match="values"):
        estimate(values)


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=30), st.floats(0.01, 100))
def test_estimate_scales_with_its_unit(values, factor):
    one, other = estimate(values), estimate([factor * value for value in values])
    assert other.value == pytest.approx(factor * one.value)
    if one.interval:
        assert other.interval.low == pytest.approx(factor * one.interval.low)


def test_interval_knows_its_width():
    assert Interval(1.0, 3.0, 0.95, "").width == 2.0


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


def test_the_interval_of_a_deviation_is_that_of_chi_squared():
    values = [3.1, 2.9, 3.4, 2.7, 3.3]
    low, high = (np.std(values, ddof=1) * math.sqrt(4 / stats.chi2.ppf(p, 4)) for p in (0.975, 0.025))
    found = deviation_interval(values)
    assert (found.low, found.high) == pytest.approx((low, high))


def test_a_variation_is_the_deviation_over_the_mean():
    # MLPerf Training's reference points of resnet at a batch of 4096: mean 40, population deviation 1.
    found = variation([39, 39, 39, 39, 40, 40, 40, 41, 41, 42])
    assert found.value == pytest.approx(math.sqrt(10 / 9) / 40)
    assert found.value in found.interval


@given(st.lists(st.floats(0.5, 2.0), min_size=3, max_size=20).filter(lambda values: len({*values}) > 2))
def test_a_variation_is_that_of_scipy(values):
    assert variation(values).value == pytest.approx(stats.variation(values, ddof=1))


def test_a_variation_of_two_values_or_with_an_outlier_has_no_interval():
    assert variation([1.0, 1.1]).interval is None
    assert variation([*np.linspace(0.9, 1.1, 99), 100.0]).interval is None


@pytest.mark.parametrize(("n", "spread"), [(3, 0.05), (5, 0.3), (20, 0.3)])
def test_the_interval_of_a_variation_holds_that_of_log_normal_times(n, spread):
    rng, truth, repeats = np.random.default_rng([21, n]), math.sqrt(math.expm1(spread**2)), 1000
    found = [variation(np.exp(spread * rng.standard_normal(n))).interval for _ in range(repeats)]
    hits = sum(each is not None and truth in each for each in found)
    assert hits / repeats >= 0.94 - 3 * math.sqrt(0.95 * 0.05 / repeats)
