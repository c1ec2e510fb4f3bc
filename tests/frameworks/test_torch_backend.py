import numpy as np
import pytest

from levelbench.errors import MissingError, UnknownNameError, UnsupportedError
from levelbench.networks import GraphBuilder, zoo


def test_the_mean_of_losses_is_taken_in_double_precision(torch_backend):
    scalars = [torch_backend.array(np.array(value, np.float32)) for value in (1e8, 1.0, 1.0)]
    assert torch_backend.mean(scalars) == pytest.approx((1e8 + 2) / 3, rel=1e-12)


def test_rows_are_taken_at_indices(torch_backend):
    rows = torch_backend.take(torch_backend.array(np.arange(6).reshape(3, 2)), torch_backend.array(np.array([2, 0])))
    assert torch_backend.host(rows).tolist() == [[4, 5], [0, 1]]


def test_a_network_with_an_operator_that_is_not_there_is_refused(torch_backend):
    graph = GraphBuilder("strange")
    strange = graph.node("NoSuchOperator", graph.input("x", (2,)), domain="strange", shape=(2,))
    graph.output(graph.node("Relu", strange))
    with pytest.raises(UnsupportedError, match="NoSuchOperator on torch"):
        torch_backend.executor(graph.build())


def test_a_mode_that_is_not_there_is_refused_with_those_that_are(torch_backend):
    with pytest.raises(UnknownNameError, match="compiled, eager"):
        torch_backend.executor(zoo.mlp(4, 3, 2), mode="jit")


@pytest.mark.parametrize("device", ["cuda:99", "nonsense", "meta"])
def test_a_device_that_is_not_there_is_an_error_that_says_so(device):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from levelbench.frameworks.torch import framework

    with pytest.raises(MissingError, match="device"):
        framework.open(device)


def test_numpy_is_refused_on_another_device_than_the_cpu():
    from levelbench.frameworks.numpy import framework

    with pytest.raises(MissingError, match="cpu only"):
        framework.open("cuda")
