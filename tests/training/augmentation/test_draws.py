"""Draws by counter: what is drawn, how evenly, and of what it depends."""

import numpy as np
import pytest
from scipy.stats import binomtest, chi2

from levelbench.training.augmentation import example_seeds, random, uniform
from levelbench.training.augmentation.base import words

N = 20_000
SEEDS = example_seeds(5, 2, np.arange(N))


def even(counts):
    """The p-value of equal shares."""
    expected = counts.sum() / len(counts)
    return chi2.sf(((counts - expected) ** 2 / expected).sum(), len(counts) - 1)


def test_the_generator_is_splitmix64():
    # The first outputs of the published generator (Vigna's splitmix64.c) from state 0 and state 1234567.
    golden = np.uint64(0x9E3779B97F4A7C15)
    from levelbench.training.augmentation.base import _mixed

    states = np.uint64(1234567) + np.arange(3, dtype=np.uint64) * golden
    assert _mixed(states).tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert _mixed(np.zeros(1, np.uint64)).tolist() == [0xE220A8397B1DCDAF]


def test_an_example_has_the_same_seed_in_any_company():
    alone = [example_seeds(5, 2, np.array([index]))[0] for index in (0, 7, 12_345)]
    assert alone == [SEEDS[0], SEEDS[7], SEEDS[12_345]]


@pytest.mark.parametrize("other", [example_seeds(6, 2, np.arange(N)), example_seeds(5, 3, np.arange(N))])
def test_another_run_or_epoch_has_other_seeds(other):
    assert len(np.intersect1d(SEEDS, other)) == 0
    assert len(np.unique(SEEDS)) == N


@pytest.mark.parametrize("seed", [0, -1, 2**63, 2**64 + 1])
def test_any_whole_number_is_a_seed(seed):
    assert len(np.unique(example_seeds(seed, 0, np.arange(100)))) == 100


def test_whole_numbers_are_even_and_both_ends_are_reached():
    drawn = uniform(SEEDS, 1, -4, 4)
    assert (drawn.min(), drawn.max()) == (-4, 4)
    assert even(np.bincount(drawn + 4)) > 1e-4


def test_numbers_are_even_from_0_to_below_1():
    drawn = random(SEEDS, 1)
    assert 0 <= drawn.min() < drawn.max() < 1
    assert even(np.bincount((drawn * 64).astype(int), minlength=64)) > 1e-4


def test_draws_of_different_salts_are_independent():
    both = uniform(SEEDS, 1, 0, 7) * 8 + uniform(SEEDS, 2, 0, 7)
    assert even(np.bincount(both, minlength=64)) > 1e-4


def test_draws_of_the_same_example_in_neighbouring_epochs_are_independent():
    both = uniform(SEEDS, 1, 0, 7) * 8 + uniform(example_seeds(5, 3, np.arange(N)), 1, 0, 7)
    assert even(np.bincount(both, minlength=64)) > 1e-4


@pytest.mark.parametrize("bit", range(0, 64, 7))
def test_each_bit_is_set_half_of_the_time(bit):
    ones = int((words(SEEDS, 3) >> np.uint64(bit) & np.uint64(1)).sum())
    assert binomtest(ones, N).pvalue > 1e-4
