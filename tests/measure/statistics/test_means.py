"""Summary means against published worked numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.measure.statistics import (
    amdahl_bound,
    arithmetic_mean,
    coefficient_of_variation,
    geometric_mean,
    harmonic_mean,
    mean_difference,
    olympic_mean,
    p_text,
)

SECONDS = [10.0, 100.0, 40.0]
RATES = [100.0 / seconds for seconds in SECONDS]


def test_sc15_costs_average_to_50_s_and_2_gflops():
    assert arithmetic_mean(SECONDS) == 50.0
    assert 100.0 / arithmetic_mean(SECONDS) == 2.0


def test_sc15_rates_average_harmonically_to_the_same_2_gflops():
    assert harmonic_mean(RATES) == pytest.approx(2.0)
    assert arithmetic_mean(RATES) == pytest.approx(4.5)


def test_sc15_ratios_to_the_peak_have_a_geometric_mean_of_029():
    assert geometric_mean([1.0, 0.1, 0.25]) == pytest.approx(0.29, abs=0.005)


def test_sc15_hpl_runs_lie_between_their_worst_and_best_share_of_the_peak():
    best, worst = 77.38 / 94.5, 61.2 / 94.5
    assert geometric_mean([best]) == pytest.approx(0.8188, abs=5e-5)
    assert worst < geometric_mean([best, worst]) < best


def test_amdahl_bounds_the_sc15_pi_example():
    serial_share = 0.2 / 20.0
    assert amdahl_bound(1, serial_share) == pytest.approx(1.0)
    assert amdahl_bound(32, serial_share) == pytest.approx(1 / (0.01 + 0.99 / 32))
    assert amdahl_bound(1e12, serial_share) == pytest.approx(100.0)


def test_coefficient_of_variation_is_that_of_the_mlperf_table():
    # RetinaNet, reference convergence points 5.1: mean 4.15 and 15.13, deviation 0.3663475485 and 0.5163977795.
    assert coefficient_of_variation([4] * 17 + [5] * 3) == pytest.approx(0.3663475485 / 4.15)
    assert coefficient_of_variation([15] * 14 + [17]) == pytest.approx(0.5163977795 / 15.13333333)
    assert coefficient_of_variation([4.0] * 10) == 0.0
    assert coefficient_of_variation([1.0, 3.0], ddof=0) == pytest.approx(0.5)


def test_coefficient_of_variation_needs_a_mean():
    with pytest.raises(ValueError, match="zero"):
        coefficient_of_variation([-1.0, 1.0])


def test_olympic_mean_is_mlperfs_for_resnet_4096():
    assert olympic_mean([39, 39, 39, 39, 40, 40, 40, 41, 41, 42]) == 39.875


@pytest.mark.parametrize(
    ("epochs", "mean"),
    [
        ([16, 14, 16, 17, 16, 16, 15, 16, 15, 16], 15.75),
        ([20, 21, 21, 20, 22, 22, 21, 21, 20, 20], 20.75),
        ([15, 15, 15, 16, 16], 15 + 1 / 3),
        ([19, 19, 19, 20, 21], 19 + 1 / 3),
        ([17, 18, 18, 18, 20], 18.0),
    ],
)
def test_olympic_mean_is_that_of_the_rules_worked_example(epochs, mean):
    assert olympic_mean(epochs) == pytest.approx(mean)


def test_one_failure_is_the_slowest_run_of_an_olympic_mean():
    assert olympic_mean([1.0, 2.0, 3.0, 4.0, None]) == 3.0


def test_more_failures_than_dropped_runs_invalidate_an_olympic_mean():
    assert olympic_mean([1.0, 2.0, 3.0, None, None]) is None
    assert olympic_mean([1.0, None]) is None


def test_unet3d_drops_four_on_each_side():
    times = [float(t) for t in range(1, 38)] + [None] * 3
    assert olympic_mean(times, drop=4) == pytest.approx(sum(range(5, 37)) / 32)


@given(st.lists(st.floats(0.01, 1e3), min_size=1, max_size=20))
def test_the_means_are_ordered(values):
    slack = 1 + 1e-12
    assert harmonic_mean(values) <= geometric_mean(values) * slack
    assert geometric_mean(values) <= arithmetic_mean(values) * slack


@pytest.mark.parametrize(
    "call", [lambda: harmonic_mean([1.0, 0.0]), lambda: geometric_mean([]), lambda: amdahl_bound(0, 0.5)]
)
def test_values_outside_the_domain_are_refused(call):
    with pytest.raises(ValueError, match=r"values|processors"):
        call()


def test_a_negative_drop_is_refused():
    with pytest.raises(ValueError, match="dropped"):
        olympic_mean([1.0, 2.0], drop=-1)


@pytest.mark.parametrize(
    ("p_value", "text"), [(0.0, "p < 0.001"), (9e-4, "p < 0.001"), (0.0123, "p = 0.012"), (1.0, "p = 1")]
)
def test_a_p_value_is_never_printed_as_zero(p_value: float, text: str) -> None:
    assert p_text(p_value) == text


A, B = [90.1, 90.5, 89.8, 90.2], [89.0, 89.9, 88.1, 89.7]


@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
def test_a_difference_of_means_is_scipys_welch(level):
    stats = pytest.importorskip("scipy.stats")
    found = mean_difference(A, [*B, 88.0], level)
    wanted = stats.ttest_ind([*B, 88.0], A, equal_var=False).confidence_interval(level)
    assert (found.interval.low, found.interval.high) == pytest.approx((wanted.low, wanted.high))
    assert (found.n, found.interval.method) == (4, "Welch's t")


def test_a_paired_difference_of_means_is_scipys():
    stats = pytest.importorskip("scipy.stats")
    found = mean_difference(A, B, paired=True)
    wanted = stats.ttest_rel(B, A).confidence_interval(0.95)
    assert (found.interval.low, found.interval.high) == pytest.approx((wanted.low, wanted.high))
    assert found.value == pytest.approx(sum(B) / 4 - sum(A) / 4)


def test_a_difference_of_means_needs_two_values_of_each_and_pairs_of_one_length():
    with pytest.raises(ValueError, match="needed"):
        mean_difference([1.0], B)
    with pytest.raises(ValueError, match="needed"):
        mean_difference(A, B[:3], paired=True)


def test_constant_samples_have_a_difference_of_no_width():
    found = mean_difference([1.0, 1.0], [3.0, 3.0])
    assert (found.value, found.interval.width) == (2.0, 0.0)
