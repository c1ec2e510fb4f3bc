"""Batches of a training split: their content, their order, and what they do not depend on."""

from dataclasses import dataclass, replace
from threading import Event, Lock, current_thread
from threading import enumerate as threads
from weakref import ref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.errors import DataError, DefinitionError
from levelbench.frameworks.numpy.backend import NumpyBackend
from levelbench.operators.frameworks import open_framework
from levelbench.training import datasets
from levelbench.training import input as inputs
from levelbench.training.augmentation import (
    Augmentation,
    CutMix,
    Cutout,
    Flip,
    Mixing,
    Mixup,
    ProgressiveResize,
    RandomCrop,
)
from levelbench.training.datasets.base import Dataset, Normalisation, Split
from levelbench.training.input import (
    Held,
    HostLoader,
    Prefetch,
    ResidentLoader,
    examples_at_once,
    groups,
    in_batches,
    make_loader,
    share_held_out,
)
from levelbench.training.samplers import Sequential, Shuffled

NUMPY = open_framework("numpy")
RANDOM = np.random.default_rng(0)
N = 100
RAW = RANDOM.integers(0, 256, (N, 3, 6, 4), np.uint8)
LABELS = RANDOM.integers(0, 10, N)
CIFAR10 = Normalisation((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616))
AUGMENT = (RandomCrop(2), Flip(), Cutout(2))


class Decoded:
    """Rows made on demand that differ by seed in training."""

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
def test_an_epoch_can_start_and_end_anywhere(way):
    made = loader(**WAYS[way])
    whole = all_of(made, 2)
    assert same(all_of(made, 2, first=3), whole[3:])
    assert same(all_of(made, 2, first=2, last=5), whole[2:5])
    assert same(all_of(made, 2, first=7), [])


@pytest.mark.parametrize("way", WAYS)
def test_epochs_differ_and_are_reproducible(way):
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


def test_an_example_does_not_depend_on_its_batch():
    def by_example(batch):
        order = Shuffled(batch).epoch(Split.of(RAW, LABELS), 1, 0).order
        images = np.concatenate([images for images, _ in all_of(loader(batch=batch, augment=AUGMENT))])
        return images[np.argsort(order)]

    assert np.array_equal(by_example(16), by_example(7))


@pytest.mark.parametrize("framework", ["torch", "jax", "tensorflow"])
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


def test_one_constant_suffices_for_examples_that_are_not_images():
    pixels = RAW.reshape(N, -1)
    images, _ = next(loader(pixels, normalisation=Normalisation((0.5,), (0.25,), highest=16)).batches(0))
    rows = Shuffled(16).epoch(Split.of(RAW, LABELS), 1, 0).batch(0)
    np.testing.assert_allclose(images, (pixels[rows] / 16 - 0.5) / 0.25, rtol=1e-6)


def test_constants_of_other_channels_are_an_error():
    with pytest.raises(DataError, match="2 means"):
        loader(normalisation=Normalisation((0.5, 0.5), (0.25, 0.25)))


def test_float32_is_not_normalised():
    images = RAW.astype(np.float32)
    assert same(all_of(loader(images, normalisation=CIFAR10)), all_of(loader(images)))


@pytest.mark.parametrize("way", WAYS)
def test_the_dataset_is_not_modified(way):
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


def test_a_columns_own_rows_are_not_modified():
    column = Kept()
    all_of(loader(column, augment=AUGMENT))
    assert np.array_equal(column.rows, RAW)


def test_columns_come_in_order():
    split = Split((RAW, np.arange(N), np.arange(N) * 2, LABELS), targets=2)
    for how in ({}, {"augment": (Flip(),)}):
        for images, index, twice, labels in make_loader(
            NUMPY, dataset(split), split, Shuffled(16), seed=0, **how
        ).batches(0):
            assert images.shape[1:] == (3, 6, 4)
            assert np.array_equal(twice, 2 * index)
            assert np.array_equal(labels, LABELS[index])


def test_plain_arrays_stay_on_the_device_and_the_rest_is_done_on_the_host(tmp_path):
    kept = np.memmap(tmp_path / "images", np.uint8, "w+", shape=RAW.shape)
    kept[:] = RAW
    assert isinstance(loader(), ResidentLoader)
    for how in ({"augment": AUGMENT}, {"mix": Mixup(1.0)}, {"images": Decoded()}, {"images": kept}):
        assert isinstance(loader(**how), HostLoader)
    assert same(all_of(loader(kept)), all_of(loader()))
    assert same(all_of(loader(kept, augment=AUGMENT)), all_of(loader(augment=AUGMENT)))


def test_sizes_of_images_follow_the_progress_of_training():
    made = loader(augment=(ProgressiveResize(2, 6, step=2),))
    assert [next(made.batches(0, progress=share))[0].shape[2:] for share in (0.0, 0.5, 1.0)] == [(2, 2), (4, 4), (6, 6)]


