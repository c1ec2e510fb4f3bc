"""Errors between arrays: norms, units in the last place, NaN and infinity, any rank."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.checks.arrays import difference, ulp_distance
from levelbench.errors import UsageError
from levelbench.operators.probes import errors

FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]


def test_equal_arrays_have_no_error():
    found = errors(np.arange(6.0).reshape(2, 3), np.arange(6.0).reshape(2, 3))
    assert (found.l1, found.l2, found.linf, found.relative, found.ulp, found.cosine) == (0,) * 6


def test_the_norms_are_those_of_the_difference():
    found = errors(np.array([[1.0, 5.0], [2.0, 0.0]]), np.array([[1.0, 2.0], [6.0, 0.0]]))
    assert (found.l1, found.l2, found.linf) == (7, 5, 4)
    assert found.relative == pytest.approx(5 / np.sqrt(41))
    assert found.where == (1, 0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_next_number_is_one_ulp_away(dtype):
    one = np.ones(3, dtype)
    assert (ulp_distance(np.nextafter(one, dtype(2)), one) == 1).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_smallest_numbers_around_zero_are_two_ulp_apart(dtype):
    tiny = np.nextafter(np.zeros(1, dtype), np.ones(1, dtype))
    assert ulp_distance(tiny, -tiny) == 2
    assert ulp_distance(np.array(-0.0, dtype), np.array(0.0, dtype)) == 0


def test_ulp_are_counted_in_the_narrower_dtype():
    assert errors(np.float32([1.0]), np.array([1.0 + 1e-12])).ulp == 0


@given(st.floats(-(2.0**127), 2.0**127, width=32), st.integers(0, 20))
def test_ulp_count_steps(value, steps):
    bits = np.array(value, np.float32)
    other = bits.copy()
    for _ in range(steps):
        other = np.nextafter(other, np.float32(np.inf))
    assert ulp_distance(other, bits) == steps


def test_nan_and_infinity_at_the_same_place_are_equal():
    values = np.array([np.nan, np.inf, -np.inf, 1.0])
    assert errors(values, values).linf == 0
    assert errors(values, values).ulp == 0


@pytest.mark.parametrize("other", [0.0, np.inf, -np.inf])
def test_nan_at_one_side_is_infinitely_wrong(other):
    found = errors(np.array([1.0, np.nan]), np.array([1.0, other]))
    assert found.linf == np.inf
    assert found.where == (1,)


def test_infinities_of_two_signs_are_infinitely_apart():
    assert errors(np.array([np.inf]), np.array([-np.inf])).linf == np.inf


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2)])
def test_an_empty_array_has_no_error_and_no_place(shape):
    found = errors(np.zeros(shape), np.zeros(shape))
    assert (found.linf, found.where) == (0, None)


def test_a_scalar_has_an_error_at_no_axes():
    assert errors(np.array(2.0), np.array(3.0)).where == ()


def test_two_shapes_cannot_be_compared():
    with pytest.raises(UsageError, match=r"shapes \(2,\) and \(3,\)"):
        errors(np.zeros(2), np.zeros(3))


def test_large_integers_are_compared_exactly():
    assert difference(np.array([2**62 + 1]), np.array([2**62])) == 1


def test_unsigned_integers_do_not_wrap():
    assert difference(np.array([1], np.uint8), np.array([3], np.uint8)) == 2


def test_the_cosine_error_of_opposite_vectors_is_two():
    assert errors(np.array([1.0, 2.0]), np.array([-1.0, -2.0])).cosine == pytest.approx(2)


def test_a_small_angle_is_not_lost():
    found = errors(np.array([1.0, 1e-9]), np.array([1.0, 0.0]))
    assert found.cosine == pytest.approx(5e-19, rel=1e-6)


def test_norms_of_huge_numbers_do_not_overflow():
    assert errors(np.full(4, 1e300), np.zeros(4)).l2 == pytest.approx(2e300)


def test_complex_numbers_have_an_absolute_error():
    assert errors(np.array([3 + 4j]), np.array([0j])).linf == 5


def test_errors_are_json():
    assert errors(np.array([1.0]), np.array([2.0])).to_dict()["linf"] == 1
