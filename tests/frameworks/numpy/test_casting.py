import ml_dtypes
import numpy as np
import pytest

bfloat16 = ml_dtypes.bfloat16
CASTS = [np.float64, np.float32, np.float16, bfloat16, np.int8, np.uint8, np.int32, np.int64, np.uint64, bool]


@pytest.mark.parametrize("to", CASTS)
@pytest.mark.parametrize("source", CASTS)
def test_a_cast_keeps_values_that_both_types_have(source, to, run):
    from onnx import helper

    x = np.array([0, 1, 5, 100]).astype(source)
    expected = x.astype(to)
    found = run("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))
    assert found.dtype == np.dtype(to)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(run("CastLike", x, np.zeros(2, to)), expected)


def test_the_gradient_of_a_cast_has_the_dtype_of_its_input(pull):
    (found,) = pull("Cast", np.ones(3, np.float32), gradient=np.ones(3), to=11)
    assert found.dtype == np.float32
    assert pull("Cast", np.ones(3, np.float32), gradient=np.ones(3), to=7) == (None,)


def test_a_cast_to_eight_bits_is_left_to_onnx(run):
    found = run("Cast", np.array([1.0, 1e9], np.float32), to=17, reference=True)
    np.testing.assert_array_equal(found.astype(np.float32), [1, 448])
