"""Equal things are called different no more often than promised: seeded A/A simulations.

A comparison in which the test at a ratio of 1 is far from rejecting cannot be called different, so the
whole verdict (an interval, the runs to settle it) is asked only of the others. The first of each simulation are asked
all the same, so that a verdict which called different what the test does not reject would be seen.
"""

import math

import numpy as np
import pytest
from scipy import stats

from levelbench.measure.statistics import CensoredTimes, fisher_exact, holm, log_rank_p, normal_cdf, reaches_on_average
from levelbench.measure.verdict import VerdictKind, verdict

DIFFERENT = {VerdictKind.FASTER, VerdictKind.SLOWER}
ASKED_ALL_THE_SAME = 50
DOUBTFUL = 0.06
"""A p value at 1 below which the verdict is asked: a little above the 5 % at which it calls a difference."""


def called_different(repeats, p_value_of, verdict_of):
    """How many of the simulated comparisons end in FASTER or SLOWER."""
    wrong = 0
    for at in range(repeats):
        doubtful = p_value_of(at) <= DOUBTFUL
        if doubtful or at < ASKED_ALL_THE_SAME:
            different = verdict_of(at).kind in DIFFERENT
            assert doubtful or not different
            wrong += different
    return wrong


def allowed(rate, repeats):
    """The rate plus three standard errors of a simulation of that size."""
    return rate + 3 * math.sqrt(rate * (1 - rate) / repeats)


def log_normal(spread):
    return lambda random, shape: np.exp(spread * random.standard_normal(shape))


def skewed(random, shape):
    """A floor of 1 and an exponential tail of 5 %: what interference does to a run."""
    return 1.0 + 0.05 * random.standard_exponential(shape)


NOISES = {"1 %": log_normal(0.01), "3 %": log_normal(0.03), "5 %": log_normal(0.05), "skewed": skewed}


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 5, 10, 30])
@pytest.mark.parametrize("noise", NOISES)
def test_equal_arms_are_called_different_in_five_percent_of_comparisons(noise, n):
    repeats = 2000
    draws = NOISES[noise](np.random.default_rng([17, n]), (repeats, 2, n))
    p_values = stats.ttest_ind(*np.log(draws).swapaxes(0, 1), axis=1, equal_var=False).pvalue
    wrong = called_different(repeats, p_values.__getitem__, lambda at: verdict(*draws[at].tolist()))
    assert wrong / repeats <= allowed(0.05, repeats)


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 5, 10, 30])
@pytest.mark.parametrize("common", [0.0, 0.3], ids=["unrelated pairs", "pairs that share their luck"])
def test_equal_arms_in_pairs_are_called_different_in_five_percent_of_comparisons(common, n):
    repeats, random = 2000, np.random.default_rng([19, n])
    luck = common * random.standard_normal((repeats, 1, n))
    draws = np.exp(luck + 0.03 * random.standard_normal((repeats, 2, n)))
    p_values = stats.ttest_rel(*np.log(draws).swapaxes(0, 1), axis=1).pvalue
    wrong = called_different(repeats, p_values.__getitem__, lambda at: verdict(*draws[at].tolist(), paired=True))
    assert wrong / repeats <= allowed(0.05, repeats)


def least_p_value(arms, given_up):
    """The smaller p value of the two tests that a verdict on runs given up consists of: of shares, and of times.

    Two arms given up at one time tie at a ratio of exactly 1, so that of times is the larger on its two sides. Where
    all arrived the verdict is Welch's.
    """
    reached = [[t for t in arm if t is not None] for arm in arms]
    if reached == arms:
        return stats.ttest_ind(*map(np.log, arms), equal_var=False).pvalue
    shares = fisher_exact(len(reached[0]), len(arms[0]), len(reached[1]), len(arms[1]))
    a, b = (CensoredTimes(tuple(r), tuple(g)) for r, g in zip(reached, given_up, strict=True))
    return min(shares, max(log_rank_p(a, scaled(b, 1 - 1e-9)), log_rank_p(a, scaled(b, 1 + 1e-9))))


def scaled(arm, ratio):
    return CensoredTimes(tuple(t / ratio for t in arm.reached), tuple(t / ratio for t in arm.given_up))


