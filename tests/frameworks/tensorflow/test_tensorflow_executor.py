"""TensorFlow's executor computes the same as the reference, eager, as a graph and compiled by XLA."""

import os
import subprocess
import sys

import numpy as np
import pytest
from tests.frameworks.jax.networks import HE, build, close, given, tiny

from levelbench.errors import DefinitionError, UnsupportedError, UsageError
from levelbench.frameworks.numpy import framework as numpy_framework
from levelbench.frameworks.tensorflow import greetings_held_back
from levelbench.networks import GraphBuilder
from levelbench.networks.native import NativeModel
from levelbench.networks.network import Network
from levelbench.training.optimizers import SGD, Adam, Momentum

MODES = pytest.mark.parametrize("mode", ["compiled", "eager", "xla"])


@MODES
def test_outputs_are_those_of_the_reference(backend, mode):
    network = build()
    x, _ = network.make_inputs(4, seed=1).values()
    (found,) = backend.executor(network, mode=mode).infer(backend.array(x))
    close(found, numpy_framework.open("cpu").executor(network).infer(x)[0])


@MODES
@pytest.mark.parametrize("training", [False, True])
def test_loss_gradients_and_buffers_are_those_of_the_reference(backend, mode, training):
    network = build().training() if training else build()
    ours, reference = backend.executor(network, mode=mode), numpy_framework.open("cpu").executor(network)
    loss, gradients = ours.infer_and_backprop(*given(backend, network))
    wanted, expected = reference.infer_and_backprop(*network.make_inputs(4, seed=1).values())
    close(loss, wanted)
    assert set(gradients) == set(expected)
    for name, each in expected.items():
        close(gradients[name], each, 1e-3)
    for name in ours.buffers:
        close(ours.buffers[name], reference.buffers[name])


# A graph keeps channels last; what follows a convolution sees them in ONNX's order all the same.
AFTER_A_CONVOLUTION = {
    "another": lambda g, y: g.node("Add", y, g.node("Relu", y)),
    "channels": lambda g, y: g.node("Mul", y, g.constant(np.arange(4, dtype="f4").reshape(4, 1, 1))),
    "rows": lambda g, y: g.node("Sub", g.constant(np.arange(6, dtype="f4").reshape(1, 1, 6, 1)), y),
    "columns": lambda g, y: g.node("Div", y, g.constant(np.arange(1, 7, dtype="f4"))),
    "a number": lambda g, y: g.node("Add", g.constant(np.float32(2)), y),
    "an axis more": lambda g, y: g.node("Add", y, g.constant(np.arange(3, dtype="f4").reshape(3, 1, 1, 1, 1))),
    "square": lambda g, y: g.node("Tanh", g.node("Add", y, g.node("Transpose", y, perm=[0, 1, 3, 2]))),
    "bounds": lambda g, y: g.node("Clip", y, g.constant(np.float32(-0.2)), g.constant(np.float32(0.3))),
    "means": lambda g, y: g.node("Mul", y, g.node("GlobalAveragePool", y)),
    "means of all": lambda g, y: g.node("ReduceMean", y, g.constant([0, 2, 3]), keepdims=0),
    "means of channels": lambda g, y: g.node("ReduceMean", y, g.constant([-3]), keepdims=1),
}


@pytest.mark.parametrize("after", AFTER_A_CONVOLUTION.values(), ids=AFTER_A_CONVOLUTION)
def test_what_follows_a_convolution_in_a_graph_sees_its_axes_in_order(backend, after):
    g = GraphBuilder("ordered")
    y = g.node("Conv", g.input("x", ["batch", 2, 6, 6]), g.parameter("w", [4, 2, 3, 3], HE), pads=[1, 1, 1, 1])
    g.output(after(g, y), "y")
    network = g.build()
    (x,) = network.make_inputs(3, seed=1).values()
    (found,) = backend.executor(network).infer(backend.array(x))
    close(found, numpy_framework.open("cpu").executor(network).infer(x)[0])


@MODES
def test_a_parameter_that_the_loss_does_not_read_has_a_gradient_of_zeros(backend, mode):
    network = tiny()
    _, gradients = backend.executor(network, mode=mode).infer_and_backprop(*given(backend, network))
    assert backend.host(gradients["unread"]).tolist() == [0, 0, 0]


