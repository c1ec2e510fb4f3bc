"""The augmentations, alone and in blocks."""

import numpy as np
import pytest
from scipy.stats import binomtest, kstest

from levelbench.errors import DataError, DefinitionError
from levelbench.training.augmentation import (
    ColourJitter,
    CutMix,
    Cutout,
    Flip,
    Mixup,
    ProgressiveResize,
    RandomCrop,
    RandomResizedCrop,
    Resize,
    Translate,
    random,
    uniform,
)
from levelbench.training.pixels import example_seeds

RANDOM = np.random.default_rng(0)
SEEDS = example_seeds(1, 0, np.arange(40))
RAW = {
    "8 x 8": RANDOM.integers(0, 256, (40, 3, 8, 8), np.uint8),
    "6 x 12": RANDOM.integers(0, 256, (40, 3, 6, 12), np.uint8),
    "7 x 5": RANDOM.integers(0, 256, (40, 3, 7, 5), np.uint8),
    "one channel": RANDOM.integers(0, 256, (40, 1, 8, 8), np.uint8),
    "float32": RANDOM.standard_normal((40, 3, 7, 5)).astype(np.float32),
}
ALL = {
    "crop": RandomCrop(2),
    "crop, reflected": RandomCrop(3, "reflect"),
    "translate": Translate(0.3),
    "flip": Flip(),
    "cutout": Cutout(3),
    "cutout, filled": Cutout(4, fill=125),
    "resize": Resize(5, 11),
    "random resized crop": RandomResizedCrop(6),
    "progressive": ProgressiveResize(4, 8),
}
EVERY = [(a, i) for a in ALL for i in RAW]


@pytest.mark.parametrize(("name", "kind"), EVERY)
def test_an_image_gets_the_same_bits_in_any_batch(name, kind):
    images = RAW[kind]
    together = ALL[name].apply(images, SEEDS)
    order = RANDOM.permutation(40)
    assert np.array_equal(ALL[name].apply(images[order], SEEDS[order]), together[order])
    assert np.array_equal(ALL[name].apply(images[7:8], SEEDS[7:8]), together[7:8])


@pytest.mark.parametrize(("name", "kind"), EVERY)
def test_inputs_are_unchanged_and_share_no_memory_with_the_result(name, kind):
    images = RAW[kind].copy()
    images.flags.writeable = False
    made = ALL[name].apply(images, SEEDS)
    assert made.dtype == images.dtype
    assert made.flags.writeable
    assert not np.shares_memory(made, images)
    assert np.array_equal(images, RAW[kind])


