"""Arrays to JAX and back."""

import ml_dtypes
import numpy as np
import pytest

from levelbench.errors import UnsupportedError

NUMPY = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64", "complex64", "complex128"]
SMALL = ["bfloat16", "int4", "uint4", "int2", "uint2", "float4_e2m1fn"]
FLOAT8 = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]


@pytest.mark.parametrize("name", [*NUMPY, *FLOATS, *SMALL, *FLOAT8])
def test_an_array_comes_back_with_its_type_and_values(backend, name):
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    host = np.array([[0, 1, 1], [1, 0, 1]], np.float32).astype(dtype)
    found = backend.host(backend.array(host))
    assert found.dtype == dtype
    assert found.shape == host.shape
    np.testing.assert_array_equal(found.astype(np.complex128), host.astype(np.complex128))


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_scalars_and_empty_arrays_keep_their_shape(backend, shape):
    assert backend.host(backend.array(np.zeros(shape, np.float32))).shape == shape


def test_an_array_that_is_not_contiguous_keeps_its_values(backend):
    host = np.arange(12.0).reshape(3, 4).T[::2]
    np.testing.assert_array_equal(backend.host(backend.array(host)), host)


def test_an_array_has_memory_of_its_own(backend):
    host = np.zeros(1024, np.float32)
    array = backend.array(host)
    host[:] = 1
    assert backend.host(array).max() == 0


def test_what_comes_to_the_host_is_a_copy_that_can_be_written(backend):
    array = backend.array(np.zeros(3, np.float32))
    copy = backend.host(array)
    copy[:] = 1
    assert backend.host(array).max() == 0


@pytest.mark.parametrize("host", [np.array(["a"]), np.array(["a"], object), np.array([b"a"])])
def test_strings_are_refused(backend, host):
    with pytest.raises(UnsupportedError, match="on jax"):
        backend.array(host)