def given_up_called_different(cases):
    """How many comparisons, each of two arms and of when their other runs were given up, end in a difference."""
    return called_different(
        len(cases),
        lambda at: least_p_value(*cases[at]),
        lambda at: verdict(*cases[at][0], censored_at_a=cases[at][1][0], censored_at_b=cases[at][1][1]),
    )


@pytest.mark.slow
@pytest.mark.parametrize("n", [5, 10])
@pytest.mark.parametrize("share", [0.6, 0.85])
def test_equal_arms_with_censored_runs_are_called_different_in_six_percent_of_comparisons(n, share):
    repeats = 500
    draws = np.exp(0.1 * np.random.default_rng([23, n]).standard_normal((repeats, 2, n)))
    budget = float(np.quantile(draws, share))
    arms = [[[t if t < budget else None for t in arm] for arm in pair] for pair in draws.tolist()]
    wrong = given_up_called_different([(pair, [[budget] * arm.count(None) for arm in pair]) for pair in arms])
    assert wrong / repeats <= allowed(0.06, repeats)


def arms_given_up(random, n, hopeless, unequal):
    """Two equal arms: each run arrives, is given up (at a time of its own if ``unequal``) or can never arrive."""
    arms, given_up = [], []
    for _ in range(2):
        times = np.exp(0.1 * random.standard_normal(n))
        budgets = 1.1 * np.exp(0.15 * random.standard_normal(n) * unequal)
        budgets[random.random(n) < hopeless] = math.inf
        arrives = (times < budgets) & np.isfinite(budgets)
        arms.append([t if arrived else None for t, arrived in zip(times.tolist(), arrives.tolist(), strict=True)])
        given_up.append(budgets[~arrives].tolist())
    return arms, given_up


@pytest.mark.slow
@pytest.mark.parametrize("n", [5, 10])
@pytest.mark.parametrize("unequal", [False, True], ids=["one budget", "budgets of their own"])
@pytest.mark.parametrize("hopeless", [0.1, 0.4])
def test_equal_arms_with_runs_that_can_never_arrive_are_called_different_in_six_percent(n, unequal, hopeless):
    repeats, random = 500, np.random.default_rng([43, n, unequal])
    wrong = given_up_called_different([arms_given_up(random, n, hopeless, unequal) for _ in range(repeats)])
    assert wrong / repeats <= allowed(0.06, repeats)


def test_equal_shares_with_unknown_give_up_times_are_rarely_called_different():
    repeats = 2000
    hits = np.random.default_rng(29).random((repeats, 2, 10)) < 0.7
    wrong = sum(
        verdict(*[[1.0 + i / 10 if hit else None for i, hit in enumerate(arm)] for arm in pair]).kind in DIFFERENT
        for pair in hits.tolist()
        if not all(map(all, pair))
    )
    assert wrong / repeats <= 0.05


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.95])
def test_holms_correction_bounds_the_chance_of_one_false_alarm_in_a_suite(correlation):
    repeats, suite = 4000, 20
    random = np.random.default_rng(31)
    common, own = random.standard_normal((repeats, 1)), random.standard_normal((repeats, suite))
    z = math.sqrt(correlation) * common + math.sqrt(1 - correlation) * own
    alarms = sum(min(holm([2 * normal_cdf(-abs(each)) for each in row])) <= 0.05 for row in z.tolist())
    assert alarms / repeats <= allowed(0.05, repeats)


def test_without_a_correction_a_suite_of_twenty_raises_a_false_alarm_more_often_than_not():
    p_values = np.random.default_rng(37).random((4000, 20))
    assert (p_values.min(axis=1) <= 0.05).mean() == pytest.approx(1 - 0.95**20, abs=0.03)


@pytest.mark.parametrize("n", [2, 5, 20])
def test_a_mean_exactly_at_the_target_reaches_it_in_five_percent_of_suites(n):
    repeats = 4000
    draws = np.random.default_rng([41, n]).normal(0.94, 0.002, (repeats, n))
    rate = sum(reaches_on_average(row, 0.94).reached for row in draws.tolist()) / repeats
    assert abs(rate - 0.05) <= 3 * math.sqrt(0.05 * 0.95 / repeats)