@pytest.mark.parametrize("name", ALL)
def test_the_memory_layout_of_images_does_not_matter(name):
    turned = np.ascontiguousarray(RAW["8 x 8"].transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    assert np.array_equal(ALL[name].apply(turned, SEEDS), ALL[name].apply(RAW["8 x 8"], SEEDS))


@pytest.mark.parametrize("name", ALL)
def test_an_empty_batch_stays_empty(name):
    assert len(ALL[name].apply(RAW["8 x 8"][:0], SEEDS[:0])) == 0


@pytest.mark.parametrize("name", ALL)
def test_data_that_is_not_images_is_refused(name):
    with pytest.raises(DefinitionError, match="images"):
        ALL[name].apply(np.zeros((40, 64), np.float32), SEEDS)


@pytest.mark.parametrize("kind", RAW)
@pytest.mark.parametrize(("mode", "numpys"), [("zero", "constant"), ("reflect", "reflect")])
def test_a_crop_is_part_of_the_padded_image(kind, mode, numpys):
    images = RAW[kind]
    h, w = images.shape[2:]
    padded = np.pad(images, ((0, 0), (0, 0), (2, 2), (2, 2)), mode=numpys)
    found = RandomCrop(2, mode).apply(images, SEEDS)
    for image, around in zip(found, padded, strict=True):
        assert any(
            np.array_equal(image, around[:, top : top + h, left : left + w]) for top in range(5) for left in range(5)
        )


def test_all_positions_of_a_crop_are_equally_likely():
    n = 9 * 400
    point = np.zeros((n, 1, 5, 5), np.uint8)
    point[:, :, 2, 2] = 1
    found = RandomCrop(1).apply(point, example_seeds(0, 0, np.arange(n))).sum(axis=(0, 1))
    assert found.sum() == n
    for count in found[1:4, 1:4].ravel():
        assert binomtest(int(count), n, 1 / 9).pvalue > 1e-5


def test_a_translation_shifts_within_its_limit_and_fills_with_zeros():
    ones = np.ones((400, 1, 10, 10), np.uint8)
    found = Translate(0.2).apply(ones, example_seeds(0, 0, np.arange(400)))
    assert set(found.sum(axis=(1, 2, 3)).tolist()) == {a * b for a in (8, 9, 10) for b in (8, 9, 10)}


@pytest.mark.parametrize("kind", RAW)
def test_a_flip_mirrors_left_and_right(kind):
    assert np.array_equal(Flip(1.0).apply(RAW[kind], SEEDS), RAW[kind][..., ::-1])
    assert np.array_equal(Flip(0.0).apply(RAW[kind], SEEDS), RAW[kind])


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_images_are_flipped_with_the_given_probability(probability):
    n = 4000
    images = np.zeros((n, 1, 1, 2), np.uint8)
    images[..., 1] = 1
    flipped = int(Flip(probability).apply(images, example_seeds(0, 0, np.arange(n)))[..., 0].sum())
    assert binomtest(flipped, n, probability).pvalue > 1e-4


@pytest.mark.parametrize("kind", RAW)
@pytest.mark.parametrize("fill", [0, 9])
@pytest.mark.parametrize("size", [1, 3, 4, 40])
def test_cutout_covers_a_square_around_a_point_of_the_image(kind, fill, size):
    images, expected = RAW[kind], RAW[kind].copy()
    h, w = images.shape[2:]
    for image, y, x in zip(expected, uniform(SEEDS, 4, 0, h - 1), uniform(SEEDS, 5, 0, w - 1), strict=True):
        top, left = y - size // 2, x - size // 2
        image[:, max(top, 0) : top + size, max(left, 0) : left + size] = fill
    assert np.array_equal(Cutout(size, fill).apply(images, SEEDS), expected)


def test_cutout_covers_nan():
    images = np.full((1, 1, 4, 4), np.nan, np.float32)
    assert not np.isnan(Cutout(8).apply(images, SEEDS[:1])).any()


@pytest.mark.parametrize("size", [(4, 4), (16, 16), (5, 13), (8, 8), (1, 1), (3, 20)])
@pytest.mark.parametrize("antialias", [True, False])
def test_bilinear_resizing_equals_pytorchs(size, antialias):
    torch = pytest.importorskip("torch")
    images = RANDOM.standard_normal((3, 2, 8, 11)).astype(np.float32)
    expected = torch.nn.functional.interpolate(
        torch.from_numpy(images), size, mode="bilinear", align_corners=False, antialias=antialias
    )
    found = Resize(*size, antialias=antialias).apply(images, SEEDS[:3])
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-6)


def test_raw_pixels_are_rounded_to_the_nearest():
    images = np.array([[[[0, 255]]]], np.uint8)
    assert Resize(1, 4).apply(images, SEEDS[:1]).tolist() == [[[[0, 64, 191, 255]]]]


def test_a_progressive_size_grows_with_training():
    grows = ProgressiveResize(16, 32, begins=0.25, ends=0.75)
    assert [grows.size(share) for share in (0, 0.25, 0.3, 0.5, 0.7, 0.75, 1)] == [16, 16, 16, 24, 32, 32, 32]
    assert grows.at(0.5).apply(RAW["8 x 8"], SEEDS).shape == (40, 3, 24, 24)


def test_a_random_resized_crop_is_an_interpolated_part_of_the_image():
    torch = pytest.importorskip("torch")
    images = RANDOM.standard_normal((40, 2, 12, 17)).astype(np.float32)
    crop = RandomResizedCrop(6)
    for image, (top, left, tall, wide), found in zip(
        images, crop.boxes(12, 17, SEEDS), crop.apply(images, SEEDS), strict=True
    ):
        part = torch.from_numpy(image[None, :, top : top + tall, left : left + wide])
        expected = torch.nn.functional.interpolate(part, (6, 6), mode="bilinear", align_corners=False)[0]
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5)


def test_random_resized_crops_have_the_requested_areas_and_ratios():
    boxes = RandomResizedCrop(6, scale=(0.2, 0.5), ratio=(0.5, 2.0)).boxes(
        200, 300, example_seeds(0, 0, np.arange(500))
    )
    top, left, tall, wide = boxes.T
    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (top + tall <= 200).all()
    assert (left + wide <= 300).all()
    assert ((tall * wide / 60_000 > 0.19) & (tall * wide / 60_000 < 0.51)).all()
    assert ((wide / tall > 0.49) & (wide / tall < 2.05)).all()
    assert len(np.unique(boxes, axis=0)) == 500


