"""What ``check_forward`` reports when it fails, and what it accepts."""

import numpy as np
import pytest

from levelbench.errors import CheckFailedError, UsageError
from levelbench.operators.custom import CustomOperator
from levelbench.operators.frameworks import open_framework
from levelbench.operators.node import operator_node
from levelbench.operators.probes import Tolerance, check_forward

X = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)


def message(operator, reference, inputs=(X,), **more):
    with pytest.raises(CheckFailedError) as raised:
        check_forward(operator, inputs, reference, **more)
    return str(raised.value)


def off_at(x):
    y = 2 * x
    y[1, 3] += 1
    return y


def test_the_message_names_output_index_values_deviation_tolerance_and_its_reason():
    said = message(off_at, lambda x: 2 * x, name="double")
    for part in ("double", "output 0", "1 of 15 values", "(1, 3)", "expected", "ULP", "rtol", "8 roundings of float32"):
        assert part in said


def test_a_wrong_dtype_is_reported_before_values():
    assert "dtype float64, expected float32" in message(lambda x: -x.astype(np.float64), lambda x: x)


def test_a_wrong_shape_is_reported_before_values():
    assert "shape (5, 3), expected (3, 5)" in message(lambda x: -x.T, lambda x: x)


def test_a_wrong_number_of_outputs_is_reported_first():
    assert "2 outputs, expected 1" in message(lambda x: (x, x), lambda x: x)


def test_an_exception_of_the_operator_is_reported():
    assert "IndexError" in message(lambda x: x[9], lambda x: x)


def test_the_errors_of_a_right_operator_are_returned():
    (found,) = check_forward(lambda x: x / np.float32(3), [X], lambda x: x / 3)
    assert 0 < found.linf < 1e-6


def test_a_reference_that_answers_in_float64_does_not_ask_for_it():
    check_forward(lambda x: x * np.float32(np.pi), [X], lambda x: x * np.float64(np.pi))


def test_the_reference_may_be_the_expected_arrays():
    check_forward(lambda x: 2 * x, [X], [2 * X])
    assert "wrong in 15 of 15" in message(lambda x: 3 * x, [2 * X])


def test_a_given_tolerance_is_used_and_its_reason_reported():
    check_forward(off_at, [X], lambda x: 2 * x, tolerance=Tolerance(0, 2, "generous"))
    assert "frugal" in message(lambda x: x * np.float32(1.0001), lambda x: x, tolerance=Tolerance(0, 1e-9, "frugal"))


def test_errors_that_rounding_the_inputs_explains_are_accepted():
    # A sum of 1e8 and its rounding: no float32 implementation can do better.
    x = np.array([1e8, 1.0, -1e8, 3.0], np.float32)
    check_forward(lambda x: np.cumsum(x, dtype=np.float32)[-1:], [x], lambda x: x.sum(keepdims=True))


def test_overflow_to_infinity_beyond_the_largest_number_is_right():
    check_forward(np.exp, [np.array([100.0, 1.0], np.float32)], np.exp)


def test_an_avoidable_overflow_is_wrong():
    assert "finite" in message(lambda x: np.sqrt(x * x), np.abs, [np.array([1e30], np.float32)])


def test_integers_must_be_equal():
    assert "off by 1" in message(lambda x: x + 1, lambda x: x, [np.array([5, 6])])


def test_scalars_and_empty_arrays_can_be_checked():
    check_forward(lambda x: x + 1, [np.array(2.0)], lambda x: x + 1)
    check_forward(lambda x: x + 1, [np.zeros((0, 3))], lambda x: x + 1)


def test_inputs_that_the_reference_refuses_are_a_usage_error():
    def reference(x):
        raise ValueError("not these")

    with pytest.raises(UsageError, match="not these"):
        check_forward(lambda x: x, [X], reference)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_an_operator_of_a_backend_is_checked_on_its_own_arrays(framework):
    if framework == "torch":
        pytest.importorskip("torch")
    backend = open_framework(framework)
    relu = backend.operator(operator_node("Relu"))
    check_forward(relu, [X], lambda x: np.maximum(x, 0), backend=backend)
    assert "output 0 'Y'" in message(relu, np.abs, backend=backend)


class Double(CustomOperator):
    def forward(self, x):
        return 2 * x

    def backward(self, gradients, inputs, outputs):
        return (2 * gradients[0],)


def test_a_custom_operator_can_be_given_as_class_or_object():
    check_forward(Double, [X], lambda x: x + x)
    check_forward(Double(), [X], lambda x: x + x)
    assert "Double" in message(Double, lambda x: x)


def test_something_other_than_an_operator_is_a_usage_error():
    with pytest.raises(UsageError, match="neither an operator nor a function"):
        check_forward(3, [X], lambda x: x)


def test_a_reference_in_float32_only_is_not_treated_as_exact():
    def reference(x):
        if x.dtype != np.float32:
            raise TypeError("float32 only")
        return (x * x).mean(keepdims=True) - x.mean(keepdims=True) ** 2

    x = X + np.float32(1000)
    check_forward(lambda x: x.var(dtype=np.float64, keepdims=True).astype(np.float32), [x], reference)
