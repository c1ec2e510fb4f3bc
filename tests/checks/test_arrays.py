"""Tolerances, and how deviations are reported."""

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
def test_a_result_that_is_not_a_sum_gets_only_its_own_roundings(length):
    assert "sum" not in tolerance_for(np.float32, length=length).reason
    assert "a sum of 2 terms" in tolerance_for(np.float32, length=2).reason


def test_strings_are_compared_exactly_and_the_first_difference_is_reported():
    words = np.array([["a", "b"], ["c", "d"]], object)
    other = words.copy()
    other[1, 0] = "x"
    assert compare("y", words, words.copy(), tolerance_for(np.float32)) is None
    assert compare("y", other, words, tolerance_for(np.float32)) == "y is wrong at (1, 0): 'x', expected 'c'"


@pytest.mark.parametrize(
    ("shape", "count"),
    [((), "its only value: "), ((1,), "its only value, worst at (0,): "), ((2,), "1 of 2 values, worst at (0,): ")],
)
def test_wrong_values_are_counted(shape, count):
    expected = np.ones(shape, np.float32)
    actual = expected.copy()
    actual.flat[0] = 2.0
    said = compare("y", actual, expected, tolerance_for(np.float32))
    assert said is not None
    assert said.startswith(f"y is wrong in {count}")


@pytest.mark.parametrize(
    ("dtype", "real"), [("float16", True), (ml_dtypes.bfloat16, True), ("int32", False), ("V4", False), ("V1", False)]
)
def test_raw_bytes_are_not_floating_point(dtype, real):
    assert is_float(np.dtype(dtype)) is real
