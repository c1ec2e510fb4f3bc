"""What JAX's executor cannot do, or nobody can mean, is refused with what to do."""

import numpy as np
import pytest
from tests.frameworks.jax.networks import MODES, given, tiny

from levelbench.errors import UnknownNameError, UnsupportedError, UsageError
from levelbench.networks import Draw, GraphBuilder


def test_fused_operators_are_not_timed_and_the_error_says_which_mode_can(backend):
    network = tiny()
    with pytest.raises(UnsupportedError, match=r"XLA fuses them\. Use mode eager"):
        backend.executor(network).operator_times(given(backend, network)[0])


def values_in_shapes():
    g = GraphBuilder("values")
    found = g.node("NonZero", g.input("x", ["n"]))
    g.output(found, "y")
    return g.build()


def test_a_shape_that_depends_on_values_runs_eagerly_and_is_refused_when_compiled(backend):
    x = backend.array(np.array([0, 1, 0, 2], np.float32))
    assert np.asarray(backend.executor(values_in_shapes(), mode="eager").infer(x)[0]).tolist() == [[1, 3]]
    with pytest.raises(UnsupportedError, match=r"depends on values.*Use mode eager"):
        backend.executor(values_in_shapes(), mode="jit").infer(x)


def test_an_unknown_mode_lists_those_there_are(backend):
    with pytest.raises(UnknownNameError, match="eager, jit"):
        backend.executor(tiny(), mode="compiled")


def test_what_cannot_be_meant_is_refused(backend):
    network = tiny()
    executor, inputs = backend.executor(network), given(backend, network)
    with pytest.raises(UsageError, match="no forward pass"):
        executor.backward()
    with pytest.raises(UsageError, match="only infers"):
        backend.executor(network, trains=False).forward(*inputs)
    with pytest.raises(UsageError, match=r"it is \(36, 3\), and the new array \(2,\)"):
        executor.parameters["weight"] = np.zeros(2, np.float32)
    with pytest.raises(UnknownNameError, match=r"parameter 'wieght'.*close: weight"):
        executor.parameters["wieght"] = np.zeros(2, np.float32)
    with pytest.raises(UsageError, match="the network needs it"):
        del executor.parameters["weight"]


def test_training_without_a_loss_is_refused(backend):
    with pytest.raises(UsageError, match="it has no loss"):
        backend.executor(values_in_shapes()).forward(backend.array(np.zeros(2, np.float32)))


@MODES
def test_a_call_with_too_few_or_too_many_inputs_is_told_which_there_are(backend, mode):
    network = tiny()
    executor, (x, labels) = backend.executor(network, mode=mode), given(backend, network)
    for inputs in [(), (x, labels)]:
        with pytest.raises(UsageError, match=rf"there are 1 \(x\), and {len(inputs)} were given"):
            executor.infer(*inputs)
    for inputs in [(x,), (x, labels, labels)]:
        with pytest.raises(UsageError, match=rf"there are 2 \(x, labels\), and {len(inputs)} were given"):
            executor.forward(*inputs)


def test_an_inference_timed_with_too_few_inputs_is_told_which_there_are(backend):
    with pytest.raises(UsageError, match=r"there are 1 \(x\), and 0 were given"):
        backend.executor(tiny(), mode="eager").operator_times()


def test_a_shape_that_depends_on_a_trained_value_is_refused_without_advice_to_use_the_mode_in_use(backend):
    g = GraphBuilder("counted")
    weight = g.parameter("w", [], Draw("constant", 3.0))
    counted = g.node("Range", g.constant(np.float32(0)), weight, g.constant(np.float32(1)))
    g.output(g.node("Mul", g.input("x", ["batch", 1]), counted), "y")
    network = g.build().with_loss("mse")
    x, targets = (backend.array(np.ones((2, size), np.float32)) for size in (1, 3))
    with pytest.raises(UnsupportedError, match=r"in mode 'eager': .*Use numpy or torch") as refused:
        backend.executor(network, mode="eager").forward(x, targets)
    assert "compiled" not in str(refused.value)
    with pytest.raises(UnsupportedError, match=r"compiled as a whole.*Use mode eager"):
        backend.executor(network, mode="jit").forward(x, targets)


def test_parameters_can_be_replaced_by_or_but_not_removed(backend):
    parameters = backend.executor(tiny()).parameters
    parameters |= {"weight": np.zeros((36, 3))}
    assert not np.any(np.asarray(parameters["weight"]))
    with pytest.raises(UsageError, match="the network needs it"):
        parameters.pop("weight")
