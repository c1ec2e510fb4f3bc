"""Named arrays come back from their flat form with shape, dtype and values, on every framework."""

import numpy as np
import pytest

from levelbench.distributed.packing import Packed, Packer
from levelbench.operators.frameworks import load_framework

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


def test_a_flat_array_a_dtype_holds_all(backend):
    flats = Packed(backend, native(backend)).pack(native(backend))
    assert [backend.host(flat).tolist() for flat in flats] == [[0, 1, 2, 3, 4, 5, 7], [3]]
    assert [backend.host(flat).dtype for flat in flats] == [np.float32, np.int32]


def test_arrays_come_back_as_they_were(backend):
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
