"""Made canvases: what is on them, where from, and that the same bytes are made everywhere."""

import gzip
import hashlib

import numpy as np
import pytest

from levelbench.training import datasets
from levelbench.training.datasets.idx import FILES, encode_idx
from levelbench.training.datasets.places import DataFile
from levelbench.training.datasets.scenes import Scenes, compose, padded_boxes


@pytest.fixture(scope="module")
def made():
    """Canvases of rectangles: images (n, 64, 64), for each canvas its boxes, and the classes of boxes and pixels."""
    images = np.zeros((40, 28, 28), np.uint8)
    for at in range(40):
        images[at, 4 : 8 + at % 20, 2 : 10 + at % 16] = 100 + at
    canvases, masks, boxes, classes = compose(images, np.arange(40) % 10, 200, seed=3)
    return canvases[:, 0], [rows[kinds > 0] for rows, kinds in zip(boxes, classes, strict=True)], classes, masks


def test_canvases_have_0_to_5_objects_and_without_one_are_empty(made):
    assert {len(boxes) for boxes in made[1]} == set(range(6))
    assert [bool(image.any()) for image in made[0]] == [len(boxes) > 0 for boxes in made[1]]


def test_a_box_is_around_what_is_visible_of_its_object(made):
    alone = [(image, boxes[0]) for image, boxes in zip(*made[:2], strict=True) if len(boxes) == 1]
    assert len(alone) > 10
    for image, box in alone:
        rows, columns = np.nonzero(image)
        assert box.tolist() == [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]


def test_a_pixel_is_of_the_class_of_the_object_that_is_seen_there(made):
    images, _, classes, masks = made
    # An object of grey level 100 + at has class at % 10, or of the mean of four such pixels.
    for image, kinds, mask in zip(images, classes, masks, strict=True):
        assert set(np.unique(mask).tolist()) <= {0, *kinds.tolist()}
        assert ((mask > 0) == (image > 0)).all()
        whole = image >= 100
        assert (mask[whole] == (image[whole] - 100) % 10 + 1).all()


def test_objects_share_at_most_a_quarter_of_the_smaller_one(made):
    for boxes in made[1]:
        low, high = np.maximum(boxes[:, None, :2], boxes[:, :2]), np.minimum(boxes[:, None, 2:], boxes[:, 2:])
        shared, areas = (high - low).clip(0).prod(axis=2), (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
        np.fill_diagonal(shared, 0)
        assert (shared <= np.minimum(areas[:, None], areas) / 4).all()


def test_rows_of_few_objects_are_filled_up_with_zeros():
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    boxes, classes = padded_boxes(rows, np.array([1, 2, 3]), np.array([2, 0, 1]), 3)
    assert classes.tolist() == [[1, 2, 0], [0, 0, 0], [3, 0, 0]]
    assert boxes[0].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [0, 0, 0, 0]]


def test_objects_are_only_on_canvases_of_their_own_split(tmp_path):
    images = np.repeat(np.arange(60, 120, dtype=np.uint8), 784).reshape(60, 28, 28)
    labels = np.arange(60, dtype=np.uint8) % 10
    files = []
    for file, array in zip(FILES, (images, labels, np.full_like(images[:10], 200), labels[:10]), strict=True):
        (tmp_path / f"{file.name}.gz").write_bytes(gzip.compress(encode_idx(array)))
        files.append(DataFile(file.name, hashlib.sha256(encode_idx(array)).hexdigest(), ""))
    data = Scenes(files).load(tmp_path)
    shown = {name: set(np.unique(split.inputs).tolist()) - {0} for name, split in data.splits().items()}
    assert (len(shown["validation"]), shown["test"], data.synthetic) == (10, {200}, True)
    assert not shown["train"] & shown["validation"]


def test_the_canvases_of_fashion_mnist_are_these_bytes():
    if lacking := datasets.fashion_scenes.lacks():
        pytest.skip(lacking)
    split = datasets.fashion_scenes.load().validation
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(column).tobytes() for column in split.columns))
    assert digest.hexdigest()[:16] == "c6b4c9f8c726ed9d"


@pytest.mark.slow
def test_masks_are_of_the_same_canvases():
    if lacking := datasets.fashion_masks.lacks():
        pytest.skip(lacking)
    scenes, masks = (each.load().validation.columns for each in (datasets.fashion_scenes, datasets.fashion_masks))
    np.testing.assert_array_equal(masks[0], scenes[0])
    pairs = zip(masks[1], scenes[2], strict=True)
    assert all(set(np.unique(mask).tolist()) <= {0, *kinds.tolist()} for mask, kinds in pairs)