def test_two_augmentations_of_a_kind_differ():
    once = all_of(loader(augment=(Flip(),)))
    twice = all_of(loader(augment=(Flip(), Flip())))
    # Flips with the same random numbers would cancel out.
    assert not same(twice, all_of(loader()))
    assert not same(twice, once)


@dataclass(frozen=True)
class Failing(Augmentation):
    """Fails in a worker."""

    def apply(self, images, seeds):
        if current_thread().name.startswith("levelbench-input"):
            raise DataError("image 7", "it is damaged", "get it again")
        return images.copy()


def test_an_error_in_a_worker_reaches_the_caller():
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


def test_a_closed_loader_can_be_used_again():
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
def test_impossible_settings_are_refused_before_the_first_batch(given, says):
    with pytest.raises(DefinitionError, match=says):
        loader(**given)


TILES = np.random.default_rng(3).integers(0, 256, (100, 3, 4, 4), dtype=np.uint8)
KINDS = np.arange(100) % 7
CONSTANTS = Normalisation((0.4, 0.5, 0.6), (0.2, 0.3, 0.4))


def grouped_loader(backend, sampler, **given):
    split = Split.of(TILES, KINDS)
    dataset = Dataset("made", split, split, split, 7, {}, "", "", "", synthetic=True, normalisation=CONSTANTS)
    return make_loader(backend, dataset, split, sampler, seed=1, **given)


@given(st.lists(st.integers(0, 9), min_size=1), st.integers(0, 30), st.data())
def test_groups_have_as_many_steps_as_fit_and_at_least_one(rows, examples, data):
    bounds = np.cumsum([0, *rows]).tolist()
    first = data.draw(st.integers(0, len(rows)))
    last = data.draw(st.integers(first, len(rows)))
    found = list(groups(bounds, first, last, examples))
    assert [step for group in found for step in range(*group)] == list(range(first, last))
    for start, stop in found:
        assert stop == start + 1 or bounds[stop] - bounds[start] <= examples
        assert stop == last or bounds[stop + 1] - bounds[start] > examples


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("way", [{}, {"augment": (Flip(),)}, {"augment": (Flip(),), "workers": 2}, {"mix": Mixup(1.0)}])
def test_bits_do_not_depend_on_the_group_size(framework, way, monkeypatch):
    if framework == "torch":
        pytest.importorskip("torch")
    backend, found = open_framework(framework), []
    # Single batches only, groups that end in the middle, and everything at once.
    for elements in (1, 36 * TILES[0].size, 10**6):
        monkeypatch.setattr(inputs, "_ELEMENTS", elements)
        made = grouped_loader(backend, Shuffled(8), **way)
        found.append([[backend.host(column) for column in batch] for batch in made.batches(2, 1, 12)])
        made.close()
    for others in found[1:]:
        assert [[column.tobytes() for column in batch] for batch in others] == [
            [column.tobytes() for column in batch] for batch in found[0]
        ]
    assert [len(images) for images, _ in found[0]] == [8] * 11


class Counting(NumpyBackend):
    """Records how many earlier groups are alive at each gather of images."""

    def __init__(self):
        super().__init__()
        self.alive, self._made = [], []

    def take(self, array, indices):
        """Unchanged."""
        if array.ndim == 4:
            self.alive.append(sum(each() is not None for each in self._made))
        return super().take(array, indices)

    def normalise(self, array, shift, scale):
        """Unchanged."""
        group = super().normalise(array, shift, scale)
        self._made.append(ref(group))
        return group


def test_a_group_is_one_gather_and_is_freed_before_the_next(monkeypatch):
    monkeypatch.setattr(inputs, "_ELEMENTS", 40 * TILES[0].size)
    backend = Counting()
    batches = grouped_loader(backend, Sequential(10)).batches(0)
    assert sum(map(len, batches)) == 10 * 2
    assert backend.alive == [0, 0, 0]


def test_batches_are_gathered_singly_if_slicing_is_expensive():
    pytest.importorskip("jax")
    assert examples_at_once(open_framework("jax"), TILES.shape, 8) == 0


@pytest.mark.parametrize(
    ("shape", "batch", "expected"),
    [
        # Four batches of 32 images of 3 x 32 x 32 fit in 2^19 elements, four of 64 do not.
        ((5, 3, 32, 32), 32, 170),
        ((5, 3, 32, 32), 64, 0),
        ((5, 0), 8, 2**19),
        ((5, 2**19 + 1), 1, 0),
    ],
)
def test_batches_are_grouped_where_four_of_them_fit(shape, batch, expected):
    assert examples_at_once(open_framework("numpy"), shape, batch) == expected


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax", "tensorflow"])
def test_a_group_is_split_into_its_batches(framework):
    if framework != "numpy":
        pytest.importorskip(framework)
    backend = open_framework(framework)
    columns = [backend.array(TILES[:6]), backend.array(KINDS[:6])]
    found = [[backend.host(column) for column in batch] for batch in in_batches(backend, columns, [3, 0, 2, 1])]
    for (images, labels), cut in zip(found, (slice(0, 3), slice(3, 3), slice(3, 5), slice(5, 6)), strict=True):
        assert np.array_equal(images, TILES[cut])
        assert np.array_equal(labels, KINDS[cut])


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_results_come_in_job_order(workers):
    prefetch = Prefetch(workers)
    assert list(prefetch.ordered(lambda at=at: at * at for at in range(20))) == [at * at for at in range(20)]
    prefetch.close()