def test_if_no_part_fits_the_largest_central_one_is_used():
    boxes = RandomResizedCrop(6, scale=(1.0, 1.0), ratio=(1.0, 1.0)).boxes(10, 20, SEEDS[:2])
    assert boxes.tolist() == [[0, 5, 10, 10]] * 2


COLOURS = np.array([[[[10, 200]], [[20, 100]], [[30, 0]]]], np.uint8)


def factor(salt, spread):
    return 1 - spread + 2 * spread * random(SEEDS[:1], salt)[0]


def test_brightness_multiplies():
    expected = np.rint(np.clip(COLOURS * factor(8, 0.4), 0, 255))
    assert np.array_equal(ColourJitter(brightness=0.4).apply(COLOURS, SEEDS[:1]), expected)


def test_contrast_blends_with_mean_grey_and_saturation_with_grey_pixels():
    grey = np.tensordot([0.299, 0.587, 0.114], COLOURS[0].astype(float), 1)[None, None]
    for salt, jitter, other in (
        (9, ColourJitter(contrast=0.5), grey.mean()),
        (10, ColourJitter(saturation=0.5), grey),
    ):
        expected = np.clip(COLOURS * factor(salt, 0.5) + other * (1 - factor(salt, 0.5)), 0, 255)
        assert np.abs(jitter.apply(COLOURS, SEEDS[:1]) - expected).max() <= 0.51


def test_colours_get_the_same_bits_in_any_batch():
    jitter = ColourJitter(0.4, 0.4, 0.4)
    together = jitter.apply(RAW["7 x 5"], SEEDS)
    assert np.array_equal(jitter.apply(RAW["7 x 5"][3:9], SEEDS[3:9]), together[3:9])
    assert not np.array_equal(together, RAW["7 x 5"])


def test_colours_of_normalised_images_are_refused():
    with pytest.raises(DefinitionError, match="raw"):
        ColourJitter(0.1).apply(RAW["float32"], SEEDS)


@pytest.mark.parametrize(
    "make",
    [
        lambda: RandomCrop(0),
        lambda: RandomCrop(4, "wrap"),
        lambda: Flip(1.5),
        lambda: Cutout(0),
        lambda: Translate(0.0),
        lambda: Resize(0, 4),
        lambda: ProgressiveResize(4, 8, begins=0.5, ends=0.5),
        lambda: RandomResizedCrop(4, scale=(0.0, 1.0)),
        lambda: ColourJitter(brightness=2.0),
        lambda: RandomCrop(8, "reflect").apply(RAW["8 x 8"], SEEDS),
    ],
)
def test_an_impossible_augmentation_is_an_error_at_creation(make):
    with pytest.raises(DefinitionError, match="Choose"):
        make()


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


def test_cutmix_weights_labels_by_the_visible_area():
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
def test_batches_are_mixed_with_the_given_probability(probability):
    assert binomtest(mixed_batches(Mixup(1.0, probability)), 200, probability).pvalue > 1e-4


def test_a_probability_of_zero_mixes_nothing():
    assert mixed_batches(CutMix(1.0, probability=0.0)) == 0
    # Not all 200: a box may have no area.
    assert mixed_batches(CutMix(1.0)) > 150


@pytest.mark.parametrize("mixing", [Mixup(1.0), CutMix(1.0)])
def test_inputs_are_unchanged_and_middle_columns_are_kept(mixing):
    images, middle = IMAGES.copy(), np.arange(16)
    images.flags.writeable = False
    mixed, same, _ = mixing.apply((images, middle, LABELS), 5, generator())
    assert same is middle
    assert not np.shares_memory(mixed, images)
    assert np.array_equal(images, IMAGES)


@pytest.mark.parametrize("mixing", [Mixup(1.0), CutMix(1.0)])
def test_labels_outside_the_classes_are_an_error(mixing):
    with pytest.raises(DataError, match="labels from 0 to 4"):
        mixing.apply((IMAGES, LABELS), 4, generator())


def test_cutmix_of_data_that_is_not_images_is_refused():
    with pytest.raises(DefinitionError, match="images"):
        CutMix(1.0).apply((np.zeros((4, 3), np.float32), np.arange(4)), 4, generator())


@pytest.mark.parametrize("make", [lambda: Mixup(0.0), lambda: CutMix(1.0, probability=2.0)])
def test_an_impossible_mixture_is_an_error(make):
    with pytest.raises(DefinitionError, match="alpha"):
        make()
