"""Fits of growth laws: against other fits, with censored values, at their nominal coverage."""

import math

import numpy as np
import pytest
from scipy import optimize, stats

from levelbench.measure.statistics import amdahl_bound
from levelbench.measure.statistics.laws import fit_growth

SIZES = np.array([32.0, 64, 128, 256, 512, 1024, 2048, 4096])
RANKS = np.array([1.0, 2, 4, 8, 16, 32])


def drawn(rng, critical=300.0, runs=5, deviation=0.2, sizes=SIZES):
    """Samples to target of some runs at each size, and the sizes."""
    batch = np.repeat(sizes, runs)
    return 1e4 * (1 + batch / critical) * np.exp(deviation * rng.standard_normal(len(batch))), batch


def test_the_pi_example_of_sc15_is_recovered_from_its_times():
    # Hoefler & Belli, SC15, 5.2: a base case of 20 ms, of which 0.2 ms are serial.
    times = np.array([20e-3 / amdahl_bound(p, 0.01) for p in RANKS])
    fit = fit_growth(RANKS * times, (RANKS - 1)[:, None])
    assert fit.base == pytest.approx(20e-3, rel=1e-4)
    assert fit.rates[0] == pytest.approx(0.01, rel=1e-3)
    assert fit.intervals == (None,)


def test_without_censored_values_it_is_least_squares_on_logarithms():
    y, batch = drawn(np.random.default_rng(3))
    theirs, _ = optimize.curve_fit(lambda x, a, r: a + np.log1p(np.exp(r) * x), batch, np.log(y), p0=(9, -5))
    fit = fit_growth(y, batch[:, None])
    assert math.log(fit.rates[0]) == pytest.approx(theirs[1], abs=1e-3)
    assert math.log(fit.base) == pytest.approx(theirs[0], abs=1e-3)


def test_with_censored_values_it_is_the_greatest_likelihood():
    y, batch = drawn(np.random.default_rng(4))
    hidden = y > 5e4
    seen = np.log(np.minimum(y, 5e4))

    def loss(given):
        z = (seen - given[0] - np.log1p(np.exp(given[1]) * batch)) / np.exp(given[2])
        return -np.where(hidden, stats.norm.logsf(z), stats.norm.logpdf(z) - given[2]).sum()

    theirs = optimize.minimize(loss, (9, -5, -1), method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-9}).x
    fit = fit_growth(np.exp(seen), batch[:, None], hidden)
    assert fit.censored == hidden.sum() > 5
    assert math.log(fit.rates[0]) == pytest.approx(theirs[1], abs=2e-3)
    assert math.log(fit.base) == pytest.approx(theirs[0], abs=2e-3)


def test_between_bounds_it_is_the_greatest_likelihood():
    y, batch = drawn(np.random.default_rng(12))
    apart = np.where(batch > 1000, 40 * batch, 9000.0)
    high = np.ceil(y / apart) * apart
    with np.errstate(divide="ignore"):
        low = np.log(high - apart)

    def loss(given):
        ends = [
            (each - given[0] - np.log1p(np.exp(given[1]) * batch)) / np.exp(given[2]) for each in (low, np.log(high))
        ]
        return -np.log(stats.norm.cdf(ends[1]) - stats.norm.cdf(ends[0]) + 1e-300).sum()

    theirs = optimize.minimize(loss, (9, -5, -1), method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-9}).x
    fit = fit_growth(high, batch[:, None], above=high - apart)
    assert (fit.bracketed, fit.censored) == (40, 0)
    assert math.log(fit.rates[0]) == pytest.approx(theirs[1], abs=5e-3)
    assert math.log(fit.base) == pytest.approx(theirs[0], abs=5e-3)
    assert fit.deviation * math.sqrt(38 / 40) == pytest.approx(math.exp(theirs[2]), rel=0.01)


