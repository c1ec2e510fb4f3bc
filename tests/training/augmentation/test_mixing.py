"""Mixup and CutMix against their papers' formulas."""

import numpy as np
import pytest
from scipy.stats import binomtest, kstest

from levelbench.errors import DataError, DefinitionError
from levelbench.training.augmentation import CutMix, Mixup

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(0, 256, (16, 3, 8, 8), np.uint8)
LABELS = np.arange(16) % 5


def generator(seed=0):
    return np.random.Generator(np.random.PCG64(seed))


def test_mixup_is_one_convex_sum_of_images_and_labels():
    mixed, labels = Mixup(1.0).apply((IMAGES, LABELS), 5, generator())
    assert mixed.dtype == labels.dtype == np.float32
    np.testing.assert_allclose(labels.sum(axis=1), 1.0, rtol=1e-6)
    draws = generator()
    draws.random()
    share, partner = draws.beta(1.0, 1.0), draws.permutation(16)
    np.testing.assert_allclose(mixed, share * IMAGES + (1 - share) * IMAGES[partner], rtol=1e-5, atol=1e-4)
    one_hot = np.eye(5)
    np.testing.assert_allclose(labels, share * one_hot[LABELS] + (1 - share) * one_hot[LABELS[partner]], atol=1e-6)


def test_cutmix_shares_labels_by_the_area_that_is_seen():
    # Each image is one colour, its own number: what is seen of it can be counted.
    images = np.broadcast_to(np.arange(16, dtype=np.uint8)[:, None, None, None], (16, 1, 8, 8))
    for seed in range(20):
        mixed, labels = CutMix(1.0).apply((images, np.arange(16)), 16, generator(seed))
        seen = np.stack([np.bincount(image.ravel(), minlength=16) / 64 for image in mixed])
        np.testing.assert_allclose(labels, seen, atol=1e-6)
        assert mixed.dtype == np.uint8


def test_shares_follow_the_beta_distribution():
    pair = np.float32([[0.0], [1.0]]), np.array([0, 1])
    shares = []
    for seed in range(600):
        mixed, _ = Mixup(0.4).apply(pair, 2, generator(seed))
        # In half of the batches the only other partner is oneself.
        if mixed[0, 0] != 0.0:
            shares.append(1 - mixed[0, 0])
    assert kstest(shares, "beta", args=(0.4, 0.4)).pvalue > 1e-4


def mixed_batches(mixing):
    """How many of 200 batches are mixed."""
    return sum(
        int((mixing.apply((IMAGES, np.arange(16)), 16, generator(seed))[1].max(axis=1) < 1).any())
        for seed in range(200)
    )


@pytest.mark.parametrize("probability", [0.0, 0.3, 1.0])
def test_a_batch_is_mixed_with_the_probability_that_is_given(probability):
    assert binomtest(mixed_batches(Mixup(1.0, probability)), 200, probability).pvalue > 1e-4


def test_a_probability_of_none_cuts_nothing():
    assert mixed_batches(CutMix(1.0, probability=0.0)) == 0
    # Not all 200: a box may have no area.
    assert mixed_batches(CutMix(1.0)) > 150


@pytest.mark.parametrize("mixing", [Mixup(1.0), CutMix(1.0)])
def test_nothing_given_is_changed_and_columns_between_are_left_alone(mixing):
    images, middle = IMAGES.copy(), np.arange(16)
    images.flags.writeable = False
    mixed, same, _ = mixing.apply((images, middle, LABELS), 5, generator())
    assert same is middle
    assert not np.shares_memory(mixed, images)
    assert np.array_equal(images, IMAGES)


@pytest.mark.parametrize("mixing", [Mixup(1.0), CutMix(1.0)])
def test_labels_that_are_no_class_are_an_error(mixing):
    with pytest.raises(DataError, match="labels from 0 to 4"):
        mixing.apply((IMAGES, LABELS), 4, generator())


def test_cutmix_of_what_is_no_image_is_refused():
    with pytest.raises(DefinitionError, match="images"):
        CutMix(1.0).apply((np.zeros((4, 3), np.float32), np.arange(4)), 4, generator())


@pytest.mark.parametrize("make", [lambda: Mixup(0.0), lambda: CutMix(1.0, probability=2.0)])
def test_a_mixture_that_cannot_be_is_an_error(make):
    with pytest.raises(DefinitionError, match="alpha"):
        make()
