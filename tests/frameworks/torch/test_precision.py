"""Mixed precision and channels-last: the same results, with float32 where it is needed."""

import numpy as np
import pytest

from levelbench.errors import UnknownNameError
from levelbench.networks import Builder, Draw, GraphBuilder
from levelbench.networks.zoo.blocks import ImageBuilder
from levelbench.operators.custom import CustomOperator
from levelbench.operators.custom.definition import register

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def images(name="images"):
    """Convolutions, batch normalisation, a residual sum, both kinds of pooling and a linear layer."""
    g = ImageBuilder(name)
    x = g.relu(g.batch_norm(g.conv(g.image(3, 8), 16, 3, name="first", padding=1), name="norm"))
    x = g.max_pool(g.add(x, g.conv(x, 16, 3, name="second", padding=1)), 2, 2)
    g.output(g.linear(g.global_average_pool(x), 5, name="last"), "logits")
    return g.build().with_loss().training()


def native(backend, inputs):
    return [backend.array(each) for each in inputs.values()]


def trained_once(backend, network, **options):
    """Loss, gradients, outputs, and the executor, from the same random draw."""
    executor = backend.executor(network, network.initialise(1), **options)
    inputs = native(backend, network.make_inputs(64))
    loss, gradients = executor.infer_and_backprop(*inputs)
    (logits,) = executor.infer(*inputs[:1])
    return loss, gradients, logits, executor


def relative(found, wanted):
    return float((found - wanted).norm() / wanted.norm())


def test_gradients_in_bfloat16_are_those_of_float32_to_its_digits(torch_backend):
    _, wanted, _, _ = trained_once(torch_backend, images())
    _, found, _, _ = trained_once(torch_backend, images(), precision="bfloat16")
    # A bfloat16 has 8 bits, and a few roundings accumulate.
    assert all(relative(found[name], wanted[name]) < 0.05 for name in wanted)
    # Not the same bits: something was computed in bfloat16.
    assert any(relative(found[name], wanted[name]) > 1e-4 for name in wanted)


@pytest.mark.parametrize("channels_last", [False, True])
def test_parameters_gradients_buffers_loss_and_outputs_stay_float32(torch_backend, channels_last):
    loss, gradients, logits, executor = trained_once(
        torch_backend, images(), precision="bfloat16", channels_last=channels_last
    )
    held = [*executor.parameters.values(), *executor.buffers.values()]
    assert {each.dtype for each in (loss, logits, *gradients.values(), *held)} == {torch.float32}


def test_channels_last_changes_no_result(torch_backend):
    loss, gradients, logits, _ = trained_once(torch_backend, images())
    again, others, outputs, _ = trained_once(torch_backend, images(), channels_last=True)
    assert float(again) == pytest.approx(float(loss), rel=1e-5)
    np.testing.assert_allclose(torch_backend.host(outputs), torch_backend.host(logits), rtol=1e-4, atol=1e-5)
    assert all(relative(others[name], gradients[name]) < 1e-4 for name in gradients)


@pytest.mark.slow
def test_a_compiled_network_is_trained_in_bfloat16_and_channels_last_too(torch_backend):
    g = ImageBuilder("one")
    # Without a Relu: rounding near zero could flip it, which would not be an error of the gradient.
    x = g.conv(g.image(3, 4), 8, 3, name="first", padding=1)
    g.output(g.linear(g.flatten(x), 3, name="last"), "logits")
    network = g.build().with_loss()
    inputs = native(torch_backend, network.make_inputs(16))
    plain = torch_backend.executor(network, network.initialise(1))
    mixed = torch_backend.executor(
        network, network.initialise(1), mode="compiled", precision="bfloat16", channels_last=True
    )
    _, wanted = plain.infer_and_backprop(*inputs)
    loss, found = mixed.infer_and_backprop(*inputs)
    assert {each.dtype for each in (loss, *found.values())} == {torch.float32}
    off = [relative(found[name], wanted[name]) for name in wanted]
    assert 1e-4 < max(off) < 0.05


def test_channels_last_lays_kernels_out_so_and_leaves_the_rest(torch_backend):
    _, _, _, executor = trained_once(torch_backend, images(), channels_last=True)
    kernel = executor.parameters["second.weight"]
    assert kernel.is_contiguous(memory_format=torch.channels_last)
    assert not kernel.is_contiguous()
    assert executor.parameters["last.weight"].is_contiguous()


