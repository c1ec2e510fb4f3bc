"""Warm-up is found from the values: none, one slow call, a decay, drift."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from levelbench.errors import UsageError
from levelbench.measure.warmup import WarmupRule, find_warmup, warmup_rule

RNG_SEED = 20
STEADY_S = 1e-3


def steady(n, sd=0.01, seed=RNG_SEED):
    return STEADY_S * np.random.default_rng(seed).lognormal(0.0, sd, n)


def test_constant_values_have_no_warmup():
    assert find_warmup(np.full(100, STEADY_S)).cut == 0


@pytest.mark.parametrize("n", [6, 20, 60, 400])
@pytest.mark.parametrize("noise", [0.0, 0.01, 0.05])
def test_one_slow_first_call_is_cut_and_nothing_else(n, noise):
    values = steady(n, noise) if noise else np.full(n, STEADY_S)
    values[0] = 9 * STEADY_S
    assert find_warmup(values).cut == 1


@pytest.mark.parametrize("n", [6, 10, 20, 60])
def test_one_slow_first_call_is_cut_alone_whatever_the_noise_looks_like(n):
    cuts = []
    for seed in range(200):
        values = steady(n, 0.02, seed)
        values[0] = 9 * STEADY_S
        cuts.append(find_warmup(values).cut)
    assert np.mean(np.array(cuts) >= 1) > 0.98
    assert np.mean(np.array(cuts) == 1) > 0.93


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.03])
def test_a_geometric_decay_is_cut_to_within_the_noise(noise):
    k = np.arange(400)
    values = (steady(400, noise) if noise else np.full(400, STEADY_S)) * (1 + 3 * np.exp(-k / 20))
    found = find_warmup(values)
    bias = np.median(values[found.cut :]) / STEADY_S - 1
    assert 60 <= found.cut <= 200
    assert abs(bias) < 0.005


def test_values_that_begin_too_fast_are_cut_as_well():
    values = steady(400)
    values[:60] *= 0.8
    assert find_warmup(values).cut == 60


@pytest.mark.parametrize("end", [0.5, 1.5, 2.0])
def test_slow_drift_is_reported_and_not_cut(end):
    found = find_warmup(steady(400) * np.linspace(1.0, end, 400))
    assert found.cut == 0
    assert not found.settled
    assert "drift" in found.reason


def test_a_decay_longer_than_the_sample_is_no_steady_state():
    found = find_warmup(steady(400) * (1 + 3 * np.exp(-np.arange(400) / 150)))
    assert (found.cut, found.settled) == (0, False)


def test_an_interruption_late_in_the_sample_is_not_mistaken_for_its_beginning():
    values = steady(400)
    values[[150, 300, 301]] *= 50
    assert find_warmup(values).cut == 0


def test_a_change_that_does_not_matter_is_not_cut():
    values = np.full(400, STEADY_S)
    values[:50] *= 1.001
    assert find_warmup(values).cut == 0


@pytest.mark.parametrize(("n", "sd"), [(10, 0.01), (30, 0.05), (200, 0.02)])
def test_steady_values_are_rarely_cut_and_then_little(n, sd):
    cuts = np.array([find_warmup(steady(n, sd, seed)).cut for seed in range(300)])
    assert np.mean(cuts > 0) < 0.12
    assert np.mean(cuts) / n < 0.03


@given(arrays(np.float64, st.integers(0, 120), elements=st.floats(1e-9, 1e3)))
def test_at_most_half_is_cut_and_never_all(values):
    assert 0 <= find_warmup(values).cut <= len(values) // 2


@given(arrays(np.float64, st.integers(4, 80), elements=st.floats(1e-3, 1e3)), st.sampled_from([2.0**-10, 2.0**10]))
def test_the_cut_does_not_depend_on_the_unit(values, factor):
    assert find_warmup(values).cut == find_warmup(values * factor).cut


def test_the_reason_says_how_many_and_by_how_much():
    values = np.full(20, STEADY_S)
    values[0] *= 3
    assert find_warmup(values).reason.startswith("the first 1 of 20 values are +200.0% off the rest")


def test_a_chosen_cut_leaves_one_value_and_says_what_was_cut():
    assert warmup_rule(5).find(steady(3)).cut == 2
    assert warmup_rule(5).find(steady(3)).reason == "2 values cut of 5 asked for: there are only 3"
    assert warmup_rule(5).find(steady(6)).reason == "5 values cut as asked"
    assert warmup_rule(1).find(steady(6)).reason == "1 value cut as asked"
    assert warmup_rule(2).find(steady(10)).cut == 2


def test_the_rule_is_found_by_default_and_fixed_on_request():
    assert warmup_rule("auto") == WarmupRule(None)
    assert warmup_rule(0) == WarmupRule(0)


@pytest.mark.parametrize("wanted", [-1, "some", 1.5, True])
def test_an_unusable_warmup_is_refused(wanted):
    with pytest.raises(UsageError, match="neither 'auto' nor a number"):
        warmup_rule(wanted)
