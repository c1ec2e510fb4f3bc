import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.distributed.packing import FlatLayout, pieces


@given(st.integers(0, 10_000), st.integers(1, 300))
def test_pieces_cover_the_stretch_and_differ_by_one_at_most_with_the_larger_ones_first(length, count):
    bounds = pieces(length, count)
    sizes = np.diff(bounds)
    assert (bounds[0], bounds[-1], len(sizes)) == (0, length, count)
    assert sizes.max() - sizes.min() <= 1
    assert (np.diff(sizes) <= 0).all()


@pytest.fixture
def arrays():
    return {"w": np.arange(6.0).reshape(2, 3), "scalar": np.array(7.0), "none": np.zeros((0, 4)), "b": np.ones(2)}


def test_what_is_packed_comes_out_again_in_its_shapes(arrays):
    layout = FlatLayout(arrays)
    flat = layout.pack(arrays)
    assert flat.shape == (layout.size,) == (9,)
    out = layout.unpack(flat)
    assert list(out) == list(arrays)
    for name, each in arrays.items():
        np.testing.assert_array_equal(out[name], each)


def test_unpacked_arrays_are_views_so_an_update_of_one_is_an_update_of_the_flat_array(arrays):
    layout = FlatLayout(arrays)
    flat = layout.pack(arrays)
    out = layout.unpack(flat)
    out["b"] += 1
    assert flat[-2:].tolist() == [2.0, 2.0]


def test_packing_copies(arrays):
    FlatLayout(arrays).pack(arrays)[:] = -1
    assert arrays["b"].tolist() == [1.0, 1.0]