def test_near_bounds_are_as_good_as_values():
    y, batch = drawn(np.random.default_rng(13))
    exact, near = fit_growth(y, batch[:, None]), fit_growth(y * 1.01, batch[:, None], above=y / 1.01)
    assert near.rates[0] == pytest.approx(exact.rates[0], rel=1e-6)
    assert near.intervals[0].high == pytest.approx(exact.intervals[0].high, rel=1e-4)


def test_runs_that_share_all_bounds_leave_every_law_between_them_open():
    # 1,000 to 2,000 at 1 and 2,000 to 4,000 at 3: from hardly any growth (2,000 at both) to threefold, in proportion.
    fit = fit_growth([2000.0] * 4 + [4000.0] * 4, [[1.0]] * 4 + [[3.0]] * 4, above=[1000.0] * 4 + [2000.0] * 4)
    assert fit.intervals[0].low < 0.1
    assert fit.intervals[0].high == math.inf
    assert 1000 < fit.at([1.0]) < 2000 < fit.at([3.0]) < 4000


@pytest.mark.slow
@pytest.mark.parametrize("apart", [lambda batch: 9000.0, lambda batch: 20 * batch], ids=["each epoch", "each 20 steps"])
def test_intervals_hold_the_truth_in_95_percent_if_values_are_known_up_to_evaluations(apart):
    rng, held = np.random.default_rng(14), 0
    for _ in range(60):
        y, batch = drawn(rng, deviation=0.1)
        high = np.ceil(y / apart(batch)) * apart(batch)
        held += 1 / 300 in fit_growth(high, batch[:, None], above=high - apart(batch)).intervals[0]
    assert held >= stats.binom.ppf(0.001, 60, 0.95)


def test_bounds_find_out_a_law_of_another_shape():
    rng = np.random.default_rng(15)
    batch = np.repeat(SIZES, 5)
    wrong = 100 * batch**2 * np.exp(0.1 * rng.standard_normal(40))
    high = np.ceil(wrong / (0.3 * 100 * batch**2)) * 0.3 * 100 * batch**2
    assert fit_growth(high, batch[:, None], above=0.7 * high).misfit < 1e-6
    y, _ = drawn(rng)
    high = np.ceil(y / 4000) * 4000
    assert fit_growth(high, batch[:, None], above=high - 4000).misfit > 0.001


def test_a_lower_bound_above_its_value_is_an_error():
    with pytest.raises(ValueError, match="above its value"):
        fit_growth([1.0, 2.0], [[1.0], [2.0]], above=[0.5, 3.0])


