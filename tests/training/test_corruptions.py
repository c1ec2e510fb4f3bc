"""Corruptions of images: against SciPy, closed forms and the constants of CIFAR-10-C."""

import colorsys

import numpy as np
import pytest

from levelbench.errors import DefinitionError, UnknownNameError
from levelbench.training.corruptions import CORRUPTIONS, SEVERITIES, corrupted, rotated


@pytest.fixture
def images():
    return np.random.default_rng(5).random((7, 3, 12, 10), np.float32)


@pytest.fixture
def grey():
    return np.full((2000, 1, 8, 8), 0.5, np.float32)


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_every_kind_keeps_shape_type_and_range_and_changes_the_images(images, name, severity):
    before = images.copy()
    found = corrupted(images, name, severity)
    assert (found.shape, found.dtype) == (images.shape, np.float32)
    assert found.min() >= 0
    assert found.max() <= 1
    assert not np.allclose(found, images)
    assert np.array_equal(images, before)


@pytest.mark.parametrize("name", ["noise", "shot", "impulse", "shift", "rotation"])
def test_random_kinds_repeat_with_their_seed_and_differ_with_another(images, name):
    assert np.array_equal(corrupted(images, name, 3, seed=1), corrupted(images, name, 3, seed=1))
    assert not np.array_equal(corrupted(images, name, 3, seed=1), corrupted(images, name, 3, seed=2))


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_a_higher_severity_is_further_from_the_image(name):
    # A smooth picture, on which blur and rotation grow with severity as well.
    y, x = np.mgrid[:28, :28] / 27
    smooth = np.tile((0.5 + 0.25 * np.sin(9 * y) * np.cos(7 * x)).astype(np.float32), (50, 1, 1, 1))
    apart = [float(np.square(corrupted(smooth, name, severity) - smooth).mean()) for severity in SEVERITIES]
    assert apart == sorted(apart)


def test_noise_has_the_stated_deviation(grey):
    for severity, deviation in zip(SEVERITIES, (0.04, 0.06, 0.08, 0.09, 0.10), strict=True):
        assert corrupted(grey, "noise", severity).std() == pytest.approx(deviation, rel=0.02)


def test_shot_noise_has_the_variance_of_poisson(grey):
    # Var(Poisson(x c) / c) = x / c.
    found = corrupted(grey, "shot", 3)
    assert found.mean() == pytest.approx(0.5, abs=0.002)
    assert found.var() == pytest.approx(0.5 / 100, rel=0.03)


def test_impulses_are_half_salt_and_half_pepper(grey):
    found = corrupted(grey, "impulse", 5)
    assert np.mean(found == 0) == pytest.approx(0.035, abs=0.002)
    assert np.mean(found == 1) == pytest.approx(0.035, abs=0.002)
    assert np.mean(found == 0.5) == pytest.approx(0.93, abs=0.003)


@pytest.mark.parametrize(("severity", "sigma"), list(zip(SEVERITIES, (0.4, 0.6, 0.7, 0.8, 1.0), strict=True)))
def test_blur_is_scipys_gaussian_filter(images, severity, sigma):
    ndimage = pytest.importorskip("scipy.ndimage")
    wanted = ndimage.gaussian_filter(images, (0, 0, sigma, sigma), mode="nearest")
    assert corrupted(images, "blur", severity) == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("degrees", [-30, -10, 0, 5, 20, 90])
def test_rotation_is_scipys(images, degrees):
    ndimage = pytest.importorskip("scipy.ndimage")
    square = images[:, :, :10]
    wanted = ndimage.rotate(square, degrees, axes=(3, 2), reshape=False, order=1, mode="grid-constant")
    assert rotated(square, degrees) == pytest.approx(wanted, abs=1e-4)


def test_rotations_turn_to_both_sides(images):
    found = corrupted(images, "rotation", 5)
    sides = [
        [np.allclose(one, rotated(two[None], by)[0], atol=1e-6) for by in (-30, 30)]
        for one, two in zip(found, images, strict=True)
    ]
    assert all(sum(each) == 1 for each in sides)
    assert {each[0] for each in sides} == {True, False}


def test_contrast_keeps_the_mean_of_each_channel_and_scales_what_is_left(images):
    found = corrupted(images, "contrast", 2)
    means = images.mean(axis=(2, 3), keepdims=True)
    assert found.mean(axis=(2, 3)) == pytest.approx(means[..., 0, 0], abs=1e-6)
    assert found - means == pytest.approx(0.5 * (images - means), abs=1e-6)


def test_brightness_adds_to_the_value_of_hsv(images):
    found = corrupted(images[:1], "brightness", 4)[0]
    for y, x in [(0, 0), (5, 7), (11, 9)]:
        hue, saturation, value = colorsys.rgb_to_hsv(*images[0, :, y, x].tolist())
        assert found[:, y, x] == pytest.approx(colorsys.hsv_to_rgb(hue, saturation, min(value + 0.2, 1)), abs=1e-5)


def test_brightness_of_black_is_grey():
    assert np.all(corrupted(np.zeros((1, 3, 4, 4), np.float32), "brightness", 2) == np.float32(0.1))


def test_severities_of_shifts_that_make_the_same_image_are_one():
    def distinct(side):
        return [each for each in SEVERITIES if shift.same_as(each, (5, 1, side, side)) == each]

    shift = CORRUPTIONS["shift"]
    assert (distinct(8), distinct(32), distinct(100)) == ([1], [1, 2, 3, 5], [1, 2, 3, 4, 5])
    assert shift.words(5, (5, 1, 8, 8)) == "shifted by 1 pixel (12.5 % of the side)"
    assert CORRUPTIONS["blur"].same_as(4, (5, 1, 8, 8)) == 4


def test_shifts_move_by_whole_pixels_and_bring_in_black():
    point = np.zeros((200, 1, 28, 28), np.float32)
    point[:, 0, 14, 14] = 1
    found = corrupted(point, "shift", 3)
    # 11 % of 28 pixels are 3.
    places = {tuple(each) for each in np.argwhere(found[:, 0])[:, 1:].tolist()}
    assert places == {(14 + y, 14 + x) for y in (-3, 0, 3) for x in (-3, 0, 3)} - {(14, 14)}
    assert found.sum() == 200


def test_more_images_change_nothing_for_the_first_ones():
    many = np.random.default_rng(0).random((1500, 1, 4, 4), np.float32)
    assert np.array_equal(corrupted(many, "noise", 1)[:1000], corrupted(many[:1000], "noise", 1))


def test_what_cannot_be_corrupted_is_refused(images):
    with pytest.raises(UnknownNameError, match="nois"):
        corrupted(images, "nois", 1)
    with pytest.raises(DefinitionError, match="severities are 1 to 5"):
        corrupted(images, "noise", 6)
    with pytest.raises(DefinitionError, match="from 0 to 1"):
        corrupted(images * 255, "noise", 1)
    with pytest.raises(DefinitionError, match="shape"):
        corrupted(images[0], "noise", 1)
