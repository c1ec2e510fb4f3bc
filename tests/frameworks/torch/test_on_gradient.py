"""Gradients of an eager network are reported one by one, as autograd completes them."""

import pytest

torch = pytest.importorskip("torch")

from levelbench.distributed.schemes.all_reduce import ready_order  # noqa: E402
from levelbench.networks import Builder, zoo  # noqa: E402
from levelbench.networks.builder import GraphBuilder  # noqa: E402
from levelbench.networks.native import NativeModel  # noqa: E402
from levelbench.networks.values import Draw  # noqa: E402
from levelbench.operators.frameworks import load_framework  # noqa: E402


def made(network, **options):
    network = network.with_loss().training()
    backend = load_framework("torch").open()
    executor = backend.executor(network, network.initialise(0), **options)
    return executor, [backend.array(each) for each in network.make_inputs(3).values()]


def convolutional():
    return Builder("cnn", (1, 6, 6)).conv(4, 3).relu().flatten().gemm(5).relu().gemm(3).build()


def tied():
    """``shared`` is used twice, ``unused`` only in an output that the loss does not depend on."""
    graph = GraphBuilder("tied")
    value = graph.input("input", ("batch", 4))
    shared = graph.parameter("shared", (4, 4), Draw("normal", 0.5))
    unused = graph.parameter("unused", (4, 4), Draw("normal", 0.5))
    for _ in range(2):
        value = graph.node("Tanh", graph.node("Gemm", value, shared))
    graph.output(value, "logits")
    graph.output(graph.node("Gemm", value, unused), "other")
    return graph.build()


def heard(executor, inputs):
    """Names and gradients in the order in which they were reported, and the result of backward."""
    told = []

    assert executor.on_gradient(lambda name, gradient: told.append((name, gradient)))
    executor.forward(*inputs)
    return told, executor.backward()


@pytest.mark.parametrize(
    "network", [zoo.mlp(4, 8, 3), convolutional(), zoo.build("lenet5")], ids=["mlp", "cnn", "lenet"]
)
def test_layers_are_reported_from_the_last_to_the_first(network):
    executor, inputs = made(network)
    told, gradients = heard(executor, inputs)
    layers = [name.rpartition(".")[0] for name, _ in told]
    assert layers == [name.rpartition(".")[0] for name in ready_order(executor)]
    assert {name for name, _ in told} == gradients.keys()


def test_what_is_told_is_what_backward_returns():
    executor, inputs = made(convolutional())
    told, gradients = heard(executor, inputs)
    assert all(gradients[name] is gradient for name, gradient in told)


def test_the_first_is_reported_before_the_others_are_there():
    executor, inputs = made(convolutional())
    told = []

    def stop(name, gradient):
        told.append(name)
        raise KeyboardInterrupt

    executor.on_gradient(stop)
    executor.forward(*inputs)
    with pytest.raises(KeyboardInterrupt):
        executor.backward()
    assert told == ["layer2.bias"] or told == ["layer2.weight"]


def test_after_an_error_gradients_are_reported_again():
    executor, inputs = made(convolutional())
    expected = executor.infer_and_backprop(*inputs)[1]
    executor.on_gradient(lambda name, gradient: 1 / 0)
    executor.forward(*inputs)
    with pytest.raises(ZeroDivisionError):
        executor.backward()
    told, gradients = heard(executor, inputs)
    assert len(told) == len(expected)
    for name, gradient in expected.items():
        torch.testing.assert_close(gradients[name], gradient, rtol=0, atol=0)


def test_a_parameter_used_twice_is_reported_once_with_the_sum():
    executor, inputs = made(tied())
    expected = executor.infer_and_backprop(*inputs)[1]
    told, gradients = heard(executor, inputs)
    assert [name for name, _ in told] == ["shared"]
    torch.testing.assert_close(told[0][1], expected["shared"], rtol=0, atol=0)
    assert not gradients["unused"].any()


def test_nothing_is_reported_after_it_has_ended():
    executor, inputs = made(convolutional())
    told, _ = heard(executor, inputs)
    count = len(told)
    executor.on_gradient(None)
    executor.infer_and_backprop(*inputs)
    assert len(told) == count


def test_another_callback_takes_the_place_of_the_first():
    executor, inputs = made(convolutional())
    first, _ = heard(executor, inputs)
    count = len(first)
    second, _ = heard(executor, inputs)
    assert len(first) == len(second) == count


def test_an_executor_that_is_not_trained_tells_nothing():
    network = convolutional()
    executor = load_framework("torch").open().executor(network, network.initialise(0), trains=False)
    assert not executor.on_gradient(lambda name, gradient: None)


def test_numpy_tells_nothing_before_the_end():
    network = convolutional().with_loss()
    executor = load_framework("numpy").open().executor(network, network.initialise(0))
    assert not executor.on_gradient(lambda name, gradient: None)


class Shared(torch.nn.Module):
    """One layer used twice, one frozen layer, and one unused layer."""

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(4, 4), torch.nn.Linear(4, 3)
        self.frozen, self.idle = torch.nn.Linear(4, 4).requires_grad_(requires_grad=False), torch.nn.Linear(2, 2)

    def forward(self, value):
        return self.last(self.first(self.frozen(self.first(value)).tanh()))


def native(module):
    torch.manual_seed(0)
    backend = load_framework("torch").open()
    return backend.native(NativeModel("module", "torch", module())), [torch.randn(5, 4), torch.arange(5) % 3]


def test_a_native_module_reports_what_backward_returns_as_autograd_comes_to_it():
    executor, inputs = native(Shared)
    told, gradients = heard(executor, inputs)
    assert {name for name, _ in told[:2]} == {"last.weight", "last.bias"}
    assert {name for name, _ in told[2:]} == {"first.weight", "first.bias"}
    assert len(told) == 4
    assert all(gradients[name] is gradient for name, gradient in told)
    expected = native(Shared)[0].infer_and_backprop(*inputs)[1]
    for name, gradient in told:
        torch.testing.assert_close(gradient, expected[name], rtol=0, atol=0)


def test_a_native_module_tells_nothing_any_more_once_it_is_ended():
    executor, inputs = native(Shared)
    told, _ = heard(executor, inputs)
    count = len(told)
    executor.on_gradient(None)
    executor.infer_and_backprop(*inputs)
    assert len(told) == count
