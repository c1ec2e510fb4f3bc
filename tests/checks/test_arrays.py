"""How far a result may be off, and how what is off is said."""

import ml_dtypes
import numpy as np
import pytest

from levelbench.checks.arrays import compare, growth, is_float, tolerance_for


@pytest.mark.parametrize(
    ("length", "roundoff", "results", "risk", "bound"),
    [
        (10**6, 2.0**-24, 1, 1e-9, 5.00466533696832e-4),
        (10**6, 2.0**-24, 1000, 1e-9, 5.47346551174385e-4),
        (4096, 2.0**-53, 7, 1e-6, 5.00136632422941e-14),
        (2000, 2.0**-11, 5, 0.5, 0.106335808535413),
    ],
)
def test_a_long_sum_has_the_bound_of_higham_and_mary(length, roundoff, results, risk, bound):
    """Theorem 2.4 of "A new approach to probabilistic rounding error analysis" (2019), evaluated in 30 digits."""
    assert growth(length, roundoff, results, risk) == pytest.approx(bound, rel=1e-9)


@pytest.mark.parametrize("length", [0, 1])
def test_what_is_no_sum_is_allowed_its_own_roundings_alone(length):
    assert "sum" not in tolerance_for(np.float32, length=length).reason
    assert "a sum of 2 terms" in tolerance_for(np.float32, length=2).reason


def test_words_are_equal_or_wrong_at_the_first_place_that_differs():
    words = np.array([["a", "b"], ["c", "d"]], object)
    other = words.copy()
    other[1, 0] = "x"
    assert compare("y", words, words.copy(), tolerance_for(np.float32)) is None
    assert compare("y", other, words, tolerance_for(np.float32)) == "y is wrong at (1, 0): 'x', 'c' expected"


@pytest.mark.parametrize(("shape", "count"), [((), "its one value"), ((1,), "its one value"), ((2,), "1 of 2 values")])
def test_what_is_wrong_is_counted(shape, count):
    expected = np.ones(shape, np.float32)
    actual = expected.copy()
    actual.flat[0] = 2.0
    said = compare("y", actual, expected, tolerance_for(np.float32))
    assert said is not None
    assert said.startswith(f"y is wrong in {count}, the worst at")


@pytest.mark.parametrize(
    ("dtype", "real"), [("float16", True), (ml_dtypes.bfloat16, True), ("int32", False), ("V4", False), ("V1", False)]
)
def test_real_floating_point_is_told_from_raw_bytes(dtype, real):
    assert is_float(np.dtype(dtype)) is real