def test_channels_last_lays_constant_kernels_out_so_too(torch_backend):
    g = ImageBuilder("fixed")
    image = g.image(1, 8)
    fixed = np.random.default_rng(0).standard_normal((4, 1, 3, 3)).astype(np.float32)
    g.output(g.conv(image, 4, 3, name="first", padding=1, fixed=fixed), "out")
    network = g.build()
    images = torch.randn(2, 1, 8, 8)
    (plain,) = torch_backend.executor(network, {}).infer(images)
    (found,) = torch_backend.executor(network, {}, channels_last=True).infer(images)
    assert plain.is_contiguous()
    assert found.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(found, plain)


def test_a_parameter_put_in_keeps_the_layout_of_the_one_that_was_there(torch_backend):
    _, _, _, executor = trained_once(torch_backend, images(), channels_last=True)
    given = np.arange(16 * 16 * 9, dtype=np.float32).reshape(16, 16, 3, 3)
    executor.parameters["second.weight"] = given
    assert executor.parameters["second.weight"].is_contiguous(memory_format=torch.channels_last)
    np.testing.assert_array_equal(torch_backend.host(executor.parameters["second.weight"]), given)


def test_running_statistics_are_updated_in_bfloat16_as_in_float32(torch_backend):
    _, _, _, plain = trained_once(torch_backend, images())
    _, _, _, mixed = trained_once(torch_backend, images(), precision="bfloat16")
    assert float(plain.buffers["norm.running_mean"].abs().max()) > 0
    for name, wanted in plain.buffers.items():
        torch.testing.assert_close(mixed.buffers[name], wanted, rtol=0.02, atol=1e-3)


def test_the_loss_is_computed_in_float32_from_the_logits():
    """A cross-entropy of logits near 200 in bfloat16 would be off by up to one half."""
    from levelbench.frameworks.torch.backend import TorchBackend

    backend = TorchBackend()
    graph = GraphBuilder("scores")
    weight = graph.parameter("weight", (3, 3), Draw("normal", 1.0))
    graph.output(graph.node("Gemm", graph.input("x", ("batch", 3)), weight), "logits")
    network = graph.build().with_loss()
    eye = {"weight": 200 * np.eye(3, dtype=np.float32)}
    executor = backend.executor(network, eye, precision="bfloat16")
    x = np.array([[1.0, 0.99609375, 0.0]], np.float32)  # both are numbers of bfloat16: 200 and 199.21875 are not
    loss = executor.forward(backend.array(x), backend.array(np.array([1])))
    logits = torch.tensor([[200.0, 199.0, 0.0]])  # 199.21875 rounded to 8 bits
    wanted = torch.nn.functional.cross_entropy(logits, torch.tensor([1]))
    assert float(loss) == pytest.approx(float(wanted), rel=1e-6)


def test_a_custom_operator_is_given_float32_in_the_usual_layout(torch_backend):
    seen = []

    class Looked(CustomOperator):
        name = "PrecisionLooked"
        inputs = ("x",)
        outputs = ("y",)

        def infer(self, x):
            return x

        def forward(self, x):
            seen.append((x.dtype.name, x.flags["C_CONTIGUOUS"]))
            return x

        def backward(self, gradients, inputs, outputs):
            return gradients

    register(Looked)
    g = ImageBuilder("with_custom")
    x = g.conv(g.image(3, 4), 4, 3, name="first", padding=1)
    y = g.node("PrecisionLooked", x, domain="levelbench.custom", shape=("batch", 4, 4, 4))
    g.output(g.linear(g.flatten(g.shaped(y, (4, 4, 4))), 2, name="last"), "logits")
    network = g.build().with_loss()
    executor = torch_backend.executor(network, network.initialise(0), precision="bfloat16", channels_last=True)
    executor.infer_and_backprop(*native(torch_backend, network.make_inputs(2)))
    assert set(seen) == {("float32", True)}


def test_operators_are_timed_in_the_precision_that_was_requested(torch_backend):
    network = images().for_inference
    executor = torch_backend.executor(network, network.initialise(1), precision="bfloat16", channels_last=True)
    times = executor.operator_times(torch_backend.array(network.make_inputs(2)["input"]), repeats=2)
    assert [each.title for each in times].count("Conv") == 2
    assert all(len(each.times_s) == 2 for each in times)


def test_an_unknown_precision_is_refused_with_the_nearest(torch_backend):
    network = Builder("small", (4,)).gemm(2).build()
    with pytest.raises(UnknownNameError, match="bfloat16"):
        torch_backend.executor(network, precision="bfloat61")
