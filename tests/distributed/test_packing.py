"""Cutting arrays into pieces, and packing them into flat ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.distributed.packing import FlatLayout, Packed, Packer, pieces
from levelbench.operators.frameworks import load_framework


@given(st.integers(0, 10_000), st.integers(1, 300))
def test_pieces_cover_everything_and_differ_by_at_most_one(length, count):
    bounds = pieces(length, count)
    sizes = np.diff(bounds)
    assert (bounds[0], bounds[-1], len(sizes)) == (0, length, count)
    assert sizes.max() - sizes.min() <= 1
    assert (np.diff(sizes) <= 0).all()


@pytest.fixture
def arrays():
    return {"w": np.arange(6.0).reshape(2, 3), "scalar": np.array(7.0), "none": np.zeros((0, 4)), "b": np.ones(2)}


def test_packed_arrays_unpack_to_their_shapes(arrays):
    layout = FlatLayout(arrays)
    flat = layout.pack(arrays)
    assert flat.shape == (layout.size,) == (9,)
    out = layout.unpack(flat)
    assert list(out) == list(arrays)
    for name, each in arrays.items():
        np.testing.assert_array_equal(out[name], each)


def test_unpacked_arrays_are_views_of_the_flat_array(arrays):
    layout = FlatLayout(arrays)
    flat = layout.pack(arrays)
    out = layout.unpack(flat)
    out["b"] += 1
    assert flat[-2:].tolist() == [2.0, 2.0]


def test_packing_copies(arrays):
    FlatLayout(arrays).pack(arrays)[:] = -1
    assert arrays["b"].tolist() == [1.0, 1.0]


ARRAYS = {
    "matrix": np.arange(6, dtype=np.float32).reshape(2, 3),
    "count": np.array(3, np.int32),
    "scalar": np.array(7.0, np.float32),
    "empty": np.zeros((0, 2), np.float32),
}


@pytest.fixture(params=["numpy", "torch", "jax"])
def backend(request):
    pytest.importorskip(request.param)
    return load_framework(request.param).open()


def native(backend):
    return {name: backend.array(array.copy()) for name, array in ARRAYS.items()}


def test_there_is_one_flat_array_per_dtype(backend):
    flats = Packed(backend, native(backend)).pack(native(backend))
    assert [backend.host(flat).tolist() for flat in flats] == [[0, 1, 2, 3, 4, 5, 7], [3]]
    assert [backend.host(flat).dtype for flat in flats] == [np.float32, np.int32]


def test_arrays_round_trip(backend):
    packed = Packed(backend, native(backend))
    found = packed.unpack(packed.pack(native(backend)))
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(backend.host(found[name]), array, strict=True)


def test_a_factor_multiplies(backend):
    floats = {name: native(backend)[name] for name in ("matrix", "scalar")}
    packed = Packed(backend, floats)
    (flat,) = packed.pack(floats, 0.5)
    np.testing.assert_array_equal(backend.host(flat), np.float32([0, 0.5, 1, 1.5, 2, 2.5, 3.5]), strict=True)


def test_written_values_reach_the_live_arrays(backend):
    arrays = native(backend)
    packed = Packed(backend, arrays)
    flats = [flat + 1 for flat in packed.pack(arrays)]
    packed.write(flats, arrays)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(backend.host(arrays[name]), array + 1)


def test_a_flat_array_to_receive_into_has_the_size_and_dtype(backend):
    (floats, integers) = (each.empty() for each in Packed(backend, native(backend)).packers)
    assert floats.shape == (7,)
    assert backend.host(integers).dtype == np.int32


def test_arrays_may_be_put_one_by_one(backend):
    arrays = {name: native(backend)[name] for name in ("matrix", "scalar")}
    for packer in (Packed(backend, arrays).packers[0], Packer(arrays)):
        for name in ("scalar", "matrix"):
            placed = packer.put(name, arrays[name], 2.0)
            np.testing.assert_array_equal(backend.host(placed), 2 * ARRAYS[name])
        assert backend.host(packer.packed()).tolist() == [0, 2, 4, 6, 8, 10, 14]


def test_a_kernel_in_channels_last_keeps_its_strides():
    torch = pytest.importorskip("torch")
    backend = load_framework("torch").open()
    kernel = torch.arange(24.0).reshape(2, 3, 2, 2).to(memory_format=torch.channels_last)
    packed = Packed(backend, {"bias": torch.ones(3), "kernel": kernel})
    found = packed.unpack([packed.pack({"bias": torch.ones(3), "kernel": kernel})[0].clone()])["kernel"]
    assert found.stride() == kernel.stride()
    assert torch.equal(found, kernel)
