"""Networks and native modules on a CUDA device: executed, trained, compiled, and timed between events."""

import warnings
from contextlib import contextmanager

import numpy as np
import pytest

from levelbench.networks import Draw, GraphBuilder, zoo
from levelbench.networks.native import NativeModel
from levelbench.networks.values import Value

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)


@pytest.fixture
def backend():
    from levelbench.frameworks.torch import framework

    return framework.open("cuda")


@pytest.fixture
def reference():
    from levelbench.frameworks.numpy import framework

    return framework.open()


def network():
    """Convolution, normalisation with statistics, shape arithmetic and a Gemm."""
    graph = GraphBuilder("small")
    x = graph.input("x", ("batch", 3, 8, 8))
    y = graph.node("Conv", x, graph.parameter("conv", (4, 3, 3, 3), Draw("normal", 0.3)), pads=[1] * 4)
    drawn = [graph.parameter(name, (4,), Draw("normal", 0.5, 1.0)) for name in ("scale", "bias")]
    kept = [graph.parameter(name, (4,), Draw("constant", 1.0), trainable=False) for name in ("mean", "variance")]
    y = graph.node("Relu", graph.node("BatchNormalization", y, *drawn, *kept))
    rows = graph.node("Gather", graph.node("Shape", y), graph.constant([0]))
    y = graph.node("Reshape", y, graph.node("Concat", rows, graph.constant([-1]), axis=0))
    graph.output(graph.node("Gemm", y, graph.parameter("head", (5, 256), Draw("normal", 0.1)), transB=1), "logits")
    return graph.build()


def native(backend, made, batch):
    return [backend.array(each) for each in made.make_inputs(batch).values()]


@pytest.mark.parametrize("mode", ["eager", "compiled"])
def test_a_training_step_equals_that_of_the_reference(backend, reference, mode):
    made = network().with_loss().training()
    inputs = made.make_inputs(4)
    expected, wanted = reference.executor(made).infer_and_backprop(*inputs.values())
    executor = backend.executor(made, mode=mode)
    loss, gradients = executor.infer_and_backprop(*native(backend, made, 4))
    assert float(loss) == pytest.approx(float(expected), rel=1e-4)
    for name, gradient in gradients.items():
        largest = np.abs(wanted[name]).max()
        np.testing.assert_allclose(backend.host(gradient), wanted[name], rtol=1e-3, atol=1e-3 * largest)
    assert all(each.is_cuda for each in (*executor.parameters.values(), *executor.buffers.values()))


@contextmanager
def refused_waiting():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype", UserWarning)
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_an_inference_never_waits_for_the_device(backend):
    made = network()
    executor = backend.executor(made, trains=False)
    inputs = native(backend, made, 4)
    executor.infer(*inputs)
    with refused_waiting():
        executor.infer(*inputs)


def test_a_training_step_never_waits_for_the_device(backend):
    made = network().with_loss().training()
    executor = backend.executor(made)
    inputs = native(backend, made, 4)
    executor.infer_and_backprop(*inputs)
    with refused_waiting():
        executor.infer_and_backprop(*inputs)


def test_operators_are_timed_on_the_device_and_not_by_their_launch(backend):
    graph = GraphBuilder("products")
    x = graph.input("x", (4096, 4096))
    graph.output(graph.node("Relu", graph.node("MatMul", x, x)))
    made = graph.build()
    executor = backend.executor(made, trains=False)
    product, relu = executor.operator_times(*native(backend, made, 1), repeats=5)
    # 137 GFLOP take a GPU more than 100 us at any precision; a launch takes a tenth of that.
    assert min(product.times_s) > 100e-6
    assert 0 < np.median(relu.times_s) < np.median(product.times_s)


def test_the_operators_of_a_small_network_add_up_to_no_more_than_the_whole(backend):
    made = zoo.mlp(64, 128, 10)
    executor = backend.executor(made, trains=False)
    inputs = native(backend, made, 64)
    times = executor.operator_times(*inputs, repeats=5)
    assert len(times) == len(made.nodes)
    start = backend.clock().now_ns()
    executor.infer(*inputs)
    whole = (backend.clock().now_ns() - start) * 1e-9
    assert sum(np.median(each.times_s) for each in times) < whole


def test_a_module_moves_to_the_device_and_its_parts_are_timed(backend):
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    executor = backend.native(NativeModel("small", "torch", module, (Value("x", "float32", ("batch", 8)),)))
    x = backend.array(np.ones((4, 8), np.float32))
    assert executor.infer(x)[0].is_cuda
    times = executor.operator_times(x, repeats=2)
    assert [each.output for each in times] == ["0", "1"]
    assert all(min(each.times_s) > 0 for each in times)
