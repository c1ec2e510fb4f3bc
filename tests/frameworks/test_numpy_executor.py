import numpy as np
import pytest

from levelbench.errors import UnknownNameError, UsageError
from levelbench.networks import Draw, GraphBuilder


def build(loss=True):
    """A linear layer and, with ``loss``, its distance from targets."""
    g = GraphBuilder("tiny")
    weight, bias = g.parameter("w", [2, 2], Draw("normal", 1.0)), g.parameter("bias", [2], Draw("constant", 0.0))
    g.output(g.node("Gemm", g.input("x", ["batch", 2]), weight, bias), "y")
    return g.build().with_loss("mse") if loss else g.build()


X = np.ones((3, 2), np.float32)


def test_a_parameter_that_is_replaced_takes_effect_at_once(numpy_backend):
    executor = numpy_backend.executor(build())
    executor.parameters.update({"w": np.zeros((2, 2)), "bias": np.ones(2)})
    (y,) = executor.infer(X)
    assert y.tolist() == [[1, 1]] * 3
    assert executor.parameters["w"].dtype == y.dtype == np.float32


def test_a_parameter_of_another_shape_or_name_is_refused(numpy_backend):
    parameters = numpy_backend.executor(build()).parameters
    with pytest.raises(UsageError, match=r"it is \(2, 2\), and the new array \(1,\)"):
        parameters["w"] = np.ones(1)
    with pytest.raises(UnknownNameError, match="parameter 'v'"):
        parameters["v"] = np.ones(1)
    with pytest.raises(UsageError, match="the network needs it"):
        del parameters["w"]


@pytest.mark.parametrize("given", [[], [X, X]], ids=["none", "two"])
def test_an_inference_with_too_few_or_too_many_inputs_reports_the_expected_ones(numpy_backend, given):
    with pytest.raises(UsageError, match=rf"there are 1 \(x\), and {len(given)} were given"):
        numpy_backend.executor(build()).infer(*given)


@pytest.mark.parametrize("count", [1, 3])
def test_a_forward_with_too_few_or_too_many_inputs_reports_the_expected_ones(numpy_backend, count):
    with pytest.raises(UsageError, match=rf"there are 2 \(x, targets\), and {count} were given"):
        numpy_backend.executor(build()).forward(*[X] * count)


def test_a_failure_with_the_right_number_of_inputs_is_numpy_s_own(numpy_backend):
    with pytest.raises(ValueError, match="matmul"):
        numpy_backend.executor(build()).infer(np.ones((3, 5), np.float32))


@pytest.mark.parametrize("framework", ["numpy", "torch", "jax", "onnxruntime"])
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"w": None}, "missing: w"),
        ({"bias": None, "bais": np.ones(2)}, r"parameter 'bais'.*close: bias"),
        ({"w": np.ones(7)}, r"'w' is \(2, 2\), and the array for it \(7,\)"),
    ],
    ids=["missing", "misspelt", "shape"],
)
def test_no_framework_starts_from_parameters_that_are_not_the_network_s(framework, changes, says):
    pytest.importorskip(framework)
    from levelbench.operators.frameworks import open_framework

    network = build(loss=False)
    given = {name: each for name, each in (network.initialise() | changes).items() if each is not None}
    with pytest.raises(UsageError, match=says):
        open_framework(framework, "cpu").executor(network, given)
