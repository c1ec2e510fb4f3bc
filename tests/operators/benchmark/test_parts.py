"""A part of a problem, computed separately, equals the same part of the whole."""

import math

import numpy as np
import pytest

from levelbench.operators.benchmark import checking
from levelbench.operators.benchmark.checking import Results, check, parts_of, select
from levelbench.operators.node import operator_node

PROBLEMS = {
    "NN": ("Gemm", {}, [(12, 5), (5, 9)]),
    "TN": ("Gemm", {"transA": 1}, [(5, 12), (5, 9)]),
    "NT": ("Gemm", {"transB": 1}, [(12, 5), (9, 5)]),
    "TT": ("Gemm", {"transA": 1, "transB": 1}, [(5, 12), (9, 5)]),
    "MatMul": ("MatMul", {}, [(12, 5), (5, 9)]),
    "Conv": ("Conv", {"pads": [1, 1, 1, 1], "strides": [2, 1]}, [(5, 4, 7, 6), (8, 4, 3, 3), (8,)]),
    "grouped": ("Conv", {"group": 2}, [(5, 4, 7, 6), (8, 2, 3, 3)]),
    "RNN": ("RNN", {"hidden_size": 4}, [(6, 5, 3), (1, 4, 3), (1, 4, 4)]),
    "GRU": ("GRU", {"hidden_size": 4, "linear_before_reset": 1}, [(6, 5, 3), (1, 12, 3), (1, 12, 4)]),
    "LSTM": ("LSTM", {"hidden_size": 4}, [(6, 5, 3), (1, 16, 3), (1, 16, 4)]),
}


@pytest.fixture(params=PROBLEMS)
def whole(request):
    op_type, attributes, shapes = PROBLEMS[request.param]
    random = np.random.default_rng(0)
    inputs = [random.standard_normal(shape) for shape in shapes]
    return operator_node(op_type, [f"i{at}" for at in range(len(shapes))], **attributes), inputs


def divided(node, inputs, output, direction, share):
    """The parts, with a limit that lets the reference compute this share of the whole."""
    flops = checking.LIMIT_FLOPS / share / (3 if direction == "backward" else 1)
    return parts_of(node, [each.shape for each in inputs], output.shape, flops, direction)


@pytest.mark.parametrize("share", [0.5, 0.02])
def test_outputs_of_a_part_are_those_of_the_whole(whole, reference, share):
    node, inputs = whole
    (output,) = reference(node).forward(*inputs)
    (part,) = divided(node, inputs, output, "forward", share)
    (alone,) = reference(node).forward(*part.of_inputs(inputs))
    np.testing.assert_allclose(alone, select(output, part.output), rtol=1e-12, atol=1e-12)
    assert not part.whole
    assert alone.size < output.size


def test_gradients_of_a_part_are_those_of_the_whole(whole, reference):
    node, inputs = whole
    outputs, pullback = reference(node).vjp(*inputs)
    given = np.random.default_rng(1).standard_normal(outputs[0].shape)
    gradients = pullback(given)
    for part in divided(node, inputs, outputs[0], "backward", 0.3):
        _, alone = reference(node).vjp(*part.of_inputs(inputs))
        found = alone(select(given, part.output))
        assert part.gradients
        for at in part.gradients:
            np.testing.assert_allclose(found[at], select(gradients[at], part.inputs[at]), rtol=1e-9, atol=1e-9)


def test_a_part_states_what_it_leaves_out(whole, reference):
    node, inputs = whole
    (output,) = reference(node).forward(*inputs)
    (part,) = divided(node, inputs, output, "forward", 0.02)
    assert " of " in part.label


def test_cheap_results_are_compared_completely(whole, reference):
    node, inputs = whole
    (output,) = reference(node).forward(*inputs)
    (part,) = parts_of(node, [each.shape for each in inputs], output.shape, 1000.0)
    assert part.whole
    assert part.label == "whole"


