import numpy as np
import pytest

from levelbench.errors import UnsupportedError
from levelbench.operators.node import CUSTOM_DOMAIN, OperatorNode, operator_node

pytest.importorskip("onnxruntime")


def numbers(*shape, dtype=np.float32):
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def run(backend, operator, *inputs):
    return [backend.host(each) for each in operator.forward(*inputs)]


def test_an_operator_takes_inputs_of_any_shape(backend):
    operator = backend.operator(operator_node("MatMul"))
    for m, n in ((2, 3), (5, 4), (1, 1)):
        a, b = numbers(m, n), numbers(n, 2)
        np.testing.assert_allclose(run(backend, operator, backend.array(a), backend.array(b))[0], a @ b, rtol=1e-5)
    a, b = numbers(3, 2, 4), numbers(3, 4, 5)
    np.testing.assert_allclose(run(backend, operator, backend.array(a), backend.array(b))[0], a @ b, rtol=1e-5)


def test_an_operator_takes_inputs_of_any_type_in_any_order_of_calls(backend):
    operator = backend.operator(operator_node("Add"))
    for dtype in (np.float32, np.float64, np.int64, np.float32, np.int64):
        a = np.arange(3).astype(dtype)
        (found,) = run(backend, operator, backend.array(a), backend.array(a))
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, a + a)