@pytest.mark.parametrize(("contention", "coherency"), [(0.1, 0.0), (0.03, 0.002), (0.0, 0.01), (0.0, 0.0)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_of_two_rates_it_is_the_least_squares_even_where_one_is_zero(contention, coherency, seed):
    ranks = np.repeat(RANKS, 3)
    variables = np.column_stack([ranks - 1, ranks * (ranks - 1)])
    noise = 0.01 * np.random.default_rng(seed).standard_normal(len(ranks))
    y = 100 * (1 + variables @ [contention, coherency]) * np.exp(noise)
    fit = fit_growth(y, variables)

    def off(given):
        return given[0] + np.log1p(variables @ given[1:]) - np.log(y)

    starts = [(np.log(y.min()), s, k) for s in (1e-9, 0.1) for k in (1e-9, 1e-2)]
    bounds = ([-50, 0, 0], [50, 50, 50])
    theirs = min(
        (optimize.least_squares(off, start, bounds=bounds, xtol=1e-15, ftol=1e-15, gtol=1e-15) for start in starts),
        key=lambda found: found.cost,
    )
    assert (off([math.log(fit.base), *fit.rates]) ** 2).sum() <= 2 * theirs.cost * (1 + 1e-9)
    assert fit.rates == pytest.approx(theirs.x[1:], abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("bound", [math.inf, 1e5, 4e4], ids=["all known", "13 % censored", "36 % censored"])
def test_intervals_hold_the_truth_in_95_percent(bound):
    rng, held = np.random.default_rng(5), 0
    for _ in range(100):
        y, batch = drawn(rng)
        interval = fit_growth(np.minimum(y, bound), batch[:, None], y > bound).intervals[0]
        held += 1 / 300 in interval
    assert stats.binom.ppf(0.001, 100, 0.95) <= held <= 99


@pytest.mark.slow
def test_the_intervals_of_two_rates_hold_the_truth_in_95_percent():
    rng, held = np.random.default_rng(6), np.zeros(2)
    ranks = np.repeat(RANKS, 4)
    variables = np.column_stack([ranks - 1, ranks * (ranks - 1)])
    for _ in range(200):
        y = 10 * (1 + variables @ [0.05, 0.001]) * np.exp(0.05 * rng.standard_normal(len(ranks)))
        fit = fit_growth(y, variables)
        held += [truth in interval for truth, interval in zip((0.05, 0.001), fit.intervals, strict=True)]
    assert (held >= 0.9 * 200).all()
    assert (held <= 0.99 * 200).all()


def test_values_that_do_not_grow_leave_the_rate_open_towards_zero():
    rng = np.random.default_rng(7)
    fit = fit_growth(np.exp(0.2 * rng.standard_normal(40)), np.repeat(SIZES, 5)[:, None])
    assert fit.intervals[0].low == 0.0
    assert math.isfinite(fit.intervals[0].high)


def test_values_in_proportion_leave_it_open_upwards():
    rng = np.random.default_rng(8)
    batch = np.repeat(SIZES, 5)
    fit = fit_growth(batch * np.exp(0.2 * rng.standard_normal(40)), batch[:, None])
    assert fit.intervals[0].high == math.inf
    assert fit.intervals[0].low > 0


def test_a_law_of_another_shape_is_found_out_and_a_right_one_is_not():
    rng = np.random.default_rng(9)
    batch = np.repeat(SIZES, 5)
    noise = np.exp(0.1 * rng.standard_normal(40))
    assert fit_growth(batch**2 * noise, batch[:, None]).misfit < 1e-6
    right = [fit_growth(*with_column(drawn(rng))).misfit for _ in range(200)]
    assert sum(each < 0.05 for each in right) <= stats.binom.ppf(0.999, 200, 0.05)


@pytest.mark.slow
def test_with_censored_values_the_points_without_any_are_tested():
    rng = np.random.default_rng(11)
    batch = np.repeat(SIZES, 5)
    wrong = batch**2 * np.exp(0.1 * rng.standard_normal(40))
    bound = float(np.quantile(wrong, 0.8))
    assert fit_growth(np.minimum(wrong, bound), batch[:, None], wrong > bound).misfit < 1e-6
    right = []
    for _ in range(200):
        y, x = drawn(rng)
        bound = float(np.quantile(y, 0.8))
        right.append(fit_growth(np.minimum(y, bound), x[:, None], y > bound).misfit)
    assert sum(each < 0.05 for each in right) <= stats.binom.ppf(0.999, 200, 0.05)


def with_column(pair):
    return pair[0], pair[1][:, None]


@pytest.mark.slow
def test_many_censored_bounds_are_as_good_as_their_bins():
    rng = np.random.default_rng(10)
    y, batch = drawn(rng, runs=2000)
    bounds = np.exp(11 + 0.5 * rng.standard_normal(len(y)))
    fit = fit_growth(np.minimum(y, bounds), batch[:, None], y > bounds)
    assert fit.rates[0] == pytest.approx(1 / 300, rel=0.05)
    assert fit.deviation == pytest.approx(0.2, rel=0.02)


def test_fewer_points_than_parameters_are_an_error():
    with pytest.raises(ValueError, match="2 parameters, but values at 1 point"):
        fit_growth([1.0, 2.0], [[1.0], [1.0]])
