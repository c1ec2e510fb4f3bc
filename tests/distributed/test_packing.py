"""Cutting arrays into pieces, packing them into flat ones, and viewing them as plain memory."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.distributed.packing import (
    FlatLayout,
    Packed,
    Packer,
    dtype_name,
    elements,
    is_floating,
    new,
    pieces,
    put,
    view,
)
from levelbench.errors import UnsupportedError
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


def test_the_view_of_a_numpy_array_is_itself():
    array = np.ones((2, 3))
    assert view(array) is array


def test_a_numpy_scalar_can_be_viewed_and_comes_back_as_an_array():
    seen = view(np.float32(3))
    assert (seen.shape, seen.dtype) == ((), np.float32)
    found = put(np.array(4, np.float32), np.float32(3))
    assert isinstance(found, np.ndarray)
    assert found == 4


def test_a_result_is_written_into_the_array_if_possible():
    base = np.zeros(6)
    like = base[::2]
    assert put(np.arange(3.0), like) is like
    assert base.tolist() == [0, 0, 1, 0, 2, 0]


def test_a_result_for_a_read_only_array_is_a_new_array():
    like = np.zeros(2)
    like.flags.writeable = False
    result = np.ones(2)
    found = put(result, like)
    assert found.tolist() == [1, 1]
    assert like.tolist() == [0, 0]
    assert not np.shares_memory(found, result)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bfloat16"])
def test_a_torch_tensor_is_viewed_and_written_in_place(dtype):
    torch = pytest.importorskip("torch")
    tensor = torch.ones(2, 3, dtype=getattr(torch, dtype))
    seen = view(tensor)
    assert (seen.shape, dtype_name(tensor), seen.dtype.name) == ((2, 3), dtype, dtype)
    seen[0, 0] = 5
    assert tensor[0, 0] == 5
    assert put(np.full((2, 3), 2, seen.dtype), tensor) is tensor
    assert (tensor == 2).all()
    fresh = new(np.full(4, 3, seen.dtype), tensor)
    assert (fresh.dtype, fresh.tolist()) == (tensor.dtype, [3] * 4)


def test_a_torch_parameter_can_be_viewed_despite_autograd():
    torch = pytest.importorskip("torch")
    parameter = torch.nn.Parameter(torch.zeros(3))
    view(parameter)[:] = 1
    assert parameter.tolist() == [1, 1, 1]
    assert parameter.requires_grad


@pytest.mark.parametrize("dtype", ["float32", "int32", "bfloat16"])
def test_a_jax_array_has_a_read_only_view_and_new_results(dtype):
    jnp = pytest.importorskip("jax.numpy")
    array = jnp.ones((2, 3), dtype)
    seen = view(array)
    assert not seen.flags.writeable
    result = np.full((2, 3), 2, seen.dtype)
    found = put(result, array)
    result[:] = 7
    assert (found.dtype, found.device, found.tolist()) == (array.dtype, array.device, [[2] * 3] * 2)
    assert array.tolist() == [[1] * 3] * 2


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda torch: torch.ones(2).to(torch.float8_e5m2), "Float8"),
        (lambda torch: torch.ones(2, device="meta"), "where its memory is"),
        (lambda torch: torch.ones(2).to_sparse(), "Sparse"),
    ],
)
def test_arrays_that_numpy_cannot_view_are_refused_with_the_reason(make, why):
    torch = pytest.importorskip("torch")
    with pytest.raises(UnsupportedError, match=why):
        view(make(torch))


def test_device_memory_is_refused_with_the_devices_name():
    class OnDevice:
        dtype, device = "float32", "cuda:3"

        def __dlpack_device__(self):
            return (2, 3)

    with pytest.raises(UnsupportedError, match="cuda:3"):
        view(OnDevice())


def test_floating_point_dtypes_have_a_mean():
    floats = [np.ones(1, each) for each in ("float16", "float32", "complex64", ml_dtypes.bfloat16)]
    assert all(is_floating(each) for each in floats)
    assert not any(is_floating(np.ones(1, each)) for each in ("int64", "bool", "uint8"))


def test_elements_of_an_array_without_dimensions():
    assert [elements(np.zeros(shape)) for shape in ((), (0, 3), (2, 3))] == [1, 0, 6]