def test_a_structural_input_may_change_between_calls_however_often(backend):
    operator = backend.operator(operator_node("Reshape", ["x", "shape"]))
    x = numbers(64)
    for rows in (*range(1, 65), 1, 2):
        if 64 % rows == 0:
            assert run(backend, operator, backend.array(x), np.array([rows, -1]))[0].shape == (rows, 64 // rows)
    sliced = backend.operator(operator_node("Slice", ["x", "starts", "ends"]))
    for start in range(60):
        (found,) = run(backend, sliced, backend.array(x), np.array([start]), np.array([start + 4]))
        np.testing.assert_array_equal(found, x[start : start + 4])


def test_sessions_for_structural_inputs_stay_few(backend):
    operator = backend.operator(operator_node("Slice", ["x", "starts", "ends"]))
    x = backend.array(numbers(64))
    for start in range(60):
        operator.forward(x, np.array([start]), np.array([64]))
    assert len(operator._ready) <= 17


def test_an_operator_on_structural_inputs_only_is_computed_at_each_call(backend):
    operator = backend.operator(operator_node("Range"))
    found = [run(backend, operator, *(np.array(each) for each in given))[0] for given in ((0, 5, 1), (3, 9, 2))]
    np.testing.assert_array_equal(found[0], np.arange(5))
    np.testing.assert_array_equal(found[1], np.arange(3, 9, 2))
    (ready,) = operator._ready.values()
    assert ready.fed == (0, 1, 2)


def test_an_optional_input_is_left_out_by_none_or_by_giving_fewer(backend):
    operator = backend.operator(operator_node("Clip", ["x", "low", "high"]))
    x, high = numbers(20), np.float32(0.5)
    native = backend.array(x), backend.array(np.array(high))
    np.testing.assert_array_equal(run(backend, operator, native[0], None, native[1])[0], np.minimum(x, high))
    np.testing.assert_array_equal(run(backend, operator, native[0])[0], x)
    np.testing.assert_array_equal(run(backend, operator, native[0], native[1], None)[0], np.maximum(x, high))
    np.testing.assert_array_equal(run(backend, operator, native[0], None, native[1])[0], np.minimum(x, high))


def test_an_output_that_the_node_does_not_name_is_none(backend):
    node = operator_node("LSTM", ["X", "W", "R"], ["", "Y_h", "Y_c"], hidden_size=2)
    inputs = [backend.array(numbers(*shape)) for shape in ((3, 1, 4), (1, 8, 4), (1, 8, 2))]
    everything, last, cell = backend.operator(node).forward(*inputs)
    assert everything is None
    assert backend.host(last).shape == backend.host(cell).shape == (1, 1, 2)


def test_several_outputs_come_in_the_order_of_the_node(backend):
    operator = backend.operator(operator_node("TopK", ["x", "k"], ["values", "indices"]))
    values, indices = run(backend, operator, backend.array(np.array([3, 1, 2], np.float32)), np.array([2]))
    np.testing.assert_array_equal(values, [3, 2])
    np.testing.assert_array_equal(indices, [0, 2])


def test_an_operator_reads_the_arrays_memory_at_the_time_of_the_call(backend):
    array = np.ones(4, np.float32)
    value = backend.array(array)
    operator = backend.operator(operator_node("Neg"))
    assert value.data_ptr() == array.ctypes.data
    array[:] = 5
    np.testing.assert_array_equal(run(backend, operator, value)[0], -array)


@pytest.mark.parametrize("op_type", ["Identity", "Reshape", "Relu"])
def test_an_output_does_not_share_the_memory_of_an_input(backend, op_type):
    array = np.ones((2, 3), np.float32)
    names, rest = (["x", "shape"], [np.array([3, 2])]) if op_type == "Reshape" else (["x"], [])
    (found,) = backend.operator(operator_node(op_type, names)).forward(backend.array(array), *rest)
    array[:] = 7
    assert (backend.host(found) == 1).all()


def test_outputs_are_taken_as_inputs_without_a_detour(backend):
    add, neg = backend.operator(operator_node("Add")), backend.operator(operator_node("Neg"))
    x = backend.array(np.ones(4, np.float32))
    (total,) = add.forward(x, x)
    np.testing.assert_array_equal(run(backend, neg, total)[0], np.full(4, -2, np.float32))


def test_the_session_behind_an_operator_can_be_called_by_hand(backend):
    operator = backend.operator(operator_node("Neg"))
    x = backend.array(numbers(3))
    (found,) = operator.session(x).run(None, {"x0": numbers(3)})
    np.testing.assert_array_equal(found, run(backend, operator, x)[0])


def test_a_type_without_a_kernel_is_unsupported(backend):
    operator = backend.operator(operator_node("Max", ["a", "b"]))
    with pytest.raises(UnsupportedError, match="Max on ONNX Runtime: Could not find an implementation"):
        operator.forward(backend.array(np.ones(2, np.int16)), backend.array(np.ones(2, np.int16)))


def test_a_type_that_onnx_does_not_allow_is_unsupported(backend):
    with pytest.raises(UnsupportedError, match="Erf on ONNX Runtime: This is an invalid model"):
        backend.operator(operator_node("Erf")).forward(backend.array(np.ones(2, np.int16)))


def test_an_unknown_operator_is_unsupported(backend):
    node = OperatorNode("Nothing", ("x",), ("y",), {}, "some.where", 1)
    with pytest.raises(UnsupportedError, match="not a registered function/op"):
        backend.operator(node).forward(backend.array(np.ones(2, np.float32)))


def test_a_sequence_is_refused_by_a_single_operator(backend):
    value = backend.array(np.ones(2, np.float32))
    with pytest.raises(UnsupportedError, match="only tensors are supported"):
        backend.operator(operator_node("SequenceLength")).forward([value])


def test_shapes_that_do_not_fit_raise_onnx_runtimes_own_error(backend):
    operator = backend.operator(operator_node("Add"))
    for _ in range(2):
        with pytest.raises(Exception, match="broadcast"):
            operator.forward(backend.array(numbers(2)), backend.array(numbers(3)))
        operator.forward(backend.array(numbers(2)), backend.array(numbers(2)))


def test_gradients_are_refused_with_the_reason(backend):
    operator = backend.operator(operator_node("Relu"))
    x = backend.array(numbers(3))
    outputs, pullback = operator.vjp(x)
    with pytest.raises(UnsupportedError, match="inference only"):
        pullback(*outputs)


def test_equal_seeds_draw_equal_numbers(backend):
    operator = backend.operator(operator_node("RandomNormalLike"))
    x = backend.array(numbers(50))
    draws = []
    for seed in (1, 1, 2):
        backend.seed(seed)
        draws.append(run(backend, operator, x)[0])
    np.testing.assert_array_equal(draws[0], draws[1])
    assert (draws[0] != draws[2]).any()


def test_draws_without_a_new_seed_differ(backend):
    operator = backend.operator(operator_node("RandomNormalLike"))
    x = backend.array(numbers(50))
    assert (run(backend, operator, x)[0] != run(backend, operator, x)[0]).any()


def test_without_the_package_a_custom_operator_is_refused_when_it_is_made(backend, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match="pip install onnxruntime-extensions"):
        backend.operator(OperatorNode("GeluBias", ("x",), ("y",), {}, CUSTOM_DOMAIN, 1))


def test_the_nodes_that_are_executed_instead_of_the_one_asked_for_are_its_algorithm(backend):
    told = {}
    for name in ("HardSwish", "Relu"):
        operator = backend.operator(operator_node(name))
        run(backend, operator, backend.array(numbers(8)))
        told[name] = backend.algorithm(operator, lambda: None)
    assert told["HardSwish"] == ("nodes HardSigmoid, Mul", "")
    assert told["Relu"][0] is None
    assert "not their kernels" in told["Relu"][1]
