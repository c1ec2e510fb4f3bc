"""The times of operators in a training step: every operator once, forward and backward, and nothing is changed."""

import numpy as np
import pytest

from levelbench.errors import UnsupportedError
from levelbench.networks import zoo
from levelbench.operators.frameworks import open_framework

REPEATS = 3


def prepared(framework, mode=None):
    if framework != "numpy":
        pytest.importorskip(framework)
    backend = open_framework(framework, "cpu")
    network = zoo.mlp(16, 8, 4).with_loss("cross-entropy")
    executor = backend.executor(network, network.initialise(0), mode=mode)
    return backend, executor, [backend.array(each) for each in network.make_inputs(4, 0, {}).values()]


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_each_operator_has_a_time_in_both_passes(framework):
    _, executor, inputs = prepared(framework)
    forward, backward = executor.step_times(*inputs, repeats=REPEATS)
    titles = ["Gemm", "Relu", "Gemm", "SoftmaxCrossEntropyLoss"]
    for times in (forward, backward):
        assert [each.title for each in times] == titles
        assert [each.index for each in times] == sorted({each.index for each in times})
        assert all(len(each.times_s) == REPEATS and min(each.times_s) > 0 for each in times)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_parameters_and_later_gradients_are_as_without(framework):
    backend, executor, inputs = prepared(framework)
    _, other, _ = prepared(framework)
    executor.step_times(*inputs)
    for name, value in other.parameters.items():
        np.testing.assert_array_equal(backend.host(executor.parameters[name]), backend.host(value))
    gradients, expected = executor.infer_and_backprop(*inputs)[1], other.infer_and_backprop(*inputs)[1]
    for name in expected:
        np.testing.assert_array_equal(backend.host(gradients[name]), backend.host(expected[name]))


def test_the_modules_of_a_model_of_torchs_own_have_times_too():
    torch = pytest.importorskip("torch")
    from levelbench.networks.native import NativeModel

    backend = open_framework("torch", "cpu")
    module = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    executor = backend.native(NativeModel("torch", "mine", module, ()))
    inputs = [torch.zeros(4, 16), torch.zeros(4, dtype=torch.int64)]
    forward, backward = executor.step_times(*inputs, repeats=REPEATS)
    assert [each.title for each in forward] == ["Linear", "ReLU", "Linear"]
    assert [each.output for each in backward] == ["0", "1", "2"]


def test_a_fused_step_is_refused():
    _, executor, inputs = prepared("torch", "compiled")
    with pytest.raises(UnsupportedError, match="fuses"):
        executor.step_times(*inputs)
