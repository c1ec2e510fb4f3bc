"""Small batches are made several at once, and no bit depends on how many."""

from weakref import ref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.frameworks.numpy.backend import NumpyBackend
from levelbench.operators.frameworks import open_framework
from levelbench.training import input as inputs
from levelbench.training.augmentation import Flip, Mixup
from levelbench.training.datasets.base import Dataset, Normalisation, Split
from levelbench.training.input import examples_at_once, groups, in_batches, make_loader
from levelbench.training.samplers import Sequential, Shuffled

RAW = np.random.default_rng(3).integers(0, 256, (100, 3, 4, 4), dtype=np.uint8)
LABELS = np.arange(100) % 7
CONSTANTS = Normalisation((0.4, 0.5, 0.6), (0.2, 0.3, 0.4))


def loader(backend, sampler, **given):
    split = Split.of(RAW, LABELS)
    dataset = Dataset("made", split, split, split, 7, {}, "", "", "", synthetic=True, normalisation=CONSTANTS)
    return make_loader(backend, dataset, split, sampler, seed=1, **given)


@given(st.lists(st.integers(0, 9), min_size=1), st.integers(0, 30), st.data())
def test_groups_are_whole_steps_in_order_as_many_as_fit_and_one_at_least(rows, examples, data):
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
def test_no_bit_depends_on_how_many_are_made_at_once(framework, way, monkeypatch):
    if framework == "torch":
        pytest.importorskip("torch")
    backend, found = open_framework(framework), []
    # Nothing but single batches, groups that end in the middle, and everything at once.
    for elements in (1, 36 * RAW[0].size, 10**6):
        monkeypatch.setattr(inputs, "_ELEMENTS", elements)
        made = loader(backend, Shuffled(8), **way)
        found.append([[backend.host(column) for column in batch] for batch in made.batches(2, 1, 12)])
        made.close()
    for others in found[1:]:
        assert [[column.tobytes() for column in batch] for batch in others] == [
            [column.tobytes() for column in batch] for batch in found[0]
        ]
    assert [len(images) for images, _ in found[0]] == [8] * 11


class Counting(NumpyBackend):
    """Keeps how many of the groups made before are alive at each gather of images."""

    def __init__(self):
        super().__init__()
        self.alive, self._made = [], []

    def take(self, array, indices):
        """As ever."""
        if array.ndim == 4:
            self.alive.append(sum(each() is not None for each in self._made))
        return super().take(array, indices)

    def normalise(self, array, shift, scale):
        """As ever."""
        group = super().normalise(array, shift, scale)
        self._made.append(ref(group))
        return group


def test_a_group_is_one_gather_and_is_let_go_of_before_the_next_is_made(monkeypatch):
    monkeypatch.setattr(inputs, "_ELEMENTS", 40 * RAW[0].size)
    backend = Counting()
    batches = loader(backend, Sequential(10)).batches(0)
    assert sum(map(len, batches)) == 10 * 2
    assert backend.alive == [0, 0, 0]


def test_where_cutting_costs_more_than_a_gather_each_batch_is_made_for_itself():
    pytest.importorskip("jax")
    assert examples_at_once(open_framework("jax"), RAW.shape, 8) == 0


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


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
def test_a_group_is_cut_into_the_rows_of_its_batches(framework):
    if framework != "numpy":
        pytest.importorskip(framework)
    backend = open_framework(framework)
    columns = [backend.array(RAW[:6]), backend.array(LABELS[:6])]
    found = [[backend.host(column) for column in batch] for batch in in_batches(backend, columns, [3, 0, 2, 1])]
    for (images, labels), cut in zip(found, (slice(0, 3), slice(3, 3), slice(3, 5), slice(5, 6)), strict=True):
        assert np.array_equal(images, RAW[cut])
        assert np.array_equal(labels, LABELS[cut])
