"""Batches of a training split: which, in which order, and of what they do not depend."""

from dataclasses import dataclass
from threading import current_thread
from threading import enumerate as threads

import numpy as np
import pytest

from levelbench.errors import DataError, DefinitionError
from levelbench.operators.frameworks import open_framework
from levelbench.training import input as inputs
from levelbench.training.augmentation import Augmentation, CutMix, Cutout, Flip, Mixup, ProgressiveResize, RandomCrop
from levelbench.training.datasets.base import Dataset, Normalisation, Split
from levelbench.training.input import HostLoader, ResidentLoader, make_loader
from levelbench.training.samplers import Shuffled

NUMPY = open_framework("numpy")
RANDOM = np.random.default_rng(0)
N = 100
RAW = RANDOM.integers(0, 256, (N, 3, 6, 4), np.uint8)
LABELS = RANDOM.integers(0, 10, N)
CIFAR10 = Normalisation((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616))
AUGMENT = (RandomCrop(2), Flip(), Cutout(2))


class Decoded:
    """Rows that are made when they are asked for, and differ by seed in training."""

    shape, dtype = (N, 3, 6, 4), np.dtype(np.uint8)

    def __len__(self):
        return N

    def take(self, indices, seeds):
        return RAW[indices] if seeds is None else RAW[indices] ^ (seeds[:, None, None, None] % 256).astype(np.uint8)


def dataset(split, normalisation=None):
    return Dataset("made", split, split, split, 10, {}, "", "", "", normalisation=normalisation)


def loader(images=RAW, *, backend=NUMPY, normalisation=None, batch=16, seed=1, labels=LABELS, **given):
    split = Split.of(images, labels)
    return make_loader(backend, dataset(split, normalisation), split, Shuffled(batch), seed=seed, **given)


def all_of(loader, epoch=0, **given):
    return [tuple(np.asarray(column) for column in batch) for batch in loader.batches(epoch, **given)]


def same(one, other):
    return len(one) == len(other) and all(
        a.dtype == b.dtype and np.array_equal(a, b)
        for left, right in zip(one, other, strict=True)
        for a, b in zip(left, right, strict=True)
    )


WAYS = {
    "resident": {},
    "resident, normalised": {"normalisation": CIFAR10},
    "augmented": {"augment": AUGMENT},
    "augmented, normalised": {"augment": AUGMENT, "normalisation": CIFAR10},
    "decoded": {"images": Decoded()},
    "mixed up": {"mix": Mixup(1.0), "normalisation": CIFAR10},
    "augmented and cut": {"augment": AUGMENT, "mix": CutMix(1.0)},
}


def test_an_epoch_visits_every_example_once_in_the_samplers_order():
    batches = all_of(loader())
    expected = Shuffled(16).epoch(Split.of(RAW, LABELS), 1, 0)
    assert len(batches) == len(expected.sizes) == 7
    for step, (images, labels) in enumerate(batches):
        assert np.array_equal(images, RAW[expected.batch(step)])
        assert np.array_equal(labels, LABELS[expected.batch(step)])


@pytest.mark.parametrize("way", WAYS)
def test_sizes_are_those_of_the_batches(way):
    made = loader(**WAYS[way])
    assert made.steps == 7
    assert made.sizes(3).tolist() == [len(batch[0]) for batch in made.batches(3)] == [16] * 6 + [4]


@pytest.mark.parametrize("way", WAYS)
def test_an_epoch_can_be_begun_and_left_anywhere(way):
    made = loader(**WAYS[way])
    whole = all_of(made, 2)
    assert same(all_of(made, 2, first=3), whole[3:])
    assert same(all_of(made, 2, first=2, last=5), whole[2:5])
    assert same(all_of(made, 2, first=7), [])


@pytest.mark.parametrize("way", WAYS)
def test_epochs_differ_and_come_again_the_same(way):
    made = loader(**WAYS[way])
    first, second = all_of(made, 0), all_of(made, 1)
    assert not same(first, second)
    assert same(all_of(made, 0), first)
    assert same(all_of(loader(**WAYS[way]), 1), second)
    assert not same(all_of(loader(seed=2, **WAYS[way]), 0), first)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("block", [1, 40, 4096])
@pytest.mark.parametrize("way", ["augmented, normalised", "decoded", "augmented and cut"])
def test_neither_workers_nor_blocks_change_a_bit(way, block, workers, monkeypatch):
    expected = all_of(loader(**WAYS[way]))
    monkeypatch.setattr(inputs, "_EXAMPLES", block)
    made = loader(**WAYS[way], workers=workers)
    assert same(all_of(made), expected)
    made.close()


def test_the_batch_does_not_change_what_becomes_of_an_example():
    def by_example(batch):
        order = Shuffled(batch).epoch(Split.of(RAW, LABELS), 1, 0).order
        images = np.concatenate([images for images, _ in all_of(loader(batch=batch, augment=AUGMENT))])
        return images[np.argsort(order)]

    assert np.array_equal(by_example(16), by_example(7))


@pytest.mark.parametrize("framework", ["torch", "jax"])
@pytest.mark.parametrize("way", WAYS)
def test_every_framework_sees_the_same_bits(way, framework):
    pytest.importorskip(framework)
    assert same(all_of(loader(**WAYS[way], backend=open_framework(framework))), all_of(loader(**WAYS[way])))


