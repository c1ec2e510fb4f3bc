"""TensorFlow's arrays follow NumPy's indexing and promotion, and what cannot run there is refused."""

import numpy as np
import pytest

from levelbench.errors import UnsupportedError
from levelbench.operators.node import OperatorNode

X = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
ROWS, COLUMNS = np.array([[2], [0]]), np.array([1, -1])


@pytest.mark.parametrize(
    "key",
    [
        1,
        (slice(None), -1),
        (Ellipsis, slice(None, None, -2)),
        (slice(1, 9), None, 2),
        ROWS,
        (ROWS, COLUMNS),
        (slice(None), ROWS, COLUMNS),
        (ROWS, slice(None), COLUMNS),
        (Ellipsis, COLUMNS),
        (0, slice(None), COLUMNS),
        (slice(None), None, COLUMNS, slice(1, 3)),
    ],
    ids=str,
)
def test_an_index_chooses_what_numpys_does(backend, key):
    keys = key if isinstance(key, tuple) else (key,)
    native = tuple(backend.array(each) if isinstance(each, np.ndarray) else each for each in keys)
    np.testing.assert_array_equal(backend.host(backend.array(X)[native]), X[key])


@pytest.mark.parametrize(
    ("dtype", "other", "expected"),
    [
        ("float32", 2.5, "float32"),
        ("float16", 2, "float16"),
        ("int32", 2, "int32"),
        ("int32", 2.5, "float64"),
        ("float32", np.ones(1, np.float64), "float64"),
        ("int8", np.ones(1, np.uint8), "int16"),
    ],
)
def test_a_number_takes_the_type_of_an_array_and_two_arrays_are_promoted(backend, dtype, other, expected):
    native = backend.array(other) if isinstance(other, np.ndarray) else other
    left = backend.array(np.ones(2, dtype))
    assert str((left + native).dtype) == str((native + left).dtype) == expected


def test_a_view_for_numpy_cannot_be_written_to(backend):
    array = backend.array(X)
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(array)[0] = 0
    backend.host(array)[0] = 0


def test_a_type_without_kernels_is_refused(backend):
    import ml_dtypes

    with pytest.raises(UnsupportedError, match="no kernels"):
        backend.array(np.zeros(2, ml_dtypes.float4_e2m1fn))


def test_what_is_not_there_yet_is_refused_by_name(backend):
    with pytest.raises(UnsupportedError, match="distributed training on tensorflow"):
        backend.packer({})
    with pytest.raises(UnsupportedError, match="Mine on tensorflow"):
        backend.operator(OperatorNode("Mine", ("x",), ("y",), domain="levelbench.custom"))
    with pytest.raises(UnsupportedError, match="bfloat16"):
        backend.executor(None, precision="bfloat16")