def test_without_workers_jobs_run_on_demand():
    done = []
    results = Prefetch(0).ordered(lambda at=at: done.append(at) for at in range(5))
    next(results)
    assert done == [0]


@pytest.mark.parametrize("workers", [1, 2])
def test_at_most_one_job_per_worker_runs_ahead(workers):
    begun, lock, enough = [], Lock(), Event()

    def job(at):
        with lock:
            begun.append(at)
            if len(begun) > workers:
                enough.set()
        return at

    prefetch = Prefetch(workers)
    results = prefetch.ordered(lambda at=at: job(at) for at in range(50))
    assert next(results) == 0
    assert enough.wait(120)
    assert len(begun) <= workers + 1
    prefetch.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_replaces_the_jobs_result(workers):
    def job(at):
        if at == 2:
            raise ValueError("the third")
        return at

    prefetch = Prefetch(workers)
    results = prefetch.ordered(lambda at=at: job(at) for at in range(5))
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ValueError, match="the third"):
        next(results)
    prefetch.close()


ROWS = 25
GREYS = np.random.default_rng(0).integers(0, 256, (ROWS, 1, 3, 3), np.uint8)
HALF = Normalisation((0.5,), (0.5,))


class LazyGreys:
    """Rows made on demand; never with seeds here."""

    shape, dtype = GREYS.shape, GREYS.dtype

    def __len__(self):
        return ROWS

    def take(self, indices, seeds):
        assert seeds is None
        return GREYS[indices]


def held(images, framework="numpy", normalisation=None):
    split = Split.of(images, np.arange(ROWS))
    made = Dataset("made", split, split, split, ROWS, {}, "", "", "", normalisation=normalisation)
    return Held(open_framework(framework), made, split)


def kept(tmp_path):
    """The same, memory-mapped."""
    mapped = np.memmap(tmp_path / "images", np.uint8, "w+", shape=GREYS.shape)
    mapped[:] = GREYS
    return mapped


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax", "tensorflow"])
@pytest.mark.parametrize("kind", ["array", "decoded", "mapped"])
def test_each_pass_yields_all_examples_once_in_order(kind, framework, tmp_path):
    if framework != "numpy":
        pytest.importorskip(framework)
    images = {"array": lambda: GREYS, "decoded": LazyGreys, "mapped": lambda: kept(tmp_path)}[kind]()
    looked = held(images, framework)
    assert len(looked) == ROWS
    for _ in range(2):
        batches = [tuple(map(looked.backend.host, batch)) for batch in looked.batches(10)]
        assert [len(labels) for _, labels in batches] == [10, 10, 5]
        assert np.array_equal(np.concatenate([images for images, _ in batches]), GREYS)
        assert np.concatenate([labels for _, labels in batches]).tolist() == list(range(ROWS))


def test_raw_pixels_are_normalised():
    ((images, _),) = held(GREYS, normalisation=HALF).batches()
    np.testing.assert_allclose(images, (GREYS / 255 - 0.5) / 0.5, atol=1e-6)


class _Fed(Mixing):
    """Nine tenths of a validation example in each row, or the rows as they are."""

    def __init__(self, held=None):
        self.held = held

    def apply(self, columns, classes, generator):
        rows, labels = columns
        if self.held is not None:
            rows = 0.1 * rows + 0.9 * self.held[generator.integers(0, len(self.held), len(rows))]
        return rows, np.eye(classes, dtype=np.float32)[labels]


def test_validation_examples_that_a_mixture_disturbs_are_held_out_ones():
    digits = datasets.digits.load(None)
    held = np.asarray(digits.validation.inputs)
    assert share_held_out(digits, Shuffled(64), 0, (), _Fed(held)) > 0.9
    assert share_held_out(digits, Shuffled(64), 0, (), _Fed()) == 0


@pytest.mark.parametrize(("columns", "decimals"), [(1, 9), (3, 0)])
def test_training_examples_that_equal_validation_examples_by_chance_are_not_held_out_ones(columns, decimals):
    labels = np.arange(1500) % 3
    rows = np.random.default_rng(0).standard_normal((1500, columns)) + 2 * labels[:, None]
    made = datasets.from_arrays("made", lambda: (rows.round(decimals).astype(np.float32), labels)).load(None)
    assert all(share_held_out(made, Shuffled(64), seed, (), _Fed()) == 0 for seed in range(10))


def test_a_batch_of_all_training_examples_is_compared_with_held_out_ones():
    digits = datasets.digits.load(None)
    few = replace(digits, train=Split(tuple(column[:50] for column in digits.train.columns)))
    assert share_held_out(few, Shuffled(50), 0, (), _Fed()) == 0
