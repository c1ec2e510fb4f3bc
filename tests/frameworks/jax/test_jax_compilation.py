"""What is compiled, and how often; structural inputs; random draws."""

import numpy as np
import pytest

from levelbench.errors import UnsupportedError
from levelbench.operators.node import OperatorNode, operator_node


def count(operator):
    """The number of functions compiled for the operator's forward."""
    return sum(each.forward._cache_size() for each in operator._kernel._programs.values())


def test_equal_shapes_are_compiled_once_and_others_again(backend):
    operator = backend.operator(operator_node("LeakyRelu", alpha=0.123))
    x = backend.array(np.ones((2, 3), np.float32))
    for _ in range(3):
        operator.forward(x)
    assert count(operator) == 1
    operator.forward(backend.array(np.ones((4, 3), np.float32)))
    operator.forward(backend.array(np.ones((2, 3), np.float64)))
    assert count(operator) == 3


def test_nodes_that_say_the_same_share_their_compiled_function(backend):
    first, second, other = (
        backend.operator(OperatorNode("Elu", (name,), ("y",), {"alpha": alpha}))
        for name, alpha in (("a", 0.5), ("b", 0.5), ("c", 0.75))
    )
    assert first._kernel is second._kernel
    assert first._kernel is not other._kernel


@pytest.mark.parametrize(("one", "two"), [({"axis": 0}, {"axis": 1}), ({}, {"keepdims": 0})])
def test_attributes_keep_nodes_apart(backend, one, two):
    x = backend.array(np.arange(6.0).reshape(2, 3))
    first, second = (backend.operator(operator_node("ArgMax", **each)).forward(x)[0] for each in (one, two))
    assert first.shape != second.shape


def test_a_structural_input_is_part_of_the_compiled_function(backend):
    operator = backend.operator(operator_node("Reshape"))
    x = backend.array(np.arange(6, dtype=np.float32))
    shape = np.array([2, 3])
    assert operator.forward(x, shape)[0].shape == (2, 3)
    assert operator.forward(x, shape.copy())[0].shape == (2, 3)
    compiled = count(operator)
    shape[:] = 3, 2
    assert operator.forward(x, shape)[0].shape == (3, 2)
    assert count(operator) == compiled + 1


def test_an_optional_structural_input_may_be_left_out(backend):
    operator = backend.operator(OperatorNode("Squeeze", ("x", ""), ("y",)))
    assert operator.forward(backend.array(np.ones((1, 3, 1))), None)[0].shape == (3,)


def test_an_output_whose_size_depends_on_values_is_found_outside_compiled_code(backend):
    operator = backend.operator(operator_node("NonZero"))
    (found,) = operator.forward(backend.array(np.array([[0, 3], [4, 0]])))
    np.testing.assert_array_equal(backend.host(found), [[0, 1], [1, 0]])
    outputs, pullback = operator.vjp(backend.array(np.array([0.0, 2.0])))
    assert outputs[0].shape == (1, 1)
    assert pullback(None) == (None,)


def test_an_output_that_the_node_does_not_name_is_left_out(backend):
    operator = backend.operator(OperatorNode("TopK", ("x", "k"), ("", "indices")))
    values, indices = operator.forward(backend.array(np.array([1.0, 3.0, 2.0])), np.array([2]))
    assert values is None
    np.testing.assert_array_equal(backend.host(indices), [1, 2])


@pytest.mark.parametrize("operator", ["RandomUniform", "RandomNormal"])
def test_the_same_seed_draws_the_same_numbers_and_each_draw_others(backend, operator):
    draw = backend.operator(operator_node(operator, [], shape=[1000]))
    backend.seed(7)
    first, second = (backend.host(draw.forward()[0]) for _ in range(2))
    backend.seed(7)
    again = backend.host(draw.forward()[0])
    np.testing.assert_array_equal(first, again)
    assert (first != second).any()


def test_a_node_with_a_seed_of_its_own_draws_the_same_each_time(backend):
    draw = backend.operator(operator_node("RandomUniform", [], shape=[8], seed=3.0))
    first, second = (backend.host(draw.forward()[0]) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_normal_numbers_have_the_mean_and_scale_that_are_requested(backend):
    backend.seed(0)
    draw = backend.operator(operator_node("RandomNormal", [], shape=[40000], mean=3.0, scale=2.0))
    found = backend.host(draw.forward()[0])
    assert abs(found.mean() - 3) < 5 * 2 / np.sqrt(found.size)
    assert abs(found.std() - 2) < 5 * 2 / np.sqrt(2 * found.size)


def test_a_mode_that_is_not_supported_is_refused(backend):
    with pytest.raises(UnsupportedError, match="Pad"):
        backend.operator(operator_node("Pad", mode="no such mode"))