@MODES
def test_a_parameter_that_is_replaced_takes_effect_at_the_next_call(backend, mode):
    network = tiny()
    executor, (x, labels) = backend.executor(network, mode=mode), given(backend, network)
    loss = executor.forward(x, labels)
    executor.parameters["weight"] -= 0.1 * executor.backward()["weight"]
    assert executor.forward(x, labels) < loss
    executor.parameters["weight"] = np.zeros((36, 3))
    assert not np.any(backend.host(executor.infer(x)[0]))
    assert executor.parameters["weight"].dtype == np.float32


@MODES
@pytest.mark.parametrize("rule", [SGD(0.05), Momentum(0.02, nesterov=True), Adam(0.005)])
def test_an_update_rule_lowers_the_loss_and_stays_in_float32(backend, mode, rule):
    network = tiny().training()
    executor, inputs = backend.executor(network, mode=mode), given(backend, network)
    stepper, losses = rule.start(backend, executor.parameters), []
    for step in range(1, 6):
        losses.append(float(executor.forward(*inputs)))
        stepper.step(executor.backward(), step, 1.0)
    assert losses[-1] < losses[0]
    assert {str(each.dtype) for each in executor.parameters.values()} == {"float32"}


@MODES
def test_a_network_of_float64_computes_in_float64(backend, mode):
    g = GraphBuilder("double")
    weight = g.parameter("w", [3, 2], HE, dtype="float64")
    g.output(g.node("MatMul", g.input("x", ["batch", 3], "float64"), weight), "y")
    network = g.build().with_loss("mse")
    x, targets = network.make_inputs(5).values()
    executor = backend.executor(network, mode=mode)
    loss, gradients = executor.infer_and_backprop(backend.array(x), backend.array(targets))
    difference = x @ network.initialise()["w"] - targets
    close(loss, np.mean(difference**2), 1e-12)
    close(gradients["w"], 2 * x.T @ difference / difference.size, 1e-12)


@pytest.mark.parametrize("mode", ["compiled", "eager"])
def test_dropout_follows_the_seed_and_differs_from_call_to_call(backend, mode):
    network = tiny(dropout=True).training()
    executor, inputs = backend.executor(network, mode=mode), given(backend, network)
    backend.seed(5)
    first = [float(executor.forward(*inputs)) for _ in range(3)]
    backend.seed(5)
    assert [float(executor.forward(*inputs)) for _ in range(3)] == first
    assert len(set(first)) == 3


def test_draws_continue_from_their_state(backend):
    network = tiny(dropout=True).training()
    executor, inputs = backend.executor(network), given(backend, network)
    state = backend.draws()
    drawn = float(executor.forward(*inputs))
    backend.restore_draws(state)
    assert float(executor.forward(*inputs)) == drawn


@MODES
def test_one_executor_takes_any_batch(backend, mode):
    network = build()
    executor = backend.executor(network, mode=mode)
    for batch in (1, 3):
        assert executor.infer(given(backend, network, batch)[0])[0].shape == (batch, 3)


@pytest.fixture
def pooled():
    """More channels come out of the convolution than go in, so that a search for NaN looks at what goes in."""
    g = GraphBuilder("pooled")
    weight, bias = g.parameter("w", [8, 1, 3, 3], HE), g.parameter("b", [8], HE)
    y = g.node("Relu", g.node("Conv", g.input("x", ["batch", 1, 8, 8]), weight, bias, pads=[1, 1, 1, 1]))
    y = g.node("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    y = g.node("Conv", y, g.parameter("v", [8, 8, 3, 3], HE), g.parameter("c", [8], HE), pads=[1, 1, 1, 1])
    y = g.node("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    g.output(g.node("Softmax", g.node("Flatten", y)), "y")
    return g.build()


@MODES
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30], ids=str)
@pytest.mark.parametrize("where", ["x", "w", "b", "v", "c"])
def test_what_is_not_finite_shows_where_the_reference_has_it_and_only_in_that_call(backend, mode, pooled, where, value):
    (x,) = pooled.make_inputs(16, seed=1).values()
    ours, reference = backend.executor(pooled, mode=mode), numpy_framework.open("cpu").executor(pooled)
    held = {each: np.array(reference.parameters[each]) for each in "wbvc"} | {"x": x}
    spoiled = held[where].copy()
    spoiled.flat[2:4] = value
    with np.errstate(all="ignore"):
        for each in (held[where], spoiled, held[where]):
            (given,) = [each] if where == "x" else [x]
            if where != "x":
                ours.parameters[where], reference.parameters[where] = backend.array(each), each
            (found,) = ours.infer(backend.array(given))
            np.testing.assert_allclose(found, reference.infer(given)[0], rtol=1e-4, atol=1e-6)


