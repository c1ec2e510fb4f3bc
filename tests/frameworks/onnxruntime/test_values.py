import gc

import ml_dtypes
import numpy as np
import pytest

from levelbench.errors import UnsupportedError

pytest.importorskip("onnxruntime")

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
NUMPYS_OWN = ["bool", *INTEGERS, "float16", "float32", "float64"]
FLOATS_OF_8_BITS = [f"float8_{kind}" for kind in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")]
OTHERS = ["bfloat16", *FLOATS_OF_8_BITS, "float4_e2m1fn", "int4", "uint4", "int2", "uint2"]
PACKED = {"float4_e2m1fn", "int4", "uint4", "int2", "uint2"}
SHAPES = [(), (1,), (5,), (2, 3), (0, 3), (3, 1, 7)]


def dtype_of(name):
    return np.dtype(getattr(ml_dtypes, name) if name in OTHERS else name)


def values(dtype, shape):
    """Numbers that the type can represent, negative ones included if it is signed."""
    numbers = np.arange(int(np.prod(shape))) % 2 + np.zeros(shape, np.int64).ravel()
    signed = dtype.kind in "if" or dtype.name in {"bfloat16", "int4", "int2", "float4_e2m1fn", "float8_e5m2"}
    return (-numbers if signed else numbers).reshape(shape).astype(dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", NUMPYS_OWN + OTHERS)
def test_an_array_comes_back_with_its_type_shape_and_values(backend, name, shape):
    array = values(dtype_of(name), shape)
    back = backend.host(backend.array(array))
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    np.testing.assert_array_equal(back.astype(np.float64), array.astype(np.float64))


@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "uint2", "float4_e2m1fn"])
def test_every_pattern_of_a_packed_type_comes_back(backend, name):
    dtype = dtype_of(name)
    patterns = np.arange(2 ** (4 if "4" in name else 2), dtype=np.uint8)
    array = patterns.view(dtype)
    np.testing.assert_array_equal(backend.host(backend.array(array)).view(np.uint8), array.view(np.uint8))


@pytest.mark.parametrize("name", ["int4", "uint4"])
def test_onnx_runtime_sees_the_elements_of_a_packed_array_in_their_order(backend, name):
    from levelbench.operators.node import operator_node

    array = np.array([1, 5, 3, 7, 2]).astype(dtype_of(name))
    cast = backend.operator(operator_node("Cast", to=1))
    (found,) = cast.forward(backend.array(array))
    np.testing.assert_array_equal(backend.host(found), [1, 5, 3, 7, 2])


@pytest.mark.parametrize("texts", [["a", "né", ""], [["x"], ["yy"]], "one"], ids=str)
@pytest.mark.parametrize("dtype", [object, np.str_], ids=["object", "str"])
def test_strings_come_back(backend, texts, dtype):
    array = np.array(texts, dtype)
    back = backend.host(backend.array(array))
    assert back.shape == array.shape
    assert back.tolist() == array.tolist()


def test_bytes_come_back_as_the_text_they_hold(backend):
    assert backend.host(backend.array(np.array(["é".encode()]))).tolist() == ["é"]


def test_an_array_that_is_not_contiguous_keeps_its_values(backend):
    array = np.arange(12, dtype=np.float32).reshape(3, 4)[:, ::2].T
    np.testing.assert_array_equal(backend.host(backend.array(array)), array)


@pytest.mark.parametrize("name", sorted({*NUMPYS_OWN, *OTHERS} - PACKED))
def test_a_value_reads_the_arrays_own_memory(backend, name):
    array = values(dtype_of(name), (2, 3))
    assert backend.array(array).data_ptr() == array.ctypes.data


def test_a_value_keeps_the_memory_it_reads_alive(backend):
    value = backend.array(np.full(100_000, 7, np.float32))
    gc.collect()
    np.full(100_000, 1, np.float32)
    assert (backend.host(value) == 7).all()


def test_what_is_on_the_host_is_a_copy(backend):
    array = np.ones(3, ml_dtypes.bfloat16)
    copy = backend.host(backend.array(array))
    array[:] = 2
    assert (copy.astype(np.float32) == 1).all()


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128, "datetime64[s]"], ids=str)
def test_a_type_that_onnx_runtime_lacks_is_refused(backend, dtype):
    with pytest.raises(UnsupportedError, match="no such type"):
        backend.array(np.zeros(2, dtype))
