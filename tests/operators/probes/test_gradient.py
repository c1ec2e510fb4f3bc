"""What ``check_gradient`` handles besides right and wrong: dtypes, kinks, edges, inputs without a gradient."""

import numpy as np
import pytest

from levelbench.errors import CheckFailedError, UnsupportedError, UsageError
from levelbench.operators.contract import Operator
from levelbench.operators.frameworks import open_framework
from levelbench.operators.node import operator_node
from levelbench.operators.probes import check_gradient

X = np.random.default_rng(0).standard_normal((4, 6))
F = np.float32


def status(report):
    return [each.status for each in report.inputs]


def only(dtype):
    """Tanh that takes one dtype."""

    def forward(x):
        if x.dtype != dtype:
            raise UnsupportedError(f"tanh of {x.dtype}", "it is not written for it", f"give {dtype}")
        return np.tanh(x)

    return forward


def tanh_back(g, i, o):
    return (g[0] * (1 - o[0] ** 2),)


def test_gradients_are_checked_in_float64_if_the_operator_supports_it():
    assert check_gradient(np.tanh, [X.astype(F)], backward=tanh_back).dtype == "float64"


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_an_operator_of_one_dtype_is_checked_in_it_with_larger_steps(dtype):
    report = check_gradient(only(dtype), [X.astype(dtype)], backward=tanh_back)
    assert (report.dtype, status(report)) == (np.dtype(dtype).name, ["right"])


@pytest.mark.parametrize(("dtype", "factor"), [(np.float32, 1.03), (np.float16, 1.5)])
def test_a_large_enough_fault_is_found_in_any_dtype(dtype, factor):
    def backward(g, i, o):
        return (tanh_back(g, i, o)[0] * dtype(factor),)

    with pytest.raises(CheckFailedError, match=np.dtype(dtype).name):
        check_gradient(only(dtype), [X.astype(dtype)], backward=backward)


def test_one_wrong_element_of_a_large_tensor_is_found_and_named():
    x = np.random.default_rng(1).standard_normal((60, 500))

    def backward(g, i, o):
        d = 2 * g[0] * i[0]
        d[41, 123] *= 1.05
        return (d,)

    with pytest.raises(CheckFailedError, match=r"\(41, 123\)"):
        check_gradient(np.square, [x], backward=backward)


@pytest.mark.parametrize("zeros", [None, np.zeros(2, np.int64)])
def test_the_gradient_of_integers_may_be_none_or_zeros(zeros):
    rows = np.array([1, 2])

    def backward(g, i, o):
        d = np.zeros_like(i[0])
        np.add.at(d, i[1], g[0])
        return d, zeros

    assert status(check_gradient(lambda x, r: x[r], [X, rows], backward=backward)) == ["right", "right"]


def test_a_deliberately_undifferentiated_input_is_skipped():
    report = check_gradient(np.multiply, [X, X], backward=lambda g, i, o: (g[0] * i[1], None), skip=[1])
    assert status(report) == ["right", "not tried"]


def test_an_omitted_input_is_not_tried():
    report = check_gradient(lambda x, b: x if b is None else x + b, [X, None], backward=lambda g, i, o: (g[0], None))
    assert status(report) == ["right", "not tried"]


def test_outputs_at_a_kink_are_left_out_with_a_note():
    x = np.where(np.abs(X) < 0.5, 0.0, X)
    report = check_gradient(lambda x: np.maximum(x, 0), [x], backward=lambda g, i, o: (g[0] * (i[0] > 0),))
    assert "left out at a kink" in report.inputs[0].detail


def test_a_point_where_nothing_is_smooth_is_moved_with_a_note():
    report = check_gradient(np.abs, [np.zeros((2, 3))], backward=lambda g, i, o: (g[0] * np.sign(i[0]),))
    assert "moved" in report.inputs[0].detail
    assert status(report) == ["right"]


def test_an_empty_input_has_a_gradient_of_its_shape():
    assert status(check_gradient(np.tanh, [np.zeros((0, 3))], backward=tanh_back)) == ["right"]
    with pytest.raises(CheckFailedError, match="shape"):
        check_gradient(np.tanh, [np.zeros((0, 3))], backward=lambda g, i, o: (np.zeros(3),))


def test_an_operator_without_float_outputs_has_no_gradient_to_check():
    with pytest.raises(UnsupportedError, match="floating-point"):
        check_gradient(lambda x: x > 0, [X], backward=lambda g, i, o: (None,))


def test_without_a_backward_there_is_nothing_to_check():
    with pytest.raises(UnsupportedError, match="backward"):
        check_gradient(np.tanh, [X])


def test_inputs_that_the_forward_refuses_are_a_usage_error():
    def forward(x):
        raise ValueError("wrong shape")

    with pytest.raises(UsageError, match="wrong shape"):
        check_gradient(forward, [X], backward=tanh_back)


def test_the_same_seed_gives_the_same_report():
    first, second = (check_gradient(np.tanh, [X], backward=tanh_back, seed=5) for _ in range(2))
    assert first == second


class WithoutB(Operator):
    """Gemm whose bias gets no gradient."""

    node = operator_node("Gemm", ["A", "B", "C"])

    def forward(self, a, b, c):
        return (a @ b + c,)

    def backward(self, gradients, inputs, outputs):
        return gradients[0] @ inputs[1].T, inputs[0].T @ gradients[0], None


def test_the_input_is_named_as_the_node_names_it():
    with pytest.raises(CheckFailedError, match="input 2 'C' has no gradient"):
        check_gradient(WithoutB(), [X, X.T, np.zeros(4)])


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_structural_inputs_are_not_tried(framework):
    if framework == "torch":
        pytest.importorskip("torch")
    backend = open_framework(framework)
    operator = backend.operator(operator_node("Reshape", ["x", "shape"]))
    report = check_gradient(operator, [X, np.array([6, 4])], backend=backend)
    assert status(report) == ["right", "not tried"]