@MODES
def test_nan_of_a_convolution_shows_where_the_one_before_it_overflows(backend, mode, pooled):
    ours, reference = backend.executor(pooled, mode=mode), numpy_framework.open("cpu").executor(pooled)
    x = np.full((16, 1, 8, 8), 1e25, np.float32)
    for name in "wv":
        values = np.full_like(np.array(reference.parameters[name]), 1e25)
        values[::2] *= -1 if name == "w" else 1
        values[:, :4] *= 1e-25 if name == "v" else 1
        ours.parameters[name], reference.parameters[name] = backend.array(values), values
    with np.errstate(all="ignore"):
        expected = reference.infer(x)[0]
    assert np.isnan(expected).all()
    np.testing.assert_array_equal(ours.infer(backend.array(x))[0], expected)


@MODES
def test_nan_is_kept_by_maxima(backend, mode):
    g = GraphBuilder("maxima")
    x, zero = g.input("x", ["batch", 37]), g.constant(np.zeros(1, np.float32))
    g.output(g.node("ReduceMax", g.node("Max", zero, x), keepdims=0), "y")
    values = np.zeros((2, 37), np.float32)
    values[0, 30] = np.nan
    (found,) = backend.executor(g.build(), mode=mode).infer(backend.array(values))
    assert np.isnan(backend.host(found)).all()


@MODES
def test_a_call_that_is_repeated_for_nan_draws_once(backend, mode):
    g = GraphBuilder("dropped")
    y = g.node("Conv", g.input("x", ["batch", 1, 8, 8]), g.parameter("w", [8, 1, 3, 3], HE))
    y = g.node("Flatten", g.node("MaxPool", y, kernel_shape=[2, 2]))
    y = g.node("Dropout", y, g.constant(np.float32(0.5)), g.constant(np.bool_(True)))
    g.output(g.node("MatMul", y, g.parameter("v", [200, 3], HE)), "y")
    executor, state = backend.executor(g.build(), mode=mode), []
    for value in (1.0, np.nan):
        backend.seed(3)
        (found,) = executor.infer(backend.array(np.full((2, 1, 8, 8), value, np.float32)))
        assert np.isnan(backend.host(found)).any() == np.isnan(value)
        state.append(backend.draws())
    np.testing.assert_array_equal(*state)


def test_a_function_is_no_keras_model(backend):
    with pytest.raises(DefinitionError, match="it is a function"):
        backend.native(NativeModel("mine", "jax", lambda x: x))


def test_each_operator_is_timed_in_eager_mode(backend):
    network = build()
    times = backend.executor(network, mode="eager").operator_times(given(backend, network)[0], repeats=3)
    assert [network.nodes[each.index].op_type for each in times] == [each.title for each in times]
    assert all(len(each.times_s) == 3 and min(each.times_s) > 0 for each in times)


def test_a_graph_is_not_timed_by_operator(backend):
    network = build()
    with pytest.raises(UnsupportedError, match="eager"):
        backend.executor(network).operator_times(given(backend, network)[0])


def test_a_wrong_number_of_inputs_is_said(backend):
    with pytest.raises(UsageError, match="there are 1"):
        backend.executor(tiny()).infer()


def test_a_shape_that_depends_on_values_is_refused_in_a_graph_and_not_in_eager_mode(backend):
    from onnx import parser

    network = Network(
        parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]> g (float[N] x) => (float[M] y)
        { n = NonZero(x) s = Shape(n) y = ConstantOfShape(s) }""")
    )
    x = backend.array(np.array([0, 1, 2], np.float32))
    assert backend.executor(network, mode="eager").infer(x)[0].shape == (1, 2)
    with pytest.raises(UnsupportedError, match="mode eager"):
        backend.executor(network).infer(x)


def test_threads_that_a_variable_of_tensorflow_sets_are_recorded(backend, monkeypatch):
    import tensorflow as tf

    monkeypatch.setattr(tf.config.threading, "get_intra_op_parallelism_threads", lambda: 0)
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "3")
    assert backend.describe()["threads"] == 3


@pytest.mark.slow
def test_opening_tensorflow_writes_nothing_to_standard_error(backend, monkeypatch):
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL")
    code = "from levelbench.operators.frameworks import load_framework; load_framework('tensorflow').open().array"
    assert subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, check=True).stderr == b""


def test_what_is_written_to_standard_error_is_shown_if_the_import_fails(capfd):
    def fail():
        os.write(2, b"no such library")
        raise ImportError

    with pytest.raises(ImportError), greetings_held_back():
        fail()
    assert capfd.readouterr().err == "no such library"
