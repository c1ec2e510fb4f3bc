"""Counter-based random numbers, and moves of many images at once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, chi2

from levelbench.errors import DefinitionError
from levelbench.training.pixels import Bordered, _splitmix64, example_seeds, move, random, uniform, words

SIDES = st.integers(1, 9)


@settings(max_examples=40)
@given(
    shape=st.tuples(st.integers(1, 12), st.integers(1, 3), SIDES, SIDES),
    most=st.integers(0, 11),
    dtype=st.sampled_from([np.uint8, np.float32]),
    reflect=st.booleans(),
    seed=st.integers(0, 99),
)
def test_a_moved_image_is_part_of_the_padded_one(shape, most, dtype, reflect, seed):
    n, _, height, width = shape
    most = min(most, min(height, width) - 1) if reflect else most
    random = np.random.default_rng(seed)
    images = random.integers(1, 256, shape).astype(dtype)
    down, right = random.integers(-most, most + 1, (2, n))
    padded = np.pad(images, ((0, 0), (0, 0), (most, most), (most, most)), "reflect" if reflect else "constant")
    expected = [
        image[:, most + y : most + y + height, most + x : most + x + width]
        for image, y, x in zip(padded, down, right, strict=True)
    ]
    move(images, down, right, most, reflect=reflect)
    assert np.array_equal(images, expected)


@pytest.mark.parametrize("reflect", [False, True])
def test_images_are_read_from_any_slot_and_the_others_stay_empty(reflect):
    images = np.arange(1, 1 + 3 * 2 * 4 * 4, dtype=np.uint8).reshape(3, 2, 4, 4)
    room = Bordered(3, (2, 4, 4), np.uint8, 2, reflect=reflect)
    room.write(images)
    store = Bordered(6, (2, 4, 4), np.uint8, 2, reflect=reflect)
    store.copy(np.array([4, 0, 2]), room)
    still = np.zeros(6, np.int64)
    found = store.read(np.array([2, 4, 1, 0, 3, 5]), still, still)
    assert np.array_equal(found[[1, 3, 0]], images)
    assert not found[[2, 4, 5]].any()


@pytest.mark.parametrize(("reflect", "expected"), [(False, 10 * 3 * 36 * 36), (True, 10 * 3 * 40 * 40)])
def test_its_memory_is_that_of_the_images_and_their_borders(reflect, expected):
    assert Bordered.bytes_of(10, (3, 32, 32), np.uint8, 4, reflect=reflect) == expected
    assert Bordered.bytes_of(10, (3, 32, 32), np.float32, 4, reflect=reflect) == 4 * expected


def test_reflecting_more_pixels_than_the_image_has_is_refused():
    with pytest.raises(DefinitionError, match="reflecting 4 pixels of images of 9 x 4"):
        Bordered(1, (1, 9, 4), np.uint8, 4, reflect=True)


N = 20_000
SEEDS = example_seeds(5, 2, np.arange(N))


def even(counts):
    """The p-value of equal shares."""
    expected = counts.sum() / len(counts)
    return chi2.sf(((counts - expected) ** 2 / expected).sum(), len(counts) - 1)


def test_the_generator_is_splitmix64():
    # The first outputs of the published generator (Vigna's splitmix64.c) from state 0 and state 1234567.
    golden = np.uint64(0x9E3779B97F4A7C15)
    states = np.uint64(1234567) + np.arange(3, dtype=np.uint64) * golden
    assert _splitmix64(states).tolist() == [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert _splitmix64(np.zeros(1, np.uint64)).tolist() == [0xE220A8397B1DCDAF]


def test_an_example_has_the_same_seed_in_any_batch():
    alone = [example_seeds(5, 2, np.array([index]))[0] for index in (0, 7, 12_345)]
    assert alone == [SEEDS[0], SEEDS[7], SEEDS[12_345]]


@pytest.mark.parametrize("other", [example_seeds(6, 2, np.arange(N)), example_seeds(5, 3, np.arange(N))])
def test_another_run_or_epoch_has_other_seeds(other):
    assert len(np.intersect1d(SEEDS, other)) == 0
    assert len(np.unique(SEEDS)) == N


@pytest.mark.parametrize("seed", [0, -1, 2**63, 2**64 + 1])
def test_any_integer_is_a_seed(seed):
    assert len(np.unique(example_seeds(seed, 0, np.arange(100)))) == 100


def test_integers_are_uniform_and_include_both_ends():
    drawn = uniform(SEEDS, 1, -4, 4)
    assert (drawn.min(), drawn.max()) == (-4, 4)
    assert even(np.bincount(drawn + 4)) > 1e-4


def test_numbers_are_uniform_in_0_to_1():
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
