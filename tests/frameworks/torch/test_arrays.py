"""NumPy arrays converted to tensors and back keep their type, shape and bits."""

import ml_dtypes
import numpy as np
import pytest

from levelbench.errors import UnsupportedError

NUMPY = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NUMPY += ["float16", "float32", "float64", "complex64", "complex128"]
EXTENDED = ["bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]
SMALL = ["int4", "uint4", "int2", "uint2"]


def type_of(name):
    return np.dtype(getattr(ml_dtypes, name) if name in EXTENDED + SMALL else name)


@pytest.mark.parametrize("name", NUMPY + EXTENDED + SMALL)
def test_each_type_comes_back_as_it_went(torch_backend, name):
    dtype = type_of(name)
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    back = torch_backend.host(torch_backend.array(array))
    assert back.dtype == dtype
    np.testing.assert_array_equal(back.view(np.uint8), array.view(np.uint8))


@pytest.mark.parametrize("name", EXTENDED)
def test_each_bit_pattern_of_a_small_float_comes_back(torch_backend, name):
    bits = np.arange(256, dtype=np.uint8) if name != "bfloat16" else np.arange(0, 2**16, 7, dtype=np.uint16)
    back = torch_backend.host(torch_backend.array(bits.view(type_of(name))))
    np.testing.assert_array_equal(back.view(bits.dtype), bits)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float8_e5m2", "int4"])
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_scalars_and_empty_arrays_keep_their_shape(torch_backend, name, shape):
    array = np.zeros(shape, type_of(name))
    tensor = torch_backend.array(array)
    assert tuple(tensor.shape) == shape
    assert torch_backend.host(tensor).shape == shape


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int4"])
def test_an_array_that_is_not_contiguous_keeps_its_values(torch_backend, name):
    array = np.arange(6).reshape(2, 3).astype(type_of(name)).T[::-1]
    back = torch_backend.host(torch_backend.array(array))
    np.testing.assert_array_equal(back.astype(np.int64), array.astype(np.int64))


def test_a_copy_on_the_host_does_not_follow_the_tensor(torch_backend):
    tensor = torch_backend.array(np.zeros(2, np.float32))
    copy = torch_backend.host(tensor)
    tensor += 1
    np.testing.assert_array_equal(copy, [0, 0])


@pytest.mark.parametrize(
    "array",
    [np.array(["a"], object), np.array(["a"]), np.array([1], ">f4"), np.array([1]).astype(ml_dtypes.float4_e2m1fn)],
    ids=["object", "string", "big endian", "float4"],
)
def test_a_type_that_pytorch_lacks_is_refused(torch_backend, array):
    with pytest.raises(UnsupportedError, match="no such type"):
        torch_backend.array(array)
