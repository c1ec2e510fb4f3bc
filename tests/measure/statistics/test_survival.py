"""Censored runs: Kaplan-Meier curves, restarts, and the ratio of times."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.measure.statistics import (
    CensoredTimes,
    expected_time_with_restarts,
    kaplan_meier,
    log_rank_p,
    restarts_interval,
    time_ratio,
)

# Freireich et al. 1963, weeks of remission under 6-MP (patients of LOST were still in remission when last seen).
PLACEBO = [1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23]
RELAPSED = [6.0, 6, 6, 7, 10, 13, 16, 22, 23]
LOST = [6.0, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
TIMES = RELAPSED + LOST
OBSERVED = [True] * len(RELAPSED) + [False] * len(LOST)


def product_limit(times, observed, at):
    """S(at) one run at a time: events before losses at ties."""
    share, left = 1.0, len(times)
    for time, event in sorted(zip(times, observed, strict=True), key=lambda pair: (pair[0], not pair[1])):
        if time > at:
            break
        share *= (left - 1) / left if event else 1.0
        left -= 1
    return share


def test_freireichs_remissions_have_the_textbook_curve():
    curve = kaplan_meier(TIMES, OBSERVED)
    table = {6: 0.857, 7: 0.807, 10: 0.753, 13: 0.690, 16: 0.627, 22: 0.538, 23: 0.448}
    assert curve.times == tuple(map(float, table))
    assert curve.survival == pytest.approx(list(table.values()), abs=5e-4)
    assert curve.at_risk == (21, 17, 15, 12, 11, 7, 6)
    # Greenwood's standard errors, as printed by Collett and by R's survfit.
    errors = [0.0764, 0.0869, 0.0963, 0.1068, 0.1141, 0.1282, 0.1346]
    assert np.sqrt(curve.variance) == pytest.approx(errors, abs=5e-5)


def test_freireichs_median_remission_is_23_weeks_and_open_above():
    median = kaplan_meier(TIMES, OBSERVED).median()
    assert (median.value, median.n) == (23.0, 21)
    assert (median.interval.low, median.interval.high) == (13.0, math.inf)


def test_survival_between_events_is_that_of_the_last_one():
    curve = kaplan_meier(TIMES, OBSERVED)
    assert (curve.at(0), curve.at(6), curve.at(8), curve.at(99)) == pytest.approx((1.0, 0.857, 0.807, 0.448), abs=5e-4)
    assert (curve.interval_at(1).low, curve.interval_at(1).high) == (1.0, 1.0)
    low, high = curve.interval_at(10).low, curve.interval_at(10).high
    reach = 1.959964 * 0.0963 / (0.753 * abs(math.log(0.753)))
    assert (low, high) == pytest.approx((0.753 ** math.exp(reach), 0.753 ** math.exp(-reach)), abs=1e-3)


@given(st.lists(st.tuples(st.integers(1, 20), st.booleans()), min_size=1, max_size=30))
def test_the_curve_equals_an_independent_product_limit(runs):
    times, observed = zip(*runs, strict=True)
    curve = kaplan_meier(times, observed)
    for at in range(22):
        assert curve.at(at) == pytest.approx(product_limit(times, observed, at), abs=1e-12)
        assert curve.at(at) in curve.interval_at(at)


@given(st.lists(st.floats(0.1, 99), min_size=1, max_size=30))
def test_without_censoring_the_curve_is_the_empirical_one(times):
    curve = kaplan_meier(times, [True] * len(times))
    for at in times:
        assert curve.at(at) == pytest.approx(np.mean(np.array(times) > at), abs=1e-12)


def test_times_at_which_runs_were_given_up_are_kept_ascending():
    assert kaplan_meier([5, 1, 3], [False, True, False]).given_up == (3.0, 5.0)


def test_half_of_the_runs_failing_leaves_the_median_open():
    assert kaplan_meier([1, 2, 9, 9, 9], [True, True, False, False, False]).median().value == math.inf


def test_runs_that_could_never_arrive_are_at_risk_throughout_however_early_they_ended():
    curve = kaplan_meier([10.0] * 4 + [math.inf] * 6, [True] * 4 + [False] * 6)
    assert (curve.at_risk, curve.at(10.0), curve.last, curve.given_up) == ((10,), pytest.approx(0.6), math.inf, ())
    assert curve.median().value == math.inf
    # Given up at 3 s they would have left the risk set, and half of all would seem to arrive by 10 s.
    assert kaplan_meier([10.0] * 4 + [3.0] * 6, [True] * 4 + [False] * 6).median().value == 10.0


@pytest.mark.parametrize(
    ("times", "observed"), [([math.inf], [True]), ([math.nan], [False]), ([-math.inf], [False]), ([], [])]
)
def test_times_that_are_no_times_are_refused(times, observed):
    with pytest.raises(ValueError, match="values"):
        kaplan_meier(times, observed)


def test_nothing_observed_is_a_curve_without_steps():
    curve = kaplan_meier([5.0, 5.0], [False, False])
    assert (curve.times, curve.at(9), curve.median().value) == ((), 1.0, math.inf)


def test_lengths_that_differ_are_refused():
    with pytest.raises(ValueError, match="observations"):
        kaplan_meier([1.0, 2.0], [True])


def test_the_published_cifar10_entry_takes_42_s_with_restarts():
    assert expected_time_with_restarts([27.98] * 33, [27.98] * 17) == pytest.approx(27.98 / 0.66)
    assert round(expected_time_with_restarts([27.98] * 33, [27.98] * 17)) == 42


def test_restarts_match_a_simulation():
    random = np.random.default_rng(7)
    successes, failures, p = [4.0, 6.0, 5.0], [9.0, 11.0], 3 / 5
    total = [random.geometric(p) - 1 for _ in range(20_000)]
    costs = [sum(random.choice(failures, size=tries)) + random.choice(successes) for tries in total]
    error = np.std(costs) / math.sqrt(len(costs))
    assert abs(np.mean(costs) - expected_time_with_restarts(successes, failures)) < 4 * error


def test_restarts_never_end_if_nothing_succeeds():
    assert expected_time_with_restarts([], [10.0]) == math.inf
    with pytest.raises(ValueError, match="values"):
        expected_time_with_restarts([], [])


def test_the_log_rank_test_tells_6_mp_from_placebo():
    treated = CensoredTimes(tuple(RELAPSED), (36.0,) * len(LOST))
    assert log_rank_p(treated, CensoredTimes(tuple(map(float, PLACEBO)))) < 1e-3


def test_the_exact_permutation_p_counts_arrangements():
    assert log_rank_p(CensoredTimes((1.0, 2.0, 3.0, 4.0)), CensoredTimes((5.0, 6.0, 7.0, 8.0))) == pytest.approx(2 / 70)
    assert log_rank_p(CensoredTimes((1.0, 2.0)), CensoredTimes((1.0, 2.0))) == 1.0


def test_the_arms_are_only_compared_while_both_were_watched():
    short = CensoredTimes((1.0, 2.0, 3.0), (4.0, 4.0, 4.0))
    long = CensoredTimes((1.0, 2.0, 3.0, 50.0, 60.0, 70.0))
    assert log_rank_p(short, long) == pytest.approx(1.0)


def test_the_interval_of_the_ratio_excludes_what_the_test_rejects():
    a, b = CensoredTimes((10.0, 12.0, 11.0, 10.5, 13.0), (40.0,)), CensoredTimes((5.0, 6.0, 7.0, 6.5, 5.5, 5.2))
    found = time_ratio(a, b)
    low, high = found.interval.low, found.interval.high
    assert low < found.ratio < high < 1.0
    for ratio, rejected in ((low * 0.99, True), (found.ratio, False), (high * 1.01, True)):
        scaled = CensoredTimes(tuple(t / ratio for t in b.reached))
        assert (log_rank_p(a, scaled) <= 0.05) == rejected


def test_three_runs_an_arm_bound_nothing():
    found = time_ratio(CensoredTimes((1.0, 1.1), (5.0,)), CensoredTimes((2.0, 2.1, 2.2)))
    assert (found.interval.low, found.interval.high) == (0.0, math.inf)


def test_there_is_no_ratio_if_nobody_arrived():
    assert time_ratio(CensoredTimes((), (5.0, 5.0)), CensoredTimes((), (5.0, 5.0))) is None


def test_a_run_that_could_never_arrive_shortens_no_horizon():
    a, late, never = (
        CensoredTimes((1.0, 2.0, 3.0, 4.0)),
        CensoredTimes((5.0, 6.0, 7.0), (4.5,)),
        CensoredTimes((5.0, 6.0, 7.0), (math.inf,)),
    )
    assert never.horizon == math.inf
    assert log_rank_p(a, never) == pytest.approx(2 / 70)
    assert log_rank_p(a, CensoredTimes((5.0, 6.0, 7.0), (0.5,))) == 1.0
    assert log_rank_p(a, late) == pytest.approx(2 / 70)


def test_a_run_that_could_never_arrive_stays_so_under_any_ratio():
    a, b = [tuple(scale * (1 + i / 20) for i in range(12)) for scale in (10.0, 5.0)]
    found = time_ratio(CensoredTimes(a), CensoredTimes(b, (math.inf,)))
    assert 0.0 < found.interval.low <= 0.5 <= found.interval.high < 1.0


def test_there_is_no_ratio_if_no_run_of_an_arm_could_have_arrived():
    assert time_ratio(CensoredTimes((1.0, 2.0)), CensoredTimes((), (math.inf, math.inf))) is None
    assert time_ratio(CensoredTimes((), (math.inf, math.inf)), CensoredTimes((1.0, 2.0))) is None


@pytest.mark.parametrize("given_up", [-math.inf, math.nan, 0.0])
def test_give_up_times_that_are_no_times_are_refused(given_up):
    with pytest.raises(ValueError, match="give-up"):
        time_ratio(CensoredTimes((1.0, 2.0)), CensoredTimes((1.0,), (given_up,)))


def test_a_large_comparison_uses_the_normal_tail_and_finds_the_ratio():
    random = np.random.default_rng(3)
    a, b = np.exp(0.1 * random.standard_normal((2, 60)))
    b *= 1.25
    arms = [CensoredTimes(tuple(t[t < 1.3]), (1.3,) * int((t >= 1.3).sum())) for t in (a, b)]
    found = time_ratio(*arms)
    assert 1.25 in found.interval
    assert found.interval.width < 0.2


def test_a_large_comparison_with_few_events_agrees_with_drawn_permutations():
    a = CensoredTimes((3.0,), (10.0,) * 29)
    b = CensoredTimes((1.0, 2.0, 4.0), (10.0,) * 27)
    # The scores of four events among sixty runs have a variance below one.
    times = np.array([3.0, 1.0, 2.0, 4.0] + [10.0] * 56)
    event = times < 10.0
    hazard = np.array([sum(1.0 / (times >= t).sum() for t in np.sort(times[event]) if t <= each) for each in times])
    scores = event - hazard
    random = np.random.default_rng(5)
    seen = abs(scores[0] + 29 * scores[-1] - 30 * scores.mean())
    drawn = [abs(random.permutation(scores)[:30].sum() - 30 * scores.mean()) for _ in range(4000)]
    assert log_rank_p(a, b) == pytest.approx(np.mean(np.array(drawn) >= seen - 1e-9), abs=0.2)
    assert log_rank_p(a, b) < 0.6


def test_quantiles_are_where_the_curve_of_scipy_crosses():
    stats = pytest.importorskip("scipy.stats", reason="SciPy is not installed")
    theirs = stats.ecdf(stats.CensoredData(uncensored=RELAPSED, right=LOST)).sf
    curve = kaplan_meier(TIMES, OBSERVED)
    assert curve.survival == pytest.approx(theirs.probabilities[np.isin(theirs.quantiles, curve.times)])
    for share in (0.1, 0.25, 0.5):
        first = next(t for t, left in zip(theirs.quantiles, theirs.probabilities, strict=True) if left <= 1 - share)
        assert curve.quantile(share).value == first
    assert curve.quantile(0.9).value == math.inf
    assert curve.median() == curve.quantile(0.5)


def test_a_hundred_thousand_runs_agree_with_scipy():
    stats = pytest.importorskip("scipy.stats", reason="SciPy is not installed")
    rng = np.random.default_rng(5)
    times, observed = rng.exponential(size=100_000), rng.random(100_000) < 0.7
    theirs = stats.ecdf(stats.CensoredData(uncensored=times[observed], right=times[~observed])).sf
    curve = kaplan_meier(times, observed)
    for at in (0.1, 0.7, 2.0):
        assert curve.at(at) == pytest.approx(float(theirs.evaluate(at)), rel=1e-9)


def test_restarts_have_no_interval_below_six_runs_that_arrived():
    assert restarts_interval([1.0] * 5, [2.0] * 5) is None
    assert restarts_interval([1.0] * 6, []) is not None


def test_the_interval_of_restarts_allows_for_misses_that_no_run_shows():
    found = restarts_interval([1.0, 1.01, 0.99] * 4, [])
    assert found.high > 1.2
    assert found.low > 0.98


def test_one_very_long_run_does_not_pull_the_interval_of_restarts_to_no_time_at_all():
    found = restarts_interval([5.0, 5.1, 4.9, 5.0, 500.0, 5.2, 4.95, 5.05], [])
    assert 1.0 < found.low < 67 < found.high


@pytest.mark.parametrize("share", [0.66, 0.9, 0.97])
@pytest.mark.parametrize("n", [10, 20, 50])
def test_the_interval_of_restarts_holds_the_expected_time(n, share):
    rng, repeats, hits, counted = np.random.default_rng([31, n, round(100 * share)]), 1000, 0, 0
    truth = math.exp(0.5 * 0.05**2) + (1 - share) / share * 1.5
    for _ in range(repeats):
        arrived = rng.random(n) < share
        times = np.exp(0.05 * rng.standard_normal(n))[arrived]
        found = restarts_interval(times, [1.5] * int(n - arrived.sum()))
        counted += found is not None
        hits += found is not None and truth in found
    assert counted > 0.5 * repeats
    assert hits / counted >= 0.93 - 3 * math.sqrt(0.95 * 0.05 / counted)


def test_the_record_that_two_of_three_runs_reach_costs_half_as_much_again():
    # wbaek/torchskeleton: 33 of 50 runs on four V100 reach 94 % in 27.98 s.
    times, missed = [27.98] * 33, [27.98] * 17
    assert expected_time_with_restarts(times, missed) == pytest.approx(27.98 / 0.66, rel=1e-9)


@pytest.mark.parametrize(("n", "share"), [(2, 0.25), (5, 0.25), (10, 0.25), (8, 0.1)])
def test_a_quantile_that_all_of_so_few_runs_may_exceed_has_no_low_end(n, share):
    random, held = np.random.default_rng(5), []
    for _ in range(200):
        times = random.exponential(1.0, n)
        interval = kaplan_meier(times.tolist(), [True] * n).quantile(share).interval
        held.append(interval.low == 0.0 and -np.log1p(-share) in interval)
    assert np.mean(held) >= 0.95


def test_the_median_of_few_runs_has_their_lowest_and_highest_and_one_run_has_neither():
    found = kaplan_meier([2.0, 1.0, 3.0], [True, True, True]).median()
    assert (found.interval.low, found.interval.high, found.interval.is_range) == (1.0, 3.0, True)
    assert kaplan_meier([2.0, 1.0, 3.0], [True, True, False]).median().interval.high == np.inf
    assert kaplan_meier([2.0], [True]).median().interval is None


def test_runs_given_up_before_the_first_arrival_do_not_raise_the_low_end():
    # Nine were at risk, and all of them lie above the first quartile in 0.75 ** 9 = 7.5 % of samples.
    times, observed = [1.0] * 5 + [2.0 + at / 10 for at in range(9)], [False] * 5 + [True] * 3 + [False] * 6
    assert kaplan_meier(times, observed).quantile(0.25).interval.low == 0.0
    assert kaplan_meier([2.0 + at / 10 for at in range(14)], [True] * 3 + [False] * 11).quantile(0.25).interval.low > 0


def test_of_few_runs_the_lowest_is_when_the_first_ended_and_the_highest_unknown_where_one_was_given_up():
    found = kaplan_meier([216.0, 245.0, 271.0], [False, True, True]).median()
    assert (found.interval.low, found.interval.high) == (216.0, math.inf)


def test_the_median_of_six_runs_that_all_arrived_is_bounded_by_the_last():
    # All six lie below the median once in 64 samples, which is less than 2.5 %.
    times = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5]
    found = kaplan_meier(times, [True] * 6)
    assert found.median().interval.high == 1.5
    assert found.quantile(0.75).interval.high == math.inf
    assert kaplan_meier(times, [True] * 5 + [False]).median().interval.high == math.inf
    assert kaplan_meier([1.0] * 8, [True] * 8).median().interval.high == 1.0


@pytest.mark.parametrize("share", [0.5, 0.75])
@pytest.mark.parametrize("budget", [math.inf, 2.0])
def test_intervals_of_quantiles_of_few_runs_of_one_budget_hold_them(share, budget):
    random, truth = np.random.default_rng(5), math.exp({0.5: 0.0, 0.75: 0.6744898}[share])
    for n in (6, 7, 8, 12):
        held = 0
        for times in np.exp(random.standard_normal((1000, n))):
            reached = times <= budget
            found = kaplan_meier(np.minimum(times, budget).tolist(), reached.tolist()).quantile(share).interval
            held += truth in found
        # Brookmeyer and Crowley's held the median in 93 % of samples of seven.
        assert held >= 0.94 * 1000
