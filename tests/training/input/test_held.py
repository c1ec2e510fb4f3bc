"""A split that is looked at: all of it, in order, as it is."""

import numpy as np
import pytest

from levelbench.operators.frameworks import open_framework
from levelbench.training.datasets.base import Dataset, Normalisation, Split
from levelbench.training.input import Held

N = 25
RAW = np.random.default_rng(0).integers(0, 256, (N, 1, 3, 3), np.uint8)
HALF = Normalisation((0.5,), (0.5,))


class Decoded:
    """Rows that are made when they are asked for; never with seeds here."""

    shape, dtype = RAW.shape, RAW.dtype

    def __len__(self):
        return N

    def take(self, indices, seeds):
        assert seeds is None
        return RAW[indices]


def held(images, framework="numpy", normalisation=None):
    split = Split.of(images, np.arange(N))
    made = Dataset("made", split, split, split, N, {}, "", "", "", normalisation=normalisation)
    return Held(open_framework(framework), made, split)


def kept(tmp_path):
    """The same in a file."""
    mapped = np.memmap(tmp_path / "images", np.uint8, "w+", shape=RAW.shape)
    mapped[:] = RAW
    return mapped


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("kind", ["array", "decoded", "mapped"])
def test_all_examples_come_once_in_order_and_again_at_the_next_look(kind, framework, tmp_path):
    if framework != "numpy":
        pytest.importorskip(framework)
    images = {"array": lambda: RAW, "decoded": Decoded, "mapped": lambda: kept(tmp_path)}[kind]()
    looked = held(images, framework)
    assert len(looked) == N
    for _ in range(2):
        batches = [tuple(map(looked.backend.host, batch)) for batch in looked.batches(10)]
        assert [len(labels) for _, labels in batches] == [10, 10, 5]
        assert np.array_equal(np.concatenate([images for images, _ in batches]), RAW)
        assert np.concatenate([labels for _, labels in batches]).tolist() == list(range(N))


def test_raw_pixels_are_normalised():
    ((images, _),) = held(RAW, normalisation=HALF).batches()
    np.testing.assert_allclose(images, (RAW / 255 - 0.5) / 0.5, atol=1e-6)
