"""Images moved and mirrored while they are gathered: the same bits as the augmentations one after another."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from levelbench.training import input as inputs
from levelbench.training.augmentation import Cutout, Flip, RandomCrop, Resize, Translate
from levelbench.training.input import make_moved
from levelbench.training.pixels import example_seeds, words

RANDOM = np.random.default_rng(0)
N = 60
IMAGES = {
    "raw": RANDOM.integers(0, 256, (N, 3, 8, 8), np.uint8),
    "odd": RANDOM.integers(0, 256, (N, 1, 7, 5), np.uint8),
    "float32": RANDOM.standard_normal((N, 2, 6, 9)).astype(np.float32),
    "turned": RANDOM.integers(0, 256, (N, 8, 8, 3), np.uint8).transpose(0, 3, 1, 2),
}
CROP, REFLECTED, SHIFT, FLIP = RandomCrop(2), RandomCrop(3, "reflect"), Translate(0.4), Flip()
LISTS = [
    (CROP,),
    (REFLECTED,),
    (FLIP,),
    (CROP, FLIP),
    (FLIP, CROP),
    (REFLECTED, FLIP),
    (FLIP, REFLECTED),
    (SHIFT, FLIP),
]


def one_after_another(images, augment, indices, seeds):
    rows = images[indices]
    for position, each in enumerate(augment):
        rows = each.apply(rows, words(seeds, position))
    return rows


@pytest.mark.parametrize("kind", IMAGES)
@pytest.mark.parametrize("augment", LISTS, ids=str)
def test_moved_images_equal_the_augmentations_in_any_epoch(augment, kind):
    images = IMAGES[kind]
    found = make_moved(images, augment)
    assert found.augment == augment
    for epoch in range(4):
        indices = RANDOM.integers(0, N, 45)
        seeds = example_seeds(7, epoch, indices)
        rows = found.take(indices, seeds)
        assert rows.flags.writeable
        assert np.array_equal(rows, one_after_another(images, augment, indices, seeds))
        # Callers may modify the rows.
        rows[...] = 0


def test_an_image_is_stored_at_its_first_use():
    images = IMAGES["raw"].copy()
    found = make_moved(images, (CROP,))
    indices = np.arange(0, N, 2)
    seeds = example_seeds(0, 0, indices)
    first = found.take(indices, seeds)
    images[...] = 0
    assert np.array_equal(found.take(indices, seeds), first)
    assert not found.take(indices + 1, seeds).any()


@pytest.mark.parametrize(
    ("augment", "done"),
    [
        ((CROP, FLIP, Cutout(2)), 2),
        ((CROP, Cutout(2), FLIP), 1),
        ((CROP, SHIFT), 1),
        ((FLIP, FLIP, CROP), 1),
    ],
)
def test_at_most_one_move_and_one_flip_are_combined(augment, done):
    assert make_moved(IMAGES["raw"], augment).augment == augment[:done]


@pytest.mark.parametrize(
    ("share", "done"),
    [(1.0, 2), (0.99, 1), (0.5, 1), (0.49, 0)],
)
def test_the_memory_limit_is_respected(share, done, monkeypatch):
    both = 2 * N * 3 * 10 * 10
    monkeypatch.setattr(inputs, "_MOST_BYTES", share * both)
    found = make_moved(IMAGES["raw"], (CROP, FLIP))
    assert (len(found.augment) if found else 0) == done


class Decoded:
    """Rows made on demand."""

    shape, dtype = (N, 3, 8, 8), np.dtype(np.uint8)


def kept(tmp_path):
    """Memory-mapped images."""
    return np.memmap(tmp_path / "images", np.uint8, "w+", shape=(N, 3, 8, 8))


@pytest.mark.parametrize(
    "make",
    [lambda _: Decoded(), kept, lambda _: IMAGES["raw"].astype(np.float64), lambda _: IMAGES["raw"].reshape(N, -1)],
    ids=["decoded", "mapped", "float64", "vectors"],
)
def test_only_image_arrays_in_memory_are_stored(make, tmp_path):
    assert make_moved(make(tmp_path), (CROP, FLIP)) is None


@pytest.mark.parametrize("augment", [(), (Cutout(2), CROP), (Resize(4, 4), FLIP)])
def test_nothing_is_stored_unless_the_first_augmentation_moves_or_flips(augment):
    assert make_moved(IMAGES["raw"], augment) is None


def test_threads_get_the_same_bits_for_the_same_images():
    images = RANDOM.integers(0, 256, (400, 3, 16, 16), np.uint8)
    found = make_moved(images, (CROP, FLIP))
    jobs = [RANDOM.permutation(400) for _ in range(16)]
    seeds = [example_seeds(0, epoch, indices) for epoch, indices in enumerate(jobs)]
    with ThreadPoolExecutor(4) as pool:
        rows = list(pool.map(found.take, jobs, seeds))
    for made, indices, some in zip(rows, jobs, seeds, strict=True):
        assert np.array_equal(made, one_after_another(images, (CROP, FLIP), indices, some))
