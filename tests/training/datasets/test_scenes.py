"""Made canvases: what is on them, where from, and that the same bytes are made everywhere."""

import gzip
import hashlib

import numpy as np
import pytest

from levelbench.training import datasets
from levelbench.training.datasets.idx import FILES, encode_idx
from levelbench.training.datasets.places import DataFile
from levelbench.training.datasets.scenes import MOST, Scenes, compose, padded_boxes


@pytest.fixture(scope="module")
def made():
    """Canvases of rectangles, each of a brightness of its own."""
    images, labels = np.zeros((40, 28, 28), np.uint8), np.arange(40) % 10
    for at in range(40):
        images[at, 4 : 8 + at % 20, 2 : 10 + at % 16] = 100 + at
    return compose(images, labels, 200, seed=3)


def objects(canvases):
    """(canvas, box, class) of each object."""
    places = np.repeat(np.arange(len(canvases.counts)), canvases.counts)
    return list(zip(places.tolist(), canvases.boxes.astype(int).tolist(), canvases.classes.tolist(), strict=True))


def test_canvases_have_0_to_5_objects_and_some_are_empty(made):
    assert set(made.counts.tolist()) == set(range(MOST + 1))
    assert made.boxes.shape == (made.counts.sum(), 4)


def test_an_empty_canvas_has_no_pixel_and_no_mask(made):
    empty = made.counts == 0
    assert not made.images[empty].any()
    assert not made.masks[empty].any()


def test_a_box_is_around_what_is_visible_of_its_object(made):
    alone = [each for each in objects(made) if made.counts[each[0]] == 1]
    assert alone
    for canvas, (left, top, right, bottom), kind in alone:
        rows, columns = np.nonzero(made.masks[canvas])
        assert (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1) == (left, top, right, bottom)
        assert set(made.masks[canvas][rows, columns].tolist()) == {kind}
        assert np.array_equal(made.images[canvas] > 0, made.masks[canvas] > 0)


def test_objects_hide_at_most_a_quarter_of_the_smaller_one(made):
    for canvas in np.flatnonzero(made.counts > 1).tolist():
        boxes = np.array([box for place, box, _ in objects(made) if place == canvas])
        low, high = np.maximum(boxes[:, None, :2], boxes[:, :2]), np.minimum(boxes[:, None, 2:], boxes[:, 2:])
        shared, areas = (high - low).clip(0).prod(axis=2), (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
        np.fill_diagonal(shared, 0)
        assert (shared <= np.minimum(areas[:, None], areas) / 4).all()


def test_the_same_seed_gives_the_same_canvases_and_another_one_others(made):
    images = np.full((3, 28, 28), 90, np.uint8)
    first, again, other = (compose(images, np.arange(3), 20, seed).images for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_rows_of_few_objects_are_filled_up_with_zeros():
    boxes, classes = padded_boxes(
        np.arange(12, dtype=np.float32).reshape(3, 4), np.array([1, 2, 3]), np.array([2, 0, 1]), 3
    )
    assert classes.tolist() == [[1, 2, 0], [0, 0, 0], [3, 0, 0]]
    assert boxes[0, 1].tolist() == [4, 5, 6, 7]
    assert not boxes[1].any()


def test_objects_are_only_on_canvases_of_their_own_split(tmp_path):
    images = np.broadcast_to(np.arange(60, dtype=np.uint8)[:, None, None] + 60, (60, 28, 28))
    arrays = (
        images,
        np.arange(60, dtype=np.uint8) % 10,
        np.full((10, 28, 28), 200, np.uint8),
        np.arange(10, dtype=np.uint8),
    )
    files = []
    for file, array in zip(FILES, arrays, strict=True):
        content = encode_idx(np.ascontiguousarray(array))
        (tmp_path / f"{file.name}.gz").write_bytes(gzip.compress(content))
        files.append(DataFile(file.name, hashlib.sha256(content).hexdigest(), ""))
    data = Scenes(tuple(files)).load(tmp_path)
    shown = {name: set(np.unique(split.inputs).tolist()) - {0} for name, split in data.splits().items()}
    assert shown["test"] == {200}
    assert len(shown["validation"]) == 10
    assert not shown["train"] & shown["validation"]
    assert data.synthetic


def test_the_canvases_of_fashion_mnist_are_these_bytes():
    if lacking := datasets.fashion_scenes.lacks():
        pytest.skip(lacking)
    split = datasets.fashion_scenes.load().validation
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(column).tobytes() for column in split.columns))
    assert digest.hexdigest()[:16] == "c6b4c9f8c726ed9d"
