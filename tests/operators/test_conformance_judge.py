"""The judge of node tests accepts correct results and finds each planted fault."""

import re

import ml_dtypes
import numpy as np
import onnx
import pytest

from levelbench.operators.conformance import NodeTest, collect_cases, judge, tolerances

pytestmark = pytest.mark.usefixtures("warm_node_cases")

RIGHT = np.array([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]], np.float32)


def case(operator="Add"):
    return NodeTest("test_planted", operator, onnx.ModelProto(), [], 1e-3, 1e-7)


def fault(found, expected=RIGHT, operator="Add", inputs=()):
    return judge(case(operator), inputs, [found], [expected])


def changed(value, at=(0, 1)):
    other = RIGHT.copy()
    other[at] = value
    return other


def test_expected_outputs_are_right():
    assert fault(RIGHT.copy()) is None


def test_a_rounding_within_the_tests_own_tolerance_is_right():
    assert fault(RIGHT * np.float32(1.0005)) is None


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (RIGHT.astype(np.float64), "type float64, expected float32"),
        (RIGHT[:1], r"shape \(1, 3\), expected \(2, 3\)"),
        (RIGHT.reshape(3, 2), r"shape \(3, 2\)"),
        (changed(-2.01), r"1 of 6 values differ, first at \(0, 1\): -2.00999"),
        (changed(2.0), r"first at \(0, 1\)"),
        (changed(np.nan), "nan"),
        (changed(np.inf), "inf"),
        (-RIGHT, "6 of 6 values differ"),
        (RIGHT * np.float32(1.002), "6 of 6"),
        ([RIGHT], "a list where a tensor is expected"),
        (None, "a NoneType where a tensor is expected"),
    ],
)
def test_a_planted_fault_is_found_and_described(found, says):
    assert re.search(says, fault(found))


def test_a_missing_output_is_found():
    assert judge(case(), [], [RIGHT], [RIGHT, RIGHT]) == "1 outputs, expected 2"


def test_an_expected_nan_is_right():
    assert fault(changed(np.nan), changed(np.nan)) is None


def test_infinity_of_the_wrong_sign_is_wrong():
    assert fault(changed(-np.inf), changed(np.inf)) is not None


def test_an_integer_off_by_one_is_wrong():
    assert fault(np.array([1, 2, 4]), np.array([1, 2, 3])) is not None


def test_a_boolean_that_is_flipped_is_wrong():
    assert fault(np.array([True, False]), np.array([True, True])) is not None


@pytest.mark.parametrize(("dtype", "epsilon"), [(np.float16, 2.0**-10), (ml_dtypes.bfloat16, 2.0**-7)])
def test_half_precisions_get_a_few_roundings(dtype, epsilon):
    right = RIGHT.astype(dtype)
    assert fault((RIGHT * (1 + epsilon)).astype(dtype), right) is None
    assert fault((RIGHT * (1 + 32 * epsilon)).astype(dtype), right) is not None


def test_single_precision_gets_the_tests_own_tolerance():
    assert tolerances(case(), np.dtype(np.float32)) == (1e-3, 0.0)


def test_strings_are_compared_as_text():
    expected = np.array([["a", "b"]], dtype=object)
    assert fault(np.array([[b"a", b"b"]], dtype=object), expected) is None
    assert fault(np.array([["a", "c"]], dtype=object), expected) is not None


def test_sequences_are_compared_element_by_element():
    assert judge(case(), [], [[RIGHT]], [[RIGHT.copy()]]) is None
    assert judge(case(), [], [[RIGHT]], [[RIGHT, RIGHT]]) == "output 0: a sequence of 1, expected 2"
    assert "element 0" in judge(case(), [], [[changed(9)]], [[RIGHT]])


def test_an_empty_optional_is_compared_with_none():
    assert judge(case(), [], [None], [None]) is None
    assert judge(case(), [], [RIGHT], [None]) is not None


P = np.full(1000, 0.3)


def bernoulli(drawn, probability=P):
    return judge(case("Bernoulli"), [probability], [drawn], [np.zeros_like(drawn)])


def test_a_draw_need_not_be_the_expected_draw():
    assert bernoulli((np.random.default_rng(1).random(1000) < P).astype(float)) is None


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 1.0])
def test_draws_with_the_wrong_probability_are_wrong(share):
    assert "ones where 300" in bernoulli((np.random.default_rng(1).random(1000) < share).astype(float))


def test_draws_are_zeros_and_ones():
    assert bernoulli(P) == "values other than 0 and 1"


def test_impossible_draws_are_wrong():
    assert bernoulli(np.array([1.0, 0.0]), np.array([0.0, 0.0])) == "a draw that has probability 0"


def dropout(y, mask, x, ratio=0.5):
    inputs = [x, np.float32(ratio), np.array(True)]
    return judge(case("Dropout"), inputs, [y, mask], [np.zeros_like(y), np.zeros_like(mask)])


def test_a_dropout_scales_what_it_keeps():
    x = np.random.default_rng(0).standard_normal(1000)
    mask = np.random.default_rng(1).random(1000) < 0.5
    assert dropout(np.where(mask, x * 2, 0), mask, x) is None
    assert "neither 0 nor" in dropout(np.where(mask, x, 0), mask, x)


def test_a_dropout_keeps_the_right_share():
    x = np.ones(1000)
    mask = np.random.default_rng(1).random(1000) < 0.7
    assert "ones where 500" in dropout(np.where(mask, x * 2, 0), mask, x)


def test_every_case_of_onnx_names_the_operator_under_test():
    cases = {each.name: each.operator for each in collect_cases()}
    assert len(cases) == 1884
    assert cases["test_conv_with_strides_padding"] == "Conv"
    assert cases["test_layer_normalization_default_axis_expanded"] == "LayerNormalization"


# By operator, because ONNX creates its tests on request, which takes seconds and should not happen during collection.
@pytest.mark.parametrize("operator", ["Add", "MaxPool", "TopK"])
def test_expected_outputs_pass_and_disturbed_ones_do_not(operator):
    for each in collect_cases([operator]):
        assert each.data
        for inputs, expected in each.data:
            assert judge(each, inputs, expected, expected) is None, each.name
            disturbed = [np.asarray(expected[0]) + np.asarray(expected[0]).dtype.type(3), *expected[1:]]
            assert judge(each, inputs, disturbed, expected) is not None, each.name
