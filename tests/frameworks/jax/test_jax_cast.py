"""Casts to the small floating-point types against ``ml_dtypes``, over all values of float16."""

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, numpy_helper

from levelbench.operators.node import operator_node

FLOAT8 = {
    "float8_e4m3fn": TensorProto.FLOAT8E4M3FN,
    "float8_e4m3fnuz": TensorProto.FLOAT8E4M3FNUZ,
    "float8_e5m2": TensorProto.FLOAT8E5M2,
    "float8_e5m2fnuz": TensorProto.FLOAT8E5M2FNUZ,
}


def bits(array):
    return np.where(np.isnan(array.astype(np.float32)), 0x100, array.view(np.uint8).astype(int))


@pytest.fixture(scope="module")
def values():
    return np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)


@pytest.mark.parametrize("name", FLOAT8)
@pytest.mark.parametrize("saturate", [0, 1])
def test_every_value_of_float16_rounds_as_onnx_says(backend, values, name, saturate):
    dtype = np.dtype(getattr(ml_dtypes, name))
    operator = backend.operator(operator_node("Cast", to=FLOAT8[name], saturate=saturate, opset=19))
    found = backend.host(operator.forward(backend.array(values))[0])
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = numpy_helper.saturate_cast(values, dtype) if saturate else values.astype(dtype)
    np.testing.assert_array_equal(bits(found), bits(wanted))


@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
@pytest.mark.parametrize("saturate", [0, 1])
def test_powers_of_two_are_rounded_as_asked(backend, mode, saturate):
    some = np.exp2(np.linspace(-130, 127.99, 4001)).astype(np.float32)
    node = operator_node("Cast", to=TensorProto.FLOAT8E8M0, round_mode=mode, saturate=saturate, opset=24)
    found = backend.host(backend.operator(node).forward(backend.array(some))[0])
    wanted = numpy_helper.to_float8e8m0(some, bool(saturate), mode)
    np.testing.assert_array_equal(found.view(np.uint8), wanted.view(np.uint8))


def test_an_integer_that_does_not_fit_keeps_its_lowest_bits(backend):
    operator = backend.operator(operator_node("Cast", to=TensorProto.INT8))
    found = backend.host(operator.forward(backend.array(np.array([200, -129, 5], np.int16)))[0])
    np.testing.assert_array_equal(found, np.array([-56, 127, 5], np.int8))
