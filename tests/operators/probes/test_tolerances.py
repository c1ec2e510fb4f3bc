"""Tolerances come from the dtype and the length of the sum, and say so."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelbench.checks.arrays import growth, is_float, tolerance_for, unit_roundoff
from levelbench.operators.node import operator_node
from levelbench.operators.probes.forward import sum_length


@pytest.mark.parametrize(
    ("dtype", "power"), [(np.float16, 11), (ml_dtypes.bfloat16, 8), (np.float32, 24), (np.float64, 53)]
)
def test_the_unit_roundoff_is_half_the_gap_above_one(dtype, power):
    assert unit_roundoff(dtype) == 2.0**-power


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.bool_])
def test_integers_are_exact(dtype):
    tolerance = tolerance_for(dtype, length=100, scale=1e6)
    assert (tolerance.rtol, tolerance.atol) == (0, 0)
    assert "exact" in tolerance.reason


def test_a_short_sum_has_the_bound_of_higham():
    assert growth(3, 2.0**-24) == pytest.approx(3 * 2.0**-24, rel=1e-6)


def test_a_long_sum_grows_with_the_square_root_of_its_length():
    assert growth(4 * 10**6, 2.0**-24) / growth(10**6, 2.0**-24) == pytest.approx(2, rel=0.05)


@given(st.integers(1, 10**9), st.sampled_from([2.0**-53, 2.0**-24, 2.0**-11]))
def test_no_bound_is_above_the_deterministic_one(length, roundoff):
    certain = length * roundoff / (1 - length * roundoff) if length * roundoff < 1 else np.inf
    assert 0 <= growth(length, roundoff) <= certain


@pytest.mark.parametrize("length", [10, 1000, 30_000])
def test_one_sum_after_the_other_stays_within_the_bound(length):
    random = np.random.default_rng(length)
    terms = random.standard_normal((100, length)).astype(np.float32)
    found = np.cumsum(terms, axis=1, dtype=np.float32)[:, -1]
    exact = terms.astype(np.float64).sum(axis=1)
    bound = growth(length, 2.0**-24, results=100) * np.abs(terms.astype(np.float64)).sum(axis=1)
    assert (np.abs(found - exact) <= bound).all()


def test_half_precisions_are_allowed_no_sum_in_half_precision():
    assert tolerance_for(np.float16, length=10_000).rtol < 9 * 2.0**-11


def test_the_reason_names_dtype_length_and_source():
    reason = tolerance_for(np.float32, length=576, scale=3.0).reason
    assert all(each in reason for each in ("float32", "576", "Higham"))


@pytest.mark.parametrize(
    ("node", "shapes", "length"),
    [
        (operator_node("Relu"), [(4, 5)], 1),
        (operator_node("Conv"), [(1, 3, 8, 8), (6, 3, 5, 5)], 75),
        (operator_node("MatMul"), [(2, 7), (7, 3)], 7),
        (operator_node("Gemm", transA=1), [(9, 2), (9, 3)], 9),
        (operator_node("ConvTranspose", group=2), [(1, 4, 8), (4, 3, 5)], 10),
        (operator_node("Softmax", axis=0), [(4, 5)], 4),
    ],
)
def test_the_length_of_a_sum_is_read_from_the_shapes(node, shapes, length):
    assert sum_length(node, shapes) == (length, True)


def test_without_a_rule_the_largest_input_bounds_the_sum():
    assert sum_length(None, [(4, 5), None, (3,)]) == (20, False)


@pytest.mark.parametrize(
    ("dtype", "answer"), [("f4", True), (ml_dtypes.bfloat16, True), (ml_dtypes.float8_e5m2, True), ("i4", False)]
)
def test_which_dtypes_are_floating_point(dtype, answer):
    assert is_float(dtype) is answer


def test_a_record_is_no_number():
    assert not is_float(np.dtype([("a", "f4")]))
