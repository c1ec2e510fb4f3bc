"""Images that move, against parts of padded ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from levelbench.errors import DefinitionError
from levelbench.training.augmentation.base import Bordered, move

SIDES = st.integers(1, 9)


@settings(max_examples=40)
@given(
    shape=st.tuples(st.integers(1, 12), st.integers(1, 3), SIDES, SIDES),
    most=st.integers(0, 11),
    dtype=st.sampled_from([np.uint8, np.float32]),
    reflect=st.booleans(),
    seed=st.integers(0, 99),
)
def test_a_moved_image_is_a_part_of_the_padded_one(shape, most, dtype, reflect, seed):
    n, _, height, width = shape
    most = min(most, min(height, width) - 1) if reflect else most
    random = np.random.default_rng(seed)
    images = random.integers(1, 256, shape).astype(dtype)
    down, right = random.integers(-most, most + 1, (2, n))
    padded = np.pad(images, ((0, 0), (0, 0), (most, most), (most, most)), "reflect" if reflect else "constant")
    expected = [
        image[:, most + y : most + y + height, most + x : most + x + width]
        for image, y, x in zip(padded, down, right, strict=True)
    ]
    move(images, down, right, most, reflect=reflect)
    assert np.array_equal(images, expected)


@pytest.mark.parametrize("reflect", [False, True])
def test_images_are_read_from_any_places_and_the_others_stay_empty(reflect):
    images = np.arange(1, 1 + 3 * 2 * 4 * 4, dtype=np.uint8).reshape(3, 2, 4, 4)
    room = Bordered(3, (2, 4, 4), np.uint8, 2, reflect=reflect)
    room.write(images)
    store = Bordered(6, (2, 4, 4), np.uint8, 2, reflect=reflect)
    store.copy(np.array([4, 0, 2]), room)
    still = np.zeros(6, np.int64)
    found = store.read(np.array([2, 4, 1, 0, 3, 5]), still, still)
    assert np.array_equal(found[[1, 3, 0]], images)
    assert not found[[2, 4, 5]].any()


@pytest.mark.parametrize(("reflect", "expected"), [(False, 10 * 3 * 36 * 36), (True, 10 * 3 * 40 * 40)])
def test_its_memory_is_that_of_the_images_and_their_borders(reflect, expected):
    assert Bordered.bytes_of(10, (3, 32, 32), np.uint8, 4, reflect=reflect) == expected
    assert Bordered.bytes_of(10, (3, 32, 32), np.float32, 4, reflect=reflect) == 4 * expected


def test_more_than_there_is_cannot_be_reflected():
    with pytest.raises(DefinitionError, match="reflecting 4 pixels of images of 9 x 4"):
        Bordered(1, (1, 9, 4), np.uint8, 4, reflect=True)
