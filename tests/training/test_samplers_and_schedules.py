import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.errors import DefinitionError
from levelbench.training.samplers import Shuffled
from levelbench.training.schedules import Constant, OneCycle


@given(st.integers(1, 500), st.integers(0, 2**40), st.integers(0, 1000))
def test_an_epoch_visits_every_sample_exactly_once(samples, seed, epoch):
    order = Shuffled(7).order(samples, seed, epoch)
    assert np.array_equal(np.sort(order), np.arange(samples))


def test_the_order_follows_from_seed_and_epoch_alone():
    sampler = Shuffled(10)
    assert np.array_equal(sampler.order(100, 1, 2), sampler.order(100, 1, 2))
    assert not np.array_equal(sampler.order(100, 1, 2), sampler.order(100, 1, 3))
    assert not np.array_equal(sampler.order(100, 1, 2), sampler.order(100, 2, 2))


def test_first_places_are_uniform_over_the_samples():
    counts = np.bincount([Shuffled(1).order(10, seed, 0)[0] for seed in range(5000)], minlength=10)
    assert ((counts - 500) ** 2 / 500).sum() < 27.9  # chi-squared with 9 degrees of freedom, p = 0.001


@pytest.mark.parametrize(("samples", "batch", "steps"), [(10, 5, 2), (11, 5, 3), (1, 5, 1), (1077, 64, 17)])
def test_the_last_batch_of_an_epoch_may_be_smaller(samples, batch, steps):
    assert Shuffled(batch).steps(samples) == steps


def test_an_empty_batch_is_refused():
    with pytest.raises(DefinitionError, match="batch >= 1"):
        Shuffled(0)


def test_a_constant_schedule_may_stop_early_and_one_cycle_may_not():
    assert not Constant.fixed_length
    assert OneCycle.fixed_length


def test_one_cycle_rises_to_one_and_falls_to_zero():
    schedule = OneCycle(0.25)
    assert schedule.factor(0) == 0
    assert schedule.factor(0.125) == pytest.approx(0.5)
    assert schedule.factor(0.25) == pytest.approx(1)
    assert schedule.factor(0.625) == pytest.approx(0.5)
    assert schedule.factor(1) == pytest.approx(0)


@given(st.floats(0, 1))
def test_one_cycle_stays_between_zero_and_one(progress):
    assert 0 <= OneCycle().factor(progress) <= 1


def test_a_warmup_that_is_no_share_is_refused():
    with pytest.raises(DefinitionError, match="share"):
        OneCycle(1.0)
