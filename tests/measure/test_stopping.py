"""Stopping rules: when each is met, what it says, how they join, and what stopping early does to coverage."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.errors import UsageError
from levelbench.measure.statistics import median_interval
from levelbench.measure.stopping import (
    Budget,
    FixedCount,
    Plateau,
    Precision,
    SampleSoFar,
    bounded,
    half_width,
)


def at(n=0, elapsed_s=1.0, sd=0.01, seed=1):
    return SampleSoFar(np.random.default_rng(seed).lognormal(0.0, sd, n), elapsed_s)


def test_a_count_is_met_at_exactly_that_many_values():
    assert not FixedCount(5).check(at(4)).met
    assert FixedCount(5).check(at(5)).met
    assert FixedCount(5).more(at(3)) == 2


def test_precision_is_met_when_the_interval_is_narrow_enough():
    values = np.array([0.99, 0.995, 1.0, 1.0, 1.005, 1.01])
    assert half_width(values) == pytest.approx(0.01)
    assert Precision(0.0101).check(SampleSoFar(values, 1.0)).met
    assert not Precision(0.0099).check(SampleSoFar(values, 1.0)).met


def test_the_half_width_is_the_wider_side():
    assert half_width(np.array([0.9, 1.0, 1.0, 1.0, 1.0, 1.4])) == pytest.approx(0.4)


def test_precision_is_never_met_without_an_interval():
    check = Precision(0.5).check(SampleSoFar(np.ones(5), 1.0))
    assert not check.met
    assert check.text == "no interval yet from 5 values"
    assert Precision(0.5).more(SampleSoFar(np.ones(2), 1.0)) == 4


def test_precision_of_nothing_is_not_met():
    assert not Precision().check(at(0)).met


def test_values_from_one_instant_are_not_precise():
    assert not Precision(0.02, least_s=0.05).check(SampleSoFar(np.ones(100), 0.01)).met
    assert Precision(0.02, least_s=0.05).check(SampleSoFar(np.ones(100), 0.05)).met
    assert Precision(0.02, least_s=0.05).more(SampleSoFar(np.ones(100), 0.01)) == 400


def test_precision_predicts_how_many_values_it_wants():
    progress = at(100, sd=0.2)
    wanted = 100 * ((half_width(progress.values) / 0.02) ** 2 - 1)
    assert Precision(0.02).more(progress) == pytest.approx(wanted, abs=1)


def test_a_plateau_is_met_when_more_values_do_not_narrow_the_interval():
    walk = 1 + np.abs(np.random.default_rng(3).normal(0, 0.01, 1000)) + np.linspace(0, 1, 1000) ** 2
    check = Plateau().check(SampleSoFar(walk, 1.0))
    assert check.met
    assert "stays" in check.text


def test_a_plateau_is_not_met_while_the_interval_narrows():
    assert not Plateau().check(at(4000, sd=0.1)).met


def test_a_plateau_is_not_judged_from_few_values():
    assert "judged from 200 on" in Plateau().check(at(199)).text
    assert Plateau().more(at(50)) == 150


def test_a_plateau_is_rarely_seen_in_steady_noise():
    looks = [200 * 5**k // 4**k for k in range(12)]
    values = [at(looks[-1], sd=0.3, seed=seed).values for seed in range(150)]
    seen = [any(Plateau().check(SampleSoFar(each[:n], 1.0)).met for n in looks) for each in values]
    assert np.mean(seen) < 0.07


def test_a_budget_is_met_when_the_time_is_spent():
    assert not Budget(2.0).check(at(50, elapsed_s=1.9)).met
    assert Budget(2.0).check(at(50, elapsed_s=2.0)).met


def test_a_budget_does_not_end_below_what_an_interval_needs():
    assert not Budget(0.5).check(at(5, elapsed_s=1.0)).met
    assert Budget(0.5).check(at(6, elapsed_s=1.2)).met


def test_a_budget_ends_below_the_floor_where_the_floor_is_not_affordable():
    assert not Budget(0.5, overrun=10).check(at(2, elapsed_s=4.9)).met
    assert Budget(0.5, overrun=10).check(at(2, elapsed_s=5.0)).met


def test_a_budget_never_ends_with_nothing():
    assert not Budget(1.0).check(at(0, elapsed_s=1e6)).met


def test_a_budget_asks_for_what_it_can_still_pay():
    assert Budget(10.0).more(at(100, elapsed_s=2.0)) == 400
    assert Budget(10.0).more(at(3, elapsed_s=9.0)) == 1


def test_any_is_met_by_the_first_of_its_parts():
    rule = FixedCount(10) | FixedCount(5)
    assert rule.check(at(5)).met
    assert rule.more(at(3)) == 2


def test_all_is_met_by_the_last_of_its_parts():
    rule = FixedCount(10) & FixedCount(5)
    assert not rule.check(at(5)).met
    assert rule.more(at(5)) == 5
    assert rule.check(at(10)).met


def test_a_budget_that_ended_the_sampling_names_the_unmet_condition():
    text = (Precision(0.001) | Budget(1.0)).check(at(50, elapsed_s=1.0)).text
    assert text.startswith("budget of 1 s spent; unmet: interval of the median +-")
    assert text.endswith("wanted +-0.10%")


def test_a_condition_that_was_met_is_all_the_text():
    assert (FixedCount(5) | Budget(100.0)).check(at(5)).text == "5 of 5 values"


def test_what_is_still_unmet_of_all_is_the_text():
    assert (FixedCount(5) & FixedCount(9)).check(at(6)).text == "6 of 9 values"


def test_joined_rules_are_flat_and_equal_by_value():
    assert (FixedCount(1) | FixedCount(2) | FixedCount(3)).rules == (FixedCount(1), FixedCount(2), FixedCount(3))
    assert (FixedCount(1) & Budget(2)) == (FixedCount(1) & Budget(2))


def test_a_rule_that_may_never_be_met_gets_a_budget():
    assert bounded(Precision(0.02), 3) == Precision(0.02) | Budget(3)
    assert bounded(Precision(0.02) & FixedCount(9), 3).bounded
    assert bounded(Precision(0.02) | FixedCount(9)) == Precision(0.02) | FixedCount(9)
    assert bounded(FixedCount(9)) == FixedCount(9)


@given(st.integers(0, 40), st.integers(1, 40), st.integers(1, 40))
def test_any_and_all_are_what_they_say(n, a, b):
    progress = at(n)
    met_a, met_b = FixedCount(a).check(progress).met, FixedCount(b).check(progress).met
    assert (FixedCount(a) | FixedCount(b)).check(progress).met == (met_a or met_b)
    assert (FixedCount(a) & FixedCount(b)).check(progress).met == (met_a and met_b)


@given(st.integers(0, 60), st.floats(0, 20))
def test_every_rule_asks_for_at_least_one_more_value(n, elapsed_s):
    progress = at(n, elapsed_s)
    rules = [FixedCount(5), Precision(), Plateau(), Budget(1), Precision() | Budget(1), Plateau() & FixedCount(3)]
    assert all(rule.more(progress) >= 1 for rule in rules)


@pytest.mark.parametrize(
    "make",
    [
        lambda: FixedCount(0),
        lambda: FixedCount(-3),
        lambda: Precision(0),
        lambda: Precision(-0.1),
        lambda: Precision(float("nan")),
        lambda: Precision(0.02, level=1.0),
        lambda: Precision(0.02, least_s=-1),
        lambda: Plateau(0.5),
        lambda: Plateau(1.1),
        lambda: Plateau(least=23),
        lambda: Budget(0),
        lambda: Budget(-1),
        lambda: Budget(float("inf")),
        lambda: Budget(1, floor=0),
        lambda: Budget(1, overrun=0.5),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_in_three_parts(make):
    with pytest.raises(UsageError) as caught:
        make()
    assert caught.value.asked
    assert caught.value.found
    assert caught.value.do.startswith("give")


@pytest.mark.parametrize("sd", [0.01, 0.03])
def test_stopping_over_processes_keeps_the_coverage_of_the_interval(sd):
    """Looks as ``sample_processes`` takes them: at 6, then up to half as many more."""
    covered = 0
    for seed in range(400):
        values, n, rule = at(2000, sd=sd, seed=seed).values, 6, Precision(0.02)
        while not rule.check(SampleSoFar(values[:n], 1.0)).met:
            n += min(max(rule.more(SampleSoFar(values[:n], 1.0)), n // 3), n // 2 + 1)
        interval = median_interval(values[:n].tolist())
        covered += interval.low <= 1.0 <= interval.high
    # Three standard errors of 400 trials below the 93 % that is wanted of processes.
    assert covered / 400 > 0.93 - 3 * np.sqrt(0.93 * 0.07 / 400)