def test_raw_pixels_are_normalised_by_channel():
    expected = (RAW / 255 - np.reshape(CIFAR10.mean, (3, 1, 1))) / np.reshape(CIFAR10.std, (3, 1, 1))
    for step, (images, _) in enumerate(loader(normalisation=CIFAR10).batches(0)):
        assert images.dtype == np.float32
        rows = Shuffled(16).epoch(Split.of(RAW, LABELS), 1, 0).batch(step)
        np.testing.assert_allclose(images, expected[rows], rtol=1e-5, atol=1e-6)


def test_one_constant_does_for_examples_that_are_no_images():
    pixels = RAW.reshape(N, -1)
    images, _ = next(loader(pixels, normalisation=Normalisation((0.5,), (0.25,), highest=16)).batches(0))
    rows = Shuffled(16).epoch(Split.of(RAW, LABELS), 1, 0).batch(0)
    np.testing.assert_allclose(images, (pixels[rows] / 16 - 0.5) / 0.25, rtol=1e-6)


def test_constants_of_other_channels_are_an_error():
    with pytest.raises(DataError, match="2 means"):
        loader(normalisation=Normalisation((0.5, 0.5), (0.25, 0.25)))


def test_what_is_float32_is_taken_as_it_is():
    images = RAW.astype(np.float32)
    assert same(all_of(loader(images, normalisation=CIFAR10)), all_of(loader(images)))


@pytest.mark.parametrize("way", WAYS)
def test_the_dataset_is_left_as_it_was(way):
    images, labels = WAYS[way].get("images", RAW), LABELS.copy()
    before = RAW.copy()
    for columns in loader(**{"images": images, **WAYS[way]}, labels=labels).batches(0):
        for column in columns:
            column *= 0
    assert np.array_equal(RAW, before)
    assert np.array_equal(labels, LABELS)


class Kept(Decoded):
    """Rows that are the column's own memory."""

    def __init__(self):
        self.rows = RAW.copy()

    def take(self, indices, seeds):
        return self.rows[: len(indices)]


def test_rows_that_a_column_keeps_are_left_as_they_were():
    column = Kept()
    all_of(loader(column, augment=AUGMENT))
    assert np.array_equal(column.rows, RAW)


def test_all_columns_come_in_their_order():
    split = Split((RAW, np.arange(N), np.arange(N) * 2, LABELS), targets=2)
    for given in ({}, {"augment": (Flip(),)}):
        for images, index, twice, labels in make_loader(
            NUMPY, dataset(split), split, Shuffled(16), seed=0, **given
        ).batches(0):
            assert images.shape[1:] == (3, 6, 4)
            assert np.array_equal(twice, 2 * index)
            assert np.array_equal(labels, LABELS[index])


def test_plain_arrays_stay_on_the_device_and_the_rest_is_work_for_the_host(tmp_path):
    kept = np.memmap(tmp_path / "images", np.uint8, "w+", shape=RAW.shape)
    kept[:] = RAW
    assert isinstance(loader(), ResidentLoader)
    for given in ({"augment": AUGMENT}, {"mix": Mixup(1.0)}, {"images": Decoded()}, {"images": kept}):
        assert isinstance(loader(**given), HostLoader)
    assert same(all_of(loader(kept)), all_of(loader()))
    assert same(all_of(loader(kept, augment=AUGMENT)), all_of(loader(augment=AUGMENT)))


def test_sizes_of_images_follow_the_progress_of_training():
    made = loader(augment=(ProgressiveResize(2, 6, step=2),))
    assert [next(made.batches(0, progress=share))[0].shape[2:] for share in (0.0, 0.5, 1.0)] == [(2, 2), (4, 4), (6, 6)]


def test_two_of_a_kind_do_not_do_the_same():
    once = all_of(loader(augment=(Flip(),)))
    twice = all_of(loader(augment=(Flip(), Flip())))
    # Flips by the same draws would take each other back.
    assert not same(twice, all_of(loader()))
    assert not same(twice, once)


@dataclass(frozen=True)
class Failing(Augmentation):
    """Fails wherever a worker calls it."""

    def apply(self, images, seeds):
        if current_thread().name.startswith("levelbench-input"):
            raise DataError("image 7", "it is damaged", "get it again")
        return images.copy()


def test_an_error_of_a_worker_reaches_whoever_asks_for_batches():
    made = loader(augment=(Failing(),), workers=2)
    with pytest.raises(DataError, match="image 7"):
        next(made.batches(0))
    made.close()


def of_ours():
    return [each for each in threads() if each.name.startswith("levelbench-input")]


def test_closing_ends_the_threads_in_the_middle_of_an_epoch():
    made = loader(augment=AUGMENT, workers=2, batch=1)
    batches = made.batches(0)
    next(batches)
    assert of_ours()
    made.close()
    assert not of_ours()


def test_a_loader_that_was_closed_can_be_used_again():
    made = loader(augment=AUGMENT, workers=2)
    expected = all_of(made)
    made.close()
    assert same(all_of(made), expected)
    made.close()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"images": RAW.reshape(N, -1), "augment": AUGMENT}, "images"),
        ({"labels": RANDOM.standard_normal(N).astype(np.float32), "mix": Mixup(1.0)}, "classes"),
    ],
)
def test_what_cannot_be_is_said_before_the_first_batch(given, says):
    with pytest.raises(DefinitionError, match=says):
        loader(**given)