def test_the_first_and_the_last_row_are_always_included():
    node = operator_node("Gemm", ["A", "B"])
    (part,) = parts_of(node, [(1000, 8), (8, 1000)], (1000, 1000), 1e4 * checking.LIMIT_FLOPS)
    assert {0, 999} <= set(part.output[-2].tolist())


def test_an_operator_without_a_rule_is_compared_completely():
    node = operator_node("Relu", ["X"])
    (part,) = parts_of(node, [(10, 10)], (10, 10), math.inf)
    assert part.whole


@pytest.mark.parametrize(("size", "checked"), [(1e-41, False), (1e-30, True)])
def test_results_that_are_all_subnormal_are_not_checked(reference, size, checked):
    a, b = np.full((3, 4), size, np.float32), np.ones((4, 2), np.float32)
    results = Results([a, b], [np.zeros((3, 2), np.float32) if size < 1e-38 else a @ b])
    found = check(operator_node("MatMul", ["a", "b"]), results, None, reference)
    assert found.checked.startswith("not checked") is not checked
    assert not found.wrong


@pytest.mark.parametrize(("dtype", "wrong"), [("float16", True), ("float32", False), ("float64", True)])
def test_a_result_of_another_type_than_its_inputs_is_wrong(reference, dtype, wrong):
    x = np.linspace(-1, 1, 12, dtype=np.float32)
    results = Results([x], [np.tanh(x.astype(np.float64)).astype(dtype)])
    found = check(operator_node("Tanh", ["x"]), results, None, reference)
    assert (f"is {dtype}, expected float32" in found.wrong) is wrong


def test_a_gradient_of_a_coarser_type_than_its_input_is_wrong(reference):
    x, given = np.linspace(-1, 1, 12, dtype=np.float32), np.ones(12, np.float32)
    results = Results([x], [np.tanh(x)], [(1 - np.tanh(x) ** 2).astype(np.float16)], [given])
    assert "gradient of 'x' is float16" in check(operator_node("Tanh", ["x"]), results, None, reference).wrong


def test_a_type_that_the_operator_chooses_is_no_other_one(reference):
    x = np.linspace(-1, 1, 12, dtype=np.float32)
    results = Results([x], [x.astype(np.float16)])
    assert not check(operator_node("Cast", ["x"], to=10), results, None, reference).wrong


def cancelling(seed):
    """Two vectors of float32 whose product is far smaller than its terms, in float32 by two orders of summation."""
    random = np.random.default_rng(seed)
    a, b = random.standard_normal((2, 6)).astype(np.float32)
    b[-1] = -np.dot(a[:-1].astype(np.float64), b[:-1].astype(np.float64)) / a[-1] * (1 + 1e-4)
    terms = a * b
    return [a, b], [np.asarray(np.add.reduce(terms)), np.asarray(terms[::-1].cumsum(dtype=np.float32)[-1])]


def test_terms_that_cancel_accuse_no_order_of_summation(reference):
    node = operator_node("MatMul", ["a", "b"])
    for seed in range(100):
        inputs, sums = cancelling(seed)
        assert [check(node, Results(inputs, [each]), 12.0, reference).wrong for each in sums] == ["", ""]


def test_terms_that_cancel_excuse_no_lower_precision(reference):
    node = operator_node("MatMul", ["a", "b"])
    caught = 0
    for seed in range(100):
        inputs, _ = cancelling(seed)
        rounded = [(each.view(np.uint32) & 0xFFFFE000).view(np.float32) for each in inputs]
        found = np.asarray(np.dot(*rounded))
        caught += bool(check(node, Results(inputs, [found]), 12.0, reference).wrong)
    assert caught >= 95


def test_a_gradient_whose_terms_cancel_is_not_accused(reference):
    node = operator_node("MatMul", ["a", "b"])
    for seed in range(50):
        (given, b), sums = cancelling(seed)
        a, b, given = np.ones((1, 1), np.float32), b[None], given[None]
        for each in sums:
            results = Results([a, b], [a @ b], [each.reshape(1, 1), a.T @ given], [given])
            assert check(node, results, 12.0, reference).wrong == ""
