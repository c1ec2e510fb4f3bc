"""Comparisons end in a verdict."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from levelbench.measure.statistics import welch_log_ratio
from levelbench.measure.verdict import Verdict, VerdictKind, format_verdict, format_verdicts, slower_p, verdict

NUMPY = [10.0, 10.1, 9.9, 10.05, 9.95]
times = st.lists(st.floats(0.5, 2.0), min_size=3, max_size=8)


def made(kind, ratio, low, high, more=None, reason="", n=5):
    return Verdict(VerdictKind(kind), ratio, low, high, n, n, 0.02, 0.95, more, reason)


def test_a_shorter_time_is_faster():
    found = verdict(NUMPY, [8.1, 8.0, 8.2, 7.9, 8.3])
    assert found.kind is VerdictKind.FASTER
    assert found.low < found.ratio < found.high < 1.0
    assert (found.n_a, found.n_b, found.runs_to_settle, found.reason) == (5, 5, None, "")


def test_a_longer_time_is_slower():
    assert verdict(NUMPY, [12.1, 12.0, 12.2, 11.9]).kind is VerdictKind.SLOWER


def test_same_means_that_the_whole_interval_is_inside_the_margin():
    found = verdict(NUMPY, [10.02, 10.0, 10.05, 9.95, 9.98])
    assert found.kind is VerdictKind.SAME
    assert 1 / 1.02 <= found.low <= found.high <= 1.02


def test_same_is_tested_before_a_difference():
    a, b = [100.0, 100.1, 99.9], [101.0, 101.1, 100.9]
    assert verdict(a, b, margin=0.02).kind is VerdictKind.SAME
    assert verdict(a, b, margin=0.005).kind is VerdictKind.SLOWER


def test_noise_is_unclear_and_says_how_many_runs_would_settle_it():
    found = verdict(NUMPY, [9.9, 10.2, 9.8, 10.05, 9.5])
    assert found.kind is VerdictKind.UNCLEAR
    assert found.low < 1.0 < found.high
    assert 10 < found.runs_to_settle < 100


def test_a_wider_margin_needs_fewer_runs():
    b = [9.9, 10.2, 9.8, 10.05, 9.5]
    assert verdict(NUMPY, b, margin=0.025).runs_to_settle < verdict(NUMPY, b, margin=0.02).runs_to_settle


@pytest.mark.parametrize(("a", "b"), [([10.0], [8.0]), ([10.0, 10.1], [8.0]), (NUMPY, [8.0, 8.01])])
def test_fewer_than_three_runs_of_an_arm_give_a_number_and_no_verdict(a, b):
    found = verdict(a, b)
    assert (found.kind, found.low, found.high) == (VerdictKind.UNCLEAR, None, None)
    assert found.ratio == pytest.approx(0.8, rel=0.01)
    assert "3 or more" in found.reason


def test_samples_without_variance_are_judged_by_their_values_where_the_clock_is_fine_enough():
    assert verdict([0.3] * 3, [0.3] * 3, resolution=1e-9).kind is VerdictKind.SAME
    assert verdict([0.3] * 3, [0.2] * 3, resolution=1e-9).kind is VerdictKind.FASTER


def test_times_that_a_coarse_clock_rounded_to_one_value_are_not_certain():
    assert verdict([0.3] * 3, [0.3] * 3).kind is VerdictKind.UNCLEAR
    found = verdict([0.5, 1.0, 1.5], [0.55, 1.1, 1.65], paired=True)
    assert found.low < 1.1 - 0.05 < 1.1 + 0.05 < found.high


def test_one_outlier_in_twenty_does_not_hide_a_difference():
    random = np.random.default_rng(5)
    a, b = np.exp(0.05 * random.standard_normal((2, 24))) * [[1.0], [1.08]]
    a[[3, 17]] *= 4.0
    b[7] *= 4.0
    for paired in (False, True):
        found = verdict(a.tolist(), b.tolist(), paired=paired)
        assert found.kind is VerdictKind.SLOWER
        assert found.low < 1.08 < found.high
        assert "outliers trimmed" in found.reason
        assert "with them the ratio is" in found.reason


def test_what_makes_one_arm_slow_now_and_then_is_not_trimmed_away():
    random = np.random.default_rng(6)
    a, b = np.exp(0.01 * random.standard_normal((2, 40))) * [[1.0], [1.03]]
    a[::8] *= 2.0
    for paired in (False, True):
        found = verdict(a.tolist(), b.tolist(), paired=paired)
        assert "trimmed" not in found.reason
        assert found.kind is not VerdictKind.SLOWER


FAST = [1.0, 1.01, 0.99, 1.005, 0.995, 1.002, 0.998, 1.004]


@pytest.mark.parametrize("paired", [True, False])
def test_a_slower_mode_of_one_arm_is_not_trimmed_away(paired):
    two_of_eight = [0.97, 0.98, 1.455, 0.972, 0.965, 0.968, 1.47, 0.975]
    found = verdict(FAST, two_of_eight, paired=paired, resolution=1e-9)
    assert (found.kind, "trimmed" in found.reason) == (VerdictKind.UNCLEAR, False)


def rate(seed, draw, kinds, n=200, **given):
    """The share of comparisons that end in one of ``kinds``."""
    random = np.random.default_rng(seed)
    return sum(verdict(*draw(random), resolution=1e-9, **given).kind in kinds for _ in range(n)) / n


@pytest.mark.parametrize("n", [12, 30])
def test_an_arm_with_a_second_mode_is_no_slower_than_one_of_equal_mean(n):
    def draw(random):
        modes = 0.15 * ((random.random(n) < 0.3) - 0.3)
        return np.exp(modes + random.normal(0, 0.005, n)), np.exp(random.normal(0, 0.005, n))

    assert rate(1, draw, ("FASTER", "SLOWER"), paired=True) < 0.15, "a plain t test has 0.1 at 12 runs"


def test_arms_of_which_one_takes_an_epoch_more_now_and_then_are_not_the_same():
    def draw(random):
        return [np.exp(random.normal(0, 0.01, 20) + math.log(4 / 3) * (random.random(20) < p)) for p in (0.05, 0.2)]

    assert rate(2, draw, ("SAME",), paired=True) < 0.05


def test_same_is_not_said_where_all_runs_differ():
    a, b = np.exp(np.random.default_rng(1).normal(0, 0.01, (2, 24)))
    b[3] *= 4.0
    found = verdict(a.tolist(), b.tolist(), paired=True, resolution=1e-9)
    assert found.kind is VerdictKind.UNCLEAR
    assert "which decide: look at what they have in common" in found.reason


@pytest.mark.slow
@pytest.mark.parametrize(("spreads", "n"), [((0.05, 0.5), (20, 20)), ((0.1, 0.3), (30, 30)), ((0.05, 0.5), (10, 5))])
def test_missed_runs_of_arms_that_spread_differently_make_none_of_them_slower(spreads, n):
    """Equal geometric means; the log-rank test alone calls the more variable arm slower in 20 to 50 %."""
    random, false = np.random.default_rng(3), 0
    for _ in range(200):
        arms = [np.exp(random.normal(0, spread, count)) for spread, count in zip(spreads, n, strict=True)]
        times = [[time if time <= 1.5 else None for time in arm] for arm in arms]
        given_up = [[1.5] * arm.count(None) for arm in times]
        found = verdict(*times, censored_at_a=given_up[0], censored_at_b=given_up[1], resolution=1e-9)
        false += found.kind in ("FASTER", "SLOWER")
    assert false / 200 < 0.1


def test_an_arm_of_which_hardly_any_run_arrives_may_only_vary_less():
    """Equal geometric means just above the time at which all are given up: 15 % were called FASTER before."""
    random, false = np.random.default_rng(3), 0
    for _ in range(200):
        arms = [np.exp(random.normal(0, spread, 12)) for spread in (0.05, 0.3)]
        times = [[time if time <= 0.97 else None for time in arm] for arm in arms]
        given_up = [[0.97] * arm.count(None) for arm in times]
        found = verdict(*times, censored_at_a=given_up[0], censored_at_b=given_up[1], resolution=1e-9)
        false += found.kind in ("FASTER", "SLOWER")
    assert false <= 10


def test_an_arm_that_never_arrives_is_slower_than_one_that_always_does():
    found = verdict([None] * 5, [1.0, 1.1, 1.05, 0.95, 1.02], censored_at_a=[2.0] * 5, censored_at_b=[])
    assert found.kind is VerdictKind.FASTER


def test_an_arm_that_went_on_alone_is_not_faster_by_its_stretches_against_its_runs():
    order = [0, 1] * 6 + [1] * 18
    spans = [(65.0 * at, 65.0 * at + 60.0) for at in range(30)]
    a = [1.0, 1.001, 0.999, 1.0, 1.001, 0.999]
    b = [0.97, 0.971, 0.969, 0.97, 0.971, 0.969, *[1.04] * 18]
    when = [[span for span, arm in zip(spans, order, strict=True) if arm == own] for own in (0, 1)]
    found = verdict(a, b, spans_a=when[0], spans_b=when[1], resolution=1e-9)
    assert found.kind is VerdictKind.UNCLEAR
    assert found.high > 1.0


def test_stretches_in_the_same_order_each_time_do_not_turn_a_drift_into_a_difference():
    order, random, false = [0, 0, 0, 1, 1, 1] * 3, np.random.default_rng(4), 0
    for _ in range(200):
        logs = 0.01 * np.arange(18) + random.normal(0, 0.005, 18)
        spans = [(65.0 * at, 65.0 * at + 60.0) for at in range(18)]
        a, b = ([math.exp(each) for each, arm in zip(logs, order, strict=True) if arm == own] for own in (0, 1))
        when = [[span for span, arm in zip(spans, order, strict=True) if arm == own] for own in (0, 1)]
        found = verdict(a, b, paired=True, spans_a=when[0], spans_b=when[1], resolution=1e-9)
        assert "3 pairs of neighbouring stretches are compared" in found.reason
        false += found.kind in ("FASTER", "SLOWER")
    assert false / 200 < 0.06


def test_values_of_which_most_are_equal_are_not_trimmed_to_a_point():
    found = verdict([1.0] * 7 + [1.4, 1.5], [1.03] * 7 + [0.6, 2.0], resolution=1e-9)
    assert found.kind is VerdictKind.UNCLEAR


@given(times, times)
def test_exchanging_the_arms_exchanges_faster_and_slower(a, b):
    opposite = {"FASTER": "SLOWER", "SLOWER": "FASTER"}
    forth, back = verdict(a, b), verdict(b, a)
    assert back.kind == opposite.get(forth.kind, forth.kind)
    assert forth.ratio * back.ratio == pytest.approx(1.0)


@given(times, times)
def test_the_interval_is_welchs_on_logarithms(a, b):
    found, welch = verdict(a, b), welch_log_ratio(a, b)
    assert (found.low, found.high) == (welch.interval.low, welch.interval.high)


@given(times, times, st.floats(0.0, 0.2))
def test_every_verdict_keeps_its_promise(a, b, margin):
    found = verdict(a, b, margin=margin)
    inside = found.low >= 1 / (1 + margin) and found.high <= 1 + margin
    assert (found.kind is VerdictKind.SAME) == inside
    if found.kind is VerdictKind.UNCLEAR:
        assert found.low <= 1.0 <= found.high
    else:
        assert found.runs_to_settle is None


@pytest.mark.parametrize(
    ("a", "b", "options"),
    [
        ([1.0, 0.0], [1.0, 2.0], {}),
        ([1.0, math.nan], [1.0, 2.0], {}),
        ([1.0, math.inf], [1.0, 2.0], {}),
        ([], [1.0, 2.0], {}),
        ([1.0, 2.0], [1.0, 2.0], {"margin": -0.1}),
        ([1.0, 2.0], [1.0, 2.0], {"level": 1.0}),
        ([1.0, None], [1.0, 2.0], {"censored_at_a": [1.0, 2.0]}),
        ([1.0, None], [1.0, 2.0], {"censored_at_a": [-1.0]}),
        ([1.0, None], [1.0, 2.0], {"censored_at_a": [math.nan]}),
    ],
)
def test_what_cannot_be_compared_is_refused(a, b, options):
    with pytest.raises(ValueError, match=r"values|arm|margin|level|give-up"):
        verdict(a, b, **options)


def test_a_spread_beyond_all_measure_leaves_the_interval_open():
    found = verdict([1e-150, 1e150], [1.0, 2.0])
    assert (found.kind, found.low, found.high) == (VerdictKind.UNCLEAR, None, None)


def test_the_smallest_margins_do_not_underflow():
    a = [1.0] * 7 + [2.0]
    assert verdict(a, a, margin=5e-324).kind is VerdictKind.UNCLEAR


def test_arrays_are_samples_too():
    assert verdict(np.array(NUMPY), np.array([8.0, 8.1, 8.2])).kind is VerdictKind.FASTER


def test_an_arm_that_reaches_more_often_is_better():
    found = verdict([None] * 5, [1.0, 2.0, 3.0, 4.0, 5.0], censored_at_a=[math.inf] * 5)
    assert (found.kind, found.ratio) == (VerdictKind.FASTER, None)
    assert found.reason.startswith("5/5 and 0/5 runs reached the target")
    assert verdict([1.0, 2.0, 3.0, 4.0, 5.0], [None] * 5, censored_at_b=[9.0] * 5).kind is VerdictKind.SLOWER


def test_arms_that_were_given_up_at_different_budgets_are_compared_up_to_the_common_one():
    # b reaches the target twelve times as fast or, for a budget that ends soon, not at all.
    a, b = [12.0, 12.5, 11.5, 12.2, 11.8], [1.0, 1.05, 0.95, None, None]
    found = verdict(a, b, censored_at_b=[1.1, 1.1])
    assert found.kind is not VerdictKind.SLOWER
    more = verdict(a * 2, b * 2, censored_at_b=[1.1] * 4)
    assert more.kind is VerdictKind.FASTER
    assert "6 and 0 in the 1.1 s for which all were watched" in more.reason


def test_a_verdict_that_the_expected_time_with_restarts_contradicts_is_unclear():
    a, b = [10.0 + i / 10 for i in range(12)], [5.0 + i / 10 for i in range(11)] + [None]
    assert verdict(a, b, censored_at_b=[math.inf], spent_b=[11.2]).kind is VerdictKind.FASTER
    found = verdict(a, b, censored_at_b=[math.inf], spent_b=[100.0])
    assert found.kind is VerdictKind.UNCLEAR
    assert "restarts" in found.reason


def test_what_restarts_would_cost_is_said_of_runs_that_were_only_given_up_early():
    a, b = [10.0 + i / 10 for i in range(12)], [5.0 + i / 10 for i in range(11)] + [None]
    found = verdict(a, b, censored_at_b=[11.2], spent_b=[100.0])
    assert found.kind is VerdictKind.FASTER
    assert "say the opposite" in found.reason


def test_a_censored_run_is_not_dropped():
    without = verdict([10.0, 10.1, 9.9], [8.0, 8.1, 7.9])
    found = verdict([10.0, 10.1, 9.9], [8.0, 8.1, 7.9, None])
    assert without.kind is VerdictKind.FASTER
    assert (found.kind, found.ratio, found.n_b) == (VerdictKind.UNCLEAR, None, 4)
    assert "3/4 and 3/3 runs reached the target" in found.reason
    assert "not known" in found.reason


def test_known_give_up_times_give_an_interval():
    a, b = [None, 10.0, 12.0, 11.0, 10.0, 13.0], [5.0, 6.0, 7.0, 6.0, 5.0, 5.0]
    found = verdict(a, b, censored_at_a=[40.0])
    assert found.kind is VerdictKind.FASTER
    assert found.low < found.ratio < found.high < 1.0
    assert found.reason == "6/6 and 5/6 runs reached the target"


def test_runs_are_counted_in_the_order_in_which_the_sides_are_named():
    found = verdict([None, 10.0, 12.0, 11.0], [5.0, 6.0, 7.0], censored_at_a=[40.0])
    text = format_verdict(found, "old", "new")
    assert "new" in text.split("old")[0]
    assert "(n = 3 + 4)" in text
    assert "3/3 and 3/4 runs reached the target" in text


def test_one_run_that_diverged_early_does_not_destroy_the_verdict():
    random = np.random.default_rng(11)
    a, b = [[scale * each for each in np.exp(0.05 * random.standard_normal(20)).tolist()] for scale in (10.0, 5.0)]
    found = verdict(a, [*b, None], censored_at_b=[math.inf])
    assert found.kind is VerdictKind.FASTER
    assert found.ratio == pytest.approx(0.5, rel=0.05)
    assert (found.n_b, found.reason) == (21, "20/21 and 20/20 runs reached the target")


def test_half_of_the_runs_diverging_is_worse_by_the_shares_however_fast_the_others_are():
    found = verdict([10.0 + i / 10 for i in range(10)], [5.0] * 4 + [None] * 6, censored_at_b=[math.inf] * 6)
    assert (found.kind, found.ratio) == (VerdictKind.SLOWER, None)
    assert "fewer arrive" in found.reason


def test_two_arms_that_both_diverge_are_compared_by_those_that_arrive():
    a, b = [[*(scale * (1 + i / 100) for i in range(10)), None] for scale in (10.0, 5.0)]
    found = verdict(a, b, censored_at_a=[math.inf], censored_at_b=[math.inf])
    assert found.kind is VerdictKind.FASTER


def test_an_arm_that_only_diverges_has_no_times_to_compare():
    found = verdict([1.0, 2.0, 1.5], [None] * 3, censored_at_b=[math.inf] * 3)
    assert (found.kind, found.low, found.high) == (VerdictKind.UNCLEAR, None, None)
    assert "0/3 and 3/3" in found.reason


def test_censored_arms_that_cannot_be_told_apart_are_unclear_with_a_number_of_runs():
    a, b = [10.0, 11.0, 12.0, 13.0, 9.0, None], [10.5, 11.5, 12.5, 9.5, 8.0, None]
    found = verdict(a, b, censored_at_a=[40.0], censored_at_b=[40.0])
    assert found.kind is VerdictKind.UNCLEAR
    assert found.low < 1.0 < found.high
    assert found.runs_to_settle > 1


def test_too_few_arrivals_leave_the_ratio_unbounded():
    found = verdict([1.0, 1.1, None], [2.0, 2.1, 2.2], censored_at_a=[5.0])
    assert (found.kind, found.ratio, found.low, found.high) == (VerdictKind.UNCLEAR, None, None, None)
    assert "too few" in found.reason


def test_nobody_arriving_is_unclear():
    found = verdict([None] * 3, [None] * 3, censored_at_a=[9.0] * 3, censored_at_b=[9.0] * 3)
    assert (found.kind, found.ratio) == (VerdictKind.UNCLEAR, None)
    assert "0/3 and 0/3" in found.reason


def test_a_censored_single_run_has_no_ratio():
    found = verdict([None], [3.0, 4.0])
    assert (found.kind, found.ratio) == (VerdictKind.UNCLEAR, None)
    assert "2/2 and 0/1" in found.reason


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (made("FASTER", 0.81, 0.78, 0.84), "FASTER: torch takes 0.81 [0.78, 0.84] times as long as numpy (n = 5 + 5)"),
        (
            made("SAME", 1.0013, 0.9961, 1.0062),
            "SAME: torch takes 1.001 [0.996, 1.006] times as long as numpy (n = 5 + 5)",
        ),
        (
            made("UNCLEAR", 4.02, 0.0913, 188.0),
            "UNCLEAR: torch takes 4.0 [0.1, 188] times as long as numpy (n = 5 + 5)",
        ),
        (
            made("UNCLEAR", 3.8095, 0.0002, 66989.2),
            "UNCLEAR: torch takes 3.81 [0.0002, 67,000] times as long as numpy (n = 5 + 5)",
        ),
        (
            made("UNCLEAR", 0.98, 0.93, 1.03, 40),
            "UNCLEAR: torch takes 0.98 [0.93, 1.03] times as long as numpy (n = 5 + 5); "
            "about 40 more runs each to settle it",
        ),
        (
            made("UNCLEAR", 1.2, 0.5, 2.9, 1),
            "UNCLEAR: torch takes 1.2 [0.5, 2.9] times as long as numpy (n = 5 + 5); "
            "about 1 more run each to settle it",
        ),
        (made("SLOWER", 31.2, 20.0, 48.0), "SLOWER: torch takes 31 [20, 48] times as long as numpy (n = 5 + 5)"),
        (
            made("FASTER", 0.9, 0.8, 0.9996),
            "FASTER: torch takes 0.9000 [0.8000, 0.9996] times as long as numpy (n = 5 + 5)",
        ),
        (
            made("FASTER", 2 / 3, 2 / 3, 2 / 3),
            "FASTER: torch takes 0.667 [0.667, 0.667] times as long as numpy (n = 5 + 5)",
        ),
        (
            made("UNCLEAR", 0.8, None, None, None, "too few", 1),
            "UNCLEAR: torch takes 0.8 times as long as numpy (n = 1 + 1); too few",
        ),
        (made("FASTER", None, None, None, None, "why"), "FASTER: torch against numpy (n = 5 + 5); why"),
        (made("SLOWER", None, 1.25, None), "SLOWER: torch takes more than 1.25 times as long as numpy (n = 5 + 5)"),
        (made("FASTER", None, None, 0.5), "FASTER: torch takes less than 0.5 times as long as numpy (n = 5 + 5)"),
    ],
)
def test_a_verdict_reads_as_one_line(value, line):
    assert format_verdict(value, "numpy", "torch") == line


def test_verdicts_against_one_side_say_once_what_they_share():
    found = [
        ("torch", made("FASTER", 0.81, 0.78, 0.84, reason="paired by seed")),
        ("jax", made("UNCLEAR", 1.2, 0.5, 2.9, 7, reason="paired by seed")),
        ("mlx", made("FASTER", None, None, None, reason="paired by seed")),
    ]
    assert format_verdicts("numpy", found) == (
        "compared with numpy (n = 5 + 5, paired by seed)",
        [
            "FASTER: torch takes 0.81 [0.78, 0.84] times as long",
            "UNCLEAR: jax takes 1.2 [0.5, 2.9] times as long; about 7 more runs each",
            "FASTER: mlx",
        ],
    )


def test_what_verdicts_against_one_side_do_not_share_stays_with_each():
    found = [("torch", made("SAME", 1.0, 0.99, 1.01)), ("jax", made("UNCLEAR", 0.8, None, None, 1, "too few", 1))]
    assert format_verdicts("numpy", found) == (
        "compared with numpy",
        [
            "SAME: torch takes 1.000 [0.990, 1.010] times as long; n = 5 + 5",
            "UNCLEAR: jax takes 0.8 times as long; n = 1 + 1; too few; about 1 more run each",
        ],
    )


def test_terse_verdicts_have_the_ratio_without_words():
    found = [
        ("torch", made("UNCLEAR", 1.2, 0.5, 2.9, 7)),
        ("jax", made("FASTER", None, None, 0.9)),
        ("mlx", made("FASTER", None, None, None)),
    ]
    assert format_verdicts("numpy", found, terse=True)[1] == [
        "UNCLEAR: torch x1.2 [0.5, 2.9]; about 7 more runs each",
        "FASTER: jax less than 0.9",
        "FASTER: mlx",
    ]


@given(times, times)
def test_rounding_never_contradicts_the_verdict(a, b):
    found = verdict(a, b)
    line = format_verdict(found, "a", "b")
    if found.kind is VerdictKind.FASTER and found.high < 1 - 1e-6:
        assert float(line.split("]")[0].split(", ")[1]) < 1.0
    if found.kind is VerdictKind.SLOWER and found.low > 1 + 1e-6:
        assert float(line.split("[")[1].split(",")[0]) > 1.0


def test_pairs_that_share_their_luck_are_told_apart_where_unpaired_runs_are_not():
    luck = [1.0, 1.4, 0.8, 1.9, 1.1]
    a, b = luck, [1.1 * each * noise for each, noise in zip(luck, [1.0, 1.01, 0.99, 1.005, 1.0], strict=True)]
    assert verdict(a, b).kind is VerdictKind.UNCLEAR
    found = verdict(a, b, paired=True)
    assert found.kind is VerdictKind.SLOWER
    assert found.low < 1.1 < found.high
    assert found.reason == "paired by seed"


def test_the_paired_interval_is_that_of_a_one_sample_t_test_on_log_ratios():
    a, b = [1.0, 1.2, 0.9, 1.1], [1.3, 1.5, 1.4, 1.2]
    found = verdict(a, b, paired=True)
    test = stats.ttest_1samp(np.log(b) - np.log(a), 0.0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((np.exp(test.low), np.exp(test.high)), rel=1e-9)


def test_values_of_different_number_cannot_be_paired():
    with pytest.raises(ValueError, match="cannot be paired"):
        verdict([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0], paired=True)


@pytest.mark.parametrize("n", [15, 16, 20])
def test_a_run_that_took_a_little_longer_does_not_hide_that_arms_are_the_same(n):
    random = np.random.default_rng(0)
    a, b = (np.exp(random.normal(0, 0.002, 20))[:n] for _ in range(2))
    b[3] *= 1.03
    assert verdict(a, b, paired=True).kind is VerdictKind.SAME


@pytest.mark.parametrize(
    ("a", "options", "message"),
    [
        ([1e-300] * 3, {}, "too far apart"),
        ([10**400] * 3, {}, "larger than any number"),
        ([1.0, 1.1, 1.2], {"resolution": math.inf}, "resolution"),
        ([1.0, 1.1, 1.2], {"resolution": -1.0}, "resolution"),
        ([1.0, 1.1, 1.2], {"resolution": math.nan}, "resolution"),
        ([1.0, 1.1, 1.2], {"spans_a": [(0, 1)], "spans_b": [(2, 3)] * 3}, "1 spans for 3 runs"),
    ],
)
def test_what_cannot_be_meant_is_a_value_error(a, options, message):
    with pytest.raises(ValueError, match=message):
        verdict(a, [1.0, 1.1, 1.3], **options)


def failing(random, n, spread, share):
    """Times of arms of one geometric mean, of which some fail and could never have arrived."""
    return [None if random.random() < share else math.exp(random.normal() * spread) for _ in range(n)]


@pytest.mark.slow
@pytest.mark.parametrize(("n", "spreads", "share"), [(30, (0.05, 0.3), 0.05), (50, (0.05, 0.3), 0.03)])
def test_unequal_spreads_with_failures_of_one_rate_are_no_difference(n, spreads, share):
    random, trials, wrong = np.random.default_rng(3), 60, 0
    for _ in range(trials):
        a, b = (failing(random, n, spread, share) for spread in spreads)
        never = [[math.inf] * arm.count(None) for arm in (a, b)]
        found = verdict(a, b, censored_at_a=never[0], censored_at_b=never[1])
        wrong += found.kind in (VerdictKind.FASTER, VerdictKind.SLOWER)
    assert stats.binomtest(wrong, trials, 0.05, alternative="greater").pvalue > 1e-3


def test_an_arm_that_fails_more_often_is_slower_at_whatever_spread():
    a, b = [1.0 + 0.001 * at for at in range(20)], [1.0 + 0.02 * at for at in range(10)]
    found = verdict(a, [*b, *[None] * 10], censored_at_b=[math.inf] * 10, censored_at_a=[])
    assert found.kind is VerdictKind.SLOWER


@pytest.mark.parametrize("paired", [True, False])
def test_runs_that_took_a_tenth_are_no_accidents(paired):
    a = [1.0, 1.01, 0.99, 1.0, 1.005, 0.995, 1.01, 0.99]
    b = [1.05 * time for time in a]
    assert verdict(a, b, paired=paired).kind is VerdictKind.SLOWER
    found = verdict(a, [*b[:6], 0.1, 0.1], paired=paired)
    assert found.kind is VerdictKind.UNCLEAR
    assert "which decide" in found.reason
    # What took ten times as long may be one.
    assert verdict(a, [*b[:7], 10.0], paired=paired).kind is VerdictKind.SLOWER


@pytest.mark.parametrize("paired", [True, False])
def test_slow_runs_that_only_the_faster_arm_has_may_be_its_own(paired):
    a = [100, 101, 99, 100.5, 100.2, 99.7, 100, 99.9]
    b = [95, 95.5, 94.8, 380, 95.2, 95.1, 379, 94.9]
    found = verdict(a, b, paired=paired)
    assert found.kind is VerdictKind.UNCLEAR
    assert verdict(b, a, paired=paired).kind is VerdictKind.UNCLEAR


def test_a_slow_run_of_the_faster_arm_that_is_left_out_is_named_with_what_it_would_change():
    random = np.random.default_rng(7)
    a, b = np.exp(0.02 * random.standard_normal((2, 24))) * [[1.0], [0.95]]
    b[5] *= 4.0
    found = verdict(a, b, paired=True)
    assert found.kind is VerdictKind.FASTER
    assert "false if the faster arm has slow runs of its own" in found.reason
    a[5] *= 4.0
    assert "slow runs of its own" not in verdict(a, b, paired=True).reason


@pytest.mark.parametrize(("n", "slow", "most"), [(8, 0.2, 0.2), (12, 0.2, 0.12), (24, 0.15, 0.15), (24, 0.1, 0.33)])
def test_an_arm_that_is_slow_now_and_then_is_seldom_called_faster(n, slow, most):
    random, wrong, trials = np.random.default_rng(3), 0, 300
    for _ in range(trials):
        a, b = np.exp(0.03 * random.standard_normal((2, n))) * [[1.0], [0.95]]
        b *= np.where(random.random(n) < slow, 4.0, 1.0)
        wrong += verdict(a, b, paired=True).kind is VerdictKind.FASTER
    assert stats.binomtest(wrong, trials, most, alternative="greater").pvalue > 1e-2


@pytest.mark.parametrize(("n", "trials", "most"), [(5, 200, 0.15), (60, 200, 0.12)])
def test_a_long_tail_of_one_arm_is_seldom_taken_for_a_difference(n, trials, most):
    random, wrong = np.random.default_rng(4), 0
    for _ in range(trials):
        tailed, tight = np.exp(0.1 * (random.exponential(size=n) - 1)), np.exp(0.01 * random.normal(size=n))
        wrong += verdict(tailed, tight, paired=True).kind in (VerdictKind.FASTER, VerdictKind.SLOWER)
    assert stats.binomtest(wrong, trials, most, alternative="greater").pvalue > 1e-2


@pytest.mark.parametrize("n", [10, 30])
def test_the_interval_of_unequal_spreads_covers_where_runs_were_given_up(n):
    random, trials, held = np.random.default_rng(5), 80, 0
    for _ in range(trials):
        arms = [np.exp(spread * random.normal(size=n)) for spread in (0.1, 0.4)]
        times = [[time if time <= 1.2 else None for time in arm] for arm in arms]
        found = verdict(*times, censored_at_a=[1.2] * times[0].count(None), censored_at_b=[1.2] * times[1].count(None))
        held += (found.low or 0.0) <= 1.0 <= (found.high or math.inf)
    assert stats.binomtest(held, trials, 0.95, alternative="less").pvalue > 1e-3


def test_thousands_of_runs_to_settle_it_are_separated():
    found = made("UNCLEAR", 1.01, 0.9, 1.1, more=1189)
    assert "about 1,189 more runs each to settle it" in format_verdict(found, "a", "b")


ONES = [1.0, 1.02, 0.98, 1.01, 0.99]


def test_the_p_value_for_many_comparisons_is_that_of_the_verdicts_test():
    slower = [1.1 * time for time in ONES]
    assert slower_p(ONES, slower) == welch_log_ratio(ONES, slower).p_value < 0.001
    assert verdict(ONES, slower).kind is VerdictKind.SLOWER


@pytest.mark.parametrize("b", [[0.9 * time for time in ONES], [1.004, 1.0041, 1.0042, 1.0043, 1.0044]])
def test_what_is_not_slower_by_the_verdict_has_a_p_value_of_1(b):
    a = ONES if b[0] < 1 else [1.0, 1.0001, 1.0002, 1.0003, 1.0004]
    assert slower_p(a, b) == 1.0


def test_runs_that_never_arrive_are_compared_by_the_log_rank_test():
    few = [*(3 * time for time in ONES[:2]), None, None, None]
    assert slower_p(ONES, few) < 0.05
    assert slower_p(few, ONES) == 1.0


def test_too_few_runs_have_no_p_value():
    with pytest.raises(ValueError, match="3 or more"):
        slower_p(ONES, ONES[:2])
